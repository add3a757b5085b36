//! The page from outside: raw requests to the `admin` address of the real program.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

#[path = "page/agent.rs"]
mod agent;
#[path = "page/ask.rs"]
mod ask;
#[path = "page/crowd.rs"]
mod crowd;
#[path = "page/door.rs"]
mod door;
#[path = "page/explain.rs"]
mod explain;
#[path = "serve/harness.rs"]
mod harness;
#[path = "page/html.rs"]
mod html;
#[path = "page/kit.rs"]
mod kit;
#[path = "page/live.rs"]
mod live;
#[path = "page/matrix.rs"]
mod matrix;
#[path = "page/policy.rs"]
mod policy;
#[path = "program/record.rs"]
mod record;
#[path = "page/servers.rs"]
mod servers;
#[path = "page/shown.rs"]
mod shown;
#[path = "page/start.rs"]
mod start;
#[path = "page/watch.rs"]
mod watch;
#[path = "serve/wire.rs"]
mod wire;
