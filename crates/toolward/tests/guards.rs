//! Limits and hooks from outside: what stands between a decision and a server, and what holds when it
//! fails.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

#[path = "guards/crowd.rs"]
mod crowd;
#[path = "guards/environment.rs"]
mod environment;
#[path = "guards/exec.rs"]
mod exec;
#[path = "guards/facts.rs"]
mod facts;
#[path = "guards/fairness.rs"]
mod fairness;
#[path = "serve/harness.rs"]
mod harness;
#[path = "guards/hostile.rs"]
mod hostile;
#[path = "guards/http.rs"]
mod http;
#[path = "guards/left.rs"]
mod left;
#[path = "guards/limits.rs"]
mod limits;
#[path = "guards/persistent.rs"]
mod persistent;
#[path = "program/record.rs"]
mod record;
#[path = "program/redis.rs"]
mod redis;
#[path = "guards/reload.rs"]
mod reload;
#[path = "guards/shell.rs"]
mod shell;
#[path = "guards/store.rs"]
mod store;
#[path = "guards/store_topologies.rs"]
mod store_topologies;
#[path = "guards/support.rs"]
mod support;
#[path = "guards/unused.rs"]
mod unused;
#[path = "guards/whom.rs"]
mod whom;
#[path = "serve/wire.rs"]
mod wire;
