//! Behavior that other implementations of clients and servers depend on.

use serde_json::{Value, json};

use super::harness::*;

#[test]
fn a_legacy_request_that_is_refused_for_its_params_does_not_end_the_session() {
    let gate = setup().stdio("s", "legacy", names(&["t"])).agents(everyone()).start();
    let session = gate.agent("a").session();
    for (method, params) in [
        ("tools/call", json!({"name": 1})),
        ("tools/call", json!({"name": "s__t", "arguments": "x"})),
        ("tools/call", json!({})),
        ("tools/list", json!({"cursor": "unknown"})),
    ] {
        let reply = session.post(&request(json!("mine"), method, params.clone()));
        assert_eq!(reply.status, 200, "{method} {params}: {reply:?}");
        let answer = reply.json();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("mine"), &json!(-32602)));
    }
    // A message that has no id, or cannot be parsed, gets no response of its own.
    let nameless = session.post(&json!({"jsonrpc": "2.0", "id": {}, "method": "tools/call"}));
    assert_eq!(nameless.status, 400, "{nameless:?}");
    let modern = gate.agent("a").modern_reply(
        json!(1),
        "tools/call",
        json!({"name": "s__t", "arguments": 1}),
    );
    assert_eq!(modern.status, 400, "{modern:?}");
}

#[test]
fn a_legacy_request_that_is_too_large_is_answered_under_its_id() {
    let gate = setup().stdio("s", "legacy", names(&["t"])).agents(everyone()).start();
    let session = gate.agent("a").session();
    let large = "x".repeat(5 << 20);
    // As SDKs write it: with the id at the end.
    let body = format!(
        r#"{{"method":"tools/call","params":{{"name":"s__t","arguments":{{"id":1,"x":"{large}"}}}},"jsonrpc":"2.0","id":"big"}}"#
    );
    let mut connection = session.agent.open("POST", &session.headers(), &body);
    let reply = connection.reply();
    assert_eq!(reply.status, 200, "{:?}", reply.status);
    let answer = reply.json();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("big"), &json!(-32602)));
    assert_eq!(answer["error"]["data"]["error"], "request_too_large", "{answer}");
    // The connection and the session continue.
    let call = request(json!(2), "tools/call", json!({"name": "s__t"})).to_string();
    connection.send(session.agent.request("POST", &session.headers(), &call).as_bytes());
    assert_eq!(text(&connection.reply().json()), "did t");
    assert_eq!(gate.calls("s").len(), 1);
    // Without a session there is nothing to keep.
    let reply = gate.agent("a").send("POST", &[], &body);
    assert_eq!(reply.status, 413, "{:?}", reply.status);
}

#[test]
fn a_task_that_was_not_offered_is_ignored() {
    let gate = setup()
        .stdio("s", "legacy", names(&["t"]))
        .web("w", "legacy", names(&["t"]))
        .agents(everyone())
        .start();
    let session = gate.agent("a").session();
    session.list();
    for server in ["s", "w"] {
        let params = json!({"name": format!("{server}__t"), "task": {"ttl": 60000}, "arguments": {"task": 1}});
        let answer = session.ask("tools/call", params);
        assert_eq!(text(&answer), "did t");
        let sent = gate.calls(server).pop().unwrap();
        assert!(sent["params"].get("task").is_none(), "{sent}");
        assert_eq!(sent["params"]["arguments"], json!({"task": 1}), "{sent}");
    }
    // The modern revision has no such member: it is ignored, as the extension for tasks requires.
    let params = json!({"name": "s__t", "task": {}});
    let reply = gate.agent("a").modern_reply(json!(1), "tools/call", params);
    assert_eq!(text(&reply.json()), "did t", "{reply:?}");
    assert!(gate.calls("s").pop().unwrap()["params"].get("task").is_none());
}

#[test]
fn a_capability_that_a_modern_client_lacks_is_a_bad_request() {
    let gate = setup().stdio("n", "modern", names(&["lacks"])).agents(everyone()).start();
    let modern = gate.agent("a");
    modern.list();
    let reply = modern.modern_reply(json!(1), "tools/call", json!({"name": "n__lacks"}));
    assert_eq!((reply.status, reply.code()), (400, -32021), "{reply:?}");
    let session = gate.agent("a").session();
    let reply = session.post(&request(json!(1), "tools/call", json!({"name": "n__lacks"})));
    assert_eq!((reply.status, reply.code()), (200, -32021), "{reply:?}");
}

#[test]
fn an_event_that_is_not_known_begins_a_new_stream() {
    let gate = setup().stdio("s", "legacy", names(&["grow"])).agents(everyone()).start();
    let session = gate.agent("a").session_of(NEWEST_LEGACY);
    session.list();
    let mut feed = session.listen(Some("from another time"));
    assert!(feed.event().unwrap().data.is_empty(), "its primer");
    session.call("s__grow", json!({"tool": "new"}));
    assert_eq!(feed.event().unwrap().json()["method"], "notifications/tools/list_changed");
}

#[test]
fn a_server_s_address_can_be_written_either_way() {
    let gate = setup()
        .stdio("s", "legacy", names(&["t"]))
        .stdio("hidden", "legacy", names(&["t"]))
        .agents(json!({"a": {"allow": {"servers": ["s"]}}}))
        .start();
    let (one, other) = (gate.agent("a").at("/mcp/s"), gate.agent("a").at("/s/mcp"));
    assert_eq!(other.list(), ["t"]);
    let session = other.session();
    assert_eq!(text(&session.call("t", json!({}))), "did t");
    // It is the same endpoint: the session continues under the other path.
    let moved = Session { agent: one, ..session };
    assert_eq!(text(&moved.call("t", json!({}))), "did t");
    for path in ["/hidden/mcp", "/nothing/mcp", "/s/mcp/", "//mcp", "/s/t/mcp", "/.s/mcp"] {
        let reply = gate.agent("a").at(path).post(&[], &initialize(LEGACY));
        assert_eq!(reply.status, 404, "{path}: {reply:?}");
    }
    assert_eq!(gate.nobody().at("/s/mcp").post(&[], &initialize(LEGACY)).status, 401);
}

/// A legacy server that rejects revisions it does not support, and lists those it does.
const PICKY: &str = r#"
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    asked = (m.get("params") or {}).get("protocolVersion")
    if m["method"] == "initialize" and asked != "2025-03-26":
        e = {"error": {"code": int(sys.argv[1]), "message": "unsupported", "data": {"supported": ["1999-01-01", "2024-11-05", "2025-03-26"], "requested": asked}}}
    elif m["method"] == "initialize":
        e = {"result": {"protocolVersion": asked, "capabilities": {"tools": {}}, "serverInfo": {"name": "picky", "version": "1"}}}
    elif m["method"] == "tools/list":
        e = {"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}
    elif m["method"] == "tools/call":
        e = {"result": {"content": [{"type": "text", "text": "did t"}]}}
    else:
        e = {"error": {"code": -32601, "message": "no"}}
    print(json.dumps(dict({"jsonrpc": "2.0", "id": m["id"]}, **e)), flush=True)
"#;

#[test]
fn a_server_that_lists_the_revisions_it_supports_is_asked_in_the_newest() {
    for code in ["-32022", "-32602"] {
        let gate = setup()
            .server("p", json!({"command": "python3", "args": ["-c", PICKY, code]}))
            .agents(everyone())
            .start();
        let session = gate.agent("a").session();
        assert_eq!(session.list(), ["p__t"], "{code}");
        assert_eq!(text(&session.call("p__t", json!({}))), "did t");
        assert_eq!(gate.agent("b").list(), ["p__t"], "{code}: for a modern client too");
        // At the server's own address, the client gets the server's revision and may repeat it.
        let hello = eventually("the server answers in time", || {
            let hello = gate.agent("a").at("/mcp/p").post(&[], &initialize(LEGACY));
            let is_own = hello.json()["result"]["protocolVersion"] == "2025-03-26";
            is_own.then_some(hello)
        });
        let handle = hello.header("mcp-session-id").unwrap().to_string();
        let headers = [("Mcp-Session-Id", &*handle), ("MCP-Protocol-Version", "2025-03-26")];
        let call = request(json!(1), "tools/call", json!({"name": "t"}));
        let reply = gate.agent("a").at("/mcp/p").post(&headers, &call);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(text(&reply.json()), "did t");
    }
}

#[test]
fn a_reason_to_cancel_and_log_messages_pass_on_both_transports() {
    let gate = setup()
        .stdio("s", "legacy", names(&["hang", "logs"]))
        .web("w", "legacy", names(&["hang", "logs"]))
        .agents(everyone())
        .start();
    let session = gate.agent("a").session();
    session.list();
    for server in ["s", "w"] {
        let hang = request(json!(5), "tools/call", json!({"name": format!("{server}__hang")}));
        let mut held = session.open(&hang);
        eventually("the call arrives", || (gate.calls(server).len() == 1).then_some(()));
        let params = json!({"requestId": 5, "reason": "the user \"left\"\n"});
        let told = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        assert_eq!(session.post(&told).status, 202);
        let heard = eventually("the server is notified", || {
            gate.heard(server, "notifications/cancelled").pop()
        });
        assert_eq!(heard["params"]["reason"], "the user \"left\"\n", "{heard}");
        held.reply();
        let logs = request(json!(6), "tools/call", json!({"name": format!("{server}__logs")}));
        let messages = session.post(&logs).messages();
        assert_eq!(messages.len(), 2, "{server}: {messages:?}");
        assert_eq!(messages[0]["params"]["data"], "of it");
        assert_eq!(text(&messages[1]), "logged");
    }
}

#[test]
fn log_messages_of_a_shared_process_are_dropped() {
    let gate = setup()
        .stdio("s", "legacy", names(&["logs", "later"]))
        .with("s", "share", json!(true))
        .agents(everyone())
        .start();
    let (first, second) = (gate.agent("a").session(), gate.agent("b").session());
    first.list();
    second.list();
    let later =
        json!({"name": "s__later", "arguments": {"seconds": 1}, "_meta": {"progressToken": 1}});
    let mut held = first.open(&request(json!(1), "tools/call", later));
    eventually("the call arrives", || (gate.calls("s").len() == 1).then_some(()));
    let logs = json!({"name": "s__logs", "arguments": {"who": "b"}});
    let messages = second.post(&request(json!(2), "tools/call", logs)).messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    let messages: Vec<Value> = held.reply().messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
}

#[test]
fn a_modern_list_identifies_the_server() {
    let gate = setup().stdio("n", "modern", names(&["t"])).agents(everyone()).start();
    let answer = gate.agent("a").at("/mcp/n").modern("tools/list", json!({}));
    let meta = &answer["result"]["_meta"];
    assert_eq!(*meta, json!({format!("{META}serverInfo"): {"name": "scripted", "version": "1"}}));
}
