//! Servers that require the user to visit a URL before they carry out a call (-32042).

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::kit::{Client, Gate, Kind, Server, Step, allow, data, gate, text};

const REQUIRED: i64 = -32042;

fn visit(url: &str) -> Value {
    json!({"mode": "url", "message": "Log in", "url": url, "elicitationId": "e-1"})
}

/// A server that requires visits before its first call.
fn requiring(elicitations: Value) -> Server {
    let server = Server::legacy(&["drop"]);
    let visited = AtomicBool::new(false);
    server.on("tools/call", move |request| {
        let id = request["id"].clone();
        if visited.swap(true, Ordering::Relaxed) {
            return vec![Step::Result(id, json!({"content": [{"type": "text", "text": "done"}]}))];
        }
        let data = json!({"elicitations": elicitations, "more": "x"});
        let error = json!({"code": REQUIRED, "message": "visit first", "data": data});
        vec![Step::Send(json!({"jsonrpc": "2.0", "id": id, "error": error}))]
    });
    server
}

async fn client(gate: &Gate, kind: Kind) -> Client {
    gate.asked_client(kind, json!({"elicitation": {"form": {}, "url": {}}}), |_| None).await
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_gets_the_error_and_hears_of_the_end_of_the_visit() {
    let complete = "notifications/elicitation/complete";
    let completed =
        |id: &str| json!({"jsonrpc": "2.0", "method": complete, "params": {"elicitationId": id}});
    let server = requiring(json!([visit("https://login.example/x")]));
    let gate = gate(&allow("drop"), &server).start();
    let client = client(&gate, Kind::StdioLegacy).await;
    let answer = client.call("drop").await;
    assert_eq!(answer["error"]["code"], REQUIRED, "{answer}");
    assert_eq!(answer["error"]["message"], "visit first");
    let mut expected = visit("https://login.example/x");
    // A client of several servers would show the gateway as the one that asks.
    expected["message"] = json!("[s] Log in");
    assert_eq!(answer["error"]["data"], json!({"elicitations": [expected]}));
    let record = gate.record("question").await;
    assert_eq!((&record["verdict"], &record["outcome"]), (&json!("allow"), &json!("relayed")));
    // Only the visit that this client was asked for, and only once.
    for id in ["other", "e-1", "e-1"] {
        server.tell(completed(id));
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    let heard = client.notifications(complete);
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert_eq!(heard[0]["params"]["elicitationId"], "e-1");
    assert_eq!(text(&client.call("drop").await), "done");
    assert_eq!(gate.outcomes().await, ["input-required", "ok"]);
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_is_asked_and_calls_again() {
    for kind in [Kind::StdioModern, Kind::HttpModern] {
        let server = requiring(json!([visit("https://a.example"), visit("https://b.example")]));
        let gate = gate(&allow("drop"), &server).start();
        let client = client(&gate, kind).await;
        let answer = client.call("drop").await;
        let result = &answer["result"];
        assert_eq!(result["resultType"], "input_required", "{kind:?} {answer}");
        let params = json!({"mode": "url", "message": "[s] Log in", "url": "https://b.example"});
        let entry = json!({"method": "elicitation/create", "params": params});
        assert_eq!(result["inputRequests"]["visit2"], entry);
        let again = |second: &str, say: &str| {
            let responses = json!({"visit1": {"action": "accept"}, "visit2": {"action": second}});
            json!({
                "name": "s__drop", "arguments": {"say": say},
                "requestState": result["requestState"], "inputResponses": responses,
            })
        };
        // Without all visits, and with other arguments, nothing reaches the server.
        let answer = client.request("tools/call", again("decline", "hi")).await;
        assert_eq!(data(&answer)["error"], "question_refused", "{kind:?} {answer}");
        let answer = client.request("tools/call", again("accept", "bye")).await;
        assert_eq!(answer["error"]["code"], -32602, "{kind:?} {answer}");
        assert_eq!(server.received("tools/call").len(), 1);
        let answer = client.request("tools/call", again("accept", "hi")).await;
        assert_eq!(text(&answer), "done", "{kind:?}");
        let call = &server.received("tools/call")[1]["params"];
        assert!(call.get("inputResponses").is_none() && call.get("requestState").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_visit_that_may_not_reach_the_client_is_refused() {
    let url = json!({"elicitation": {"url": {}}});
    let form = json!({"elicitation": {"form": {}}});
    let no_urls = "servers: {s: {command: x}}\n\
         agents: {dev: {allow: {servers: [s], client_requests: [elicitation.form, roots]}}}\n";
    let (allowed, web) = (allow("drop"), json!([visit("https://a.example")]));
    let cases = [
        (no_urls, &url, web.clone()),
        (&*allowed, &form, web.clone()),
        (&*allowed, &json!({}), web),
        (&*allowed, &url, json!([visit("javascript:alert(1)")])),
        (&*allowed, &url, json!([visit("https://a.example"), {"mode": "form", "message": "?"}])),
        (&*allowed, &url, json!([])),
        (&*allowed, &url, json!("x")),
    ];
    for (rules, capabilities, elicitations) in cases {
        for kind in Kind::ALL {
            let server = requiring(elicitations.clone());
            let gate = gate(rules, &server).start();
            let client = gate.asked_client(kind, capabilities.clone(), |_| None).await;
            let answer = client.call("drop").await;
            let what = format!("{kind:?} {capabilities} {elicitations}: {answer}");
            assert_eq!(data(&answer)["error"], "question_refused", "{what}");
            assert!(!answer.to_string().contains("a.example"), "{what}");
            assert_eq!(gate.outcomes().await, ["question-refused"], "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_servers_url_has_an_id_for_a_legacy_client() {
    let server = Server::modern(&["drop"]);
    server.on("tools/call", |request| {
        let result = match request["params"].get("inputResponses") {
            Some(_) => {
                json!({"resultType": "complete", "content": [{"type": "text", "text": "done"}]})
            }
            None => {
                let params =
                    json!({"mode": "url", "message": "Log in", "url": "https://a.example"});
                let entry = json!({"method": "elicitation/create", "params": params});
                json!({"resultType": "input_required", "inputRequests": {"k": entry}})
            }
        };
        vec![Step::Result(request["id"].clone(), result)]
    });
    let gate = gate(&allow("drop"), &server).start();
    let accept = |_: &Value| Some(json!({"action": "accept"}));
    let capabilities = json!({"elicitation": {"url": {}}});
    let client = gate.asked_client(Kind::StdioLegacy, capabilities, accept).await;
    assert_eq!(text(&client.call("drop").await), "done");
    let asked = &client.notifications("elicitation/create")[0]["params"];
    assert!(asked["elicitationId"].as_str().is_some_and(|id| !id.is_empty()), "{asked}");
}
