//! The next records of a stream, from the position of a sink, across rotation and deletion of files.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::position::Position;
use super::records::Records;
use crate::audit::line;
use crate::audit::segment::{Head, Stream, first_line, open_file};

/// The number of bytes read at a time.
const CHUNK: usize = 1 << 20;
/// Longer lines are not records.
const MAX_LINE_BYTES: usize = 64 << 20;

/// The records of one stream for one sink.
#[derive(Debug)]
pub(super) struct Feed {
    stream: Stream,
    /// The stored position: every record before it was received.
    position: Position,
    /// The ends of records that were sent after it, each with its size.
    sent: VecDeque<(Head, u64)>,
    /// The end of the last record that was sent.
    at: Head,
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    file: File,
    closed: bool,
}

impl Feed {
    /// `None` if another process reads the stream for this sink.
    pub(super) fn claim(folder: &Path, sink: &str, stream: Stream) -> Result<Option<Feed>> {
        let Some(position) = Position::claim(folder, sink, &stream)? else { return Ok(None) };
        let at = position.at;
        Ok(Some(Feed { stream, position, sent: VecDeque::new(), at, current: None }))
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The next records, if there are any.
    pub(super) fn next(&mut self) -> Result<Option<Records>> {
        loop {
            let Some(current) = &mut self.current else {
                if !self.open()? {
                    return Ok(None);
                }
                continue;
            };
            let end = match current.closed {
                true => current.file.metadata()?.len(),
                false => match self.stream.head() {
                    // Only what the head covers: the writer may still take the rest back.
                    Some(head) if head.segment == self.at.segment => head.bytes,
                    Some(head) if head.segment < self.at.segment => 0,
                    Some(_) if self.stream.closed_path(self.at.segment).exists() => {
                        current.closed = true;
                        continue;
                    }
                    _ => current.file.metadata()?.len(),
                },
            };
            if let Some(records) = read(&current.file, self.at, end, self.stream.name())? {
                return Ok(Some(records));
            }
            let finished = current.closed;
            if !finished && self.stream.closed_path(self.at.segment).exists() {
                current.closed = true;
                continue;
            }
            if !finished {
                // A file that was removed and replaced has another number.
                let live = open(&self.stream.live_path()).ok().and_then(|file| number(&file));
                if live.is_none_or(|live| live <= self.at.segment) {
                    return Ok(None);
                }
            }
            self.current = None;
            let Some(next) = self.segment_after(self.at.segment)? else { return Ok(None) };
            self.at = Head { segment: next, bytes: 0, ..self.at };
        }
    }

    /// Opens the segment of the position, or the next one that exists. Returns whether there is
    /// one.
    fn open(&mut self) -> Result<bool> {
        if let Ok(file) = open(&self.stream.closed_path(self.at.segment)) {
            self.current = Some(Current { file, closed: true });
            return Ok(true);
        }
        if let Ok(file) = open(&self.stream.live_path())
            && number(&file) == Some(self.at.segment)
        {
            self.current = Some(Current { file, closed: false });
            return Ok(true);
        }
        let Some(next) = self.segment_after(self.at.segment)? else { return Ok(false) };
        if self.at.segment > 0 && next > self.at.segment + 1 {
            let (stream, from) = (self.stream.name(), self.at.segment);
            tracing::error!(
                target: "audit",
                "segments {from} to {} of {stream} were removed before a sink had read them",
                next - 1
            );
        }
        self.at = Head { segment: next, bytes: 0, ..self.at };
        Ok(true)
    }

    /// The number of the first segment after another.
    fn segment_after(&self, segment: u64) -> Result<Option<u64>> {
        let closed = self.stream.closed()?.into_iter().map(|(number, _)| number);
        let live = open(&self.stream.live_path()).ok().and_then(|file| number(&file));
        Ok(closed.chain(live).filter(|number| *number > segment).min())
    }

    /// Notes that records were sent. Those before the last `unacknowledged` bytes count as received.
    pub(super) fn sent(&mut self, records: &Records, unacknowledged: u64) -> Result<()> {
        self.at = records.end();
        self.sent.push_back((records.end(), records.bytes()));
        let mut open: u64 = self.sent.iter().map(|(_, bytes)| bytes).sum();
        let mut received = None;
        while let Some((end, bytes)) = self.sent.front().copied() {
            if unacknowledged > 0 && open - bytes < unacknowledged {
                break;
            }
            open -= bytes;
            received = Some(end);
            self.sent.pop_front();
        }
        received.map_or(Ok(()), |end| self.position.store(end))
    }

    /// Everything that was sent was received.
    pub(super) fn acknowledge_all(&mut self) {
        if let Some((end, _)) = self.sent.back().copied()
            && self.position.store(end).is_ok()
        {
            self.sent.clear();
        }
    }

    /// Starts again after the last record that was received.
    pub(super) fn rewind(&mut self) {
        self.at = self.position.at;
        self.current = None;
        self.sent.clear();
    }
}

/// Reads whole lines from a position.
fn read(file: &File, from: Head, end: u64, stream: String) -> Result<Option<Records>> {
    let available = usize::try_from(end.saturating_sub(from.bytes)).unwrap_or(usize::MAX);
    let mut size = available.min(CHUNK);
    loop {
        if size == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0; size];
        let read = file.read_at(&mut bytes, from.bytes)?;
        bytes.truncate(read);
        if let Some(last) = memchr::memrchr(b'\n', &bytes) {
            bytes.truncate(last + 1);
            let line = bytes.get(..last).unwrap_or_default();
            let line = line.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
            let end = from.bytes + bytes.len() as u64;
            let end = Head { segment: from.segment, bytes: end, hash: line::hash(line) };
            return Ok(Some(Records::new(bytes, end, stream)));
        }
        if read < size || size == available || size >= MAX_LINE_BYTES {
            return Ok(None);
        }
        size = (size * 2).min(available);
    }
}

fn open(path: &Path) -> Result<File> {
    open_file(path, File::options().read(true))
}

/// The number of a segment, from its first record.
fn number(file: &File) -> Option<u64> {
    first_line(file)?["segment"].as_u64()
}

#[cfg(test)]
mod tests;
