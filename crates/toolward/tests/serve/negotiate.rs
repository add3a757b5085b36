//! Negotiation of a server's protocol version: while clients wait, and never decided by a timeout
//! alone.

use serde_json::{Value, json};

use super::harness::*;

/// The number of times a server was started.
fn starts(gate: &Gate, server: &str) -> usize {
    gate.log(server).iter().filter(|entry| entry["event"] == "start").count()
}

/// Whether a message that reached a server has the metadata of a modern request.
fn is_modern(message: &Value) -> bool {
    message["params"]["_meta"].get(format!("{META}protocolVersion")).is_some()
}

/// The state of a server in a listing.
fn outcome(client: &dyn Caller, server: &str) -> Value {
    let answer = client.ask("tools/list", json!({}));
    answer["result"]["_meta"]["io.toolward/servers"][server].clone()
}

#[test]
fn a_modern_server_that_starts_slowly_is_used_as_soon_as_it_answers() {
    let gate = setup()
        .stdio("s", "modern", names(&["t"]))
        .with("s", "env", json!({"START_TAKES": "6.5"}))
        .set("list_timeout", json!("1s"))
        .agents(everyone())
        .start();
    let (modern, session) = (gate.agent("a"), gate.agent("b").session());
    for client in [&modern as &dyn Caller, &session] {
        assert_eq!(outcome(client, "s"), "starting");
    }
    // A negotiation in flight is not waited for again and again.
    assert_eq!(outcome(&modern, "s"), "starting");
    for client in [&modern as &dyn Caller, &session] {
        eventually("it is listed once it answers", || (client.list() == ["s__t"]).then_some(()));
        assert_eq!(text(&client.call("s__t", json!({}))), "did t");
    }
    assert!(gate.calls("s").iter().all(is_modern));
}

#[test]
fn an_old_server_that_exits_on_what_it_does_not_know_is_in_the_first_list() {
    let gate = setup()
        .stdio("s", "legacy", names(&["t"]))
        .with("s", "env", json!({"UNKNOWN": "exit"}))
        .agents(everyone())
        .start();
    let modern = gate.agent("a");
    assert_eq!(modern.list(), ["s__t"]);
    assert_eq!(text(&modern.call("s__t", json!({}))), "did t");
    assert_eq!(gate.calls("s").len(), 1);
    // The result is cached: for the next agent, nothing is tried.
    assert_eq!(gate.agent("b").list(), ["s__t"]);
    assert_eq!(gate.heard("s", "server/discover").len(), 1);
    assert_eq!(starts(&gate, "s"), 3, "asked in vain once, then one for each agent");
    let discover = modern.at("/mcp/s").modern("server/discover", json!({}));
    assert_eq!(discover["result"]["supportedVersions"], json!([MODERN]));
}

#[test]
fn an_old_server_on_http_that_stumbles_over_what_it_does_not_know_is_in_the_first_list() {
    for unknown in [("UNKNOWN", "silent"), ("UNKNOWN_STATUS", "500"), ("UNKNOWN_STATUS", "404")] {
        let gate =
            setup().web_with("w", "legacy", names(&["t"]), &[unknown]).agents(everyone()).start();
        let modern = gate.agent("a");
        assert_eq!(modern.list(), ["w__t"], "{unknown:?}");
        assert_eq!(text(&modern.call("w__t", json!({}))), "did t");
        assert_eq!(gate.heard("w", "server/discover").len(), 1, "{unknown:?}");
        assert_eq!(gate.heard("w", "initialize").len(), 1, "{unknown:?}");
    }
}

#[test]
fn the_clients_own_era_is_used_if_the_server_supports_it() {
    for modern_first in [true, false] {
        let gate = setup().stdio("s", "both", names(&["t"])).agents(everyone()).start();
        let modern = gate.agent("a");
        let session = || gate.agent("b").session();
        let mut expected = Vec::new();
        let mut call = |own: bool| {
            let client: Box<dyn Caller> =
                if own { Box::new(modern.clone()) } else { Box::new(session()) };
            assert_eq!(client.list(), ["s__t"]);
            assert_eq!(text(&client.call("s__t", json!({}))), "did t");
            expected.push(own);
        };
        for own in [modern_first, !modern_first, modern_first, !modern_first] {
            call(own);
        }
        let spoken: Vec<bool> = gate.calls("s").iter().map(is_modern).collect();
        assert_eq!(spoken, expected, "each in its own era");
        // The same at its own address.
        assert_eq!(text(&modern.at("/mcp/s").call("t", json!({}))), "did t");
        assert_eq!(text(&gate.agent("b").at("/mcp/s").session().call("t", json!({}))), "did t");
        let spoken: Vec<bool> = gate.calls("s").iter().skip(4).map(is_modern).collect();
        assert_eq!(spoken, [true, false]);
    }
}

#[test]
fn a_slow_server_of_both_eras_is_used_in_the_clients_own() {
    let gate = setup()
        .stdio("s", "both", names(&["t"]))
        .with("s", "env", json!({"START_TAKES": "2.2"}))
        .set("list_timeout", json!("20s"))
        .agents(everyone())
        .start();
    for client in [&gate.agent("a") as &dyn Caller, &gate.agent("b").session()] {
        assert_eq!(text(&client.call("s__t", json!({}))), "did t");
    }
    let spoken: Vec<bool> = gate.calls("s").iter().map(is_modern).collect();
    assert_eq!(spoken, [true, false]);
    assert_eq!(starts(&gate, "s"), 2, "one for each protocol version");
}

#[test]
fn a_legacy_process_that_a_modern_client_starts_continues_in_its_own_era() {
    let gate = setup()
        .stdio("s", "legacy", names(&["t"]))
        .stdio("slow", "legacy", names(&["t"]))
        .with("slow", "env", json!({"START_TAKES": "2.2"}))
        .set("list_timeout", json!("20s"))
        .agents(everyone())
        .start();
    let modern = gate.agent("a");
    assert_eq!(text(&modern.at("/mcp/s").call("t", json!({}))), "did t");
    assert_eq!(modern.list(), ["s__t", "slow__t"]);
    assert_eq!(text(&modern.call("slow__t", json!({}))), "did t");
    for server in ["s", "slow"] {
        // The process that reported `server/discover` as unknown stays in use.
        let log = gate.log(server);
        let of = |method: &str| -> Vec<(Value, Value)> {
            let heard = |body: &str| serde_json::from_str(body).ok();
            let all = log.iter().filter_map(|entry| {
                let message: Value = heard(entry["body"].as_str()?)?;
                (message["method"] == method).then(|| (entry["pid"].clone(), message["id"].clone()))
            });
            all.collect()
        };
        let (asked, called) = (of("server/discover"), of("tools/call"));
        assert_eq!((asked.len(), &asked[0].0), (1, &called[0].0), "{server}");
        let begun = of("initialize").into_iter().find(|(pid, _)| *pid == asked[0].0).unwrap();
        assert_ne!(asked[0].1, begun.1, "no id is used twice");
        assert_eq!(starts(&gate, server), 1, "{server}");
    }
}

#[test]
fn a_failed_start_is_logged_once() {
    for era in ["legacy", "modern"] {
        let gate = setup()
            .server("gone", json!({"command": "/nonexistent/server"}))
            .server("dies", json!({"command": "false"}))
            .server("closed", json!({"url": "http://127.0.0.1:1/mcp"}))
            .agents(everyone())
            .start();
        let agent = gate.agent("a");
        let client: Box<dyn Caller> =
            if era == "legacy" { Box::new(agent.session()) } else { Box::new(agent) };
        assert_eq!(client.list(), Vec::<String>::new());
        for (server, words) in
            [("gone", "cannot be started"), ("dies", "it exited"), ("closed", "cannot be reached")]
        {
            let said = eventually("it is logged", || {
                let said = gate.said.lock().unwrap();
                let about = format!(" WARN upstream: {server}: ");
                let lines: Vec<String> =
                    said.lines().filter(|l| l.contains(&about)).map(String::from).collect();
                (!lines.is_empty()).then_some(lines)
            });
            assert_eq!(said.len(), 1, "{era}: {said:?}");
            assert!(said[0].contains(words), "{said:?}");
        }
    }
}

#[test]
fn a_server_that_rejects_both_eras_is_reported_and_leaves_nothing_behind() {
    // It knows the first message of neither protocol version.
    let script = "import json, sys\n\
        for line in sys.stdin:\n    message = json.loads(line)\n    \
        print(json.dumps({'jsonrpc': '2.0', 'id': message['id'], 'error': {'code': -32601, 'message': 'no'}}), flush=True)";
    let gate = setup()
        .server("odd", json!({"command": "python3", "args": ["-c", script]}))
        .agents(everyone())
        .start();
    for client in [&gate.agent("a") as &dyn Caller, &gate.agent("b").session()] {
        assert_eq!(outcome(client, "odd"), "unknown-revision");
        let answer = client.call("odd__t", json!({}));
        assert_eq!(answer["error"]["data"]["error"], "server_unavailable", "{answer}");
    }
    eventually("its processes end", || gate.children().is_empty().then_some(()));
}
