//! `toolward init` and Claude Code: the wrapped entry is connected, and clients of SDKs call a tool through it.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::peers::{At, Client, Peers, full, peers};

const PROGRAM: &str = env!("CARGO_BIN_EXE_toolward");

/// A home directory in which Claude Code has a server, behind the gateway.
fn wrapped(peers: &Peers) -> (tempfile::TempDir, Value) {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("files")).unwrap();
    let server = peers.file("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    let args = json!([server, home.path().join("files")]);
    let entry = json!({"type": "stdio", "command": peers.file("node"), "args": args, "env": {}});
    let file = home.path().join(".claude.json");
    std::fs::write(&file, json!({"mcpServers": {"files": entry}}).to_string()).unwrap();
    let said = run(Command::new(PROGRAM).args(["init", "--yes"]), home.path());
    assert!(said.contains("with reviewed hints for 14 tools"), "{said}");
    let now: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let entry = now["mcpServers"]["files"].clone();
    assert_eq!(entry["command"], PROGRAM);
    (home, entry)
}

fn run(command: &mut Command, home: &Path) -> String {
    let output = command.env("HOME", home).current_dir(home).stdin(Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn clients_of_sdks_call_a_tool_through_the_entry() {
    let Some(peers) = peers() else { return };
    let (home, entry) = wrapped(&peers);
    let mut words = vec!["/usr/bin/env".to_owned(), format!("HOME={}", home.path().display())];
    words.push(entry["command"].as_str().unwrap().into());
    words.extend(entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap().into()));
    for client in [Client::Python, Client::TypeScript] {
        let calls = json!([["list_allowed_directories", {}]]);
        let seen = peers.see(client, "", &calls, &At::Command(words.clone()));
        let text = seen["calls"][0]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(home.path().join("files").to_str().unwrap()), "{seen:#}");
    }
    let said = run(Command::new(PROGRAM).args(["doctor", "--json"]), home.path());
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["clients"][0]["calls"], 2, "{report:#}");
}

#[test]
fn claude_code_reports_the_entry_as_connected() {
    if !full() {
        return;
    }
    let Some(peers) = peers() else { return };
    let (home, _) = wrapped(&peers);
    // Only the server is contacted.
    let mut claude = Command::new(peers.file("claude/node_modules/.bin/claude"));
    claude
        .args(["mcp", "list"])
        .env("DISABLE_AUTOUPDATER", "1")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    let said = run(&mut claude, home.path());
    let line =
        said.lines().find(|line| line.starts_with("files:")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains(PROGRAM) && line.contains("Connected"), "{said}");
    // Claude Code may have written its file: the entry can still be restored.
    let said = run(Command::new(PROGRAM).args(["uninit", "--yes"]), home.path());
    assert!(said.contains("restored"), "{said}");
}
