//! Configured roots: the gateway's answer to `roots/list`.

use serde_json::{Value, json};

use crate::kit::{Client, Gate, Kind, Server, Step, config, gate, text};

const ROOTS: &str = "roots: [/srv/our project, 'file:///data']";

fn expected() -> Value {
    json!({"roots": [
        {"uri": "file:///srv/our%20project", "name": "our%20project"},
        {"uri": "file:///data", "name": "data"},
    ]})
}

/// A client with roots of its own, which must not be asked.
async fn with_own_roots(gate: &Gate, kind: Kind) -> Client {
    let own = |_: &Value| Some(json!({"roots": [{"uri": "file:///home"}]}));
    gate.asked_client(kind, json!({"roots": {}}), own).await
}

/// A legacy server that asks for roots during a call, and when it has started.
fn asking() -> Server {
    let server = Server::legacy(&["a"]);
    let ask = |id: &str| Step::Send(json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"}));
    server.on("notifications/initialized", move |_| vec![ask("outside")]);
    server.on("tools/call", move |request| {
        let result = json!({"content": [{"type": "text", "text": "done"}]});
        vec![ask("inside"), Step::Result(request["id"].clone(), result)]
    });
    server
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_gets_the_configured_roots_at_any_time() {
    for share in ["", ", share: true"] {
        for kind in Kind::ALL {
            let server = asking();
            let gate = gate(&config(&format!("{ROOTS}{share}"), "a"), &server).start();
            let plain = gate.client(kind).await;
            assert_eq!(text(&plain.call("a").await), "done", "{kind:?} {share}");
            let other = with_own_roots(&gate, kind).await;
            assert_eq!(text(&other.call("a").await), "done", "{kind:?} {share}");
            let declared = &server.received("initialize")[0]["params"]["capabilities"];
            assert_eq!(*declared, json!({"roots": {}}), "{kind:?} {share}");
            let responses = server.responses();
            assert!(responses.len() >= 3, "{kind:?} {share} {responses:?}");
            for response in responses {
                assert_eq!(response["result"], expected(), "{kind:?} {share}");
            }
            assert!(other.notifications("roots/list").is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_with_configured_roots_share_a_process() {
    let server = asking();
    let gate = gate(&config(ROOTS, "a"), &server).start();
    let client = gate.client(Kind::HttpModern).await;
    let calls = [0; 4].map(|_| client.begin_call("a", json!({})));
    for call in calls {
        assert_eq!(text(&call.answer().await), "done");
    }
    assert_eq!(server.connections(), 1);
}

/// A modern server that needs roots, and then a confirmation.
fn needing_input() -> Server {
    let server = Server::modern(&["a"]);
    server.on("tools/call", |request| {
        let params = &request["params"];
        let capabilities = &params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        let needs = |requests: Value, state: &Value| {
            let kind = "input_required";
            json!({"resultType": kind, "inputRequests": requests, "requestState": state})
        };
        let responses = &params["inputResponses"];
        let result = match (responses.get("roots"), responses.get("sure")) {
            (None, None) => {
                assert!(capabilities["roots"].is_object(), "{capabilities}");
                needs(json!({"roots": {"method": "roots/list"}}), &json!("first"))
            }
            (Some(roots), _) => {
                let form = json!({"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}});
                let ask = json!({"sure": {"method": "elicitation/create", "params": form}});
                needs(ask, &json!(roots.to_string()))
            }
            (None, Some(_)) => {
                let roots = params["requestState"].as_str().unwrap();
                json!({"resultType": "complete", "content": [{"type": "text", "text": roots}]})
            }
        };
        vec![Step::Result(request["id"].clone(), result)]
    });
    server
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_gets_the_configured_roots_and_asks_the_client_the_rest() {
    for kind in Kind::ALL {
        let server = needing_input();
        let gate = gate(&config(ROOTS, "a"), &server).start();
        let accept = |request: &Value| match request["method"] == "roots/list" {
            true => Some(json!({"roots": [{"uri": "file:///home"}]})),
            false => Some(json!({"action": "accept", "content": {}})),
        };
        let declared = json!({"roots": {}, "elicitation": {}});
        let client = gate.asked_client(kind, declared, accept).await;
        let mut answer = client.call("a").await;
        if kind.is_modern() {
            let asked = answer["result"]["inputRequests"].as_object().unwrap();
            assert_eq!(asked.keys().collect::<Vec<_>>(), ["sure"], "{kind:?}");
            let params = json!({
                "name": "s__a", "arguments": {"say": "hi"},
                "requestState": answer["result"]["requestState"],
                "inputResponses": {"sure": {"action": "accept", "content": {}}},
            });
            answer = client.request("tools/call", params).await;
        }
        let given: Value = serde_json::from_str(text(&answer)).unwrap();
        assert_eq!(given, expected(), "{kind:?}");
        assert!(client.notifications("roots/list").is_empty(), "{kind:?}");
        let record = &gate.records_of("question").await[0];
        assert_eq!(
            (&record["method"], &record["outcome"]),
            (&json!("roots/list"), &json!("configured"))
        );
    }
}
