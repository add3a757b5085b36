//! The policy formats that the gateway was built for, from the configuration to what a client receives:
//! an allowlist in front of tools with actions, a plugin file with hidden and renamed tools, hints,
//! rules for agents with several servers at once, and policy from the environment.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "seeds/agents.rs"]
mod agents;
#[allow(dead_code)]
#[path = "program/audit_log.rs"]
mod audit_log;
#[allow(dead_code)]
#[path = "serve/harness.rs"]
mod harness;
#[allow(dead_code)]
#[path = "serve/wire.rs"]
mod wire;

use harness::*;
use serde_json::{Value, json};

const ALLOWLIST: &str = r#"
# What agents may do with the browser.
allowed_tools:
  - "OBSERVE.*"             # every mode; case does not matter
  - "generate.reproduction"
  - "interact.Navigate"
  - "interact.refresh"
"#;

/// Three tools whose action decides, and one without.
fn browser() -> Value {
    let tool = |name: &str, key: &str, actions: &[&str]| {
        let properties =
            json!({key: {"type": "string", "enum": actions}, "url": {"type": "string"}});
        let schema = json!({"type": "object", "properties": properties, "required": [key]});
        json!({"name": name, "description": "d", "inputSchema": schema})
    };
    json!([
        tool("observe", "what", &["errors", "network", "server_config"]),
        tool("generate", "action", &["reproduction", "test"]),
        tool("interact", "action", &["navigate", "execute_js", "refresh"]),
        {"name": "configure", "inputSchema": {"type": "object"}},
    ])
}

/// Writes a file next to the configuration.
fn with_file(setup: Setup, name: &str, text: &str) -> Setup {
    std::fs::write(setup.path(name), text).unwrap();
    setup
}

/// A layer from a file, in front of agents that have tokens and no rules of their own.
fn with_layer(setup: Setup, name: &str, text: &str, agents: &[&str]) -> Setup {
    let agents: serde_json::Map<String, Value> =
        agents.iter().map(|agent| (agent.to_string(), json!({}))).collect();
    with_file(setup, name, text).set("policies", json!([name])).agents(agents.into())
}

fn enum_of(tool: &Value, key: &str) -> Value {
    tool["inputSchema"]["properties"][key]["enum"].clone()
}

#[test]
fn an_allowlist_in_front_of_tools_with_actions() {
    for era in ["legacy", "modern"] {
        let gate =
            with_layer(setup().stdio("browser", era, browser()), "allow.yaml", ALLOWLIST, &["a"])
                .start();
        let one = gate.agent("a").at("/mcp/browser");
        let client: Box<dyn Caller> = match era {
            "legacy" => Box::new(one.session()),
            _ => Box::new(one),
        };
        let tools = client.tools();
        assert_eq!(client.list(), ["observe", "generate", "interact"]);
        // A tool that is allowed completely is as the server sent it; the others list the remaining
        // actions.
        assert_eq!(tools[0], browser()[0]);
        assert_eq!(enum_of(&tools[1], "action"), json!(["reproduction"]));
        assert_eq!(enum_of(&tools[2], "action"), json!(["navigate", "refresh"]));
        let mut whole = tools[2].clone();
        whole["inputSchema"]["properties"]["action"] =
            browser()[2]["inputSchema"]["properties"]["action"].clone();
        assert_eq!(whole, browser()[2]);

        for (tool, arguments) in [
            ("observe", json!({"what": "server_config"})),
            ("observe", json!({"what": "something new"})),
            ("generate", json!({"action": "reproduction"})),
            ("interact", json!({"action": "navigate", "url": "http://x"})),
            ("interact", json!({"action": "refresh"})),
        ] {
            assert_eq!(text(&client.call(tool, arguments)), format!("did {tool}"));
        }
        let passed = gate.calls("browser").len();

        let allowed =
            json!(["OBSERVE.*", "generate.reproduction", "interact.Navigate", "interact.refresh"]);
        let words = "is not permitted. Allowed: OBSERVE.*, generate.reproduction, \
                     interact.Navigate, interact.refresh";
        // The tool is listed, so the refusal is a result with the reason, the same each time.
        for (tool, action) in
            [("interact", "execute_js"), ("generate", "test"), ("interact", "new")]
        {
            let mut answers = Vec::new();
            for _ in 0..2 {
                let answer = client.call(tool, json!({"action": action}));
                let mut refused = gate.refusal(&answer);
                assert!(text(&answer).contains(&format!("{tool}.{action} is not permitted")));
                refused["decision_id"] = Value::Null;
                answers.push(refused);
            }
            let expected = json!({
                "error": "tool_not_allowed", "message": format!("{tool}.{action} {words}"),
                "tool": tool, "action": action, "allowed_tools": allowed, "retryable": false,
                "decision_id": null,
            });
            assert_eq!(answers, [expected.clone(), expected]);
        }
        // The tool is unlisted, so the refusal is a JSON-RPC error.
        let answer = client.call("configure", json!({}));
        assert_eq!(gate.refusal(&answer)["message"], format!("configure {words}"));
        assert_eq!(answer["error"]["code"], -32602);
        assert_eq!(gate.calls("browser").len(), passed, "nothing refused has reached the server");
    }
}

#[test]
fn an_allowlist_file_is_read_as_it_was_meant() {
    let start = |file: &str| {
        let setup = with_file(setup().stdio("browser", "legacy", browser()), "allow.yaml", file);
        let path = setup.path("allow.yaml").to_str().unwrap().to_string();
        setup.standard(&["--agent", "a", "--allowlist-config", &path])
    };
    let list = |file: &str| {
        let mut lines = start(file).ready();
        let answer = lines.ask(&request(json!(1), "tools/list", json!({})));
        let tools = answer["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    let all =
        ["observe", "generate", "interact", "configure"].map(|tool| format!("browser__{tool}"));
    assert_eq!(list(ALLOWLIST), all[..3]);
    assert_eq!(list("allowed_tools: [\"*\"]\n"), all);
    // An empty file, as it is before anyone wrote rules.
    assert_eq!(list("# nothing yet\n"), all);
    assert_eq!(list("allowed_tools: []\n"), [""; 0]);
    // A file that cannot be meant that way prevents the start, and the client gets the reason.
    for (wrong, why) in [
        ("allowed_tools: [observe\n", "allow.yaml"),
        ("allowed_tools: [\"observe.*\", \"!observe.logs\"]\n", "!observe.logs"),
        ("allowed_tols: [observe]\n", "allowed_tols"),
    ] {
        let mut lines = start(wrong);
        let answer = lines.ask(&initialize(LEGACY));
        assert!(answer["error"]["message"].as_str().unwrap().contains(why), "{answer}");
        assert_eq!(lines.close().0, 3);
    }
}

#[test]
fn a_plugin_file_hides_and_renames() {
    let plugin = r#"
plugins:
  middleware:
    files:
      - handler: "tool_manager"
        config:
          enabled: true
          priority: 50
          tools:
            - tool: "internal_read_file"
              display_name: "read_file"
              display_description: "Read file contents"
            - tool: "write_file"
            - tool: "list_directory"
"#;
    let files = json!([
        {"name": "internal_read_file", "description": "Secret", "annotations": {"title": "T"},
         "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}},
        {"name": "write_file"}, {"name": "delete_file"}, {"name": "list_directory"},
    ]);
    for era in ["legacy", "modern"] {
        let servers = setup().stdio("files", era, files.clone()).stdio("other", era, names(&["x"]));
        let gate = with_layer(servers, "plugin.yaml", plugin, &["a"]).start();
        let agent = gate.agent("a");
        let (all, one) = (agent.session(), agent.at("/mcp/files"));
        // The plugin applies to one server; the other is unchanged.
        let shown = ["files__read_file", "files__write_file", "files__list_directory", "other__x"];
        assert_eq!(all.list(), shown);
        assert_eq!(one.list(), ["read_file", "write_file", "list_directory"]);
        let mut renamed = files[0].clone();
        renamed["name"] = json!("read_file");
        renamed["description"] = json!("Read file contents");
        assert_eq!(one.tools()[0], renamed);
        assert_eq!(text(&one.call("read_file", json!({}))), "did internal_read_file");
        assert_eq!(text(&all.call("files__read_file", json!({}))), "did internal_read_file");
        for name in ["internal_read_file", "delete_file", "not_there"] {
            assert_eq!(gate.refusal(&one.call(name, json!({})))["tool"], name);
            gate.refusal(&all.call(&format!("files__{name}"), json!({})));
        }
        assert_eq!(gate.calls("files").len(), 2);
    }
    // For every server at once.
    let everywhere = plugin.replace("    files:", "    _global:");
    let servers = setup().stdio("files", "legacy", files).stdio("other", "legacy", names(&["x"]));
    let gate = with_layer(servers, "plugin.yaml", &everywhere, &["a"]).start();
    let shown = ["files__read_file", "files__write_file", "files__list_directory"];
    assert_eq!(gate.agent("a").list(), shown);
}

/// A tool with annotations, and one without.
fn hinted(name: &str, annotations: Value) -> Value {
    match annotations {
        Value::Null => json!({"name": name, "inputSchema": {"type": "object"}}),
        _ => json!({"name": name, "inputSchema": {"type": "object"}, "annotations": annotations}),
    }
}

#[test]
fn tools_are_allowed_by_their_annotations() {
    let reads = json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true});
    let annotated = json!([
        hinted("read_file", reads.clone()),
        hinted("write_file", json!({"readOnlyHint": false})),
        hinted("delete_file", json!({"destructiveHint": true})),
        hinted("claims", json!({"readOnlyHint": "true"})),
    ]);
    let plain = json!([hinted("read_file", Value::Null), hinted("shell", Value::Null)]);
    let list = "[chat]\ntools = [\"hint:read-only\", \"shell\"]\n";
    let start = |connect: fn(Setup, Value) -> Setup| {
        let servers = setup().stdio("files", "legacy", annotated.clone()).stdio(
            "plain",
            "modern",
            plain.clone(),
        );
        let servers = connect(servers, json!([hinted("look", json!({"readOnlyHint": true}))]));
        with_layer(servers, "tools.toml", list, &["a"]).start()
    };
    let gate = start(|setup, _| setup);
    let client = gate.agent("a").session();
    assert_eq!(client.list(), ["files__read_file", "plain__shell"]);
    assert_eq!(text(&client.call("plain__shell", json!({}))), "did shell");
    for name in ["files__write_file", "files__delete_file", "files__claims", "plain__read_file"] {
        let refused = gate.refusal(&client.call(name, json!({})));
        // A hint is not a callable name.
        let words = format!("{name} is not permitted. Allowed: shell, files__read_file");
        assert_eq!(refused["message"], words);
        assert_eq!(refused["allowed_tools"], json!(["hint:read-only", "shell"]));
    }
    // Another server is connected, and the policy does not need to change.
    let gate = start(|setup, tools| setup.stdio("new", "legacy", tools));
    assert_eq!(gate.agent("a").list(), ["files__read_file", "plain__shell", "new__look"]);
    // The operator's hints override a server without annotations, and one that is not trusted.
    let gate = start(|setup, _| {
        setup.with("plain", "hints", json!({"read_*": ["read-only"]})).with(
            "files",
            "trust_annotations",
            json!(false),
        )
    });
    assert_eq!(gate.agent("a").list(), ["plain__read_file", "plain__shell"]);
}

#[test]
fn read_only_mode_and_a_list_from_the_environment() {
    let tools = json!([
        hinted("gitHex.getRebasePlan", json!({"readOnlyHint": true})),
        hinted("gitHex.performRebase", Value::Null),
        hinted("gitHex.amendLastCommit", json!({"readOnlyHint": false})),
    ]);
    let cases = [
        ("TOOLWARD_READ_ONLY", "1", &["gitHex.getRebasePlan"][..], "gitHex.getRebasePlan"),
        (
            "TOOLWARD_ALLOWED_TOOLS",
            "gitHex.get*,gitHex.performRebase",
            &["gitHex.getRebasePlan", "gitHex.performRebase"],
            "gitHex.get*, gitHex.performRebase",
        ),
    ];
    for (variable, value, shown, allowed) in cases {
        let gate = setup()
            .stdio("hex", "legacy", tools.clone())
            .env(variable, value)
            .agents(json!({"a": {}}))
            .start();
        let client = gate.agent("a").at("/mcp/hex").session();
        assert_eq!(client.list(), shown);
        for name in shown {
            assert_eq!(text(&client.call(name, json!({}))), format!("did {name}"));
        }
        let answer = client.call("gitHex.amendLastCommit", json!({}));
        assert_eq!(answer["error"]["code"], -32602);
        let words = format!("gitHex.amendLastCommit is not permitted. Allowed: {allowed}");
        assert_eq!(gate.refusal(&answer)["message"], words);
        // Each call is in the audit log, with its outcome.
        let kinds: Vec<Value> =
            gate.records().iter().map(|record| record["kind"].clone()).collect();
        let of = |kind: &str| kinds.iter().filter(|one| *one == kind).count();
        assert_eq!((of("intent"), of("outcome"), of("refusal")), (shown.len(), shown.len(), 1));
    }
}
