//! Grants: what they cover, when they end, and when they are void.

use super::*;
use serde_json::json;

async fn pending(client: &Client, tool: &str, arguments: Value) -> Value {
    let answer = client.call_with(tool, arguments).await;
    assert_eq!(data(&answer)["error"], "approval_pending", "{answer}");
    answer
}

#[tokio::test(start_paused = true)]
async fn a_grant_for_the_tool_covers_all_its_calls_for_its_time() {
    let server = Server::legacy(&["echo", "other"]);
    let gate = gate(&allow("{tool: echo, ask: true}, {tool: other, ask: true}"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let call = client.begin_call("echo", json!({"n": 1}));
    let grant = gate.approve(&gate.ticket().await, Scope::Tool(HOUR)).await.unwrap();
    assert!(is_done(&call.answer().await));
    assert!(is_done(&client.call_with("echo", json!({"n": 2})).await));
    pending(&client, "other", json!({})).await;
    for intent in gate.records_of("intent").await {
        assert_eq!(intent["grant"], grant.id, "{intent}");
    }
    tokio::time::sleep(HOUR).await;
    pending(&client, "echo", json!({"n": 3})).await;
    assert_eq!(server.received("tools/call").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_grant_for_arguments_covers_calls_with_their_values() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&asks(), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let call = client.begin_call("echo", json!({"repo": "a", "n": 1}));
    let ticket = gate.ticket().await;
    let wrong = gate.approve(&ticket, Scope::Arguments(vec!["branch".into()], HOUR)).await;
    assert!(wrong.is_err(), "the call has no such argument");
    gate.approve(&ticket, Scope::Arguments(vec!["repo".into()], HOUR)).await.unwrap();
    assert!(is_done(&call.answer().await));
    assert!(is_done(&client.call_with("echo", json!({"n": 2, "repo": "a"})).await));
    pending(&client, "echo", json!({"repo": "b", "n": 1})).await;
    pending(&client, "echo", json!({"n": 1})).await;
    assert_eq!(server.received("tools/call").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn no_grant_is_longer_than_the_longest() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&(asks() + "approvals: {max_grant: 1h}\n"), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let _call = client.begin_call("echo", json!({}));
    let ticket = gate.ticket().await;
    let longer = HOUR + Duration::from_secs(1);
    assert!(matches!(gate.approve(&ticket, Scope::Tool(longer)).await, Err(Rejected::TooLong(_))));
    assert!(gate.approve(&ticket, Scope::Tool(HOUR)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_revoked_grant_covers_nothing() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&asks(), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let call = client.begin_call("echo", json!({}));
    let grant = gate.approve(&gate.ticket().await, Scope::Tool(HOUR)).await.unwrap();
    call.answer().await;
    let (context, active) = (&gate.gateway().context, gate.gateway().active());
    let revoked = approvals::revoke(context, &active, &grant.id, &operator()).await.unwrap();
    assert_eq!(revoked.map(|grant| grant.id), Some(grant.id.clone()));
    pending(&client, "echo", json!({})).await;
    let records = gate.records_of("approval").await;
    assert_eq!(records.last().unwrap()["decision"], "revoked");
    let again = approvals::revoke(context, &active, &grant.id, &operator()).await.unwrap();
    assert!(again.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_reload_that_changes_the_rule_voids_its_grants_for_good() {
    let changed = [
        allow("{tool: echo, ask: {approvers: [ops]}}, other"),
        allow("{tool: echo, ask: true, when: 'true'}, other"),
        allow("{tool: 'ech*', ask: true}, other"),
    ];
    for other in changed {
        let server = Server::legacy(&["echo"]);
        let gate = gate(&asks(), &server).start();
        let client = gate.client(Kind::StdioLegacy).await;
        let call = client.begin_call("echo", json!({}));
        gate.approve(&gate.ticket().await, Scope::Tool(HOUR)).await.unwrap();
        call.answer().await;
        gate.reload(&other);
        gate.reload(&asks());
        assert!(gate.grants().await.is_empty(), "{other}");
        pending(&client, "echo", json!({})).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reload_that_changes_other_rules_keeps_grants() {
    let server = Server::legacy(&["echo", "third"]);
    let gate = gate(&asks(), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let call = client.begin_call("echo", json!({}));
    gate.approve(&gate.ticket().await, Scope::Tool(HOUR)).await.unwrap();
    call.answer().await;
    gate.reload(&allow("third, {tool: echo, ask: true}, other"));
    assert!(is_done(&client.call("echo").await));
}

#[tokio::test(start_paused = true)]
async fn the_grants_of_a_removed_agent_are_void() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&asks(), &server).start();
    let client = gate.client(Kind::HttpLegacy).await;
    let call = client.begin_call("echo", json!({}));
    gate.approve(&gate.ticket().await, Scope::Tool(HOUR)).await.unwrap();
    call.answer().await;
    gate.reload("servers: {s: {command: x}}\nagents: {eve: {allow: {servers: [s]}}}\n");
    gate.reload(&asks());
    assert!(gate.grants().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_changed_definition_voids_grants_even_if_it_changes_back() {
    let server = Server::legacy(&["echo"]);
    let gate = gate(&asks(), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let call = client.begin_call("echo", json!({"say": "hi"}));
    gate.approve(&gate.ticket().await, Scope::Tool(HOUR)).await.unwrap();
    call.answer().await;
    let tool = |description: &str| json!({"name": "echo", "description": description, "inputSchema": {"type": "object"}});
    let before = client.request("tools/list", json!({})).await["result"]["tools"][0].clone();
    let change = async |to: Value, shown: &str| {
        server.set_tools(vec![to]);
        server.tell(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
        loop {
            let list = client.request("tools/list", json!({})).await;
            if list["result"]["tools"][0]["description"].as_str().unwrap_or("") == shown {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    change(tool("Also deletes everything."), "Also deletes everything.").await;
    pending(&client, "echo", json!({"say": "hi"})).await;
    let mut original = before.clone();
    original["name"] = json!("echo");
    change(original, before["description"].as_str().unwrap_or("")).await;
    pending(&client, "echo", json!({"say": "hi"})).await;
    assert_eq!(server.received("tools/call").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_grant_never_reaches_the_ask_of_another_entry() {
    let server = Server::legacy(&["echo"]);
    let entries = "{tool: echo, when: 'args.n < 10', ask: true}, {tool: echo, ask: {hold: 1s}}";
    let gate = gate(&allow(entries), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let call = client.begin_call("echo", json!({"n": 1}));
    gate.approve(&gate.ticket().await, Scope::Tool(HOUR)).await.unwrap();
    assert!(is_done(&call.answer().await));
    assert!(is_done(&client.call_with("echo", json!({"n": 2})).await));
    pending(&client, "echo", json!({"n": 50})).await;
}

#[tokio::test(start_paused = true)]
async fn an_approver_must_satisfy_every_layer_that_asks() {
    let server = Server::legacy(&["echo"]);
    let config = "servers: {s: {command: x}}\n\
        admins:\n  ops: {tokens: ['sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'], approve: ['s/*']}\n  \
        sec: {tokens: ['sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb'], approve: ['*']}\n  \
        out: {tokens: ['sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc'], approve: ['t/*']}\n\
        agents: {dev: {allow: {servers: [s], tools: {s: [{tool: echo, ask: {approvers: [ops, sec]}}]}}}}\n\
        allowed_tools: [{tool: echo, ask: {approvers: [sec]}}]\n";
    let gate = gate(config, &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    let call = client.begin_call("echo", json!({}));
    let ticket = gate.ticket().await;
    let admin = |name: &str| Approver { admin: Some(name.into()), channel: "admin-ui", uid: None };
    for wrong in [admin("ops"), admin("out"), admin("nobody"), operator()] {
        let rejected = gate.approve_as(&ticket, Scope::Call, &wrong).await;
        assert!(matches!(rejected, Err(Rejected::Forbidden)), "{wrong:?}");
    }
    assert!(server.received("tools/call").is_empty());
    gate.approve_as(&ticket, Scope::Call, &admin("sec")).await.unwrap();
    assert!(is_done(&call.answer().await));
    assert_eq!(gate.record("intent").await["approved_by"], "sec");
}
