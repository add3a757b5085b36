//! Rate limits in Redis or Valkey, shared by several gateways: a single server, a Sentinel group or a
//! Cluster.
//!
//! Units are consumed by one script, which is atomic and takes one round trip. Each thread has one
//! connection, which its requests share. A connection that times out is replaced, with exponential
//! backoff. A call that is no longer waited for consumes nothing: the script gets the deadline, and units
//! of a late reply are returned.

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

use redis::{ConnectionInfo, ProtocolVersion};
use tokio::sync::oneshot;

use self::address::{StoreAddress, Topology};
use self::line::StoreConnection;
use super::counters::{Full, Pace};

const MAX_CONNECTIONS: usize = 64;

thread_local! {
    /// The index of this thread's connection.
    static CONNECTION_INDEX: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % MAX_CONNECTIONS)
    };
}

/// A store for limit counters.
pub struct Redis {
    connections: Vec<Arc<StoreConnection>>,
    timeout: Duration,
    /// Hosts, for the log.
    hosts: String,
    is_down: AtomicBool,
    /// While the store is down, this process counts in memory.
    falls_back: bool,
}

/// How to connect to the single server of a URL, with the protocol version that has push messages.
pub(in crate::guard) fn single_server(url: &str) -> Result<ConnectionInfo, String> {
    let address = StoreAddress::parse(url)?;
    let Topology::Single(host) = &address.topology else {
        return Err("it is not a single server".into());
    };
    if address.is_tls {
        // An error means that a provider is already installed.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    }
    let info = address.server(host)?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Ok(info.set_redis_settings(settings))
}

/// Timeouts of a store.
#[derive(Debug, Clone, Copy)]
pub struct StoreTimeouts {
    /// Of a request.
    pub request: Duration,
    /// Of connecting and logging in.
    pub connect: Duration,
}

/// Why the store could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::guard) struct Unreachable(String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Consumed units: for each limit its key, its interval and its new fill time, in microseconds.
#[derive(Debug)]
pub(in crate::guard) struct ConsumedUnits(Vec<(Arc<str>, u64, u64)>);

type Outcome = Result<Result<ConsumedUnits, Full>, Unreachable>;

impl Redis {
    /// A store at a URL; see [`StoreAddress::parse`]. Connects on first use.
    pub fn new(url: &str, timeouts: StoreTimeouts) -> Result<Redis, String> {
        let address = Arc::new(StoreAddress::parse(url)?);
        let line = |_| Arc::new(StoreConnection::new(address.clone(), timeouts.connect));
        let (connections, hosts) =
            ((0..MAX_CONNECTIONS).map(line).collect(), address.shown.clone());
        let (is_down, falls_back, timeout) = (AtomicBool::new(false), false, timeouts.request);
        Ok(Redis { connections, timeout, hosts, is_down, falls_back })
    }

    /// Sets whether this process counts in memory while the store is down, which is logged.
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

    /// Returns units in the background.
    pub(in crate::guard) fn give_back(&self, taken: ConsumedUnits) {
        if let Some(line) = self.line()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(late_replies::give_back(line, taken));
        }
    }

    fn line(&self) -> Option<Arc<StoreConnection>> {
        self.connections.get(CONNECTION_INDEX.with(Cell::get)).cloned()
    }

    /// Logs once when the store becomes unavailable, and once when it recovers.
    fn log_change(&self, outcome: &Outcome) {
        let is_down = outcome.is_err();
        if self.is_down.swap(is_down, Ordering::AcqRel) == is_down {
            return;
        }
        let at = &self.hosts;
        match outcome {
            Err(why) if self.falls_back => tracing::error!(
                target: "guard",
                "limits: the store at {at} cannot be used: {why}; this gateway counts in memory until it recovers"
            ),
            Err(why) => tracing::error!(
                target: "guard",
                "limits: the store at {at} cannot be used: {why}; limited calls are refused"
            ),
            Ok(_) if self.falls_back => tracing::info!(
                target: "guard",
                "limits: the store at {at} responds again; limits are counted there"
            ),
            Ok(_) => tracing::info!(target: "guard", "limits: the store at {at} responds again"),
        }
    }
}
