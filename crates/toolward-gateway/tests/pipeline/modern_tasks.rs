//! Tasks of modern servers: the extension `io.modelcontextprotocol/tasks`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{Client, Gate, Kind, Server, Step, allow, data, gate, within_an_hour};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";
const KINDS: [Kind; 2] = [Kind::StdioModern, Kind::HttpModern];

/// A server that answers calls with tasks, and the state of all its tasks.
fn server() -> (Server, Arc<Mutex<Value>>) {
    let server = Server::modern(&["slow", "other"]);
    server.on("server/discover", |request| {
        let result = json!({
            "supportedVersions": ["2026-07-28"], "resultType": "complete",
            "capabilities": {"tools": {}, "extensions": {EXTENSION: {}}},
            "ttlMs": 60000, "cacheScope": "private",
        });
        vec![Step::Result(request["id"].clone(), result)]
    });
    server.on("tools/call", |request| {
        let meta = &request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        let result = match meta["extensions"].get(EXTENSION) {
            Some(_) => json!({"resultType": "task", "taskId": "up-1", "status": "working"}),
            None => json!({"resultType": "complete", "content": []}),
        };
        vec![Step::Result(request["id"].clone(), result)]
    });
    let state = Arc::new(Mutex::new(json!({"status": "working"})));
    let now = state.clone();
    server.on("tasks/get", move |request| {
        let mut result = now.lock().unwrap().clone();
        result["resultType"] = json!("complete");
        result["taskId"] = request["params"]["taskId"].clone();
        vec![Step::Result(request["id"].clone(), result)]
    });
    for method in ["tasks/update", "tasks/cancel"] {
        server.on(method, |request| {
            vec![Step::Result(request["id"].clone(), json!({"resultType": "complete"}))]
        });
    }
    (server, state)
}

fn asking() -> Value {
    let params = json!({"message": "Sure?", "requestedSchema": {"type": "object"}});
    let entry = json!({"method": "elicitation/create", "params": params});
    json!({"status": "input_required", "inputRequests": {"sure": entry}})
}

async fn capable(gate: &Gate, kind: Kind) -> Client {
    let capabilities = json!({"elicitation": {}, "extensions": {EXTENSION: {}}});
    gate.asked_client(kind, capabilities, |_| None).await
}

async fn task(client: &Client) -> String {
    let answer = client.call("slow").await;
    assert_eq!(answer["result"]["resultType"], "task", "{answer}");
    answer["result"]["taskId"].as_str().unwrap().to_string()
}

async fn ask(client: &Client, method: &str, id: &str) -> Value {
    client.request(method, json!({ "taskId": id })).await
}

fn denying() -> String {
    "servers: {s: {command: x}}\n\
     agents: {dev: {allow: {servers: [s], client_requests: [roots]}}}\n"
        .into()
}

#[tokio::test(start_paused = true)]
async fn a_task_has_a_sealed_id_and_its_requests_reach_its_server() {
    for kind in KINDS {
        let (server, state) = server();
        let gate = gate(&allow("slow"), &server).start();
        let client = capable(&gate, kind).await;
        let offered = client.request("server/discover", json!({})).await;
        let extensions = &offered["result"]["capabilities"]["extensions"];
        assert_eq!(*extensions, json!({EXTENSION: {}}), "{offered}");
        let id = task(&client).await;
        assert_ne!(id, "up-1");
        let working = ask(&client, "tasks/get", &id).await;
        assert_eq!(
            (&working["result"]["taskId"], &working["result"]["status"]),
            (&json!(id), &json!("working"))
        );
        *state.lock().unwrap() = json!({"status": "completed", "result": {"content": []}});
        let ended = ask(&client, "tasks/get", &id).await;
        assert_eq!(ended["result"]["result"], json!({"content": []}), "{ended}");
        assert_eq!(ask(&client, "tasks/cancel", &id).await["result"]["resultType"], "complete");
        for method in ["tasks/get", "tasks/cancel"] {
            assert_eq!(server.received(method)[0]["params"]["taskId"], "up-1", "{kind:?}");
        }
        assert_eq!(gate.outcomes().await, ["task", "ok", "ok", "ok"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_of_another_agent_or_of_a_denied_tool_is_unknown() {
    let (server, _) = server();
    let config = |tools: &str| {
        format!(
            "servers: {{s: {{command: x}}}}\n\
             agents:\n  dev: {{allow: {{servers: [s], tools: {{s: [{tools}]}}}}}}\n  \
             other: {{allow: {{servers: [s]}}}}\n"
        )
    };
    let gate = gate(&config("slow, other"), &server).start();
    let client = capable(&gate, Kind::HttpModern).await;
    let id = task(&client).await;
    let capabilities = json!({"extensions": {EXTENSION: {}}});
    let other = gate.capable_client_of(Kind::HttpModern, "other", capabilities).await;
    let legacy = gate.client(Kind::StdioLegacy).await;
    let mut unknown = Vec::new();
    for (client, id) in [(&other, &*id), (&legacy, &*id), (&client, "up-1"), (&client, "made-up")] {
        unknown.push(ask(client, "tasks/get", id).await);
    }
    gate.reload(&config("other"));
    for method in ["tasks/get", "tasks/cancel"] {
        unknown.push(ask(&client, method, &id).await);
    }
    let update = json!({"taskId": id, "inputResponses": {"sure": {"action": "accept"}}});
    unknown.push(client.request("tasks/update", update).await);
    for answer in &unknown {
        let error = &answer["error"];
        assert_eq!((&error["code"], &error["message"]), (&json!(-32602), &json!("unknown task")));
    }
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        assert!(server.received(method).is_empty(), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_without_the_extension_gets_no_task() {
    let (server, _) = server();
    let gate = gate(&allow("slow"), &server).start();
    for kind in Kind::ALL {
        let client = gate.client(kind).await;
        let answer = client.call("slow").await;
        assert!(answer["result"]["content"].is_array(), "{kind:?} {answer}");
    }
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let client = gate.client(Kind::HttpModern).await;
        let answer = client.request(method, json!({"taskId": "x", "inputResponses": {}})).await;
        let code = if method == "tasks/update" { -32021 } else { -32602 };
        assert_eq!(answer["error"]["code"], code, "{method} {answer}");
        let answer = ask(&client, method, "x").await;
        assert_eq!(answer["error"]["code"], -32021, "{method} {answer}");
        let required = &answer["error"]["data"]["requiredCapabilities"];
        assert_eq!(*required, json!({"extensions": {EXTENSION: {}}}));
    }
    // A server that answers with a task nevertheless.
    server.on("tools/call", |request| {
        let result = json!({"resultType": "task", "taskId": "up-1", "status": "working"});
        vec![Step::Result(request["id"].clone(), result)]
    });
    for kind in Kind::ALL {
        let answer = gate.client(kind).await.call("slow").await;
        assert_eq!(data(&answer)["error"], "bad_answer", "{kind:?} {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_asks_the_client_and_gets_only_responses_to_what_it_asked() {
    for kind in KINDS {
        let (server, state) = server();
        let gate = gate(&allow("slow"), &server).start();
        let client = capable(&gate, kind).await;
        let id = task(&client).await;
        *state.lock().unwrap() = asking();
        let got = ask(&client, "tasks/get", &id).await;
        let message = &got["result"]["inputRequests"]["sure"]["params"]["message"];
        assert_eq!(message, "[s] Sure?", "{kind:?} {got}");
        assert_eq!(gate.record("question").await["outcome"], "relayed");
        let accepted = json!({"action": "accept", "content": {}});
        let responses = json!({"sure": accepted, "other": accepted, "io.toolward/x": accepted});
        let update = json!({"taskId": id, "inputResponses": responses});
        let answer = client.request("tasks/update", update).await;
        assert_eq!(answer["result"]["resultType"], "complete", "{kind:?} {answer}");
        let received = &server.received("tasks/update")[0]["params"];
        assert_eq!(received["inputResponses"], json!({ "sure": accepted }), "{kind:?}");
        assert_eq!(received["taskId"], "up-1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_question_of_a_task_ends_the_task() {
    for method in ["tasks/get", "tasks/update"] {
        let (server, state) = server();
        let gate = gate(&denying(), &server).start();
        let client = capable(&gate, Kind::HttpModern).await;
        let id = task(&client).await;
        *state.lock().unwrap() = asking();
        let mut params = json!({ "taskId": id });
        if method == "tasks/update" {
            // A response to a question that the client was not asked.
            params["inputResponses"] = json!({"sure": {"action": "accept"}});
        }
        let answer = client.request(method, params).await;
        assert_eq!(data(&answer)["error"], "question_refused", "{method} {answer}");
        assert!(!answer.to_string().contains("Sure?"));
        assert_eq!(server.received("tasks/cancel")[0]["params"]["taskId"], "up-1", "{method}");
        assert!(server.received("tasks/update").is_empty());
        assert_eq!(gate.record("question").await["outcome"], "declined");
        assert_eq!(gate.outcomes().await, ["task", "question-refused"]);
    }
}

#[tokio::test(start_paused = true)]
async fn configured_roots_answer_a_task() {
    let (server, state) = server();
    let rules = "servers: {s: {command: x, roots: ['file:///srv']}}\n\
         agents: {dev: {allow: {servers: [s]}}}\n";
    let gate = gate(rules, &server).start();
    let client = capable(&gate, Kind::StdioModern).await;
    let id = task(&client).await;
    let mut asked = asking();
    asked["inputRequests"]["roots"] = json!({"method": "roots/list"});
    *state.lock().unwrap() = asked;
    let got = ask(&client, "tasks/get", &id).await;
    let keys: Vec<&String> = got["result"]["inputRequests"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["sure"], "{got}");
    let responses = &server.received("tasks/update")[0]["params"]["inputResponses"];
    assert_eq!(responses["roots"]["roots"][0]["uri"], "file:///srv", "{responses}");
}

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const CHANGED: &str = "notifications/tasks";

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    within_an_hour(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

fn changed(id: &str, mut state: Value) -> Value {
    state["taskId"] = json!(id);
    json!({"jsonrpc": "2.0", "method": CHANGED, "params": state})
}

#[tokio::test(start_paused = true)]
async fn changes_of_a_task_reach_only_the_client_that_made_it() {
    let (server, _) = server();
    let rules = "servers: {s: {command: x}}\n\
         agents: {dev: {allow: {servers: [s]}}, other: {allow: {servers: [s]}}}\n";
    let gate = gate(rules, &server).start();
    let client = capable(&gate, Kind::StdioModern).await;
    let id = task(&client).await;
    let filter = json!({"notifications": {"taskIds": [id, "made-up", "up-1"]}});
    let stream = client.begin("subscriptions/listen", filter.clone());
    until("the acknowledgement", || !client.notifications(ACKNOWLEDGED).is_empty()).await;
    let accepted = &client.notifications(ACKNOWLEDGED)[0]["params"]["notifications"];
    assert_eq!(*accepted, json!({"taskIds": [id]}));
    let wanted = server.arrivals("subscriptions/listen", 1).await;
    assert_eq!(wanted[0]["params"]["notifications"], json!({"taskIds": ["up-1"]}));
    // Another agent that knows the id hears nothing, and neither does a client without the extension.
    let without = gate.client(Kind::StdioModern).await;
    let answer = without.request("subscriptions/listen", filter.clone()).await;
    assert_eq!(answer["error"]["code"], -32021, "{answer}");
    server.tell(changed("up-2", json!({"status": "completed"})));
    server.tell(changed("up-1", asking()));
    until("the change", || !client.notifications(CHANGED).is_empty()).await;
    let params = &client.notifications(CHANGED)[0]["params"];
    assert_eq!((&params["taskId"], &params["status"]), (&json!(id), &json!("input_required")));
    assert_eq!(params["inputRequests"]["sure"]["params"]["message"], "[s] Sure?");
    assert_eq!(params["_meta"]["io.modelcontextprotocol/subscriptionId"], stream.id);
    // Denied by now: neither a question nor a tool that it may not use.
    gate.reload(&denying());
    server.tell(changed("up-1", asking()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(client.notifications(CHANGED).len(), 1);
    server.tell(changed("up-1", json!({"status": "completed", "result": {"content": []}})));
    until("the end", || client.notifications(CHANGED).len() == 2).await;
    gate.reload(
        "servers: {s: {command: x}}\nagents: {dev: {allow: {servers: [s], tools: {s: [other]}}}}\n",
    );
    server.tell(changed("up-1", json!({"status": "completed", "result": {"content": [1]}})));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(client.notifications(CHANGED).len(), 2);
}
