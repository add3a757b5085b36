//! Reads records back: the streams of a folder, their segments in order, lines one by one.
//!
//! A gateway may be writing at the same time. What is read is what was there when a stream was looked
//! at; where its chain ended is asked before that, so that a head never knows more than was read.
//!
//! | part | is |
//! |---|---|
//! | [`lines`] | the lines of a segment, forwards and backwards |
//! | [`chain`] | whether all records are there, in order, as they were written |
//! | [`follow`] | records as they come |
//! | [`repair`] | takes off a line that was not written to its end |

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

/// What a record begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening<'l> {
    pub id: &'l str,
    pub time: &'l str,
    pub kind: &'l str,
}

/// The beginning of a record, without a look at the rest of it.
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

/// The streams of a folder, also those of which only the head is left.
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

/// What a head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// The chain ends there, or has gone on since.
    To(Head),
    /// Nothing was written yet.
    Nothing,
    /// There is no head.
    NoHead,
    Unreadable,
}

impl Known {
    fn read(stream: &Stream) -> Known {
        // It is written over while it is read: what is read twice alike is what was written.
        let mut head = stream.head();
        for _ in 0..8 {
            let again = stream.head();
            if head.is_some() && head == again {
                break;
            }
            head = again;
        }
        match (head, std::fs::metadata(stream.head_path())) {
            (Some(head), _) => Known::To(head),
            (None, Ok(found)) if found.len() == 0 => Known::Nothing,
            (None, Ok(_)) => Known::Unreadable,
            (None, Err(_)) => Known::NoHead,
        }
    }
}

/// A stream as it was found.
#[derive(Debug)]
pub struct Found {
    pub stream: Stream,
    pub known: Known,
    /// In order; the one that is written to comes last.
    pub segments: Vec<Segment>,
}

/// One file of records.
#[derive(Debug)]
pub struct Segment {
    /// By its name. The one that is written to says its number in its first record.
    pub number: Option<u64>,
    pub path: PathBuf,
    /// How long it was. What is written later is not read.
    pub bytes: u64,
    file: Option<File>,
}

impl Found {
    /// Looks at a stream.
    pub fn look(stream: &Stream) -> Result<Found> {
        let known = Known::read(stream);
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
                // Its time was over just now.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // It was closed after it was opened here.
            was_closed |= live
                .as_ref()
                .is_some_and(|(live, _)| (live.dev(), live.ino()) == (closed.dev(), closed.ino()));
            segments.push(Segment { number: Some(number), path, bytes: closed.len(), file: None });
        }
        if let (Some((found, file)), false) = (live, was_closed) {
            segments.push(Segment { number: None, path, bytes: found.len(), file: Some(file) });
        }
        Ok(Found { stream: stream.clone(), known, segments })
    }

    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

/// Opens what can be read from its beginning to its end. A pipe would wait for whoever writes to it.
fn open(path: &Path) -> Result<File> {
    open_file(path, File::options().read(true))
}

impl Segment {
    /// The file, which other processes may have renamed since.
    pub fn open(&self) -> Result<File> {
        match &self.file {
            Some(file) => file.try_clone(),
            None => open(&self.path),
        }
    }

    pub fn is_live(&self) -> bool {
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
    /// What its files are called, without endings.
    pub fn name(&self) -> String {
        let path = self.live_path();
        path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Keeps other processes from writing, as long as the file is held; `None` where one writes.
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
        // A lock that others may share takes the stream from nobody but who begins at this moment.
        open(&self.head_path()).is_ok_and(|head| {
            flock(&head, FlockOperation::NonBlockingLockShared)
                == Err(rustix::io::Errno::WOULDBLOCK)
        })
    }
}
