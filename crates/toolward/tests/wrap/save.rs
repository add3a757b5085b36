//! `toolward` commands before a gateway runs: saved tool lists and new credentials.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::*;

fn toolward(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolward"));
    command.args(arguments).current_dir(folder).env("HOME", folder);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory with a scripted server's list.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tools = json!([
        {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
        {"name": "drop", "inputSchema": {"type": "object"}},
    ]);
    std::fs::write(folder.path().join("tools.json"), tools.to_string()).unwrap();
    folder
}

#[test]
fn a_saved_list_of_a_command_is_what_tools_takes() {
    let folder = folder();
    let list = ["--", "python3", SERVER, "log", "tools.json"];
    let saved = toolward(folder.path(), &[&["tools", "save"][..], &list].concat());
    assert!(saved.status.success(), "{}", text(&saved.stderr));
    // Named after the script, not after `python3`.
    assert_eq!(text(&saved.stdout), "./program.json: 2 tools of program\n");
    let file = std::fs::read_to_string(folder.path().join("program.json")).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    assert_eq!((&file["server"], &file["tools"][1]["name"]), (&json!("program"), &json!("drop")));
    let policy =
        "agents: {a: {allow: {servers: [program], tools: {program: ['hint:read-only']}}}}\n";
    std::fs::write(folder.path().join("policy.yaml"), policy).unwrap();
    let listed = toolward(
        folder.path(),
        &["ls", "--as", "a", "--policy", "policy.yaml", "--tools", "program.json", "--json"],
    );
    let listed = text(&listed.stdout);
    assert!(listed.contains("read") && !listed.contains("drop"), "{listed}");
}

#[test]
fn servers_of_the_configuration_are_saved_one_or_all() {
    let folder = folder();
    let path = folder.path();
    let server = |log: &str| json!({"command": "python3", "args": [SERVER, path.join(log), path.join("tools.json")]});
    let config =
        json!({"servers": {"one": server("a"), "two": server("b")}, "allowed_tools": ["*"]});
    std::fs::write(path.join("toolward.yaml"), config.to_string()).unwrap();
    std::fs::create_dir(path.join("lists")).unwrap();
    let all = toolward(path, &["tools", "save", "-o", "lists"]);
    assert!(all.status.success(), "{}", text(&all.stderr));
    for name in ["one", "two"] {
        assert!(path.join(format!("lists/{name}.json")).exists(), "{name}");
    }
    let one = toolward(path, &["tools", "save", "one", "-o", "-"]);
    let one: Value = serde_json::from_slice(&one.stdout).unwrap();
    assert_eq!((&one["server"], one["tools"].as_array().unwrap().len()), (&json!("one"), 2));
    let wrong = toolward(path, &["tools", "save", "tow"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("did you mean `two`?"), "{}", text(&wrong.stderr));
    let file = toolward(path, &["tools", "save", "-o", "list.json"]);
    assert_eq!(file.status.code(), Some(2), "two lists do not fit into one file");
}

#[test]
fn a_new_token_comes_with_the_line_that_accepts_it() {
    let folder = tempfile::tempdir().unwrap();
    let made = toolward(folder.path(), &["token", "new", "reviewer"]);
    let made = text(&made.stdout);
    let token = made.lines().next().unwrap();
    assert!(token.starts_with("tw_") && token.len() > 40, "{made}");
    let hash: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    let lines = format!("agents:\n  reviewer:\n    tokens: [\"sha256:{hash}\"]\n");
    assert!(made.ends_with(&lines), "{made}");
    let config =
        format!("{lines}servers: {{s: {{url: 'http://127.0.0.1:1/mcp'}}}}\nallowed_tools: [a]\n");
    std::fs::write(folder.path().join("toolward.yaml"), config).unwrap();
    let checked = toolward(folder.path(), &["check", "--json"]);
    let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(checked["ok"], true, "{checked}");
    let odd = toolward(folder.path(), &["token", "new", "a: b"]);
    assert!(text(&odd.stdout).contains("\n  \"a: b\":\n"), "{}", text(&odd.stdout));
    let json = toolward(folder.path(), &["token", "new", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_ne!(json["token"], token);
    assert_eq!(json["hash"].as_str().unwrap().len(), "sha256:".len() + 64);
}

#[test]
fn a_wrapped_server_is_named_after_what_its_command_runs() {
    let folder = folder();
    let policy = "agents: {dev: {allow: {servers: [program]}}}\n";
    std::fs::write(folder.path().join("policy.yaml"), policy).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["wrap", "--agent", "dev", "--policy", "policy.yaml", "--audit", "audit", "--"])
        .args(["python3", SERVER, "log", "tools.json"])
        .current_dir(folder.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    use std::io::{BufRead, BufReader, Write};
    let mut stdin = child.stdin.take().unwrap();
    let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }});
    writeln!(stdin, "{begin}").unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    writeln!(stdin, r#"{{"jsonrpc":"2.0","method":"notifications/initialized"}}"#).unwrap();
    writeln!(stdin, r#"{{"jsonrpc":"2.0","id":2,"method":"tools/list"}}"#).unwrap();
    let tools = loop {
        line.clear();
        assert!(answers.read_line(&mut line).unwrap() > 0, "it ended");
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["id"] == 2 {
            break message["result"]["tools"].clone();
        }
    };
    assert_eq!(tools.as_array().unwrap().len(), 2, "{tools}");
    drop(stdin);
    child.wait().unwrap();
}
