//! The thread that writes the log to standard error.
//!
//! Nothing waits for standard error to be read: entries that find the queue full are dropped and counted, and
//! the log contains how many there were.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use toolward_config::config::LogFormat;

use super::entry::Entry;

const MAX_WAITING_ENTRIES: usize = 1024;
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
const FLUSH_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The queue of entries.
#[derive(Clone)]
pub(super) struct Writer {
    queue: SyncSender<Job>,
    dropped: Arc<AtomicU64>,
}

enum Job {
    Write(String),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

impl Writer {
    pub(super) fn start(format: LogFormat) -> Writer {
        let (queue, jobs) = sync_channel(MAX_WAITING_ENTRIES);
        let dropped = Arc::new(AtomicU64::new(0));
        let count = dropped.clone();
        std::thread::spawn(move || run(&jobs, &count, format, &mut anstream::stderr()));
        Writer { queue, dropped }
    }

    /// Queues the lines of an entry, or drops them if too many are waiting.
    pub(super) fn write(&self, lines: String) {
        if self.queue.try_send(Job::Write(lines)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything queued so far is written, or until the timeout.
    pub(super) fn flush(&self) {
        let until = Instant::now() + FLUSH_TIMEOUT;
        let (done, written) = sync_channel(1);
        let mut job = Job::Flush(done);
        while let Err(TrySendError::Full(back)) = self.queue.try_send(job) {
            if Instant::now() >= until {
                return;
            }
            job = back;
            std::thread::sleep(FLUSH_RETRY_INTERVAL);
        }
        let _ = written.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

fn run(jobs: &Receiver<Job>, dropped: &AtomicU64, format: LogFormat, out: &mut impl Write) {
    for job in jobs {
        match job {
            Job::Write(lines) => drop(out.write_all(lines.as_bytes())),
            Job::Flush(done) => drop(done.send(())),
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let why = "standard error was not read fast enough";
            let entry = Entry::warning(format!("log entries dropped: {lost}; {why}"));
            let _ = out.write_all(entry.render(format).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_entries_are_counted_in_the_log() {
        let (queue, jobs) = sync_channel(1);
        let writer = Writer { queue, dropped: Arc::default() };
        for line in ["first\n", "second\n", "third\n"] {
            writer.write(line.into());
        }
        let dropped = writer.dropped.clone();
        drop(writer);
        let mut out = Vec::new();
        run(&jobs, &dropped, LogFormat::Json, &mut out);
        let out = String::from_utf8(out).unwrap();
        let (first, warning) = out.split_once('\n').unwrap();
        assert_eq!(first, "first");
        let warning: serde_json::Value = serde_json::from_str(warning).unwrap();
        assert_eq!((&warning["level"], &warning["target"]), (&"WARN".into(), &"log".into()));
        assert!(warning["message"].as_str().unwrap().contains("dropped: 2;"), "{warning}");
    }

    #[test]
    fn a_flush_returns_when_everything_before_it_is_written() {
        let (queue, jobs) = sync_channel(8);
        let writer = Writer { queue, dropped: Arc::default() };
        writer.write("line\n".into());
        let thread = std::thread::spawn(move || {
            let mut out = Vec::new();
            run(&jobs, &AtomicU64::new(0), LogFormat::Text, &mut out);
            out
        });
        writer.flush();
        drop(writer);
        assert_eq!(thread.join().unwrap(), b"line\n");
    }
}
