//! Approval in the client of an agent with `trusted_ui`, and attempts to approve without it.

use super::*;
use serde_json::json;

const LEGACY_KINDS: [Kind; 2] = [Kind::StdioLegacy, Kind::HttpLegacy];
const MODERN_KINDS: [Kind; 2] = [Kind::StdioModern, Kind::HttpModern];

/// A configuration in which the operator trusts the client of the agent.
fn trusting(entry: &str) -> String {
    format!(
        "servers: {{s: {{command: x}}}}\napprovals: {{hold: 5s}}\n\
         agents: {{dev: {{trusted_ui: true, allow: {{servers: [s], tools: {{s: [{entry}]}}}}}}}}\n"
    )
}

fn asking() -> String {
    trusting("{tool: echo, ask: true}")
}

fn forms() -> Value {
    json!({"elicitation": {}})
}

fn approving() -> Value {
    json!({"action": "accept", "content": {"approve": true}})
}

/// The parameters of a call with the response to the gateway's question.
fn continued(state: &Value, arguments: Value, response: &Value) -> Value {
    json!({
        "name": "s__echo", "arguments": arguments, "requestState": state,
        "inputResponses": {"q1": response},
    })
}

/// Makes a call of `echo`, whatever the protocol version, with this response of the person.
async fn call(gate: &Gate, kind: Kind, response: Value) -> (Client, Value) {
    let said = response.clone();
    let client = gate.asked_client(kind, forms(), move |_| Some(said.clone())).await;
    let mut answer = client.call_with("echo", json!({"say": "hi"})).await;
    if kind.is_modern() {
        assert_eq!(answer["result"]["resultType"], "input_required", "{kind:?}: {answer}");
        let asked = &answer["result"]["inputRequests"]["q1"];
        assert_eq!(asked["method"], "elicitation/create", "{kind:?}: {answer}");
        assert_form(&asked["params"]);
        let state = answer["result"]["requestState"].clone();
        let params = continued(&state, json!({"say": "hi"}), &response);
        answer = client.request("tools/call", params).await;
    } else {
        let asked = client.notifications("elicitation/create");
        assert_eq!(asked.len(), 1, "{kind:?}: {asked:?}");
        assert_form(&asked[0]["params"]);
    }
    (client, answer)
}

/// The person sees the whole call, and nothing is chosen for them.
fn assert_form(params: &Value) {
    let message = params["message"].as_str().unwrap();
    assert!(message.contains("s/echo") && message.contains(r#"{"arguments":{"say":"hi"}}"#));
    let schema = &params["requestedSchema"];
    assert_eq!(schema["properties"]["approve"]["default"], false, "{params}");
    assert_eq!(schema["required"], json!(["approve"]), "{params}");
}

#[tokio::test(start_paused = true)]
async fn a_person_approves_in_a_trusted_client() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        let gate = gate(&asking(), &server).start();
        let (_client, answer) = call(&gate, kind, approving()).await;
        assert!(is_done(&answer), "{kind:?}: {answer}");
        assert_eq!(server.received("tools/call").len(), 1, "{kind:?}");
        let approval = gate.record("approval").await;
        assert_eq!(
            (&approval["decision"], &approval["channel"], &approval["approver"]),
            (&json!("approved"), &json!("elicitation"), &json!("the person at the client"))
        );
        assert_eq!(gate.record("intent").await["approved_via"], "elicitation", "{kind:?}");
        assert!(gate.tickets().await.is_empty() && gate.grants().await.is_empty(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_person_declines_in_the_client() {
    let declines =
        [json!({"action": "decline"}), json!({"action": "accept", "content": {"approve": false}})];
    for (kind, response) in
        Kind::ALL.into_iter().flat_map(|kind| declines.clone().map(|one| (kind, one)))
    {
        let server = Server::both(&["echo"]);
        let gate = gate(&asking(), &server).start();
        let (_client, answer) = call(&gate, kind, response.clone()).await;
        assert_eq!(data(&answer)["error"], "approval_denied", "{kind:?} {response}: {answer}");
        assert!(server.received("tools/call").is_empty(), "{kind:?} {response}");
        assert_eq!(gate.record("approval").await["decision"], "denied", "{kind:?} {response}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_no_explicit_approval_decides_nothing() {
    let unclear = [
        json!({"action": "cancel"}),
        json!({"action": "accept"}),
        json!({"action": "accept", "content": {}}),
        json!({"action": "accept", "content": {"approve": "true"}}),
        json!({"action": "accept", "content": {"approve": 1}}),
        json!({"action": "approve", "content": {"approve": true}}),
        json!({"approve": true}),
        json!({}),
    ];
    for (kind, response) in
        Kind::ALL.into_iter().flat_map(|kind| unclear.clone().map(|one| (kind, one)))
    {
        let server = Server::both(&["echo"]);
        let gate = gate(&asking(), &server).start();
        let (_client, answer) = call(&gate, kind, response.clone()).await;
        assert_eq!(data(&answer)["error"], "approval_pending", "{kind:?} {response}: {answer}");
        assert!(server.received("tools/call").is_empty(), "{kind:?} {response}");
        // Someone else can still decide.
        gate.approve(&gate.ticket().await, Scope::Call).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_the_operator_does_not_trust_is_not_asked() {
    let admins = "admins: {ops: {tokens: ['sha256:\
        0000000000000000000000000000000000000000000000000000000000000000'], approve: ['s/*']}}\n";
    let named = trusting("{tool: echo, ask: {approvers: [ops]}}") + admins;
    let configs = [
        ("no trusted_ui", allow("{tool: echo, ask: true}") + "approvals: {hold: 5s}\n", forms()),
        ("approvers", named, forms()),
        ("no capability", asking(), json!({})),
        ("only URLs", asking(), json!({"elicitation": {"url": {}}})),
    ];
    for (what, config, capabilities) in configs {
        for kind in Kind::ALL {
            let server = Server::both(&["echo"]);
            let gate = gate(&config, &server).start();
            let client = gate.asked_client(kind, capabilities.clone(), |_| Some(approving())).await;
            let answer = client.call("echo").await;
            assert!(client.notifications("elicitation/create").is_empty(), "{what} {kind:?}");
            assert!(answer["result"]["inputRequests"].is_null(), "{what} {kind:?}: {answer}");
            // A response that no one asked for approves nothing.
            if kind.is_modern() {
                let state = answer["result"]["requestState"].clone();
                let params = continued(&state, json!({"say": "hi"}), &approving());
                client.request("tools/call", params).await;
            }
            assert!(server.received("tools/call").is_empty(), "{what} {kind:?}");
            assert!(gate.grants().await.is_empty(), "{what} {kind:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_of_another_session_decides_nothing() {
    for kind in LEGACY_KINDS {
        let server = Server::legacy(&["echo"]);
        let gate = gate(&asking(), &server).start();
        let asked = gate.asked_client(kind, forms(), |_| None).await;
        let other = gate.asked_client(kind, forms(), |_| None).await;
        let waits = asked.begin_call("echo", json!({}));
        let ticket = gate.ticket().await;
        let question = within_an_hour("the question", async {
            loop {
                match asked.notifications("elicitation/create").pop() {
                    Some(question) => return question,
                    None => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        })
        .await;
        let response = json!({"jsonrpc": "2.0", "id": question["id"], "result": approving()});
        other.send(&response).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(gate.ticket().await.is_pending() && gate.grants().await.is_empty(), "{kind:?}");
        assert!(server.received("tools/call").is_empty(), "{kind:?}");
        asked.send(&response).await;
        assert!(is_done(&waits.answer().await), "{kind:?}");
        // The same response again: the question is answered already.
        asked.send(&response).await;
        let again = asked.begin_call("echo", json!({}));
        assert_ne!(gate.ticket().await.id, ticket.id, "{kind:?}: it asks again");
        asked.send(&response).await;
        assert_eq!(data(&again.answer().await)["error"], "approval_pending", "{kind:?}");
        assert_eq!(server.received("tools/call").len(), 1, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_state_of_one_call_approves_no_other_and_nothing_twice() {
    for kind in MODERN_KINDS {
        let server = Server::both(&["echo"]);
        let config = asking().replace("agents: {", "agents: {eve: {trusted_ui: true, allow: {servers: [s], tools: {s: [{tool: echo, ask: true}]}}}, ");
        let gate = gate(&config, &server).start();
        let client = gate.asked_client(kind, forms(), |_| None).await;
        let answer = client.call_with("echo", json!({"say": "hi"})).await;
        let state = answer["result"]["requestState"].clone();
        let approved = |arguments| continued(&state, arguments, &approving());
        let eve = gate.client_of(kind, "eve").await;
        for (client, arguments) in [(&client, json!({"say": "bye"})), (&eve, json!({"say": "hi"}))]
        {
            let answer = client.request("tools/call", approved(arguments)).await;
            assert_eq!(answer["error"]["code"], -32602, "{kind:?}: {answer}");
        }
        assert!(server.received("tools/call").is_empty(), "{kind:?}");
        let done = client.request("tools/call", approved(json!({"say": "hi"}))).await;
        assert!(is_done(&done), "{kind:?}: {done}");
        // A client that lost the result gets it again; nothing is executed twice.
        client.request("tools/call", approved(json!({"say": "hi"}))).await;
        tokio::time::sleep(Duration::from_secs(61)).await;
        client.request("tools/call", approved(json!({"say": "hi"}))).await;
        assert_eq!(server.received("tools/call").len(), 1, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn trust_that_was_withdrawn_meanwhile_approves_nothing() {
    for kind in MODERN_KINDS {
        let server = Server::both(&["echo"]);
        let gate = gate(&asking(), &server).start();
        let client = gate.asked_client(kind, forms(), |_| None).await;
        let answer = client.call_with("echo", json!({"say": "hi"})).await;
        let state = answer["result"]["requestState"].clone();
        gate.reload(&asking().replace("trusted_ui: true", "trusted_ui: false"));
        let params = continued(&state, json!({"say": "hi"}), &approving());
        let answer = client.request("tools/call", params).await;
        assert!(!is_done(&answer), "{kind:?}: {answer}");
        assert!(server.received("tools/call").is_empty(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_elsewhere_counts_while_the_client_is_asked() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&asking(), &server).start();
    let client = gate.asked_client(Kind::StdioLegacy, forms(), |_| None).await;
    let waits = client.begin_call("echo", json!({}));
    gate.approve(&gate.ticket().await, Scope::Call).await.unwrap();
    assert!(is_done(&waits.answer().await));
    assert_eq!(gate.record("intent").await["approved_via"], "cli");
}
