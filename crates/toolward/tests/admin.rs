//! The admin UI from outside: raw requests to the `admin` address of the real program.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, dead_code)]

#[path = "admin/agent.rs"]
mod agent;
#[path = "admin/allow.rs"]
mod allow;
#[path = "admin/approvals.rs"]
mod approvals;
#[path = "admin/ask.rs"]
mod ask;
#[path = "program/audit_log.rs"]
mod audit_log;
#[path = "admin/auth.rs"]
mod auth;
#[path = "admin/changes.rs"]
mod changes;
#[path = "admin/connection_limits.rs"]
mod connection_limits;
#[path = "admin/event_stream.rs"]
mod event_stream;
#[path = "admin/explain.rs"]
mod explain;
#[path = "serve/harness.rs"]
mod harness;
#[path = "admin/html.rs"]
mod html;
#[path = "admin/kit.rs"]
mod kit;
#[path = "admin/listen.rs"]
mod listen;
#[path = "admin/live.rs"]
mod live;
#[path = "admin/matrix.rs"]
mod matrix;
#[path = "admin/metrics.rs"]
mod metrics;
#[path = "admin/policy.rs"]
mod policy;
#[path = "admin/preview.rs"]
mod preview;
#[path = "admin/prometheus.rs"]
mod prometheus;
#[path = "admin/rendering.rs"]
mod rendering;
#[path = "admin/same_reason.rs"]
mod same_reason;
#[path = "admin/servers.rs"]
mod servers;
#[path = "serve/wire.rs"]
mod wire;
