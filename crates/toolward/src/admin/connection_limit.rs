//! Connection limit of the admin UI, with eviction.
//!
//! Any local process can connect. When the limit is reached, unauthenticated connections are evicted first, then
//! authenticated idle ones. Event streams are not evicted.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use toolward_gateway::lock::LockUnpoisoned;

/// The maximum number of connections. A browser uses a handful; event streams stay open.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// Minimum interval between log entries about the connection limit.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct ConnectionLimit(Mutex<State>);

#[derive(Default)]
struct State {
    /// In the order of their arrival.
    connections: Vec<Arc<OpenConnection>>,
    logged: Option<Instant>,
}

/// One connection.
#[derive(Default)]
pub(super) struct OpenConnection {
    priority: AtomicU8,
    evict: Notify,
}

/// The state of a connection. Lower values are evicted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Priority {
    Unauthenticated = 0,
    /// It is authenticated.
    Authenticated = 1,
    /// It is authenticated and follows events.
    Streaming = 2,
}

impl OpenConnection {
    pub(super) fn set_priority(&self, priority: Priority) {
        self.priority.store(priority as u8, Ordering::Relaxed);
    }

    fn priority(&self) -> u8 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Resolves when the connection is evicted.
    pub(super) async fn evicted(&self) {
        self.evict.notified().await;
    }
}

/// The result of a new connection.
pub(super) struct Admission {
    /// `None`: the limit is reached, and no connection can be evicted.
    pub(super) connection: Option<Arc<OpenConnection>>,
    /// The limit was reached, and this was not logged recently.
    pub(super) log: bool,
}

impl ConnectionLimit {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.locked()
    }

    pub(super) fn admit(&self, now: Instant) -> Admission {
        let mut state = self.state();
        let mut log = false;
        if state.connections.len() >= MAX_CONNECTIONS {
            log = state.logged.is_none_or(|logged| now.duration_since(logged) >= LOG_INTERVAL);
            if log {
                state.logged = Some(now);
            }
            // Among equal ones, the first is the oldest.
            let places = state.connections.iter().enumerate();
            let first = places.min_by_key(|(_, connection)| connection.priority());
            let streaming = Priority::Streaming as u8;
            let Some(at) =
                first.filter(|(_, connection)| connection.priority() < streaming).map(|(at, _)| at)
            else {
                return Admission { connection: None, log };
            };
            state.connections.remove(at).evict.notify_one();
        }
        let connection = Arc::new(OpenConnection::default());
        state.connections.push(connection.clone());
        Admission { connection: Some(connection), log }
    }

    pub(super) fn remove(&self, connection: &Arc<OpenConnection>) {
        self.state().connections.retain(|one| !Arc::ptr_eq(one, connection));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().connections.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(limit: &ConnectionLimit, connection: &Arc<OpenConnection>) -> bool {
        limit.state().connections.iter().any(|one| Arc::ptr_eq(one, connection))
    }

    #[test]
    fn the_oldest_unauthenticated_connection_is_evicted_and_streams_stay() {
        let (limit, now) = (ConnectionLimit::default(), Instant::now());
        let connections: Vec<_> =
            (0..MAX_CONNECTIONS).map(|_| limit.admit(now).connection.unwrap()).collect();
        connections[0].set_priority(Priority::Streaming);
        connections[1].set_priority(Priority::Authenticated);
        let admission = limit.admit(now);
        assert!(admission.log && admission.connection.is_some());
        assert!(!is_open(&limit, &connections[2]) && is_open(&limit, &connections[3]));
        // It is logged once a minute.
        assert!(!limit.admit(now + LOG_INTERVAL / 2).log && limit.admit(now + LOG_INTERVAL).log);
        assert_eq!(limit.state().connections.len(), MAX_CONNECTIONS);
        limit
            .state()
            .connections
            .iter()
            .skip(2)
            .for_each(|one| one.set_priority(Priority::Streaming));
        // Waiting connections are evicted before event streams, and event streams are never evicted.
        assert!(limit.admit(now).connection.is_some_and(|new| {
            new.set_priority(Priority::Streaming);
            true
        }));
        assert!(!is_open(&limit, &connections[1]) && is_open(&limit, &connections[0]));
        assert!(limit.admit(now).connection.is_none());
        limit.remove(&connections[0]);
        assert!(limit.admit(now).connection.is_some() && !limit.is_empty());
    }
}
