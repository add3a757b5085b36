//! Notifications to a client besides the response: to its connection, or to the stream of one request.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use toolward_wire::exchange::Event;
use toolward_wire::{Id, Message};

use crate::budget::{Account, Reservation};
use crate::lock::LockUnpoisoned;
use crate::responses::Outbound;

/// Maximum number of queued notifications of one request; further ones are dropped.
const MAX_NOTES: usize = 256;
/// Maximum bytes of queued notifications; a single one may be larger if the queue is empty.
const MAX_QUEUED_BYTES: usize = 1 << 20;
/// Memory overhead of a queued notification.
const OVERHEAD: usize = 128;

/// The destination of notifications.
#[derive(Debug, Clone)]
pub enum Notes {
    /// The connection itself, and its client's account. The sender waits for memory.
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
            Notes::Stream(queue) => drop(queue.push(note)),
        }
    }

    /// Whether no one waits for the response any more. A lost connection without sessions ends the call itself.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            Notes::Connection(..) => false,
            Notes::Stream(queue) => queue.is_abandoned(),
        }
    }

    /// The server closed the stream of the call; it is polled for the response after this delay.
    pub(crate) fn close_stream(&self, retry: Duration) {
        match self {
            Notes::Connection(..) => {}
            Notes::Stream(queue) => {
                queue.waiting().closed = Some(retry);
                queue.changed.notify_one();
            }
        }
    }

    /// Sends a request to the client. False if it cannot be delivered.
    pub(crate) async fn ask(&self, request: Bytes) -> bool {
        match self {
            Notes::Connection(out, _) => out.send(request.into()).await.is_ok(),
            Notes::Stream(queue) => queue.has_reader && queue.push(request),
        }
    }
}

/// A queue of notifications. Cheap to create, because nearly every request has one and few use it.
///
/// The queue is bounded in number and in bytes, and the bytes count against the agent's budget. A client
/// that does not read loses notifications, never responses.
#[derive(Debug)]
pub struct Queue {
    /// `None`: all notifications are dropped.
    account: Option<Arc<Account>>,
    waiting: Mutex<Waiting>,
    changed: Notify,
    /// The client reads the stream.
    has_reader: bool,
    /// The connection was lost before there was a stream.
    lost: AtomicBool,
    /// Whether the client still reads the stream, once there is one.
    is_read: OnceLock<StreamCheck>,
}

/// Checks whether a stream is read.
struct StreamCheck(Box<dyn Fn() -> bool + Send + Sync>);

impl std::fmt::Debug for StreamCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StreamCheck")
    }
}

#[derive(Debug, Default)]
struct Waiting {
    notes: VecDeque<Note>,
    requests: VecDeque<(Id, Message)>,
    bytes: usize,
    /// The server closed the stream after these notifications.
    closed: Option<Duration>,
}

/// Messages on a stream besides the response.
#[derive(Debug)]
pub(crate) enum StreamItem {
    Note(Note),
    /// The stream is closed, and can be resumed after this delay.
    Closed(Duration),
}

/// An item of a queue between a connection to a server and a call.
#[derive(Debug)]
pub(crate) enum Queued {
    Note(Note),
    /// A request of the server to the client, with the server's id.
    Request(Id, Message),
}

impl From<Queued> for Event {
    fn from(queued: Queued) -> Event {
        match queued {
            Queued::Note(note) => Event::Notify(note.bytes),
            Queued::Request(id, message) => Event::ServerRequest(id, message),
        }
    }
}

/// A notification, with its reserved memory.
#[derive(Debug)]
pub struct Note {
    pub bytes: Bytes,
    pub room: Reservation,
}

impl Queue {
    pub fn new(account: Option<Arc<Account>>) -> Queue {
        let (waiting, changed, lost, is_read) = Default::default();
        Queue { account, waiting, changed, has_reader: true, lost, is_read }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.locked()
    }

    /// The same for a client that does not read streams: notifications are dropped, and it cannot be asked.
    pub fn without_stream(self) -> Queue {
        Queue { has_reader: false, ..self }
    }

    /// The connection was lost.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// The client reads a stream from here on, as long as this is true.
    pub(crate) fn read_while(&self, is_read: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.is_read.set(StreamCheck(Box::new(is_read)));
    }

    /// Whether no one waits for the response. A call that waits for a person ends then.
    fn is_abandoned(&self) -> bool {
        let unread = self.is_read.get().is_some_and(|StreamCheck(is_read)| !is_read());
        self.lost.load(Ordering::Acquire) || unread
    }

    /// Adds a notification. False if it is dropped.
    pub fn push(&self, bytes: Bytes) -> bool {
        let Some(account) = &self.account else { return false };
        let mut waiting = self.waiting();
        let full = waiting.bytes.saturating_add(bytes.len()) > MAX_QUEUED_BYTES;
        if waiting.notes.len() >= MAX_NOTES || (full && !waiting.notes.is_empty()) {
            return false;
        }
        let Some(room) = account.try_reserve(bytes.len() + OVERHEAD) else { return false };
        waiting.bytes += bytes.len();
        waiting.notes.push_back(Note { bytes, room });
        drop(waiting);
        self.changed.notify_one();
        true
    }

    /// Adds a request of the server. Exchanges bound their number.
    pub(crate) fn push_request(&self, id: Id, message: Message) {
        self.waiting().requests.push_back((id, message));
        self.changed.notify_one();
    }

    /// The next notification or request, in this order: a request is sent after what led to it.
    pub(crate) async fn next_queued(&self) -> Queued {
        loop {
            if let Some(note) = self.pop() {
                return Queued::Note(note);
            }
            if let Some((id, message)) = self.waiting().requests.pop_front() {
                return Queued::Request(id, message);
            }
            self.changed.notified().await;
        }
    }

    pub fn pop(&self) -> Option<Note> {
        let mut waiting = self.waiting();
        let note = waiting.notes.pop_front()?;
        waiting.bytes -= note.bytes.len();
        Some(note)
    }

    /// The next notification, or the end of the stream; only one reader may wait for it.
    pub(crate) async fn next_item(&self) -> StreamItem {
        loop {
            if let Some(note) = self.pop() {
                return StreamItem::Note(note);
            }
            if let Some(retry) = self.waiting().closed.take() {
                return StreamItem::Closed(retry);
            }
            self.changed.notified().await;
        }
    }

    /// The next notification; only one reader may wait for it.
    pub async fn next(&self) -> Note {
        loop {
            if let Some(note) = self.pop() {
                return note;
            }
            self.changed.notified().await;
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
        // A notification above the bound passes if nothing is queued before it.
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
