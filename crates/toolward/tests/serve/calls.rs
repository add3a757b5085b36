//! Calls in flight: cancellation, progress and isolation between clients.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::harness::*;

fn reached(gate: &Gate, server: &str, calls: usize) {
    eventually("the call reaches the server", || (gate.calls(server).len() >= calls).then_some(()));
}

fn outcomes(gate: &Gate) -> Vec<String> {
    let records = gate.records();
    records.iter().filter_map(|record| Some(record["outcome"].as_str()?.to_string())).collect()
}

#[test]
fn a_disconnect_cancels_a_modern_request() {
    let gate = setup()
        .stdio("s", "modern", names(&["hang", "t"]))
        .web("w", "modern", names(&["hang", "t"]))
        .agents(everyone())
        .start();
    let a = gate.agent("a");
    a.list();
    let mut ended = 0;
    for server in ["s", "w"] {
        for token in [None, Some("p")] {
            let mut params = json!({"name": format!("{server}__hang")});
            if let Some(token) = token {
                params["_meta"] = json!({"progressToken": token});
            }
            let calls = gate.calls(server).len() + 1;
            let mut connection = a.modern_open(json!(1), "tools/call", params);
            reached(&gate, server, calls);
            if token.is_some() {
                assert_eq!(connection.head().header("content-type"), Some("text/event-stream"));
                let event = connection.event().unwrap();
                assert_eq!(event.id, None, "modern events have no ids");
                assert_eq!(event.json()["params"]["progressToken"], "p");
            }
            drop(connection);
            ended += 1;
            if server == "s" {
                let minted = gate.calls("s").last().unwrap()["id"].clone();
                eventually("the server is notified", || {
                    let told = gate.heard("s", "notifications/cancelled");
                    told.iter().any(|one| one["params"]["requestId"] == minted).then_some(())
                });
            } else {
                eventually("the server's stream is closed", || {
                    let gone =
                        gate.log("w").iter().filter(|one| one["event"] == "disconnected").count();
                    (gone == ended - 3).then_some(())
                });
            }
            eventually("it is recorded", || (outcomes(&gate).len() == ended).then_some(()));
            assert!(matches!(outcomes(&gate)[ended - 1].as_str(), "aborted" | "cancelled"));
        }
        assert_eq!(text(&a.call(&format!("{server}__t"), json!({}))), "did t");
        ended += 1;
    }
}

#[test]
fn a_disconnect_never_cancels_a_legacy_request() {
    let gate = setup()
        .stdio("s", "legacy", names(&["slow"]))
        .web("w", "legacy", names(&["slow"]))
        .agents(everyone())
        .start();
    let session = gate.agent("a").session();
    session.list();
    for (at, server) in ["s", "s", "w", "w"].iter().enumerate() {
        let mut params = json!({"name": format!("{server}__slow"), "arguments": {"seconds": 0.2}});
        if at % 2 == 1 {
            params["_meta"] = json!({"progressToken": 1});
        }
        let connection = session.open(&request(json!(at), "tools/call", params));
        reached(&gate, server, at % 2 + 1);
        drop(connection);
    }
    eventually("all are finished", || (outcomes(&gate).len() == 4).then_some(()));
    assert_eq!(outcomes(&gate), ["ok"; 4]);
    for server in ["s", "w"] {
        assert!(gate.heard(server, "notifications/cancelled").is_empty());
    }
}

#[test]
fn a_cancellation_reaches_the_request_of_its_own_session_only() {
    let gate = setup()
        .stdio("s", "legacy", names(&["hang", "t"]))
        .with("s", "share", json!(true))
        .web("w", "legacy", names(&["hang", "t"]))
        .agents(everyone())
        .start();
    let mine = gate.agent("a").session();
    let others = [gate.agent("a").session(), gate.agent("b").session()];
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
    for server in ["s", "w"] {
        mine.list();
        let name = format!("{server}__hang");
        let mut held = mine.open(&request(json!(5), "tools/call", json!({"name": name})));
        reached(&gate, server, 1);
        let minted = gate.calls(server)[0]["id"].clone();
        let told = |id: Value| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        for other in &others {
            assert_eq!(other.post(&cancel).status, 202);
            assert_eq!(other.post(&told(minted.clone())).status, 202);
            // A later call has reached the server after everything that was sent before it.
            assert_eq!(text(&other.call(&format!("{server}__t"), json!({}))), "did t");
        }
        for near in [json!("5"), json!(6)] {
            assert_eq!(mine.post(&told(near)).status, 202);
        }
        assert!(gate.heard(server, "notifications/cancelled").is_empty());
        assert!(held.is_silent(Duration::from_millis(50)));
        // An id that is in use cannot be reused.
        let again = mine.post(&request(json!(5), "tools/call", json!({"name": name})));
        assert_eq!((again.status, again.code()), (400, -32600));
        assert_eq!(mine.post(&cancel).status, 202);
        eventually("the server is notified", || {
            let heard = gate.heard(server, "notifications/cancelled");
            heard.iter().any(|one| one["params"]["requestId"] == minted).then_some(())
        });
        let reply = held.reply();
        // No response, on a stream that ends: 202 is for notifications.
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
        assert!(reply.messages().is_empty(), "{reply:?}");
        assert_eq!(
            outcomes(&gate).iter().filter(|one| *one == "cancelled").count(),
            if server == "s" { 1 } else { 2 }
        );
    }
}

#[test]
fn progress_comes_under_the_client_s_own_token_on_its_own_request() {
    let gate = setup()
        .stdio("s", "legacy", names(&["slow"]))
        .web("w", "legacy", names(&["slow"]))
        .stdio("n", "modern", names(&["slow"]))
        .web("m", "modern", names(&["slow"]))
        .agents(json!({
            "a": {"allow": {"servers": ["s", "w"]}},
            "b": {"allow": {"servers": ["n", "m"]}},
        }))
        .start();
    let session = gate.agent("a").session();
    let modern = gate.agent("b");
    session.list();
    modern.list();
    let mut feed = session.listen(None);
    for token in [json!("mine"), json!(7), json!("7"), json!("größe\n")] {
        for server in ["s", "w", "n", "m"] {
            let params = json!({"name": format!("{server}__slow"), "arguments": {"seconds": 0}, "_meta": {"progressToken": token}});
            let reply = match server {
                "s" | "w" => session.post(&request(json!("id"), "tools/call", params)),
                _ => modern.modern_reply(json!("id"), "tools/call", params),
            };
            let messages = reply.messages();
            assert_eq!(messages.len(), 3, "{server}: {messages:?}");
            for (at, message) in messages[..2].iter().enumerate() {
                assert_eq!(message["params"], json!({"progressToken": token, "progress": at + 1}));
            }
            assert_eq!((&messages[2]["id"], text(&messages[2])), (&json!("id"), "slow"));
            let sent = gate.calls(server).pop().unwrap();
            assert_ne!(
                sent["params"]["_meta"]["progressToken"], token,
                "towards a server the gateway mints its own"
            );
            assert_ne!(sent["id"], "id");
        }
    }
    assert!(feed.is_silent(Duration::from_millis(50)));
    // A client that does not read events gets only the response; without a progress token there is no
    // progress.
    let params =
        json!({"name": "s__slow", "arguments": {"seconds": 0}, "_meta": {"progressToken": 1}});
    let mut headers = session.headers().to_vec();
    headers.push(("Accept", "application/json"));
    let reply = session.agent.post(&headers, &request(json!(1), "tools/call", params));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(text(&reply.json()), "slow");
}

/// Fifty calls of one client, five at a time, with ids and tokens that other clients use too.
fn fifty(
    send: impl Fn(u32, Value) -> super::wire::Reply + Send + Sync + 'static,
    who: &'static str,
    tool: String,
) -> Vec<std::thread::JoinHandle<()>> {
    let send = Arc::new(send);
    (0..5u32)
        .map(|lane| {
            let (send, tool) = (send.clone(), tool.clone());
            std::thread::spawn(move || {
                for round in 0..10 {
                    let id = lane * 10 + round;
                    let say = format!("{who}-{id}");
                    let params = json!({"name": tool, "arguments": {"say": say}, "_meta": {"progressToken": id}});
                    let reply = send(id, params);
                    let messages = reply.messages();
                    assert_eq!(messages.len(), 3, "{messages:?}");
                    for message in &messages[..2] {
                        assert_eq!(message["params"]["progressToken"], id);
                        assert_eq!(message["params"]["message"], say);
                    }
                    assert_eq!(messages[2]["id"], id);
                    assert_eq!(text(&messages[2]), say);
                }
            })
        })
        .collect()
}

#[test]
fn clients_with_the_same_ids_and_tokens_never_see_each_other_s_bytes() {
    let gate = setup()
        .stdio("s", "legacy", names(&["echo"]))
        .with("s", "share", json!(true))
        .web("w", "legacy", names(&["echo"]))
        .stdio("n", "modern", names(&["echo"]))
        .web("m", "modern", names(&["echo"]))
        .agents(everyone())
        .start();
    let (a, b) = (gate.agent("a"), gate.agent("b"));
    let (first, second) = (a.session(), b.session());
    for caller in [&first as &dyn Caller, &second, &a, &b] {
        assert!(caller.list().len() >= 2);
    }
    for server in ["s", "w", "n", "m"] {
        let tool = format!("{server}__echo");
        let mut running = Vec::new();
        if matches!(server, "s" | "w") {
            for (who, session) in [("first", first.clone()), ("second", second.clone())] {
                let send =
                    move |id, params| session.post(&request(json!(id), "tools/call", params));
                running.extend(fifty(send, who, tool.clone()));
            }
        } else {
            for (who, agent) in [("first", a.clone()), ("second", b.clone())] {
                let send = move |id, params| agent.modern_reply(json!(id), "tools/call", params);
                running.extend(fifty(send, who, tool.clone()));
            }
        }
        for lane in running {
            lane.join().unwrap();
        }
        assert_eq!(gate.calls(server).len(), 100);
        let log = gate.log(server);
        let calls =
            log.iter().filter(|one| one["body"].as_str().is_some_and(|b| b.contains("tools/call")));
        let mut pids: Vec<&Value> = calls.map(|one| &one["pid"]).collect();
        pids.dedup();
        assert_eq!(pids.len(), 1, "they share one process");
    }
    assert_eq!(outcomes(&gate).len(), 400);
}
