//! Calls that the policy denies, and callers without a credential.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::kit::*;

/// A response without the parts that must differ: the name and the decision id.
fn anonymous(answer: &Value, name: &str) -> String {
    let decision = data(answer)["decision_id"].as_str().unwrap_or_default();
    let id = format!("\"id\":{}", answer["id"]);
    answer.to_string().replace(name, "NAME").replace(decision, "DECISION").replace(&id, "ID")
}

#[tokio::test(start_paused = true)]
async fn a_hidden_tool_and_a_nonexistent_one_get_the_same_bytes() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo", "secret"]);
        let gate = gate(&allow("echo"), &server).start();
        let client = gate.client(kind).await;
        let hidden = anonymous(&client.call("secret").await, "secret");
        let missing = anonymous(&client.call("nobody").await, "nobody");
        assert_eq!(hidden, missing, "{kind:?}");
        assert!(server.received("tools/call").is_empty(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hidden_server_and_a_nonexistent_one_get_the_same_bytes() {
    let (server, other) = (Server::legacy(&["echo"]), Server::legacy(&["echo"]));
    let config = allow("echo").replace("servers: {", "servers: {other: {command: x}, ");
    let gate = gate(&config, &server).server("other", &other).start();
    let client = gate.client(Kind::HttpModern).await;
    let call = async |name: &str| {
        let answer = client.request("tools/call", json!({"name": format!("{name}__echo")})).await;
        anonymous(&answer, name)
    };
    assert_eq!(call("other").await, call("noone").await);
    assert_eq!(other.connections(), 0, "it is not even started");
}

#[tokio::test(start_paused = true)]
async fn the_log_distinguishes_a_hidden_tool_from_a_nonexistent_one() {
    let server = Server::legacy(&["echo", "secret"]);
    let gate = gate(&allow("echo"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.call("secret").await;
    client.call("nobody").await;
    let refusals = gate.records_of("refusal").await;
    assert_eq!(refusals.len(), 2);
    assert_eq!(refusals[0]["exposed_name"], "s__secret");
    assert!(refusals.iter().all(|one| one["listed"] == false && one["verdict"] == "deny"));
    assert_ne!(refusals[0]["reason"], refusals[1]["reason"], "{refusals:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_has_the_id_of_its_record() {
    for kind in Kind::ALL {
        let server = Server::both(&["echo", "secret"]);
        let gate = gate(&allow("echo"), &server).start();
        let answer = gate.client(kind).await.call("secret").await;
        let record = gate.record("refusal").await;
        assert_eq!(data(&answer)["decision_id"], record["id"], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_action_that_is_not_allowed_is_refused_in_a_result() {
    let server = Server::legacy(&[]);
    let what = json!({"type": "string", "enum": ["show", "drop"]});
    let schema = json!({"type": "object", "properties": {"what": what}});
    server.set_tools(vec![json!({"name": "board", "inputSchema": schema})]);
    let gate = gate(&allow("board.show"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let answer = client.call_with("board", json!({"what": "drop"})).await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(text(&answer).starts_with("s__board.drop is not permitted"), "{answer}");
    assert!(
        client.call_with("board", json!({"what": "show"})).await["result"]["isError"].is_null()
    );
    assert_eq!(server.received("tools/call").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_false_condition_refuses_and_a_true_one_allows() {
    let server = Server::legacy(&["write"]);
    let rule = r#"{tool: write, when: 'args.path.startsWith("drafts/")'}"#;
    let gate = gate(&allow(rule), &server).start();
    let client = gate.client(Kind::StdioModern).await;
    let refused = client.call_with("write", json!({"path": "etc/passwd"})).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    client.call_with("write", json!({"path": "drafts/a"})).await;
    let calls = server.received("tools/call");
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0]["params"]["arguments"]["path"], "drafts/a");
}

#[tokio::test(start_paused = true)]
async fn a_deny_wins_over_an_allow() {
    let server = Server::legacy(&["drop_all", "echo"]);
    let config = allow("'*'").replace("allow: ", "deny: {tools: {'*': ['drop_*']}}, allow: ");
    let gate = gate(&config, &server).start();
    let client = gate.client(Kind::HttpLegacy).await;
    assert_eq!(client.list().await, ["s__echo"]);
    assert_eq!(client.call("drop_all").await["error"]["code"], -32602);
    assert!(server.received("tools/call").is_empty());
}

#[tokio::test(start_paused = true)]
async fn agents_get_their_own_decisions() {
    let server = Server::modern(&["echo"]);
    let config = allow("echo") + "  # other agents have their own rules\n";
    let config = config.replace("agents: {", "agents: {none: {allow: {servers: []}}, ");
    let gate = gate(&config, &server).start();
    let allowed = gate.client_of(Kind::HttpModern, AGENT).await.call("echo").await;
    let denied = gate.client_of(Kind::HttpModern, "none").await.call("echo").await;
    assert!(allowed["result"].is_object() && denied["error"].is_object());
    assert_eq!(gate.record("intent").await["agent"], AGENT);
    assert_eq!(gate.record("refusal").await["agent"], "none");
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_a_valid_token_is_rejected_before_its_body_is_sent() {
    let server = Server::modern(&["echo"]);
    let gate = gate(&allow("echo"), &server).start();
    let stranger = gate.client_of(Kind::HttpModern, "stranger").await;
    let reply = stranger.send_head("tools/call", json!({"name": "s__echo"})).await.finish().await;
    assert_eq!(reply.status, 401);
    assert_eq!(server.connections(), 0);
    assert!(gate.records_of("refusal").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn many_refused_calls_are_answered_later_and_not_otherwise() {
    let server = Server::legacy(&["echo", "secret"]);
    let gate = gate(&(allow("echo") + "limits: {refused: 1/min}\n"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let first = anonymous(&client.call("secret").await, "secret");
    let begun = Instant::now();
    let second = anonymous(&client.call("secret").await, "secret");
    assert_eq!(first, second);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    let begun = Instant::now();
    client.call("echo").await;
    assert!(begun.elapsed() < Duration::from_secs(1), "allowed calls are not delayed");
}
