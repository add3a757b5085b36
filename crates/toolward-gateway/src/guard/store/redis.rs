//! Counting in Redis or Valkey, for several gateways together: a single server, a Sentinel group or a Cluster.
//!
//! Taking is one script, so that it is atomic and costs one round trip. Each thread has one connection, which its
//! requests share. A connection that does not answer in time is replaced, with growing pauses. A call that is not
//! waited for any more takes nothing: the script knows the deadline, and units of a reply that comes too late are
//! given back.

mod address;
mod connect;
mod late_replies;
mod line;
mod scripts;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use self::address::StoreAddress;
use self::line::Line;
use super::counters::{Full, Pace};

const LINES: usize = 64;

thread_local! {
    /// The place of this thread's connection.
    static LINE: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % LINES)
    };
}

/// A store of limits.
pub struct Redis {
    lines: Vec<Arc<Line>>,
    timeout: Duration,
    /// Hosts, for the log.
    hosts: String,
    is_down: AtomicBool,
    /// Meanwhile this process counts for itself.
    falls_back: bool,
}

/// How long a store may take.
#[derive(Debug, Clone, Copy)]
pub struct StoreTimeouts {
    /// To answer a request.
    pub request: Duration,
    /// To accept a connection and log in.
    pub connect: Duration,
}

/// Why nothing was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::guard) struct Unreachable(String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What was taken: of each limit its counter, its interval and until when, in microseconds.
#[derive(Debug)]
pub(in crate::guard) struct Taken(Vec<(Arc<str>, u64, u64)>);

type Outcome = Result<Result<Taken, Full>, Unreachable>;

impl Redis {
    /// A store behind a URL, as [`StoreAddress::parse`] reads it. Connects when it is used.
    pub fn new(url: &str, timeouts: StoreTimeouts) -> Result<Redis, String> {
        let address = Arc::new(StoreAddress::parse(url)?);
        let line = |_| Arc::new(Line::new(address.clone(), timeouts.connect));
        let (lines, hosts) = ((0..LINES).map(line).collect(), address.shown.clone());
        let (is_down, falls_back, timeout) = (AtomicBool::new(false), false, timeouts.request);
        Ok(Redis { lines, timeout, hosts, is_down, falls_back })
    }

    /// The same; while it cannot be used, this process counts for itself, and logs that.
    pub fn falling_back(self, falls_back: bool) -> Redis {
        Redis { falls_back, ..self }
    }

    pub(in crate::guard) async fn take(&self, wanted: Vec<(Arc<str>, Pace)>) -> Outcome {
        let (done, answer) = oneshot::channel();
        if let Some(line) = self.line() {
            tokio::spawn(late_replies::take(line, self.timeout, wanted, done));
        }
        let outcome = match tokio::time::timeout(self.timeout, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(Unreachable("its connection has ended".into())),
            Err(_) => Err(Unreachable("it did not answer in time".into())),
        };
        self.log_change(&outcome);
        outcome
    }

    /// Gives units back in the background.
    pub(in crate::guard) fn give_back(&self, taken: Taken) {
        if let Some(line) = self.line()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(late_replies::give_back(line, taken));
        }
    }

    fn line(&self) -> Option<Arc<Line>> {
        self.lines.get(LINE.with(Cell::get)).cloned()
    }

    /// Logs when the store is lost and when it is back, once each.
    fn log_change(&self, outcome: &Outcome) {
        let is_down = outcome.is_err();
        if self.is_down.swap(is_down, Ordering::AcqRel) == is_down {
            return;
        }
        let at = &self.hosts;
        match outcome {
            Err(why) if self.falls_back => tracing::error!(
                target: "guard",
                "limits: the store at {at} cannot be used: {why}; this gateway counts for itself now"
            ),
            Err(why) => tracing::error!(
                target: "guard",
                "limits: the store at {at} cannot be used: {why}; limited calls are refused"
            ),
            Ok(_) if self.falls_back => tracing::info!(
                target: "guard",
                "limits: the store at {at} answers again; limits are counted there"
            ),
            Ok(_) => tracing::info!(target: "guard", "limits: the store at {at} answers again"),
        }
    }
}
