//! SWAR byte search: eight bytes at a time in a 64-bit word.
//!
//! A matching byte is marked by its high bit. Borrows propagate upwards only, so the lowest mark of
//! a word is always correct, and a word without marks has no match. Marks above the lowest one may
//! be wrong.

const HIGH: u64 = splat(0x80);

/// A word in which every byte is `byte`.
const fn splat(byte: u8) -> u64 {
    0x0101_0101_0101_0101 * byte as u64
}

/// Marks the bytes below `limit`, which must be at most 0x80. All bits but the high ones are
/// meaningless.
#[inline(always)]
const fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(splat(limit)) & !word
}

#[inline(always)]
const fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ splat(byte), 1)
}

/// Marks quotes, backslashes and control characters.
#[inline(always)]
pub(crate) const fn string_marks(word: u64) -> u64 {
    // Flipping this bit maps the quote (0x22) to 0x20, next to the control characters.
    (below(word ^ splat(0x02), 0x21) | equal(word, b'\\')) & HIGH
}

#[inline(always)]
pub(crate) const fn backslashes(word: u64) -> u64 {
    equal(word, b'\\') & HIGH
}

#[inline(always)]
pub(crate) const fn colons(word: u64) -> u64 {
    equal(word, b':') & HIGH
}

/// Marks what [`string_marks`] does, and non-ASCII bytes.
#[inline(always)]
pub(crate) const fn not_plain(word: u64) -> u64 {
    string_marks(word) | (word & HIGH)
}

/// Marks what [`string_marks`] does, and the first byte of U+2028 and U+2029.
#[inline(always)]
pub(crate) const fn to_escape(word: u64) -> u64 {
    string_marks(word) | (equal(word, 0xe2) & HIGH)
}

/// Marks control characters, including tabs.
#[inline(always)]
const fn controls(word: u64) -> u64 {
    (below(word, 0x20) | equal(word, 0x7f)) & HIGH
}

/// Marks control characters, including tabs, and non-ASCII bytes.
#[inline(always)]
pub(crate) const fn not_text(word: u64) -> u64 {
    controls(word) | (word & HIGH)
}

/// The index of the first marked byte.
#[inline(always)]
pub(crate) const fn lowest(marks: u64) -> usize {
    (marks.trailing_zeros() / 8) as usize
}

/// The offset of the first marked byte, or the length if no byte is marked.
#[inline(always)]
pub(crate) fn find(bytes: &[u8], marks: impl Fn(u64) -> u64) -> usize {
    let (chunks, rest) = bytes.as_chunks();
    let mut at = 0;
    for chunk in chunks {
        let marked = marks(u64::from_le_bytes(*chunk));
        if marked != 0 {
            return at + lowest(marked);
        }
        at += 8;
    }
    // The word is padded with zeros, which may be marked too.
    let marked = marks(rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    at + if marked != 0 { lowest(marked).min(rest.len()) } else { rest.len() }
}

/// Whether any byte is marked.
///
/// The last word may overlap the one before it, which avoids a byte-by-byte loop.
#[inline(always)]
pub(crate) fn any(bytes: &[u8], marks: impl Fn(u64) -> u64) -> bool {
    let Some(last) = bytes.last_chunk() else {
        return marks(short(bytes)) != 0;
    };
    bytes.as_chunks().0.iter().any(|chunk| marks(u64::from_le_bytes(*chunk)) != 0)
        || marks(u64::from_le_bytes(*last)) != 0
}

/// Like the standard method, which checks 64 bytes at a time but the remainder byte by byte.
pub(crate) fn is_ascii(bytes: &[u8]) -> bool {
    let (most, rest) = bytes.split_at(bytes.len() / 64 * 64);
    most.is_ascii() && !any(rest, |word| word & HIGH)
}

/// Loads fewer than eight bytes into a word, padded with bytes that are never marked.
#[inline(always)]
fn short(bytes: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32;
    }
    bytes.iter().fold(splat(b'a'), |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks every byte value at every offset of texts of every length.
    fn holds(marks: fn(u64) -> u64, wanted: fn(u8) -> bool) {
        for length in 0..20 {
            for byte in 0..=255u8 {
                for at in 0..length {
                    let mut text = vec![b'a'; length];
                    text[at] = byte;
                    assert_eq!(any(&text, marks), wanted(byte), "{byte} at {at} of {length}");
                    let found = if wanted(byte) { at } else { length };
                    assert_eq!(find(&text, marks), found, "{byte} at {at} of {length}");
                }
            }
        }
        // Bytes after a match do not affect the position of the first one.
        for pair in 0..=u16::MAX {
            let [first, second] = pair.to_le_bytes();
            let text = [b'a', first, second, b'a', b'a', b'a', b'a', b'a', b'a'];
            let expected = text.iter().position(|byte| wanted(*byte)).unwrap_or(text.len());
            assert_eq!(find(&text, marks), expected, "{first} {second}");
        }
    }

    #[test]
    fn ascii_is_detected_at_any_length() {
        for length in 0..200 {
            let mut text = vec![b'a'; length];
            assert!(is_ascii(&text));
            for at in 0..length {
                text[at] = 0x80;
                assert!(!is_ascii(&text));
                text[at] = 0x7f;
            }
        }
    }

    #[test]
    fn marks_are_where_they_should_be() {
        let in_string = |byte: u8| matches!(byte, 0..=0x1f | b'"' | b'\\');
        holds(string_marks, in_string);
        holds(backslashes, |byte| byte == b'\\');
        holds(colons, |byte| byte == b':');
        holds(not_plain, |byte| matches!(byte, 0..=0x1f | b'"' | b'\\' | 0x80..));
        holds(to_escape, |byte| matches!(byte, 0..=0x1f | b'"' | b'\\' | 0xe2));
        holds(controls, |byte| matches!(byte, 0..=0x1f | 0x7f));
        holds(not_text, |byte| matches!(byte, 0..=0x1f | 0x7f..));
    }
}
