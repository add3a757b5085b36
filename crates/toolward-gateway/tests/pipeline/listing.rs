//! Tool listings that clients get.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::kit::*;

#[tokio::test(start_paused = true)]
async fn a_listing_has_only_allowed_tools() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo", "secret", "other"]);
        let gate = gate(&allow("echo, other"), &server).start();
        let client = gate.client(kind).await;
        let answer = client.request("tools/list", json!({})).await;
        assert!(!answer.to_string().contains("secret"), "{kind:?}: {answer}");
        assert_eq!(client.list().await, ["s__echo", "s__other"], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_is_recorded_in_numbers_and_names() {
    let server = Server::legacy(&["echo", "secret"]);
    let gate = gate(&allow("echo"), &server).start();
    gate.client(Kind::StdioLegacy).await.list().await;
    let record = gate.record("list").await;
    assert_eq!(record["servers"], json!({"s": {"offered": 2, "shown": 1}}));
    assert_eq!(record["names"]["s"]["removed"], json!(["secret"]), "{record}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_takes_nothing_from_the_list_of_others() {
    let (server, down) = (Server::legacy(&["echo"]), Server::legacy(&["echo"]));
    down.set_unstartable(true);
    let config = "servers: {s: {command: x}, down: {command: x}}\nagents: {dev: {allow: {servers: ['*']}}}\n";
    let gate = gate(config, &server).server("down", &down).start();
    let client = gate.client(Kind::HttpLegacy).await;
    assert_eq!(client.list().await, ["s__echo"]);
    let unknown = client.request("tools/call", json!({"name": "down__anything"})).await;
    assert_eq!(data(&unknown)["error"], "server_unavailable", "{unknown}");
    assert!(client.call("echo").await["result"].is_object());
}

#[tokio::test(start_paused = true)]
async fn a_new_tool_is_listed_after_the_server_announces_it() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| {
        let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        vec![Step::Send(changed), Step::Result(call["id"].clone(), json!({"content": []}))]
    });
    let gate = gate(&allow("'*'"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    assert_eq!(client.list().await, ["s__echo"]);
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    server.set_tools(vec![tool("echo"), tool("fresh")]);
    client.call("echo").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(client.notifications("notifications/tools/list_changed").len(), 1);
    assert_eq!(client.list().await, ["s__echo", "s__fresh"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_changes_while_another_server_lists_is_announced_after_the_response() {
    let (server, slow) = (Server::legacy(&["echo"]), Server::legacy(&["late"]));
    let config = "servers: {s: {command: x}, slow: {command: x}}\nagents: {dev: {allow: {servers: ['*']}}}\n";
    let gate = gate(config, &server).server("slow", &slow).start();
    let client = gate.client(Kind::StdioLegacy).await;
    assert_eq!(client.list().await, ["s__echo", "slow__late"]);
    // The lists are fetched again for a listing after a few seconds.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let (old, new) =
        (json!({"tools": [tool("echo")]}), json!({"tools": [tool("echo"), tool("fresh")]}));
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    let asked = AtomicBool::new(false);
    server.on("tools/list", move |list| match asked.swap(true, Ordering::Relaxed) {
        false => vec![Step::Result(list["id"].clone(), old.clone()), Step::Send(changed.clone())],
        true => vec![Step::Result(list["id"].clone(), new.clone())],
    });
    let same = json!({"tools": [tool("late")]});
    slow.on("tools/list", move |list| {
        vec![Step::Wait(Duration::from_secs(2)), Step::Result(list["id"].clone(), same.clone())]
    });
    assert_eq!(client.list().await, ["s__echo", "slow__late"]);
    let announced = || client.notifications("notifications/tools/list_changed").len();
    let before = announced();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(announced(), before + 1, "the client has the old list");
    assert_eq!(client.list().await, ["s__echo", "s__fresh", "slow__late"]);
}

#[tokio::test(start_paused = true)]
async fn a_modern_list_is_cached_for_its_ttl() {
    let server = Server::modern(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::HttpModern).await;
    for _ in 0..5 {
        client.list().await;
        client.call("echo").await;
    }
    assert_eq!(server.received("tools/list").len(), 1);
    tokio::time::sleep(Duration::from_secs(61)).await;
    client.list().await;
    assert_eq!(server.received("tools/list").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_legacy_list_is_fetched_again_for_a_listing_after_a_few_seconds() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.list().await;
    client.list().await;
    assert_eq!(server.received("tools/list").len(), 1);
    tokio::time::sleep(Duration::from_secs(4)).await;
    client.list().await;
    assert_eq!(server.received("tools/list").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cursor_is_rejected_because_there_is_one_page() {
    let server = Server::both(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    for kind in Kind::ALL {
        let answer = gate.client(kind).await.request("tools/list", json!({"cursor": "x"})).await;
        assert_eq!(answer["error"]["code"], -32602, "{kind:?}: {answer}");
    }
}
