//! Orders to the task that owns a line-based connection, and the requests that wait on it.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;
use toolward_wire::Message;
use toolward_wire::exchange::{Exchange, ExchangeEnd};

use crate::budget::Reservation;
use crate::notifications::Queue;
use crate::upstream::{GiveUp, Unavailable};

/// An order to the task that owns a line-based connection.
pub(in crate::upstream) enum Order {
    Open { minted: u64, body: Bytes, waiting: PendingRequest },
    Cancel { minted: u64, why: GiveUp },
    Hello { answer: oneshot::Sender<Result<Message, Unavailable>> },
}

/// A request that waits for its response.
pub(in crate::upstream) struct PendingRequest {
    pub(in crate::upstream) exchange: Box<Exchange>,
    pub(in crate::upstream) notes: Arc<Queue>,
    pub(in crate::upstream) done: oneshot::Sender<ExchangeEnd>,
    /// The longest answer.
    pub(in crate::upstream) longest: usize,
    /// The memory of the answer; `None` for the gateway's own requests.
    pub(in crate::upstream) room: Option<Arc<Reservation>>,
}

impl PendingRequest {
    /// Whether the answer has begun to arrive and there is no room for the rest.
    pub(in crate::upstream) fn is_short(&self) -> bool {
        self.room.as_ref().is_some_and(|room| room.is_short())
    }
}
