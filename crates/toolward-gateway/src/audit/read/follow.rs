//! Follows new records, across rotation and deletion of files.

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{FileExt, MetadataExt};

use super::{StreamSnapshot, open};
use crate::audit::segment::{Stream, first_line};

/// Longer lines are not records.
const MAX_LINE_BYTES: usize = 64 << 20;
/// The maximum number of bytes in which skipped lines are counted.
const MAX_COUNTED_BYTES: u64 = 64 << 20;

/// Follows one stream.
#[derive(Debug)]
pub struct Follower {
    stream: Stream,
    current: Option<Current>,
    /// The segment read last, by its number.
    number: u64,
}

#[derive(Debug)]
struct Current {
    file: File,
    at: u64,
    /// Whether it is the live segment, as far as is known.
    live: bool,
    /// The beginning of an incomplete line.
    rest: Vec<u8>,
}

impl Follower {
    /// Follows the records written after a snapshot.
    pub fn after(found: &StreamSnapshot) -> Result<Follower> {
        let mut follower = Follower { stream: found.stream.clone(), current: None, number: 0 };
        if let Some(last) = found.segments.last() {
            let file = last.open()?;
            follower.number = last.number.or_else(|| says(&file)).unwrap_or(0);
            // A line that was being written is read once it is complete.
            let at = whole(&file, last.bytes)?;
            follower.current = Some(Current { file, at, live: true, rest: Vec::new() });
        }
        Ok(follower)
    }

    /// Follows a stream from its beginning.
    pub fn from_beginning(stream: &Stream) -> Follower {
        Follower { stream: stream.clone(), current: None, number: 0 }
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// A quick estimate of the bytes written since.
    pub fn behind(&self) -> u64 {
        let Some(current) = &self.current else {
            return std::fs::metadata(self.stream.live_path()).map_or(0, |live| live.len());
        };
        let Ok(is) = current.file.metadata() else { return 0 };
        let left = is.len().saturating_sub(current.at);
        match std::fs::metadata(self.stream.live_path()) {
            Ok(live) if (live.dev(), live.ino()) != (is.dev(), is.ino()) => left + live.len(),
            _ => left,
        }
    }

    /// Skips everything except the last lines, up to a number of bytes. Returns the number of
    /// skipped lines, if they are few enough to count and in one file.
    pub fn skip(&mut self, bytes: u64) -> Result<Option<u64>> {
        let found = StreamSnapshot::look(&self.stream)?;
        let mut after = Follower::after(&found)?;
        if let Some(current) = &mut after.current {
            current.at = whole(&current.file, current.at.saturating_sub(bytes))?;
        }
        let skipped = match (&self.current, &after.current) {
            (Some(before), Some(after)) => before.lines_until(after)?,
            _ => None,
        };
        *self = after;
        Ok(skipped)
    }

    /// Passes all new lines to `each`.
    pub fn poll(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        loop {
            if let Some(current) = &mut self.current {
                current.read(each)?;
                let is = current.file.metadata()?;
                let there = std::fs::metadata(self.stream.live_path()).ok();
                if there.is_some_and(|there| (there.dev(), there.ino()) == (is.dev(), is.ino())) {
                    return Ok(());
                }
                // It was closed: its last lines may have been written just before.
                current.read(each)?;
                self.number = says(&current.file).unwrap_or(self.number);
            }
            let Some(next) = self.next()? else { return Ok(()) };
            self.current = Some(next);
        }
    }

    /// The segment after the current one.
    fn next(&mut self) -> Result<Option<Current>> {
        let current = |file: File, live| Current { file, at: 0, live, rest: Vec::new() };
        loop {
            for (number, path) in self.stream.closed()? {
                if number <= self.number {
                    continue;
                }
                self.number = number;
                match open(&path) {
                    Ok(file) => return Ok(Some(current(file, false))),
                    // It has expired.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            let Ok(file) = open(&self.stream.live_path()) else { return Ok(None) };
            // It may have been closed since we listed the segments.
            let number = self.number;
            if !self.stream.closed()?.iter().any(|(closed, _)| *closed > number) {
                return Ok(Some(current(file, true)));
            }
        }
    }
}

impl Current {
    /// The number of lines from here to a later position in the same file.
    fn lines_until(&self, later: &Current) -> Result<Option<u64>> {
        let (is, other) = (self.file.metadata()?, later.file.metadata()?);
        let begin = self.at - self.rest.len() as u64;
        let same = (is.dev(), is.ino()) == (other.dev(), other.ino());
        if !same || later.at < begin || later.at - begin > MAX_COUNTED_BYTES {
            return Ok(None);
        }
        let (mut at, mut lines) = (begin, 0);
        let mut chunk = vec![0; 256 << 10];
        while at < later.at {
            let size = usize::try_from(later.at - at).unwrap_or(usize::MAX).min(chunk.len());
            let part = chunk.get_mut(..size).unwrap_or_default();
            self.file.read_exact_at(part, at)?;
            lines += memchr::memchr_iter(b'\n', part).count() as u64;
            at += size as u64;
        }
        Ok(Some(lines))
    }

    fn read(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        // An incomplete line was removed.
        if self.live && self.file.metadata()?.len() < self.at {
            self.at -= self.rest.len() as u64;
            self.rest.clear();
        }
        let mut chunk = vec![0; 256 << 10];
        loop {
            let read = self.file.read_at(&mut chunk, self.at)?;
            if read == 0 {
                return Ok(());
            }
            self.at += read as u64;
            let mut bytes = chunk.get(..read).unwrap_or_default();
            while let Some(end) = memchr::memchr(b'\n', bytes) {
                let (line, rest) = bytes.split_at(end);
                bytes = rest.get(1..).unwrap_or_default();
                if self.rest.is_empty() {
                    each(line);
                } else {
                    self.rest.extend_from_slice(line);
                    each(&std::mem::take(&mut self.rest));
                }
            }
            if self.rest.len() + bytes.len() < MAX_LINE_BYTES {
                self.rest.extend_from_slice(bytes);
            }
        }
    }
}

/// The number of a segment, from its first record.
fn says(file: &File) -> Option<u64> {
    first_line(file)?["segment"].as_u64()
}

/// The end of the last complete line before a position.
fn whole(file: &File, mut at: u64) -> Result<u64> {
    let mut chunk = vec![0; 64 << 10];
    while at > 0 {
        let size = (chunk.len() as u64).min(at);
        let part = chunk.get_mut(..usize::try_from(size).unwrap_or(0)).unwrap_or_default();
        file.read_exact_at(part, at - size)?;
        if let Some(end) = memchr::memrchr(b'\n', part) {
            return Ok(at - size + end as u64 + 1);
        }
        at -= size;
    }
    Ok(0)
}
