//! Servers that exit or respond incorrectly, and the shutdown of the gateway.

use std::net::TcpStream;

use serde_json::{Value, json};

use super::harness::*;

#[test]
fn a_crash_is_answered_at_once_and_the_server_recovers() {
    let gate = setup()
        .stdio("s", "legacy", names(&["crash", "hang", "t"]))
        .stdio("n", "modern", names(&["crash", "hang", "t"]))
        .agents(json!({"a": {"allow": {"servers": ["s"]}}, "b": {"allow": {"servers": ["n"]}}}))
        .start();
    let session = gate.agent("a").session();
    let modern = gate.agent("b");
    for (server, client) in [("s", &session as &dyn Caller), ("n", &modern)] {
        client.list();
        let params = json!({"name": format!("{server}__hang")});
        let mut held = match server {
            "s" => session.open(&request(json!("held"), "tools/call", params)),
            _ => modern.modern_open(json!("held"), "tools/call", params),
        };
        eventually("the call arrives", || (gate.calls(server).len() == 1).then_some(()));
        let crashed = client.call(&format!("{server}__crash"), json!({}));
        let held = held.reply().json();
        assert_eq!(held["id"], "held");
        for answer in [crashed, held] {
            assert_eq!(answer["error"]["code"], -32603, "{answer}");
            let data = &answer["error"]["data"];
            assert_eq!(data["error"], "server_disconnected", "{answer}");
            // Neither can be retried safely: the server had received them.
            assert_eq!(data["retryable"], false, "{answer}");
            assert_eq!(data["may_have_effects"], true, "{answer}");
            let words = answer["error"]["message"].as_str().unwrap();
            assert!(words.contains("may have been carried out"), "{answer}");
        }
        eventually("it recovers", || {
            let answer = client.call(&format!("{server}__t"), json!({}));
            assert_ne!(answer["error"]["code"], -32602, "{answer}");
            answer["result"].is_object().then_some(())
        });
        let calls = gate.calls(server);
        let held = calls.iter().filter(|call| call["params"]["name"] == "hang").count();
        assert_eq!(held, 1, "nothing is sent twice");
        assert_eq!(client.list().len(), 3);
    }
}

#[test]
fn a_call_that_was_never_sent_can_be_repeated() {
    let mut gate = setup()
        .web("w", "legacy", names(&["closes", "t"]))
        .web("m", "modern", names(&["closes", "t"]))
        .agents(everyone())
        .start();
    let (session, modern) = (gate.agent("a").session(), gate.agent("b"));
    session.list();
    modern.list();
    for (server, client) in [("w", &session as &dyn Caller), ("m", &modern)] {
        // The server had received the request, and closed the connection.
        let answer = client.call(&format!("{server}__closes"), json!({}));
        let data = &answer["error"]["data"];
        assert_eq!(data["error"], "server_disconnected", "{answer}");
        assert_eq!((&data["retryable"], &data["may_have_effects"]), (&json!(false), &json!(true)));
    }
    gate.setup.stop_web();
    for (server, client) in [("w", &session as &dyn Caller), ("m", &modern)] {
        let answer = client.call(&format!("{server}__t"), json!({}));
        let data = &answer["error"]["data"];
        assert_eq!(data["error"], "server_unavailable", "{answer}");
        assert_eq!(data["retryable"], true, "{answer}");
        assert!(data.get("may_have_effects").is_none(), "{answer}");
        let last = gate.records().pop().unwrap();
        assert_eq!(
            (&last["kind"], &last["outcome"]),
            (&json!("outcome"), &json!("server-unavailable"))
        );
    }
}

#[test]
fn a_failure_that_only_an_operator_can_end_is_not_retryable() {
    use std::os::unix::fs::PermissionsExt;

    let stubborn = r#"
import json, sys
for line in sys.stdin:
    id = json.loads(line).get("id")
    if id is not None:
        error = {"code": -32022, "message": "no", "data": {"supported": ["1999-01-01"]}}
        print(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}), flush=True)
"#;
    let setup = setup();
    let (script, plain) = (setup.path("server"), setup.path("plain"));
    std::fs::write(&plain, "no program").unwrap();
    let python = String::from("#!/bin/sh\nexec python3 \"$@\"\n");
    std::fs::write(&script, python).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut setup = setup
        .server("missing", json!({"command": "/nonexistent/program"}))
        .server("plain", json!({"command": plain}))
        .server("stubborn", json!({"command": "python3", "args": ["-c", stubborn]}))
        .stdio("vanishes", "legacy", names(&["crash", "t"]))
        .agents(everyone());
    setup = setup.with("vanishes", "command", json!(script));
    let gate = setup.start();
    let (session, modern) = (gate.agent("a").session(), gate.agent("b"));
    let check = |answer: &Value| {
        let data = &answer["error"]["data"];
        assert_eq!(data["error"], "server_unavailable", "{answer}");
        assert_eq!(data["retryable"], false, "{answer}");
        assert!(!answer.to_string().contains("nonexistent"), "{answer}");
    };
    for client in [&session as &dyn Caller, &modern] {
        client.list();
        for server in ["missing", "plain", "stubborn"] {
            check(&client.call(&format!("{server}__t"), json!({})));
        }
    }
    // A server that has listed its tools, and cannot be restarted after a crash.
    std::fs::remove_file(&script).unwrap();
    session.call("vanishes__crash", json!({}));
    eventually("the call finds the program missing", || {
        let answer = session.call("vanishes__t", json!({}));
        (answer["error"]["data"]["retryable"] == false).then(|| check(&answer))
    });
}

#[test]
fn withheld_variables_are_logged_once_for_a_server() {
    let gate = setup()
        .server("s", json!({"command": "sh", "args": ["-c", "exit 3"]}))
        .env("ONLY_FOR_OTHERS", "x1y2z3")
        .agents(everyone())
        .start();
    for agent in ["a", "b", "a"] {
        gate.agent(agent).session().list();
        gate.agent(agent).list();
    }
    let said = gate.said.lock().unwrap().clone();
    assert!(said.matches("s: it exited or failed during the handshake").count() > 1, "{said}");
    assert_eq!(said.matches("ONLY_FOR_OTHERS").count(), 1, "{said}");
}

#[test]
fn bad_answers_over_http_are_errors_and_nothing_foreign_passes() {
    let elsewhere = setup().web("e", "legacy", names(&["t"])).agents(everyone());
    let odd = [
        "closes",
        "halves",
        "garbage",
        "noise",
        "page",
        "other_id",
        "twice",
        "redirects",
        "brotli",
        "accepts",
        "fails",
        "trails",
    ];
    let fine = ["streams", "forgets", "t"];
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let target = format!("http://127.0.0.1:{}/mcp", other.local_addr().unwrap().port());
    drop(elsewhere);
    for era in ["legacy", "modern"] {
        let tools: Vec<&str> = odd.iter().chain(&fine).copied().collect();
        let gate = setup()
            .web_with("w", era, names(&tools), &[("ELSEWHERE", &target)])
            .agents(everyone())
            .start();
        let agent = gate.agent("a");
        let client: Box<dyn Caller> = match era {
            "legacy" => Box::new(agent.session()),
            _ => Box::new(agent),
        };
        client.list();
        for tool in odd {
            let answer = client.call(&format!("w__{tool}"), json!({}));
            assert_eq!(answer["error"]["code"], -32603, "{era} {tool}: {answer}");
            assert!(answer["error"]["data"]["error"].is_string(), "{tool}: {answer}");
            assert_ne!(answer["error"]["data"]["error"], "server_timeout", "{tool}: {answer}");
            let words = answer.to_string();
            assert!(!words.contains("foreign") && !words.contains("secret words"), "{answer}");
            let calls = gate.calls("w");
            let sent = calls.iter().filter(|call| call["params"]["name"] == *tool).count();
            assert_eq!(sent, 1, "{tool}: nothing is sent twice");
            // Later requests are not affected.
            assert_eq!(text(&client.call("w__t", json!({}))), "did t", "{tool}");
        }
        assert_eq!(text(&client.call("w__streams", json!({}))), "odd");
        assert!(other.accept().is_err(), "a redirect to another host is not followed");
        if era == "legacy" {
            // A session that the server no longer knows is replaced by a new one: nothing was executed
            // in it.
            assert_eq!(text(&client.call("w__forgets", json!({}))), "did forgets");
            assert_eq!(gate.heard("w", "initialize").len(), 2);
        }
        let records = gate.records();
        let of = |kind: &str| records.iter().filter(|record| record["kind"] == kind).count();
        assert_eq!(of("intent"), of("outcome"));
    }
}

#[test]
fn a_graceful_shutdown_finishes_calls_in_flight_and_accepts_no_new_ones() {
    let mut gate = setup()
        .stdio("s", "legacy", names(&["later", "slow", "pid", "spawn"]))
        .stdio("n", "modern", names(&["later", "slow"]))
        .agents(everyone())
        .start();
    let session = gate.agent("a").session();
    let modern = gate.agent("b");
    session.list();
    modern.list();
    let pid: u32 = text(&session.call("s__pid", json!({}))).parse().unwrap();
    let spawned: u32 = text(&session.call("s__spawn", json!({}))).parse().unwrap();
    let mut feed = session.listen(None);
    let mut idle = gate.connect();
    let params = |name: &str| json!({"name": name, "arguments": {"seconds": 1}, "_meta": {"progressToken": "p"}});
    let mut later = session.open(&request(json!("later"), "tools/call", params("s__later")));
    let mut slow = session.open(&request(json!("slow"), "tools/call", params("s__slow")));
    let mut modern_later = modern.modern_open(json!("later"), "tools/call", params("n__later"));
    let mut modern_slow = modern.modern_open(json!("slow"), "tools/call", params("n__slow"));
    for stream in [&mut slow, &mut modern_slow] {
        assert_eq!(stream.head().status, 200);
        assert_eq!(stream.event().unwrap().json()["params"]["progress"], 1);
    }
    eventually("the calls arrive", || {
        (gate.calls("s").len() == 4 && gate.calls("n").len() == 2).then_some(())
    });
    let children = gate.children();
    assert!(children.contains(&pid));
    gate.signal("-TERM");
    assert_eq!(feed.event(), None, "a feed ends");
    assert!(idle.is_closed(), "an idle connection is closed");
    assert_eq!(text(&later.reply().json()), "later");
    assert_eq!(text(&modern_later.reply().json()), "later");
    let rest = |stream: &mut super::wire::Connection| -> Vec<Value> {
        std::iter::from_fn(|| stream.event()).map(|event| event.json()).collect()
    };
    let seen = rest(&mut modern_slow);
    assert_eq!(
        seen.last().map(|answer| answer["id"].clone()),
        Some(json!("slow")),
        "modern: {seen:?}"
    );
    assert_eq!(gate.ended(), 0);
    for child in children.into_iter().chain([spawned]) {
        eventually("its children are gone", || (!alive(child)).then_some(()));
    }
    let records = gate.records();
    let of = |kind: &str| records.iter().filter(|record| record["kind"] == kind).count();
    assert_eq!(of("intent"), of("outcome"));
    let seen = rest(&mut slow);
    assert_eq!(
        seen.last().map(|answer| answer["id"].clone()),
        Some(json!("slow")),
        "legacy: {seen:?}"
    );
}

#[test]
fn sigterm_with_nothing_in_flight_ends_at_once() {
    let mut gate = setup().stdio("s", "legacy", names(&["t"])).agents(everyone()).start();
    let session = gate.agent("a").session();
    session.call("s__t", json!({}));
    let _feed = session.listen(None);
    let children = gate.children();
    assert!(!children.is_empty());
    gate.signal("-TERM");
    assert_eq!(gate.ended(), 0);
    assert!(children.into_iter().all(|child| !alive(child)));
}

/// Calls until there is a response, as a client of the server's protocol version.
fn works(gate: &Gate, era: &str, what: &str) {
    let agent = gate.agent("a");
    let session = agent.session();
    let client: &dyn Caller = if era == "legacy" { &session } else { &agent };
    client.list();
    eventually(&format!("the {era} server is used after {what}"), || {
        client.call("s__t", json!({}))["result"].is_object().then_some(())
    });
}

#[test]
fn a_process_that_fails_at_its_first_start_is_used_once_it_works() {
    for era in ["legacy", "modern"] {
        let base = setup().stdio("s", era, names(&["t"]));
        let mark = base.path("failed").to_str().unwrap().to_string();
        works(
            &base.with("s", "env", json!({"FAIL_ONCE": mark})).agents(everyone()).start(),
            era,
            "a failed start",
        );
    }
}

#[test]
fn a_server_on_http_that_was_busy_at_first_is_used_once_it_works() {
    for era in ["legacy", "modern"] {
        for status in ["503", "429", "401"] {
            let first = [("FIRST_STATUS", status)];
            works(
                &setup().web_with("s", era, names(&["t"]), &first).agents(everyone()).start(),
                era,
                status,
            );
        }
    }
}

#[test]
fn at_the_end_new_connections_are_refused() {
    let mut gate = setup().stdio("s", "legacy", names(&["later"])).agents(everyone()).start();
    let session = gate.agent("a").session();
    session.list();
    let params = json!({"name": "s__later", "arguments": {"seconds": 2}});
    let mut later = session.open(&request(json!("later"), "tools/call", params));
    eventually("the call arrives", || (gate.calls("s").len() == 1).then_some(()));
    gate.signal("-TERM");
    eventually("new connections are refused", || {
        TcpStream::connect(("127.0.0.1", gate.port)).is_err()
    });
    assert!(gate.child.as_mut().unwrap().try_wait().unwrap().is_none(), "one call is in flight");
    assert_eq!(text(&later.reply().json()), "later");
    assert_eq!(gate.ended(), 0);
}
