//! Two holders of JWTs are different callers, even if both are the same agent: nothing of one is of use to the other.

use serde_json::{Value, json};

use crate::kit::{Client, Kind, Server, Step, allow, gate, text};

const RULES: &str = "servers: {s: {command: x}, t: {command: x}}\n\
     agents: {dev: {allow: {servers: ['*']}}}\n";

fn asking(server: &Server) {
    server.on("tools/call", |_| {
        let params = json!({"message": "?", "requestedSchema": {"type": "object"}});
        let method = "elicitation/create";
        vec![Step::Send(json!({"jsonrpc": "2.0", "id": "q", "method": method, "params": params}))]
    });
    server.on("", |_| vec![]);
}

async fn second_round(client: &Client, state: &Value) -> Value {
    let params = json!({
        "name": "s__drop", "arguments": {"say": "hi"}, "requestState": state,
        "inputResponses": {"sure": {"action": "accept"}, "q1": {"action": "accept"}},
    });
    client.request("tools/call", params).await
}

#[tokio::test(start_paused = true)]
async fn held_calls_and_states_belong_to_their_holder() {
    let legacy = Server::legacy(&["drop"]);
    asking(&legacy);
    let modern = Server::modern(&["drop"]);
    modern.on("tools/call", |request| {
        let params = json!({"message": "?", "requestedSchema": {"type": "object"}});
        let entry = json!({"method": "elicitation/create", "params": params});
        let asked = json!({"resultType": "input_required", "inputRequests": {"sure": entry}});
        let done = json!({"resultType": "complete", "content": [{"type": "text", "text": "done"}]});
        let has_input = request["params"].get("inputResponses").is_some();
        vec![Step::Result(request["id"].clone(), if has_input { done } else { asked })]
    });
    for server in [&legacy, &modern] {
        let gate = gate(&allow("drop"), server).start();
        let [one, other] = ["one", "other"].map(|name| (name, &gate));
        let one = one.1.holder(Kind::StdioModern, one.0).await;
        let other = other.1.holder(Kind::StdioModern, other.0).await;
        let answer = one.call("drop").await;
        let state = &answer["result"]["requestState"];
        assert!(state.is_string(), "{answer}");
        let refused = second_round(&other, state).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    assert!(legacy.responses().is_empty());
    assert_eq!(modern.received("tools/call").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn sessions_at_servers_belong_to_their_holder() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    for (subject, processes) in [("one", 1), ("other", 2), ("one", 2)] {
        let client = gate.holder(Kind::StdioModern, subject).await;
        assert!(client.call("echo").await["result"].is_object());
        assert_eq!(server.connections(), processes, "{subject}");
    }
}

#[tokio::test(start_paused = true)]
async fn links_belong_to_their_holder() {
    let [first, second] = [Server::both(&["echo"]), Server::both(&["echo"])];
    first.set_resources(&["note:1"]);
    second.set_resources(&["other:1"]);
    second.on("tools/call", |request| {
        let link = json!({"type": "resource_link", "uri": "made:7", "name": "x"});
        let result = json!({"resultType": "complete", "content": [link]});
        vec![Step::Result(request["id"].clone(), result)]
    });
    let gate = gate(RULES, &first).server("t", &second).start();
    let one = gate.holder(Kind::StdioModern, "one").await;
    let other = gate.holder(Kind::StdioModern, "other").await;
    one.request("tools/call", json!({"name": "t__echo", "arguments": {}})).await;
    let uri = json!({"uri": "made:7"});
    assert!(other.request("resources/read", uri.clone()).await["error"].is_object());
    assert!(one.request("resources/read", uri).await["result"].is_object());
    assert_eq!(second.received("resources/read").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn tasks_and_cursors_belong_to_their_holder() {
    let server = Server::legacy(&["slow"]);
    let uris: Vec<String> = (0..1500).map(|number| format!("note:{number}")).collect();
    server.set_resources(&uris.iter().map(String::as_str).collect::<Vec<_>>());
    server.on("initialize", |request| {
        let tasks = json!({"requests": {"tools": {"call": {}}}});
        let result = json!({
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}, "resources": {}, "tasks": tasks},
            "serverInfo": {"name": "memory", "version": "1"},
        });
        vec![Step::Result(request["id"].clone(), result)]
    });
    server.on("tools/call", |request| {
        let result = json!({"task": {"taskId": "up-1", "status": "working"}});
        vec![Step::Result(request["id"].clone(), result)]
    });
    server.on("tasks/get", |request| {
        let result = json!({"taskId": "up-1", "status": "working"});
        vec![Step::Result(request["id"].clone(), result)]
    });
    let rules = "servers: {s: {command: x}}\nagents: {dev: {allow: {servers: [s]}}}\n";
    let gate = gate(rules, &server).start();
    let one = gate.holder(Kind::StdioLegacy, "one").await;
    let other = gate.holder(Kind::StdioLegacy, "other").await;
    let call = json!({"name": "s__slow", "arguments": {}, "task": {}});
    let made = one.request("tools/call", call).await;
    let id = json!({"taskId": made["result"]["task"]["taskId"]});
    assert_eq!(other.request("tasks/get", id.clone()).await["error"]["message"], "unknown task");
    assert_eq!(other.request("tasks/list", json!({})).await["result"]["tasks"], json!([]));
    assert_eq!(one.request("tasks/get", id.clone()).await["result"]["status"], "working");
    let listed = one.request("tasks/list", json!({})).await;
    assert_eq!(listed["result"]["tasks"][0]["taskId"], id["taskId"], "{listed}");
    let page = one.request("resources/list", json!({})).await;
    let cursor = json!({"cursor": page["result"]["nextCursor"]});
    assert_eq!(other.request("resources/list", cursor.clone()).await["error"]["code"], -32602);
    assert!(one.request("resources/list", cursor).await["result"].is_object());
}

#[tokio::test(start_paused = true)]
async fn subscriptions_belong_to_their_holder() {
    let server = Server::legacy(&["echo"]);
    server.set_resources(&["dir:a"]);
    let rules = "servers: {s: {command: x}}\nagents: {dev: {allow: {servers: [s]}}}\n";
    let gate = gate(rules, &server).start();
    let one = gate.holder(Kind::StdioLegacy, "one").await;
    let other = gate.holder(Kind::StdioLegacy, "other").await;
    one.request("resources/subscribe", json!({"uri": "dir:a"})).await;
    server.arrival("resources/subscribe").await;
    // Another holder cannot end it, and hears nothing.
    other.request("resources/unsubscribe", json!({"uri": "dir:a"})).await;
    let updated = "notifications/resources/updated";
    server.tell(json!({"jsonrpc": "2.0", "method": updated, "params": {"uri": "dir:a"}}));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!((one.notifications(updated).len(), other.notifications(updated).len()), (1, 0));
    assert!(text(&one.call("echo").await).is_ascii());
}
