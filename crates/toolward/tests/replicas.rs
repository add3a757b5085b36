//! Several gateways that serve the same clients: shared keys and stores, draining, policy bundles, and a fleet behind
//! nginx whose gateways are killed under load.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, dead_code)]

#[path = "replicas/approvals.rs"]
mod approvals;
#[path = "program/audit_log.rs"]
mod audit_log;
#[path = "replicas/bundles.rs"]
mod bundles;
#[path = "replicas/drain.rs"]
mod drain;
#[path = "replicas/fleet.rs"]
mod fleet;
#[path = "serve/harness.rs"]
mod harness;
#[path = "replicas/keys.rs"]
mod keys;
#[path = "replicas/nginx.rs"]
mod nginx;
#[path = "program/redis.rs"]
mod redis;
#[path = "program/tls.rs"]
mod tls;
#[path = "replicas/upstream.rs"]
mod upstream;
#[path = "serve/wire.rs"]
mod wire;

use serde_json::Value;

/// Changes the configuration file of a running gateway.
fn change(gate: &harness::Gate, change: impl FnOnce(&mut Value)) {
    let file = gate.file("toolward.yaml");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    change(&mut config);
    let beside = file.with_extension("new");
    std::fs::write(&beside, config.to_string()).unwrap();
    std::fs::rename(beside, file).unwrap();
}

/// The output of a command about a gateway.
fn command(gate: &harness::Gate, arguments: &[&str]) -> std::process::Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"));
    command.args(arguments).arg("-c").arg(gate.file("toolward.yaml"));
    command.env("HOME", gate.file("")).env_remove("TOOLWARD_ADMIN_TOKEN");
    command.output().unwrap()
}
