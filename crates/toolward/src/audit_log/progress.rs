//! Progress of long reads, on a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The minimum size for which progress is shown.
const MIN_BYTES: u64 = 64 << 20;
const UPDATE_INTERVAL: Duration = Duration::from_millis(100);

/// A line on standard error, if that is a terminal.
pub(crate) struct Progress {
    total: u64,
    done: u64,
    begun: Instant,
    shown: Option<Instant>,
    wanted: bool,
}

impl Progress {
    pub(crate) fn new(total: u64) -> Progress {
        let wanted = total > MIN_BYTES && std::io::stderr().is_terminal();
        Progress { total, done: 0, begun: Instant::now(), shown: None, wanted }
    }

    pub(crate) fn add(&mut self, bytes: u64) {
        self.done += bytes;
        if self.wanted && self.shown.is_none_or(|shown| shown.elapsed() >= UPDATE_INTERVAL) {
            self.shown = Some(Instant::now());
            let percent = (100 * self.done / self.total.max(1)).min(100);
            let filled = usize::try_from(percent / 5).unwrap_or(0);
            let (done, total) = (self.done >> 20, self.total >> 20);
            let rate = (self.done >> 10) as f64 / 1024.0 / self.begun.elapsed().as_secs_f64();
            let bar = format!("{}{}", "#".repeat(filled), "-".repeat(20 - filled));
            let line = format!("\r[{bar}] {percent:>3} %  {done} of {total} MiB  {rate:.0} MiB/s ");
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    /// Removes the line.
    pub(crate) fn end(&mut self) {
        self.wanted = false;
        if self.shown.take().is_some() {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}
