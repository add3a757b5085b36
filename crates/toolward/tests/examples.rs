//! Every example does what its README describes, with the built program in front of real servers: those
//! of `toolward demo-server`, and those that `./test` installs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "examples/agents.rs"]
mod agents;
#[path = "examples/audit.rs"]
mod audit;
#[path = "examples/ci.rs"]
mod ci;
#[path = "examples/guards.rs"]
mod guards;
#[path = "examples/others.rs"]
mod others;
#[path = "examples/rules.rs"]
mod rules;
#[path = "examples/support.rs"]
mod support;
