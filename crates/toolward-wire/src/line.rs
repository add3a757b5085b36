//! Newline-delimited framing, as on stdio.

use bytes::{Buf, Bytes, BytesMut};

use crate::id::Id;
use crate::skim::Skim;

/// Minimum free capacity of the buffer before a read.
const MIN_READ_BYTES: usize = 4 << 10;

/// Splits a byte stream into lines of at most `limit` bytes.
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
    /// The number of bytes at the start of the buffer that contain no newline.
    searched: usize,
    limit: usize,
    /// Whether the rest of an overlong line is being skipped.
    skipping: bool,
    /// The overlong line, if the decoder reports it.
    overlong: Option<OverlongLine>,
}

/// A line that exceeded the limit and was skipped.
///
/// Its first and last bytes are kept, because they usually contain the id of the message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverlongLine {
    pub length: u64,
    pub start: Vec<u8>,
    pub end: Vec<u8>,
    skim: Skim,
}

/// Number of bytes kept from each end of an overlong line.
const KEPT_END_BYTES: usize = 128;
/// Capacity of the buffer while an overlong line is skipped.
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

/// A line exceeded the limit and was skipped.
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

    /// Creates a decoder that reports an overlong line when its end is reached.
    ///
    /// [`overlong`](Self::overlong) then returns its length and both its ends. Other decoders
    /// report the error as soon as the limit is exceeded.
    pub fn reporting_overlong(limit: usize) -> LineDecoder {
        LineDecoder { overlong: Some(OverlongLine::default()), ..LineDecoder::new(limit) }
    }

    /// The last overlong line.
    pub fn overlong(&self) -> Option<&OverlongLine> {
        self.overlong.as_ref()
    }

    /// Changes the limit for lines that are not complete yet.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The buffer, for reading into it without a copy. Only append to it.
    ///
    /// It has free capacity for a typical message, so that one is not read in pieces.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.buffer.reserve(MIN_READ_BYTES);
        &mut self.buffer
    }

    /// The next complete line, without its line end.
    ///
    /// Empty lines are skipped. An overlong line is returned as one error, and decoding continues
    /// after it.
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
                // Free the memory of a long line with the line instead of reusing it.
                self.buffer = BytesMut::from(&self.buffer[..]);
            }
            return Some(Ok(line.freeze()));
        }
    }

    /// Discards the buffered bytes of an overlong line. `begins` is true for its first bytes.
    fn skip_buffered(&mut self, begins: bool) {
        if let Some(overlong) = &mut self.overlong {
            if begins {
                *overlong = OverlongLine::default();
            }
            overlong.add(&self.buffer);
        }
        match begins {
            // Do not keep the large buffer.
            true => self.buffer = BytesMut::with_capacity(SKIP_BUFFER_BYTES),
            false => self.buffer.clear(),
        }
        self.searched = 0;
    }

    /// The buffered bytes of an incomplete line.
    pub fn unfinished(&self) -> &[u8] {
        if self.skipping { &[] } else { &self.buffer }
    }

    /// The number of buffered bytes.
    pub fn pending(&self) -> usize {
        self.buffer.len()
    }
}

/// Appends a message as one line.
///
/// Newlines become spaces. In JSON they can only be whitespace between tokens, because strings must
/// escape them. Every other byte is unchanged.
pub fn encode(body: &[u8], out: &mut Vec<u8>) {
    out.reserve(body.len() + 1);
    one_line(body, out);
    out.push(b'\n');
}

/// Appends `body` with newlines replaced by spaces.
pub(crate) fn one_line(body: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    out.extend_from_slice(body);
    for byte in out.get_mut(from..).unwrap_or_default() {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}
