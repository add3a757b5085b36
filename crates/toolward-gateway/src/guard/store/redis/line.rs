//! One thread's connection to the store, opened on first use and replaced when it fails.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::{RedisError, ServerErrorKind, Value};

use super::Unreachable;
use super::address::StoreAddress;
use super::connect::{Connection, failed};
use super::scripts::{Arguments, Clock, GIVE_BACK_SCRIPT, NamedScript, TAKE_SCRIPT};
use crate::lock::LockUnpoisoned;

/// Backoff after the first failure, doubled for each further one.
const BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_millis(500);

pub(super) struct StoreConnection {
    address: Arc<StoreAddress>,
    connect_timeout: Duration,
    /// Locked while a connection is being made, so that requests wait for it.
    state: tokio::sync::Mutex<ConnectionState>,
    failures: AtomicU32,
}

enum ConnectionState {
    Down { not_before: Instant, why: Unreachable },
    Up(Arc<LiveConnection>),
}

/// An open connection that has not failed yet.
pub(super) struct LiveConnection {
    connection: Connection,
    clock: Mutex<Clock>,
}

impl StoreConnection {
    pub(super) fn new(address: Arc<StoreAddress>, connect_timeout: Duration) -> StoreConnection {
        let down =
            ConnectionState::Down { not_before: Instant::now(), why: Unreachable(String::new()) };
        let (state, failures) = (tokio::sync::Mutex::new(down), AtomicU32::new(0));
        StoreConnection { address, connect_timeout, state, failures }
    }

    /// The connection, opened if necessary. During the backoff after a failure, the reason of that
    /// failure.
    pub(super) async fn live(&self) -> Result<Arc<LiveConnection>, Unreachable> {
        let mut state = self.state.lock().await;
        match &*state {
            ConnectionState::Up(live) => return Ok(live.clone()),
            ConnectionState::Down { not_before, why } if Instant::now() < *not_before => {
                return Err(why.clone());
            }
            ConnectionState::Down { .. } => {}
        }
        let opening = LiveConnection::open(&self.address, self.connect_timeout);
        let opened = tokio::time::timeout(self.connect_timeout, opening).await;
        match opened
            .unwrap_or_else(|_| Err(Unreachable("it cannot be connected to in time".into())))
        {
            Ok(live) => {
                let live = Arc::new(live);
                *state = ConnectionState::Up(live.clone());
                Ok(live)
            }
            Err(why) => {
                *state = self.down(why.clone());
                Err(why)
            }
        }
    }

    /// Drops a failed connection: the next request opens another one.
    pub(super) async fn replace(&self, failed: &Arc<LiveConnection>, why: &Unreachable) {
        let mut state = self.state.lock().await;
        if matches!(&*state, ConnectionState::Up(live) if Arc::ptr_eq(live, failed)) {
            *state = self.down(why.clone());
        }
    }

    /// Resets the backoff after a reply.
    pub(super) fn answered(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    fn down(&self, why: Unreachable) -> ConnectionState {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed);
        let pause = MAX_BACKOFF.min(BACKOFF * (1 << failures.min(6)));
        ConnectionState::Down { not_before: Instant::now() + pause, why }
    }
}

/// Why a request failed.
pub(super) enum RequestError {
    /// The connection is no longer usable.
    Lost(Unreachable),
    /// The store rejected the request.
    Refused(Unreachable),
}

impl LiveConnection {
    /// Connects, loads the scripts, and reads the server's clock.
    async fn open(
        address: &StoreAddress,
        timeout: Duration,
    ) -> Result<LiveConnection, Unreachable> {
        let mut connection = Connection::open(address, timeout).await?;
        for script in [&TAKE_SCRIPT, &GIVE_BACK_SCRIPT] {
            connection.request(&script.load()).await.map_err(failed)?;
        }
        let sent = Instant::now();
        let time = connection.time().await.map_err(failed)?;
        Ok(LiveConnection { connection, clock: Mutex::new(Clock::of(&time, sent)) })
    }

    pub(super) fn clock(&self) -> Clock {
        *self.clock.locked()
    }

    pub(super) fn learn_time(&self, reply: &Value, sent: Instant) {
        self.clock.locked().learn(reply, sent);
    }

    /// Runs a script, in one round trip unless the server does not have it cached.
    pub(super) async fn run(
        &self,
        script: &NamedScript,
        arguments: &Arguments,
    ) -> Result<Value, RequestError> {
        let mut connection = self.connection.clone();
        let mut reply = connection.request(&script.run(false, arguments)).await;
        let no_script = ServerErrorKind::NoScript.into();
        if matches!(&reply, Err(error) if error.kind() == no_script) {
            reply = connection.request(&script.run(true, arguments)).await;
        }
        reply.map_err(request_error)
    }
}

fn request_error(error: RedisError) -> RequestError {
    use redis::ErrorKind::Server;
    match error.kind() {
        // The server is no longer, or not yet, a master: another one may be.
        Server(
            ServerErrorKind::ReadOnly
            | ServerErrorKind::MasterDown
            | ServerErrorKind::BusyLoading
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask,
        ) => RequestError::Lost(failed(error)),
        Server(_) | redis::ErrorKind::Extension => {
            RequestError::Refused(Unreachable(format!("it rejects the request: {error}")))
        }
        _ => RequestError::Lost(failed(error)),
    }
}
