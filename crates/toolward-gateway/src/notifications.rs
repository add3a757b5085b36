//! Notifications to a client beside the response: to its connection, or to the stream of one request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::budget::{Account, Reservation};
use crate::lock::LockUnpoisoned;
use crate::responses::Outbound;

/// Notifications of one request that wait for its stream; more are dropped.
const MAX_NOTES: usize = 256;
/// Their bytes; one notification may be longer if nothing else waits.
const MAX_QUEUED_BYTES: usize = 1 << 20;
/// What a queued notification costs beside its bytes.
const OVERHEAD: usize = 128;

/// Where notifications go.
#[derive(Debug, Clone)]
pub enum Notes {
    /// The connection itself, and its client's account. The sender waits until there is room.
    Connection(mpsc::Sender<Outbound>, Arc<Account>),
    /// The stream of one request, which most requests never need.
    Stream(Arc<Queue>),
}

impl Notes {
    pub async fn send(&self, note: Bytes) {
        match self {
            Notes::Connection(out, account) => {
                let room = account.reserve_nothing();
                room.grow(note.len()).await;
                let room = Some(Arc::new(room));
                drop(out.send(Outbound { body: note.into(), room }).await);
            }
            Notes::Stream(queue) => queue.push(note),
        }
    }
}

/// Notifications in their order. Cheap to make, because nearly every request has one for nothing.
///
/// The queue is bounded in number and in bytes, and the bytes count against the agent's budget. A client
/// that does not read loses notifications, never answers.
#[derive(Debug, Default)]
pub struct Queue {
    /// `None`: nobody is told anything.
    account: Option<Arc<Account>>,
    waiting: Mutex<Waiting>,
    told: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    notes: VecDeque<Note>,
    bytes: usize,
}

/// A notification, and the memory that it takes.
#[derive(Debug)]
pub struct Note {
    pub bytes: Bytes,
    pub room: Reservation,
}

impl Queue {
    pub fn new(account: Option<Arc<Account>>) -> Queue {
        Queue { account, ..Queue::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.locked()
    }

    pub fn push(&self, bytes: Bytes) {
        let Some(account) = &self.account else { return };
        let mut waiting = self.waiting();
        let full = waiting.bytes.saturating_add(bytes.len()) > MAX_QUEUED_BYTES;
        if waiting.notes.len() >= MAX_NOTES || (full && !waiting.notes.is_empty()) {
            return;
        }
        let Some(room) = account.try_reserve(bytes.len() + OVERHEAD) else { return };
        waiting.bytes += bytes.len();
        waiting.notes.push_back(Note { bytes, room });
        drop(waiting);
        self.told.notify_one();
    }

    pub fn pop(&self) -> Option<Note> {
        let mut waiting = self.waiting();
        let note = waiting.notes.pop_front()?;
        waiting.bytes -= note.bytes.len();
        Some(note)
    }

    /// The next notification; one reader waits for it.
    pub async fn next(&self) -> Note {
        loop {
            if let Some(note) = self.pop() {
                return note;
            }
            self.told.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    #[test]
    fn a_queue_is_bounded_in_bytes() {
        let budget = Budget::new(64 << 20);
        let queue = Queue::new(Some(budget.account(None)));
        for _ in 0..100 {
            queue.push(vec![0; 100 << 10].into());
        }
        assert!(budget.held() <= MAX_QUEUED_BYTES + 100 * OVERHEAD, "{}", budget.held());
        while queue.pop().is_some() {}
        assert_eq!(budget.held(), 0);
        // One that is longer than the bound passes when nothing waits before it.
        queue.push(vec![0; 8 << 20].into());
        queue.push(vec![0; 8 << 20].into());
        assert_eq!(queue.pop().map(|note| note.bytes.len()), Some(8 << 20));
        assert!(queue.pop().is_none());
    }

    #[test]
    fn an_agent_without_room_loses_notifications() {
        let budget = Budget::new(4096);
        let queue = Queue::new(Some(budget.account(None)));
        queue.push(vec![0; 4096].into());
        assert!(queue.pop().is_none());
    }
}
