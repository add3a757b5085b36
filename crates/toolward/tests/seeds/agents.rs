//! Rules for agents, in front of several servers at once.

use serde_json::{Value, json};

use super::harness::*;
use super::with_layer;

const SERVERS: [(&str, &[&str]); 8] = [
    ("notion", &["search", "create_page"]),
    (
        "playwright",
        &[
            "browser_click",
            "browser_close",
            "browser_console",
            "browser_drag",
            "browser_evaluate",
            "browser_upload",
            "browser_fill",
            "browser_dialog",
            "browser_hover",
            "browser_install",
            "browser_navigate",
            "browser_back",
            "browser_network",
            "browser_key",
            "browser_resize",
            "browser_code",
            "browser_select",
            "browser_snapshot",
            "browser_tabs",
            "browser_wait",
            "browser_type",
        ],
    ),
    ("brave-search", &["brave_web_search", "brave_local_search"]),
    ("github", &["get_issue", "create_issue"]),
    ("postgres", &["query", "list_tables", "drop_table", "delete_rows", "insert_row"]),
    ("filesystem", &["read_file", "list_directory", "write_file", "delete_file"]),
    ("context7", &["resolve", "docs"]),
    ("db", &["delete_user", "delete_data", "delete_other", "get_user", "insert_user"]),
];

/// The agents of the examples.
fn rules() -> Value {
    json!({
        "agents": {
            "full": {"allow": {"servers": ["*"]}},
            "narrowed": {
                "allow": {"servers": ["*"], "tools": {"brave-search": ["brave_web_search"]}}},
            "mixed": {
                "allow": {"servers": ["*"], "tools": {"brave-search": ["brave_web_search"]}},
                "deny": {"servers": ["notion"], "tools": {"playwright": ["browser_type"]}}},
            "guarded": {
                "allow": {"servers": ["*"]},
                "deny": {"tools": {
                    "playwright": ["browser_type"], "postgres": ["drop_*", "delete_*"]}}},
            "backend": {
                "allow": {"servers": ["postgres", "filesystem"], "tools": {
                    "postgres": ["query", "list_*"], "filesystem": ["read_*", "list_*"]}},
                "deny": {"tools": {
                    "postgres": ["drop_*", "delete_*"], "filesystem": ["write_*", "delete_*"]}}},
            "careful": {
                "allow": {"servers": ["db"], "tools": {
                    "db": ["delete_user", "delete_data", "get_user"]}},
                "deny": {"tools": {"db": ["delete_*"]}}},
            "default": {"allow": {"servers": ["context7"]}},
        },
        "defaults": {"deny_on_missing_agent": false},
    })
}

/// The same as code.
fn may(agent: &str, server: &str, tool: &str) -> bool {
    let is = |names: &[&str]| names.contains(&tool);
    match (agent, server) {
        ("full", _) => true,
        ("narrowed" | "mixed", "brave-search") => is(&["brave_web_search"]),
        ("mixed", "notion") => false,
        ("mixed" | "guarded", "playwright") => !is(&["browser_type"]),
        ("guarded", "postgres") => !is(&["drop_table", "delete_rows"]),
        ("narrowed" | "mixed" | "guarded", _) => true,
        ("backend", "postgres") => is(&["query", "list_tables"]),
        ("backend", "filesystem") => is(&["read_file", "list_directory"]),
        ("careful", "db") => is(&["get_user"]),
        ("stranger", "context7") => true,
        _ => false,
    }
}

const AGENTS: [&str; 7] =
    ["full", "narrowed", "mixed", "guarded", "backend", "careful", "stranger"];

fn company(rules: &Value) -> Gate {
    let servers = SERVERS.iter().enumerate().fold(setup(), |setup, (at, (server, tools))| {
        let era = ["legacy", "modern"][at % 2];
        setup.stdio(server, era, names(tools)).with(server, "share", json!(true))
    });
    let servers = servers.server("gone", json!({"command": "/nonexistent/server"}));
    let servers = servers.set("list_timeout", json!("20s"));
    with_layer(servers, "rules.json", &rules.to_string(), &AGENTS).start()
}

#[test]
fn rules_for_agents_with_several_servers_at_once() {
    let gate = company(&rules());
    let all: Vec<(&str, &str)> = SERVERS
        .iter()
        .flat_map(|(server, tools)| tools.iter().map(move |tool| (*server, *tool)))
        .collect();
    let mut calls = 0;
    for (at, agent) in AGENTS.into_iter().enumerate() {
        let modern = gate.agent(agent);
        let session = modern.session();
        let client: &dyn Caller = if at % 2 == 0 { &session } else { &modern };
        let named = |(server, tool): &(&str, &str)| format!("{server}__{tool}");
        let mine = |(server, tool): &&(&str, &str)| may(agent, server, tool);
        let expected: Vec<String> = all.iter().filter(mine).map(named).collect();
        assert_eq!(session.list(), expected, "{agent}");
        assert_eq!(modern.list(), expected, "{agent}");
        for entry @ (server, tool) in &all {
            let answer = client.call(&named(entry), json!({}));
            if may(agent, server, tool) {
                assert_eq!(text(&answer), format!("did {tool}"), "{agent}: {server}");
                calls += 1;
            } else {
                assert_eq!(answer["error"]["code"], -32602, "{agent}: {server} {tool}");
                gate.refusal(&answer);
            }
        }
        // Each server at its own address; a server that an agent may not use does not exist.
        for (server, tools) in SERVERS {
            let at = modern.at(&format!("/mcp/{server}"));
            let own: Vec<&str> =
                tools.iter().copied().filter(|tool| may(agent, server, tool)).collect();
            match own.is_empty() {
                true => assert_eq!(at.modern_reply(json!(1), "tools/list", json!({})).status, 404),
                false => assert_eq!(at.list(), own, "{agent}: {server}"),
            }
        }
    }
    let reached: usize = SERVERS.iter().map(|(server, _)| gate.calls(server).len()).sum();
    assert_eq!(reached, calls);
    let count = |agent: &str, server: &str| {
        let tools = gate.agent(agent).list();
        tools.iter().filter(|tool| tool.starts_with(server)).count()
    };
    assert_eq!((count("mixed", "playwright"), count("mixed", "brave-search")), (20, 1));

    // An allowed server that is down is unavailable, which is not a policy decision; for other agents
    // it does not exist.
    let answer = gate.agent("full").call("gone__tool", json!({}));
    assert_eq!(answer["error"]["code"], -32603);
    assert_eq!(answer["error"]["data"]["error"], "server_unavailable");
    let refused = gate.refusal(&gate.agent("backend").call("gone__tool", json!({})));
    let allowed = ["postgres/query", "postgres/list_*", "filesystem/read_*", "filesystem/list_*"];
    assert_eq!(refused["allowed_tools"], json!(allowed));
    let message = refused["message"].as_str().unwrap();
    let named = message.strip_prefix("gone__tool is not permitted. Allowed: ").unwrap();
    let listed = gate.agent("backend").list();
    let named: Vec<&str> = named.split(" (").next().unwrap().split(", ").collect();
    assert!(named.iter().all(|name| listed.iter().any(|tool| tool == name)), "{message}");
}

#[test]
fn an_unknown_agent_gets_nothing_unless_the_rules_allow_it() {
    for missing in [json!({"deny_on_missing_agent": true}), Value::Null] {
        let mut rules = rules();
        match missing {
            Value::Null => drop(rules.as_object_mut().unwrap().remove("defaults")),
            missing => rules["defaults"] = missing,
        }
        let gate = company(&rules);
        let stranger = gate.agent("stranger");
        assert_eq!(stranger.list(), [""; 0]);
        let refused = gate.refusal(&stranger.call("context7__docs", json!({})));
        assert_eq!(refused["message"], "context7__docs is not permitted. Allowed: nothing");
        assert_eq!(gate.agent("careful").list(), ["db__get_user"]);
    }
}
