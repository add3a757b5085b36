//! Policy between real clients and real servers: the tools that each agent sees, and how clients show a
//! refusal.

use serde_json::{Value, json};

use super::harness::Gate;
use super::peers::*;

/// Several servers, one of which is down, and agents that may use different parts of them.
fn company(work: &Work) -> Gate {
    let git = json!([
        {"tool": "git_log", "display_name": "history", "display_description": "What happened"},
        "git_status",
        "git_commit",
    ]);
    work.setup(&["everything", "files", "git", "memory", "plain"])
        .server("down", json!({"command": "/nonexistent/server"}))
        .with("git", "expose", git)
        .with("everything", "action_keys", json!({"get-annotated-message": ["messageType"]}))
        .agents(json!({
            "admin": {"allow": {"servers": ["*"]}},
            "reader": {"allow": {"servers": ["*"], "tools": {"*": ["hint:read-only"]}}},
            "worker": {
                "allow": {
                    "servers": ["*"],
                    "tools": {
                        "everything": ["get-annotated-message.success"],
                        "files": [
                            "read_*",
                            {"tool": "write_file", "when": "args.path.endsWith('.txt')"},
                        ],
                    },
                },
                "deny": {
                    "servers": ["git", "pl*"],
                    "tools": {"files": ["read_media_file"], "memory": ["delete_*"]},
                },
            },
        }))
        .start()
}

/// The allowed tools of a list, by name and definition.
fn those(seen: &Value, pass: impl Fn(&str, &Value) -> bool) -> Vec<&str> {
    let tools = seen["tools"].as_array().unwrap().iter();
    let tools = tools.map(|tool| (tool["name"].as_str().unwrap(), tool));
    tools.filter(|(name, tool)| pass(name, tool)).map(|(name, _)| name).collect()
}

/// A refusal of an unlisted tool, as the Python client shows it.
fn assert_refused(call: &Value, tool: &str, listed: &[&str], allowed: &[&str]) {
    let words = call["data"]["message"].as_str().unwrap();
    assert!(call["error"].as_str().unwrap().ends_with(words), "{call}");
    assert_eq!(call["code"], -32602);
    let id = &call["data"]["decision_id"];
    assert!(id.is_string());
    let data = json!({
        "error": "tool_not_allowed", "message": words, "tool": tool, "allowed_tools": allowed,
        "retryable": false, "decision_id": id,
    });
    assert_eq!(call["data"], data);
    // Only tools that the agent can call, and the number of further ones.
    let named = words.strip_prefix(&format!("{tool} is not permitted. Allowed: ")).unwrap();
    let named: Vec<&str> = named.split(" (").next().unwrap().split(", ").collect();
    let callable =
        |name: &&str| listed.contains(name) || listed.contains(&name.rsplit_once('.').unwrap().0);
    assert!(named.len() <= 10 && named.iter().all(callable), "{words}");
    assert_eq!(words.contains(" more in tools/list)"), named.len() < listed.len(), "{words}");
}

#[test]
fn each_agent_has_its_own_part_of_real_servers() {
    let Some(peers) = peers() else { return };
    let work = Work::new(peers);
    let gate = company(&work);
    let see = |agent: &str, path: &str, calls: Value| {
        work.see(Client::Python, "", &calls, &place(&gate, agent, path))
    };

    // Everything that is exposed, and nothing of a server that is down.
    let repository = json!({"repo_path": work.path("repository"), "max_count": 1});
    let calls = json!([
        ["git__history", repository],
        ["git__git_log", repository],
        ["git__git_diff", repository],
        ["down__anything", {}],
        ["plain__add", {"a": 1, "b": 2}],
    ]);
    let admin = see("admin", "/mcp", calls);
    let git = ["git__git_status", "git__git_commit", "git__history"];
    let mut shown = those(&admin, |name, _| name.starts_with("git__"));
    shown.sort_by_key(|name| git.iter().position(|one| one == name));
    assert_eq!(shown, git);
    assert!(those(&admin, |name, _| name.starts_with("down__")).is_empty());
    let history = admin["tools"].as_array().unwrap().iter().find(|t| t["name"] == "git__history");
    assert_eq!(history.unwrap()["description"], "What happened");
    let servers = ["everything/*", "files/*", "git/*", "memory/*", "plain/*", "down/*"];
    assert_eq!(admin["calls"][0]["isError"], false, "{admin}");
    assert!(admin["calls"][0]["content"][0]["text"].as_str().unwrap().contains("first"));
    for (at, name) in [(1, "git__git_log"), (2, "git__git_diff")] {
        assert_refused(&admin["calls"][at], name, &tools_of(&admin), &servers);
    }
    assert_eq!(admin["calls"][3]["code"], -32603);
    assert_eq!(admin["calls"][3]["data"]["error"], "server_unavailable");
    assert_eq!(admin["calls"][3]["data"]["retryable"], false);
    assert_eq!(admin["calls"][4]["structuredContent"], json!({"result": 3}));

    // By annotations; one server has none.
    let file = |name: &str| work.path("files").join(name);
    let calls = json!([
        ["files__read_text_file", {"path": file("a.txt")}],
        ["files__write_file", {"path": file("x.txt"), "content": "x"}],
        ["plain__get_name", {}],
    ]);
    let reader = see("reader", "/mcp", calls);
    let marked = those(&admin, |_, tool| tool["annotations"]["readOnlyHint"] == true);
    assert_eq!(tools_of(&reader), marked);
    assert!(marked.contains(&"memory__read_graph") && marked.contains(&"git__history"));
    assert!(!marked.iter().any(|name| name.starts_with("plain__")));
    assert_eq!(reader["calls"][0]["structuredContent"]["content"], "grüße\r\n\u{1f980}");
    for (at, name) in [(1, "files__write_file"), (2, "plain__get_name")] {
        let allowed = servers.map(|server| server.replace('*', "hint:read-only"));
        let allowed = allowed.each_ref().map(String::as_str);
        assert_refused(&reader["calls"][at], name, &tools_of(&reader), &allowed);
    }
    assert!(!file("x.txt").exists());

    // By name, by action, by arguments; denied by server and by pattern.
    let calls = json!([
        ["everything__get-annotated-message", {"messageType": "success"}],
        ["everything__get-annotated-message", {"messageType": "error"}],
        ["files__write_file", {"path": file("x.txt"), "content": "x"}],
        ["files__write_file", {"path": file("x.sh"), "content": "x"}],
        ["files__read_media_file", {"path": file("a.txt")}],
        ["memory__delete_entities", {"entityNames": ["a"]}],
        ["git__history", repository],
    ]);
    let worker = see("worker", "/mcp", calls);
    let expected = those(&admin, |name, _| match name.split_once("__").unwrap() {
        ("everything", tool) => tool == "get-annotated-message",
        ("files", "read_media_file") => false,
        ("files", tool) => tool.starts_with("read_") || tool == "write_file",
        ("memory", tool) => !tool.starts_with("delete_"),
        _ => false,
    });
    assert_eq!(tools_of(&worker), expected);
    let actions = &worker["tools"][0]["inputSchema"]["properties"]["messageType"]["enum"];
    assert_eq!(*actions, json!(["success"]));
    let calls = worker["calls"].as_array().unwrap();
    assert_eq!(calls[0]["content"][0]["text"], "Operation completed successfully");
    assert!(file("x.txt").exists() && !file("x.sh").exists());
    let allowed = ["everything/get-annotated-message.success", "files/read_*", "files/write_file"];
    let allowed = [&allowed[..], &["memory/*", "down/*"]].concat();
    for (at, name) in [(1, "everything__get-annotated-message"), (3, "files__write_file")] {
        assert_eq!(calls[at]["isError"], true);
        let data = &calls[at]["_meta"]["io.toolward/refusal"];
        assert_eq!(data["allowed_tools"], json!(allowed), "{data}");
        assert_eq!(data["tool"], name);
        let text = calls[at]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("is not permitted"), "{text}");
    }
    for (at, name) in
        [(4, "files__read_media_file"), (5, "memory__delete_entities"), (6, "git__history")]
    {
        assert_refused(&calls[at], name, &tools_of(&worker), &allowed);
    }

    let records = gate.records();
    let refusals = records.iter().filter(|record| record["kind"] == "refusal").count();
    assert_eq!(refusals, 2 + 2 + 5);
}

#[test]
fn every_client_shows_a_refusal() {
    let Some(peers) = peers() else { return };
    let rust = peers.has(Client::Rust);
    let work = Work::new(peers);
    // A layer for everyone narrows the agent's permissions.
    let layer = work.policy("layer.yaml", "allowed_tools: [\"READ_*\", time.convert_time]\n");
    let gate = work
        .setup(&["files", "time"])
        .set("policies", json!([layer]))
        .agents(json!({"a": {
            "allow": {"servers": ["*"]}, "deny": {"tools": {"files": ["read_file"]}}}}))
        .start();
    let calls = json!([
        ["files__write_file", {"path": "x", "content": "x"}],
        ["files__not_there", {}],
        ["time__get_current_time", {"timezone": "UTC"}],
        ["time__convert_time", {
            "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}],
    ]);
    let names = ["read_text_file", "read_media_file", "read_multiple_files"];
    let mut expected: Vec<String> = names.map(|name| format!("files__{name}")).to_vec();
    expected.push("time__convert_time".into());
    let clients = [Client::Python, Client::TypeScript, Client::Rust];
    for client in clients.into_iter().filter(|client| rust || *client != Client::Rust) {
        let seen = work.see(client, "", &calls, &place(&gate, "a", "/mcp"));
        assert_eq!(tools_of(&seen), expected, "{client:?}");
        let names = ["files__write_file", "files__not_there", "time__get_current_time"];
        for (call, name) in seen["calls"].as_array().unwrap().iter().zip(names) {
            let words = call["data"]["message"].as_str().unwrap();
            let error = call["error"].as_str().unwrap();
            assert!(error.ends_with(words), "{client:?}: {error}");
            // From each layer.
            let allowed = ["files/*", "time/*", "READ_*", "time.convert_time"];
            assert_refused(call, name, &tools_of(&seen), &allowed);
        }
        assert!(seen["calls"][3]["content"][0]["text"].as_str().unwrap().contains("Tokyo"));
    }
    if !full() {
        return;
    }
    // One client checks the list before it calls.
    let seen = work.see(Client::Inspector, "", &json!([calls[0]]), &place(&gate, "a", "/mcp"));
    assert_eq!(tools_of(&seen), expected);
    assert_eq!(seen["calls"][0]["code"], "tool_not_found", "{seen}");
}

#[test]
fn read_only_mode_holds_in_front_of_one_server() {
    let Some(peers) = peers() else { return };
    let work = Work::new(peers);
    let file = work.path("files").join("x");
    let calls = json!([
        ["list_allowed_directories", {}], ["write_file", {"path": file, "content": "x"}]]);
    let seen = work.see(Client::Python, "", &calls, &work.wrapped(&["--read-only"], "files"));
    let shown = tools_of(&seen);
    assert!(shown.contains(&"read_text_file") && !shown.contains(&"write_file"));
    let refused = seen["calls"][1]["error"].as_str().unwrap();
    assert!(refused.contains("write_file is not permitted"), "{refused}");
    assert!(!file.exists());
    // These tools have no annotations, so no hint is assumed.
    let calls = json!([["get_name", {}]]);
    let seen = work.see(Client::Python, "", &calls, &work.wrapped(&["--read-only"], "plain"));
    assert_eq!(seen["tools"], json!([]));
    assert_eq!(seen["calls"][0]["code"], -32602);
    let record = std::fs::read_to_string(work.path("audit/audit.jsonl")).unwrap();
    assert_eq!(record.matches("\"kind\":\"refusal\"").count(), 2);
}
