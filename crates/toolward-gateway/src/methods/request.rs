//! A client's request, as a listener admitted it.

use std::sync::Arc;

use toolward_wire::{Id, Message, MethodRow};

use crate::active::Active;
use crate::budget::Reservation;
use crate::held::Parking;
use crate::in_flight::Cancel;
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
}

impl Envelope {
    /// The agent behind the request.
    pub(crate) fn agent(&self) -> Option<&Arc<str>> {
        self.client.caller.agent.as_ref()
    }
}
