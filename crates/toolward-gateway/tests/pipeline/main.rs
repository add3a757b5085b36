//! The request path inside one process: in-memory servers and clients, real framing, negotiation, policy, guards and
//! audit log, and paused time.
//!
//! Time moves only when every task waits for it, so a test that waits an hour takes no time, and nothing depends on
//! how busy the machine is.
#![allow(clippy::unwrap_used, clippy::panic)]

mod approvals;
mod bad_input;
mod cancel;
mod denied;
mod failing;
mod first_list;
mod guards;
mod holders;
mod kit;
mod listing;
mod logging;
mod memory;
mod modern_tasks;
mod pins;
mod prompts;
mod questions;
mod record;
mod reload;
mod resources;
mod revoked;
mod roots;
mod shadow;
mod stages;
mod starting;
mod subscriptions;
mod tasks;
mod timeouts;
mod visits;
