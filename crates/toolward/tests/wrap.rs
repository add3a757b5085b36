//! `toolward wrap` between a client and a scripted server: what is seen, what is forwarded, what is
//! recorded.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "wrap/harness.rs"]
mod harness;
#[path = "wrap/large.rs"]
mod large;
#[path = "wrap/life.rs"]
mod life;
#[path = "wrap/policy.rs"]
mod policy;
#[path = "program/record.rs"]
mod record;
#[path = "wrap/save.rs"]
mod save;
#[path = "wrap/start.rs"]
mod start;
