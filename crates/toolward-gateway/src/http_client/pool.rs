//! Idle connections to one origin.
//!
//! A connection stays with the thread that opened it, so that a response wakes the task that waits
//! for it without a hop between threads.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::connection::Connection;
use crate::lock::LockUnpoisoned;

/// The maximum number of idle connections of one thread to one origin. Use keeps the pool smaller: a
/// connection is only opened if none is idle, and the oldest expire. With a lower maximum, a burst that
/// exceeds it would open a connection for every call.
const MAX_IDLE: usize = 4096;
const SLOTS: usize = 64;

thread_local! {
    /// The slot of this thread.
    static SLOT: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS)
    };
}

pub(super) struct Pool {
    slots: Arc<Vec<Mutex<Idle>>>,
}

/// The idle connections of one thread, the newest last.
#[derive(Default)]
struct Idle {
    connections: Vec<Connection>,
    /// A task closes expired connections.
    has_timer: bool,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool { slots: Arc::new((0..SLOTS).map(|_| Mutex::default()).collect()) }
    }
}

impl Pool {
    /// An idle connection that the other side has not closed.
    pub(super) fn take(&self) -> Option<Connection> {
        while let Some(mut idle) = self.idle(|idle| idle.connections.pop()) {
            if !idle.time_left().is_zero() && idle.is_quiet() {
                return Some(idle);
            }
        }
        None
    }

    /// Keeps a connection whose response has been read to its end, if it can be used again.
    pub(super) fn put(&self, mut connection: Connection) {
        let Some(keep_alive) = connection.idle() else { return };
        let needs_timer = self.idle(|idle| {
            if idle.connections.len() < MAX_IDLE {
                idle.connections.push(connection);
            }
            !std::mem::replace(&mut idle.has_timer, true)
        });
        if needs_timer {
            tokio::spawn(expire(Arc::downgrade(&self.slots), SLOT.with(Cell::get), keep_alive));
        }
    }

    fn idle<T>(&self, with: impl FnOnce(&mut Idle) -> T) -> T {
        let at = SLOT.with(Cell::get);
        with(&mut self.slots[at].locked())
    }
}

/// Closes the connections of one thread when they expire. Ends when there are no more.
async fn expire(slots: Weak<Vec<Mutex<Idle>>>, at: usize, mut pause: Duration) {
    loop {
        tokio::time::sleep(pause).await;
        let Some(slots) = slots.upgrade() else { return };
        let Some(idle) = slots.get(at) else { return };
        let mut idle = idle.locked();
        idle.connections.retain(|connection| !connection.time_left().is_zero());
        let Some(next) = idle.connections.iter().map(Connection::time_left).min() else {
            *idle = Idle::default();
            return;
        };
        pause = next;
    }
}
