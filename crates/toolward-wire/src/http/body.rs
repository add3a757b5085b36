//! Bodies: whole ones, and ones that are read as they come.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    Empty,
    Known(u64),
    Chunked,
    /// Of responses only.
    UntilClose,
}

/// What is wrong with a body. Nothing that follows on the connection can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    TooLarge,
    /// The chunks are not what they must be.
    Malformed,
    /// The connection ended first.
    CutShort,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the body is too large",
            Self::Malformed => "the chunks of the body are malformed",
            Self::CutShort => "the connection ended before the body did",
        })
    }
}

impl std::error::Error for BodyError {}

/// Reads a body piece by piece, of any length: for streams of events.
#[derive(Debug)]
pub struct BodyStream {
    state: State,
    /// How many bytes may still come.
    allowed: u64,
}

/// What is next in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// At least one byte.
    Data(Bytes),
    NeedMore,
    End,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// So many bytes are left.
    Known(u64),
    ChunkSize,
    /// So many bytes of the chunk are left.
    Chunk(u64),
    /// What ends a chunk.
    ChunkEnd,
    /// What ends the last chunk: nothing may stand there, because fields that come after a body
    /// come after it was decided on.
    Trailer,
    UntilClose,
    Done,
    Failed(BodyError),
}

/// A chunk's size has at most so many digits.
const SIZE_DIGITS: usize = 8;

impl BodyStream {
    pub fn new(length: BodyLength) -> BodyStream {
        BodyStream::with_limit(length, u64::MAX)
    }

    fn with_limit(length: BodyLength, limit: u64) -> BodyStream {
        let state = match length {
            BodyLength::Empty | BodyLength::Known(0) => State::Done,
            BodyLength::Known(length) if length > limit => State::Failed(BodyError::TooLarge),
            BodyLength::Known(length) => State::Known(length),
            BodyLength::Chunked => State::ChunkSize,
            BodyLength::UntilClose => State::UntilClose,
        };
        BodyStream { state, allowed: limit }
    }

    /// Takes the next piece from the buffer. After a problem there is only that problem.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Piece, BodyError> {
        let next = self.step(buffer);
        if let Err(problem) = next {
            self.state = State::Failed(problem);
        }
        next
    }

    /// The connection has ended, and all that came was read.
    pub fn at_eof(&mut self) -> Result<(), BodyError> {
        match self.state {
            State::UntilClose | State::Done => {
                self.state = State::Done;
                Ok(())
            }
            State::Failed(problem) => Err(problem),
            _ => {
                self.state = State::Failed(BodyError::CutShort);
                Err(BodyError::CutShort)
            }
        }
    }

    fn step(&mut self, buffer: &mut BytesMut) -> Result<Piece, BodyError> {
        loop {
            match self.state {
                State::Done => return Ok(Piece::End),
                State::Failed(problem) => return Err(problem),
                _ if buffer.is_empty() => return Ok(Piece::NeedMore),
                State::UntilClose => {
                    let data = buffer.split().freeze();
                    let left = self.allowed.checked_sub(data.len() as u64);
                    self.allowed = left.ok_or(BodyError::TooLarge)?;
                    return Ok(Piece::Data(data));
                }
                State::Known(left) => {
                    let (data, left) = take(buffer, left);
                    self.state = if left == 0 { State::Done } else { State::Known(left) };
                    return Ok(Piece::Data(data));
                }
                State::Chunk(left) => {
                    let (data, left) = take(buffer, left);
                    self.state = if left == 0 { State::ChunkEnd } else { State::Chunk(left) };
                    return Ok(Piece::Data(data));
                }
                State::ChunkSize => {
                    let Some(size) = chunk_size(buffer)? else { return Ok(Piece::NeedMore) };
                    let left = self.allowed.checked_sub(size);
                    self.allowed = left.ok_or(BodyError::TooLarge)?;
                    self.state = if size == 0 { State::Trailer } else { State::Chunk(size) };
                }
                State::ChunkEnd | State::Trailer => {
                    let start = buffer.get(..2).unwrap_or(buffer);
                    if !b"\r\n".starts_with(start) {
                        return Err(BodyError::Malformed);
                    }
                    if start.len() < 2 {
                        return Ok(Piece::NeedMore);
                    }
                    buffer.advance(2);
                    let last = matches!(self.state, State::Trailer);
                    self.state = if last { State::Done } else { State::ChunkSize };
                }
            }
        }
    }
}

/// Takes what there is of `left` bytes; how many are left then.
fn take(buffer: &mut BytesMut, left: u64) -> (Bytes, u64) {
    let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
    (buffer.split_to(length).freeze(), left - length as u64)
}

/// Reads the line with a chunk's size, which is hex digits and nothing else: extensions have no use
/// but to be read differently by two readers.
fn chunk_size(buffer: &mut BytesMut) -> Result<Option<u64>, BodyError> {
    let mut size = 0u64;
    for (at, byte) in buffer.iter().enumerate() {
        match (byte, (*byte as char).to_digit(16)) {
            (_, Some(digit)) if at < SIZE_DIGITS => size = size * 16 + u64::from(digit),
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

/// Reads a whole body of at most `limit` bytes.
#[derive(Debug)]
pub struct BodyReader {
    stream: BodyStream,
    length: BodyLength,
    limit: usize,
    /// What came in chunks.
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

    /// The body, once all of it has come; it is taken from the buffer, and what follows it stays.
    /// A body of known length waits in the buffer and is not copied. A body that goes on until the
    /// connection ends is complete with [`BodyReader::at_eof`] only.
    pub fn read(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, BodyError> {
        match self.length {
            BodyLength::Known(length) if (buffer.len() as u64) < length => Ok(None),
            BodyLength::UntilClose if buffer.len() > self.limit => Err(BodyError::TooLarge),
            BodyLength::UntilClose => Ok(None),
            _ => self.collect(buffer),
        }
    }

    /// How many bytes have been taken from the buffer and are held here.
    pub fn held(&self) -> usize {
        self.collected.len()
    }

    /// The connection has ended: the body, if that was to be its end.
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
