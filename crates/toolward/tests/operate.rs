//! Operations from outside, with real systems: audit sinks, traces, signed heads, metrics.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, dead_code)]

#[path = "program/audit_log.rs"]
mod audit_log;
#[path = "serve/harness.rs"]
mod harness;
#[path = "operate/metrics.rs"]
mod metrics;
#[path = "operate/otlp.rs"]
mod otlp;
#[path = "program/postgres.rs"]
mod postgres;
#[path = "operate/signatures.rs"]
mod signatures;
#[path = "operate/sinks.rs"]
mod sinks;
#[path = "operate/syslog.rs"]
mod syslog;
#[path = "program/tls.rs"]
mod tls;
#[path = "operate/traces.rs"]
mod traces;
#[path = "serve/wire.rs"]
mod wire;
