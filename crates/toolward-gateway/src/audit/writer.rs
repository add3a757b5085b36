//! Writes records: whole or not at all, each with the hash of the one before it.

use std::fs::File;
use std::io::{Result, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FileType;

use super::Ids;
use super::line::{Hash, Lines, NOTHING, hex, micros};
use super::segment::{Head, Stream, first_line, open_live, tail, tail_at};
use crate::record::Facts;
use crate::upstream::Log;

/// When a segment ends, and when it is removed.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    pub rotate_size: u64,
    pub rotate_age: Duration,
    /// `None`: forever.
    pub retain: Option<Duration>,
}

pub(super) struct Writer {
    stream: Stream,
    /// Says where the chain ends, and keeps other processes out.
    head: File,
    live: Option<Live>,
    /// The number of the segment that is written to.
    segment: u64,
    last: Hash,
    keep: Keep,
    /// Segments whose removal the record is about to say.
    expired: Vec<PathBuf>,
    out: Vec<u8>,
    log: Log,
}

/// The file that is written to.
struct Live {
    file: File,
    /// Which file that is: device and inode.
    is: (u64, u64),
    bytes: u64,
    /// When its first record was written, in microseconds.
    begun: u64,
    /// A failed write may have left something behind `bytes`.
    torn: bool,
    /// What it is to begin with, where it is new.
    first: Lines,
}

impl Writer {
    /// Opens the record in a folder. A line that was torn by the end of a process is taken off.
    pub(super) fn open(folder: &Path, keep: Keep, ids: &Ids, log: Log) -> Result<Writer> {
        let (stream, head) = Stream::claim(folder)?;
        let mut writer = Writer {
            stream,
            head,
            live: None,
            segment: 0,
            last: NOTHING,
            keep,
            expired: Vec::new(),
            out: Vec::new(),
            log,
        };
        writer.begin(ids)?;
        Ok(writer)
    }

    /// Writes all records, or none of them. Where something waits for them, they must be where they
    /// are looked for.
    pub(super) fn write(&mut self, lines: &Lines, awaited: bool, ids: &Ids) -> Result<()> {
        if self.live.is_none() || (awaited && !self.is_in_place()) {
            self.live = None;
            self.begin(ids)?;
        }
        self.rotate_if_due(ids);
        let Some(live) = &mut self.live else { return Err(std::io::ErrorKind::NotFound.into()) };
        if live.torn {
            live.file.set_len(live.bytes)?;
            live.torn = false;
        }
        self.out.clear();
        let last = live.first.chain(self.last, &mut self.out);
        let last = lines.chain(last, &mut self.out);
        if let Err(error) = live.file.write_all(&self.out) {
            // Records are read line by line: half a line must not swallow the next one.
            live.torn = live.file.set_len(live.bytes).is_err();
            return Err(error);
        }
        live.bytes += self.out.len() as u64;
        live.first.clear();
        self.last = last;
        // One that lags behind says too little, never something wrong.
        let head = Head { segment: self.segment, bytes: live.bytes, hash: last };
        let _ = head.write(&self.head);
        for path in self.expired.drain(..) {
            let _ = std::fs::remove_file(path);
        }
        // Nothing large is kept for good.
        self.out.shrink_to(64 << 10);
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.live.as_ref().map_or(Ok(()), |live| live.file.sync_data())
    }

    /// Whether the file that is open is the one that its path leads to.
    fn is_in_place(&self) -> bool {
        let Some(live) = &self.live else { return false };
        let found = rustix::fs::stat(self.stream.live_path());
        found.is_ok_and(|found| (found.st_dev, found.st_ino) == live.is)
    }

    /// Opens the file to write to, and finds where its chain ends.
    fn begin(&mut self, ids: &Ids) -> Result<()> {
        let file = open_live(&self.stream.live_path())?;
        let found = rustix::fs::fstat(&file)?;
        let is = (found.st_dev, found.st_ino);
        let mut live =
            Live { file, is, bytes: 0, begun: micros(), torn: false, first: Lines::default() };
        if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
            self.go_on(&mut live, ids)?;
        }
        self.live = Some(live);
        Ok(())
    }

    fn go_on(&mut self, live: &mut Live, ids: &Ids) -> Result<()> {
        let end = tail(&live.file)?;
        live.bytes = end.whole;
        let there = match end.last {
            Some(last) => {
                let first = first_line(&live.file).unwrap_or_default();
                self.segment = first["segment"].as_u64().unwrap_or(1);
                self.last = last;
                let begun = first["id"].as_str().and_then(|id| id.split('-').next());
                live.begun = begun.and_then(|id| u64::from_str_radix(id, 16).ok()).unwrap_or(0);
                (self.segment, end.whole)
            }
            None => {
                let mut there = (0, 0);
                if let Some((number, path)) = self.stream.closed()?.last() {
                    // A process may have ended between two segments.
                    let end = tail(&File::open(path)?)?;
                    there = (*number, end.whole);
                    self.segment = *number;
                    self.last = end.last.unwrap_or(NOTHING);
                }
                self.new_segment(live, ids);
                there
            }
        };
        if !end.torn.is_empty() {
            live.file.set_len(end.whole)?;
            let bytes = end.torn.len() as u64;
            self.say(&format!("the last line was torn, and is taken off ({bytes} bytes)"));
            let mut facts = Facts::default();
            facts.number("bytes", bytes);
            let shown = end.torn.get(..4096).unwrap_or(&end.torn);
            facts.text("torn", &String::from_utf8_lossy(shown));
            live.first.push(&ids.next(), "repair", &facts);
        }
        if let Some(head) = self.stream.head() {
            self.compare(&head, there, live, ids);
        }
        Ok(())
    }

    /// Whether the files still hold what the head says was written last.
    fn compare(&self, head: &Head, there: (u64, u64), live: &mut Live, ids: &Ids) {
        let written = match there.0 == head.segment && live.bytes > 0 {
            true => tail_at(&live.file, head.bytes),
            false => File::open(self.stream.closed_path(head.segment))
                .and_then(|file| tail_at(&file, head.bytes)),
        };
        let same = written.is_ok_and(|end| end.last == Some(head.hash) && end.torn.is_empty());
        let mut facts = Facts::default();
        if there < (head.segment, head.bytes) || !same {
            self.say("records are missing or changed: the end is not what was written");
            facts.number("segment_before", head.segment);
            facts.number("bytes_before", head.bytes);
            facts.text("hash_before", &hex(&head.hash));
            live.first.push(&ids.next(), "gap", &facts);
        } else if there > (head.segment, head.bytes) {
            // A process was killed after it wrote and before it said so, or somebody else wrote.
            self.say("there are records that the head does not know; they are taken over");
            facts.number("segment_before", head.segment);
            facts.number("bytes_before", head.bytes);
            live.first.push(&ids.next(), "taken-over", &facts);
        }
    }

    fn say(&self, what: &str) {
        let path = self.stream.live_path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (self.log)(&format!("{name}: {what}"));
    }

    /// What a segment begins with. The chain goes on from the one before it.
    fn new_segment(&mut self, live: &mut Live, ids: &Ids) {
        self.segment += 1;
        let mut facts = Facts::default();
        facts.number("segment", self.segment);
        live.first.push(&ids.next(), "segment", &facts);
    }

    fn rotate_if_due(&mut self, ids: &Ids) {
        let Some(live) = &self.live else { return };
        let age = Duration::from_micros(micros().saturating_sub(live.begun));
        let due = live.bytes >= self.keep.rotate_size || age >= self.keep.rotate_age;
        // A closed segment has whole lines only: what is torn is taken off first.
        if live.bytes == 0 || live.torn || !due {
            return;
        }
        let closed = self.stream.closed_path(self.segment);
        // Nothing is written over. Where a segment cannot be closed, it grows.
        let free = closed.symlink_metadata().is_err();
        let moved = free.then(|| std::fs::rename(self.stream.live_path(), &closed));
        if !matches!(moved, Some(Ok(()))) {
            self.say("the segment cannot be closed, and grows");
            if let Some(live) = &mut self.live {
                live.begun = micros();
            }
            return;
        }
        self.live = None;
        if let Err(error) = self.begin(ids) {
            (self.log)(&format!("the audit record cannot go on: {error}"));
        }
        self.remove_old(ids);
    }

    /// Removes segments whose time is over, and says so in the record.
    fn remove_old(&mut self, ids: &Ids) {
        let Some(retain) = self.keep.retain else { return };
        let Ok(closed) = self.stream.closed() else { return };
        let old = closed.into_iter().take_while(|(_, path)| {
            let written = path.metadata().and_then(|found| found.modified());
            written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > retain))
        });
        let old: Vec<_> = old.collect();
        let (Some((upto, _)), Some(live)) = (old.last(), &mut self.live) else { return };
        let mut facts = Facts::default();
        facts.number("removed_up_to", *upto);
        live.first.push(&ids.next(), "retention", &facts);
        self.expired = old.into_iter().map(|(_, path)| path).collect();
    }
}
