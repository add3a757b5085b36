//! Subscriptions to resources and to changes of lists.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{Client, Gate, Kind, Server, gate, within_an_hour};

const UPDATED: &str = "notifications/resources/updated";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

fn whole(more: &str) -> String {
    format!(
        "servers: {{s: {{command: x}}}}\nagents: {{dev: {{allow: {{servers: [s]}}, {more}}}}}\n"
    )
}

fn servers() -> [Server; 2] {
    [Server::legacy(&["echo"]), Server::modern(&["echo"])].map(|server| {
        server.set_resources(&["dir:a", "dir:b", "dir:secret"]);
        server
    })
}

fn update(uri: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": uri}})
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    within_an_hour(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// The URIs that a server was asked to report, at the moment.
fn subscribed(server: &Server) -> Vec<Value> {
    match server.received("subscriptions/listen").last() {
        Some(listen) => {
            let uris = &listen["params"]["notifications"]["resourceSubscriptions"];
            uris.as_array().cloned().unwrap_or_default()
        }
        None => {
            let all = server.received("resources/subscribe");
            all.iter().map(|one| one["params"]["uri"].clone()).collect()
        }
    }
}

/// A client that listens to these resources, once it is acknowledged.
async fn listening(gate: &Gate, kind: Kind, uris: &[&str]) -> Client {
    let client = gate.client(kind).await;
    if kind.is_modern() {
        let filter = json!({"notifications": {"resourceSubscriptions": uris}});
        drop(client.begin("subscriptions/listen", filter));
        if kind == Kind::StdioModern {
            until("the acknowledgement", || !client.notifications(ACKNOWLEDGED).is_empty()).await;
        }
    } else {
        for uri in uris {
            let answer = client.request("resources/subscribe", json!({ "uri": uri })).await;
            assert_eq!(answer["result"], json!({}), "{answer}");
        }
    }
    client
}

#[tokio::test(start_paused = true)]
async fn updates_reach_the_subscribers_of_a_resource_and_of_what_contains_it() {
    for server in servers() {
        for kind in [Kind::StdioLegacy, Kind::StdioModern] {
            let gate = gate(&whole(""), &server).start();
            let client = listening(&gate, kind, &["dir:a"]).await;
            until("the subscription", || subscribed(&server).contains(&json!("dir:a"))).await;
            for uri in ["dir:b", "dir:ab", "dir:a/1", "dir:a"] {
                server.tell(update(uri));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            until("the updates", || client.notifications(UPDATED).len() == 2).await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            let updates = client.notifications(UPDATED);
            let uris: Vec<&Value> = updates.iter().map(|one| &one["params"]["uri"]).collect();
            assert_eq!(uris, ["dir:a/1", "dir:a"], "{kind:?}");
            let subscription =
                &updates[0]["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
            assert_eq!(subscription.is_number(), kind.is_modern(), "{updates:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_resource_is_missing_from_the_acknowledgement() {
    for server in servers() {
        let gate = gate(&whole("deny: {resources: {s: [\"dir:secret*\"]}}"), &server).start();
        let client =
            listening(&gate, Kind::StdioModern, &["dir:a", "dir:secret", "dir:none"]).await;
        let acknowledged = &client.notifications(ACKNOWLEDGED)[0]["params"]["notifications"];
        let uris = acknowledged["resourceSubscriptions"].as_array().unwrap();
        assert!(uris.contains(&json!("dir:a")) && !uris.contains(&json!("dir:secret")), "{uris:?}");
        until("the subscription", || !subscribed(&server).is_empty()).await;
        assert!(!subscribed(&server).contains(&json!("dir:secret")));

        let client = gate.client(Kind::StdioLegacy).await;
        let mut refusals = Vec::new();
        for uri in ["dir:secret", "dir:secret2"] {
            let mut answer = client.request("resources/subscribe", json!({ "uri": uri })).await;
            assert_eq!(answer["error"]["code"], -32002, "{answer}");
            answer["error"]["data"].take();
            answer["id"].take();
            refusals.push(answer);
        }
        assert_eq!(refusals[0], refusals[1]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_is_decided_again_when_it_arrives() {
    for server in servers() {
        for kind in [Kind::StdioLegacy, Kind::StdioModern] {
            let gate = gate(&whole(""), &server).start();
            let client = listening(&gate, kind, &["dir:a"]).await;
            until("the subscription", || subscribed(&server).contains(&json!("dir:a"))).await;
            gate.reload(&whole("deny: {resources: {s: [\"dir:a/secret\"]}}"));
            for uri in ["dir:a/secret", "dir:a/open"] {
                server.tell(update(uri));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            until("the update", || !client.notifications(UPDATED).is_empty()).await;
            let updates = client.notifications(UPDATED);
            assert_eq!(updates.len(), 1, "{updates:?}");
            assert_eq!(updates[0]["params"]["uri"], "dir:a/open");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_arrives_after_unsubscribing() {
    let server = Server::legacy(&["echo"]);
    server.set_resources(&["dir:a", "dir:b"]);
    let gate = gate(&whole(""), &server).start();
    let client = listening(&gate, Kind::StdioLegacy, &["dir:a", "dir:b"]).await;
    server.arrivals("resources/subscribe", 2).await;
    client.request("resources/unsubscribe", json!({"uri": "dir:a"})).await;
    let ended = server.arrival("resources/unsubscribe").await;
    assert_eq!(ended["params"]["uri"], "dir:a");
    for uri in ["dir:a", "dir:b"] {
        server.tell(update(uri));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    until("the update", || !client.notifications(UPDATED).is_empty()).await;
    assert_eq!(client.notifications(UPDATED)[0]["params"]["uri"], "dir:b");
}

#[tokio::test(start_paused = true)]
async fn two_sessions_share_nothing() {
    let server = Server::legacy(&["echo"]);
    server.set_resources(&["dir:a", "dir:b"]);
    let gate = gate(&whole(""), &server).start();
    let [one, other] = [
        listening(&gate, Kind::StdioLegacy, &["dir:a"]).await,
        listening(&gate, Kind::StdioLegacy, &["dir:b"]).await,
    ];
    server.arrivals("resources/subscribe", 2).await;
    server.tell(update("dir:a"));
    until("the update", || !one.notifications(UPDATED).is_empty()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(other.notifications(UPDATED).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_session_has_a_limited_number_of_subscriptions() {
    let server = Server::legacy(&["echo"]);
    server.set_resources(&["dir:a"]).set_templates(&["dir:{name}"]);
    let gate = gate(&whole(""), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    for number in 0..2000 {
        let uri = json!({"uri": format!("dir:{number}")});
        assert!(client.request("resources/subscribe", uri).await["result"].is_object());
    }
    let over = client.request("resources/subscribe", json!({"uri": "dir:over"})).await;
    assert_eq!(over["error"]["code"], -32602, "{over}");
    // Each update reaches its one subscriber.
    server.arrivals("resources/subscribe", 2000).await;
    server.tell(update("dir:1999"));
    until("the update", || client.notifications(UPDATED).len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_server_gets_its_subscriptions_again() {
    let server = Server::legacy(&["echo"]);
    server.set_resources(&["dir:a"]);
    let gate = gate(&whole(""), &server).start();
    let client = listening(&gate, Kind::StdioLegacy, &["dir:a"]).await;
    server.arrivals("resources/subscribe", 1).await;
    client.list().await;
    // It works for a while, then exits.
    tokio::time::sleep(Duration::from_secs(60)).await;
    server.on("tools/call", |_| vec![crate::kit::Step::Close]);
    client.call("echo").await;
    server.arrivals("resources/subscribe", 2).await;
    server.tell(update("dir:a"));
    until("the update", || !client.notifications(UPDATED).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_hears_of_changed_lists() {
    for server in servers() {
        server.set_prompts(&["plan"]);
        let gate = gate(&whole(""), &server).start();
        let client = gate.client(Kind::StdioModern).await;
        client.list().await;
        client.entries("prompts/list").await;
        let filter =
            json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
        let stream = client.begin("subscriptions/listen", filter.clone());
        until("the acknowledgement", || !client.notifications(ACKNOWLEDGED).is_empty()).await;
        let acknowledged = &client.notifications(ACKNOWLEDGED)[0]["params"]["notifications"];
        assert_eq!(*acknowledged, filter["notifications"]);
        let changed = "notifications/prompts/list_changed";
        gate.reload(&whole("deny: {prompts: {s: [plan]}}"));
        until("the announcement", || !client.notifications(changed).is_empty()).await;
        assert!(client.notifications("notifications/tools/list_changed").is_empty());
        let meta = &client.notifications(changed)[0]["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/subscriptionId"], stream.id);
        client.cancel(stream).await;
        gate.reload(&whole(""));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(client.notifications(changed).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn subscriptions_count_against_the_memory_of_their_agent() {
    let server = Server::legacy(&["echo"]);
    server.set_resources(&["dir:a"]).set_templates(&["dir:{name}"]);
    let gate = gate(&whole(""), &server).budget(4 << 20).start();
    let client = gate.client(Kind::StdioModern).await;
    let uris: Vec<String> = (0..200).map(|at| format!("dir:{at}{}", "x".repeat(4000))).collect();
    let filter = json!({"notifications": {"resourceSubscriptions": uris}});
    let stream = client.begin("subscriptions/listen", filter);
    until("the acknowledgement", || !client.notifications(ACKNOWLEDGED).is_empty()).await;
    let acknowledged = &client.notifications(ACKNOWLEDGED)[0]["params"]["notifications"];
    let count = acknowledged["resourceSubscriptions"].as_array().unwrap().len();
    assert!((1..200).contains(&count), "{count}");
    let held = || gate.gateway().context.budget.held();
    assert!(held() > count * 32_000, "{count} {}", held());
    client.cancel(stream).await;
    until("the memory is released", || held() < 100_000).await;
}

#[tokio::test(start_paused = true)]
async fn another_spelling_of_a_uri_ends_its_subscription() {
    let server = Server::legacy(&["echo"]);
    server.set_resources(&["dir:a"]);
    let gate = gate(&whole(""), &server).start();
    let client = listening(&gate, Kind::StdioLegacy, &["dir:a"]).await;
    server.arrivals("resources/subscribe", 1).await;
    client.request("resources/unsubscribe", json!({"uri": "DIR:a"})).await;
    server.arrival("resources/unsubscribe").await;
}
