//! Writes records: whole or not at all, each with the hash of the one before it.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Result, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, StatxFlags, fstat, major, minor, stat, statx};
use rustix::io::Errno;

use super::Ids;
use super::facts::Facts;
use super::line::{Hash, Lines, NOTHING, hex};
use super::outage::{Outage, room};
use super::segment::{self, Stream, first_line, open_file, open_live, tail, tail_at};
use crate::clock::micros;

/// When a segment ends, and when it is removed.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    pub rotate_size: u64,
    pub rotate_age: Duration,
    /// `None`: forever.
    pub retain: Option<Duration>,
}

/// Whether the head is brought up to date with a batch in any case, or only where it is older than a
/// moment: then whoever wrote it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    Written,
    Soon,
}

/// How a batch is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    /// Something waits for it: it must be where it is looked for.
    pub(super) awaited: bool,
    pub(super) head: Head,
    /// Bytes for which there has to be room beside it.
    pub(super) room: usize,
    /// It counts as written when the disk has it.
    pub(super) on_disk: bool,
}

/// Where records come faster than this, in microseconds, the head is not written with each.
const LAG: u64 = 5_000;

/// So often it is looked whether the head is in its place, in microseconds.
const LOOK: u64 = 1_000_000;

pub(super) struct Writer {
    stream: Stream,
    /// Says where the chain ends, and keeps other processes out.
    head: File,
    head_is: Identity,
    /// When it was found in its place, in microseconds.
    looked: u64,
    live: Option<Live>,
    /// Where the chain ends, once this process has written.
    end: Option<segment::Head>,
    /// The head does not say so yet.
    head_lags: bool,
    /// When it was written, in microseconds.
    head_written: u64,
    keep: Keep,
    required: bool,
    /// What the writer itself has to say with the next records.
    notes: Lines,
    outage: Option<Outage>,
    /// Segments whose removal the record is about to say.
    expired: Vec<PathBuf>,
    out: Vec<u8>,
    /// How the disk is waited for.
    sync: fn(&File) -> Result<()>,
}

/// The file that is written to.
struct Live {
    file: File,
    path: CString,
    is: Identity,
    /// The number of the segment that it is, and the hash that its next record carries.
    segment: u64,
    last: Hash,
    bytes: u64,
    /// When its first record was written, in microseconds.
    begun: u64,
    /// A failed write may have left something behind `bytes`.
    torn: bool,
    /// What it is to begin with, where it is new.
    first: Lines,
}

impl Live {
    /// Whether the file that is open is the one that its path leads to.
    fn is_in_place(&self) -> bool {
        identity(CWD, &self.path).is_ok_and(|found| found == self.is)
    }
}

impl Writer {
    /// Opens the record in a folder. A line that was torn by the end of a process is taken off.
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
            sync: File::sync_data,
        };
        writer.begin(ids)?;
        Ok(writer)
    }

    /// Writes all records, or none of them. Of those that are not written, the ones that tell what has
    /// happened already come with the next that are.
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
        if !in_place || now.abs_diff(self.looked) >= LOOK {
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
        let recovery = self.outage.as_ref().map(|outage| outage.told(self.required, ids));
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
            // Half a line must not swallow the next one, and what is refused must not read as done.
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
        if how.head == Head::Written || now.abs_diff(self.head_written) >= LAG {
            self.write_head(now);
        }
        for path in self.expired.drain(..) {
            let _ = std::fs::remove_file(path);
        }
        // Nothing large is kept for good.
        self.out.shrink_to(64 << 10);
        Ok(())
    }

    /// Brings the head up to date. One that lags behind says too little, never something wrong.
    pub(super) fn write_head(&mut self, now: u64) {
        if let Some(end) = self.end.filter(|_| self.head_lags) {
            self.head_lags = end.write(&self.head).is_err();
            self.head_written = now;
        }
    }

    /// The next write looks whether the head is in its place.
    pub(super) fn look(&mut self) {
        self.looked = 0;
    }

    /// The segment that the next records go to.
    pub(super) fn segment(&mut self, ids: &Ids) -> u64 {
        self.rotate_if_due(micros(), ids);
        self.live.as_ref().map_or(0, |live| live.segment)
    }

    /// Sees to it that the head is in its place. Where it is not, it is made anew: without it nobody
    /// could say later whether the end is missing.
    fn hold_head(&mut self, live_in_place: bool, ids: &Ids) -> Result<()> {
        let found = identity(CWD, &c_path(self.stream.head_path())?);
        if found.is_ok_and(|found| found == self.head_is) {
            return Ok(());
        }
        let (stream, head) = Stream::claim(&self.stream.folder, Some(self.stream.number))?;
        let head_is = identity(&head, c"")?;
        if stream == self.stream {
            // One that cannot be read says nothing at the next start but that.
            self.end.unwrap_or(segment::Head::NOTHING).write_anew(&head)?;
            self.say("the head file was removed or replaced; it is written again");
            if live_in_place {
                let mut facts = Facts::default();
                facts.text("reason", "the head file was removed or replaced; it is written again");
                self.notes.push(&ids.next(), "head", &facts);
            }
        } else {
            self.say("another process has taken over this audit log; this one starts its own");
            (self.live, self.end) = (None, None);
            self.stream = stream;
        }
        (self.head, self.head_is) = (head, head_is);
        Ok(())
    }

    /// Opens the file to write to, and finds where its chain ends.
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
        self.go_on(&mut live, ids)?;
        self.live = Some(live);
        Ok(())
    }

    fn go_on(&mut self, live: &mut Live, ids: &Ids) -> Result<()> {
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
            self.say(&format!("removed a torn last line ({bytes} bytes)"));
            let mut facts = Facts::default();
            facts.number("bytes", bytes);
            let shown = end.torn.get(..4096).unwrap_or(&end.torn);
            facts.text("torn", &String::from_utf8_lossy(shown));
            live.first.push(&ids.next(), "repair", &facts);
        }
        match self.end.or_else(|| self.stream.head()) {
            Some(head) => self.compare(&head, there, live, ids),
            None if there == (0, 0) => segment::Head::NOTHING.write_anew(&self.head)?,
            None => self.without_head(live, ids),
        }
        Ok(())
    }

    /// There are records, and nothing says up to where there were.
    fn without_head(&self, live: &mut Live, ids: &Ids) {
        let empty = self.head.metadata().is_ok_and(|found| found.len() == 0);
        let why = match empty {
            true => "the head is missing: whether records were removed cannot be told",
            false => "the head cannot be read: whether records were removed cannot be told",
        };
        self.say(why);
        let mut facts = Facts::default();
        facts.text("reason", why);
        live.first.push(&ids.next(), "gap", &facts);
        let _ = self.head.set_len(0);
    }

    /// Whether the files still hold what was written last.
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
            let why = "records are missing or changed: the end is not what was written";
            self.say(why);
            facts.text("reason", why);
            facts.number("segment_before", head.segment);
            facts.number("bytes_before", head.bytes);
            facts.text("hash_before", &hex(&head.hash));
            live.first.push(&ids.next(), "gap", &facts);
        } else if there > (head.segment, head.bytes) {
            // A process was killed after it wrote and before it said so, or somebody else wrote.
            self.say("the log has records after its head; they are kept");
            facts.number("segment_before", head.segment);
            facts.number("bytes_before", head.bytes);
            live.first.push(&ids.next(), "taken-over", &facts);
        }
    }

    fn say(&self, what: &str) {
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
        // A closed segment has whole lines only, and what is to be said of it: what is torn is taken
        // off first.
        if live.bytes == 0 || live.torn || !live.first.is_empty() || !due {
            return;
        }
        let closed = self.stream.closed_path(live.segment);
        // Nothing is written over. Where a segment cannot be closed, it grows.
        let free = closed.symlink_metadata().is_err();
        let moved = free.then(|| std::fs::rename(self.stream.live_path(), &closed));
        if !matches!(moved, Some(Ok(()))) {
            self.say("the segment cannot be rotated and keeps growing");
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

/// Which file it is: device and inode.
type Identity = (u32, u32, u64);

/// Which file a path leads to from an open one; with an empty path, that one.
///
/// Nothing more is asked for: a file whose times were asked for is given new ones by the next write,
/// which costs more than the rest of it.
fn identity(from: impl AsFd, path: &CStr) -> Result<Identity> {
    let here = if path.is_empty() { AtFlags::EMPTY_PATH } else { AtFlags::empty() };
    match statx(&from, path, here, StatxFlags::INO) {
        Ok(found) => Ok((found.stx_dev_major, found.stx_dev_minor, found.stx_ino)),
        // An old kernel, or a sandbox that does not know the call.
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
