//! Real clients (PyPI `mcp`, the TypeScript client, the Inspector, rmcp) and real servers (npm, PyPI),
//! connected through the gateway. `./test` installs them and sets their location; without it, these
//! tests report that they were skipped. Every client with every server takes longer and runs if
//! `TOOLWARD_FULL` is set.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "real/approvals.rs"]
mod approvals;
#[allow(dead_code)]
#[path = "program/audit_log.rs"]
mod audit_log;
#[path = "program/bytes.rs"]
mod bytes;
#[path = "real/discovery.rs"]
mod discovery;
#[path = "real/guards.rs"]
mod guards;
#[allow(dead_code)]
#[path = "serve/harness.rs"]
mod harness;
#[path = "real/init.rs"]
mod init;
#[path = "program/line_client.rs"]
mod line_client;
#[path = "real/others.rs"]
mod others;
#[path = "real/peers.rs"]
mod peers;
#[path = "real/policy.rs"]
mod policy;
#[path = "real/questions.rs"]
mod questions;
#[path = "real/raw.rs"]
mod raw;
#[path = "real/revisions.rs"]
mod revisions;
#[path = "real/transparency.rs"]
mod transparency;
#[allow(dead_code)]
#[path = "serve/wire.rs"]
mod wire;
