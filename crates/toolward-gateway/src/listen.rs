//! Where clients come in.

mod admit;
pub mod connection;
mod connections;
mod ended;
mod events;
mod frame;
pub mod http;
pub mod metadata;
pub mod origin;
mod oversized;
mod peer;
mod pulse;
mod revoked;
pub mod serve;
mod sessions;
pub mod standard;
pub mod stdio;
pub mod tls;

use bytes::Bytes;
use toolward_wire::{MAX_REQUEST_BYTES, Message, Sender};

use crate::present::{self, Body};

/// The answer to a client's first request where the gateway cannot start; `None` for a line that is
/// not a request.
pub fn startup_error(line: &[u8], why: &str) -> Option<Body> {
    let message =
        Message::parse(Bytes::copy_from_slice(line), MAX_REQUEST_BYTES, Sender::Client).ok()?;
    let id = message.id()?;
    let text = format!("toolward cannot start:\n{why}");
    Some(present::internal(id, "not_started", &text, false).body)
}
