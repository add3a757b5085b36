//! A client's request, as a listener admitted it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use toolward_wire::{Id, Message, MethodRow};

use crate::active::Active;
use crate::budget::Reservation;
use crate::guard::approvals::{Nonce, Redeemed, Subject};
use crate::held::Parking;
use crate::in_flight::Cancel;
use crate::notifications::Notes;
use crate::view::cache::Viewer;

/// A request that was authenticated and validated.
pub struct Request {
    pub envelope: Envelope,
    pub message: Message,
    /// The memory of the message, reserved until the request is answered.
    pub room: Reservation,
}

/// Everything about a request except its message: its sender, and the configuration under which it is
/// decided.
#[derive(Clone)]
pub struct Envelope {
    /// Taken at admission, and used until the request ends.
    pub active: Arc<Active>,
    pub client: Arc<Viewer>,
    pub id: Id,
    pub row: &'static MethodRow,
    pub cancel: Arc<Cancel>,
    /// `Mcp-Param-*` headers in lower case; `None` if the transport has no headers.
    pub headers: Option<Vec<(String, String)>>,
    /// The way to the client while the call is in flight, if the client has no session.
    pub parking: Option<Parking>,
    /// The attempt to get the approval of a person, if a rule asks.
    pub(crate) approval: Option<Arc<ApprovalAttempt>>,
}

/// An attempt to make a call that a person has to approve.
pub(crate) struct ApprovalAttempt {
    /// For progress while the call waits.
    pub(crate) notes: Notes,
    /// The number of times that the client was asked to repeat the call.
    pub(crate) round: u8,
    /// The call continues one that was approved.
    pub(crate) continues: Option<Nonce>,
    /// An earlier attempt ended because the ticket was decided.
    pub(crate) is_repeated: bool,
    /// The ticket is decided, and the call is to be attempted again.
    pub(crate) released: AtomicBool,
    /// The call was forwarded with this grant.
    pub(crate) approved: OnceLock<(Subject, Redeemed)>,
}

impl Envelope {
    /// The agent behind the request.
    pub(crate) fn agent(&self) -> Option<&Arc<str>> {
        self.client.caller.agent.as_ref()
    }
}
