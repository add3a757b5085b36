//! Another configuration is activated at each point where a call waits.

use std::time::Duration;

use serde_json::{Value, json};

use super::kit::*;

const NOTHING: &str =
    "servers: {s: {command: x}}\nagents: {dev: {allow: {servers: [s], tools: {s: [none]}}}}\n";

/// Responds when the test allows it.
fn held(call: &Value) -> Vec<Step> {
    let result = json!({"content": [], "resultType": "complete"});
    vec![Step::Hold, Step::Result(call["id"].clone(), result)]
}

#[tokio::test(start_paused = true)]
async fn a_token_revoked_after_the_head_makes_no_call() {
    for kind in [Kind::HttpModern, Kind::HttpLegacy] {
        let server = Server::both(&["echo"]);
        let gate = gate(&allow("echo"), &server).start();
        let client = gate.client(kind).await;
        client.list().await;
        let call = client.send_head("tools/call", json!({"name": "s__echo"})).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        gate.reload_revoking(&allow("echo"), &[AGENT]);
        assert_eq!(call.finish().await.status, 401, "{kind:?}");
        assert!(server.received("tools/call").is_empty(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_removed_after_the_head_makes_no_call() {
    let server = Server::modern(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::HttpModern).await;
    let call = client.send_head("tools/call", json!({"name": "s__echo"})).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    gate.reload(NOTHING);
    let reply = call.finish().await;
    assert!(reply.messages()[0]["error"].is_object(), "{:?}", reply.messages());
    assert!(server.received("tools/call").is_empty());
    assert_eq!(gate.record("refusal").await["policy"], NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_list_keeps_the_configuration_that_admitted_it() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        server.on("tools/list", |call| {
            let tools = json!([{"name": "echo", "inputSchema": {"type": "object"}}]);
            vec![Step::Hold, Step::Result(call["id"].clone(), json!({"tools": tools}))]
        });
        let gate = gate(&allow("echo"), &server).start();
        let client = gate.client(kind).await;
        let call = client.begin_call("echo", json!({}));
        server.arrival("tools/list").await;
        gate.reload(NOTHING);
        server.release();
        assert!(call.answer().await["result"].is_object(), "{kind:?}");
        assert_eq!(gate.record("intent").await["policy"], allow("echo"), "{kind:?}");
        assert!(client.call("echo").await["error"].is_object(), "{kind:?}: the next one is denied");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_is_delayed_is_not_changed() {
    let server = Server::legacy(&["echo", "secret"]);
    let gate = gate(&(allow("echo") + "limits: {refused: 1/h}\n"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.call("secret").await;
    let call = client.begin_call("secret", json!({}));
    tokio::time::sleep(Duration::from_secs(1)).await;
    gate.reload(&allow("secret"));
    assert!(call.answer().await["error"].is_object());
    assert!(client.call("secret").await["result"].is_object(), "the next one is allowed");
}

#[tokio::test(start_paused = true)]
async fn a_call_at_its_server_is_answered_though_it_would_be_denied_now() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        server.on("tools/call", held);
        let gate = gate(&allow("echo"), &server).start();
        let client = gate.client(kind).await;
        let call = client.begin_call("echo", json!({}));
        server.arrival("tools/call").await;
        gate.reload(NOTHING);
        server.release();
        assert!(call.answer().await["result"].is_object(), "{kind:?}");
        assert_eq!(gate.outcomes().await, ["ok"], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_at_a_server_that_is_removed_is_answered() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        server.on("tools/call", held);
        let gate = gate(&allow("echo"), &server).server("t", &server).start();
        let client = gate.client(kind).await;
        let call = client.begin_call("echo", json!({}));
        server.arrival("tools/call").await;
        gate.reload("servers: {t: {command: x}}\nagents: {dev: {allow: {servers: [t]}}}\n");
        server.release();
        assert!(call.answer().await["result"].is_object(), "{kind:?}");
        assert_eq!(client.list().await, ["t__echo"], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_definition_stays_keeps_its_process() {
    let server = Server::legacy(&["echo", "other"]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.call("echo").await;
    gate.reload(&allow("other"));
    assert!(client.call("other").await["result"].is_object());
    assert!(client.call("echo").await["error"].is_object());
    assert_eq!(server.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_definition_changes_gets_another_process() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", held);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let before = client.begin_call("echo", json!({}));
    server.arrival("tools/call").await;
    gate.reload(&config("timeout: 5s", "echo"));
    let after = client.begin_call("echo", json!({}));
    within_an_hour("two calls arrive", server.arrivals("tools/call", 2)).await;
    server.release();
    assert!(before.answer().await["result"].is_object());
    assert!(after.answer().await["result"].is_object());
    assert_eq!(server.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn consumed_units_of_a_rate_limit_stay_consumed() {
    let server = Server::legacy(&["echo"]);
    let config = allow("echo") + "limits: {calls: 1/h}\n";
    let gate = gate(&config, &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.call("echo").await;
    gate.reload(&(config + "# changed\n"));
    assert_eq!(data(&client.call("echo").await)["error"], "limit_exceeded");
}

#[tokio::test(start_paused = true)]
async fn a_session_gets_list_changed_only_if_its_list_changed() {
    let server = Server::legacy(&["echo", "other"]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.list().await;
    let told = || client.notifications("notifications/tools/list_changed").len();
    gate.reload(&(allow("echo") + "# nothing changed\n"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(told(), 0);
    gate.reload(&allow("echo, other"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(told(), 1);
    assert_eq!(client.list().await, ["s__echo", "s__other"]);
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_survive_a_hundred_reloads() {
    let server = Server::both(&["echo"]);
    server.on("tools/call", |call| {
        let result = json!({"content": [], "resultType": "complete"});
        vec![Step::Wait(Duration::from_millis(7)), Step::Result(call["id"].clone(), result)]
    });
    let gate = gate(&allow("echo"), &server).start();
    let mut clients = Vec::new();
    for kind in Kind::ALL {
        clients.push(gate.client(kind).await);
    }
    for number in 0..100 {
        let calls: Vec<_> = clients.iter().map(|one| one.begin_call("echo", json!({}))).collect();
        tokio::time::sleep(Duration::from_millis(3)).await;
        gate.reload(&(allow("echo") + &format!("# {number}\n")));
        for call in calls {
            assert!(call.answer().await["result"].is_object());
        }
    }
    assert_eq!(server.received("tools/call").len(), 400);
    assert_eq!(gate.outcomes().await, vec!["ok"; 400]);
}
