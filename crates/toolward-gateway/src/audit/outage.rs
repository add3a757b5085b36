//! A time in which nothing could be written: what is said of it afterwards.

use std::io::{Error, Result};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::Ids;
use super::facts::Facts;
use super::line::{Lines, time};
use crate::clock::micros;

/// So many bytes of records are kept that tell what has happened already.
const MOST_KEPT: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Outage {
    /// When the first write failed, in microseconds.
    since: u64,
    /// Why the latest one did.
    why: String,
    /// Records that something waited for.
    awaited: u64,
    /// Records that nothing waited for and that there was no room to keep.
    lost: u64,
    kept: Lines,
}

impl Outage {
    pub(super) fn begin() -> Outage {
        let (why, kept) = (String::new(), Lines::default());
        Outage { since: micros(), why, awaited: 0, lost: 0, kept }
    }

    /// Records could not be written. What waited for them hears so; the others are kept.
    pub(super) fn add(&mut self, lines: &Lines, error: &Error) {
        let (awaited, lost) = self.kept.keep(lines, MOST_KEPT);
        self.awaited += awaited;
        self.lost += lost;
        self.why = error.to_string();
    }

    /// What is written first when that is possible again.
    pub(super) fn told(&self, required: bool, ids: &Ids) -> Lines {
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

/// Whether a file has room for so many bytes more, where its file system can say so without a write.
pub(super) fn room(file: &std::fs::File, at: u64, bytes: usize) -> Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, at, bytes as u64) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
        _ => Ok(()),
    }
}
