//! Tasks of legacy servers.

use serde_json::{Value, json};

use crate::kit::{Client, Kind, Server, Step, allow, gate};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A server whose calls become tasks if the client asks for it.
fn server() -> Server {
    let server = Server::legacy(&["slow", "other"]);
    server.on("initialize", |request| {
        let tasks = json!({"cancel": {}, "list": {}, "requests": {"tools": {"call": {}}}});
        let result = json!({
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}, "tasks": tasks},
            "serverInfo": {"name": "memory", "version": "1"},
        });
        vec![Step::Result(request["id"].clone(), result)]
    });
    server.on("tools/call", |request| {
        let result = match request["params"].get("task") {
            Some(_) => json!({"task": {"taskId": "upstream-1", "status": "working", "ttl": 60000}}),
            None => json!({"content": [{"type": "text", "text": "at once"}]}),
        };
        vec![Step::Result(request["id"].clone(), result)]
    });
    for method in ["tasks/get", "tasks/cancel"] {
        server.on(method, |request| {
            let result = json!({"taskId": request["params"]["taskId"], "status": "completed"});
            vec![Step::Result(request["id"].clone(), result)]
        });
    }
    server.on("tasks/result", |request| {
        let related = json!({"taskId": request["params"]["taskId"]});
        let content = json!([{"type": "text", "text": "done"}]);
        let result = json!({"content": content, "_meta": {RELATED: related}});
        vec![Step::Result(request["id"].clone(), result)]
    });
    server
}

async fn task(client: &Client) -> String {
    let params = json!({"name": "s__slow", "arguments": {}, "task": {"ttl": 60000}});
    let answer = client.request("tools/call", params).await;
    let id = answer["result"]["task"]["taskId"].as_str();
    id.unwrap_or_else(|| panic!("{answer}")).to_string()
}

async fn ask(client: &Client, method: &str, id: &str) -> Value {
    client.request(method, json!({ "taskId": id })).await
}

#[tokio::test(start_paused = true)]
async fn a_task_has_a_sealed_id_and_its_requests_reach_its_server() {
    for kind in [Kind::StdioLegacy, Kind::HttpLegacy] {
        let server = server();
        let gate = gate(&allow("slow"), &server).start();
        let client = gate.client(kind).await;
        let id = task(&client).await;
        assert_ne!(id, "upstream-1");
        let got = ask(&client, "tasks/get", &id).await;
        assert_eq!(got["result"], json!({"taskId": id, "status": "completed"}), "{kind:?}");
        let result = ask(&client, "tasks/result", &id).await;
        assert_eq!(result["result"]["content"][0]["text"], "done", "{result}");
        assert_eq!(result["result"]["_meta"][RELATED]["taskId"], id);
        ask(&client, "tasks/cancel", &id).await;
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            assert_eq!(server.received(method)[0]["params"]["taskId"], "upstream-1");
        }
        assert_eq!(gate.outcomes().await[..2], ["task", "ok"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_of_another_agent_or_of_a_denied_tool_is_unknown() {
    let server = server();
    let config = |tools: &str| {
        format!(
            "servers: {{s: {{command: x}}}}\n\
             agents:\n  dev: {{allow: {{servers: [s], tools: {{s: [{tools}]}}}}}}\n  \
             other: {{allow: {{servers: [s]}}}}\n"
        )
    };
    let gate = gate(&config("slow, other"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let id = task(&client).await;
    let other = gate.client_of(Kind::StdioLegacy, "other").await;
    let mut unknown = Vec::new();
    for (client, id) in [(&other, id.as_str()), (&client, "made-up"), (&client, "upstream-1")] {
        unknown.push(ask(client, "tasks/get", id).await["error"].clone());
    }
    gate.reload(&config("other"));
    unknown.push(ask(&client, "tasks/get", &id).await["error"].clone());
    for error in &unknown {
        assert_eq!((&error["code"], &error["message"]), (&json!(-32602), &json!("unknown task")));
    }
    assert!(server.received("tasks/get").is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_tasks_at_either_end_a_call_is_answered_at_once() {
    let offering = server();
    let gateway = gate(&allow("slow"), &offering).start();
    let modern = gateway.client(Kind::StdioModern).await;
    let answer = modern.call("slow").await;
    assert_eq!(answer["result"]["content"][0]["text"], "at once");
    // Tasks are not translated: the id of a legacy task is unknown to a modern client.
    let id = task(&gateway.client(Kind::StdioLegacy).await).await;
    let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let capable = gateway.asked_client(Kind::StdioModern, capabilities, |_| None).await;
    for id in ["x", &id] {
        let answer = ask(&capable, "tasks/get", id).await;
        assert_eq!(answer["error"]["message"], "unknown task", "{answer}");
        let answer = ask(&modern, "tasks/get", id).await;
        assert_eq!(answer["error"]["code"], -32021, "{answer}");
    }
    assert!(offering.received("tasks/get").is_empty());
    // A server that does not offer tasks is not asked for one.
    let plain = Server::legacy(&["slow"]);
    let gateway = gate(&allow("slow"), &plain).start();
    let client = gateway.client(Kind::StdioLegacy).await;
    let params = json!({"name": "s__slow", "arguments": {}, "task": {"ttl": 1}});
    assert!(client.request("tools/call", params).await["result"]["content"].is_array());
    assert!(plain.received("tools/call")[0]["params"].get("task").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_needs_a_task_is_called_for_clients_without_tasks() {
    let server = server();
    let schema = json!({"type": "object"});
    let execution = json!({"taskSupport": "required"});
    server.set_tools(vec![json!({"name": "slow", "inputSchema": schema, "execution": execution})]);
    let gate = gate(&allow("slow"), &server).start();
    for kind in Kind::ALL {
        let client = gate.client(kind).await;
        let answer = client.call("slow").await;
        assert_eq!(answer["result"]["content"][0]["text"], "done", "{kind:?} {answer}");
    }
    let calls = server.received("tools/call");
    assert!(calls.len() == 4 && calls.iter().all(|call| call["params"]["task"] == json!({})));
    assert_eq!(server.received("tasks/result")[0]["params"]["taskId"], "upstream-1");
    assert_eq!(gate.outcomes().await, ["ok"; 4]);
}

#[tokio::test(start_paused = true)]
async fn only_own_tasks_are_listed_and_under_the_ids_that_the_client_has() {
    // One server lists tasks, of others too; the other one is asked about each.
    for has_list in [true, false] {
        let server = server();
        let made = std::sync::atomic::AtomicUsize::new(0);
        server.on("tools/call", move |request| {
            let id = format!("up-{}", made.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
            let result = json!({"task": {"taskId": id, "status": "working"}});
            vec![Step::Result(request["id"].clone(), result)]
        });
        server.on("tasks/list", |request| {
            let task = |id: &str| json!({"taskId": id, "status": "working", "ttl": 1});
            let result = match request["params"].get("cursor") {
                None => json!({"tasks": [task("foreign"), task("up-0")], "nextCursor": "more"}),
                Some(_) => json!({"tasks": [task("up-2"), task("up-1")]}),
            };
            vec![Step::Result(request["id"].clone(), result)]
        });
        if !has_list {
            server.on("initialize", |request| {
                let tasks = json!({"requests": {"tools": {"call": {}}}});
                let result = json!({
                    "protocolVersion": request["params"]["protocolVersion"],
                    "capabilities": {"tools": {}, "tasks": tasks},
                    "serverInfo": {"name": "memory", "version": "1"},
                });
                vec![Step::Result(request["id"].clone(), result)]
            });
        }
        let config = |tools: &str| {
            format!(
                "servers: {{s: {{command: x}}}}\n\
                 agents:\n  dev: {{allow: {{servers: [s], tools: {{s: [{tools}]}}}}}}\n  \
                 other: {{allow: {{servers: [s]}}}}\n"
            )
        };
        let gate = gate(&config("slow, other"), &server).start();
        let client = gate.client(Kind::HttpLegacy).await;
        let other = gate.client_of(Kind::HttpLegacy, "other").await;
        let own = [task(&client).await, task(&client).await];
        let foreign = task(&other).await;
        let listed = async |client: &Client| {
            let answer = client.request("tasks/list", json!({})).await;
            let tasks = answer["result"]["tasks"].as_array().unwrap_or_else(|| panic!("{answer}"));
            let ids = tasks.iter().map(|task| task["taskId"].as_str().unwrap().to_string());
            ids.collect::<Vec<_>>()
        };
        assert_eq!(listed(&client).await, own, "{has_list}");
        assert_eq!(listed(&other).await, [foreign], "{has_list}");
        assert_eq!(server.received("tasks/list").is_empty(), !has_list);
        assert_eq!(gate.records_of("list").await.last().unwrap()["tasks"], 1);
        // A tool that is denied by now hides its tasks.
        gate.reload(&config("other"));
        assert!(listed(&client).await.is_empty());
        let answer = client.request("tasks/list", json!({"cursor": "more"})).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_state_of_an_own_task_reaches_its_client_under_the_id_that_it_has() {
    let changed = "notifications/tasks/status";
    let tell = |server: &Server, id: &str, status: &str| {
        let related = json!({"io.modelcontextprotocol/related-task": {"taskId": id}});
        let params = json!({"taskId": id, "status": status, "_meta": related});
        server.tell(json!({"jsonrpc": "2.0", "method": changed, "params": params}));
    };
    let server = server();
    let gate = gate(&allow("slow, other"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let id = task(&client).await;
    for (id, status) in [("foreign", "working"), ("upstream-1", "completed")] {
        tell(&server, id, status);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    let heard = client.notifications(changed);
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert_eq!(heard[0]["params"], json!({"taskId": id, "status": "completed"}));
    gate.reload(&allow("other"));
    tell(&server, "upstream-1", "failed");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(client.notifications(changed).len(), 1);
}
