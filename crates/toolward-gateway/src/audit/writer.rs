//! Writes records: completely or not at all, each with the hash of the previous one.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Result, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, StatxFlags, fstat, major, minor, stat, statx};
use rustix::io::Errno;

use super::Ids;
use super::facts::Facts;
use super::line::{Hash, Lines, NOTHING, hex};
use super::outage::{Outage, room};
use super::segment::{self, Stream, first_line, open_file, open_live, tail, tail_at};
use super::sink_state::{self, SinkState};
use crate::clock::micros;

/// When a segment is closed, and when it is deleted.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    pub rotate_size: u64,
    pub rotate_age: Duration,
    /// `None`: forever.
    pub retain: Option<Duration>,
}

/// Whether the head is written with every batch, or only if it is older than [`MAX_HEAD_LAG`]: then
/// another write is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    Written,
    Soon,
}

/// Options for writing a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    /// A task waits for it: check that the file is still at its path.
    pub(super) awaited: bool,
    pub(super) head: Head,
    /// Additional bytes that the disk must have free.
    pub(super) room: usize,
    /// The batch counts as written after fsync.
    pub(super) on_disk: bool,
}

/// If records come faster than this, in microseconds, the head is not written with each.
const MAX_HEAD_LAG: u64 = 5_000;

/// The interval between checks of the path of the head, in microseconds.
const CHECK_INTERVAL: u64 = 1_000_000;

pub(super) struct Writer {
    stream: Stream,
    /// The end of the chain, and the lock that keeps other processes out.
    head: File,
    head_is: Identity,
    /// When the path of the head was checked, in microseconds.
    looked: u64,
    live: Option<Live>,
    /// The end of the chain, once this process has written.
    end: Option<segment::Head>,
    /// `end` has not been written to the head yet.
    head_lags: bool,
    /// When the head was written, in microseconds.
    head_written: u64,
    keep: Keep,
    required: bool,
    /// The writer's own records, to be written with the next batch.
    notes: Lines,
    outage: Option<Outage>,
    /// Segments to delete once their deletion is recorded.
    expired: Vec<PathBuf>,
    out: Vec<u8>,
    /// Sinks that read the segments.
    sinks: Vec<Arc<SinkState>>,
    /// Syncs a file; replaced in tests.
    sync: fn(&File) -> Result<()>,
}

/// The live segment.
struct Live {
    file: File,
    path: CString,
    is: Identity,
    /// Its segment number, and the hash for its next record.
    segment: u64,
    last: Hash,
    bytes: u64,
    /// When its first record was written, in microseconds.
    begun: u64,
    /// A failed write may have left data after `bytes`.
    torn: bool,
    /// The first records of a new file.
    first: Lines,
}

impl Live {
    /// Whether the open file is still the one at its path.
    fn is_in_place(&self) -> bool {
        identity(CWD, &self.path).is_ok_and(|found| found == self.is)
    }
}

impl Writer {
    /// Opens the log in a directory. An incomplete last line, left by a process that was killed, is
    /// removed.
    pub(super) fn open(folder: &Path, keep: Keep, required: bool, ids: &Ids) -> Result<Writer> {
        let (stream, head) = Stream::claim(folder, None)?;
        let head_is = identity(&head, c"")?;
        let mut writer = Writer {
            stream,
            head,
            head_is,
            looked: micros(),
            live: None,
            end: None,
            head_lags: false,
            head_written: 0,
            keep,
            required,
            notes: Lines::default(),
            outage: None,
            expired: Vec::new(),
            out: Vec::new(),
            sinks: Vec::new(),
            sync: File::sync_data,
        };
        writer.begin(ids)?;
        Ok(writer)
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Keeps segments until these sinks have read them.
    pub(super) fn with_sinks(mut self, sinks: Vec<Arc<SinkState>>) -> Writer {
        self.sinks = sinks;
        self
    }

    /// Writes all records, or none of them. Of records that cannot be written, those about past
    /// events are written with the next ones.
    pub(super) fn write(&mut self, lines: &Lines, how: How, ids: &Ids) -> Result<()> {
        let written = self.try_write(lines, how, ids);
        if let Err(error) = &written {
            self.outage.get_or_insert_with(Outage::begin).add(lines, error);
        }
        written
    }

    fn try_write(&mut self, lines: &Lines, how: How, ids: &Ids) -> Result<()> {
        let now = micros();
        let in_place = self.live.as_ref().is_some_and(|live| !how.awaited || live.is_in_place());
        if !in_place || now.abs_diff(self.looked) >= CHECK_INTERVAL {
            self.hold_head(in_place, ids)?;
            self.looked = now;
        }
        if !in_place || self.live.is_none() {
            self.live = None;
            self.begin(ids)?;
        }
        self.rotate_if_due(now, ids);
        let Some(live) = &mut self.live else { return Err(std::io::ErrorKind::NotFound.into()) };
        if live.torn {
            live.file.set_len(live.bytes)?;
            live.torn = false;
        }
        let recovery = self.outage.as_ref().map(|outage| outage.records(self.required, ids));
        self.out.clear();
        let mut last = live.last;
        let own = [Some(&live.first), Some(&self.notes), recovery.as_ref(), Some(lines)];
        for lines in own.into_iter().flatten() {
            last = lines.chain(last, &mut self.out);
        }
        if self.out.is_empty() {
            return Ok(());
        }
        if how.room > 0 {
            room(&live.file, live.bytes, self.out.len() + how.room)?;
        }
        let mut written = live.file.write_all(&self.out);
        if how.on_disk {
            written = written.and_then(|()| (self.sync)(&live.file));
        }
        if let Err(error) = written {
            // Half a line must not corrupt the next one, and a refused call must not look like one
            // that was made.
            live.torn = live.file.set_len(live.bytes).is_err();
            if live.torn {
                self.log_failed_rollback();
            }
            return Err(error);
        }
        live.bytes += self.out.len() as u64;
        live.last = last;
        live.first.clear();
        self.notes.clear();
        self.outage = None;
        let end = segment::Head { segment: live.segment, bytes: live.bytes, hash: last };
        self.end = Some(end);
        self.head_lags = true;
        if how.head == Head::Written || now.abs_diff(self.head_written) >= MAX_HEAD_LAG {
            self.write_head(now);
        }
        for path in self.expired.drain(..) {
            let _ = std::fs::remove_file(path);
        }
        // A large buffer is not kept forever.
        self.out.shrink_to(64 << 10);
        Ok(())
    }

    /// Updates the head. A head that lags behind is incomplete, never wrong.
    pub(super) fn write_head(&mut self, now: u64) {
        if let Some(end) = self.end.filter(|_| self.head_lags) {
            self.head_lags = end.write(&self.head).is_err();
            self.head_written = now;
        }
    }

    /// Makes the next write check the path of the head.
    pub(super) fn look(&mut self) {
        self.looked = 0;
    }

    /// The segment of the next records.
    pub(super) fn segment(&mut self, ids: &Ids) -> u64 {
        self.rotate_if_due(micros(), ids);
        self.live.as_ref().map_or(0, |live| live.segment)
    }

    /// Checks that the head is still at its path, and creates it again if not: without it, removal
    /// of the last records could not be detected.
    fn hold_head(&mut self, live_in_place: bool, ids: &Ids) -> Result<()> {
        let found = identity(CWD, &c_path(self.stream.head_path())?);
        if found.is_ok_and(|found| found == self.head_is) {
            return Ok(());
        }
        let (stream, head) = Stream::claim(&self.stream.folder, Some(self.stream.number))?;
        let head_is = identity(&head, c"")?;
        if stream == self.stream {
            // An unreadable head would only be reported as such at the next start.
            self.end.unwrap_or(segment::Head::NOTHING).overwrite(&head)?;
            self.warn("the head file was removed or replaced; writing it again");
            if live_in_place {
                let mut facts = Facts::default();
                facts.text("reason", "the head file was removed or replaced; writing it again");
                self.notes.push(&ids.next(), "head", &facts);
            }
        } else {
            self.warn("another process has taken over this audit log; this one starts its own");
            (self.live, self.end) = (None, None);
            self.stream = stream;
        }
        (self.head, self.head_is) = (head, head_is);
        Ok(())
    }

    /// Opens the live segment, and finds the end of its chain.
    fn begin(&mut self, ids: &Ids) -> Result<()> {
        let file = open_live(&self.stream.live_path())?;
        let mut live = Live {
            is: identity(&file, c"")?,
            file,
            path: c_path(self.stream.live_path())?,
            segment: 1,
            last: NOTHING,
            bytes: 0,
            begun: micros(),
            torn: false,
            first: Lines::default(),
        };
        self.resume(&mut live, ids)?;
        self.live = Some(live);
        Ok(())
    }

    fn resume(&mut self, live: &mut Live, ids: &Ids) -> Result<()> {
        let end = tail(&live.file)?;
        live.bytes = end.whole;
        let there = match end.last {
            Some(last) => {
                let first = first_line(&live.file).unwrap_or_default();
                live.segment = first["segment"].as_u64().unwrap_or(1);
                live.last = last;
                let begun = first["id"].as_str().and_then(|id| id.split('-').next());
                live.begun = begun.and_then(|id| u64::from_str_radix(id, 16).ok()).unwrap_or(0);
                (live.segment, end.whole)
            }
            None => {
                // A process may have ended between two segments.
                let closed = match self.stream.closed()?.last() {
                    Some((number, path)) => {
                        let end = tail(&open_file(path, File::options().read(true))?)?;
                        Some((*number, end.whole, end.last.unwrap_or(NOTHING)))
                    }
                    None => None,
                };
                let written = self.end.map(|end| (end.segment, 0, end.hash));
                let (segment, _, last) = closed.or(written).unwrap_or((0, 0, NOTHING));
                (live.segment, live.last) = (segment + 1, last);
                let mut facts = Facts::default();
                facts.number("segment", live.segment);
                live.first.push(&ids.next(), "segment", &facts);
                closed.map_or((0, 0), |(number, whole, _)| (number, whole))
            }
        };
        if !end.torn.is_empty() {
            live.file.set_len(end.whole)?;
            let bytes = end.torn.len() as u64;
            self.warn(&format!("removed a torn last line ({bytes} bytes)"));
            let mut facts = Facts::default();
            facts.number("bytes", bytes);
            let shown = end.torn.get(..4096).unwrap_or(&end.torn);
            facts.text("torn", &String::from_utf8_lossy(shown));
            live.first.push(&ids.next(), "repair", &facts);
        }
        match self.end.or_else(|| self.stream.head()) {
            Some(head) => self.compare(&head, there, live, ids),
            None if there == (0, 0) => segment::Head::NOTHING.overwrite(&self.head)?,
            None => self.without_head(live, ids),
        }
        Ok(())
    }

    /// Records that there are records and no head: how many there were is unknown.
    fn without_head(&self, live: &mut Live, ids: &Ids) {
        let empty = self.head.metadata().is_ok_and(|found| found.len() == 0);
        let why = match empty {
            true => "the head is missing: removed records cannot be detected",
            false => "the head cannot be read: removed records cannot be detected",
        };
        self.warn(why);
        let mut facts = Facts::default();
        facts.text("reason", why);
        live.first.push(&ids.next(), "gap", &facts);
        let _ = self.head.set_len(0);
    }

    /// Checks whether the files still contain the last records.
    fn compare(&self, head: &segment::Head, there: (u64, u64), live: &mut Live, ids: &Ids) {
        let written = match there.0 == head.segment && live.bytes > 0 {
            true => tail_at(&live.file, head.bytes),
            false => {
                let path = self.stream.closed_path(head.segment);
                open_file(&path, File::options().read(true))
                    .and_then(|file| tail_at(&file, head.bytes))
            }
        };
        let same = written.is_ok_and(|end| end.last == Some(head.hash) && end.torn.is_empty());
        let same = same || *head == segment::Head::NOTHING;
        let mut facts = Facts::default();
        if there < (head.segment, head.bytes) || !same {
            let why =
                "records are missing or changed: the log does not end with the last record written";
            self.warn(why);
            facts.text("reason", why);
            facts.number("segment_before", head.segment);
            facts.number("bytes_before", head.bytes);
            facts.text("hash_before", &hex(&head.hash));
            live.first.push(&ids.next(), "gap", &facts);
        } else if there > (head.segment, head.bytes) {
            // A process was killed between writing records and the head, or something else wrote to
            // the file.
            self.warn("the log has records after its head; they are kept");
            facts.number("segment_before", head.segment);
            facts.number("bytes_before", head.bytes);
            live.first.push(&ids.next(), "taken-over", &facts);
        }
    }

    fn warn(&self, what: &str) {
        let path = self.stream.live_path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        tracing::warn!(target: "audit", file = name, "{what}");
    }

    fn log_failed_rollback(&self) {
        let path = self.stream.live_path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        tracing::error!(
            target: "audit",
            "failed to roll back a partial write to {name}; the log may contain a call that was not \
             forwarded"
        );
    }

    fn rotate_if_due(&mut self, now: u64, ids: &Ids) {
        let Some(live) = &self.live else { return };
        let age = Duration::from_micros(now.saturating_sub(live.begun));
        let due = live.bytes >= self.keep.rotate_size || age >= self.keep.rotate_age;
        // A closed segment contains only complete lines, and the records about itself: an
        // incomplete line is removed first.
        if live.bytes == 0 || live.torn || !live.first.is_empty() || !due {
            return;
        }
        let closed = self.stream.closed_path(live.segment);
        // Nothing is overwritten. A segment that cannot be closed keeps growing.
        let free = closed.symlink_metadata().is_err();
        let moved = free.then(|| std::fs::rename(self.stream.live_path(), &closed));
        if !matches!(moved, Some(Ok(()))) {
            self.warn("the segment cannot be rotated and keeps growing");
            if let Some(live) = &mut self.live {
                live.begun = micros();
            }
            return;
        }
        self.live = None;
        if let Err(error) = self.begin(ids) {
            tracing::error!(target: "audit", "cannot start the next segment: {error}");
        }
        self.remove_old(ids);
    }

    /// Deletes expired segments, and records it.
    fn remove_old(&mut self, ids: &Ids) {
        let Some(retain) = self.keep.retain else { return };
        let Ok(closed) = self.stream.closed() else { return };
        let needed = sink_state::needed(&self.sinks, &self.stream);
        let old = closed.into_iter().take_while(|(number, path)| {
            let written = path.metadata().and_then(|found| found.modified());
            let expired = written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > retain));
            expired && *number < needed
        });
        let old: Vec<_> = old.collect();
        let (Some((upto, _)), Some(live)) = (old.last(), &mut self.live) else { return };
        let mut facts = Facts::default();
        facts.number("removed_up_to", *upto);
        live.first.push(&ids.next(), "retention", &facts);
        self.expired = old.into_iter().map(|(_, path)| path).collect();
    }
}

/// The identity of a file: device and inode.
type Identity = (u32, u32, u64);

/// The identity of the file at a path, relative to an open file; with an empty path, of that file.
///
/// Only the inode is requested: after a request for timestamps, the kernel updates them on the next
/// write, which costs more than the rest of it.
fn identity(from: impl AsFd, path: &CStr) -> Result<Identity> {
    let here = if path.is_empty() { AtFlags::EMPTY_PATH } else { AtFlags::empty() };
    match statx(&from, path, here, StatxFlags::INO) {
        Ok(found) => Ok((found.stx_dev_major, found.stx_dev_minor, found.stx_ino)),
        // An old kernel, or a sandbox that blocks the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let found = if path.is_empty() { fstat(from)? } else { stat(path)? };
            Ok((major(found.st_dev), minor(found.st_dev), found.st_ino))
        }
        Err(error) => Err(error.into()),
    }
}

fn c_path(path: PathBuf) -> Result<CString> {
    Ok(CString::new(path.into_os_string().into_vec())?)
}

#[cfg(test)]
mod tests;
