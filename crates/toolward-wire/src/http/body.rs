//! Request and response bodies, complete or streamed.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

/// How the end of a body is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    Empty,
    Known(u64),
    Chunked,
    /// Responses only.
    UntilClose,
}

/// An invalid body. The connection cannot be used any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    TooLarge,
    /// The chunked encoding is invalid.
    Malformed,
    /// The connection was closed before the end of the body.
    CutShort,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the body is too large",
            Self::Malformed => "the body has an invalid chunked encoding",
            Self::CutShort => "the connection was closed before the end of the body",
        })
    }
}

impl std::error::Error for BodyError {}

/// Reads a body of any length piece by piece, for event streams.
#[derive(Debug)]
pub struct BodyStream {
    state: BodyState,
    /// The number of bytes left before the limit is exceeded.
    allowed: u64,
}

/// The next piece of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// At least one byte.
    Data(Bytes),
    NeedMore,
    End,
}

#[derive(Debug, Clone, Copy)]
enum BodyState {
    /// The number of bytes left.
    Known(u64),
    ChunkSize,
    /// The number of bytes left in the chunk.
    Chunk(u64),
    /// The line end after a chunk.
    ChunkEnd,
    /// The line end after the last chunk. Trailer fields are rejected, because they arrive after
    /// the request was decided on.
    Trailer,
    UntilClose,
    Done,
    Failed(BodyError),
}

/// Maximum number of hex digits in a chunk size.
const MAX_CHUNK_SIZE_DIGITS: usize = 8;

impl BodyStream {
    pub fn new(length: BodyLength) -> BodyStream {
        BodyStream::with_limit(length, u64::MAX)
    }

    fn with_limit(length: BodyLength, limit: u64) -> BodyStream {
        let state = match length {
            BodyLength::Empty | BodyLength::Known(0) => BodyState::Done,
            BodyLength::Known(length) if length > limit => BodyState::Failed(BodyError::TooLarge),
            BodyLength::Known(length) => BodyState::Known(length),
            BodyLength::Chunked => BodyState::ChunkSize,
            BodyLength::UntilClose => BodyState::UntilClose,
        };
        BodyStream { state, allowed: limit }
    }

    /// Takes the next piece from the buffer. After an error, every call returns the same error.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Piece, BodyError> {
        let next = self.step(buffer);
        if let Err(error) = next {
            self.state = BodyState::Failed(error);
        }
        next
    }

    /// Reports the end of the connection, after everything in the buffer was read.
    pub fn at_eof(&mut self) -> Result<(), BodyError> {
        match self.state {
            BodyState::UntilClose | BodyState::Done => {
                self.state = BodyState::Done;
                Ok(())
            }
            BodyState::Failed(error) => Err(error),
            _ => {
                self.state = BodyState::Failed(BodyError::CutShort);
                Err(BodyError::CutShort)
            }
        }
    }

    fn step(&mut self, buffer: &mut BytesMut) -> Result<Piece, BodyError> {
        loop {
            match self.state {
                BodyState::Done => return Ok(Piece::End),
                BodyState::Failed(error) => return Err(error),
                _ if buffer.is_empty() => return Ok(Piece::NeedMore),
                BodyState::UntilClose => {
                    let data = buffer.split().freeze();
                    let left = self.allowed.checked_sub(data.len() as u64);
                    self.allowed = left.ok_or(BodyError::TooLarge)?;
                    return Ok(Piece::Data(data));
                }
                BodyState::Known(left) => {
                    let (data, left) = take(buffer, left);
                    self.state = if left == 0 { BodyState::Done } else { BodyState::Known(left) };
                    return Ok(Piece::Data(data));
                }
                BodyState::Chunk(left) => {
                    let (data, left) = take(buffer, left);
                    self.state =
                        if left == 0 { BodyState::ChunkEnd } else { BodyState::Chunk(left) };
                    return Ok(Piece::Data(data));
                }
                BodyState::ChunkSize => {
                    let Some(size) = chunk_size(buffer)? else { return Ok(Piece::NeedMore) };
                    let left = self.allowed.checked_sub(size);
                    self.allowed = left.ok_or(BodyError::TooLarge)?;
                    self.state =
                        if size == 0 { BodyState::Trailer } else { BodyState::Chunk(size) };
                }
                BodyState::ChunkEnd | BodyState::Trailer => {
                    let start = buffer.get(..2).unwrap_or(buffer);
                    if !b"\r\n".starts_with(start) {
                        return Err(BodyError::Malformed);
                    }
                    if start.len() < 2 {
                        return Ok(Piece::NeedMore);
                    }
                    buffer.advance(2);
                    let last = matches!(self.state, BodyState::Trailer);
                    self.state = if last { BodyState::Done } else { BodyState::ChunkSize };
                }
            }
        }
    }
}

/// Removes at most `left` bytes from the buffer, and returns them with the number of bytes still
/// left.
fn take(buffer: &mut BytesMut, left: u64) -> (Bytes, u64) {
    let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
    (buffer.split_to(length).freeze(), left - length as u64)
}

/// Reads the line with the size of a chunk. Returns `None` if the line is incomplete.
///
/// Only hex digits are accepted. Chunk extensions are unused in practice, and parsers disagree
/// about them.
fn chunk_size(buffer: &mut BytesMut) -> Result<Option<u64>, BodyError> {
    let mut size = 0u64;
    for (at, byte) in buffer.iter().enumerate() {
        match (byte, (*byte as char).to_digit(16)) {
            (_, Some(digit)) if at < MAX_CHUNK_SIZE_DIGITS => size = size * 16 + u64::from(digit),
            (b'\r', _) if at > 0 => {
                return match buffer.get(at + 1) {
                    Some(b'\n') => {
                        buffer.advance(at + 2);
                        Ok(Some(size))
                    }
                    Some(_) => Err(BodyError::Malformed),
                    None => Ok(None),
                };
            }
            _ => return Err(BodyError::Malformed),
        }
    }
    Ok(None)
}

/// Reads a complete body of at most `limit` bytes.
#[derive(Debug)]
pub struct BodyReader {
    stream: BodyStream,
    length: BodyLength,
    limit: usize,
    /// The data of the chunks so far.
    collected: Vec<u8>,
}

impl BodyReader {
    pub fn new(length: BodyLength, limit: usize) -> Result<BodyReader, BodyError> {
        if matches!(length, BodyLength::Known(length) if length > limit as u64) {
            return Err(BodyError::TooLarge);
        }
        let stream = BodyStream::with_limit(length, limit as u64);
        Ok(BodyReader { stream, length, limit, collected: Vec::new() })
    }

    /// Takes the body from the buffer, or returns `None` if it is incomplete.
    ///
    /// Bytes after the body stay in the buffer. A body of known length accumulates in the buffer
    /// and is not copied. A body that ends with the connection is only returned by
    /// [`BodyReader::at_eof`].
    pub fn read(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, BodyError> {
        match self.length {
            BodyLength::Known(length) if (buffer.len() as u64) < length => Ok(None),
            BodyLength::UntilClose if buffer.len() > self.limit => Err(BodyError::TooLarge),
            BodyLength::UntilClose => Ok(None),
            _ => self.collect(buffer),
        }
    }

    /// The number of bytes taken from the buffer and held by the reader.
    pub fn held(&self) -> usize {
        self.collected.len()
    }

    /// Reports the end of the connection, and returns the body if that completes it.
    pub fn at_eof(&mut self, buffer: &mut BytesMut) -> Result<Bytes, BodyError> {
        match self.length {
            BodyLength::UntilClose if buffer.len() > self.limit => Err(BodyError::TooLarge),
            BodyLength::UntilClose => Ok(buffer.split().freeze()),
            _ => self.read(buffer)?.ok_or(BodyError::CutShort),
        }
    }

    fn collect(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, BodyError> {
        loop {
            match self.stream.next(buffer)? {
                Piece::Data(data) if self.length != BodyLength::Chunked => return Ok(Some(data)),
                Piece::Data(data) => self.collected.extend_from_slice(&data),
                Piece::NeedMore => return Ok(None),
                Piece::End => return Ok(Some(std::mem::take(&mut self.collected).into())),
            }
        }
    }
}
