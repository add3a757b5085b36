//! Lines and header fields, common to requests and responses.

use std::fmt;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use memchr::memchr_iter;

use super::body::BodyLength;
use super::chars::{eq_ignore_case, is_token, trim, trim_start};
use super::error::HeadError;
use crate::{decimal, swar};

/// Size limits of a head.
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

/// The header fields of a head, in their original order and spelling.
#[derive(Clone)]
pub struct Headers {
    head: Bytes,
    fields: Vec<Field>,
    /// The lengths of all field names, which rule out most lookups of missing fields.
    lengths: LengthSet,
}

/// A set of lengths as a bitmap. Lengths that differ by a multiple of 64 share a bit.
#[derive(Debug, Clone, Copy, Default)]
struct LengthSet(u64);

impl LengthSet {
    #[inline]
    fn may_have(self, length: usize) -> bool {
        self.0 & 1 << (length % 64) != 0
    }

    #[inline]
    fn add(&mut self, length: usize) {
        self.0 |= 1 << (length % 64);
    }
}

/// The offsets of a field in the head.
#[derive(Debug, Clone, Copy)]
struct Field {
    name: u32,
    name_end: u32,
    value: u32,
    value_end: u32,
}

impl Field {
    /// A line that has not been parsed yet.
    fn of_line(line: Range<usize>) -> Field {
        let (start, end) = (line.start as u32, line.end as u32);
        Field { name: start, name_end: start, value: end, value_end: end }
    }

    /// Parses the line into a name and a value.
    fn read(&mut self, head: &[u8]) -> Result<(), HeadError> {
        let line = head.get(self.name as usize..self.value_end as usize).unwrap_or_default();
        if matches!(line.first(), Some(b' ' | b'\t')) {
            return Err(HeadError::FoldedField);
        }
        let colon = swar::find(line, swar::colons);
        let Some((name, [_, value @ ..])) = line.split_at_checked(colon) else {
            return Err(HeadError::BadFieldName);
        };
        // This also rejects whitespace before the colon.
        if !is_token(name) {
            return Err(HeadError::BadFieldName);
        }
        let behind = trim_start(value);
        self.name_end = self.name + colon as u32;
        self.value = self.value_end - behind.len() as u32;
        self.value_end = self.value + trim(behind).len() as u32;
        Ok(())
    }

    #[inline]
    fn name<'h>(&self, head: &'h [u8]) -> &'h [u8] {
        head.get(self.name as usize..self.name_end as usize).unwrap_or_default()
    }

    #[inline]
    fn value<'h>(&self, head: &'h [u8]) -> &'h [u8] {
        head.get(self.value as usize..self.value_end as usize).unwrap_or_default()
    }

    /// Compares the name, ignoring case. Lengths are compared first, because they usually differ.
    #[inline]
    fn is(&self, head: &[u8], name: &[u8]) -> bool {
        (self.name_end - self.name) as usize == name.len() && eq_ignore_case(self.name(head), name)
    }
}

impl Headers {
    /// The value of the first field with this name, without surrounding whitespace.
    ///
    /// Names are compared without case. Returns `None` if the value is not ASCII.
    pub fn get(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.find(name)?).ok().filter(|value| swar::is_ascii(value.as_bytes()))
    }

    /// The number of fields with this name, ignoring case.
    pub fn count(&self, name: &str) -> usize {
        self.values(name).count()
    }

    /// All fields, with their names as received.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|field| self.field(field))
    }

    /// The fields whose names start with `prefix`, ignoring case, with their names as received.
    pub fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = (&str, &[u8])> {
        let fits = move |field: &&Field| {
            let begin = field.name(&self.head).get(..prefix.len());
            begin.is_some_and(|begin| eq_ignore_case(begin, prefix.as_bytes()))
        };
        self.fields.iter().filter(fits).map(|field| self.field(field))
    }

    fn field(&self, field: &Field) -> (&str, &[u8]) {
        let name = std::str::from_utf8(field.name(&self.head));
        (name.unwrap_or_default(), field.value(&self.head))
    }

    /// The values of all fields with this name, ignoring case.
    #[inline]
    pub fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let fields = match self.lengths.may_have(name.len()) {
            true => &self.fields[..],
            false => &[],
        };
        let named = fields.iter().filter(move |field| field.is(&self.head, name.as_bytes()));
        named.map(|field| field.value(&self.head))
    }

    #[inline]
    pub(super) fn find(&self, name: &str) -> Option<&[u8]> {
        self.values(name).next()
    }

    /// A part of the request line or status line.
    pub(super) fn in_first_line(&self, part: Range<usize>) -> &[u8] {
        self.head.get(part).unwrap_or_default()
    }

    /// Rejects a second field with the same name if `is_singleton` is true for the name.
    pub(super) fn reject_duplicates(
        &self,
        is_singleton: fn(&[u8]) -> bool,
    ) -> Result<(), HeadError> {
        let mut before = LengthSet::default();
        for (at, field) in self.fields.iter().enumerate() {
            let name = field.name(&self.head);
            let mut earlier = self.fields.iter().take(at);
            if before.may_have(name.len())
                && earlier.any(|earlier| earlier.is(&self.head, name))
                && is_singleton(name)
            {
                let name = String::from_utf8_lossy(name).to_ascii_lowercase();
                return Err(HeadError::DuplicateField { name });
            }
            before.add(name.len());
        }
        Ok(())
    }

    /// Whether `Connection` has the option `close`.
    pub(super) fn has_close_option(&self) -> bool {
        let is_close = |option: &[u8]| trim(option).eq_ignore_ascii_case(b"close");
        self.values("connection").any(|value| value.split(|byte| *byte == b',').any(is_close))
    }

    /// The length of the body according to the header fields.
    ///
    /// The caller must have rejected duplicates of these fields. `old` is true for HTTP/1.0.
    pub(super) fn body_length(&self, old: bool) -> Result<Option<BodyLength>, HeadError> {
        let (length, coding) = (self.find("content-length"), self.find("transfer-encoding"));
        match (length, coding) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(HeadError::TwoLengths),
            (Some(length), None) => {
                let length = decimal::parse(length).ok_or(HeadError::BadContentLength)?;
                Ok(Some(BodyLength::Known(length)))
            }
            (None, Some(_)) if old => Err(HeadError::CodingInOldVersion),
            (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => {
                Ok(Some(BodyLength::Chunked))
            }
            (None, Some(codings)) => {
                let unknown = codings
                    .split(|byte| *byte == b',')
                    .map(trim)
                    .any(|coding| is_token(coding) && !coding.eq_ignore_ascii_case(b"chunked"));
                Err(match unknown {
                    true => HeadError::UnknownTransferCoding,
                    false => HeadError::BadTransferEncoding,
                })
            }
        }
    }
}

/// Prints names only, because values may be secrets.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

/// A complete head that was split off the buffer.
pub(super) struct HeadLines {
    head: Bytes,
    first_end: usize,
    /// The lines after the first one, as fields that have not been parsed yet.
    rest: Vec<Field>,
}

/// Splits a head off the buffer. Returns `None` if the head is incomplete.
///
/// An error is detected at the same byte no matter how the bytes are split into reads. An invalid
/// line end is detected as soon as it arrives, so an endless head does not keep the connection
/// waiting.
pub(super) fn split_head(
    buffer: &mut BytesMut,
    limits: &HeadLimits,
) -> Result<Option<HeadLines>, HeadError> {
    // Offsets are stored in 32 bits.
    let limit = limits.bytes.min(u32::MAX as usize);
    let window = buffer.get(..limit).unwrap_or(buffer);
    let (mut start, mut first_end, mut rest) = (0, None, Vec::with_capacity(16));
    for feed in memchr_iter(b'\n', window) {
        let Some(end) = feed.checked_sub(1).filter(|end| window.get(*end) == Some(&b'\r')) else {
            return Err(HeadError::BadLineEnd);
        };
        match first_end {
            None => first_end = Some(end),
            // An empty line ends the head. At the very start it counts as the first line, which is
            // then invalid.
            Some(first_end) if end == start => {
                let head = buffer.split_to(feed + 1).freeze();
                check_control_bytes(&head, rest.len() + 2)?;
                return Ok(Some(HeadLines { head, first_end, rest }));
            }
            Some(_) if rest.len() >= limits.fields => {
                return Err(HeadError::TooManyFields { limit: limits.fields });
            }
            Some(_) => rest.push(Field::of_line(start..end)),
        }
        start = feed + 1;
    }
    if buffer.len() >= limit {
        return Err(HeadError::HeadTooLarge { limit });
    }
    Ok(None)
}

/// Rejects control characters other than tabs and line ends.
///
/// The caller has checked that each line feed follows a carriage return.
fn check_control_bytes(head: &[u8], line_ends: usize) -> Result<(), HeadError> {
    let is_control = |byte: u8| (byte < 0x20 && byte != b'\t') || byte == 0x7f;
    if count(head, is_control) == 2 * line_ends {
        return Ok(());
    }
    match count(head, |byte| byte == b'\r') == line_ends {
        true => Err(HeadError::ControlByte),
        false => Err(HeadError::BadLineEnd),
    }
}

/// Counts the bytes for which `is` returns true.
///
/// The loop has no early exit and counts in a byte, in pieces of at most 255 bytes. This lets the
/// compiler vectorize it.
#[inline(always)]
fn count(bytes: &[u8], is: impl Fn(u8) -> bool) -> usize {
    let piece = |piece: &[u8]| piece.iter().fold(0, |count, byte| count + u8::from(is(*byte)));
    bytes.chunks(0xff).map(piece).map(usize::from).sum()
}

impl HeadLines {
    /// The request line or status line.
    pub(super) fn first(&self) -> &[u8] {
        self.head.get(..self.first_end).unwrap_or_default()
    }

    /// Parses the header fields.
    pub(super) fn headers(self) -> Result<Headers, HeadError> {
        let HeadLines { head, rest: mut fields, .. } = self;
        let mut lengths = LengthSet::default();
        for field in &mut fields {
            field.read(&head)?;
            lengths.add((field.name_end - field.name) as usize);
        }
        Ok(Headers { head, fields, lengths })
    }
}
