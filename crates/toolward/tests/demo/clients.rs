//! Real clients of the demo: through the lines that it prints, and directly connected to its server.
//! `./test` installs them; without it, these tests report that they were skipped.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::peers::{At, Client, full, peers, tools_of};
use super::running::{Demo, PROGRAM, shell};

/// A directory for `PATH` with one program under another name.
fn named(name: &str, script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

#[test]
fn the_inspector_lists_what_its_printed_line_claims() {
    let Some(peers) = peers() else { return };
    let demo = Demo::start(&[]);
    // `npx -y PACKAGE` with the installed package, and the Node version that it needs.
    let (node, inspector) = (peers.file("node"), peers.file("node_modules/.bin/mcp-inspector"));
    let script = format!(
        "test \"$1 $2\" = '-y @modelcontextprotocol/inspector' || exit 99; shift 2\n\
         exec '{}' '{}' \"$@\"",
        node.display(),
        inspector.display()
    );
    let path = named("npx", &script);
    let output = shell(demo.line("MCP Inspector"), demo.home.path(), Some(path.path()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(tools_of(&listed).len(), 11, "{listed}");
    assert!(!said.contains("warning"), "{said}");
}

#[test]
fn the_settings_of_editors_lead_to_the_gateway() {
    let Some(peers) = peers() else { return };
    let demo = Demo::start(&[]);
    let cursor: Value = serde_json::from_str(demo.line(".cursor/mcp.json")).unwrap();
    let code: Value = serde_json::from_str(demo.line(".vscode/mcp.json")).unwrap();
    assert_eq!(code["servers"]["toolward-demo"]["type"], "http");
    let calls = json!([
        ["files__read_file", {"path": "README.md"}],
        ["files__write_file", {"path": "config/production.yaml", "content": ""}],
        ["tracker__delete_issue", {"number": 17}],
    ]);
    for (client, server) in [
        (Client::TypeScript, &cursor["mcpServers"]["toolward-demo"]),
        (Client::Python, &code["servers"]["toolward-demo"]),
    ] {
        let url = server["url"].as_str().unwrap().into();
        let bearer = server["headers"]["Authorization"].as_str().unwrap();
        let token = bearer.strip_prefix("Bearer ").unwrap().into();
        let seen = peers.see(client, "", &calls, &At::Url { url, token });
        assert_eq!(tools_of(&seen).len(), 11);
        let [read, write, delete] = [0, 1, 2].map(|at| &seen["calls"][at]);
        assert!(read["content"][0]["text"].as_str().unwrap().starts_with("# Heron"), "{read}");
        assert_eq!(write["isError"], true);
        let why = write["content"][0]["text"].as_str().unwrap();
        assert!(why.contains("write_file is not permitted"), "{why}");
        assert_eq!(delete["code"], -32602, "{delete}");
    }
}

/// Calls whose results do not depend on earlier calls.
fn calls(prefix: &dyn Fn(&str) -> String) -> Value {
    json!([
        [prefix("search_issues"), {"query": "retry"}],
        [prefix("get_issue"), {"number": 21}],
        [prefix("get_issue"), {"number": "21"}],
        [prefix("weekly_report"), {"seconds": 0.5}],
    ])
}

fn check(seen: &Value, mode: &str) {
    let results = &seen["calls"];
    assert_eq!(results[0]["structuredContent"]["total"], 1, "{mode}: {seen}");
    assert_eq!(results[1]["structuredContent"]["author"], "mira", "{mode}: {seen}");
    assert_eq!(results[2]["isError"], true, "{mode}: {seen}");
    assert!(results[3]["content"][0]["text"].as_str().unwrap().contains("Heron"), "{mode}: {seen}");
    assert_eq!(seen["progress"], json!([0, 0, 0, 5]), "{mode}: {seen}");
}

#[test]
fn clients_talk_to_the_server_directly() {
    let Some(peers) = peers() else { return };
    let at = At::Command([PROGRAM, "demo-server"].map(String::from).into());
    for client in [Client::Python, Client::TypeScript] {
        for (mode, revision) in
            [("--legacy", "2025-11-25"), ("--modern", "2026-07-28"), ("--auto", "2026-07-28")]
        {
            let seen = peers.see(client, mode, &calls(&|tool| tool.into()), &at);
            assert_eq!(seen["revision"], revision, "{client:?} {mode}");
            assert_eq!(tools_of(&seen).len(), 12, "{client:?} {mode}");
            check(&seen, mode);
        }
    }
}

#[test]
fn clients_talk_to_the_server_through_the_gateway() {
    let Some(peers) = peers() else { return };
    let demo = Demo::start(&[]);
    let at = At::Url { url: demo.address("MCP").into(), token: demo.token("reader").into() };
    for client in [Client::Python, Client::TypeScript] {
        for mode in ["--legacy", "--modern"] {
            let seen = peers.see(client, mode, &calls(&|tool| format!("tracker__{tool}")), &at);
            assert_eq!(tools_of(&seen).len(), 6, "{client:?} {mode}");
            check(&seen, mode);
        }
    }
}

/// Checks schemas as a validator of the draft does, and results against them.
const VALIDATE: &str = "
import json, sys, jsonschema
for tool, result in json.load(sys.stdin):
    for name in ('inputSchema', 'outputSchema'):
        if name in tool:
            jsonschema.Draft202012Validator.check_schema(tool[name])
    if 'outputSchema' in tool:
        jsonschema.validate(result['structuredContent'], tool['outputSchema'])
        assert json.loads(result['content'][0]['text']) == result['structuredContent']
    print(tool['name'])
";

#[test]
fn schemas_are_valid_and_results_follow_them() {
    let Some(peers) = peers() else { return };
    let at = At::Command([PROGRAM, "demo-server"].map(String::from).into());
    let all = super::server::calls();
    let calls: Vec<Value> = all.iter().map(|(name, given, _)| json!([name, given])).collect();
    let seen = peers.see(Client::Python, "--modern", &json!(calls), &at);
    let pairs: Vec<Value> = seen["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| {
            let at = all.iter().position(|(name, ..)| tool["name"] == *name).unwrap();
            json!([tool, seen["calls"][at]])
        })
        .collect();
    let mut child = Command::new(peers.file("python/bin/python"))
        .args(["-c", VALIDATE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(json!(pairs).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 12);
}

#[test]
fn claude_code_connects_by_its_line() {
    if !full() {
        return;
    }
    let Some(peers) = peers() else { return };
    let demo = Demo::start(&[]);
    let bin = peers.file("claude/node_modules/.bin");
    let run = |line: &str, home: &Path| {
        // Only the gateway is contacted.
        let quiet = "export DISABLE_AUTOUPDATER=1 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1";
        let output = shell(&format!("{quiet}\n{line}"), home, Some(&bin));
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(output.status.success(), "{line}: {said}");
        said
    };
    let home = tempfile::tempdir().unwrap();
    run(demo.line("Claude Code"), home.path());
    let found = run("claude mcp get toolward-demo", home.path());
    assert!(found.contains("Connected") && found.contains(demo.address("MCP")), "{found}");
}
