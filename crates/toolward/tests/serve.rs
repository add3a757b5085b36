//! `toolward serve` and `toolward stdio` from outside: scripted servers behind, raw bytes in front.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "serve/approval_attacks.rs"]
mod approval_attacks;
#[path = "serve/approvals.rs"]
mod approvals;
#[path = "program/audit_log.rs"]
mod audit_log;
#[path = "serve/audit_records.rs"]
mod audit_records;
#[path = "serve/bridge.rs"]
mod bridge;
#[path = "serve/calls.rs"]
mod calls;
#[path = "serve/deny_all.rs"]
mod deny_all;
#[path = "serve/downgrade.rs"]
mod downgrade;
#[path = "serve/handover.rs"]
mod handover;
#[path = "serve/harness.rs"]
mod harness;
#[path = "serve/headers.rs"]
mod headers;
#[path = "serve/identity.rs"]
mod identity;
#[path = "serve/ingress.rs"]
mod ingress;
#[path = "serve/interoperability.rs"]
mod interoperability;
#[path = "serve/lifecycle.rs"]
mod lifecycle;
#[path = "serve/list_changes.rs"]
mod list_changes;
#[path = "serve/log.rs"]
mod log;
#[path = "serve/log_messages.rs"]
mod log_messages;
#[path = "serve/memory.rs"]
mod memory;
#[path = "serve/messages.rs"]
mod messages;
#[path = "program/mount.rs"]
mod mount;
#[path = "serve/names.rs"]
mod names;
#[path = "serve/negotiate.rs"]
mod negotiate;
#[path = "serve/numbers.rs"]
mod numbers;
#[path = "serve/one_server.rs"]
mod one_server;
#[path = "serve/outbound.rs"]
mod outbound;
#[path = "serve/policy_tests.rs"]
mod policy_tests;
#[path = "serve/process_limits.rs"]
mod process_limits;
#[path = "serve/processes.rs"]
mod processes;
#[path = "serve/refusals.rs"]
mod refusals;
#[path = "serve/rejected.rs"]
mod rejected;
#[path = "serve/reload.rs"]
mod reload;
#[path = "serve/removed_config.rs"]
mod removed_config;
#[path = "serve/replaced_files.rs"]
mod replaced_files;
#[path = "serve/reserved_keys.rs"]
mod reserved_keys;
#[path = "serve/resume.rs"]
mod resume;
#[path = "serve/running.rs"]
mod running;
#[path = "serve/scaling.rs"]
mod scaling;
#[path = "serve/sessions.rs"]
mod sessions;
#[path = "serve/sink.rs"]
mod sink;
#[path = "serve/slow_responses.rs"]
mod slow_responses;
#[path = "serve/starts.rs"]
mod starts;
#[path = "serve/startup.rs"]
mod startup;
#[path = "serve/stdio_results.rs"]
mod stdio_results;
#[path = "serve/stdio_token.rs"]
mod stdio_token;
#[path = "serve/timeouts.rs"]
mod timeouts;
#[path = "serve/tls.rs"]
mod tls;
#[path = "serve/truncated_files.rs"]
mod truncated_files;
#[path = "serve/views.rs"]
mod views;
#[path = "serve/wire.rs"]
mod wire;
