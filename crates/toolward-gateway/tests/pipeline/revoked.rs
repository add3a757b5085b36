//! A token is revoked while something of it is open: streams end, and calls are canceled at their server.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{AGENT, Gate, Kind, Server, Step, gate, within_an_hour};

const RULES: &str = "servers: {s: {command: x}}\n\
     agents: {dev: {allow: {servers: [s]}}, other: {allow: {servers: [s]}}}\n";

/// A server that asks before it carries out a call.
fn asking() -> Server {
    let server = Server::legacy(&["drop"]);
    server.on("tools/call", |_| {
        let params = json!({"message": "?", "requestedSchema": {"type": "object"}});
        let method = "elicitation/create";
        vec![Step::Send(json!({"jsonrpc": "2.0", "id": "q", "method": method, "params": params}))]
    });
    server
}

async fn client(gate: &Gate, kind: Kind) -> crate::kit::Client {
    gate.asked_client(kind, json!({"elicitation": {}}), |_: &Value| None).await
}

/// Whether the server is notified within a second that its call is canceled.
async fn is_canceled(server: &Server) -> bool {
    let canceled = server.arrival("notifications/cancelled");
    tokio::time::timeout(Duration::from_secs(1), canceled).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_held_call_of_a_revoked_token_is_canceled() {
    let server = asking();
    let gate = gate(RULES, &server).start();
    let client = client(&gate, Kind::HttpModern).await;
    let answer = client.call("drop").await;
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    // Nothing happens to it while its token is valid, even if another agent's token is revoked.
    gate.reload_revoking(RULES, &["other"]);
    assert!(!is_canceled(&server).await);
    gate.reload_revoking(RULES, &[AGENT]);
    assert!(is_canceled(&server).await);
    assert_eq!(gate.outcomes().await, ["aborted"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_the_client_of_a_revoked_token_is_canceled() {
    let server = asking();
    let gate = gate(RULES, &server).start();
    let client = client(&gate, Kind::HttpLegacy).await;
    let pending = client.begin_call("drop", json!({}));
    server.arrival("tools/call").await;
    // The question is on its way to the client.
    tokio::time::sleep(Duration::from_secs(1)).await;
    gate.reload_revoking(RULES, &[AGENT]);
    assert!(is_canceled(&server).await);
    within_an_hour("the stream ends", pending.no_answer()).await;
    assert_eq!(gate.outcomes().await, ["cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn a_continued_call_of_a_revoked_token_is_canceled() {
    let server = asking();
    let gate = gate(RULES, &server).start();
    let client = client(&gate, Kind::HttpModern).await;
    let answer = client.call_with("drop", json!({})).await;
    let params = json!({
        "name": "s__drop", "arguments": {}, "requestState": answer["result"]["requestState"],
        "inputResponses": {"q1": {"action": "accept"}},
    });
    // The server does not answer after the response of the client.
    let pending = client.begin("tools/call", params);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(server.responses().len(), 1);
    gate.reload_revoking(RULES, &[AGENT]);
    assert!(is_canceled(&server).await);
    pending.no_answer().await;
}

#[tokio::test(start_paused = true)]
async fn a_subscription_of_a_revoked_token_ends() {
    let server = Server::legacy(&["echo"]);
    server.set_resources(&["dir:a"]);
    let gate = gate(RULES, &server).start();
    let client = client(&gate, Kind::HttpModern).await;
    let filter = json!({"notifications": {"resourceSubscriptions": ["dir:a"]}});
    let stream = client.begin("subscriptions/listen", filter);
    server.arrival("resources/subscribe").await;
    gate.reload_revoking(RULES, &[AGENT]);
    let ended = server.arrival("resources/unsubscribe");
    assert!(tokio::time::timeout(Duration::from_secs(1), ended).await.is_ok());
    stream.no_answer().await;
}
