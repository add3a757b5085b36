//! Each of the built-in tools, with both protocol versions, over HTTP and stdio.

use serde_json::{Value, json};

use super::harness::*;
use super::support::*;

/// The same queries for any client and protocol version.
fn answers(ask: &mut dyn FnMut(&str, Value) -> Value) {
    let servers = said(&ask("list_servers", json!({})));
    let expected = json!([
        {"name": "files", "description": "Files of the project", "tools": 4},
        {"name": "tracker", "tools": 3},
    ]);
    assert_eq!(servers, json!({"servers": expected}));

    let all = said(&ask("get_server_tools", json!({"server": "files"})));
    assert_eq!(found(&all), ["read_file", "write_file", "remove_file", "list_folder"]);
    assert_eq!(all["tools"][0], tool("read_file", "Reads a file as text.", "path"));
    let some = json!({"server": "files", "names": ["list_folder", "read_file", "nothing"]});
    let some = said(&ask("get_server_tools", some));
    assert_eq!(found(&some), ["read_file", "list_folder"]);
    assert_eq!(some["not_found"], json!(["nothing"]));
    let fits = said(&ask("get_server_tools", json!({"server": "files", "pattern": "*_FILE"})));
    assert_eq!(found(&fits), ["read_file", "write_file", "remove_file"]);

    let one = tool("read_file", "", "path")["inputSchema"].to_string().len();
    let short = said(&ask(
        "get_server_tools",
        json!({"server": "files", "max_schema_tokens": one / 4 + 3}),
    ));
    assert_eq!(found(&short).len(), 4);
    let with_schema = |tool: &&Value| tool.get("inputSchema").is_some();
    assert_eq!(short["tools"].as_array().unwrap().iter().filter(with_schema).count(), 1);
    assert_eq!(short["tools"][1]["description"], "Writes a file.");
    let left_out = short["schemas_left_out"].as_array().unwrap();
    assert_eq!(left_out.len(), 3);
    assert_eq!(left_out[0]["name"], "write_file");
    assert!(left_out[0]["schema_tokens"].as_u64().unwrap() >= one as u64 / 4);
    assert!(short["note"].as_str().unwrap().contains("request them by `names`"), "{short}");

    let hits = said(&ask("search_tools", json!({"query": "delete a file"})));
    assert_eq!(found(&hits)[0], "files/remove_file");
    assert_eq!(hits["tools"][0]["description"], "Deletes a file for good.");
    assert!(hits["tools"][0]["why"].as_str().unwrap().contains("`file` in its name"), "{hits}");
    assert!(hits["tools"][0].get("inputSchema").is_none());
    assert_eq!(found(&said(&ask("search_tools", json!({"query": "zzz"})))), [""; 0]);

    let config = said(&ask("server_config", json!({})));
    assert_eq!((&config["agent"], &config["read_only"]), (&json!("a"), &json!(false)));
    assert_eq!(config["allow"], json!(["files/*", "tracker/*", "toolward/*"]));
    assert_eq!((&config["layers"], &config["enforced"]), (&json!(["agents"]), &json!(true)));
    assert_eq!((&config["discovery"], &config["limits"]), (&json!("direct"), &json!([])));
    assert!(config["policy"].as_str().is_some_and(|version| version.len() > 8), "{config}");

    let call = json!({"server": "tracker", "tool": "get_issue", "args": {"number": "7"}});
    let answer = ask("execute_tool", call);
    assert_eq!(text(&answer), "did get_issue", "{answer}");
}

#[test]
fn every_tool_works_in_both_eras_and_at_both_addresses() {
    let gate = world().agents(everyone()).start();
    let a = gate.agent("a");
    answers(&mut |tool, arguments| own(&a, tool, arguments));
    let session = a.session();
    answers(&mut |tool, arguments| own(&session, tool, arguments));
    let at = a.at("/mcp/toolward");
    answers(&mut |tool, arguments| at.call(tool, arguments));
    let session = at.session_of(NEWEST_LEGACY);
    answers(&mut |tool, arguments| session.call(tool, arguments));
    let modern = own(&a, "list_servers", json!({}));
    assert_eq!(modern["result"]["resultType"], "complete");
    let legacy = own(&a.session(), "list_servers", json!({}));
    assert!(legacy["result"].get("resultType").is_none());
}

#[test]
fn every_tool_answers_over_stdio() {
    let mut lines = world().agents(everyone()).standard(&["--agent", "a"]).ready();
    answers(&mut |tool, arguments| {
        let params = json!({"name": format!("toolward__{tool}"), "arguments": arguments});
        lines.ask(&request(json!("x"), "tools/call", params))
    });
    answers(&mut |tool, arguments| {
        let params = json!({"name": format!("toolward__{tool}"), "arguments": arguments});
        lines.ask(&modern_body(json!("y"), "tools/call", params))
    });
}

#[test]
fn invalid_arguments_are_reported_and_not_forwarded() {
    let gate = world().agents(everyone()).start();
    let a = gate.agent("a");
    for (tool, arguments, expected) in [
        ("list_servers", json!({"x": 1}), "`x` is not an argument; this tool has none"),
        ("server_config", json!({"agent": "b"}), "`agent` is not an argument"),
        ("get_server_tools", json!({}), "`server` is missing"),
        (
            "get_server_tools",
            json!({"server": "nope"}),
            "there is no server `nope`; available: files, tracker",
        ),
        ("get_server_tools", json!({"server": "toolward"}), "there is no server `toolward`"),
        (
            "get_server_tools",
            json!({"server": "files", "names": "x"}),
            "`names` must be a list of strings",
        ),
        (
            "get_server_tools",
            json!({"server": "files", "max_schema_tokens": -1}),
            "`max_schema_tokens` must be",
        ),
        (
            "get_server_tools",
            json!({"server": "files", "pattern": "*".repeat(2000)}),
            "`pattern` has more than",
        ),
        ("search_tools", json!({}), "`query` is missing"),
        ("search_tools", json!({"query": ["x"]}), "`query` must be a string"),
        ("search_tools", json!({"query": "x".repeat(2000)}), "`query` has more than"),
        (
            "execute_tool",
            json!({"server": "files", "tool": "read_file", "args": []}),
            "`args` must be an object",
        ),
        (
            "execute_tool",
            json!({"server": "files/x", "tool": "y"}),
            "`server` must be a server's name",
        ),
        (
            "execute_tool",
            json!({"server": "files", "tool": "read_file", "arguments": {}}),
            "`arguments` is not an argument; the arguments are `server`, `tool`, `args`",
        ),
    ] {
        let said = wrong(&own(&a, tool, arguments.clone()));
        assert!(said.starts_with(expected), "{tool} {arguments}: {said}");
    }
    assert!(gate.calls("files").is_empty() && gate.calls("tracker").is_empty());
    let outcomes = records(&gate, "outcome");
    assert_eq!(outcomes.len(), 14);
    assert!(outcomes.iter().all(|outcome| outcome["outcome"] == "tool-error"), "{outcomes:?}");
}

#[test]
fn renamed_and_unexposed_tools_are_found_as_their_server_would_list_them() {
    let expose = json!([
        {"tool": "read_file", "display_name": "open", "display_description": "Opens a document."},
        "list_*",
    ]);
    let gate = world().with("files", "expose", expose).agents(everyone()).start();
    let a = gate.agent("a");
    let all = said(&own(&a, "get_server_tools", json!({"server": "files"})));
    assert_eq!(found(&all), ["open", "list_folder"]);
    let direct = a.at("/mcp/files").tools();
    assert_eq!(all["tools"].as_array().unwrap(), &direct);
    assert_eq!(
        found(&said(&own(&a, "search_tools", json!({"query": "document"})))),
        ["files/open"]
    );
    for gone in ["delete file", "write", "text"] {
        let hits = found(&said(&own(&a, "search_tools", json!({ "query": gone }))));
        assert!(hits.iter().all(|hit| !hit.contains("_file")), "{gone}: {hits:?}");
    }
    assert_eq!(text(&execute(&a, "files", "open", json!({}))), "did read_file");
    assert_eq!(gate.calls("files")[0]["params"]["name"], "read_file");
    for hidden in ["read_file", "write_file", "remove_file"] {
        gate.refusal(&execute(&a, "files", hidden, json!({})));
    }
    assert_eq!(gate.calls("files").len(), 1);
}

#[test]
fn a_server_that_is_down_is_named_and_the_others_are_searched() {
    let gate =
        world().server("gone", json!({"url": "http://127.0.0.1:9/mcp"})).agents(everyone()).start();
    let a = gate.agent("a");
    let servers = said(&own(&a, "list_servers", json!({})));
    assert_eq!(servers["servers"][2]["name"], "gone");
    assert!(servers["servers"][2]["unavailable"].is_string(), "{servers}");
    let hits = said(&own(&a, "search_tools", json!({"query": "issue"})));
    assert_eq!(hits["not_searched"], json!(["gone"]));
    assert_eq!(found(&hits).len(), 2);
    let said = wrong(&own(&a, "get_server_tools", json!({"server": "gone"})));
    assert_eq!(said, "gone: it cannot be reached now");
    let answer = execute(&a, "gone", "anything", json!({}));
    let direct = a.call("gone__anything", json!({}));
    assert_eq!(answer["error"]["data"]["error"], "server_unavailable", "{answer}");
    assert_eq!(answer["error"], direct["error"]);
}
