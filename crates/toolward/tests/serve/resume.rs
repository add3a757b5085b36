//! An HTTP server that closes the stream of a call before its response, so that the gateway resumes it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::harness::*;
use super::wire::{Event, Reply};

/// The GET requests with which the gateway resumed streams: session and event.
fn taken_up(gate: &Gate) -> Vec<(Value, Value)> {
    let log = gate.log("w");
    let gets = log.iter().filter(|entry| entry["http"] == "GET");
    let with_event = gets.filter(|entry| entry["headers"].get("last-event-id").is_some());
    with_event
        .map(|entry| {
            let headers = &entry["headers"];
            (headers["mcp-session-id"].clone(), headers["last-event-id"].clone())
        })
        .collect()
}

#[test]
fn an_interrupted_stream_is_resumed_and_its_call_never_sent_twice() {
    let tools = ["resumes", "in_vain", "refused", "patient", "no_ids", "t"];
    let gate = setup()
        .web("w", "legacy", names(&tools))
        .with("w", "timeout", json!({"patient": "2s", "*": "60s"}))
        .agents(everyone())
        .start();
    let session = gate.agent("a").session();
    let modern = gate.agent("b");
    session.list();
    let params = json!({"name": "w__resumes", "_meta": {"progressToken": "p"}});
    for reply in [
        session.post(&request(json!(1), "tools/call", params.clone())),
        modern.modern_reply(json!(1), "tools/call", params),
    ] {
        let messages = reply.messages();
        assert_eq!(messages.len(), 3, "{messages:?}");
        for (at, told) in messages[..2].iter().enumerate() {
            assert_eq!(told["params"], json!({"progressToken": "p", "progress": at + 1}));
        }
        assert_eq!((&messages[2]["id"], text(&messages[2])), (&json!(1), "resumed"));
    }
    let calls: Vec<Value> = gate.log("w").into_iter().filter(is_call).collect();
    assert_eq!(calls.len(), 2, "each call was sent once");
    let asked = taken_up(&gate);
    assert_eq!(asked.len(), 4, "{asked:?}");
    for (call, asked) in calls.iter().zip(asked.chunks(2)) {
        let body: Value = serde_json::from_str(call["body"].as_str().unwrap()).unwrap();
        for ((session, event), kind) in asked.iter().zip(["resumes", "again"]) {
            assert_eq!(*session, call["headers"]["mcp-session-id"]);
            assert_eq!(*event, json!(format!("{kind}/{}", body["id"])));
        }
    }

    // A server that never responds is not polled forever, nor without pauses.
    for (tool, most) in [("in_vain", 10), ("refused", 10)] {
        let before = taken_up(&gate).len();
        let begun = Instant::now();
        let answer = session.call(&format!("w__{tool}"), json!({}));
        assert_eq!(answer["error"]["data"]["error"], "server_disconnected", "{answer}");
        let tried = taken_up(&gate).len() - before;
        assert!((2..=most).contains(&tried), "{tool}: {tried}");
        let spent = begun.elapsed();
        assert!(spent > Duration::from_millis(100), "it pauses between attempts: {spent:?}");
    }
    // A server that requests a retry after an hour does not extend the call beyond its timeout.
    let answer = session.call("w__patient", json!({}));
    assert_eq!(answer["error"]["data"]["error"], "server_timeout", "{answer}");
    // Without an event id there is nothing to resume.
    let before = taken_up(&gate).len();
    let answer = session.call("w__no_ids", json!({}));
    assert_eq!(answer["error"]["data"]["error"], "server_disconnected", "{answer}");
    assert_eq!(taken_up(&gate).len(), before);
    assert_eq!(text(&session.call("w__t", json!({}))), "did t");
    assert_eq!(gate.calls("w").len(), 7, "none was sent twice");
}

#[test]
fn a_stream_that_a_server_closes_is_closed_for_the_client_which_polls_it() {
    let gate =
        setup().web("w", "legacy", names(&["resumes", "in_vain"])).agents(everyone()).start();
    let a = gate.agent("a").session_of(NEWEST_LEGACY);
    a.list();
    let call = |name: &str| {
        let params = json!({"name": name, "_meta": {"progressToken": "p"}});
        let mut stream = a.open(&request(json!("x"), "tools/call", params));
        assert_eq!(stream.head().header("content-type"), Some("text/event-stream"));
        let events: Vec<Event> = std::iter::from_fn(|| stream.event()).collect();
        let last = events.last().unwrap();
        assert!(events[0].data.is_empty() && events[0].id.is_some(), "{events:?}");
        assert!(last.data.is_empty() && last.retry.as_deref() == Some("50"), "{events:?}");
        assert_eq!(events.len(), 3, "{events:?}");
        assert_eq!(events[1].json()["params"]["progress"], 1);
        last.id.clone().unwrap()
    };
    let rest = |last: &str| {
        let mut stream = a.listen(Some(last));
        let events = std::iter::from_fn(|| stream.event());
        let events = events.filter(|event| !event.data.is_empty());
        events.map(|event| event.json()).collect::<Vec<Value>>()
    };
    let last = call("w__resumes");
    // It belongs to the agent and the session.
    for other in [gate.agent("b").session(), gate.agent("a").session()] {
        assert!(other.listen(Some(&last)).is_silent(Duration::from_millis(300)));
    }
    let seen = rest(&last);
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!(seen[0]["params"], json!({"progressToken": "p", "progress": 2}));
    assert_eq!((&seen[1]["id"], text(&seen[1])), (&json!("x"), "resumed"));
    assert_eq!(rest(&last), seen, "the response is kept for a replay");
    // A server that never responds is polled a few times, by the gateway; then the client has an error.
    let mut last = call("w__in_vain");
    let error = eventually("the call ends", || {
        let mut stream = a.listen(Some(&last));
        let events: Vec<Event> = std::iter::from_fn(|| stream.event()).collect();
        last = events.last()?.id.clone()?;
        events.into_iter().find(|event| !event.data.is_empty())
    });
    assert_eq!(error.json()["error"]["data"]["error"], "server_disconnected");
    assert_eq!(gate.calls("w").len(), 2, "no call was sent twice");
}

#[test]
fn a_response_is_a_stream_if_the_servers_is() {
    let gate = setup()
        .web("w", "legacy", names(&["streams", "t"]))
        .web("m", "modern", names(&["streams", "t"]))
        .stdio("s", "legacy", names(&["t"]))
        .agents(everyone())
        .start();
    let call = |name: &str| request(json!(1), "tools/call", json!({"name": name}));
    let list = request(json!(1), "tools/list", json!({}));
    let is_stream = |reply: &Reply| {
        assert_eq!(reply.json()["id"], 1, "{reply:?}");
        reply.header("content-type") == Some("text/event-stream")
    };
    let new = gate.agent("a").session_of(NEWEST_LEGACY);
    new.list();
    for (name, streamed) in [("w__streams", true), ("w__t", false), ("s__t", true)] {
        let reply = new.post(&call(name));
        assert_eq!(is_stream(&reply), streamed, "{name}: {reply:?}");
        // The first event can be resumed from, and the response comes from a replay too.
        let body = String::from_utf8_lossy(&reply.body).into_owned();
        if let Some(id) = body.lines().find_map(|line| line.strip_prefix("id: ")) {
            let mut replay = new.listen(Some(id));
            let events: Vec<Event> = std::iter::from_fn(|| replay.event()).collect();
            assert_eq!(events.len(), 2, "{events:?}");
            assert_eq!(events[1].json(), reply.json());
        }
    }
    assert!(!is_stream(&new.post(&list)), "the list of all servers is the gateway's own");
    for (server, streamed) in [("s", true), ("w", false)] {
        let session = gate.agent("a").at(&format!("/mcp/{server}")).session_of(NEWEST_LEGACY);
        assert_eq!(is_stream(&session.post(&list)), streamed, "{server}");
    }
    // Clients of older versions could not resume the stream.
    let old = gate.agent("a").session();
    old.list();
    assert!(!is_stream(&old.post(&call("s__t"))) && !is_stream(&old.post(&call("w__streams"))));
    // A client that reads no streams gets none.
    let headers = [new.headers().as_slice(), &[("Accept", "application/json")]].concat();
    let reply = gate.agent("a").send("POST", &headers, &call("s__t").to_string());
    assert!(!is_stream(&reply));
    let modern = gate.agent("a");
    modern.list();
    for (name, streamed) in [("m__streams", true), ("m__t", false), ("s__t", false)] {
        let reply = modern.modern_reply(json!(1), "tools/call", json!({"name": name}));
        assert_eq!(is_stream(&reply), streamed, "{name}: {reply:?}");
    }
}

fn is_call(entry: &Value) -> bool {
    entry["body"].as_str().is_some_and(|body| body.contains("\"tools/call\""))
}
