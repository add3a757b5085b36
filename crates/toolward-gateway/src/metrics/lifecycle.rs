//! Starts and failures of one server. They are rare compared to calls.

use std::sync::{Mutex, MutexGuard};

use crate::clock::micros;
use crate::lock::LockUnpoisoned;

/// Longer texts are truncated.
const MAX_CHARS: usize = 400;

/// The history of a server.
#[derive(Debug, Default)]
pub struct Life(Mutex<ServerHistory>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerHistory {
    /// Processes or sessions started.
    pub starts: u64,
    /// Those that replaced one that had ended or failed.
    pub restarts: u64,
    pub last_failure: Option<LastFailure>,
    /// Nothing was started since the last failure.
    pub failing: bool,
}

/// A failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastFailure {
    /// When, in microseconds since 1970.
    pub at: u64,
    pub why: String,
}

impl Life {
    fn lived(&self) -> MutexGuard<'_, ServerHistory> {
        self.0.locked()
    }

    pub(crate) fn started(&self, again: bool) {
        let mut lived = self.lived();
        lived.starts += 1;
        lived.restarts += u64::from(again);
        lived.failing = false;
    }

    pub(crate) fn failed(&self, why: &str) {
        let why = why.char_indices().nth(MAX_CHARS).map_or(why, |(cut, _)| &why[..cut]);
        let mut lived = self.lived();
        lived.last_failure = Some(LastFailure { at: micros(), why: why.into() });
        lived.failing = true;
    }

    /// The history so far.
    pub fn so_far(&self) -> ServerHistory {
        self.lived().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_failure_is_kept_and_not_longer_than_needed() {
        let life = Life::default();
        life.started(false);
        life.failed("it cannot be reached");
        assert!(life.so_far().failing);
        life.started(true);
        assert!(!life.so_far().failing);
        life.failed(&"ä".repeat(1000));
        let lived = life.so_far();
        assert_eq!((lived.starts, lived.restarts), (2, 1));
        assert_eq!(lived.last_failure.unwrap().why.chars().count(), MAX_CHARS);
    }
}
