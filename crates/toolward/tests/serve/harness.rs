//! A gateway with scripted servers behind it, and clients that talk to it byte by byte.

#[path = "harness/agent.rs"]
mod agent;
#[path = "harness/gate.rs"]
mod gate;
#[path = "harness/lines.rs"]
mod lines;
#[path = "harness/session.rs"]
mod session;
#[path = "harness/setup.rs"]
mod setup;

use serde_json::Value;

#[allow(unused_imports)]
pub use toolward_testkit::wait::{always, eventually};

pub use agent::*;
pub use gate::*;
pub use lines::*;
pub use session::*;
pub use setup::*;

use super::wire::{Connection, Reply};

pub const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/both.py");
pub const LEGACY: &str = "2025-06-18";
pub const NEWEST_LEGACY: &str = "2025-11-25";
pub const MODERN: &str = "2026-07-28";
pub const META: &str = "io.modelcontextprotocol/";

pub fn alive(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

pub fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}
