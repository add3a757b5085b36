//! The gateway's own server from outside: discovery in both modes, what it never shows, and how large
//! results may be.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, dead_code)]

#[path = "program/bytes.rs"]
mod bytes;
#[path = "builtin/caps.rs"]
mod caps;
#[path = "builtin/execute.rs"]
mod execute;
#[path = "builtin/guarded.rs"]
mod guarded;
#[path = "serve/harness.rs"]
mod harness;
#[path = "builtin/hidden.rs"]
mod hidden;
mod program;
#[path = "builtin/progressive.rs"]
mod progressive;
#[path = "program/record.rs"]
mod record;
#[path = "builtin/search.rs"]
mod search;
#[path = "builtin/start.rs"]
mod start;
#[path = "builtin/support.rs"]
mod support;
#[path = "builtin/tools.rs"]
mod tools;
#[path = "serve/wire.rs"]
mod wire;
