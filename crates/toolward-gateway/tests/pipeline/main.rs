//! The request path inside one process: in-memory servers and clients, real framing, negotiation, policy, guards and
//! audit log, and paused time.
//!
//! Time moves only when every task waits for it, so a test that waits an hour takes no time, and nothing depends on
//! how busy the machine is.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cancel;
mod denied;
mod failing;
mod guards;
mod kit;
mod listing;
mod memory;
mod record;
mod reload;
mod stages;
mod timeouts;
