//! `toolward demo`: every line that it prints works as it is printed, it leaves nothing behind, and its
//! server is one that real clients can talk to.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "demo/clients.rs"]
mod clients;
#[path = "demo/gateway.rs"]
mod gateway;
#[allow(dead_code)]
#[path = "serve/harness.rs"]
mod harness;
#[path = "demo/life.rs"]
mod life;
#[allow(dead_code)]
#[path = "real/peers.rs"]
mod peers;
#[path = "demo/printed.rs"]
mod printed;
#[allow(dead_code)]
#[path = "program/record.rs"]
mod record;
#[path = "demo/running.rs"]
mod running;
#[path = "demo/server.rs"]
mod server;
#[allow(dead_code)]
#[path = "serve/wire.rs"]
mod wire;
#[path = "demo/written.rs"]
mod written;
