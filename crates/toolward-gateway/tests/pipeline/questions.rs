//! Requests of servers to clients during a call: elicitation, roots, sampling.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::kit::{Client, Gate, Kind, Server, Step, allow, config, data, gate, text};

const LEGACY_KINDS: [Kind; 2] = [Kind::StdioLegacy, Kind::HttpLegacy];
const MODERN_KINDS: [Kind; 2] = [Kind::StdioModern, Kind::HttpModern];

/// A legacy server that asks before it calls: the result contains the response.
fn asking(method: &'static str, params: Value) -> Server {
    let server = Server::legacy(&["drop"]);
    let call = Arc::new(Mutex::new(Value::Null));
    let id = call.clone();
    server.on("tools/call", move |request| {
        *id.lock().unwrap() = request["id"].clone();
        let ask = json!({"jsonrpc": "2.0", "id": "q1", "method": method, "params": params});
        vec![Step::Send(ask)]
    });
    server.on("", move |response| {
        let answered = response.get("result").unwrap_or(&response["error"]).to_string();
        let result = json!({"content": [{"type": "text", "text": answered}]});
        vec![Step::Result(call.lock().unwrap().clone(), result)]
    });
    server
}

fn form() -> Value {
    json!({"message": "Really drop it?", "requestedSchema": {"type": "object", "properties": {}}})
}

async fn accepting(gate: &Gate, kind: Kind) -> Client {
    let accept = |_: &Value| Some(json!({"action": "accept", "content": {}}));
    gate.asked_client(kind, json!({"elicitation": {}}), accept).await
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_asks_a_legacy_client() {
    for kind in LEGACY_KINDS {
        let server = asking("elicitation/create", form());
        let gate = gate(&allow("drop"), &server).start();
        let client = accepting(&gate, kind).await;
        let answer = client.call("drop").await;
        assert_eq!(text(&answer), r#"{"action":"accept","content":{}}"#, "{kind:?}");
        let asked = client.notifications("elicitation/create");
        assert_eq!(asked.len(), 1, "{kind:?}");
        // A client of several servers would show the gateway as the one that asks.
        assert_eq!(asked[0]["params"]["message"], "[s] Really drop it?");
        assert_ne!(asked[0]["id"], "q1");
        let declared = &server.received("initialize")[0]["params"]["capabilities"];
        assert_eq!(*declared, json!({"elicitation": {}}));
        let record = gate.record("question").await;
        assert_eq!(record["method"], "elicitation/create");
        assert_eq!((&record["verdict"], &record["outcome"]), (&json!("allow"), &json!("answered")));
        assert_eq!(record["intent"], gate.record("intent").await["id"]);
        assert!(record.get("params").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_question_is_declined_and_ends_the_call_as_a_refusal() {
    for kind in LEGACY_KINDS {
        let server = asking("elicitation/create", form());
        let denied = "servers: {s: {command: x}}\n\
             agents: {dev: {allow: {servers: [s], client_requests: [roots]}}}\n";
        let gate = gate(denied, &server).start();
        let client = accepting(&gate, kind).await;
        let answer = client.call("drop").await;
        assert_eq!(answer["result"]["isError"], true, "{kind:?} {answer}");
        assert_eq!(data(&answer)["error"], "question_refused");
        assert!(text(&answer).contains("denied by policy"), "{answer}");
        assert!(client.notifications("elicitation/create").is_empty());
        // The server still knows that it can ask, so that it does not skip its confirmation.
        let declared = &server.received("initialize")[0]["params"]["capabilities"];
        assert_eq!(*declared, json!({"elicitation": {}}));
        server.arrival("notifications/cancelled").await;
        assert_eq!(server.responses()[0]["result"]["action"], "decline");
        assert_eq!(gate.outcomes().await, ["question-refused"]);
        assert_eq!(gate.record("question").await["outcome"], "declined");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_cannot_be_asked_gets_a_refusal_instead_of_an_unconfirmed_effect() {
    // Declares nothing; declares forms and is asked for a URL.
    let url =
        json!({"mode": "url", "message": "x", "url": "https://example.com", "elicitationId": "1"});
    let cases = [
        (Kind::StdioLegacy, json!({}), form()),
        (Kind::HttpLegacy, json!({"elicitation": {"form": {}}}), url),
        (Kind::StdioModern, json!({}), form()),
        (Kind::HttpModern, json!({"roots": {}}), form()),
    ];
    for (kind, capabilities, params) in cases {
        let server = asking("elicitation/create", params);
        let gate = gate(&allow("drop"), &server).start();
        let client =
            gate.asked_client(kind, capabilities, |_| Some(json!({"action": "accept"}))).await;
        let answer = client.call("drop").await;
        assert_eq!(data(&answer)["error"], "question_refused", "{kind:?} {answer}");
        assert!(client.notifications("elicitation/create").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn sampling_and_roots_are_declared_only_if_they_are_allowed() {
    let all = json!({"sampling": {}, "roots": {"listChanged": true}, "elicitation": {}, "experimental": {}});
    for (requests, expected) in [
        ("", json!({"elicitation": {}, "roots": {}})),
        (", client_requests: ['*']", json!({"elicitation": {}, "roots": {}, "sampling": {}})),
        (", client_requests: []", json!({"elicitation": {}})),
    ] {
        let server = Server::legacy(&["a"]);
        let rules = format!(
            "servers: {{s: {{command: x}}}}\n\
             agents: {{dev: {{allow: {{servers: [s]{requests}}}}}}}\n"
        );
        let gate = gate(&rules, &server).start();
        let client = gate.asked_client(Kind::StdioLegacy, all.clone(), |_| None).await;
        client.call("a").await;
        assert_eq!(server.received("initialize")[0]["params"]["capabilities"], expected);
    }
}

#[tokio::test(start_paused = true)]
async fn the_context_of_other_servers_has_to_be_allowed_by_name() {
    let params = json!({"messages": [], "maxTokens": 1, "includeContext": "allServers"});
    for (entry, allowed) in [("'*'", false), ("sampling, sampling.allServers", true)] {
        let server = asking("sampling/createMessage", params.clone());
        let rules = format!(
            "servers: {{s: {{command: x}}}}\n\
             agents: {{dev: {{allow: {{servers: [s], client_requests: [{entry}]}}}}}}\n"
        );
        let gate = gate(&rules, &server).start();
        let sampled = |_: &Value| Some(json!({"role": "assistant", "model": "m"}));
        let client = gate.asked_client(Kind::StdioLegacy, json!({"sampling": {}}), sampled).await;
        let answer = client.call("drop").await;
        assert_eq!(answer["result"]["isError"].is_null(), allowed, "{entry} {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn hidden_characters_in_a_question_are_visible() {
    let params = json!({"message": "pay \u{202e}001\u{202c} to\u{200b} x\u{1b}[2J\nnow", "requestedSchema": {}});
    let server = asking("elicitation/create", params);
    let gate = gate(&allow("drop"), &server).start();
    let client = accepting(&gate, Kind::StdioLegacy).await;
    client.call("drop").await;
    let asked = client.notifications("elicitation/create");
    let message = asked[0]["params"]["message"].as_str().unwrap();
    assert_eq!(message, "[s] pay <U+202E>001<U+202C> to<U+200B> x<U+001B>[2J\nnow");
}

#[tokio::test(start_paused = true)]
async fn roots_are_asked_for_outside_of_a_call() {
    for kind in [Kind::StdioLegacy] {
        let server = Server::legacy(&["a"]);
        server.on("notifications/initialized", |_| {
            vec![Step::Send(json!({"jsonrpc": "2.0", "id": 7, "method": "roots/list"}))]
        });
        let gate = gate(&allow("a"), &server).start();
        let roots = |_: &Value| Some(json!({"roots": [{"uri": "file:///srv"}]}));
        let client = gate.asked_client(kind, json!({"roots": {}}), roots).await;
        client.call("a").await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let responses = server.responses();
        assert_eq!(responses[0]["id"], 7, "{kind:?}");
        assert_eq!(responses[0]["result"]["roots"][0]["uri"], "file:///srv");
    }
}

#[tokio::test(start_paused = true)]
async fn another_session_cannot_respond_to_a_question() {
    let server = asking("elicitation/create", form());
    let gate = gate(&allow("drop"), &server).start();
    let asked_ids = Arc::new(Mutex::new(Vec::new()));
    let ids = asked_ids.clone();
    let keep = move |request: &Value| {
        ids.lock().unwrap().push(request["id"].clone());
        None
    };
    let client = gate.asked_client(Kind::StdioLegacy, json!({"elicitation": {}}), keep).await;
    let other = accepting(&gate, Kind::StdioLegacy).await;
    let pending = client.begin_call("drop", json!({}));
    while asked_ids.lock().unwrap().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let id = asked_ids.lock().unwrap()[0].clone();
    let stolen = json!({"jsonrpc": "2.0", "id": id, "result": {"action": "accept"}});
    other.send(&stolen).await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert!(server.responses().is_empty());
    client.send(&json!({"jsonrpc": "2.0", "id": id, "result": {"action": "cancel"}})).await;
    assert_eq!(text(&pending.answer().await), r#"{"action":"cancel"}"#);
}

/// A modern server that needs input on the first attempt.
fn needing_input() -> Server {
    let server = Server::modern(&["drop"]);
    server.on("tools/call", |request| {
        let params = &request["params"];
        let result = match params.get("inputResponses") {
            None => json!({
                "resultType": "input_required",
                "inputRequests": {"sure": {"method": "elicitation/create", "params": form()}},
                "requestState": "server-state",
            }),
            Some(responses) => json!({
                "resultType": "complete",
                "content": [{"type": "text", "text": format!("{responses} {}", params["requestState"])}],
            }),
        };
        vec![Step::Result(request["id"].clone(), result)]
    });
    server
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_asks_a_legacy_client_through_the_gateway() {
    for kind in LEGACY_KINDS {
        let server = needing_input();
        let gate = gate(&allow("drop"), &server).start();
        let client = accepting(&gate, kind).await;
        let answer = client.call("drop").await;
        let expected = r#"{"sure":{"action":"accept","content":{}}} "server-state""#;
        assert_eq!(text(&answer), expected, "{kind:?}");
        assert!(answer["result"].get("resultType").is_none());
        assert_eq!(client.notifications("elicitation/create").len(), 1);
        assert_eq!(gate.outcomes().await, ["ok"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_stops_asking_is_stopped() {
    let server = Server::modern(&["drop"]);
    let rounds = Arc::new(AtomicUsize::new(0));
    let counted = rounds.clone();
    server.on("tools/call", move |request| {
        counted.fetch_add(1, Ordering::Relaxed);
        let asked = json!({"q": {"method": "elicitation/create", "params": form()}});
        let result = json!({"resultType": "input_required", "inputRequests": asked});
        vec![Step::Result(request["id"].clone(), result)]
    });
    let gate = gate(&allow("drop"), &server).start();
    let client = accepting(&gate, Kind::StdioLegacy).await;
    let answer = client.call("drop").await;
    assert_eq!(data(&answer)["error"], "question_refused");
    assert_eq!(rounds.load(Ordering::Relaxed), 9);
}

/// The first round of a modern client: the state that it gets.
async fn first_round(client: &Client) -> Value {
    let answer = client.call("drop").await;
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    let message = &answer["result"]["inputRequests"]["sure"]["params"]["message"];
    assert_eq!(message, "[s] Really drop it?");
    let state = answer["result"]["requestState"].clone();
    assert_ne!(state, "server-state");
    state
}

fn second_round(state: &Value, arguments: Value) -> Value {
    json!({
        "name": "s__drop", "arguments": arguments, "requestState": state,
        "inputResponses": {"sure": {"action": "accept"}, "io.toolward/x": {}, "other": {}},
    })
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_asks_a_modern_client_with_a_sealed_state() {
    for kind in MODERN_KINDS {
        let server = needing_input();
        let gate = gate(&allow("drop"), &server).start();
        let client = accepting(&gate, kind).await;
        let state = first_round(&client).await;
        let answer = client.request("tools/call", second_round(&state, json!({"say": "hi"}))).await;
        // Answers under keys that were not asked are dropped.
        assert_eq!(text(&answer), r#"{"sure":{"action":"accept"}} "server-state""#, "{kind:?}");
        assert_eq!(gate.outcomes().await, ["input-required", "ok"]);
        assert_eq!(gate.record("question").await["outcome"], "relayed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_is_of_no_use_for_anything_else() {
    let server = needing_input();
    let rules = "servers: {s: {command: x}}\n\
         agents: {dev: {allow: {servers: [s]}}, other: {allow: {servers: [s]}}}\n";
    let gate = gate(rules, &server).start();
    let client = accepting(&gate, Kind::HttpModern).await;
    let state = first_round(&client).await;
    let calls = server.received("tools/call").len();
    let refused = async |client: &Client, params: Value| {
        let answer = client.request("tools/call", params).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    };
    // Other arguments, another agent, a changed state.
    refused(&client, second_round(&state, json!({"say": "bye"}))).await;
    let other = gate.client_of(Kind::HttpModern, "other").await;
    refused(&other, second_round(&state, json!({"say": "hi"}))).await;
    let changed = json!(format!("{}A", state.as_str().unwrap()));
    refused(&client, second_round(&changed, json!({"say": "hi"}))).await;
    assert_eq!(server.received("tools/call").len(), calls);
    // Without a state, the responses are dropped and the server asks again.
    let mut without = second_round(&state, json!({"say": "hi"}));
    without.as_object_mut().unwrap().remove("requestState");
    let answer = client.request("tools/call", without).await;
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    let again = server.received("tools/call");
    assert!(again.last().unwrap()["params"].get("inputResponses").is_none());
    let calls = again.len();
    // A reload that denies the tool: the call is decided again.
    gate.reload(&config("", "nothing"));
    let answer = client.request("tools/call", second_round(&state, json!({"say": "hi"}))).await;
    assert_eq!(data(&answer)["error"], "tool_not_allowed", "{answer}");
    assert_eq!(server.received("tools/call").len(), calls);
}

#[tokio::test(start_paused = true)]
async fn a_modern_question_that_is_denied_ends_the_call() {
    let server = needing_input();
    let denied = "servers: {s: {command: x}}\n\
         agents: {dev: {allow: {servers: [s], client_requests: []}}}\n";
    let gate = gate(denied, &server).start();
    for kind in Kind::ALL {
        let client = accepting(&gate, kind).await;
        let answer = client.call("drop").await;
        assert_eq!(data(&answer)["error"], "question_refused", "{kind:?} {answer}");
        assert!(client.notifications("elicitation/create").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_on_a_shared_connection_is_declined_and_ends_the_call() {
    let server = asking("elicitation/create", form());
    let gate = gate(&config("share: true", "drop"), &server).start();
    let client = accepting(&gate, Kind::StdioLegacy).await;
    let answer = client.call("drop").await;
    assert_eq!(data(&answer)["error"], "question_refused", "{answer}");
    assert!(client.notifications("elicitation/create").is_empty());
    assert_eq!(server.responses()[0]["result"]["action"], "decline");
    assert_eq!(gate.outcomes().await, ["question-refused"]);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_while_its_client_is_asked_leaves_nothing_behind() {
    let server = asking("elicitation/create", form());
    let gate = gate(&allow("drop"), &server).start();
    let silent = gate.asked_client(Kind::HttpLegacy, json!({"elicitation": {}}), |_| None).await;
    let pending = silent.begin_call("drop", json!({}));
    server.arrival("tools/call").await;
    let answer = pending.answer().await;
    // The client never responds: the total timeout of the call ends it.
    assert_eq!(data(&answer)["error"], "server_timeout", "{answer}");
    server.arrival("notifications/cancelled").await;
    assert_eq!(gate.record("question").await["outcome"], "timed-out");
}

/// The first round of a held call: the state that the client gets.
async fn held_round(client: &Client) -> Value {
    let answer = client.call("drop").await;
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    let asked = &answer["result"]["inputRequests"]["q1"];
    assert_eq!(asked["method"], "elicitation/create");
    assert_eq!(asked["params"]["message"], "[s] Really drop it?");
    answer["result"]["requestState"].clone()
}

fn held_answer(state: &Value, arguments: Value) -> Value {
    json!({
        "name": "s__drop", "arguments": arguments, "requestState": state,
        "inputResponses": {"q1": {"action": "accept", "content": {}}},
    })
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_asks_a_modern_client_and_the_call_is_held() {
    for kind in MODERN_KINDS {
        let server = asking("elicitation/create", form());
        let gate = gate(&allow("drop"), &server).start();
        let client = accepting(&gate, kind).await;
        let state = held_round(&client).await;
        assert!(server.responses().is_empty());
        let params = held_answer(&state, json!({"say": "hi"}));
        let answer = client.request("tools/call", params.clone()).await;
        assert_eq!(text(&answer), r#"{"action":"accept","content":{}}"#, "{kind:?}");
        assert_eq!(answer["result"]["resultType"], "complete");
        assert_eq!(gate.outcomes().await, ["ok"]);
        assert_eq!(server.received("tools/call").len(), 1);
        // A client that lost the result gets it again; nothing is executed twice.
        let again = client.request("tools/call", params.clone()).await;
        assert_eq!(text(&again), text(&answer));
        assert_eq!(server.received("tools/call").len(), 1);
        tokio::time::sleep(std::time::Duration::from_secs(61)).await;
        let late = client.request("tools/call", params).await;
        assert_eq!(late["error"]["code"], -32602, "{late}");
        assert_eq!(server.received("tools/call").len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_call_is_continued_only_by_its_own_call() {
    let server = asking("elicitation/create", form());
    let rules = "servers: {s: {command: x}}\n\
         agents: {dev: {allow: {servers: [s]}}, other: {allow: {servers: [s]}}}\n";
    let gate = gate(rules, &server).start();
    let client = accepting(&gate, Kind::HttpModern).await;
    let state = held_round(&client).await;
    let other = gate.client_of(Kind::HttpModern, "other").await;
    for (client, params) in [
        (&client, held_answer(&state, json!({"say": "bye"}))),
        (&other, held_answer(&state, json!({"say": "hi"}))),
    ] {
        let answer = client.request("tools/call", params).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    assert!(server.responses().is_empty());
    // A call that is denied by now is not continued, but canceled at its server.
    gate.reload(&config("", "nothing"));
    let answer = client.request("tools/call", held_answer(&state, json!({"say": "hi"}))).await;
    assert_eq!(data(&answer)["error"], "tool_not_allowed", "{answer}");
    server.arrival("notifications/cancelled").await;
    assert!(server.responses().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_held_call_that_nobody_continues_is_canceled() {
    let server = asking("elicitation/create", form());
    let gate = gate(&allow("drop"), &server).start();
    let client = accepting(&gate, Kind::HttpModern).await;
    held_round(&client).await;
    tokio::time::sleep(std::time::Duration::from_secs(601)).await;
    server.arrival("notifications/cancelled").await;
    assert_eq!(gate.outcomes().await, ["aborted"]);
}

#[tokio::test(start_paused = true)]
async fn a_held_call_without_a_response_is_refused() {
    let server = asking("elicitation/create", form());
    let gate = gate(&allow("drop"), &server).start();
    let client = accepting(&gate, Kind::StdioModern).await;
    let state = held_round(&client).await;
    let mut params = held_answer(&state, json!({"say": "hi"}));
    params["inputResponses"] = json!({"other": {"action": "accept"}});
    let answer = client.request("tools/call", params).await;
    assert_eq!(data(&answer)["error"], "question_refused", "{answer}");
    assert!(server.responses().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_agent_has_a_bounded_number_of_held_calls() {
    let server = asking("elicitation/create", form());
    let gate = gate(&config("max_children: 32", "drop"), &server).start();
    let mut answers = Vec::new();
    for at in 0..17 {
        let client = accepting(&gate, Kind::HttpModern).await;
        answers.push(client.call_with("drop", json!({"at": at})).await);
    }
    // Each has a process of its own, so that no question is taken for another call's.
    let held = |answer: &&Value| answer["result"]["resultType"] == "input_required";
    assert_eq!(answers.iter().filter(held).count(), 16, "{answers:?}");
    assert_eq!(data(&answers[16])["error"], "question_refused", "{}", answers[16]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_belongs_to_no_certain_call_ends_all_calls_of_a_shared_server() {
    let server = Server::legacy(&["drop"]);
    server.on("tools/call", |request| {
        let method = "elicitation/create";
        let ask = json!({"jsonrpc": "2.0", "id": "q", "method": method, "params": form()});
        let done = json!({"content": [{"type": "text", "text": "dropped"}]});
        vec![
            Step::Wait(std::time::Duration::from_millis(100)),
            Step::Send(ask),
            Step::Wait(std::time::Duration::from_secs(1)),
            Step::Result(request["id"].clone(), done),
        ]
    });
    let gate = gate(&config("share: true", "drop"), &server).start();
    let client = accepting(&gate, Kind::StdioLegacy).await;
    client.list().await;
    let [one, other] = [(); 2].map(|()| client.begin_call("drop", json!({})));
    for call in [one, other] {
        let answer = call.answer().await;
        assert_eq!(data(&answer)["error"], "question_refused", "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_clients_could_read_differently_is_declined() {
    for params in [
        json!({"Mode": "url", "mode": "form", "url": "https://x.example", "message": "?"}),
        json!({"Mode": "url", "url": "https://x.example", "message": "?"}),
        json!({"mode": "url", "url": "javascript:alert(1)", "message": "?", "elicitationId": "1"}),
    ] {
        let server = Server::modern(&["drop"]);
        let asked = params.clone();
        server.on("tools/call", move |request| {
            let entry = json!({"method": "elicitation/create", "params": asked.clone()});
            let result = json!({"resultType": "input_required", "inputRequests": {"k": entry}});
            vec![Step::Result(request["id"].clone(), result)]
        });
        let gate = gate(&allow("drop"), &server).start();
        let accept = |_: &Value| Some(json!({"action": "accept", "content": {}}));
        let capabilities = json!({"elicitation": {"form": {}, "url": {}}});
        let client = gate.asked_client(Kind::StdioModern, capabilities, accept).await;
        let answer = client.call("drop").await;
        assert_eq!(data(&answer)["error"], "question_refused", "{params}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_cannot_be_read_is_declined_and_ends_the_call() {
    let server = Server::legacy(&["drop"]);
    server.on("tools/call", |request| {
        let params = json!({"Message": "a", "message": "b", "requestedSchema": {}});
        let method = "elicitation/create";
        let ask =
            json!({"jsonrpc": "2.0", "id": "q", "method": method, "Params": {}, "params": params});
        let done = json!({"content": [{"type": "text", "text": "dropped"}]});
        let wait = Step::Wait(std::time::Duration::from_secs(1));
        vec![Step::Send(ask), wait, Step::Result(request["id"].clone(), done)]
    });
    let gate = gate(&allow("drop"), &server).start();
    let client = accepting(&gate, Kind::StdioLegacy).await;
    let answer = client.call("drop").await;
    assert_eq!(data(&answer)["error"], "question_refused", "{answer}");
    assert_eq!(server.responses()[0]["id"], "q");
}

#[tokio::test(start_paused = true)]
async fn a_held_call_ends_when_its_agent_is_removed() {
    let server = asking("elicitation/create", form());
    let gate = gate(&allow("drop"), &server).start();
    let silent = |_: &Value| None;
    let client = gate.asked_client(Kind::StdioModern, json!({"elicitation": {}}), silent).await;
    let answer = client.call("drop").await;
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    gate.reload("servers: {s: {command: x}}\nagents: {other: {allow: {servers: [s]}}}\n");
    server.arrival("notifications/cancelled").await;
    assert_eq!(gate.outcomes().await, ["aborted"]);
}
