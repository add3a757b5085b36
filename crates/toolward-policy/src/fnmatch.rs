//! CPython 3.12's `fnmatch.fnmatchcase`, in time linear in the name.
//!
//! `*` matches any run of characters, `?` one character, `[seq]` and `[!seq]` one character in or
//! outside a class. There is no escape character and no invalid pattern. A `*` commits to the
//! earliest position at which the text up to the next `*` fits, so there is no backtracking.

/// Whether `text` has a character that makes it a pattern.
pub fn is_pattern(text: &str) -> bool {
    text.bytes().any(|b| matches!(b, b'*' | b'?' | b'['))
}

/// Whether `name` matches `pattern`. For a pattern that is used more than once, see [`Pattern`].
pub fn fnmatch(pattern: &str, name: &str) -> bool {
    Pattern::new(pattern).matches(name)
}

/// A compiled pattern, in the cheapest equivalent form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// No wildcard.
    Exact(Box<str>),
    /// `*`
    Any,
    /// `text*`
    Prefix(Box<str>),
    /// `*text`
    Suffix(Box<str>),
    Tokens(Box<[Token]>),
}

/// One element of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// A literal character.
    Char(char),
    /// `?`
    One,
    /// `*`
    Run,
    Class(Class),
}

/// `[…]`: characters and ranges, possibly negated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    negated: bool,
    ranges: Box<[(char, char)]>,
}

impl Pattern {
    pub fn new(text: &str) -> Pattern {
        if !is_pattern(text) {
            return Pattern::Exact(text.into());
        }
        if text == "*" {
            return Pattern::Any;
        }
        if let Some(rest) = text.strip_suffix('*')
            && !is_pattern(rest)
        {
            return Pattern::Prefix(rest.into());
        }
        if let Some(rest) = text.strip_prefix('*')
            && !is_pattern(rest)
        {
            return Pattern::Suffix(rest.into());
        }
        Pattern::Tokens(tokens(text))
    }

    /// Whether no name can match: a class is empty.
    pub fn is_impossible(&self) -> bool {
        let Pattern::Tokens(tokens) = self else {
            return false;
        };
        let empty = |class: &Class| class.ranges.is_empty() && !class.negated;
        tokens.iter().any(|token| matches!(token, Token::Class(class) if empty(class)))
    }

    /// The pattern as a sequence of tokens, whatever its form.
    pub(crate) fn into_tokens(self) -> Vec<Token> {
        let text = |text: &str| text.chars().map(Token::Char).collect::<Vec<_>>();
        match self {
            Pattern::Exact(exact) => text(&exact),
            Pattern::Any => vec![Token::Run],
            Pattern::Prefix(prefix) => text(&prefix).into_iter().chain([Token::Run]).collect(),
            Pattern::Suffix(suffix) => [Token::Run].into_iter().chain(text(&suffix)).collect(),
            Pattern::Tokens(tokens) => tokens.into_vec(),
        }
    }

    pub fn matches(&self, name: &str) -> bool {
        match self {
            Pattern::Exact(text) => **text == *name,
            Pattern::Any => true,
            Pattern::Prefix(text) => name.starts_with(&**text),
            Pattern::Suffix(text) => name.ends_with(&**text),
            Pattern::Tokens(tokens) => walk(tokens, name),
        }
    }
}

/// Greedy matching that falls back to the latest `*` only. An earlier one never needs another
/// attempt, because the later one can skip everything the earlier one could.
fn walk(tokens: &[Token], name: &str) -> bool {
    let mut t = 0;
    let mut rest = name.chars();
    let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
    loop {
        let before = rest.clone();
        let next = rest.next();
        match (tokens.get(t), next) {
            (None, None) => return true,
            (Some(Token::Run), _) => {
                t += 1;
                rest = before;
                if t == tokens.len() {
                    return true;
                }
                retry = Some((t, rest.clone()));
                continue;
            }
            (Some(token), Some(c)) if token.accepts(c) => {
                t += 1;
                continue;
            }
            (_, None) => return false,
            _ => {}
        }
        match &mut retry {
            None => return false,
            Some((start, from)) => {
                if from.next().is_none() {
                    return false;
                }
                t = *start;
                rest = from.clone();
            }
        }
    }
}

impl Token {
    pub(crate) fn accepts(&self, c: char) -> bool {
        match self {
            Token::Char(own) => *own == c,
            Token::One | Token::Run => true,
            Token::Class(class) => class.accepts(c),
        }
    }
}

impl Class {
    pub(crate) fn ranges(&self) -> &[(char, char)] {
        &self.ranges
    }

    fn accepts(&self, c: char) -> bool {
        self.ranges.iter().any(|&(low, high)| low <= c && c <= high) != self.negated
    }
}

fn tokens(text: &str) -> Box<[Token]> {
    let chars: Vec<char> = text.chars().collect();
    // If no `]` is left, every further `[` is literal; checking this keeps parsing linear.
    let last_close = chars.iter().rposition(|&c| c == ']');
    let mut tokens = Vec::with_capacity(chars.len());
    let mut i = 0;
    while i < chars.len() {
        let c = chars[i];
        i += 1;
        match c {
            '*' => {
                if tokens.last() != Some(&Token::Run) {
                    tokens.push(Token::Run);
                }
            }
            '?' => tokens.push(Token::One),
            '[' => match class_end(&chars, i, last_close) {
                None => tokens.push(Token::Char('[')),
                Some(end) => {
                    tokens.push(class(&chars[i..end]));
                    i = end + 1;
                }
            },
            c => tokens.push(Token::Char(c)),
        }
    }
    tokens.into()
}

/// The index of the `]` that closes a class whose content begins at `start`. A `]` at the start (or
/// right after a leading `!`) belongs to the content.
fn class_end(chars: &[char], start: usize, last_close: Option<usize>) -> Option<usize> {
    let mut end = start;
    if chars.get(end) == Some(&'!') {
        end += 1;
    }
    if chars.get(end) == Some(&']') {
        end += 1;
    }
    if last_close? < end {
        return None;
    }
    while *chars.get(end)? != ']' {
        end += 1;
    }
    Some(end)
}

/// The content between `[` and `]`. CPython splits it at hyphens into chunks, so that the last
/// character of a chunk and the first of the next form a range. A reversed range is removed
/// together with both ends, and a leading `!` is checked only after that.
fn class(content: &[char]) -> Token {
    let mut chunks: Vec<Vec<char>> = Vec::new();
    let mut begin = 0;
    let mut search = if content.first() == Some(&'!') { 2 } else { 1 };
    while let Some(hyphen) = (search..content.len()).find(|&at| content[at] == '-') {
        chunks.push(content[begin..hyphen].to_vec());
        begin = hyphen + 1;
        search = hyphen + 3;
    }
    let tail = &content[begin..];
    match chunks.last_mut() {
        Some(last) if tail.is_empty() => last.push('-'),
        _ => chunks.push(tail.to_vec()),
    }
    for k in (1..chunks.len()).rev() {
        if chunks[k - 1].last() > chunks[k].first() {
            let removed = chunks.remove(k);
            let kept = &mut chunks[k - 1];
            kept.pop();
            kept.extend_from_slice(&removed[1..]);
        }
    }
    let negated = chunks[0].first() == Some(&'!');
    if negated {
        chunks[0].remove(0);
    }
    let mut ranges = Vec::new();
    for (k, chunk) in chunks.iter().enumerate() {
        // Characters at both ends of a range are in the range too, so adding them again is
        // harmless.
        ranges.extend(chunk.iter().map(|&c| (c, c)));
        if let Some(next) = chunks.get(k + 1) {
            match (chunk.last(), next.first()) {
                (Some(&low), Some(&high)) => ranges.push((low, high)),
                // Only a `!` precedes this hyphen: it is literal.
                _ => ranges.push(('-', '-')),
            }
        }
    }
    Token::Class(Class { negated, ranges: ranges.into() })
}
