//! The operator's log: a sink for lines, and a rate limit for noisy sources.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// Writes one line for the operator.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Rate limit of the log lines of one server or hook, so that a noisy one cannot fill the log.
///
/// Lines beyond the limit are dropped.
#[derive(Debug, Default)]
pub(crate) struct LogRateLimit {
    second: Option<Instant>,
    lines: u32,
}

impl LogRateLimit {
    const MAX_LINES_PER_SECOND: u32 = 200;

    /// Whether another line may be logged now.
    pub(crate) fn allow(&mut self) -> bool {
        if self.second.is_none_or(|second| second.elapsed() >= Duration::from_secs(1)) {
            *self = LogRateLimit { second: Some(Instant::now()), lines: 0 };
        }
        self.lines += 1;
        self.lines <= LogRateLimit::MAX_LINES_PER_SECOND
    }
}
