//! JSON strings as bytes: where one ends, what it says, how to write one.

use std::borrow::Cow;

use crate::scan::{Fault, ScanError};

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Reads the string that begins with the quote at `start`: the offset after its closing quote, and
/// whether it holds an escape.
#[inline]
pub(crate) fn end(bytes: &[u8], start: usize) -> Result<(usize, bool), ScanError> {
    let mut at = start + 1;
    let mut escaped = false;
    loop {
        at = plain_until(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return Ok((at + 1, escaped)),
            Some(b'\\') => {
                at = escape(bytes, at)?;
                escaped = true;
            }
            Some(_) => return Err(ScanError { fault: Fault::ControlCharacter, at }),
            None => return Err(ScanError { fault: Fault::UnexpectedEnd, at }),
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

/// Checks the escape at the backslash: the offset after it, after both halves of a pair.
fn escape(bytes: &[u8], at: usize) -> Result<usize, ScanError> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => {
            let unit = hex(bytes, at)?;
            match unit {
                0xd800..=0xdbff => {
                    let low = bytes.get(at + 6..).unwrap_or_default();
                    if !low.starts_with(b"\\u") {
                        let cut = b"\\u".starts_with(low);
                        let fault = if cut { Fault::UnexpectedEnd } else { Fault::LoneSurrogate };
                        return Err(ScanError { fault, at });
                    }
                    match hex(bytes, at + 6)? {
                        0xdc00..=0xdfff => Ok(at + 12),
                        _ => Err(ScanError { fault: Fault::LoneSurrogate, at }),
                    }
                }
                0xdc00..=0xdfff => Err(ScanError { fault: Fault::LoneSurrogate, at }),
                _ => Ok(at + 6),
            }
        }
        Some(_) => Err(ScanError { fault: Fault::BadEscape, at }),
        None => Err(ScanError { fault: Fault::UnexpectedEnd, at }),
    }
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

/// What the content of a checked string says; `content` stands without its quotes.
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
                if (0xd800..0xdc00).contains(&code) {
                    let low = hex(content, at).unwrap_or(0xdc00);
                    code = 0x10000 + ((code - 0xd800) << 10) + (low.wrapping_sub(0xdc00) & 0x3ff);
                    at += 6;
                }
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
