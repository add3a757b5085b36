//! What a client is told beside the answer: to the end of its connection, or to the stream of one
//! request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::present::Body;

/// Notifications of one request that wait for its stream; more are dropped.
const WAITING: usize = 256;

/// Where notifications go.
#[derive(Debug, Clone)]
pub enum Notes {
    /// The connection itself. Who has something to say waits until there is room.
    Connection(mpsc::Sender<Body>),
    /// The stream of one request, which most requests never need.
    Stream(Arc<Queue>),
}

impl Notes {
    pub async fn send(&self, note: Bytes) {
        match self {
            Notes::Connection(out) => drop(out.send(note.into()).await),
            Notes::Stream(queue) => queue.push(note),
        }
    }
}

/// Notifications in their order. Cheap to make, because nearly every request has one for nothing.
#[derive(Debug, Default)]
pub struct Queue {
    notes: Mutex<VecDeque<Bytes>>,
    told: Notify,
}

impl Queue {
    fn notes(&self) -> MutexGuard<'_, VecDeque<Bytes>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, note: Bytes) {
        let mut notes = self.notes();
        if notes.len() < WAITING {
            notes.push_back(note);
        }
        drop(notes);
        self.told.notify_one();
    }

    pub fn pop(&self) -> Option<Bytes> {
        self.notes().pop_front()
    }

    /// The next notification; one reader waits for it.
    pub async fn next(&self) -> Bytes {
        loop {
            if let Some(note) = self.pop() {
                return note;
            }
            self.told.notified().await;
        }
    }
}
