//! A call that waits for a person, and what can happen meanwhile.

use super::*;
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn an_approved_call_is_forwarded_once_and_recorded_with_its_approver() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo", "other"]);
        let gate = gate(&asks(), &server).start();
        let client = gate.client(kind).await;
        assert_eq!(client.list().await, ["s__echo", "s__other"], "{kind:?}: it is listed");
        let call = client.begin_call("echo", json!({"say": "hi"}));
        let ticket = gate.ticket().await;
        assert!(server.received("tools/call").is_empty(), "{kind:?}");
        tokio::time::sleep(Duration::from_secs(20)).await;
        let grant = gate.approve(&ticket, Scope::Call).await.unwrap();
        let answer = call.answer().await;
        assert!(is_done(&answer), "{kind:?}: {answer}");
        assert_eq!(server.received("tools/call").len(), 1, "{kind:?}");
        let intent = gate.record("intent").await;
        assert_eq!((&intent["verdict"], &intent["grant"]), (&json!("ask"), &json!(grant.id)));
        assert_eq!(
            (&intent["approved_by"], &intent["approved_via"]),
            (&json!("uid 1000"), &json!("cli"))
        );
        let approval = gate.record("approval").await;
        assert_eq!(
            (&approval["decision"], &approval["ticket"]),
            (&json!("approved"), &json!(ticket.id))
        );
        assert_eq!(
            (&approval["approver"], &approval["channel"]),
            (&json!("uid 1000"), &json!("cli"))
        );
        assert!(approval["latency_ms"].as_u64().unwrap() >= 19_000, "{approval}");
        assert!(gate.grants().await.is_empty() && gate.tickets().await.is_empty(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_call_is_refused_with_the_reason() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        let gate = gate(&asks(), &server).start();
        let client = gate.client(kind).await;
        let call = client.begin_call("echo", json!({}));
        gate.deny(&gate.ticket().await, Some("not on Fridays")).await.unwrap();
        let answer = call.answer().await;
        assert_eq!(data(&answer)["error"], "approval_denied", "{kind:?}: {answer}");
        assert!(text(&answer).starts_with("s__echo is not permitted: a person denied"), "{answer}");
        assert!(text(&answer).contains("not on Fridays"), "{answer}");
        assert!(server.received("tools/call").is_empty(), "{kind:?}");
        let refusal = gate.record("refusal").await;
        assert_eq!((&refusal["verdict"], &refusal["step"]), (&json!("deny"), &json!("ask")));
        assert_eq!(gate.record("approval").await["decision"], "denied");
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_is_told_to_repeat_the_call_and_a_late_approval_covers_it_once() {
    for kind in [Kind::StdioLegacy, Kind::HttpLegacy] {
        let server = Server::legacy(&["echo"]);
        let gate = gate(&asks(), &server).start();
        let client = gate.client(kind).await;
        let answer = client.call_with("echo", json!({"b": 1, "a": "x"})).await;
        assert_eq!(data(&answer)["error"], "approval_pending", "{kind:?}: {answer}");
        assert_eq!(
            (&answer["result"]["isError"], &data(&answer)["retryable"]),
            (&json!(true), &json!(true))
        );
        let ticket = gate.ticket().await;
        assert_eq!(data(&answer)["reference"], ticket.reference);
        assert!(!answer.to_string().contains(&ticket.id), "the id is for approvers: {answer}");
        gate.approve(&ticket, Scope::Call).await.unwrap();
        // The same call in another spelling.
        let answer = client.call_with("echo", json!({"a": "x", "b": 1})).await;
        assert!(is_done(&answer), "{kind:?}: {answer}");
        let again = client.begin_call("echo", json!({"a": "x", "b": 1}));
        assert_ne!(gate.ticket().await.id, ticket.id, "{kind:?}: it asks again");
        assert_eq!(server.received("tools/call").len(), 1, "{kind:?}");
        drop(again);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_approval_is_valid_for_fifteen_minutes() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&asks(), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.call("echo").await;
    gate.approve(&gate.ticket().await, Scope::Call).await.unwrap();
    tokio::time::sleep(Duration::from_secs(901)).await;
    let answer = client.call("echo").await;
    assert_eq!(data(&answer)["error"], "approval_pending", "{answer}");
    assert!(server.received("tools/call").is_empty());
}

#[tokio::test(start_paused = true)]
async fn identical_calls_share_a_ticket_and_one_approval_releases_one_of_them() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        let gate = gate(&asks(), &server).start();
        let client = gate.client(kind).await;
        let calls: Vec<_> =
            (0..3).map(|_| client.begin_call("echo", json!({"say": "hi"}))).collect();
        let ticket = gate.ticket().await;
        let approvals = &gate.gateway().context.approvals;
        while approvals.waiting(&ticket.id) < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        gate.approve(&ticket, Scope::Call).await.unwrap();
        let mut done = 0;
        for call in calls {
            let answer = call.answer().await;
            match is_done(&answer) {
                true => done += 1,
                false => assert_eq!(data(&answer)["error"], "approval_used", "{kind:?}: {answer}"),
            }
        }
        assert_eq!((done, server.received("tools/call").len()), (1, 1), "{kind:?}");
        assert_eq!(approvals.waiting(&ticket.id), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_progress_token_sees_that_the_call_waits() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        let gate = gate(&asks(), &server).start();
        let client = gate.client(kind).await;
        let call = client.begin_call_with_progress("echo");
        let ticket = gate.ticket().await;
        tokio::time::sleep(Duration::from_secs(35)).await;
        gate.approve(&ticket, Scope::Call).await.unwrap();
        assert!(is_done(&call.answer().await), "{kind:?}");
        let notes = client.notifications("notifications/progress");
        assert_eq!(notes.len(), 3, "{kind:?}: {notes:?}");
        let values: Vec<f64> =
            notes.iter().map(|note| note["params"]["progress"].as_f64().unwrap()).collect();
        assert!(values.is_sorted() && values[0] > 0.0 && values[2] < 0.001, "{values:?}");
        assert!(notes.iter().all(|note| note["params"]["progressToken"] == "mine"), "{notes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_ends_its_wait_and_is_not_carried_out_later() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        let gate = gate(&asks(), &server).start();
        let client = gate.client(kind).await;
        let call = client.begin_call("echo", json!({"say": "hi"}));
        let ticket = gate.ticket().await;
        client.cancel(call).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(gate.gateway().context.approvals.waiting(&ticket.id), 0, "{kind:?}");
        if gate.approve(&ticket, Scope::Call).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(server.received("tools/call").is_empty(), "{kind:?}");
            assert!(
                is_done(&client.call("echo").await),
                "{kind:?}: the approval covers the repetition"
            );
        }
        assert_eq!(gate.records_of("refusal").await.len(), 1, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_ends_the_wait() {
    for kind in [Kind::HttpLegacy, Kind::HttpModern] {
        // Before and after the response has become a stream.
        for seconds in [0, 30] {
            let server = Server::both(&["echo"]);
            let gate = gate(&asks(), &server).start();
            let client = gate.client(kind).await;
            let call = client.begin_call("echo", json!({"say": "hi"}));
            let ticket = gate.ticket().await;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let approvals = &gate.gateway().context.approvals;
            assert_eq!(approvals.waiting(&ticket.id), 1, "{kind:?} {seconds}");
            call.disconnect().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(approvals.waiting(&ticket.id), 0, "{kind:?} {seconds}");
            gate.approve(&ticket, Scope::Call).await.unwrap();
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(server.received("tools/call").is_empty(), "{kind:?} {seconds}");
            assert_eq!(gate.record("refusal").await["step"], "ask", "{kind:?} {seconds}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_uses_no_quota_while_it_waits() {
    let server = Server::legacy(&["echo", "other"]);
    let gate = gate(&(asks() + "limits: {calls: 1/h}\n"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let waits = client.begin_call("echo", json!({}));
    let ticket = gate.ticket().await;
    assert!(is_done(&client.call("other").await), "the only unit is free");
    gate.approve(&ticket, Scope::Call).await.unwrap();
    let answer = waits.answer().await;
    assert_eq!(data(&answer)["error"], "limit_exceeded", "limits are checked again: {answer}");
    assert_eq!(server.received("tools/call").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_entry_has_its_own_times_and_the_shortest_count() {
    let server = Server::legacy(&["echo", "other"]);
    let entry = "{tool: echo, ask: {hold: 5s, ttl: 20s}}, {tool: other, ask: true}";
    let gate = gate(&(allow(entry) + "approvals: {hold: 90s}\n"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    for (tool, seconds) in [("echo", 5), ("other", 90)] {
        let begun = tokio::time::Instant::now();
        assert_eq!(data(&client.call(tool).await)["error"], "approval_pending");
        assert_eq!(begun.elapsed().as_secs(), seconds, "{tool}");
    }
    let left: Vec<String> = gate.tickets().await.into_iter().map(|ticket| ticket.exposed).collect();
    assert_eq!(left, ["s__other"], "the ticket of `echo` has expired");
    client.call("other").await;
    let expired = gate.record("approval").await;
    assert_eq!((&expired["decision"], &expired["tool"]), (&json!("expired"), &json!("echo")));
}

#[tokio::test(start_paused = true)]
async fn prompts_and_resources_can_need_approval_and_cannot_be_subscribed_to() {
    let server = Server::legacy(&["echo"]);
    server.set_prompts(&["plan"]);
    server.set_resources(&["memo://a"]);
    let config = "servers: {s: {command: x}}\n\
        agents: {dev: {allow: {servers: [s], tools: {s: [echo]}, \
        prompts: {s: [{prompt: plan, ask: true}]}, \
        resources: {s: [{resource: 'memo://a', ask: true}]}}}}\n";
    let gate = gate(config, &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    for (method, params) in [
        ("prompts/get", json!({"name": "s__plan"})),
        ("resources/read", json!({"uri": "memo://a"})),
    ] {
        let call = client.begin(method, params);
        let ticket = gate.ticket().await;
        assert_eq!(ticket.binding.subject.method, method);
        assert!(server.received(method).is_empty(), "{method}");
        gate.approve(&ticket, Scope::Call).await.unwrap();
        call.answer().await;
        assert_eq!(server.received(method).len(), 1, "{method}");
    }
    let refused = client.request("resources/subscribe", json!({"uri": "memo://a"})).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("approve"), "{refused}");
}
