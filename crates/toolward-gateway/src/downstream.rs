//! Client connections: listeners, HTTP, stdio and TLS.

pub mod accept;
pub mod body;
pub mod bridge;
pub mod connection;
mod connection_limit;
pub mod cors;
mod ended_sessions;
mod event_log;
mod frame;
pub mod http;
#[cfg(feature = "in-memory")]
pub mod in_memory;
pub(crate) mod oauth_metadata;
mod oversized;
mod peer;
pub mod response;
mod revocation;
mod scratch;
mod sessions;
pub mod stdio;
pub mod stdio_pipes;
mod streams;
mod timer_keepalive;
pub mod tls;

use bytes::Bytes;
use toolward_wire::{MAX_REQUEST_BYTES, Message, Sender};

use crate::responses::{self, Body};

/// The response to a client's first request if the gateway cannot start; `None` if the line is not a
/// request.
pub fn startup_error(line: &[u8], why: &str) -> Option<Body> {
    let message =
        Message::parse(Bytes::copy_from_slice(line), MAX_REQUEST_BYTES, Sender::Client).ok()?;
    let id = message.id()?;
    let text = format!("toolward cannot start:\n{why}");
    Some(responses::internal(id, "not_started", &text, false).body)
}
