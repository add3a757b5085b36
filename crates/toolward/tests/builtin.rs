//! The built-in server from outside: discovery in both modes, hidden tools, and the size limit of
//! results.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, dead_code)]

#[path = "program/audit_log.rs"]
mod audit_log;
#[path = "program/bytes.rs"]
mod bytes;
#[path = "builtin/configuration.rs"]
mod configuration;
#[path = "builtin/execute.rs"]
mod execute;
#[path = "builtin/guards.rs"]
mod guards;
#[path = "serve/harness.rs"]
mod harness;
#[path = "builtin/hidden.rs"]
mod hidden;
mod program;
#[path = "builtin/progressive.rs"]
mod progressive;
#[path = "program/real_lists.rs"]
mod real_lists;
#[path = "builtin/result_limits.rs"]
mod result_limits;
#[path = "builtin/search.rs"]
mod search;
#[path = "builtin/support.rs"]
mod support;
#[path = "builtin/tools.rs"]
mod tools;
#[path = "serve/wire.rs"]
mod wire;
