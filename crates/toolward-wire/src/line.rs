//! One message a line: the framing of stdio.

use bytes::{Buf, Bytes, BytesMut};

use crate::id::Id;
use crate::skim::Skim;

/// The least that can be read at once.
const MIN_READ_BYTES: usize = 4 << 10;

/// Cuts a stream of bytes into lines, each at most `limit` bytes long.
///
/// ```
/// use toolward_wire::line::LineDecoder;
///
/// let mut lines = LineDecoder::new(64);
/// lines.push(b"{\"a\":1}\r\n\n{\"b\"");
/// assert_eq!(lines.next_line().unwrap().unwrap(), &b"{\"a\":1}"[..]);
/// assert!(lines.next_line().is_none());
/// lines.push(b":2}\n");
/// assert_eq!(lines.next_line().unwrap().unwrap(), &b"{\"b\":2}"[..]);
/// ```
#[derive(Debug)]
pub struct LineDecoder {
    buffer: BytesMut,
    /// Bytes at the start of the buffer that hold no newline.
    searched: usize,
    limit: usize,
    /// The rest of a line that was too long is passed over.
    skipping: bool,
    /// What is known of it, where someone wants to know.
    overlong: Option<OverlongLine>,
}

/// A line that was passed over: its length, and its ends, by which it can be told what it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverlongLine {
    pub length: u64,
    pub start: Vec<u8>,
    pub end: Vec<u8>,
    skim: Skim,
}

/// So much of either end is kept.
const KEPT_END_BYTES: usize = 128;
/// So much of it is read at once.
const SKIP_BUFFER_BYTES: usize = 64 << 10;

impl OverlongLine {
    fn add(&mut self, bytes: &[u8]) {
        let room = KEPT_END_BYTES - self.start.len();
        self.start.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
        self.end.extend_from_slice(
            bytes.get(bytes.len().saturating_sub(KEPT_END_BYTES)..).unwrap_or_default(),
        );
        self.end.drain(..self.end.len().saturating_sub(KEPT_END_BYTES));
        self.length += bytes.len() as u64;
        self.skim.push(bytes);
    }

    /// The id of the request that the line is, if that is clear.
    pub fn request_id(&self) -> Option<Id> {
        self.skim.request_id()
    }
}

/// A line was longer than the limit; it was passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineTooLong {
    pub limit: usize,
}

impl std::fmt::Display for LineTooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a line is longer than {} bytes", self.limit)
    }
}

impl std::error::Error for LineTooLong {}

impl LineDecoder {
    pub fn new(limit: usize) -> LineDecoder {
        LineDecoder { buffer: BytesMut::new(), searched: 0, limit, skipping: false, overlong: None }
    }

    /// One that tells of a line that is too long only at its end, when [`overlong`](Self::overlong) knows
    /// both.
    pub fn reporting_overlong(limit: usize) -> LineDecoder {
        LineDecoder { overlong: Some(OverlongLine::default()), ..LineDecoder::new(limit) }
    }

    /// What is known of the line that was too long.
    pub fn overlong(&self) -> Option<&OverlongLine> {
        self.overlong.as_ref()
    }

    /// From here on a line may have `limit` bytes.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The buffer, for reading into it without a copy: append only. It has room for a usual message,
    /// so that one is not read in pieces.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.buffer.reserve(MIN_READ_BYTES);
        &mut self.buffer
    }

    /// The next whole line without its end. Empty lines are passed over. A line that is too long
    /// is an error once, and the lines after it come as usual.
    pub fn next_line(&mut self) -> Option<Result<Bytes, LineTooLong>> {
        loop {
            let fresh = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(found) = memchr::memchr(b'\n', fresh) else {
                self.searched = self.buffer.len();
                if self.skipping {
                    self.skip_buffered(false);
                } else if self.searched > self.limit.saturating_add(1) {
                    self.skipping = true;
                    self.skip_buffered(true);
                    if self.overlong.is_none() {
                        return Some(Err(LineTooLong { limit: self.limit }));
                    }
                }
                return None;
            };
            let mut line = self.buffer.split_to(self.searched + found);
            self.buffer.advance(1);
            self.searched = 0;
            let skipped = std::mem::take(&mut self.skipping);
            if skipped && self.overlong.is_none() {
                continue;
            }
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            if skipped || line.len() > self.limit {
                if let Some(overlong) = &mut self.overlong {
                    if !skipped {
                        *overlong = OverlongLine::default();
                    }
                    overlong.add(&line);
                }
                return Some(Err(LineTooLong { limit: self.limit }));
            }
            if line.iter().all(|byte| matches!(byte, b' ' | b'\t')) {
                continue;
            }
            if line.len() > SKIP_BUFFER_BYTES {
                // The memory of a long line is freed with the line, not kept for the next one.
                self.buffer = BytesMut::from(&self.buffer[..]);
            }
            return Some(Ok(line.freeze()));
        }
    }

    /// Forgets the bytes of a line that is too long.
    fn skip_buffered(&mut self, begins: bool) {
        if let Some(overlong) = &mut self.overlong {
            if begins {
                *overlong = OverlongLine::default();
            }
            overlong.add(&self.buffer);
        }
        match begins {
            // A buffer that was large once is not kept.
            true => self.buffer = BytesMut::with_capacity(SKIP_BUFFER_BYTES),
            false => self.buffer.clear(),
        }
        self.searched = 0;
    }

    /// The bytes that wait for the rest of their line.
    pub fn unfinished(&self) -> &[u8] {
        if self.skipping { &[] } else { &self.buffer }
    }

    /// How many bytes wait for the rest of their line.
    pub fn pending(&self) -> usize {
        self.buffer.len()
    }
}

/// Writes a message as one line. A newline in a message can only be space between its parts, for
/// strings hold none unescaped; it is written as a space, and every other byte as it is.
pub fn encode(body: &[u8], out: &mut Vec<u8>) {
    out.reserve(body.len() + 1);
    one_line(body, out);
    out.push(b'\n');
}

/// Appends `body` with its newlines turned into spaces.
pub(crate) fn one_line(body: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    out.extend_from_slice(body);
    for byte in out.get_mut(from..).unwrap_or_default() {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}
