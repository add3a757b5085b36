//! One thread's connection to the store, made when it is needed and replaced when it fails.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::{RedisError, ServerErrorKind, Value};

use super::Unreachable;
use super::address::StoreAddress;
use super::connect::{Connection, failed};
use super::scripts::{Arguments, Clock, GIVE_BACK_SCRIPT, NamedScript, TAKE_SCRIPT};
use crate::lock::LockUnpoisoned;

/// The first pause after a failure; each further one is twice as long.
const BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_millis(500);

pub(super) struct Line {
    address: Arc<StoreAddress>,
    connect_timeout: Duration,
    /// Held while a connection is made, so that requests wait for it.
    state: tokio::sync::Mutex<State>,
    failures: AtomicU32,
}

enum State {
    Down { not_before: Instant, why: Unreachable },
    Up(Arc<Live>),
}

/// A connection that works, as far as is known.
pub(super) struct Live {
    connection: Connection,
    clock: Mutex<Clock>,
}

impl Line {
    pub(super) fn new(address: Arc<StoreAddress>, connect_timeout: Duration) -> Line {
        let down = State::Down { not_before: Instant::now(), why: Unreachable(String::new()) };
        let (state, failures) = (tokio::sync::Mutex::new(down), AtomicU32::new(0));
        Line { address, connect_timeout, state, failures }
    }

    /// The connection. Soon after a failure, the reason for that instead.
    pub(super) async fn live(&self) -> Result<Arc<Live>, Unreachable> {
        let mut state = self.state.lock().await;
        match &*state {
            State::Up(live) => return Ok(live.clone()),
            State::Down { not_before, why } if Instant::now() < *not_before => {
                return Err(why.clone());
            }
            State::Down { .. } => {}
        }
        let opening = Live::open(&self.address, self.connect_timeout);
        let opened = tokio::time::timeout(self.connect_timeout, opening).await;
        match opened
            .unwrap_or_else(|_| Err(Unreachable("it cannot be connected to in time".into())))
        {
            Ok(live) => {
                let live = Arc::new(live);
                *state = State::Up(live.clone());
                Ok(live)
            }
            Err(why) => {
                *state = self.down(why.clone());
                Err(why)
            }
        }
    }

    /// The connection failed: the next request makes another one.
    pub(super) async fn replace(&self, failed: &Arc<Live>, why: &Unreachable) {
        let mut state = self.state.lock().await;
        if matches!(&*state, State::Up(live) if Arc::ptr_eq(live, failed)) {
            *state = self.down(why.clone());
        }
    }

    /// The store has answered: after the next failure, pauses are short again.
    pub(super) fn answered(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    fn down(&self, why: Unreachable) -> State {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed);
        let pause = MAX_BACKOFF.min(BACKOFF * (1 << failures.min(6)));
        State::Down { not_before: Instant::now() + pause, why }
    }
}

/// Why a request has no reply.
pub(super) enum RequestError {
    /// The connection is of no use any more.
    Lost(Unreachable),
    /// The store refuses the request.
    Refused(Unreachable),
}

impl Live {
    /// Connects, and makes the scripts and the server's clock known.
    async fn open(address: &StoreAddress, timeout: Duration) -> Result<Live, Unreachable> {
        let mut connection = Connection::open(address, timeout).await?;
        for script in [&TAKE_SCRIPT, &GIVE_BACK_SCRIPT] {
            connection.request(&script.load()).await.map_err(failed)?;
        }
        let asked = Instant::now();
        let time = connection.time().await.map_err(failed)?;
        Ok(Live { connection, clock: Mutex::new(Clock::of(&time, asked)) })
    }

    pub(super) fn clock(&self) -> Clock {
        *self.clock.locked()
    }

    pub(super) fn learn_time(&self, reply: &Value, asked: Instant) {
        self.clock.locked().learn(reply, asked);
    }

    /// Runs a script: one round trip, unless the server does not know it.
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
        // It was a master, or is not one yet: another server may be.
        Server(
            ServerErrorKind::ReadOnly
            | ServerErrorKind::MasterDown
            | ServerErrorKind::BusyLoading
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask,
        ) => RequestError::Lost(failed(error)),
        Server(_) | redis::ErrorKind::Extension => {
            RequestError::Refused(Unreachable(format!("it refuses: {error}")))
        }
        _ => RequestError::Lost(failed(error)),
    }
}
