//! A call that is in the audit log, and its outcome.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::facts::Facts;
use super::{Audit, UNRECORDED, When};

/// A call that is about to be forwarded, or has been.
#[derive(Debug)]
#[must_use]
pub struct Intent {
    pub(super) audit: Arc<Audit>,
    pub(super) id: String,
    pub(super) begun: Instant,
    /// The thread on which it began.
    pub(super) slot: usize,
    /// No more records are written for it.
    pub(super) ended: bool,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    pub name: &'static str,
    pub error_code: Option<i64>,
    pub bytes_out: usize,
}

impl Intent {
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Ends the intent; returns the time and the duration of the call. The call has been made: if
    /// its record cannot be written now, it is written with a later one.
    pub fn end(mut self, outcome: Outcome) -> (Instant, Duration) {
        self.write(outcome)
    }

    fn write(&mut self, outcome: Outcome) -> (Instant, Duration) {
        let unrecorded = std::mem::replace(&mut self.ended, true);
        let now = Instant::now();
        let took = now.saturating_duration_since(self.begun);
        if UNRECORDED || unrecorded {
            return (now, took);
        }
        let mut facts = Facts::with_room(192);
        facts.text("intent", &self.id);
        facts.text("outcome", outcome.name);
        facts.maybe_number("error_code", outcome.error_code);
        facts.number("duration_us", u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        facts.number("bytes_out", outcome.bytes_out as u64);
        // Nothing waits for an outcome: it is written with the next records.
        drop(self.audit.push(&self.audit.id(), "outcome", &facts, When::Whenever));
        (now, took)
    }
}

impl Drop for Intent {
    fn drop(&mut self) {
        if let Some(count) = self.audit.under_way.get(self.slot) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        if !self.ended {
            self.write(Outcome { name: "aborted", error_code: None, bytes_out: 0 });
        }
    }
}
