//! Attempts to execute something that no one approved.

use super::*;
use serde_json::json;

/// Sends a call with its arguments as they are written.
async fn call_raw(client: &Client, arguments: &str) -> Value {
    client.call_with("echo", serde_json::from_str(arguments).unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn an_approval_of_one_call_does_not_cover_another() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&(asks() + "approvals: {hold: 1s}\n"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    call_raw(&client, r#"{"path": "a", "n": 1}"#).await;
    let ticket = gate.ticket().await;
    gate.approve(&ticket, Scope::Call).await.unwrap();
    let others = [
        r#"{"path": "b", "n": 1}"#,
        r#"{"path": "a", "n": 2}"#,
        r#"{"path": "a", "n": 1.0}"#,
        r#"{"path": "a", "n": "1"}"#,
        r#"{"path": "а", "n": 1}"#,
        r#"{"path": "a", "n": 1, "force": true}"#,
        r#"{"path": "a"}"#,
        r#"{"n": "a", "path": 1}"#,
        r#"{}"#,
    ];
    for other in others {
        let answer = call_raw(&client, other).await;
        assert_eq!(data(&answer)["error"], "approval_pending", "{other}: {answer}");
    }
    assert!(server.received("tools/call").is_empty());
    assert_eq!(
        gate.grants().await.len(),
        1,
        "attempts with other arguments do not use up the grant"
    );
    assert!(is_done(&call_raw(&client, r#"{"n": 1, "path": "a"}"#).await));
}

#[tokio::test(start_paused = true)]
async fn the_approval_of_one_agent_is_not_the_approval_of_another() {
    let server = Server::legacy(&["echo"]);
    let config = "servers: {s: {command: x}}\napprovals: {hold: 1s}\nagents:\n  \
        dev: {roles: [r]}\n  eve: {roles: [r]}\n\
        roles: {r: {allow: {servers: [s], tools: {s: [{tool: echo, ask: true}]}}}}\n";
    let gate = gate(config, &server).start();
    let (dev, eve) =
        (gate.client(Kind::StdioLegacy).await, gate.client_of(Kind::StdioLegacy, "eve").await);
    dev.call("echo").await;
    gate.approve(&gate.ticket().await, Scope::Tool(HOUR)).await.unwrap();
    let answer = eve.call("echo").await;
    assert_eq!(data(&answer)["error"], "approval_pending", "{answer}");
    assert!(is_done(&dev.call("echo").await));
}

#[tokio::test(start_paused = true)]
async fn no_method_of_the_protocol_approves() {
    let server = Server::both(&["echo"]);
    let gate = gate(&asks(), &server).start();
    let client = gate.client(Kind::HttpModern).await;
    let call = client.begin_call("echo", json!({}));
    let ticket = gate.ticket().await;
    let attempts = ["approvals/approve", "toolward/approve", "approve", "tickets/approve"];
    for method in attempts {
        let answer = client.request(method, json!({"id": ticket.id})).await;
        assert!(answer["error"].is_object(), "{method}: {answer}");
    }
    for id in [&ticket.id, &ticket.reference] {
        let answer = client
            .request("tools/call", json!({"name": "s__echo", "arguments": {}, "requestState": id}))
            .await;
        assert!(answer["error"].is_object(), "{answer}");
    }
    assert!(gate.ticket().await.is_pending() && server.received("tools/call").is_empty());
    call.disconnect().await;
}

#[tokio::test(start_paused = true)]
async fn a_reference_decides_nothing() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&asks(), &server).start();
    gate.client(Kind::StdioLegacy).await.call("echo").await;
    let ticket = gate.ticket().await;
    let mut by_reference = ticket.clone();
    by_reference.id = ticket.reference;
    assert!(gate.approve(&by_reference, Scope::Call).await.is_err());
    assert!(gate.deny(&by_reference, None).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_decided_once() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&asks(), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.call("echo").await;
    let ticket = gate.ticket().await;
    gate.deny(&ticket, None).await.unwrap();
    assert!(gate.approve(&ticket, Scope::Call).await.is_err());
    assert!(gate.grants().await.is_empty());
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert!(gate.approve(&ticket, Scope::Call).await.is_err(), "it has expired");
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_races_a_reload_is_decided_by_the_new_configuration() {
    let reloads = [
        (allow("other"), "tool_not_allowed"),
        (allow("{tool: echo, ask: {ttl: 3m}}, other"), "approval_used"),
    ];
    for (config, error) in reloads {
        for kind in Kind::ALL {
            let server = Server::both(&["echo", "other"]);
            let gate = gate(&asks(), &server).start();
            let client = gate.client(kind).await;
            let call = client.begin_call("echo", json!({}));
            let ticket = gate.ticket().await;
            // Both happen before the waiting call runs again.
            gate.approve(&ticket, Scope::Call).await.unwrap();
            gate.reload(&config);
            let answer = call.answer().await;
            assert_eq!(data(&answer)["error"], error, "{kind:?} {config}: {answer}");
            assert!(server.received("tools/call").is_empty(), "{kind:?} {config}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_when_its_rule_no_longer_asks_is_made() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&asks(), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let call = client.begin_call("echo", json!({}));
    gate.ticket().await;
    gate.reload(&allow("echo"));
    assert!(is_done(&call.answer().await));
    assert_eq!(gate.record("intent").await["verdict"], "allow");
}

#[tokio::test(start_paused = true)]
async fn a_token_revoked_while_the_call_waits_makes_no_call() {
    for kind in [Kind::HttpLegacy, Kind::HttpModern] {
        let server = Server::both(&["echo"]);
        let gate = gate(&asks(), &server).start();
        let client = gate.client(kind).await;
        let call = client.begin_call("echo", json!({}));
        let ticket = gate.ticket().await;
        gate.approve(&ticket, Scope::Call).await.unwrap();
        gate.reload_revoking(&asks(), &[AGENT]);
        call.settled().await;
        assert!(server.received("tools/call").is_empty(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_cannot_flood_people() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&(asks() + "approvals: {hold: 1s}\n"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    for n in 0..20 {
        assert_eq!(
            data(&client.call_with("echo", json!({"n": n})).await)["error"],
            "approval_pending"
        );
    }
    let beyond = client.call_with("echo", json!({"n": 20})).await;
    assert_eq!(data(&beyond)["error"], "approvals_full", "{beyond}");
    assert_eq!(gate.tickets().await.len(), 20);
    // An identical call joins its ticket.
    assert_eq!(data(&client.call_with("echo", json!({"n": 3})).await)["error"], "approval_pending");
}

#[tokio::test(start_paused = true)]
async fn after_five_denials_nobody_is_asked_for_a_while() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&asks(), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    for n in 0..5 {
        let call = client.begin_call("echo", json!({"n": n}));
        gate.deny(&gate.ticket().await, None).await.unwrap();
        assert_eq!(data(&call.answer().await)["error"], "approval_denied");
    }
    let answer = client.call_with("echo", json!({"n": 6})).await;
    assert_eq!(data(&answer)["error"], "approval_denied", "{answer}");
    assert!(text(&answer).contains("no one was asked"), "{answer}");
    assert!(gate.tickets().await.is_empty());
    tokio::time::sleep(Duration::from_secs(600)).await;
    let answer = client.call_with("echo", json!({"n": 7})).await;
    assert_eq!(data(&answer)["error"], "approval_pending", "{answer}");
}

#[tokio::test(start_paused = true)]
async fn long_parameters_are_cut_for_approvers_and_still_compared_whole() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&(asks() + "approvals: {hold: 1s}\n"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let long = |end: &str| json!({"text": "x".repeat(50_000) + end});
    client.call_with("echo", long("a")).await;
    let ticket = gate.ticket().await;
    let shown = gate.gateway().context.approvals.params(&ticket).unwrap();
    assert!(shown.len() < ticket.bytes && ticket.bytes > 50_000, "{}", ticket.bytes);
    gate.approve(&ticket, Scope::Call).await.unwrap();
    assert_eq!(data(&client.call_with("echo", long("b")).await)["error"], "approval_pending");
    assert!(is_done(&client.call_with("echo", long("a")).await));
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_cannot_be_recorded_is_not_made() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&asks(), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.call("echo").await;
    let ticket = gate.ticket().await;
    gate.break_audit();
    assert!(matches!(gate.approve(&ticket, Scope::Call).await, Err(Rejected::NotRecorded(_))));
    assert!(gate.grants().await.is_empty() && gate.ticket().await.is_pending());
}
