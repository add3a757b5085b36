//! The in-flight requests of a client's connection or session, and their cancellation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::Notify;
use toolward_wire::exchange::{cancel_reason, cancelled_request};
use toolward_wire::{Id, Message, Raw};

use crate::lock::LockUnpoisoned;

/// Signals a request that its client has canceled it.
#[derive(Debug, Default)]
pub struct Cancel {
    cancelled: AtomicBool,
    reason: OnceLock<Bytes>,
    changed: Notify,
}

impl Cancel {
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// The client's reason, as a JSON string.
    pub fn reason(&self) -> Option<Bytes> {
        self.reason.get().cloned()
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Resolves when the client cancels; only one task may wait for it.
    pub async fn cancelled(&self) {
        while !self.is_cancelled() {
            self.changed.notified().await;
        }
    }
}

/// In-flight requests, by the client's id.
#[derive(Debug, Default, Clone)]
pub struct InFlightRequests(Arc<Mutex<HashMap<Vec<u8>, Arc<Cancel>>>>);

impl InFlightRequests {
    /// Registers a request; `None` if its id is still in use.
    pub fn begin(&self, id: &Id) -> Option<InFlightRequest> {
        let mut running = self.requests();
        if running.contains_key(id.raw()) {
            return None;
        }
        let cancel = Arc::new(Cancel::default());
        running.insert(id.raw().to_vec(), cancel.clone());
        Some(InFlightRequest { id: id.raw().to_vec(), cancel, all: self.clone() })
    }

    /// Handles a notification of the client: a cancellation is passed to the request it names.
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

    /// The ids of all in-flight requests.
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

/// A registered request. Dropping it frees its id.
#[derive(Debug)]
pub struct InFlightRequest {
    id: Vec<u8>,
    pub cancel: Arc<Cancel>,
    all: InFlightRequests,
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.all.requests().remove(&self.id);
    }
}
