//! Views of agents over several servers: listings, calls and refusals.

use serde_json::{Value, json};

use super::harness::*;

/// A client of a protocol version at an endpoint.
fn client(gate: &Gate, era: &str, agent: &str, path: &str) -> Box<dyn Caller> {
    let agent = gate.agent(agent).at(path);
    match era {
        "modern" => Box::new(agent),
        _ => Box::new(agent.session()),
    }
}

fn several(era: &str) -> Gate {
    let files = json!([
        {"name": "read", "annotations": {"readOnlyHint": true}, "x-own": {"kept": 1.0}},
        {"name": "write", "inputSchema": {"type": "object"}},
        {"name": "claims", "annotations": {"readOnlyHint": "yes"}},
        {"name": "interact", "inputSchema": {
            "type": "object", "properties": {"action": {"enum": ["navigate", "run"]}, "url": {}}}},
    ]);
    let web = json!([
        {"name": "internal", "description": "Secret words"}, {"name": "list_all"}, {"name": "other"},
    ]);
    setup()
        .stdio("files", era, files)
        .stdio("notes", era, names(&["get", "drop_all", "drop_one"]))
        .web("web", era, web)
        .stdio("secret", era, names(&["thing"]))
        .with(
            "web",
            "expose",
            json!([{"tool": "internal", "display_name": "shown", "display_description": "Nice"}, "list_*"]),
        )
        .agents(json!({
            "a": {
                "allow": {
                    "servers": ["files", "notes", "web"],
                    "tools": {"files": ["hint:read-only", "interact.navigate"]},
                },
                "deny": {"tools": {"notes": ["drop_*"]}},
            },
            "b": {
                "allow": {"servers": ["*"], "tools": {"files": ["*"], "notes": ["drop_one", "get"]}},
                "deny": {"servers": ["secret", "w*"], "tools": {"*": ["read"], "notes": ["drop_*"]}},
            },
            "c": {},
        }))
        .start()
}

fn every_agent_has_its_own_view(era: &str) {
    let gate = several(era);
    let a = client(&gate, era, "a", "/mcp");
    let answer = a.ask("tools/list", json!({}));
    if era == "modern" {
        assert_eq!(answer["result"]["resultType"], "complete");
        assert_eq!(answer["result"]["cacheScope"], "private");
        assert!(answer["result"]["ttlMs"].as_u64().unwrap() <= 5000);
    } else {
        for member in ["resultType", "cacheScope", "ttlMs"] {
            assert!(answer["result"].get(member).is_none(), "{answer}");
        }
    }
    let outcomes = answer["result"]["_meta"]["io.toolward/servers"].as_object().unwrap();
    assert_eq!(outcomes.keys().collect::<Vec<_>>(), ["files", "notes", "web"]);

    // The order is that of the configuration, then of each server.
    let own = ["files__read", "files__interact", "notes__get", "web__shown", "web__list_all"];
    assert_eq!(a.list(), own);
    let tools = a.tools();
    assert_eq!(tools[0]["x-own"], json!({"kept": 1.0}));
    assert_eq!(tools[1]["inputSchema"]["properties"]["action"]["enum"], json!(["navigate"]));
    assert_eq!(tools[3]["description"], "Nice");
    assert!(!json!(tools).to_string().contains("Secret words"));
    let b = client(&gate, era, "b", "/mcp");
    assert_eq!(b.list(), ["files__write", "files__claims", "files__interact", "notes__get"]);
    assert_eq!(client(&gate, era, "c", "/mcp").list(), Vec::<String>::new());

    // A listed tool is callable under its listed name.
    for name in ["files__read", "notes__get", "web__shown", "web__list_all"] {
        let original = name.split("__").nth(1).unwrap().replace("shown", "internal");
        assert_eq!(text(&a.call(name, json!({}))), format!("did {original}"));
    }
    assert_eq!(text(&a.call("files__interact", json!({"action": "navigate"}))), "did interact");
    assert_eq!(text(&b.call("files__write", json!({}))), "did write");
    assert_eq!(text(&b.call("files__interact", json!({"action": "run"}))), "did interact");

    // At a server's own address, names are unchanged.
    let one = client(&gate, era, "a", "/mcp/files");
    assert_eq!(one.list(), ["read", "interact"]);
    assert_eq!(text(&one.call("read", json!({}))), "did read");
    let web = client(&gate, era, "a", "/mcp/web");
    assert_eq!(web.list(), ["shown", "list_all"]);
    assert_eq!(text(&web.call("shown", json!({}))), "did internal");

    let before: Vec<usize> =
        ["files", "notes", "web", "secret"].iter().map(|s| gate.calls(s).len()).collect();
    // Unlisted tools, for any reason.
    for name in [
        "files__write",
        "files__claims",
        "notes__drop_all",
        "web__internal",
        "web__other",
        "secret__thing",
        "read",
        "files/read",
        "files__read ",
        "FILES__read",
        "files__Read",
        "",
    ] {
        let refused = gate.refusal(&a.call(name, json!({})));
        assert_eq!(refused["tool"], name);
        assert!(refused.get("action").is_none());
    }
    for name in ["files__read", "write", "internal", "shown "] {
        gate.refusal(&web.call(name, json!({})));
    }
    gate.refusal(&b.call("files__read", json!({})));
    gate.refusal(&b.call("notes__drop_one", json!({})));
    gate.refusal(&b.call("web__shown", json!({})));
    let nothing = gate.refusal(&client(&gate, era, "c", "/mcp").call("files__read", json!({})));
    assert_eq!(nothing["message"], "files__read is not permitted. Allowed: nothing");
    assert_eq!(nothing["allowed_tools"], json!([]));

    // The complete refusal, for an unlisted and a listed tool.
    let answer = a.call("files__write", json!({"what": "x", "action": "y"}));
    let refused = gate.refusal(&answer);
    let allowed = json!(["files/hint:read-only", "files/interact.navigate", "notes/*", "web/*"]);
    // Tools that can be called instead, the most similar first.
    let words = "files__write.x is not permitted. Allowed: files__read, \
                 files__interact.navigate, notes__get, web__shown, web__list_all";
    let expected = json!({
        "error": "tool_not_allowed", "message": words, "tool": "files__write", "action": "x",
        "allowed_tools": allowed, "retryable": false, "decision_id": refused["decision_id"],
    });
    assert_eq!(answer["error"], json!({"code": -32602, "message": words, "data": expected}));
    for arguments in
        [json!({"action": "run"}), json!({}), json!({"action": 1}), json!({"Action": "navigate"})]
    {
        let answer = a.call("files__interact", arguments.clone());
        let refused = gate.refusal(&answer);
        assert!(answer["result"].is_object(), "{answer}");
        assert_eq!(refused["allowed_tools"], allowed);
        assert_eq!(refused.get("action"), arguments.get("action").filter(|one| one.is_string()));
        assert!(text(&answer).contains("is not permitted"));
        if era == "modern" {
            assert_eq!(answer["result"]["resultType"], "complete");
        }
    }
    let after: Vec<usize> =
        ["files", "notes", "web", "secret"].iter().map(|s| gate.calls(s).len()).collect();
    assert_eq!(before, after, "nothing that was refused reaches a server");
    assert!(gate.log("secret").is_empty(), "a server that no agent may use is not started");
    let kinds = gate.records();
    let of = |kind: &str| kinds.iter().filter(|record| record["kind"] == kind).count();
    assert_eq!(of("intent"), of("outcome"));
    assert_eq!(of("intent"), before.iter().sum::<usize>());
}

#[test]
fn every_agent_has_its_own_view_legacy() {
    every_agent_has_its_own_view("legacy");
}

#[test]
fn every_agent_has_its_own_view_modern() {
    every_agent_has_its_own_view("modern");
}

/// A response without the parts that may differ.
fn plain(answer: &Value, name: &str) -> String {
    let data = answer["error"]["data"]["decision_id"].as_str().unwrap();
    answer.to_string().replace(data, "DECISION").replace(name, "NAME")
}

#[test]
fn hidden_and_nonexistent_are_alike_to_the_byte() {
    for era in ["legacy", "modern"] {
        let gate = several(era);
        let a = gate.agent("a");
        let on = |path: &str, name: &str| {
            let client = client(&gate, era, "a", path);
            plain(&client.call(name, json!({"action": "go"})), name)
        };
        assert_eq!(on("/mcp", "files__write"), on("/mcp", "files__wrote"));
        assert_eq!(on("/mcp", "secret__thing"), on("/mcp", "secret__other"));
        assert_eq!(on("/mcp/files", "write"), on("/mcp/files", "wrote"));

        // Paths: the address of a forbidden server does not exist.
        let body = modern_body(json!(1), "tools/list", json!({})).to_string();
        let begin = initialize(LEGACY).to_string();
        let terms = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/list")];
        let stranger = gate.nobody();
        for (method, headers, body) in [
            ("POST", &terms[..], body.as_str()),
            ("POST", &[], begin.as_str()),
            ("POST", &[], "not json"),
            ("POST", &[("Content-Type", "text/plain")], "x"),
            ("GET", &[("Mcp-Session-Id", "x")], ""),
            ("GET", &[], ""),
            ("DELETE", &[], ""),
            ("PUT", &[], ""),
        ] {
            for agent in [&a, &stranger] {
                let forbidden = agent.at("/mcp/secret").send(method, headers, body);
                let missing = agent.at("/mcp/absent").send(method, headers, body);
                assert_eq!(format!("{forbidden:?}"), format!("{missing:?}"));
                let expected = if agent.token.is_some() { 404 } else { 401 };
                assert_eq!(forbidden.status, expected, "{method} {headers:?}");
            }
        }
        assert!(gate.log("secret").is_empty());
    }
}

/// The same agent with hidden tools, and without them.
fn two_worlds(rules: Value, allowlist: Option<Value>) -> [Gate; 2] {
    [true, false].map(|hidden| {
        let those = |all: &[&str], shown: &[&str]| names(if hidden { all } else { shown });
        let mut setup = setup()
            .stdio(
                "files",
                "modern",
                those(&["read", "read_secret", "write", "list"], &["read", "list"]),
            )
            .stdio("notes", "modern", those(&["get", "drop_all"], &["get"]))
            .agents(json!({"a": rules.clone()}))
            .set("message", json!("Ask Ann."));
        if hidden {
            setup = setup.stdio("secret", "modern", names(&["thing"]));
        }
        if let Some(list) = &allowlist {
            setup = setup.set("allowed_tools", list.clone());
        }
        setup.start()
    })
}

#[test]
fn a_refusal_is_the_same_whether_or_not_the_tool_exists() {
    let rules = json!({
        "allow": {"servers": ["files", "notes"], "tools": {"files": [
            "list", "read*",
            {"tool": "write", "when": "agent == 'b'", "message": "Ask Bob."},
        ]}},
        "deny": {"tools": {"files": [{"tool": "read_secret", "message": "Ask Cid."}], "notes": ["drop_*"]}},
    });
    let list = json!(["read", "list", "get", {"tool": "write", "when": "agent == 'b'", "message": "Ask Bob."}]);
    for (rules, allowlist) in
        [(rules.clone(), None), (json!({}), Some(list.clone())), (rules, Some(list))]
    {
        let worlds = two_worlds(rules, allowlist);
        let shown = worlds.each_ref().map(|gate| gate.agent("a").list());
        assert_eq!(shown[0], shown[1]);
        // Also names that are similar to hidden ones.
        for name in [
            "files__write",
            "files__wrote",
            "files__read_secret",
            "files__read_secre",
            "read_secret",
            "notes__drop_all",
            "notes__drop_al",
            "secret__thing",
            "secret__thin",
            "thing",
            "x",
            "",
        ] {
            for arguments in [json!({}), json!({"action": "go", "path": "/"})] {
                let [one, other] = worlds.each_ref().map(|gate| {
                    let answer = gate.agent("a").call(name, arguments.clone());
                    gate.refusal(&answer);
                    let id = answer["error"]["data"]["decision_id"].as_str().unwrap();
                    answer.to_string().replace(id, "DECISION")
                });
                assert_eq!(one, other, "{name}");
                assert!(
                    one.contains("Ask Ann.")
                        && !one.contains("Ask Bob")
                        && !one.contains("Ask Cid")
                );
                assert!(!one.replace(&format!("\"{name}"), "").contains("secret"), "{one}");
            }
        }
        let [one, other] =
            worlds.each_ref().map(|gate| gate.agent("a").at("/mcp/files").call("write", json!({})));
        let text = |answer: &Value| answer["error"]["message"].as_str().unwrap().to_string();
        assert_eq!(text(&one), text(&other));
    }
}

#[test]
fn a_refused_action_is_named_by_the_servers_own_action_keys() {
    let gate = setup()
        .stdio("files", "modern", names(&["manage", "hidden"]))
        .with("files", "action_keys", json!(["operation"]))
        .agents(json!({"a": {"allow": {"servers": ["*"], "tools": {"files": ["manage.list"]}}}}))
        .start();
    let a = gate.agent("a");
    let answer = a.call("files__manage", json!({"operation": "drop", "action": "list"}));
    let data = gate.refusal(&answer);
    assert_eq!(data["action"], "drop");
    let words = "files__manage.drop is not permitted. Allowed: files__manage.list\n\
                 You sent operation = \"drop\". Allowed values of operation: list. ";
    assert!(text(&answer).starts_with(words), "{answer}");
    let record = gate.records().into_iter().find(|one| one["id"] == data["decision_id"]).unwrap();
    assert_eq!(record["action"], "drop");
    // An unlisted name does not reveal which action keys its server has.
    let [hidden, gone] = ["files__hidden", "files__gone"].map(|name| {
        let answer = a.call(name, json!({"operation": "drop"}));
        answer["error"]["message"].as_str().unwrap().replace(name, "NAME")
    });
    assert_eq!(hidden, gone);
    assert!(!hidden.contains("drop"), "{hidden}");
}

#[test]
fn a_refusal_has_the_same_reason_as_the_log() {
    let gate = setup()
        .stdio("files", "modern", names(&["write", "read"]))
        .agents(json!({"a": {
            "message": "Ask Ann.",
            "allow": {"servers": ["*"], "tools": {"files": ["read", {
                "tool": "write",
                "when": "args.path.startsWith(\"drafts/\") && args.token != \"\"",
            }]}},
        }}))
        .start();
    let a = gate.agent("a");
    let arguments = json!({"path": "b.txt", "token": "hunter2-hunter2"});
    let answer = a.call("files__write", arguments.clone());
    let data = gate.refusal(&answer);
    let id = data["decision_id"].as_str().unwrap();
    let head = "files__write is not permitted with these arguments: it is allowed only when \
                args.path.startsWith(\"drafts/\") && args.token != \"\".";
    let told = |path: &str, token: &str| {
        format!(
            "{head}\nYou sent path = {path}, token = {token}. Repeating the same call will not help.\n\
             Ask Ann.\nDecision {id} (a person can run: toolward explain {id})"
        )
    };
    assert_eq!(text(&answer), told("\"b.txt\"", "\"[redacted]\""));
    assert_eq!(answer["result"]["isError"], true);
    assert!(answer["result"].get("structuredContent").is_none());
    assert_eq!(data["message"], format!("{head}\nAsk Ann."));
    assert_eq!(data["allowed_tools"], json!(["files/read", "files/write"]));
    // No path of a policy file reaches the agent.
    assert!(!answer.to_string().contains("toolward.yaml"), "{answer}");
    // Arguments are not logged unless the configuration asks for it.
    let record = gate.records().into_iter().find(|record| record["id"] == id).unwrap();
    assert_eq!(record["refusal"], told("[not recorded]", "[not recorded]"));
    let reason = record["reason"].as_str().unwrap();
    let condition = "args.path.startsWith(\"drafts/\") && args.token != \"\"";
    assert!(
        reason.starts_with(&format!(
            "`files/write` is allowed only when `{condition}`, which is false"
        )),
        "{reason}"
    );
    assert!(!record.to_string().contains("b.txt") && !record.to_string().contains("hunter2"));

    let answer = a.call("files__write", json!({}));
    gate.refusal(&answer);
    assert!(text(&answer).contains(" (path and token are missing)."), "{answer}");
}

#[test]
fn reasons_can_be_hidden_from_an_agent() {
    let rules = json!({"allow": {"servers": ["*"], "tools": {"files": [
        "read", {"tool": "write", "when": "args.path == 'a'", "message": "Ask Bob."}]}}});
    let mut silent = rules.clone();
    silent["explain_to_agent"] = json!(false);
    let gate = setup()
        .stdio("files", "modern", names(&["write", "read"]))
        .agents(json!({"silent": silent, "told": rules}))
        .start();
    let silent = gate.agent("silent");
    let answer = silent.call("files__write", json!({"path": "b"}));
    let data = gate.refusal(&answer);
    assert!(text(&answer).starts_with("files__write is not permitted\nRepeating"), "{answer}");
    assert!(
        data.get("allowed_tools").is_none() && !answer.to_string().contains("args."),
        "{answer}"
    );
    let answer = silent.call("files__gone", json!({}));
    let data = gate.refusal(&answer);
    assert_eq!(data["message"], "files__gone is not permitted");
    assert!(data.get("allowed_tools").is_none());
    // The log has the reason.
    let records = gate.records();
    assert!(records.iter().any(|record| record["reason"].to_string().contains("args.path")));
    let told = gate.refusal(&gate.agent("told").call("files__gone", json!({})));
    assert_eq!(told["message"], "files__gone is not permitted. Allowed: files__write, files__read");
}

fn a_dead_server_does_not_blank_the_list(era: &str) {
    let gate = setup()
        .server("gone", json!({"command": "/nonexistent/server"}))
        .stdio("ok", era, names(&["a", "crash"]))
        .server("closed", json!({"url": "http://127.0.0.1:1/mcp"}))
        .server("mute", json!({"command": "sleep", "args": ["30"]}))
        .set("list_timeout", json!("1500ms"))
        .agents(json!({
            "a": {"allow": {"servers": ["*"]}},
            "b": {"allow": {"servers": ["ok", "gone"], "tools": {"gone": ["x"]}}},
        }))
        .start();
    let a = client(&gate, era, "a", "/mcp");
    // On a busy machine, a working server may need longer to start than a listing waits.
    let answer = eventually("the server that works has listed its tools", || {
        let answer = a.ask("tools/list", json!({}));
        (answer["result"]["_meta"]["io.toolward/servers"]["ok"] == "ok").then_some(answer)
    });
    let tools: Vec<&str> = answer["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(tools, ["ok__a", "ok__crash"]);
    let outcomes = &answer["result"]["_meta"]["io.toolward/servers"];
    for dead in ["gone", "closed", "mute"] {
        assert!(outcomes[dead].is_string() && outcomes[dead] != "ok", "{outcomes}");
        let answer = a.call(&format!("{dead}__x"), json!({}));
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        assert_eq!(answer["error"]["data"]["error"], "server_unavailable", "{answer}");
        // A command that does not exist is unavailable a moment later too.
        assert_eq!(answer["error"]["data"]["retryable"], dead != "gone", "{answer}");
        let records = gate.records();
        let last = records.last().unwrap();
        assert_eq!(last["exposed_name"], format!("{dead}__x"), "{last}");
        assert!(last["outcome"].is_string(), "{last}");
    }
    assert_eq!(text(&a.call("ok__a", json!({}))), "did a");
    let b = client(&gate, era, "b", "/mcp").ask("tools/list", json!({}));
    let outcomes = b["result"]["_meta"]["io.toolward/servers"].as_object().unwrap();
    assert_eq!(outcomes.keys().collect::<Vec<_>>(), ["gone", "ok"]);
    let one = gate.agent("a").at("/mcp/gone").modern("tools/list", json!({}));
    assert_eq!(one["error"]["code"], -32603);
}

#[test]
fn a_dead_server_does_not_blank_the_list_legacy() {
    a_dead_server_does_not_blank_the_list("legacy");
}

#[test]
fn a_dead_server_does_not_blank_the_list_modern() {
    a_dead_server_does_not_blank_the_list("modern");
}

#[test]
fn a_stale_list_decides_nothing() {
    let read = json!({"readOnlyHint": true});
    let tools = json!([{"name": "t", "annotations": read}, {"name": "flip", "annotations": read}]);
    let gate = setup()
        .stdio("files", "modern", tools)
        .with("files", "env", json!({"TTL": "0"}))
        .agents(json!({"a": {"allow": {"servers": ["*"], "tools": {"files": ["hint:read-only"]}}}}))
        .start();
    let a = gate.agent("a");
    assert_eq!(a.list(), ["files__t", "files__flip"]);
    assert_eq!(text(&a.call("files__t", json!({}))), "did t");
    let destructive = json!({"tool": "t", "annotations": {"destructiveHint": true}});
    assert_eq!(text(&a.call("files__flip", destructive)), "flipped");
    // The server's list may change at any time; the gateway may cache it for a moment.
    eventually("the stale list no longer decides", || {
        a.call("files__t", json!({}))["error"]["code"] == -32602
    });
    assert_eq!(a.list(), ["files__flip"]);
}

#[test]
fn the_first_response_to_a_client() {
    let gate = setup()
        .stdio("old", "legacy", names(&["a"]))
        .stdio("new", "modern", names(&["a", "cached"]))
        .agents(everyone())
        .start();
    let a = gate.agent("a");
    let hello = a.session().hello;
    assert_eq!(hello["serverInfo"]["name"], "toolward");
    let changes = json!({"listChanged": true});
    let all = json!({
        "tools": changes, "prompts": changes, "resources": {"listChanged": true, "subscribe": true},
        "completions": {}, "logging": {},
    });
    assert_eq!(hello["capabilities"], all);
    assert!(gate.log("old").is_empty(), "`initialize` on /mcp never waits for servers");
    let hello = a.at("/mcp/old").heard(|hello| hello["instructions"] == "Be careful.").hello;
    assert_eq!(hello["serverInfo"]["name"], "scripted");
    assert_eq!(hello["capabilities"]["tools"], changes);
    assert!(hello["capabilities"].get("resources").is_none(), "it has none");

    let found = a.modern("server/discover", json!({}))["result"].clone();
    assert_eq!(found["supportedVersions"], json!([MODERN]));
    assert_eq!(found["resultType"], "complete");
    assert_eq!(found["cacheScope"], "private");
    assert!(found["capabilities"]["tools"].is_object());
    let found = a.at("/mcp/new").modern("server/discover", json!({}))["result"].clone();
    assert_eq!(found["_meta"][format!("{META}serverInfo")]["name"], "scripted");
    assert_eq!(found["cacheScope"], "private", "{found}");
    assert!(found["ttlMs"].as_u64().unwrap() <= 5000, "{found}");
    // No other result gets these fields.
    let answer = a.call("new__cached", json!({}));
    assert!(answer["result"].get("ttlMs").is_none(), "{answer}");
    assert!(answer["result"].get("cacheScope").is_none(), "{answer}");
    // The server gets only the client information that the gateway forwards.
    let sent = gate.calls("new").remove(0);
    let meta = &sent["params"]["_meta"];
    assert_eq!(meta[format!("{META}clientCapabilities")], json!({}));
    assert_eq!(meta[format!("{META}protocolVersion")], MODERN);
}

#[test]
fn every_client_reaches_every_server() {
    let tools = ["t", "slow"];
    let gate = setup()
        .stdio("old", "legacy", names(&tools))
        .stdio("new", "modern", names(&tools))
        .web("oldweb", "legacy", names(&tools))
        .web("newweb", "modern", names(&tools))
        .agents(everyone())
        .start();
    let session = gate.agent("a").session_of(NEWEST_LEGACY);
    let modern = gate.agent("b");
    for server in ["old", "new", "oldweb", "newweb"] {
        for (era, client) in [("legacy", &session as &dyn Caller), ("modern", &modern)] {
            let names = client.list();
            let own = names.iter().filter(|name| name.starts_with(&format!("{server}__"))).count();
            assert_eq!(own, 2, "{era} client, {server}: {names:?}");
            let answer = client.call(&format!("{server}__t"), json!({}));
            assert_eq!(text(&answer), "did t");
            let kind = (era == "modern").then(|| json!("complete"));
            assert_eq!(answer["result"].get("resultType"), kind.as_ref(), "{era}, {server}");
            let params = json!({
                "name": format!("{server}__slow"), "arguments": {"seconds": 0},
                "_meta": {"progressToken": "p", "own": 1},
            });
            let reply = match era {
                "legacy" => session.post(&request(json!(1), "tools/call", params)),
                _ => modern.modern_reply(json!(1), "tools/call", params),
            };
            let messages = reply.messages();
            assert_eq!(messages.len(), 3, "{era} client, {server}: {messages:?}");
            let meta = gate.calls(server).pop().unwrap()["params"]["_meta"].clone();
            assert_eq!(meta["own"], 1);
            let terms =
                meta.as_object().unwrap().keys().filter(|key| key.starts_with(META)).count();
            match server {
                "old" | "oldweb" => assert_eq!(terms, 0, "{meta}"),
                _ => assert!(terms >= 2, "{meta}"),
            }
        }
        // At its own address, a server serves both versions as well.
        let path = format!("/mcp/{server}");
        gate.agent("a").at(&path).heard(|hello| hello["serverInfo"]["name"] == "scripted");
        assert_eq!(text(&gate.agent("a").at(&path).session().call("t", json!({}))), "did t");
        assert_eq!(text(&modern.at(&path).call("t", json!({}))), "did t");
    }
}

#[test]
fn a_legacy_server_can_be_discovered() {
    let gate = setup()
        .stdio("old", "legacy", names(&["t"]))
        .web("oldweb", "legacy", names(&["t"]))
        .agents(everyone())
        .start();
    for path in ["/mcp/old", "/mcp/oldweb"] {
        let found = gate.agent("a").at(path).modern("server/discover", json!({}))["result"].clone();
        assert_eq!(found["supportedVersions"], json!([MODERN]));
        assert_eq!(
            (&found["resultType"], &found["cacheScope"]),
            (&json!("complete"), &json!("private"))
        );
        assert_eq!(found["_meta"][format!("{META}serverInfo")]["name"], "scripted");
        assert_eq!(gate.agent("a").at(path).list(), ["t"]);
    }
}

#[test]
fn modern_members_are_removed_for_a_legacy_client() {
    let gate = setup()
        .stdio("new", "modern", names(&["cached"]))
        .web("newweb", "modern", names(&["cached"]))
        .agents(everyone())
        .start();
    let session = gate.agent("a").session();
    for server in ["new", "newweb"] {
        let answer = session.call(&format!("{server}__cached"), json!({}));
        for member in ["resultType", "ttlMs", "cacheScope"] {
            assert!(answer["result"].get(member).is_none(), "{server}: {answer}");
        }
    }
}
