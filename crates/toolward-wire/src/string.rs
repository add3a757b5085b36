//! JSON strings as bytes: where one ends, what it says, how to write one.

use std::borrow::Cow;

use crate::scan::{Fault, ScanError};

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// A string that was checked.
pub(crate) struct Checked {
    /// The offset after its closing quote.
    pub(crate) end: usize,
    /// It holds an escape.
    pub(crate) escaped: bool,
    /// The offset of the first escape that is half of a surrogate pair.
    pub(crate) lone: Option<usize>,
}

/// Checks the string that begins with the quote at `start`.
#[inline]
pub(crate) fn check(bytes: &[u8], start: usize) -> Result<Checked, ScanError> {
    let mut at = start + 1;
    let (mut escaped, mut lone) = (false, None);
    loop {
        at = plain_until(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return Ok(Checked { end: at + 1, escaped, lone }),
            Some(b'\\') => {
                let (end, is_lone) = escape(bytes, at)?;
                if is_lone {
                    lone = lone.or(Some(at));
                }
                at = end;
                escaped = true;
            }
            Some(_) => return Err(ScanError { fault: Fault::ControlCharacter, at }),
            None => return Err(ScanError { fault: Fault::UnexpectedEnd, at }),
        }
    }
}

/// The offset after the string that begins at `start`, which was checked before.
pub(crate) fn end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        at = plain_until(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return bytes.len(),
        }
    }
}

/// The offset of the first byte from `at` on that is a quote, a backslash or a control character.
#[inline]
fn plain_until(bytes: &[u8], mut at: usize) -> usize {
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        let zero_in = |word: u64| word.wrapping_sub(ONES) & !word;
        let quote = zero_in(word ^ (ONES * b'"' as u64));
        let backslash = zero_in(word ^ (ONES * b'\\' as u64));
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        // Borrows run upwards only, so that the lowest mark is a true one.
        let marks = (quote | backslash | control) & HIGH;
        if marks != 0 {
            return at + (marks.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while let Some(byte) = bytes.get(at) {
        if matches!(byte, b'"' | b'\\' | 0..=0x1f) {
            break;
        }
        at += 1;
    }
    at
}

/// Checks the escape at the backslash: the offset after it, after both halves of a pair; and
/// whether it is one half without the other.
fn escape(bytes: &[u8], at: usize) -> Result<(usize, bool), ScanError> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok((at + 2, false)),
        Some(b'u') => match hex(bytes, at)? {
            0xd800..=0xdbff => match low_half(bytes, at + 6) {
                Some(_) => Ok((at + 12, false)),
                None => Ok((at + 6, true)),
            },
            0xdc00..=0xdfff => Ok((at + 6, true)),
            _ => Ok((at + 6, false)),
        },
        Some(_) => Err(ScanError { fault: Fault::BadEscape, at }),
        None => Err(ScanError { fault: Fault::UnexpectedEnd, at }),
    }
}

/// The second half of a surrogate pair, where its escape stands at `at`.
fn low_half(bytes: &[u8], at: usize) -> Option<u32> {
    let rest = bytes.get(at..)?;
    rest.starts_with(b"\\u")
        .then(|| hex(bytes, at).ok())?
        .filter(|unit| (0xdc00..0xe000).contains(unit))
}

/// The four digits of a `\u` escape.
fn hex(bytes: &[u8], at: usize) -> Result<u32, ScanError> {
    let mut unit = 0;
    for offset in at + 2..at + 6 {
        let Some(byte) = bytes.get(offset) else {
            return Err(ScanError { fault: Fault::UnexpectedEnd, at: offset });
        };
        let Some(digit) = (*byte as char).to_digit(16) else {
            return Err(ScanError { fault: Fault::BadEscape, at: offset });
        };
        unit = unit * 16 + digit;
    }
    Ok(unit)
}

/// What the content of a checked string says, with a replacement character for half of a surrogate
/// pair; `content` stands without its quotes.
pub(crate) fn unescape(content: &[u8]) -> Cow<'_, str> {
    if !content.contains(&b'\\') {
        return Cow::Borrowed(std::str::from_utf8(content).unwrap_or_default());
    }
    let mut said = Vec::with_capacity(content.len());
    unescape_into(content, &mut said);
    Cow::Owned(String::from_utf8(said).unwrap_or_default())
}

pub(crate) fn unescape_into(content: &[u8], said: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&byte) = content.get(at) {
        if byte != b'\\' {
            said.push(byte);
            at += 1;
            continue;
        }
        let plain = match content.get(at + 1) {
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                let mut code = hex(content, at).unwrap_or(0xfffd);
                at += 6;
                if (0xd800..0xdc00).contains(&code)
                    && let Some(low) = low_half(content, at)
                {
                    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                    at += 6;
                }
                // Half of a pair says nothing that UTF-8 could say.
                let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                said.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            Some(&other) => other,
            None => b'\\',
        };
        said.push(plain);
        at += 2;
    }
}

/// Writes `text` as a JSON string. Line and paragraph separators are escaped too, because some
/// readers of lines take them for the end of one.
pub fn write(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let plain = |byte: u8| matches!(byte, b' ' | b'!' | b'#'..=b'[' | b']'..=b'~');
    // Most texts need no escape anywhere.
    if text.bytes().all(plain) {
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    for character in text.chars() {
        match character {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\0'..='\x1f' | '\u{2028}' | '\u{2029}' => {
                out.extend_from_slice(format!("\\u{:04x}", character as u32).as_bytes());
            }
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// `text` as a JSON string.
pub fn quote(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    write(text, &mut out);
    out
}

/// Equal for a reader that ignores case. Unicode folding, because some readers do that too (`ſ` is
/// an `s` to them).
pub fn equal_folded(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b) || (!(a.is_ascii() && b.is_ascii()) && fold(a) == fold(b))
}

/// The form under which two names that a careless reader takes for one are equal.
pub fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}
