//! The lines of a segment.

use std::fs::File;
use std::io::{Error, Result};
use std::os::unix::fs::FileExt;

/// The number of bytes read at a time.
const CHUNK: usize = 2 << 20;
/// Longer lines are not records, and are skipped without being held in memory.
const MAX_LINE_BYTES: usize = 64 << 20;

/// A line without its newline.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'b> {
    Whole(&'b [u8]),
    /// Longer than any record.
    TooLong,
    /// The incomplete last line.
    Torn(&'b [u8]),
}

/// Reads the lines of a segment from its start.
#[derive(Debug)]
pub struct Reader {
    file: File,
    /// The position to read next, and the end.
    at: u64,
    stop: u64,
    buffer: Vec<u8>,
    /// The part of the buffer that has not been returned.
    begin: usize,
    end: usize,
    /// The number of the latest line.
    number: u64,
    /// The bytes read since [`take_read`](Self::take_read).
    unsaid: u64,
}

impl Reader {
    pub fn new(file: File, bytes: u64) -> Reader {
        Reader::from(file, 0, bytes)
    }

    /// Starts at a position where a line begins.
    pub fn from(file: File, at: u64, stop: u64) -> Reader {
        let buffer = Vec::new();
        Reader { file, at, stop, buffer, begin: 0, end: 0, number: 0, unsaid: 0 }
    }

    /// The number of the latest line, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The end of the latest line, including its newline.
    pub fn offset(&self) -> u64 {
        self.at - (self.end - self.begin) as u64
    }

    /// The bytes read since the last call, for progress output.
    pub fn take_read(&mut self) -> u64 {
        std::mem::take(&mut self.unsaid)
    }

    #[expect(clippy::should_implement_trait, reason = "the line borrows from the reader")]
    pub fn next(&mut self) -> Result<Option<Line<'_>>> {
        let (mut searched, mut too_long) = (0, false);
        loop {
            let unread = self.buffer.get(self.begin..self.end).unwrap_or_default();
            let found = memchr::memchr(b'\n', unread.get(searched..).unwrap_or_default());
            if let Some(found) = found {
                let line = self.begin..self.begin + searched + found;
                self.begin = line.end + 1;
                self.number += 1;
                return Ok(Some(match too_long {
                    true => Line::TooLong,
                    false => Line::Whole(self.buffer.get(line).unwrap_or_default()),
                }));
            }
            searched = unread.len();
            if searched > MAX_LINE_BYTES {
                (searched, too_long) = (0, true);
                self.begin = self.end;
            }
            if self.fill()? == 0 {
                let rest = self.begin..self.end;
                self.begin = self.end;
                if rest.is_empty() && !too_long {
                    return Ok(None);
                }
                self.number += 1;
                return Ok(Some(match too_long {
                    true => Line::TooLong,
                    false => Line::Torn(self.buffer.get(rest).unwrap_or_default()),
                }));
            }
        }
    }

    /// Reads more; data that was not returned yet is kept.
    fn fill(&mut self) -> Result<usize> {
        self.buffer.copy_within(self.begin..self.end, 0);
        self.end -= self.begin;
        self.begin = 0;
        let left = usize::try_from(self.stop - self.at).unwrap_or(CHUNK).min(CHUNK);
        if self.buffer.len() < self.end + left {
            self.buffer.resize(self.end + left, 0);
        }
        let free = self.buffer.get_mut(self.end..self.end + left).unwrap_or_default();
        let read = self.file.read_at(free, self.at)?;
        self.end += read;
        self.at += read as u64;
        self.unsaid += read as u64;
        Ok(read)
    }
}

/// Reads the lines of a segment from its end. Data after the last newline is ignored.
#[derive(Debug)]
pub struct Backwards {
    file: File,
    /// Data before this position has not been read.
    at: u64,
    /// Read and not returned: complete lines, except for the first.
    buffer: Vec<u8>,
    /// The last newline has been found.
    begun: bool,
}

impl Backwards {
    const CHUNK: u64 = 256 << 10;

    pub fn new(file: File, bytes: u64) -> Backwards {
        Backwards { file, at: bytes, buffer: Vec::new(), begun: false }
    }

    /// The bytes that have not been read.
    pub fn left(&self) -> u64 {
        self.at
    }

    /// The line before the latest one.
    pub fn line(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let without_end = self.buffer.split_last().map(|(_, lines)| lines);
            let begin = without_end.and_then(|lines| memchr::memrchr(b'\n', lines));
            let line = match (begin, self.at) {
                (Some(begin), _) => self.buffer.split_off(begin + 1),
                (None, 0) => std::mem::take(&mut self.buffer),
                (None, _) => {
                    self.fill()?;
                    continue;
                }
            };
            return Ok(line.split_last().map(|(_, line)| line.to_vec()));
        }
    }

    fn fill(&mut self) -> Result<()> {
        let size = Backwards::CHUNK.min(self.at);
        let mut chunk = vec![0; usize::try_from(size).unwrap_or(0)];
        self.file.read_exact_at(&mut chunk, self.at - size)?;
        self.at -= size;
        chunk.append(&mut self.buffer);
        self.buffer = chunk;
        if !self.begun {
            let stop = memchr::memrchr(b'\n', &self.buffer).map_or(0, |stop| stop + 1);
            self.begun = stop > 0;
            self.buffer.truncate(stop);
        }
        match self.buffer.len() > MAX_LINE_BYTES {
            true => Err(Error::other("a line is longer than any record")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &[u8]) -> File {
        use std::io::Write;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn every_line_is_given_forwards_and_backwards() {
        let long = "x".repeat(3 * CHUNK);
        let many: String = (0..100_000).map(|n| format!("line {n}\n")).collect();
        for text in [
            "",
            "torn",
            "a\n",
            "\n\n",
            "a\nb\ntorn",
            &format!("{long}\nb\n"),
            &format!("a\n{long}"),
            &many,
        ] {
            let mut expected: Vec<Vec<u8>> = text.lines().map(|line| line.into()).collect();
            let torn = (!text.is_empty() && !text.ends_with('\n')).then(|| expected.pop().unwrap());
            let mut reader = Reader::new(file(text.as_bytes()), text.len() as u64);
            let (mut read, mut rest) = (Vec::new(), None);
            while let Some(line) = reader.next().unwrap() {
                match line {
                    Line::Whole(line) => read.push(line.to_vec()),
                    Line::Torn(line) => rest = Some(line.to_vec()),
                    Line::TooLong => panic!(),
                }
            }
            assert_eq!(reader.offset(), text.len() as u64);
            assert!(read == expected && rest == torn, "{:.20}", text);
            let mut backwards = Backwards::new(file(text.as_bytes()), text.len() as u64);
            let mut read = Vec::new();
            while let Some(line) = backwards.line().unwrap() {
                read.push(line);
            }
            read.reverse();
            assert!(read == expected, "{:.20} {}", text, read.len());
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over() {
        let mut text = vec![b'x'; MAX_LINE_BYTES + 3 * CHUNK];
        text.extend(b"\nafter\n");
        let mut reader = Reader::new(file(&text), text.len() as u64);
        assert_eq!(reader.next().unwrap(), Some(Line::TooLong));
        assert_eq!(reader.next().unwrap(), Some(Line::Whole(b"after")));
        assert_eq!((reader.number(), reader.next().unwrap()), (2, None));
    }
}
