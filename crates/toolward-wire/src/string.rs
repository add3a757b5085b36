//! JSON strings as bytes: checking, unescaping, writing and case folding.

use std::borrow::Cow;

use crate::scan_error::{Fault, ScanError};
use crate::swar;

/// The result of checking a string.
pub(crate) struct CheckedString {
    /// The offset after the closing quote.
    pub(crate) end: usize,
    /// Whether the string contains an escape sequence.
    pub(crate) escaped: bool,
    /// The offset of the first escape sequence that is an unpaired surrogate.
    pub(crate) lone_surrogate: Option<usize>,
}

/// Checks the string that starts with the quote at `start`.
#[inline]
pub(crate) fn check(bytes: &[u8], start: usize) -> Result<CheckedString, ScanError> {
    let at = plain_until(bytes, start + 1);
    match bytes.get(at) {
        Some(b'"') => Ok(CheckedString { end: at + 1, escaped: false, lone_surrogate: None }),
        _ => check_from(bytes, at),
    }
}

/// Checks the rest of a string, starting at a byte that is not plain.
#[inline(never)]
fn check_from(bytes: &[u8], mut at: usize) -> Result<CheckedString, ScanError> {
    let (mut escaped, mut lone_surrogate) = (false, None);
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(CheckedString { end: at + 1, escaped, lone_surrogate }),
            Some(b'\\') => {
                let (end, is_lone) = escape(bytes, at)?;
                if is_lone {
                    lone_surrogate = lone_surrogate.or(Some(at));
                }
                at = end;
                escaped = true;
            }
            Some(_) => return Err(ScanError { fault: Fault::ControlCharacter, at }),
            None => return Err(ScanError { fault: Fault::UnexpectedEnd, at }),
        }
        at = plain_until(bytes, at);
    }
}

/// Finds the end of an already checked string that starts at `start`.
///
/// Returns the offset after its closing quote, and whether it contains an escape sequence.
#[inline]
pub(crate) fn end(bytes: &[u8], start: usize) -> (usize, bool) {
    let at = plain_until(bytes, start + 1);
    match bytes.get(at) {
        Some(b'"') => (at + 1, false),
        _ => (end_from(bytes, at), true),
    }
}

/// Finds the end of a string, starting at an escape sequence.
#[inline(never)]
fn end_from(bytes: &[u8], mut at: usize) -> usize {
    loop {
        match bytes.get(at) {
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return bytes.len(),
        }
        at = plain_until(bytes, at);
    }
}

/// The offset of the first quote, backslash or control character at or after `at`.
#[inline(always)]
fn plain_until(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    // Most strings are short, so the first eight bytes are checked inline.
    let Some((chunk, after)) = rest.split_first_chunk() else {
        return at + plain_length(rest);
    };
    match swar::string_marks(u64::from_le_bytes(*chunk)) {
        0 => at + 8 + plain_length(after),
        marked => at + swar::lowest(marked),
    }
}

#[inline(never)]
fn plain_length(bytes: &[u8]) -> usize {
    swar::find(bytes, swar::string_marks)
}

/// Checks the escape sequence at the backslash at `at`.
///
/// Returns the offset after it (after both halves of a surrogate pair), and whether it is an
/// unpaired surrogate.
#[inline]
fn escape(bytes: &[u8], at: usize) -> Result<(usize, bool), ScanError> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok((at + 2, false)),
        Some(b'u') => unicode_escape(bytes, at),
        Some(_) => Err(ScanError { fault: Fault::BadEscape, at }),
        None => Err(ScanError { fault: Fault::UnexpectedEnd, at }),
    }
}

fn unicode_escape(bytes: &[u8], at: usize) -> Result<(usize, bool), ScanError> {
    match hex(bytes, at)? {
        0xd800..=0xdbff => match low_half(bytes, at + 6) {
            Some(_) => Ok((at + 12, false)),
            None => Ok((at + 6, true)),
        },
        0xdc00..=0xdfff => Ok((at + 6, true)),
        _ => Ok((at + 6, false)),
    }
}

/// The low surrogate, if its escape sequence is at `at`.
fn low_half(bytes: &[u8], at: usize) -> Option<u32> {
    let rest = bytes.get(at..)?;
    rest.starts_with(b"\\u")
        .then(|| hex(bytes, at).ok())?
        .filter(|unit| (0xdc00..0xe000).contains(unit))
}

/// Reads the four hex digits of a `\u` escape sequence.
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

/// Unescapes the content of a checked string, given without its quotes.
///
/// Unpaired surrogates become replacement characters.
pub(crate) fn unescape(content: &[u8]) -> Cow<'_, str> {
    match unescaped(content) {
        Cow::Borrowed(bytes) => Cow::Borrowed(std::str::from_utf8(bytes).unwrap_or_default()),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8(bytes).unwrap_or_default()),
    }
}

/// Like [`unescape`], but returns bytes.
///
/// The bytes are valid UTF-8. Comparisons use this to avoid validating them a second time.
pub(crate) fn unescaped(content: &[u8]) -> Cow<'_, [u8]> {
    if !swar::any(content, swar::backslashes) {
        return Cow::Borrowed(content);
    }
    let mut text = Vec::with_capacity(content.len());
    unescape_into(content, &mut text);
    Cow::Owned(text)
}

pub(crate) fn unescape_into(content: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    loop {
        let rest = content.get(at..).unwrap_or_default();
        let plain = swar::find(rest, swar::backslashes);
        out.extend_from_slice(rest.get(..plain).unwrap_or_default());
        if plain == rest.len() {
            return;
        }
        at += plain;
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
                // An unpaired surrogate cannot be encoded in UTF-8.
                let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            Some(&other) => other,
            None => b'\\',
        };
        out.push(plain);
        at += 2;
    }
}

/// Appends `text` as a JSON string.
///
/// U+2028 and U+2029 are escaped too, because some line readers treat them as line ends.
pub fn write(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    // Most texts need no escaping.
    if swar::any(bytes, swar::not_plain) {
        write_escaped(text, out);
    } else {
        out.extend_from_slice(bytes);
    }
    out.push(b'"');
}

#[inline(never)]
fn write_escaped(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let (mut written, mut at) = (0, 0);
    loop {
        at += swar::find(bytes.get(at..).unwrap_or_default(), swar::to_escape);
        let control;
        let (length, escape): (usize, &[u8]) = match bytes.get(at..).unwrap_or_default() {
            [] => break,
            [b'"', ..] => (1, b"\\\""),
            [b'\\', ..] => (1, b"\\\\"),
            [b'\n', ..] => (1, b"\\n"),
            [b'\r', ..] => (1, b"\\r"),
            [b'\t', ..] => (1, b"\\t"),
            [byte @ 0..=0x1f, ..] => {
                control = format!("\\u{byte:04x}");
                (1, control.as_bytes())
            }
            // U+2028 and U+2029.
            [0xe2, 0x80, 0xa8, ..] => (3, b"\\u2028"),
            [0xe2, 0x80, 0xa9, ..] => (3, b"\\u2029"),
            // Another character with the same first byte.
            [..] => {
                at += 1;
                continue;
            }
        };
        out.extend_from_slice(bytes.get(written..at).unwrap_or_default());
        out.extend_from_slice(escape);
        at += length;
        written = at;
    }
    out.extend_from_slice(bytes.get(written..).unwrap_or_default());
}

/// Returns `text` as a JSON string.
pub fn quote(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    write(text, &mut out);
    out
}

/// Compares two names the way a case-insensitive parser does.
///
/// Uses Unicode case folding, because some parsers do (they read `ſ` as `s`).
pub fn equal_folded(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b) || (!(a.is_ascii() && b.is_ascii()) && fold(a) == fold(b))
}

/// Folds the case of a name: names that a case-insensitive parser confuses have the same result.
pub fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_where_necessary() {
        // Different offsets within a word, and characters with the separators' first byte.
        for before in ["", "a", "seven77", "eight888", "é and more than a word"] {
            for (text, written) in [
                ("\"\\/", "\\\"\\\\/"),
                ("\n\r\t", "\\n\\r\\t"),
                ("\0\u{8}\u{1f}\u{7f}", "\\u0000\\u0008\\u001f\u{7f}"),
                ("\u{2028}\u{2029}", "\\u2028\\u2029"),
                ("\u{2027}\u{202a}\u{20ac}é", "\u{2027}\u{202a}\u{20ac}é"),
            ] {
                let quoted = quote(&format!("{before}{text}{before}"));
                let expected = format!("\"{before}{written}{before}\"");
                assert_eq!(String::from_utf8(quoted).as_deref(), Ok(&expected[..]));
            }
        }
    }
}
