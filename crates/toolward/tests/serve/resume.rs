//! An HTTP server that closes the stream of a call before its response, so that the gateway resumes it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::harness::*;

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

fn is_call(entry: &Value) -> bool {
    entry["body"].as_str().is_some_and(|body| body.contains("\"tools/call\""))
}
