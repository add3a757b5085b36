//! `toolward demo`: every printed line works as printed, nothing is left behind, and real clients can
//! use its server.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[allow(dead_code)]
#[path = "program/audit_log.rs"]
mod audit_log;
#[path = "demo/clients.rs"]
mod clients;
#[path = "demo/gateway.rs"]
mod gateway;
#[allow(dead_code)]
#[path = "serve/harness.rs"]
mod harness;
#[path = "demo/lifecycle.rs"]
mod lifecycle;
#[allow(dead_code)]
#[path = "real/peers.rs"]
mod peers;
#[path = "demo/printed.rs"]
mod printed;
#[path = "demo/running.rs"]
mod running;
#[path = "demo/server.rs"]
mod server;
#[allow(dead_code)]
#[path = "serve/wire.rs"]
mod wire;
#[path = "demo/written.rs"]
mod written;
