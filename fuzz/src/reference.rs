//! Naive reference implementation of selectors.
//!
//! Patterns follow CPython: `fnmatch.translate`, line by line, produces the pieces of a regular
//! expression, character classes are parsed like `re` does, and a table holds every prefix that the
//! pieces so far can match.

pub fn fnmatch(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    // reached[n]: the pieces so far match the first n characters.
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    for piece in translate(&pattern) {
        let mut next = vec![false; name.len() + 1];
        for at in 0..=name.len() {
            match &piece {
                Piece::Star => next[at] = reached[at] || (at > 0 && next[at - 1]),
                piece => next[at] = at > 0 && reached[at - 1] && piece.accepts(name[at - 1]),
            }
        }
        reached = next;
    }
    reached[name.len()]
}

/// A name also matches a selector that is literally equal to it.
pub fn glob(pattern: &str, name: &str) -> bool {
    fnmatch(pattern, name) || pattern == name
}

pub fn is_hint(selector: &str) -> bool {
    selector.starts_with("hint:")
}

pub fn is_wildcard(selector: &str) -> bool {
    is_hint(selector) || selector.contains(['*', '?', '['])
}

/// Whether the selector covers the tool with any action or none.
pub fn names_tool(selector: &str, tool: &str) -> bool {
    let every_action = || selector.strip_suffix(".*").is_some_and(|left| glob(left, tool));
    !is_hint(selector) && (glob(selector, tool) || every_action())
}

/// The ways in which a dotted selector names an action of the tool: whether its left part is
/// literally the name of the tool, and the pattern of the action.
pub fn named_actions<'a>(selector: &'a str, tool: &str, by_pattern: bool) -> Vec<(bool, &'a str)> {
    if is_hint(selector) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (dot, _) in selector.match_indices('.') {
        let (left, right) = (&selector[..dot], &selector[dot + 1..]);
        if right != "*" && (left == tool || (by_pattern && glob(left, tool))) {
            found.push((left == tool, right));
        }
    }
    found
}

enum Piece {
    Star,
    Any,
    Never,
    Char(char),
    /// The text between the brackets of a character class.
    Class(Vec<char>),
}

impl Piece {
    fn accepts(&self, c: char) -> bool {
        match self {
            Piece::Star | Piece::Any => true,
            Piece::Never => false,
            Piece::Char(own) => *own == c,
            Piece::Class(body) => class_accepts(body, c),
        }
    }
}

fn translate(pat: &[char]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let n = pat.len();
    let mut i = 0;
    while i < n {
        let c = pat[i];
        i += 1;
        match c {
            '*' => pieces.push(Piece::Star),
            '?' => pieces.push(Piece::Any),
            '[' => {
                let mut j = i;
                if j < n && pat[j] == '!' {
                    j += 1;
                }
                if j < n && pat[j] == ']' {
                    j += 1;
                }
                while j < n && pat[j] != ']' {
                    j += 1;
                }
                if j >= n {
                    pieces.push(Piece::Char('['));
                } else {
                    pieces.push(class(&pat[i..j]));
                    i = j + 1;
                }
            }
            c => pieces.push(Piece::Char(c)),
        }
    }
    pieces
}

fn class(stuff: &[char]) -> Piece {
    let mut text: String;
    if !stuff.contains(&'-') {
        text = stuff.iter().collect::<String>().replace('\\', "\\\\");
    } else {
        let mut chunks: Vec<String> = Vec::new();
        let mut i = 0;
        let mut k = if stuff[0] == '!' { 2 } else { 1 };
        while let Some(hyphen) = (k..stuff.len()).find(|&at| stuff[at] == '-') {
            chunks.push(stuff[i..hyphen].iter().collect());
            i = hyphen + 1;
            k = hyphen + 3;
        }
        let chunk: String = stuff[i..].iter().collect();
        if !chunk.is_empty() {
            chunks.push(chunk);
        } else if let Some(last) = chunks.last_mut() {
            last.push('-');
        }
        for k in (1..chunks.len()).rev() {
            let low = chunks[k - 1].chars().last().expect("chunks are not empty yet");
            let high = chunks[k].chars().next().expect("chunks are not empty yet");
            if low > high {
                let rest: String = chunks.remove(k).chars().skip(1).collect();
                chunks[k - 1].pop();
                chunks[k - 1].push_str(&rest);
            }
        }
        let escaped = |chunk: &String| chunk.replace('\\', "\\\\").replace('-', "\\-");
        text = chunks.iter().map(escaped).collect::<Vec<_>>().join("-");
    }
    for operator in ["&", "~", "|"] {
        text = text.replace(operator, &format!("\\{operator}"));
    }
    match text.chars().next() {
        None => Piece::Never,
        Some('!') if text.len() == 1 => Piece::Any,
        Some('!') => Piece::Class(["^", &text[1..]].concat().chars().collect()),
        Some('^' | '[') => Piece::Class(["\\", &text].concat().chars().collect()),
        Some(_) => Piece::Class(text.chars().collect()),
    }
}

/// Parses a character class like `re`: `^` negates, `\` escapes the next character, and `a-b` is a
/// range unless the hyphen is last.
fn class_accepts(body: &[char], c: char) -> bool {
    let (negated, mut rest) = match body.split_first() {
        Some(('^', rest)) => (true, rest),
        _ => (false, body),
    };
    let mut accepts = false;
    while let Some((low, after)) = member(rest) {
        rest = after;
        if let Some(('-', after)) = rest.split_first()
            && let Some((high, after)) = member(after)
        {
            assert!(low <= high, "re refuses this range, so translate must never make it");
            accepts |= low <= c && c <= high;
            rest = after;
        } else {
            accepts |= low == c;
        }
    }
    accepts != negated
}

fn member(text: &[char]) -> Option<(char, &[char])> {
    match text {
        ['\\', c, rest @ ..] => Some((*c, rest)),
        [c, rest @ ..] => Some((*c, rest)),
        [] => None,
    }
}
