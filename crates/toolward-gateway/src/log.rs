//! The operator's log: standard error of child processes, and rate limits for noisy sources.
//!
//! The log consists of `tracing` events, which the program formats, sanitizes and writes. Their
//! targets are short names of modules: `audit`, `authn`, `downstream`, `guard`, `upstream`;
//! `stderr` for lines of child processes. Events that an operator has to act on are errors or
//! warnings; events about single calls are at most `debug`.

mod rejected;

pub use self::rejected::RejectedCredentials;

use std::time::{Duration, Instant};

/// The child process that wrote a line.
pub(crate) enum Source {
    Server(String),
    Hook(String),
}

impl Source {
    /// Logs a line of the standard error of the process, under a target that the gateway itself
    /// never uses.
    pub(crate) fn log_stderr(&self, line: &str) {
        match self {
            Source::Server(name) => tracing::info!(target: "stderr", server = name, "{line}"),
            Source::Hook(name) => tracing::info!(target: "stderr", hook = name, "{line}"),
        }
    }
}

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
