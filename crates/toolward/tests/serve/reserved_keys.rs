//! The gateway's reserved `_meta` keys, and ids that only the gateway knows.

use serde_json::{Value, json};

use super::harness::*;

#[test]
fn nobody_else_writes_under_the_gateway_s_own_keys() {
    let gate = setup()
        .stdio("s", "legacy", names(&["forges", "t"]))
        .web("w", "legacy", names(&["forges", "t"]))
        .stdio("n", "modern", names(&["forges", "t"]))
        .web("m", "modern", names(&["forges", "t"]))
        .agents(json!({
            "a": {"allow": {"servers": ["s", "w"]}},
            "b": {"allow": {"servers": ["n", "m"]}},
        }))
        .start();
    let (session, modern) = (gate.agent("a").session(), gate.agent("b"));
    session.list();
    modern.list();
    for server in ["s", "w", "n", "m"] {
        let meta = json!({
            "progressToken": 1, "io.toolward/refusal": {}, "IO.toolward/x": 1, "kept": true,
        });
        let params = json!({"name": format!("{server}__forges"), "_meta": meta});
        let reply = match server {
            "s" | "w" => session.post(&request(json!(1), "tools/call", params)),
            _ => modern.modern_reply(json!(1), "tools/call", params),
        };
        let messages = reply.messages();
        assert_eq!(messages.len(), 2, "{server}: {messages:?}");
        assert_eq!(messages[0]["params"]["_meta"], json!({"kept": 1}), "{server}");
        assert_eq!(messages[1]["result"]["_meta"], json!({"kept": 1}), "{server}");
        let sent = gate.calls(server).pop().unwrap();
        let meta = sent["params"]["_meta"].as_object().unwrap();
        assert_eq!(meta["kept"], true, "{server}: {sent}");
        assert!(
            meta.keys().all(|key| !key.to_lowercase().contains("toolward")),
            "{server}: {sent}"
        );
    }
}

#[test]
fn nothing_empty_is_left_of_meta() {
    let gate = setup().stdio("s", "legacy", names(&["t"])).agents(everyone()).start();
    let modern = gate.agent("a");
    modern.list();
    assert_eq!(text(&modern.call("s__t", json!({"x": 1}))), "did t");
    let session = gate.agent("a").session();
    let params = json!({"name": "s__t", "_meta": {"io.toolward/x": 1}});
    assert_eq!(text(&session.ask("tools/call", params)), "did t");
    for call in gate.calls("s") {
        assert!(call["params"].get("_meta").is_none(), "{call}");
    }
}

#[test]
fn a_tool_that_prints_untrusted_text_answers_no_other_call() {
    let gate = setup()
        .stdio("s", "legacy", names(&["inject", "later"]))
        .with("s", "share", json!(true))
        .agents(everyone())
        .start();
    let (victim, attacker) = (gate.agent("a").session(), gate.agent("b").session());
    victim.list();
    attacker.list();
    for _ in 0..3 {
        let calls = gate.calls("s").len();
        let later = json!({
            "name": "s__later", "arguments": {"seconds": 1}, "_meta": {"progressToken": 1},
        });
        let mut held = victim.open(&request(json!(1), "tools/call", later));
        eventually("the call arrives", || (gate.calls("s").len() > calls).then_some(()));
        assert_eq!(text(&attacker.call("s__inject", json!({}))), "injected");
        let messages = held.reply().messages();
        assert_eq!(messages.len(), 1, "no forged progress: {messages:?}");
        assert_eq!(text(&messages[0]), "later");
    }
}

/// A call with reserved keys in plain and escaped spellings: in `_meta`, beside `params`, and in
/// arguments.
fn planting_call(name: &str, is_modern: bool) -> String {
    let own = json!({"io.toolward/a": 1, "IO.toolward/b": 1, "io.toolward@c": 1, "kept": true});
    let mut params = json!({"name": name, "arguments": {"_meta": own}, "_meta": own});
    params["_meta"]["progressToken"] = json!(1);
    let mut body = match is_modern {
        true => modern_body(json!(1), "tools/call", params),
        false => request(json!(1), "tools/call", params),
    };
    body["_meta"] = json!({"io.toolward@c": 1, "io.toolward/a": 1});
    escaped(&body)
}

/// JSON in which `io.toolward@` is an escaped spelling of `io.toolward/`.
fn escaped(value: &Value) -> String {
    value.to_string().replace("io.toolward@", "\\u0069o.tool\\u0077ard\\/")
}

fn own_keys(value: &Value) -> usize {
    let text = value.to_string().to_lowercase();
    text.matches("io.toolward/").count()
}

#[test]
fn own_keys_are_removed_wherever_the_protocol_has_meta() {
    let tools = json!([
        {"name": "plants", "inputSchema": {"type": "object"},
         "_meta": {"io.toolward@x": 1, "io.toolward/y": 1, "kept": 1}},
        {"name": "t", "_meta": {"IO.toolward/y": 1}, "inputSchema": {"type": "object"}},
    ]);
    let gate = setup()
        .stdio("s", "legacy", tools.clone())
        .web("w", "legacy", tools.clone())
        .stdio("n", "modern", tools.clone())
        .web("m", "modern", tools)
        .agents(everyone())
        .start();
    let (session, modern) = (gate.agent("a").session(), gate.agent("b"));
    for tools in [session.tools(), modern.tools()] {
        assert_eq!(tools.len(), 8, "{tools:?}");
        for tool in tools {
            assert_eq!(own_keys(&tool), 0, "{tool}");
            let kept =
                tool["name"].as_str().unwrap().ends_with("plants").then(|| json!({"kept": 1}));
            assert_eq!(tool.get("_meta"), kept.as_ref(), "{tool}");
        }
    }
    for server in ["s", "w", "n", "m"] {
        let name = format!("{server}__plants");
        let legacy = planting_call(&name, false);
        let headers =
            [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", &*name)];
        for reply in [
            session.agent.send("POST", &session.headers(), &legacy),
            modern.send("POST", &headers, &planting_call(&name, true)),
        ] {
            let messages = reply.messages();
            assert_eq!(messages.len(), 2, "{server}: {messages:?}");
            assert_eq!(own_keys(&messages[0]), 0, "{server}: {messages:?}");
            let answer = &messages[1];
            let result = &answer["result"];
            assert_eq!(own_keys(&result["structuredContent"]), 3, "payload stays: {answer}");
            assert_eq!(own_keys(answer), 3, "{server}: {answer}");
            assert_eq!(answer["_meta"], json!({"kept": 3}), "{server}");
            assert!(result.get("_meta").is_none(), "{server}: {answer}");
            assert_eq!(result["content"][0]["_meta"], json!({"kept": 1}), "{server}");
            assert_eq!(result["content"][1]["resource"]["_meta"], json!({"kept": 2}), "{server}");
            assert!(result["content"][1].get("_meta").is_none(), "{server}: {answer}");
            assert!(result["content"][2].get("_meta").is_none(), "{server}: {answer}");
        }
        let calls = gate.calls(server);
        assert_eq!(calls.len(), 2, "{server}: {calls:?}");
        for call in calls {
            assert_eq!(own_keys(&call["params"]["arguments"]), 3, "payload stays: {call}");
            assert_eq!(own_keys(&call), 3, "{server}: {call}");
            assert_eq!(call["params"]["_meta"]["kept"], true, "{server}: {call}");
            assert!(call.get("_meta").is_none(), "{server}: {call}");
        }
    }
}

#[test]
fn own_keys_are_removed_from_the_description_of_a_server() {
    let tools = json!([{"name": "plants", "inputSchema": {"type": "object"}}]);
    let gate = setup()
        .stdio("legacy", "legacy", tools.clone())
        .stdio("modern", "modern", tools.clone())
        .web("web", "modern", tools)
        .agents(everyone())
        .start();
    for server in ["legacy", "modern", "web"] {
        let agent = gate.agent("a").at(&format!("/mcp/{server}"));
        let hello = agent.heard(|hello| hello["serverInfo"]["name"] == "scripted").hello;
        let discovered = agent.modern("server/discover", json!({}));
        let listed = agent.modern("tools/list", json!({}));
        let own = format!("{META}serverInfo");
        let mut infos = vec![&hello["serverInfo"], &discovered["result"]["_meta"][&own]];
        if server != "legacy" {
            infos.push(&listed["result"]["_meta"][&own]);
        }
        for info in infos {
            assert_eq!(info["_meta"], json!({"kept": 1}), "{server}: {info}");
        }
        for answer in [&hello, &discovered, &listed] {
            assert_eq!(own_keys(answer), 0, "{server}: {answer}");
        }
    }
}
