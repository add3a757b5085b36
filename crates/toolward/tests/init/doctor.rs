//! `toolward doctor` as a program.

use serde_json::{Value, json};

use crate::Home;

fn doctor(home: &Home) -> (i32, Value) {
    let (code, said) = home.run(&["doctor", "--json"]);
    (code, serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}")))
}

#[test]
fn a_server_that_does_not_start_is_reported_with_the_reason() {
    let home = Home::new();
    assert_eq!(home.run(&["init", "--yes"]).0, 0);
    let (code, report) = doctor(&home);
    let entry = &report["entries"][0];
    assert_eq!((code, &entry["tools"], &report["ok"]), (0, &json!(9), &json!(true)), "{report:#}");
    assert_eq!((&entry["server"], &entry["agent"]), (&json!("tracker"), &json!("cursor")));
    std::fs::write(home.path("server"), "#!/bin/sh\necho no license >&2\nexit 7\n").unwrap();
    let (code, report) = doctor(&home);
    let entry = &report["entries"][0];
    assert_eq!((code, &entry["state"], &report["ok"]), (1, &json!("wrapped"), &json!(false)));
    let why = entry["start_error"].as_str().unwrap();
    assert!(why.contains("tracker") || why.contains("no license"), "{why}");
    // Without starting it, nothing is wrong.
    let (code, said) = home.run(&["doctor", "--offline"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("  tracker: wrapped\n"), "{said}");
    std::fs::remove_file(home.path("server")).unwrap();
    let (code, report) = doctor(&home);
    assert_eq!(code, 1);
    assert!(report["entries"][0]["start_error"].is_string(), "{report:#}");
}

#[test]
fn values_that_only_the_client_knows_keep_a_server_from_being_started() {
    let home = Home::new();
    let content = home.content().replace("t-0123456789", "${input:token}");
    std::fs::write(home.file(), content).unwrap();
    assert_eq!(home.run(&["init", "--yes"]).0, 0);
    let (code, said) = home.run(&["doctor"]);
    assert_eq!(code, 0, "{said}");
    let words =
        "tracker: wrapped, not started: the value of `input:token` is known to its client only";
    assert!(said.contains(words), "{said}");
    assert!(!home.path("started").exists());
}

#[test]
fn an_entry_whose_program_is_gone_and_a_project_that_overrides_are_reported() {
    let home = Home::new();
    assert_eq!(home.run(&["init", "--yes"]).0, 0);
    let project = home.path("app/.cursor");
    std::fs::create_dir_all(&project).unwrap();
    let direct = json!({"mcpServers": {"tracker": {"command": "npx", "args": ["other"]}}});
    std::fs::write(project.join("mcp.json"), direct.to_string()).unwrap();
    let directory = home.path("app");
    let (code, said) = home.run(&["doctor", "--offline", "--project", directory.to_str().unwrap()]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("tracker: direct, overrides a wrapped entry of the same name"), "{said}");
    let gone = home.content().replace(env!("CARGO_BIN_EXE_toolward"), "/gone/toolward");
    std::fs::write(home.file(), gone).unwrap();
    let (code, said) = home.run(&["doctor"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("tracker: stale: its program /gone/toolward does not exist"), "{said}");
}

#[test]
fn more_tools_than_a_client_uses_and_long_names_are_reported_without_failing() {
    let home = Home::new();
    let tools: Vec<Value> = (0..41)
        .map(|at| json!({"name": format!("{}_{at}", "t".repeat(55)), "inputSchema": {"type": "object"}}))
        .collect();
    let list = json!({"jsonrpc": "2.0", "id": "ID", "result": {"tools": tools}});
    let script = format!(
        "#!/usr/bin/env python3\nimport json, sys\nLIST = json.loads({:?})\nfor line in sys.stdin:\n    \
         m = json.loads(line)\n    if 'id' not in m: continue\n    \
         if m['method'] == 'initialize': r = {{'protocolVersion': '2025-06-18', 'capabilities': {{'tools': {{}}}}, \
         'serverInfo': {{'name': 'x', 'version': '1'}}}}\n    \
         elif m['method'] == 'tools/list': r = LIST['result']\n    \
         else:\n        print(json.dumps({{'jsonrpc': '2.0', 'id': m['id'], 'error': {{'code': -32601, 'message': 'no'}}}}), \
         flush=True)\n        continue\n    \
         print(json.dumps({{'jsonrpc': '2.0', 'id': m['id'], 'result': r}}), flush=True)\n",
        list.to_string()
    );
    std::fs::write(home.path("server"), script).unwrap();
    assert_eq!(home.run(&["init", "--yes"]).0, 0);
    let (code, said) = home.run(&["doctor"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("Cursor: its servers offer 41 tools, and it uses about 40"), "{said}");
    assert!(said.contains("names of tools are too long for it (more than 60 characters"), "{said}");
}

#[test]
fn a_policy_that_restricts_is_not_called_observing() {
    let home = Home::new();
    assert_eq!(home.run(&["init", "--yes"]).0, 0);
    let (_, report) = doctor(&home);
    assert_eq!(report["clients"][0]["observed"], true, "{report:#}");
    let config = home.path(".config/toolward/toolward.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    let tight = text.replace(
        "servers: [\"*\"] } }",
        "servers: [\"*\"], tools: { \"*\": [\"hint:read-only\"] } } }",
    );
    assert_ne!(tight, text);
    std::fs::write(&config, tight).unwrap();
    let (code, report) = doctor(&home);
    assert_eq!((code, &report["clients"][0]["observed"]), (0, &json!(false)), "{report:#}");
}
