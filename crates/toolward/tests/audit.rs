//! Reading the audit log: verification, queries and following it. Logs are written by the real gateway.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "audit/explain.rs"]
mod explain;
#[path = "audit/export.rs"]
mod export;
#[path = "audit/head.rs"]
mod head;
#[path = "audit/log.rs"]
mod log;
#[path = "audit/query.rs"]
mod query;
#[path = "audit/segments.rs"]
mod segments;
#[path = "audit/tail.rs"]
mod tail;
#[path = "audit/tamper.rs"]
mod tamper;
#[allow(dead_code)]
#[path = "program/witness.rs"]
mod witness;
#[path = "audit/witness_checks.rs"]
mod witness_checks;
