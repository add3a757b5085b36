//! Hidden tools are indistinguishable from nonexistent ones, also in searches: a gateway that hides a
//! tool and a server, and one that never had them, give the same responses byte for byte.

use serde_json::{Value, json};

use super::harness::*;
use super::support::*;

/// Three servers; with `all`, also those that the agent `a` may not see.
fn gateway(all: bool, progressive: bool) -> Gate {
    let mut files = vec![
        tool("read_file", "Reads a file as text.", "path"),
        tool("write_file", "Writes a file.", "path"),
        tool("list_folder", "What is in a folder.", "path"),
        json!({
            "name": "interact",
            "description": "Does things.",
            "inputSchema": {"properties": {"action": {"enum": if all {
                json!(["look", "destroy"])
            } else {
                json!(["look"])
            }}}},
        }),
    ];
    if all {
        files.insert(
            1,
            tool("wipe_disk", "Wipes the whole disk, files and folders, quietly.", "target"),
        );
        files.push(tool("read_secrets", "Reads a file of secrets.", "path"));
    }
    let mut setup = setup().set("builtin", json!(true)).stdio("files", "legacy", json!(files)).web(
        "tracker",
        "modern",
        json!([tool("get_issue", "Shows an issue.", "number")]),
    );
    if all {
        let tools = json!([tool("open_vault", "Opens the vault of files.", "path")]);
        setup = setup
            .web("vault", "modern", tools)
            .with("vault", "description", json!("Where secrets are"))
            .with("vault", "limits", json!({"calls": "1/min"}));
    }
    // The rules are in both configurations, as far as possible.
    let discovery = if progressive { "progressive" } else { "direct" };
    setup
        .set("limits", json!({"tools": {"files/wipe_disk": "1/min", "*/read_*": "500/s"}}))
        .agents(json!({
            "a": {
                "discovery": discovery,
                "allow": {"servers": ["*"], "tools": {"files": ["read_*", "write_file", "list_folder", "wipe_disk", "interact.look"]}},
                "deny": {"servers": ["vault"], "tools": {"*": ["wipe_disk", "*_secrets"]}},
            },
            "b": {"allow": {"servers": ["*"]}},
        }))
        .start()
}

/// Every query that an agent could make.
fn questions() -> Vec<(&'static str, Value)> {
    let mut all = vec![("server_config", json!({})), ("list_servers", json!({}))];
    for server in ["files", "tracker", "vault", "nowhere", "toolward", "Files", ""] {
        all.push(("get_server_tools", json!({"server": server})));
        for more in [
            json!({"names": ["wipe_disk", "read_file", "read_secrets", "open_vault", "nothing"]}),
            json!({"pattern": "*i*"}),
            json!({"pattern": "wipe_*"}),
            json!({"max_schema_tokens": 0}),
            json!({"max_schema_tokens": 60}),
        ] {
            let mut arguments = more;
            arguments["server"] = json!(server);
            all.push(("get_server_tools", arguments));
        }
    }
    for query in [
        "wipe disk",
        "wipe_disk",
        "wipe",
        "wip",
        "wipr disk",
        "disk",
        "quietly",
        "whole",
        "target",
        "secret",
        "secrets file",
        "read",
        "file",
        "files folders",
        "folder",
        "open vault",
        "vault",
        "vaukt",
        "destroy",
        "look",
        "interact",
        "issue",
        "read secrets",
        "delete everything",
    ] {
        all.push(("search_tools", json!({ "query": query })));
    }
    for (server, tool) in [
        ("files", "wipe_disk"),
        ("files", "read_secrets"),
        ("files", "nothing"),
        ("vault", "open_vault"),
        ("vault", "nothing"),
        ("nowhere", "nothing"),
        ("toolward", "server_config"),
    ] {
        for args in [json!({}), json!({"path": "x", "action": "destroy"}), json!({"target": 1})] {
            all.push(("execute_tool", json!({"server": server, "tool": tool, "args": args})));
        }
    }
    all.push((
        "execute_tool",
        json!({"server": "files", "tool": "interact", "args": {"action": "destroy"}}),
    ));
    all.push(("execute_tool", json!({"server": "files", "tool": "interact", "args": {}})));
    all
}

/// A response without decision ids and the version of the policy, which always differ.
fn scrubbed(body: &[u8]) -> String {
    let mut text = String::from_utf8(body.to_vec()).unwrap();
    for (begin, end) in [
        ("decision_id\":\"", "\""),
        ("decision_id\\\":\\\"", "\\\""),
        ("Decision ", " ("),
        ("toolward explain ", ")"),
        ("\"policy\":\"", "\""),
        ("\\\"policy\\\":\\\"", "\\\""),
    ] {
        let mut rest = text.as_str();
        let mut out = String::new();
        while let Some(at) = rest.find(begin) {
            let (before, after) = rest.split_at(at + begin.len());
            out += before;
            out += "…";
            rest = &after[after.find(end).unwrap()..];
        }
        text = out + rest;
    }
    text
}

fn compare(progressive: bool) {
    let (with, without) = (gateway(true, progressive), gateway(false, progressive));
    // An agent that sees everything has been here before.
    for gate in [&with, &without] {
        gate.agent("b").list();
        own(&gate.agent("b"), "search_tools", json!({"query": "wipe disk vault"}));
    }
    let everything =
        found(&said(&own(&with.agent("b"), "search_tools", json!({"query": "wipe the disk"}))));
    assert_eq!(everything[0], "files/wipe_disk", "the test hides something that is there");
    let sessions = [with.agent("a").session(), without.agent("a").session()];
    let agents = [with.agent("a"), without.agent("a")];
    let same = |what: &str, answers: [super::wire::Reply; 2]| {
        let [one, other] = answers;
        assert_eq!(one.status, other.status, "{what}");
        assert_eq!(scrubbed(&one.body), scrubbed(&other.body), "{what}");
    };
    for (tool, arguments) in questions() {
        let params = json!({"name": format!("toolward__{tool}"), "arguments": arguments});
        let what = format!("{tool} {arguments}");
        let modern = agents
            .each_ref()
            .map(|agent| agent.modern_reply(json!("m"), "tools/call", params.clone()));
        same(&what, modern);
        let legacy = sessions
            .each_ref()
            .map(|session| session.post(&request(json!(7), "tools/call", params.clone())));
        same(&what, legacy);
    }
    for name in [
        "files__wipe_disk",
        "files__nothing",
        "vault__open_vault",
        "vault__x",
        "files__read_file2",
        "interact",
    ] {
        let params = json!({"name": name, "arguments": {"action": "destroy"}});
        same(
            name,
            agents
                .each_ref()
                .map(|agent| agent.modern_reply(json!("m"), "tools/call", params.clone())),
        );
        same(
            name,
            sessions
                .each_ref()
                .map(|session| session.post(&request(json!(7), "tools/call", params.clone()))),
        );
    }
    for path in ["/mcp", "/mcp/files", "/mcp/vault", "/mcp/toolward", "/mcp/nowhere"] {
        same(
            path,
            agents
                .each_ref()
                .map(|agent| agent.at(path).modern_reply(json!("m"), "tools/list", json!({}))),
        );
    }
    for gate in [&with, &without] {
        assert!(gate.calls("files").is_empty(), "nothing of this was called");
    }
    // For an agent that may see everything, the two differ: the queries would reveal it.
    let shown = questions().into_iter().filter(|(tool, _)| *tool != "execute_tool");
    let differ = shown.filter(|(tool, arguments)| {
        let params = json!({"name": format!("toolward__{tool}"), "arguments": arguments});
        let [one, other] = [&with, &without].map(|gate| {
            let reply = gate.agent("b").modern_reply(json!("m"), "tools/call", params.clone());
            scrubbed(&reply.body)
        });
        one != other
    });
    assert!(differ.count() > 25, "the questions do not ask for what is hidden");
    assert!(with.calls("vault").is_empty());
}

#[test]
fn in_direct_mode_hidden_is_nonexistent_to_the_byte() {
    compare(false);
}

#[test]
fn in_progressive_mode_hidden_is_nonexistent_to_the_byte() {
    compare(true);
}
