//! A period in which the log could not be written, and its record.

use std::io::{Error, Result};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::Ids;
use super::facts::Facts;
use super::line::{Lines, time};
use crate::clock::micros;

/// The maximum number of bytes kept of records about past events.
const MAX_KEPT_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Outage {
    /// When the first write failed, in microseconds.
    since: u64,
    /// The error of the latest attempt.
    why: String,
    /// Records that a task waited for.
    awaited: u64,
    /// Records that no task waited for and that exceeded the limit.
    lost: u64,
    kept: Lines,
}

impl Outage {
    pub(super) fn begin() -> Outage {
        let (why, kept) = (String::new(), Lines::default());
        Outage { since: micros(), why, awaited: 0, lost: 0, kept }
    }

    /// Adds records that could not be written. Tasks that waited for them get the error; other
    /// records are kept.
    pub(super) fn add(&mut self, lines: &Lines, error: &Error) {
        let (awaited, lost) = self.kept.keep(lines, MAX_KEPT_BYTES);
        self.awaited += awaited;
        self.lost += lost;
        self.why = error.to_string();
    }

    /// The records to write first once the log can be written again.
    pub(super) fn records(&self, required: bool, ids: &Ids) -> Lines {
        let mut facts = Facts::default();
        facts.text("since", &time(self.since));
        facts.number(if required { "refused" } else { "unrecorded" }, self.awaited);
        if self.lost > 0 {
            facts.number("outcomes_lost", self.lost);
        }
        facts.text("reason", &self.why);
        let mut lines = Lines::default();
        lines.push(&ids.next(), "recovery", &facts);
        lines.append(&self.kept);
        lines
    }
}

/// Whether a file can grow by this many bytes, if the file system can tell without a write.
pub(super) fn room(file: &std::fs::File, at: u64, bytes: usize) -> Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, at, bytes as u64) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
        _ => Ok(()),
    }
}
