//! The format of a record: one line of JSON, without characters that could harm a terminal.

use sha2::{Digest, Sha256};

use super::facts::Facts;
use crate::clock::micros;

/// The hash of a record, which the next one contains.
pub type Hash = [u8; 32];

/// The `prev` hash of the very first record.
pub const NOTHING: Hash = [0; 32];

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Serialized records that are not chained yet: the end of each is missing.
#[derive(Debug, Default)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    ends: Vec<End>,
}

/// The end of a record.
#[derive(Debug, Clone, Copy)]
struct End {
    at: usize,
    /// A task waits for this record before it continues.
    awaited: bool,
}

impl Lines {
    pub(super) fn push(&mut self, id: &str, kind: &str, facts: &Facts) {
        self.push_as(id, kind, facts, true);
    }

    /// The same; `awaited` is whether a task waits for this record. A record that nothing waits for
    /// is about a past event.
    pub(super) fn push_as(&mut self, id: &str, kind: &str, facts: &Facts, awaited: bool) {
        let begin = self.bytes.len();
        self.bytes.reserve(96 + facts.members().len());
        self.bytes.extend_from_slice(b"{\"id\":\"");
        self.bytes.extend_from_slice(id.as_bytes());
        self.bytes.extend_from_slice(b"\",\"time\":\"");
        write_time(micros(), &mut self.bytes);
        self.bytes.extend_from_slice(b"\",\"kind\":\"");
        self.bytes.extend_from_slice(kind.as_bytes());
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(facts.members());
        let line = self.bytes.get(begin..).unwrap_or_default();
        // No early exit, so that the loop is vectorized.
        let plain = line.iter().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~'));
        if !plain {
            let line = harmless(&String::from_utf8_lossy(line));
            self.bytes.truncate(begin);
            self.bytes.extend_from_slice(line.as_bytes());
        }
        self.ends.push(End { at: self.bytes.len(), awaited });
    }

    /// Takes over records about past events, up to `most` bytes in total. Returns the number of
    /// records that a task waited for, and the number that did not fit.
    pub(super) fn keep(&mut self, other: &Lines, most: usize) -> (u64, u64) {
        let (mut awaited, mut lost, mut begin) = (0, 0, 0);
        for end in &other.ends {
            let line = other.bytes.get(begin..end.at).unwrap_or_default();
            begin = end.at;
            if end.awaited {
                awaited += 1;
            } else if self.bytes.len() + line.len() > most {
                lost += 1;
            } else {
                self.bytes.extend_from_slice(line);
                self.ends.push(End { at: self.bytes.len(), awaited: false });
            }
        }
        (awaited, lost)
    }

    pub(super) fn append(&mut self, other: &Lines) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| End { at: begin + end.at, ..*end }));
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The allocation, for the next records; a large one is not kept forever.
    pub(super) fn reuse(mut self) -> Lines {
        self.clear();
        self.bytes.shrink_to(64 << 10);
        self.ends.shrink_to(1 << 10);
        self
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Writes the records, each with the hash of the previous one; returns the hash of the last
    /// one.
    pub(super) fn chain(&self, mut previous: Hash, out: &mut Vec<u8>) -> Hash {
        let mut begin = 0;
        for end in &self.ends {
            let at = out.len();
            out.extend_from_slice(self.bytes.get(begin..end.at).unwrap_or_default());
            out.extend_from_slice(b",\"prev\":\"");
            write_hex(&previous, out);
            out.extend_from_slice(b"\"}");
            previous = hash(out.get(at..).unwrap_or_default());
            out.push(b'\n');
            begin = end.at;
        }
        previous
    }
}

/// The hash of a line without its newline.
pub fn hash(line: &[u8]) -> Hash {
    Sha256::digest(line).into()
}

pub(crate) fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + 2 * bytes.len(), 0);
    let places = out.get_mut(start..).unwrap_or_default().chunks_exact_mut(2);
    for (place, byte) in places.zip(bytes) {
        place.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Writes a number in hexadecimal, with at least `least` digits.
pub(super) fn write_hex_number(number: u64, least: usize, out: &mut Vec<u8>) {
    let needed = (64 - number.leading_zeros() as usize).div_ceil(4).max(least).clamp(1, 16);
    let (mut text, mut rest) = ([0; 16], number);
    for place in text.iter_mut().rev() {
        *place = DIGITS[(rest & 15) as usize];
        rest >>= 4;
    }
    out.extend_from_slice(&text[16 - needed..]);
}

pub fn hex(bytes: &[u8]) -> String {
    let mut text = Vec::with_capacity(2 * bytes.len());
    write_hex(bytes, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The `prev` hash of a record: its last member.
pub fn previous(line: &[u8]) -> Option<Hash> {
    let digits = line.strip_suffix(b"\"}")?.last_chunk::<64>()?;
    let before = line.get(..line.len() - 66)?;
    if !before.ends_with(b",\"prev\":\"") {
        return None;
    }
    let mut hash = NOTHING;
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |c: u8| match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        };
        *byte = digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?;
    }
    Some(hash)
}

/// `2026-07-28T09:30:00.000000Z`
pub fn time(micros: u64) -> String {
    let mut text = Vec::with_capacity(27);
    write_time(micros, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn write_time(micros: u64, out: &mut Vec<u8>) {
    let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
    let (year, month, day) = date(seconds / 86_400);
    let of_day = seconds % 86_400;
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    digits(year, &mut text[0..4]);
    digits(month, &mut text[5..7]);
    digits(day, &mut text[8..10]);
    digits(of_day / 3600, &mut text[11..13]);
    digits(of_day / 60 % 60, &mut text[14..16]);
    digits(of_day % 60, &mut text[17..19]);
    digits(fraction, &mut text[20..26]);
    out.extend_from_slice(&text);
}

/// Writes the last digits of a number.
#[inline]
fn digits(number: u64, places: &mut [u8]) {
    let mut rest = number;
    for place in places.iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// Year, month and day of a day since 1970. Years are counted from March, so that a leap day is the
/// last day of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, day)
}

/// The same JSON, without characters that reorder or hide text on a terminal.
pub fn harmless(json: &str) -> String {
    let hostile = |c: char| {
        matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
    };
    json.chars().fold(String::with_capacity(json.len() + 1), |mut text, c| {
        match hostile(c) {
            // Such characters occur only in strings, where an escape is equivalent.
            true => text.push_str(&format!("\\u{:04x}", c as u32)),
            // Tags hide text from people but not from programs; they need a pair of escapes.
            false if matches!(c, '\u{e0000}'..='\u{e007f}') => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
            false => text.push(c),
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000000Z"),
            (1_794_787_353, "2026-11-16T00:02:33.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(time(seconds * 1_000_000), text);
        }
        assert_eq!(time(1_000_007), "1970-01-01T00:00:01.000007Z");
    }

    #[test]
    fn each_line_carries_the_hash_of_the_one_before() {
        let mut lines = Lines::default();
        let mut facts = Facts::default();
        facts.text("name", "a\u{202e}\u{e0041}b");
        lines.push("1", "start", &facts);
        lines.push("2", "stop", &Facts::default());
        let mut out = Vec::new();
        let last = lines.chain(NOTHING, &mut out);
        let text = String::from_utf8(out).unwrap();
        let [first, second] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(text.is_ascii() && first.contains(r"a\u202e\udb40\udc41b"), "{first}");
        assert_eq!(previous(first.as_bytes()), Some(NOTHING));
        assert_eq!(previous(second.as_bytes()), Some(hash(first.as_bytes())));
        assert_eq!(hash(second.as_bytes()), last);
        let read: serde_json::Value = serde_json::from_str(first).unwrap();
        assert_eq!(read["name"], "a\u{202e}\u{e0041}b");
    }
}
