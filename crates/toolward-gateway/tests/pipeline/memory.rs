//! The memory that is held for clients.

use std::time::Duration;

use serde_json::json;

use super::kit::*;

/// Memory for a request and one result, but not for two: 32 KiB are reserved for each.
const SMALL: usize = 60 << 10;

#[tokio::test(start_paused = true)]
async fn a_call_without_room_for_its_result_is_not_forwarded() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| {
        vec![Step::Hold, Step::Result(call["id"].clone(), json!({"content": []}))]
    });
    let gate = gate(&allow("echo"), &server).budget(SMALL).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let first = client.begin_call("echo", json!({}));
    server.arrival("tools/call").await;
    let refused = client.call("echo").await;
    assert_eq!(data(&refused)["error"], "overloaded", "{refused}");
    assert_eq!(server.received("tools/call").len(), 1);
    assert_eq!(gate.records_of("intent").await.len(), 1);
    server.release();
    assert!(first.answer().await["result"].is_object());
    assert!(client.call("echo").await["result"].is_object(), "there is room again");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_held_after_a_call_however_it_ends() {
    // A session over HTTP keeps responses for clients that resume their streams.
    for kind in [Kind::StdioLegacy, Kind::StdioModern, Kind::HttpModern] {
        let server = Server::both(&["echo", "dies", "hangs", "large", "left"]);
        server.on("tools/call", |call| {
            let text = "x".repeat(200_000);
            let large = json!({"content": [{"type": "text", "text": text}]});
            match call["params"]["name"].as_str().unwrap() {
                "dies" => vec![Step::Wait(Duration::from_secs(20)), Step::Close],
                "hangs" | "left" => vec![],
                "large" => vec![Step::Result(call["id"].clone(), large)],
                _ => vec![Step::Result(call["id"].clone(), json!({"content": []}))],
            }
        });
        let gate = gate(&config("timeout: 30s", "echo, dies, hangs, large, left"), &server).start();
        let client = gate.client(kind).await;
        for tool in ["echo", "hidden", "large", "hangs", "dies"] {
            client.call(tool).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(gate.gateway().context.budget.held(), 0, "{kind:?} {tool}");
        }
        let call = client.begin_call("left", json!({}));
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.cancel(call).await;
        assert_eq!(gate.gateway().context.budget.held(), 0, "{kind:?} cancelled");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_waits_for_room_and_is_not_lost() {
    let server = Server::modern(&["echo"]);
    server.on("tools/call", |call| {
        let content = json!([{"type": "text", "text": "x".repeat(300_000)}]);
        let result = json!({"content": content, "resultType": "complete"});
        vec![Step::Result(call["id"].clone(), result)]
    });
    let gate = gate(&allow("echo"), &server).budget(1 << 20).start();
    let client = gate.client(Kind::StdioModern).await;
    let calls: Vec<_> = (0..4).map(|_| client.begin_call("echo", json!({}))).collect();
    for call in calls {
        assert_eq!(text(&call.answer().await).len(), 300_000);
    }
    assert_eq!(gate.outcomes().await, vec!["ok"; 4]);
}

/// Streamed responses of a session are kept for a replay: at most 1 MiB of them.
#[tokio::test(start_paused = true)]
async fn a_session_over_http_holds_its_state_and_the_newest_streamed_responses() {
    const KEPT: usize = 1 << 20;
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| {
        let size = call["params"]["arguments"]["size"].as_u64().unwrap();
        let content = json!([{"type": "text", "text": "x".repeat(size as usize)}]);
        // A response that takes this long is a stream.
        let wait = Step::Wait(Duration::from_secs(3));
        vec![wait, Step::Result(call["id"].clone(), json!({"content": content}))]
    });
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::HttpLegacy).await;
    let held = || gate.gateway().context.budget.held();
    let of_session = held();
    assert!(of_session < 4 << 10, "{of_session}");
    let mut sent = 0;
    // Less than the memory that is reserved for every result, more than that, and more than a read.
    for size in [10, 50_000, 200_000] {
        client.call_with("echo", json!({"size": size})).await;
        sent += size;
        let kept = held() - of_session;
        assert!((sent..sent + 1000).contains(&kept), "{kept} bytes for {sent}");
    }
    for _ in 0..10 {
        client.call_with("echo", json!({"size": 300_000})).await;
        assert!(held() <= of_session + KEPT, "{}", held());
    }
    assert!(held() > of_session + 900_000, "{}", held());
    // Too large for a replay.
    let before = held();
    client.call_with("echo", json!({"size": 2 * KEPT})).await;
    assert!(held() <= before, "{}", held());
}
