//! What the heads of requests and responses share: their lines and fields.

use std::fmt;

use bytes::{Bytes, BytesMut};
use memchr::{memchr, memchr_iter};

use super::body::BodyLength;
use super::chars::{is_token, trim};
use super::problem::HeadProblem;

/// How large a head may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    pub bytes: usize,
    pub fields: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        HeadLimits { bytes: 32 << 10, fields: 100 }
    }
}

/// The fields of a head, in their order, as they were sent.
#[derive(Clone)]
pub struct Headers {
    head: Bytes,
    fields: Vec<Field>,
}

/// Where a field lies in the head.
#[derive(Debug, Clone, Copy)]
struct Field {
    name: u32,
    name_end: u32,
    value: u32,
    value_end: u32,
}

impl Headers {
    /// The value of the first field of this name in any case, without white space around it; `None`
    /// also where it is not ASCII.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.find(name)?;
        // ASCII is UTF-8.
        if value.is_ascii() { std::str::from_utf8(value).ok() } else { None }
    }

    /// How many fields have this name in any case.
    pub fn count(&self, name: &str) -> usize {
        self.values(name).count()
    }

    /// All fields, with their names as sent.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.raw().map(|(name, value)| (std::str::from_utf8(name).unwrap_or_default(), value))
    }

    /// Each value of the fields of this name.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.raw()
            .filter(move |(sent, _)| sent.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    pub(super) fn find(&self, name: &str) -> Option<&[u8]> {
        self.values(name).next()
    }

    fn raw(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let part =
            |from: u32, to: u32| self.head.get(from as usize..to as usize).unwrap_or_default();
        self.fields.iter().map(move |field| {
            (part(field.name, field.name_end), part(field.value, field.value_end))
        })
    }

    /// Refuses a name that stands twice where `alone` says that it may not.
    pub(super) fn refuse_duplicates(&self, alone: fn(&[u8]) -> bool) -> Result<(), HeadProblem> {
        for (at, (name, _)) in self.raw().enumerate() {
            let same = |(earlier, _): (&[u8], &[u8])| earlier.eq_ignore_ascii_case(name);
            if alone(name) && self.raw().take(at).any(same) {
                let name = String::from_utf8_lossy(name).to_ascii_lowercase();
                return Err(HeadProblem::DuplicateField { name });
            }
        }
        Ok(())
    }

    /// Whether the sender will close the connection after this.
    pub(super) fn says_close(&self) -> bool {
        self.values("connection")
            .flat_map(|value| value.split(|byte| *byte == b','))
            .any(|option| trim(option).eq_ignore_ascii_case(b"close"))
    }

    /// What the fields say about the length of the body. That each of them stands at most once is
    /// checked before.
    pub(super) fn body_length(&self, old: bool) -> Result<Option<BodyLength>, HeadProblem> {
        let (length, coding) = (self.find("content-length"), self.find("transfer-encoding"));
        match (length, coding) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(HeadProblem::TwoLengths),
            (Some(length), None) => Ok(Some(BodyLength::Known(number(length)?))),
            (None, Some(_)) if old => Err(HeadProblem::CodingInOldVersion),
            (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => {
                Ok(Some(BodyLength::Chunked))
            }
            (None, Some(codings)) => {
                let unknown = codings
                    .split(|byte| *byte == b',')
                    .map(trim)
                    .any(|coding| is_token(coding) && !coding.eq_ignore_ascii_case(b"chunked"));
                Err(match unknown {
                    true => HeadProblem::UnknownTransferCoding,
                    false => HeadProblem::BadTransferEncoding,
                })
            }
        }
    }
}

/// Names only: values may be secrets.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

/// Digits and nothing else: `parse` would take a sign too.
fn number(digits: &[u8]) -> Result<u64, HeadProblem> {
    std::str::from_utf8(digits)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .ok_or(HeadProblem::BadContentLength)
}

/// A whole head that was cut from the buffer.
pub(super) struct Lines {
    head: Bytes,
    lines: usize,
    first_end: usize,
}

/// Cuts a head from the buffer; `None` while its end has not come.
///
/// What is wrong is found at the same byte however the bytes arrive, and line ends as soon as they
/// do: nobody is made to wait for the end of a head that has no end.
pub(super) fn cut(
    buffer: &mut BytesMut,
    limits: &HeadLimits,
) -> Result<Option<Lines>, HeadProblem> {
    // Places are kept in 32 bits.
    let limit = limits.bytes.min(u32::MAX as usize);
    let window = buffer.get(..limit).unwrap_or(buffer);
    let (mut start, mut lines, mut first_end) = (0, 0, 0);
    for feed in memchr_iter(b'\n', window) {
        let Some(end) = feed.checked_sub(1).filter(|end| window.get(*end) == Some(&b'\r')) else {
            return Err(HeadProblem::BadLineEnd);
        };
        // An empty line ends the head; one before everything else is a line that is not a head's.
        if end == start && lines > 0 {
            let head = buffer.split_to(feed + 1).freeze();
            return plain(&head, lines + 1).map(|()| Some(Lines { head, lines, first_end }));
        }
        if lines == 0 {
            first_end = end;
        } else if lines > limits.fields {
            return Err(HeadProblem::TooManyFields { limit: limits.fields });
        }
        lines += 1;
        start = feed + 1;
    }
    if buffer.len() >= limit {
        return Err(HeadProblem::HeadTooLarge { limit });
    }
    Ok(None)
}

/// No control characters but the tab and the ends of lines, each of which is known to have its
/// carriage return. Without early exits, which lets the loop take many bytes at a time.
fn plain(head: &[u8], line_ends: usize) -> Result<(), HeadProblem> {
    let (mut returns, mut controls) = (0usize, 0usize);
    for byte in head {
        returns += usize::from(*byte == b'\r');
        controls += usize::from((*byte < 0x20 && *byte != b'\t') || *byte == 0x7f);
    }
    if returns != line_ends {
        return Err(HeadProblem::BadLineEnd);
    }
    if controls != 2 * line_ends {
        return Err(HeadProblem::ControlByte);
    }
    Ok(())
}

impl Lines {
    /// The request line or status line.
    pub(super) fn first(&self) -> Bytes {
        self.head.slice(..self.first_end)
    }

    /// Reads the fields.
    pub(super) fn headers(self) -> Result<Headers, HeadProblem> {
        let mut fields = Vec::with_capacity(self.lines - 1);
        let mut start = self.first_end + 2;
        let rest = self.head.get(start..).unwrap_or_default();
        let base = start;
        for feed in memchr_iter(b'\n', rest) {
            let end = base + feed - 1;
            let line = self.head.get(start..end).unwrap_or_default();
            if line.is_empty() {
                break;
            }
            fields.push(field(line, start)?);
            start = base + feed + 1;
        }
        Ok(Headers { head: self.head, fields })
    }
}

fn field(line: &[u8], start: usize) -> Result<Field, HeadProblem> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(HeadProblem::FoldedField);
    }
    let colon = memchr(b':', line).ok_or(HeadProblem::BadFieldName)?;
    let (name, value) = line.split_at(colon);
    // White space before the colon is no part of a token either.
    if !is_token(name) {
        return Err(HeadProblem::BadFieldName);
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let value = value.get(1..).unwrap_or_default();
    let before = value.iter().take_while(|byte| is_space(byte)).count();
    let from = start + colon + 1 + before;
    Ok(Field {
        name: start as u32,
        name_end: (start + colon) as u32,
        value: from as u32,
        value_end: (from + trim(value).len()) as u32,
    })
}
