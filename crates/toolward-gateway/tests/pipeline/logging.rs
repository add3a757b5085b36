//! Log messages of servers.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{Kind, Server, Step, allow, gate};

const MESSAGE: &str = "notifications/message";

/// A legacy server that logs at two levels during a call.
fn logging(server: Server) -> Server {
    server.on("initialize", |request| {
        let result = json!({
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}, "logging": {}},
            "serverInfo": {"name": "memory", "version": "1"},
        });
        vec![Step::Result(request["id"].clone(), result)]
    });
    server.on("logging/setLevel", |request| vec![Step::Result(request["id"].clone(), json!({}))]);
    server.on("tools/call", |request| {
        let message = |level: &str| {
            let params = json!({"level": level, "data": level});
            Step::Send(json!({"jsonrpc": "2.0", "method": MESSAGE, "params": params}))
        };
        let mut result = json!({"content": []});
        if request["params"]["_meta"].get("io.modelcontextprotocol/protocolVersion").is_some() {
            result["resultType"] = json!("complete");
        }
        vec![message("debug"), message("error"), Step::Result(request["id"].clone(), result)]
    });
    server
}

fn levels(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|one| one["params"]["level"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_session_gets_messages_from_its_level_on() {
    for server in [logging(Server::legacy(&["echo"])), logging(Server::both(&["echo"]))] {
        let gate = gate(&allow("echo"), &server).start();
        let client = gate.client(Kind::StdioLegacy).await;
        client.call("echo").await;
        assert_eq!(levels(&client.notifications(MESSAGE)), ["debug", "error"]);
        let answer = client.request("logging/setLevel", json!({"level": "warning"})).await;
        assert_eq!(answer["result"], json!({}), "{answer}");
        let set = server.arrival("logging/setLevel").await;
        assert_eq!(set["params"]["level"], "warning");
        client.call("echo").await;
        assert_eq!(levels(&client.notifications(MESSAGE)), ["debug", "error", "error"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_gets_messages_that_belong_to_no_call() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.call("echo").await;
    client.request("logging/setLevel", json!({"level": "warning"})).await;
    for level in ["debug", "error"] {
        let params = json!({"level": level, "data": "on its own"});
        server.tell(json!({"jsonrpc": "2.0", "method": MESSAGE, "params": params}));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(levels(&client.notifications(MESSAGE)), ["error"]);
}

#[tokio::test(start_paused = true)]
async fn a_level_that_was_set_before_a_server_started_reaches_it() {
    let server = logging(Server::legacy(&["echo"]));
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.request("logging/setLevel", json!({"level": "error"})).await;
    client.call("echo").await;
    assert_eq!(server.arrival("logging/setLevel").await["params"]["level"], "error");
    assert_eq!(levels(&client.notifications(MESSAGE)), ["error"]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_level_is_rejected_and_a_server_without_logging_is_not_asked() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.list().await;
    for wrong in [json!({"level": "loud"}), json!({"level": 3}), json!({})] {
        let answer = client.request("logging/setLevel", wrong).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    let answer = client.request("logging/setLevel", json!({"level": "info"})).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
    client.call("echo").await;
    assert!(server.received("logging/setLevel").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_modern_request_gets_the_level_it_asks_for() {
    let server = logging(Server::legacy(&["echo"]));
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioModern).await;
    client.call("echo").await;
    assert!(client.notifications(MESSAGE).is_empty());
    let meta = json!({"io.modelcontextprotocol/logLevel": "error"});
    client.request("tools/call", json!({"name": "s__echo", "_meta": meta})).await;
    assert_eq!(levels(&client.notifications(MESSAGE)), ["error"]);
    assert_eq!(server.arrival("logging/setLevel").await["params"]["level"], "error");
}

#[tokio::test(start_paused = true)]
async fn the_level_of_a_legacy_session_is_sent_to_a_modern_server_with_each_call() {
    let server = Server::modern(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.request("logging/setLevel", json!({"level": "notice"})).await;
    client.call("echo").await;
    let sent = &server.arrival("tools/call").await["params"]["_meta"];
    assert_eq!(sent["io.modelcontextprotocol/logLevel"], "notice");
}
