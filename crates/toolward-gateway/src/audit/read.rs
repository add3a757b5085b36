//! Reading the log: the streams of a directory, their segments in order, lines one by one.
//!
//! A gateway may be writing at the same time. A reader sees the state at the time it looked at a
//! stream. The head is read before the files, so that it never includes more than was read.
//!
//! | module | contains |
//! |---|---|
//! | [`lines`] | the lines of a segment, forward and backward |
//! | [`chain`] | verification that all records are present, in order and unchanged |
//! | [`follow`] | new records as they are written |
//! | [`repair`] | removal of an incomplete last line |

pub mod chain;
mod diagnose;
pub mod follow;
pub mod lines;
pub mod repair;

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use self::lines::{Line, Reader};
use super::segment::{Head, Stream, open_file};

/// The first members of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening<'l> {
    pub id: &'l str,
    pub time: &'l str,
    pub kind: &'l str,
}

/// Parses the first members of a record, without the rest of it.
pub fn opening(line: &[u8]) -> Option<Opening<'_>> {
    fn word<'l>(line: &'l [u8], before: &[u8]) -> Option<(&'l str, &'l [u8])> {
        let rest = line.strip_prefix(before)?;
        let (word, rest) = rest.split_at_checked(memchr::memchr(b'"', rest)?)?;
        Some((std::str::from_utf8(word).ok()?, rest))
    }
    let (id, rest) = word(line, b"{\"id\":\"")?;
    let (time, rest) = word(rest, b"\",\"time\":\"")?;
    let (kind, _) = word(rest, b"\",\"kind\":\"")?;
    Some(Opening { id, time, kind })
}

/// The streams of a directory, including those of which only the head is left.
pub fn streams(folder: &Path) -> Result<Vec<Stream>> {
    let mut all = Stream::all(folder)?;
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_prefix("audit")?.strip_suffix(".head"));
        let number = stem.and_then(|stem| match stem.strip_prefix('.') {
            Some(number) => number.parse().ok().filter(|number| *number > 1),
            None => stem.is_empty().then_some(1),
        });
        all.extend(number.map(|number| Stream { folder: folder.into(), number }));
    }
    all.sort();
    all.dedup();
    Ok(all)
}

/// The state of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadState {
    /// The chain ends there, or has grown since.
    To(Head),
    /// Nothing was written yet.
    Nothing,
    /// There is no head.
    NoHead,
    Unreadable,
}

impl HeadState {
    fn read(stream: &Stream) -> HeadState {
        // The head may be overwritten while it is read: if two reads match, it is consistent.
        let mut head = stream.head();
        for _ in 0..8 {
            let again = stream.head();
            if head.is_some() && head == again {
                break;
            }
            head = again;
        }
        match (head, std::fs::metadata(stream.head_path())) {
            (Some(head), _) => HeadState::To(head),
            (None, Ok(found)) if found.len() == 0 => HeadState::Nothing,
            (None, Ok(_)) => HeadState::Unreadable,
            (None, Err(_)) => HeadState::NoHead,
        }
    }
}

/// A snapshot of a stream.
#[derive(Debug)]
pub struct StreamSnapshot {
    pub stream: Stream,
    pub known: HeadState,
    /// In order; the live one comes last.
    pub segments: Vec<Segment>,
}

/// One file of records.
#[derive(Debug)]
pub struct Segment {
    /// From its name. The number of the live segment is in its first record.
    pub number: Option<u64>,
    pub path: PathBuf,
    /// The size at the time of the snapshot. Later records are not read.
    pub bytes: u64,
    file: Option<File>,
}

impl StreamSnapshot {
    /// Takes a snapshot of a stream.
    pub fn look(stream: &Stream) -> Result<StreamSnapshot> {
        let known = HeadState::read(stream);
        let path = stream.live_path();
        let live = match open(&path) {
            Ok(file) => Some((file.metadata()?, file)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut segments = Vec::new();
        let mut was_closed = false;
        for (number, path) in stream.closed()? {
            let closed = match path.metadata() {
                Ok(closed) => closed,
                // It has just expired.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // The live segment was closed after we opened it.
            was_closed |= live
                .as_ref()
                .is_some_and(|(live, _)| (live.dev(), live.ino()) == (closed.dev(), closed.ino()));
            segments.push(Segment { number: Some(number), path, bytes: closed.len(), file: None });
        }
        if let (Some((found, file)), false) = (live, was_closed) {
            segments.push(Segment { number: None, path, bytes: found.len(), file: Some(file) });
        }
        Ok(StreamSnapshot { stream: stream.clone(), known, segments })
    }

    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

/// Opens a regular file. A pipe would block until it is written to.
fn open(path: &Path) -> Result<File> {
    open_file(path, File::options().read(true))
}

impl Segment {
    /// The file, which may have been renamed since.
    pub fn open(&self) -> Result<File> {
        match &self.file {
            Some(file) => file.try_clone(),
            None => open(&self.path),
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.number.is_none()
    }

    /// The id of its first record.
    pub fn first_id(&self) -> Option<String> {
        let mut lines = Reader::new(self.open().ok()?, self.bytes.min(1 << 20));
        match lines.next().ok()? {
            Some(Line::Whole(line)) => opening(line).map(|opening| opening.id.into()),
            _ => None,
        }
    }
}

impl Stream {
    /// The name of its files, without extensions.
    pub fn name(&self) -> String {
        let path = self.live_path();
        path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Keeps other processes from writing while the file is open; `None` if one is writing.
    pub fn lock(&self) -> Result<Option<File>> {
        let head = open_file(&self.head_path(), File::options().read(true).write(true))?;
        match flock(&head, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(head)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a process writes to it.
    pub fn is_written(&self) -> bool {
        // A shared lock blocks only a process that claims the stream at this very moment.
        open(&self.head_path()).is_ok_and(|head| {
            flock(&head, FlockOperation::NonBlockingLockShared)
                == Err(rustix::io::Errno::WOULDBLOCK)
        })
    }
}
