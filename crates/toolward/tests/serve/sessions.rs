//! Sessions: ownership, termination, notifications and status codes.

use std::time::Duration;

use serde_json::{Value, json};

use super::harness::*;

const SILENCE: Duration = Duration::from_millis(300);

#[test]
fn a_session_belongs_to_its_agent_and_address_and_ends_once() {
    let gate = setup().stdio("s", "legacy", names(&["t", "pid"])).agents(everyone()).start();
    let (a, b) = (gate.agent("a"), gate.agent("b"));
    let list = request(json!(1), "tools/list", json!({}));
    let session = a.session();
    assert_eq!(session.list(), ["s__t", "s__pid"]);

    assert_eq!(a.post(&[], &list).status, 400, "no session id");
    assert_eq!(a.post(&[("MCP-Protocol-Version", LEGACY)], &list).status, 400);
    let mut changed = session.id.clone().into_bytes();
    changed[20] = if changed[20] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    for unknown in ["x", "", changed.as_str(), &"A".repeat(2000), &session.id.to_lowercase()] {
        let headers = [("Mcp-Session-Id", unknown)];
        assert_eq!(a.post(&headers, &list).status, 404, "{unknown}");
        assert_eq!(a.post(&headers, &initialize(LEGACY)).status, 404, "{unknown}");
        assert_eq!(a.send("GET", &headers, "").status, 404, "{unknown}");
        assert_eq!(a.send("DELETE", &headers, "").status, 404, "{unknown}");
    }
    // A session of another agent, or of another address, is unknown.
    for other in [b.clone(), a.at("/mcp/s"), b.at("/mcp/s")] {
        let stolen = Session { agent: other.clone(), ..session.clone() };
        assert_eq!(stolen.post(&list).status, 404, "{}", other.path);
        let told = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        assert_eq!(stolen.post(&told).status, 404);
        assert_eq!(other.send("GET", &session.headers(), "").status, 404);
        assert_eq!(stolen.delete().status, 404);
    }
    let unknown = b.post(&[("Mcp-Session-Id", "x")], &list);
    let foreign = Session { agent: b.clone(), ..session.clone() };
    assert_eq!(
        format!("{:?}", foreign.agent.post(&[("Mcp-Session-Id", &session.id)], &list)),
        format!("{unknown:?}")
    );
    assert_eq!(gate.nobody().post(&session.headers(), &list).status, 401);
    assert_eq!(session.list().len(), 2, "none of this harmed it");

    // DELETE ends the session, and the process that only it used.
    let pid: u32 = text(&session.call("s__pid", json!({}))).parse().unwrap();
    let other: u32 = text(&a.session().call("s__pid", json!({}))).parse().unwrap();
    assert!(pid != other && alive(pid) && alive(other));
    let mut stream = session.listen(None);
    assert!(matches!(session.delete().status, 200 | 204));
    assert_eq!(stream.event(), None);
    eventually("the session's process ends", || (!alive(pid)).then_some(()));
    assert!(alive(other));
    assert_eq!(session.post(&list).status, 404);
    assert_eq!(session.delete().status, 404);
    assert_eq!(a.send("GET", &session.headers(), "").status, 404);
}

#[test]
fn a_session_survives_a_restart_with_the_same_state_only() {
    let mut gate = setup().stdio("s", "legacy", names(&["t"])).agents(everyone()).start();
    let begun = gate.agent("a").session();
    assert_eq!(begun.list(), ["s__t"]);
    gate.restart();
    let list = request(json!(1), "tools/list", json!({}));
    let again = Session { agent: gate.agent("a"), ..begun.clone() };
    assert_eq!(text(&again.call("s__t", json!({}))), "did t");
    assert_eq!(again.list(), ["s__t"]);
    assert_eq!(Session { agent: gate.agent("b"), ..begun.clone() }.post(&list).status, 404);
    let key = std::fs::metadata(gate.file("state/seal.key")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&key.permissions()) & 0o777, 0o600);
    gate.kill();
    std::fs::remove_dir_all(gate.file("state")).unwrap();
    gate.restart();
    let again = Session { agent: gate.agent("a"), ..begun };
    assert_eq!(again.post(&list).status, 404);
}

#[test]
fn a_session_that_was_ended_stays_ended() {
    let mut gate = setup().stdio("s", "legacy", names(&["t"])).agents(everyone()).start();
    let ended = gate.agent("a").session();
    assert!(matches!(ended.delete().status, 200 | 204));
    gate.restart();
    let list = request(json!(1), "tools/list", json!({}));
    assert_eq!(Session { agent: gate.agent("a"), ..ended }.post(&list).status, 404);
}

#[test]
fn list_changed_goes_to_exactly_those_whose_view_changed() {
    let gate = setup()
        .stdio("s", "legacy", names(&["grow"]))
        .with("s", "share", json!(true))
        .agents(json!({
            "a": {"allow": {"servers": ["*"], "tools": {"s": ["grow", "new_*"]}}},
            "b": {"allow": {"servers": ["*"]}},
        }))
        .start();
    let (a, b) = (gate.agent("a").session(), gate.agent("b").session());
    assert_eq!((a.list(), b.list()), (vec!["s__grow".into()], vec!["s__grow".to_string()]));
    let (mut of_a, mut of_b) = (a.listen(None), b.listen(None));
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    a.call("s__grow", json!({"tool": "hidden_one"}));
    assert_eq!(of_b.event().unwrap().json(), changed);
    assert!(of_a.is_silent(SILENCE), "a hidden change does not notify the agent");
    assert_eq!(b.list(), ["s__grow", "s__hidden_one"]);
    a.call("s__grow", json!({"tool": "new_one"}));
    let event = of_a.event().unwrap();
    assert_eq!(event.json(), changed);
    assert_eq!(of_b.event().unwrap().json(), changed);
    assert_eq!(a.list(), ["s__grow", "s__new_one"]);
    assert!(of_a.is_silent(SILENCE) && of_b.is_silent(Duration::from_millis(10)));
    // The stream resumes after the last event received: nothing is delivered twice.
    drop(of_a);
    let mut again = a.listen(event.id.as_deref());
    a.call("s__grow", json!({"tool": "new_two"}));
    assert_eq!(again.event().unwrap().json(), changed);
    assert!(again.is_silent(SILENCE));
}

#[test]
fn a_change_without_a_listener_is_sent_to_the_next_one() {
    let gate = setup().stdio("s", "legacy", names(&["grow"])).agents(everyone()).start();
    let a = gate.agent("a").session();
    assert_eq!(a.list(), ["s__grow"]);
    a.call("s__grow", json!({"tool": "more"}));
    eventually("the list is read again", || {
        (gate.heard("s", "tools/list").len() > 1).then_some(())
    });
    let mut stream = a.listen(None);
    let event = stream.event().unwrap().json();
    assert_eq!(event["method"], "notifications/tools/list_changed");
}

#[test]
fn a_server_that_comes_late_is_announced() {
    let gate = setup()
        .stdio("fast", "legacy", names(&["t"]))
        .stdio("late", "legacy", names(&["t"]))
        .with("late", "env", json!({"LIST_TAKES": "2"}))
        .set("list_timeout", json!("1s"))
        .agents(everyone())
        .start();
    let a = gate.agent("a").session();
    let mut stream = a.listen(None);
    let mut listed = a.list();
    assert!(!listed.contains(&"late__t".to_string()), "{listed:?}");
    // On a busy machine the other server may be slow too, and its list be announced first.
    while listed != ["fast__t", "late__t"] {
        assert_eq!(stream.event().unwrap().json()["method"], "notifications/tools/list_changed");
        listed = a.list();
    }
}

#[test]
fn an_interrupted_stream_is_resumed_by_its_owner_only() {
    let gate = setup()
        .stdio("s", "legacy", names(&["slow"]))
        .web("w", "legacy", names(&["slow"]))
        .agents(everyone())
        .start();
    for server in ["s", "w"] {
        let a = gate.agent("a").session_of(NEWEST_LEGACY);
        a.list();
        let params = json!({
            "name": format!("{server}__slow"),
            "arguments": {"seconds": 0.3},
            "_meta": {"progressToken": "mine"},
        });
        let mut cut = a.open(&request(json!("x"), "tools/call", params));
        let head = cut.head();
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
        let primer = cut.event().unwrap();
        assert!(primer.data.is_empty() && primer.id.is_some(), "{primer:?}");
        let first = cut.event().unwrap();
        assert_eq!(first.json()["params"], json!({"progressToken": "mine", "progress": 1}));
        drop(cut);
        let last = first.id.as_deref().unwrap();
        let others = [
            gate.agent("b").session(),
            gate.agent("a").session(),
            gate.agent("a").at("/mcp/s").session(),
        ];
        // An event of another session is unknown: the client gets a new stream, with nothing in it.
        for other in &others {
            assert!(other.listen(Some(last)).is_silent(Duration::from_millis(500)));
        }
        for wrong in ["1", "x", &a.id] {
            let mut fresh = a.listen(Some(wrong));
            assert!(fresh.event().unwrap().data.is_empty(), "a primer, and nothing else: {wrong}");
            assert!(fresh.is_silent(Duration::from_millis(200)), "{wrong}");
        }
        let rest = |from: &str| -> Vec<Value> {
            let mut stream = a.listen(Some(from));
            let events = std::iter::from_fn(|| stream.event());
            events.filter(|event| !event.data.is_empty()).map(|event| event.json()).collect()
        };
        let seen = rest(last);
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert_eq!(seen[0]["params"]["progress"], 2);
        assert_eq!((&seen[1]["id"], text(&seen[1])), (&json!("x"), "slow"));
        assert_eq!(rest(primer.id.as_deref().unwrap()).len(), 3, "also from its beginning");
        assert!(gate.heard(server, "notifications/cancelled").is_empty());
        assert_eq!(gate.calls(server).len(), 1, "nothing is sent twice");
    }
}

#[test]
fn the_status_table_legacy() {
    let gate = setup()
        .stdio("s", "legacy", names(&["t"]))
        .agents(json!({"a": {"allow": {"servers": ["*"]}}, "b": {}}))
        .start();
    let a = gate.agent("a");
    let session = a.session();
    let send = |body: &str| {
        let reply = a.send("POST", &session.headers(), body);
        (reply.status, reply.code())
    };
    for (body, expected) in [
        ("", (400, -32700)),
        ("{", (400, -32700)),
        ("[]", (400, -32600)),
        ("7", (400, -32600)),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, (400, -32600)),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, (400, -32600)),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, (400, -32600)),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, (400, -32600)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#, (200, -32602)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#, (400, -32600)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#, (200, -32602)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":1}}"#, (200, -32602)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"no/such","params":{}}"#, (200, -32601)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}"#, (200, -32601)),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#,
            (200, -32601),
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, (200, 0)),
        (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, (202, 0)),
        (r#"{"jsonrpc":"2.0","method":"no/such"}"#, (202, 0)),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, (202, 0)),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#, (202, 0)),
    ] {
        assert_eq!(send(body), expected, "{body}");
    }
    let ping = request(json!(1), "ping", json!({}));
    for version in ["2099-01-01", "2025-03-26", MODERN, "x"] {
        let headers = [("Mcp-Session-Id", session.id.as_str()), ("MCP-Protocol-Version", version)];
        assert_eq!(a.post(&headers, &ping).status, 400, "{version}");
    }
    assert_eq!(a.post(&[("Mcp-Session-Id", &session.id)], &ping).status, 200, "it may be left out");
    assert_eq!(a.post(&[], &ping).status, 400);
    for method in ["GET", "DELETE"] {
        assert_eq!(a.send(method, &[], "").status, 405, "{method}");
    }
    for method in ["PUT", "PATCH", "OPTIONS", "TRACE"] {
        assert_eq!(a.send(method, &session.headers(), "").status, 405, "{method}");
    }
    let refused =
        gate.agent("b").session().post(&request(json!(1), "tools/call", json!({"name": "s__t"})));
    assert_eq!(refused.status, 200);
    gate.refusal(&refused.json());
    // A session is initialized once, with a revision that both support.
    assert_eq!(session.post(&initialize(LEGACY)).status, 400);
    let newest = a.post(&[], &initialize("2099-01-01")).json();
    assert_eq!(newest["result"]["protocolVersion"], NEWEST_LEGACY);
    for revision in ["2024-11-05", "2025-03-26", "2025-11-25"] {
        assert_eq!(a.session_of(revision).list(), ["s__t"]);
    }
}

#[test]
fn the_status_table_modern() {
    let gate = setup()
        .stdio("s", "modern", names(&["t"]))
        .agents(json!({"a": {"allow": {"servers": ["*"]}}, "b": {}}))
        .start();
    let a = gate.agent("a");
    let send = |method: &str, body: &str| {
        let headers = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", method)];
        let reply = a.send("POST", &headers, body);
        (reply.status, reply.code())
    };
    let meta = |version: &str| {
        format!(
            r#""_meta":{{"{META}protocolVersion":"{version}","{META}clientCapabilities":{{}}}}"#
        )
    };
    let good = meta(MODERN);
    let with = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#)
    };
    for (method, body, expected) in [
        ("ping", "".to_string(), (400, -32700)),
        ("ping", "{".into(), (400, -32700)),
        ("ping", "[]".into(), (400, -32600)),
        ("tools/list", with("tools/list", &good).replace("2.0", "1.0"), (400, -32600)),
        ("tools/list", with("tools/list", &good).replace(":1,", ":null,"), (400, -32600)),
        ("tools/call", with("tools/call", &good), (400, -32602)),
        ("tools/list", with("tools/list", ""), (400, -32602)),
        ("tools/list", with("tools/list", r#""_meta":{}"#), (400, -32602)),
        ("tools/list", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#.into(), (400, -32602)),
        (
            "tools/list",
            with("tools/list", &format!(r#""_meta":{{"{META}protocolVersion":"{MODERN}"}}"#)),
            (400, -32602),
        ),
        ("tools/list", with("tools/list", &good.replace("{}", "[]")), (400, -32602)),
        ("no/such", with("no/such", &good), (404, -32601)),
        ("initialize", with("initialize", &good), (404, -32601)),
        ("ping", with("ping", &good), (404, -32601)),
        ("tools/list", with("tools/list", &good), (200, 0)),
        (
            "notifications/cancelled",
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":1,{good}}}}}"#
            ),
            (202, 0),
        ),
        ("", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.into(), (202, 0)),
    ] {
        assert_eq!(send(method, &body), expected, "{body}");
    }
    for version in ["2030-01-01", "2025-06-18", "x"] {
        let headers = [("MCP-Protocol-Version", version), ("Mcp-Method", "tools/list")];
        let reply = a.send("POST", &headers, &with("tools/list", &meta(version)));
        assert_eq!((reply.status, reply.code()), (400, -32022), "{version}");
        let data = reply.json()["error"]["data"].clone();
        assert_eq!(data, json!({"supported": [MODERN], "requested": version}));
    }
    // Sessions belong to the other protocol version: their headers are ignored, and there is no stream
    // to listen to.
    let headers = [
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/list"),
        ("Mcp-Session-Id", "x"),
        ("Last-Event-ID", "y"),
    ];
    assert_eq!(a.send("POST", &headers, &with("tools/list", &good)).status, 200);
    for method in ["GET", "DELETE"] {
        assert_eq!(a.send(method, &headers, "").status, 405, "{method}");
    }
    let refused = gate.agent("b").modern_reply(json!(1), "tools/call", json!({"name": "s__t"}));
    assert_eq!(refused.status, 200);
    gate.refusal(&refused.json());
}
