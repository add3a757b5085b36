//! Call timeouts, in paused time.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::kit::*;

/// Reports progress in an interval of seconds, and then responds.
fn steps(call: &Value, count: u64, every: u64) -> Vec<Step> {
    let token = &call["params"]["_meta"]["progressToken"];
    let mut steps = Vec::new();
    for progress in 0..count {
        let params = json!({"progressToken": token, "progress": progress});
        let note = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        steps.extend([Step::Wait(Duration::from_secs(every)), Step::Send(note)]);
    }
    steps.push(Step::Result(call["id"].clone(), json!({"content": []})));
    steps
}

/// A server that never responds.
fn silent() -> Server {
    let server = Server::both(&["echo", "slow"]);
    server.on("tools/call", |_| vec![]);
    server
}

/// The response to a call, and the seconds that it took.
async fn timed(client: &Client, tool: &str) -> (Value, u64) {
    client.list().await;
    let begun = Instant::now();
    let answer = client.begin_call_with_progress(tool).answer().await;
    (answer, begun.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_times_out_and_is_cancelled_at_the_server() {
    for kind in Kind::ALL {
        let server = silent();
        let gate = gate(&config("timeout: 5s", "echo"), &server).start();
        let (answer, took) = timed(&gate.client(kind).await, "echo").await;
        assert_eq!(data(&answer)["error"], "server_timeout", "{kind:?}: {answer}");
        assert_eq!(took, 5, "{kind:?}");
        assert_eq!(gate.outcomes().await, ["timed-out"], "{kind:?}");
        let call = &server.received("tools/call")[0];
        let cancelled = server.arrival("notifications/cancelled").await;
        assert_eq!(cancelled["params"]["requestId"], call["id"], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_times_out_after_a_minute_unless_it_is_configured() {
    let server = silent();
    let gate = gate(&allow("echo"), &server).start();
    let (answer, took) = timed(&gate.client(Kind::StdioLegacy).await, "echo").await;
    assert_eq!((&data(&answer)["error"], took), (&json!("server_timeout"), 60));
}

#[tokio::test(start_paused = true)]
async fn tools_have_timeouts_of_their_own() {
    let server = silent();
    let config = config("timeout: {slow: 1m, '*': 5s}", "echo, slow");
    let gate = gate(&config, &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    assert_eq!(timed(&client, "echo").await.1, 5);
    assert_eq!(timed(&client, "slow").await.1, 60);
}

#[tokio::test(start_paused = true)]
async fn progress_restarts_the_timeout() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        server.on("tools/call", |call| steps(call, 10, 4));
        let gate = gate(&config("timeout: 5s", "echo"), &server).start();
        let client = gate.client(kind).await;
        let (answer, took) = timed(&client, "echo").await;
        assert!(answer["result"].is_object(), "{kind:?}: {answer}");
        assert_eq!((took, client.notifications("notifications/progress").len()), (40, 10));
    }
}

#[tokio::test(start_paused = true)]
async fn progress_does_not_extend_a_call_beyond_its_longest_time() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo"]);
        server.on("tools/call", |call| steps(call, 100, 4));
        let gate = gate(&config("timeout: 5s, max_timeout: 30s", "echo"), &server).start();
        let (answer, took) = timed(&gate.client(kind).await, "echo").await;
        assert_eq!((&data(&answer)["error"], took), (&json!("server_timeout"), 30), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn progress_with_an_unknown_token_extends_nothing() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| {
        let mut call = call.clone();
        call["params"]["_meta"]["progressToken"] = json!(123_456_789);
        steps(&call, 10, 4)
    });
    let gate = gate(&config("timeout: 5s", "echo"), &server).start();
    let (answer, took) = timed(&gate.client(Kind::StdioLegacy).await, "echo").await;
    assert_eq!((&data(&answer)["error"], took), (&json!("server_timeout"), 5));
}

#[tokio::test(start_paused = true)]
async fn a_response_after_the_timeout_is_discarded() {
    let server = Server::legacy(&["echo"]);
    server.on("tools/call", |call| {
        let result =
            json!({"content": [{"type": "text", "text": call["params"]["arguments"]["say"]}]});
        let late = call["params"]["arguments"]["say"] == "late";
        let wait = Duration::from_secs(if late { 6 } else { 3 });
        vec![Step::Wait(wait), Step::Result(call["id"].clone(), result)]
    });
    let gate = gate(&config("timeout: 5s", "echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let late = client.call_with("echo", json!({"say": "late"})).await;
    assert_eq!(data(&late)["error"], "server_timeout");
    // The late response arrives while this call waits for its own.
    assert_eq!(text(&client.call("echo").await), "hi");
    assert_eq!(gate.outcomes().await, ["timed-out", "ok"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_start_does_not_shorten_a_call() {
    let server = Server::legacy(&["echo"]);
    server.on("initialize", |call| {
        let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "slow", "version": "1"}});
        vec![Step::Wait(Duration::from_secs(10)), Step::Result(call["id"].clone(), result)]
    });
    server.on("tools/call", |call| steps(call, 1, 4));
    let gate = gate(&config("timeout: 5s", "echo"), &server).start();
    let answer = gate.client(Kind::StdioLegacy).await.call("echo").await;
    assert!(answer["result"].is_object(), "{answer}");
}
