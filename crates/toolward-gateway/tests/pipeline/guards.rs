//! Rate limits and hooks in front of allowed calls.

use std::time::Duration;

use serde_json::json;

use super::kit::*;

fn limited(rate: &str) -> String {
    allow("echo, other") + &format!("limits: {{calls: {rate}}}\n")
}

#[tokio::test(start_paused = true)]
async fn a_call_beyond_the_rate_limit_is_refused_and_not_sent() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo", "other"]);
        let gate = gate(&limited("1/min"), &server).start();
        let client = gate.client(kind).await;
        client.call("echo").await;
        let refused = client.call("echo").await;
        assert_eq!(data(&refused)["error"], "limit_exceeded", "{kind:?}: {refused}");
        assert_eq!(server.received("tools/call").len(), 1, "{kind:?}");
        let record = gate.record("refusal").await;
        assert_eq!((&record["step"], &record["limit"]), (&json!("limit"), &json!("calls")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_refills_with_time() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&limited("1/min"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.call("echo").await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    let early = client.call("echo").await;
    let wait = data(&early)["retry_after_ms"].as_u64().unwrap();
    tokio::time::sleep(Duration::from_millis(wait)).await;
    assert!(client.call("echo").await["result"]["isError"].is_null());
    assert!((9_000..=10_000).contains(&wait), "{wait}");
}

#[tokio::test(start_paused = true)]
async fn a_denied_call_consumes_no_rate_limit() {
    let server = Server::legacy(&["echo", "secret"]);
    let gate = gate(&limited("1/h"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.call("secret").await;
    assert!(client.call("echo").await["result"]["isError"].is_null());
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_an_entry_counts_only_its_calls() {
    let server = Server::legacy(&["echo", "other"]);
    let gate = gate(&allow("{tool: echo, limit: 1/h}, other"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    for (tool, passes) in [("echo", true), ("other", true), ("echo", false), ("other", true)] {
        let answer = client.call(tool).await;
        assert_eq!(answer["result"]["isError"].is_null(), passes, "{tool}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn listings_have_a_rate_limit_of_their_own() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&(allow("echo") + "limits: {lists: 1/h}\n"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.list().await;
    let refused = client.request("tools/list", json!({})).await;
    assert_eq!(data(&refused)["error"], "limit_exceeded", "{refused}");
    assert!(client.call("echo").await["result"].is_object());
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_allows_lets_a_call_pass() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&allow("echo"), &server).hook("exit 0").start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.list().await;
    let frozen = freeze();
    let answer = client.begin_call("echo", json!({}));
    server.arrival("tools/call").await;
    drop(frozen);
    assert!(answer.answer().await["result"].is_object());
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_denies_keeps_a_call_from_its_server_and_gives_back_its_units() {
    let server = Server::legacy(&["echo"]);
    let script = r#"grep -q '"say":"bad"' && { echo '{"decision":"deny","message":"not this"}'; exit 1; }; exit 0"#;
    let gate = gate(&limited("1/h"), &server).hook(script).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.list().await;
    let frozen = freeze();
    let refused = client.begin_call("echo", json!({"say": "bad"})).unhurried().await;
    assert!(refused.to_string().contains("not this"), "{refused}");
    assert!(server.received("tools/call").is_empty());
    let allowed = client.begin_call("echo", json!({"say": "good"})).unhurried().await;
    drop(frozen);
    assert!(allowed["result"]["isError"].is_null(), "{allowed}");
    assert_eq!(gate.record("refusal").await["step"], "hook");
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_refuses_the_call() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&allow("echo"), &server).hook("exit 3").start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.list().await;
    let frozen = freeze();
    let refused = client.begin_call("echo", json!({})).unhurried().await;
    drop(frozen);
    assert_eq!(data(&refused)["error"], "hook_failed", "{refused}");
    assert!(server.received("tools/call").is_empty());
}
