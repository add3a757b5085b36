//! What belongs to one connection or session of a client: the requests under way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::Notify;
use toolward_wire::exchange::{cancel_reason, cancelled_request};
use toolward_wire::{Id, Message, Raw};

use crate::lock::LockUnpoisoned;

/// Tells a request that its client gave up.
#[derive(Debug, Default)]
pub struct Cancel {
    cancelled: AtomicBool,
    reason: OnceLock<Bytes>,
    told: Notify,
}

impl Cancel {
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.told.notify_one();
    }

    /// What the client says why, as a JSON string.
    pub fn reason(&self) -> Option<Bytes> {
        self.reason.get().cloned()
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Resolves when the client gives up; one request waits for it.
    pub async fn cancelled(&self) {
        while !self.is_cancelled() {
            self.told.notified().await;
        }
    }
}

/// Requests under way, by the id that the client gave them.
#[derive(Debug, Default, Clone)]
pub struct Running(Arc<Mutex<HashMap<Vec<u8>, Arc<Cancel>>>>);

impl Running {
    /// A request has arrived; `None` where its id is still in use.
    pub fn begin(&self, id: &Id) -> Option<Underway> {
        let mut running = self.requests();
        if running.contains_key(id.raw()) {
            return None;
        }
        let cancel = Arc::new(Cancel::default());
        running.insert(id.raw().to_vec(), cancel.clone());
        Some(Underway { id: id.raw().to_vec(), cancel, all: self.clone() })
    }

    /// A notification of the client: one that cancels reaches the request it names.
    pub fn notified(&self, message: &Message) {
        if message.method().as_deref() != Some("notifications/cancelled") {
            return;
        }
        if let Some(id) = cancelled_request(message)
            && let Some(cancel) = self.requests().get(id.raw())
        {
            if let Some(reason) = cancel_reason(message) {
                let _ = cancel.reason.set(Bytes::copy_from_slice(reason));
            }
            cancel.cancel();
        }
    }

    /// The ids of all requests under way.
    pub fn ids(&self) -> Vec<Id> {
        let id = |raw: &Vec<u8>| Id::of(Raw::scan(raw, raw.len()).ok()?);
        self.requests().keys().filter_map(id).collect()
    }

    pub fn count(&self) -> usize {
        self.requests().len()
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Arc<Cancel>>> {
        self.0.locked()
    }
}

/// A request from its arrival to its end, so that it can be cancelled.
#[derive(Debug)]
pub struct Underway {
    id: Vec<u8>,
    pub cancel: Arc<Cancel>,
    all: Running,
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.all.requests().remove(&self.id);
    }
}
