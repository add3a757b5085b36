//! The state of the sinks, as the log sees it: how far behind each is, and which records it has delivered.
//!
//! A sink reads the files of the log behind the writer (`crate::sinks`). Here is only what the
//! writer needs: whether calls must be refused because a sink is too far behind, and which segments
//! must not be deleted yet.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::segment::{Head, Stream, open_file};
use crate::clock::micros;
use crate::lock::LockUnpoisoned;

/// The state of one sink, which its thread updates.
#[derive(Debug)]
pub struct SinkState {
    pub name: String,
    /// Calls are refused if the sink is further behind than this.
    pub max_lag: Option<Duration>,
    /// When the oldest undelivered record was written, in microseconds; 0 if every record is
    /// delivered.
    oldest: AtomicU64,
    delivered: AtomicU64,
    failures: AtomicU64,
    error: Mutex<Option<String>>,
}

impl SinkState {
    pub fn new(name: impl Into<String>, max_lag: Option<Duration>) -> SinkState {
        let [oldest, delivered, failures] = [0; 3].map(AtomicU64::new);
        SinkState {
            name: name.into(),
            max_lag,
            oldest,
            delivered,
            failures,
            error: Mutex::default(),
        }
    }

    /// The age of the oldest record that is not delivered.
    pub fn lag(&self) -> Duration {
        match self.oldest.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            oldest => Duration::from_micros(micros().saturating_sub(oldest)),
        }
    }

    /// How many records were delivered since the start of the process; a repeated one counts again.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Why the last delivery failed, if it did.
    pub fn error(&self) -> Option<String> {
        self.error.locked().clone()
    }

    /// There is a record of this time to deliver.
    pub(crate) fn pending(&self, since_micros: u64) {
        self.oldest.store(since_micros.max(1), Ordering::Relaxed);
    }

    /// Everything is delivered.
    pub(crate) fn caught_up(&self) {
        self.oldest.store(0, Ordering::Relaxed);
    }

    pub(crate) fn succeeded(&self, records: usize) -> bool {
        self.delivered.fetch_add(records as u64, Ordering::Relaxed);
        self.error.locked().take().is_some()
    }

    /// Notes a failure; returns whether it is the first one.
    pub(crate) fn failed(&self, why: &str) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed);
        // A log that cannot be read is behind, too.
        let _ = self.oldest.compare_exchange(0, micros(), Ordering::Relaxed, Ordering::Relaxed);
        self.error.locked().replace(why.into()).is_none()
    }

    /// Why calls are refused, if the sink is too far behind.
    pub(super) fn refusal(&self) -> Option<Error> {
        let lag = self.max_lag.map(|max| (max, self.lag())).filter(|(max, lag)| lag > max);
        lag.map(|(max, lag)| {
            let name = &self.name;
            Error::new(
                ErrorKind::TimedOut,
                format!("the sink `{name}` is {} s behind (`max_lag` is {max:?})", lag.as_secs()),
            )
        })
    }
}

/// The file in which a sink keeps its position in a stream.
pub(crate) fn position_path(folder: &Path, sink: &str, stream: &Stream) -> PathBuf {
    folder.join("sinks").join(format!("{sink}.{}.position", stream.name()))
}

/// The position of a sink in a stream: the end of the last record that it has delivered.
pub(crate) fn read_position(file: &File) -> Option<Head> {
    Head::read(file)
}

/// The first segment that a sink still needs. Without a position it needs everything.
pub(super) fn needed(sinks: &[std::sync::Arc<SinkState>], stream: &Stream) -> u64 {
    let segment = |sink: &std::sync::Arc<SinkState>| {
        let path = position_path(&stream.folder, &sink.name, stream);
        let file: Result<File> = open_file(&path, File::options().read(true));
        file.ok().and_then(|file| read_position(&file)).map_or(0, |position| position.segment)
    };
    sinks.iter().map(segment).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sink_with_a_limit_refuses() {
        let free = SinkState::new("a", None);
        free.pending(1);
        assert!(free.lag() > Duration::from_secs(60) && free.refusal().is_none());
        let limited = SinkState::new("b", Some(Duration::from_secs(60)));
        assert!(limited.refusal().is_none());
        limited.pending(micros() - 10_000_000);
        assert!(limited.refusal().is_none());
        limited.pending(micros() - 61_000_000);
        let why = limited.refusal().unwrap().to_string();
        assert!(why.contains("`b` is 61 s behind"), "{why}");
        limited.caught_up();
        assert!(limited.refusal().is_none() && limited.lag().is_zero());
    }

    #[test]
    fn a_failure_is_new_once() {
        let sink = SinkState::new("a", None);
        assert!(sink.failed("no route") && !sink.failed("no route"));
        assert_eq!((sink.failures(), sink.error().as_deref()), (2, Some("no route")));
        assert!(!sink.lag().is_zero() || sink.oldest.load(Ordering::Relaxed) > 0);
        assert!(sink.succeeded(3) && !sink.succeeded(4));
        assert_eq!((sink.delivered(), sink.error()), (7, None));
    }
}
