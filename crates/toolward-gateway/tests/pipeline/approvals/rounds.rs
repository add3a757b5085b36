//! Modern clients: a call is repeated with a sealed state, also after its server needed input.

use super::*;
use serde_json::json;

const KINDS: [Kind; 2] = [Kind::StdioModern, Kind::HttpModern];

fn params(state: Option<&Value>) -> Value {
    let mut params = json!({"name": "s__echo", "arguments": {"say": "hi"}});
    if let Some(state) = state {
        params["requestState"] = state.clone();
    }
    params
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_repeats_the_call_until_it_is_decided() {
    for kind in KINDS {
        let server = Server::modern(&["echo"]);
        let gate = gate(&asks(), &server).start();
        let client = gate.client(kind).await;
        let first = client.request("tools/call", params(None)).await;
        assert_eq!(first["result"]["resultType"], "input_required", "{kind:?}: {first}");
        assert!(first["result"].get("inputRequests").is_none(), "{first}");
        let ticket = gate.ticket().await;
        let state = &first["result"]["requestState"];
        assert!(!state.to_string().contains(&ticket.id));
        let second = client.begin("tools/call", params(Some(state)));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(gate.ticket().await.id, ticket.id, "{kind:?}: it joins the ticket");
        gate.approve(&ticket, Scope::Call).await.unwrap();
        let answer = second.answer().await;
        assert!(is_done(&answer), "{kind:?}: {answer}");
        let received = server.received("tools/call");
        assert_eq!(received.len(), 1, "{kind:?}");
        assert!(received[0]["params"].get("requestState").is_none(), "{received:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_eight_rounds_the_client_is_told_to_come_back_later() {
    let server = Server::modern(&["echo"]);
    let gate = gate(&(asks() + "approvals: {hold: 1s, ttl: 1h}\n"), &server).start();
    let client = gate.client(Kind::HttpModern).await;
    let mut state = None;
    for round in 0..8 {
        let answer = client.request("tools/call", params(state.as_ref())).await;
        assert_eq!(answer["result"]["resultType"], "input_required", "{round}: {answer}");
        state = Some(answer["result"]["requestState"].clone());
    }
    let last = client.request("tools/call", params(state.as_ref())).await;
    assert_eq!(data(&last)["error"], "approval_pending", "{last}");
    assert_eq!(gate.tickets().await.len(), 1);
    // Without a state, it begins again.
    let answer = client.request("tools/call", params(None)).await;
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_state_of_another_agent_is_unknown() {
    let server = Server::modern(&["echo"]);
    let config = "servers: {s: {command: x}}\nagents:\n  \
        dev: {allow: {servers: [s], tools: {s: [{tool: echo, ask: true}]}}}\n  \
        eve: {allow: {servers: [s], tools: {s: [{tool: echo, ask: true}]}}}\n";
    let gate = gate(config, &server).start();
    let (dev, eve) =
        (gate.client(Kind::HttpModern).await, gate.client_of(Kind::HttpModern, "eve").await);
    let first = dev.request("tools/call", params(None)).await;
    let stolen = eve.request("tools/call", params(Some(&first["result"]["requestState"]))).await;
    assert!(stolen["error"].is_object(), "{stolen}");
    assert_eq!(gate.tickets().await.len(), 1, "nothing is asked for another agent");
}

/// A server that asks once for input, and then answers.
fn needs_input() -> Server {
    let server = Server::modern(&["echo"]);
    server.on("tools/call", |request| {
        let result = match request["params"].get("requestState") {
            None => json!({
                "resultType": "input_required", "requestState": "theirs",
                "inputRequests": {"q": {"method": "elicitation/create", "params": {
                    "message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}}},
            }),
            Some(_) => {
                json!({"resultType": "complete", "content": [{"type": "text", "text": "done"}]})
            }
        };
        vec![Step::Result(request["id"].clone(), result)]
    });
    server
}

#[tokio::test(start_paused = true)]
async fn an_approved_call_whose_server_needs_input_is_not_asked_about_again() {
    for kind in KINDS {
        let server = needs_input();
        let gate = gate(&asks(), &server).start();
        let client = gate.asked_client(kind, json!({"elicitation": {}}), |_| None).await;
        let call = client.begin("tools/call", params(None));
        gate.approve(&gate.ticket().await, Scope::Call).await.unwrap();
        let asked = call.answer().await;
        assert_eq!(asked["result"]["resultType"], "input_required", "{kind:?}: {asked}");
        let mut repeated = params(Some(&asked["result"]["requestState"]));
        repeated["inputResponses"] = json!({"q": {"action": "accept", "content": {}}});
        let answer = client.request("tools/call", repeated.clone()).await;
        assert_eq!(text(&answer), "done", "{kind:?}: {answer}");
        assert_eq!(server.received("tools/call")[1]["params"]["requestState"], "theirs");
        // The state is used up.
        let replayed = client.request("tools/call", repeated.clone()).await;
        assert!(replayed["error"].is_object(), "{kind:?}: {replayed}");
        assert!(gate.tickets().await.is_empty(), "{kind:?}");
        assert_eq!(server.received("tools/call").len(), 2, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_continuation_with_other_arguments_is_refused() {
    let server = needs_input();
    let gate = gate(&asks(), &server).start();
    let client = gate.asked_client(Kind::HttpModern, json!({"elicitation": {}}), |_| None).await;
    let call = client.begin("tools/call", params(None));
    gate.approve(&gate.ticket().await, Scope::Call).await.unwrap();
    let asked = call.answer().await;
    let mut other = params(Some(&asked["result"]["requestState"]));
    other["arguments"] = json!({"say": "something else"});
    other["inputResponses"] = json!({"q": {"action": "accept", "content": {}}});
    let answer = client.request("tools/call", other).await;
    assert!(answer["error"].is_object(), "{answer}");
    assert_eq!(server.received("tools/call").len(), 1);
}
