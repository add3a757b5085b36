//! Values that a text assigns to names of secrets: `PASSWORD=x`, `token: "x y"`, `--token x`, `<token>x</token>`.

use std::ops::Range;

use super::names::{Meaning, is_number_text, meaning};

/// The values of secrets in a text, in order.
pub(super) fn assigned(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut covered = 0;
    text.match_indices(['=', ':', ' ', '>']).filter_map(move |(at, sign)| {
        // Values are not searched again.
        if at < covered {
            return None;
        }
        let assignment = Assignment::at(text, at, sign)?;
        let value = assignment.value(text, at + 1)?;
        covered = value.end;
        (!value.is_empty()).then_some(value)
    })
}

/// A name and the sign after it.
struct Assignment<'t> {
    name: &'t str,
    sign: &'t str,
    meaning: Meaning,
    /// The quote in which the whole assignment is: `'Cookie: a=b'`.
    around: Option<char>,
}

impl<'t> Assignment<'t> {
    fn at(text: &'t str, at: usize, sign: &'t str) -> Option<Assignment<'t>> {
        let before = text.get(..at)?;
        let before = match sign {
            "=" | ":" => before.trim_end_matches([' ', '"', '\'', '`', '\\', ']']),
            _ => before,
        };
        // In `user:pass :8080`, the last sign is of the address.
        let is_apart = text.get(..at)?.ends_with(' ') && sign == ":";
        if is_apart && !text.get(at + 1..)?.starts_with([' ', '=', '"', '\'']) {
            return None;
        }
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let outside = before.trim_end_matches(is_of_name);
        let name = before.get(outside.len()..)?;
        let meaning = meaning(name);
        if name.is_empty() || meaning == Meaning::Ordinary {
            return None;
        }
        let is_assignment = match sign {
            " " => name.starts_with("--") || (is_password(name) && is_quoted(text.get(at..)?)),
            ">" => outside.ends_with('<'),
            _ => true,
        };
        let around = outside.chars().next_back().filter(|c| matches!(c, '"' | '\'' | '`'));
        let around = around.filter(|_| before.len() == at);
        is_assignment.then_some(Assignment { name, sign, meaning, around })
    }

    /// Where the value is in the text from `begin` on.
    fn value(&self, text: &str, begin: usize) -> Option<Range<usize>> {
        let rest = text.get(begin..)?;
        let line = match self.sign {
            ">" => rest,
            _ => rest.trim_start_matches([' ', '\t', '=', '>']),
        };
        let begin = begin + (rest.len() - line.len());
        let plain = self.name.to_ascii_lowercase();
        let of_several_words = plain.contains("authorization") || plain.contains("cookie");
        if self.meaning == Meaning::Tokens && line.starts_with('{') {
            return None;
        }
        let value = match quoted(line) {
            Some(quoted) if of_several_words => {
                let skipped = scheme(line.get(quoted.clone())?);
                quoted.start + skipped..quoted.end
            }
            Some(quoted) => quoted,
            None if of_several_words => {
                let ends = |c: char| matches!(c, '\n' | '\r') || Some(c) == self.around;
                let value = line.split(ends).next()?.trim_end();
                scheme(value)..value.len()
            }
            None => match bracketed(line) {
                Some(inside) => inside,
                None => 0..line.split(is_end).next()?.len(),
            },
        };
        let found = line.get(value.clone())?;
        let is_secret = self.meaning == Meaning::Secret || self.are_tokens(line, found);
        Some(if is_secret { begin + value.start..begin + value.end } else { begin..begin })
    }

    /// Whether the value of `tokens` is one or more secrets: in a sentence it may be anything.
    fn are_tokens(&self, line: &str, value: &str) -> bool {
        let has = |is: fn(&u8) -> bool| value.bytes().any(|b| is(&b));
        match line.chars().next() {
            Some('[') => has(u8::is_ascii_alphabetic),
            _ if is_number_text(value) => false,
            _ => {
                let telling = value.len() >= 8 && has(u8::is_ascii_digit);
                self.sign == "=" || is_quoted(line) || telling
            }
        }
    }
}

/// SQL and sentences have passwords without a sign: `PASSWORD 'x'`. Tokens are too often something else there.
fn is_password(name: &str) -> bool {
    ["password", "passwd", "passphrase"].iter().any(|word| name.eq_ignore_ascii_case(word))
}

/// The characters that end a value without quotes.
fn is_end(c: char) -> bool {
    c.is_whitespace() || "&;,\"'\\)]}<".contains(c)
}

/// The length of a scheme such as `Digest`, which precedes a credential.
fn scheme(line: &str) -> usize {
    let scheme = line.split(' ').next().filter(|word| word.len() < line.len());
    let scheme = scheme.filter(|word| word.chars().all(|c| c.is_ascii_alphabetic()));
    scheme.map_or(0, |scheme| scheme.len() + 1)
}

fn is_quoted(text: &str) -> bool {
    quoted(text.trim_start_matches(' ')).is_some()
}

/// The content of the quotes with which a text begins, up to the end of its line: `"x y"`, `\"x\"`, `b'x'`.
fn quoted(text: &str) -> Option<Range<usize>> {
    let unprefixed = text.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '$');
    let prefix = Some(text.len() - unprefixed.len()).filter(|prefix| *prefix <= 2)?;
    let opened = unprefixed.trim_start_matches('\\');
    let escapes = unprefixed.len() - opened.len();
    let quote = opened.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'))?;
    let begin = prefix + escapes + 1;
    let content = text.get(begin..)?;
    // One pass: many short values on one long line must not each read all of it.
    let mut backslashes = 0;
    let end = content.bytes().position(|byte| {
        let closes = backslashes == escapes || (escapes == 0 && backslashes % 2 == 0);
        let ends = matches!(byte, b'\n' | b'\r') || (byte == quote as u8 && closes);
        backslashes = if byte == b'\\' { backslashes + 1 } else { 0 };
        ends
    });
    let end = end.unwrap_or(content.len());
    let is_closed = content.as_bytes().get(end) == Some(&(quote as u8));
    Some(begin..begin + if is_closed { end - escapes } else { end })
}

/// The content of the brackets with which a text begins: `["x", "y"]`.
fn bracketed(text: &str) -> Option<Range<usize>> {
    if !text.starts_with(['[', '{']) {
        return None;
    }
    let mut depth = 0usize;
    let closing = text.bytes().position(|byte| {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    });
    Some(1..closing.unwrap_or(text.len()))
}
