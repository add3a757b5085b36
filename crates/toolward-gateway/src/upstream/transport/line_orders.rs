//! Orders to the task that owns a line-based connection, and its pending requests.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;
use toolward_wire::exchange::{Exchange, ExchangeEnd};
use toolward_wire::{Id, Message};

use crate::budget::Reservation;
use crate::notifications::Queue;
use crate::upstream::{GiveUp, Unavailable};

/// An order to the task that owns a line-based connection.
pub(in crate::upstream) enum Order {
    Open {
        minted: u64,
        body: Bytes,
        waiting: PendingRequest,
    },
    Cancel {
        minted: u64,
        why: GiveUp,
    },
    /// The client's response to a request that the server sent with this id.
    Respond {
        minted: u64,
        id: Id,
        response: Box<Message>,
    },
    Hello {
        answer: oneshot::Sender<Result<Message, Unavailable>>,
    },
}

/// A request that waits for its response.
pub(in crate::upstream) struct PendingRequest {
    pub(in crate::upstream) exchange: Box<Exchange>,
    pub(in crate::upstream) notes: Arc<Queue>,
    pub(in crate::upstream) done: oneshot::Sender<ExchangeEnd>,
    /// The maximum size of the response.
    pub(in crate::upstream) longest: usize,
    /// The memory of the response; `None` for requests of the gateway itself.
    pub(in crate::upstream) room: Option<Arc<Reservation>>,
    pub(in crate::upstream) began: Instant,
}

impl PendingRequest {
    /// Whether the response has begun to arrive and there is no memory for the rest.
    pub(in crate::upstream) fn is_short(&self) -> bool {
        self.room.as_ref().is_some_and(|room| room.is_short())
    }
}
