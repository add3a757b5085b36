//! `toolward wrap` between a client and a scripted server: listings, forwarded messages and audit
//! records.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "program/audit_log.rs"]
mod audit_log;
#[path = "wrap/harness.rs"]
mod harness;
#[path = "wrap/large.rs"]
mod large;
#[path = "wrap/lifecycle.rs"]
mod lifecycle;
#[path = "wrap/policy.rs"]
mod policy;
#[path = "wrap/save.rs"]
mod save;
#[path = "wrap/start.rs"]
mod start;
