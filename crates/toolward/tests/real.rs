//! `toolward wrap` between a real client (PyPI `mcp`) and real servers (npm, PyPI), against the same
//! client and server without it. `./test` installs them and says where; without that, these tests say
//! that they were skipped.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

fn peers() -> Option<PathBuf> {
    let peers = std::env::var_os("TOOLWARD_PEERS").map(PathBuf::from);
    if peers.is_none() {
        eprintln!("skipped: ./test installs real servers and clients, and sets TOOLWARD_PEERS");
    }
    peers
}

/// What the real client sees of a command.
fn seen(peers: &Path, calls: &Value, command: &[String]) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/client.py");
    let output = Command::new(peers.join("python/bin/python"))
        .arg(script)
        .arg(calls.to_string())
        .args(command)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The same command behind `toolward wrap`.
fn wrapped(folder: &Path, flags: &[&str], command: &[String]) -> Vec<String> {
    let mut line: Vec<String> = vec![env!("CARGO_BIN_EXE_toolward").into(), "wrap".into()];
    line.extend(["--audit".into(), folder.join("audit").to_str().unwrap().into()]);
    line.extend(flags.iter().map(|flag| flag.to_string()));
    line.push("--".into());
    line.extend(command.iter().cloned());
    line
}

fn command(program: PathBuf, arguments: &[&str]) -> Vec<String> {
    let program = program.to_str().unwrap().to_string();
    std::iter::once(program).chain(arguments.iter().map(|word| word.to_string())).collect()
}

/// With a policy that allows everything, a client sees the same with and without the gateway.
fn is_transparent(command: &[String], peers: &Path, calls: Value) {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("all.yaml");
    std::fs::write(&policy, "allowed_tools: [\"*\"]\n").unwrap();
    let flags = ["--policy", policy.to_str().unwrap()];
    let direct = seen(peers, &calls, command);
    let through = seen(peers, &calls, &wrapped(folder.path(), &flags, command));
    assert!(!direct["tools"].as_array().unwrap().is_empty());
    assert_eq!(direct, through);
}

#[test]
fn server_everything_looks_the_same_through_the_gateway() {
    let Some(peers) = peers() else { return };
    let server = command(peers.join("node_modules/.bin/mcp-server-everything"), &[]);
    let calls = json!([
        ["echo", {"message": "grüße \u{1f980}"}], ["get-sum", {"a": 1, "b": 2.5}],
        ["get-tiny-image", {}], ["get-structured-content", {"location": "New York"}],
        ["get-annotated-message", {"messageType": "error", "includeImage": true}],
        ["get-sum", {"a": "wrong"}],
        ["trigger-long-running-operation", {"duration": 1, "steps": 2}],
    ]);
    // A server may offer more to a client that can do more, and through the gateway none can yet.
    is_transparent(&server, &peers, calls);
}

#[test]
fn server_filesystem_and_memory_look_the_same_through_the_gateway() {
    let Some(peers) = peers() else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "text").unwrap();
    let path = folder.path().to_str().unwrap();
    let server = command(peers.join("node_modules/.bin/mcp-server-filesystem"), &[path]);
    let file = folder.path().join("a.txt");
    let calls = json!([["read_text_file", {"path": file}], ["list_directory", {"path": path}], ["read_text_file", {"path": "/etc/passwd"}]]);
    is_transparent(&server, &peers, calls);
    let server = command(peers.join("node_modules/.bin/mcp-server-memory"), &[]);
    is_transparent(&server, &peers, json!([["search_nodes", {"query": "nothing like it"}]]));
}

#[test]
fn modern_servers_look_the_same_through_the_gateway() {
    let Some(peers) = peers() else { return };
    let server = command(peers.join("python/bin/mcp-server-time"), &[]);
    let calls = json!([["convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}], ["convert_time", {}]]);
    is_transparent(&server, &peers, calls);
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let server = command(peers.join("python/bin/mcp-server-git"), &[]);
    let calls = json!([["git_log", {"repo_path": repository, "max_count": 1}], ["git_status", {"repo_path": "/nonexistent"}]]);
    is_transparent(&server, &peers, calls);
}

#[test]
fn policy_holds_between_a_real_client_and_real_servers() {
    let Some(peers) = peers() else { return };
    let folder = tempfile::tempdir().unwrap();
    let names = |seen: &Value| -> Vec<String> {
        let tools = seen["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().into()).collect()
    };
    // By hint, on an annotated server of the era with sessions.
    let work = folder.path().to_str().unwrap();
    let files = command(peers.join("node_modules/.bin/mcp-server-filesystem"), &[work]);
    let calls = json!([["list_allowed_directories", {}], ["write_file", {"path": folder.path().join("x"), "content": "x"}]]);
    let seen_files = seen(&peers, &calls, &wrapped(folder.path(), &["--read-only"], &files));
    let shown = names(&seen_files);
    assert!(shown.contains(&"read_text_file".into()) && !shown.contains(&"write_file".into()));
    let refused = seen_files["calls"][1]["error"].as_str().unwrap();
    assert!(refused.contains("write_file is not permitted"), "{refused}");
    assert!(!folder.path().join("x").exists());
    // By name, on a stateless one.
    let policy = folder.path().join("time.yaml");
    std::fs::write(&policy, "allowed_tools: [get_current_time]\n").unwrap();
    let time = command(peers.join("python/bin/mcp-server-time"), &[]);
    let calls =
        json!([["get_current_time", {"timezone": "UTC"}], ["convert_time", {}], ["not_there", {}]]);
    let flags = ["--allowlist-config", policy.to_str().unwrap()];
    let seen_time = seen(&peers, &calls, &wrapped(folder.path(), &flags, &time));
    assert_eq!(names(&seen_time), ["get_current_time"]);
    assert_eq!(seen_time["calls"][0]["isError"], false);
    assert_eq!(
        seen_time["calls"][1]["error"],
        "convert_time is not permitted. Allowed: get_current_time"
    );
    assert_eq!(
        seen_time["calls"][2]["error"],
        "not_there is not permitted. Allowed: get_current_time"
    );
    let record = std::fs::read_to_string(folder.path().join("audit/audit.jsonl")).unwrap();
    assert_eq!(record.matches("\"kind\":\"refusal\"").count(), 3);
}
