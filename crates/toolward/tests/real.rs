//! Real clients (PyPI `mcp`, the TypeScript client, the Inspector, rmcp) and real servers (npm, PyPI) meet
//! through the gateway. `./test` installs them and says where; without that, these tests say that they
//! were skipped. Every client with every server takes longer and runs where `TOOLWARD_FULL` is set.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "program/bytes.rs"]
mod bytes;
#[path = "real/discovery.rs"]
mod discovery;
#[path = "real/guards.rs"]
mod guards;
#[allow(dead_code)]
#[path = "serve/harness.rs"]
mod harness;
#[path = "real/peers.rs"]
mod peers;
#[path = "real/policy.rs"]
mod policy;
#[path = "real/raw.rs"]
mod raw;
#[allow(dead_code)]
#[path = "program/record.rs"]
mod record;
#[path = "real/same.rs"]
mod same;
#[allow(dead_code)]
#[path = "serve/wire.rs"]
mod wire;
