//! The audit log: no effect without a record.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use serde_json::json;

use super::kit::*;

#[tokio::test(start_paused = true)]
async fn the_intent_is_in_the_log_before_the_server_has_the_call() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        let dir: Arc<OnceLock<PathBuf>> = Arc::default();
        let seen = dir.clone();
        server.on("tools/call", move |call| {
            let log = std::fs::read_to_string(seen.get().unwrap().join("audit.jsonl")).unwrap();
            let recorded = log.contains(r#""kind":"intent""#);
            vec![Step::Result(call["id"].clone(), json!({"content": [], "recorded": recorded}))]
        });
        let gate = gate(&allow("echo"), &server).start();
        dir.set(gate.audit_dir()).unwrap();
        let answer = gate.client(kind).await.call("echo").await;
        assert_eq!(answer["result"]["recorded"], true, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_call_has_one_intent_and_one_outcome() {
    let server = Server::both(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    for kind in Kind::ALL {
        gate.client(kind).await.call("echo").await;
    }
    let (intents, outcomes) = (gate.records_of("intent").await, gate.records_of("outcome").await);
    assert_eq!((intents.len(), outcomes.len()), (4, 4));
    for (intent, outcome) in intents.iter().zip(&outcomes) {
        assert_eq!(intent["id"], outcome["intent"]);
        assert_eq!((&intent["server"], &intent["tool"]), (&json!("s"), &json!("echo")));
        assert_eq!((&intent["agent"], &intent["verdict"]), (&json!(AGENT), &json!("allow")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_be_recorded_is_not_forwarded() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        let gate = gate(&allow("echo"), &server).start();
        let client = gate.client(kind).await;
        client.list().await;
        gate.break_audit();
        let answer = client.call("echo").await;
        assert_eq!(data(&answer)["error"], "not_recorded", "{kind:?}: {answer}");
        assert!(server.received("tools/call").is_empty(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_and_a_listing_that_cannot_be_recorded_are_not_sent() {
    let server = Server::legacy(&["echo", "secret"]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.list().await;
    gate.break_audit();
    assert_eq!(data(&client.call("secret").await)["error"], "not_recorded");
    let listing = client.request("tools/list", json!({})).await;
    assert_eq!(data(&listing)["error"], "not_recorded", "{listing}");
}

#[tokio::test(start_paused = true)]
async fn calls_pass_again_when_the_log_can_be_written_and_the_outage_is_recorded() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.list().await;
    gate.break_audit();
    client.call("echo").await;
    gate.repair_audit();
    assert!(client.call("echo").await["result"].is_object());
    assert_eq!(gate.records_of("recovery").await.len(), 1);
    assert_eq!(server.received("tools/call").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_be_recorded_consumes_no_rate_limit() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&(allow("echo") + "limits: {calls: 1/h}\n"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.list().await;
    gate.break_audit();
    assert_eq!(data(&client.call("echo").await)["error"], "not_recorded");
    gate.repair_audit();
    assert!(client.call("echo").await["result"]["isError"].is_null());
}

#[tokio::test(start_paused = true)]
async fn without_a_required_log_calls_pass_unrecorded() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&allow("echo"), &server).audit_optional().start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.list().await;
    gate.break_audit();
    assert!(client.call("echo").await["result"].is_object());
    assert_eq!(server.received("tools/call").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_reaches_a_server_that_the_log_does_not_have() {
    let server = Server::both(&["echo", "secret"]);
    let gate = gate(&(allow("echo") + "limits: {calls: 3/h}\n"), &server).start();
    for kind in Kind::ALL {
        let client = gate.client(kind).await;
        for tool in ["echo", "secret", "nobody", "echo"] {
            client.call(tool).await;
        }
    }
    let intents = gate.records_of("intent").await;
    assert_eq!(server.received("tools/call").len(), 3);
    assert_eq!(intents.len(), 3);
    assert_eq!(gate.records_of("refusal").await.len(), 13);
}
