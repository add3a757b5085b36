//! Rate limits and hooks from outside: the checks between a decision and a server, and their failure
//! modes.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

#[path = "program/audit_log.rs"]
mod audit_log;
#[path = "guards/default_agent.rs"]
mod default_agent;
#[path = "guards/disconnects.rs"]
mod disconnects;
#[path = "guards/environment.rs"]
mod environment;
#[path = "guards/example_policies.rs"]
mod example_policies;
#[path = "guards/exec.rs"]
mod exec;
#[path = "guards/fairness.rs"]
mod fairness;
#[path = "serve/harness.rs"]
mod harness;
#[path = "guards/hostile.rs"]
mod hostile;
#[path = "guards/http.rs"]
mod http;
#[path = "guards/isolation.rs"]
mod isolation;
#[path = "guards/limits.rs"]
mod limits;
#[path = "guards/persistent.rs"]
mod persistent;
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
#[path = "program/tls.rs"]
mod tls;
#[path = "guards/unused.rs"]
mod unused;
#[path = "serve/wire.rs"]
mod wire;
