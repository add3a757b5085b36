//! Shadow rules: evaluated and recorded on every call and listing, never enforced, never visible to agents.

use serde_json::{Value, json};

use super::kit::*;

const SERVERS: &str = "servers: {s: {command: x}}\n";

/// A configuration with these entries of `allow.tools.s` and `deny.tools.s`.
fn rules(allow: &str, deny: &str) -> String {
    format!(
        "{SERVERS}agents: {{dev: {{allow: {{servers: [s], tools: {{s: [{allow}]}}}}, \
         deny: {{tools: {{s: [{deny}]}}}}}}}}\n"
    )
}

/// All responses that a client gets, without what differs in each run.
async fn responses(gate: &Gate, kind: Kind) -> Vec<String> {
    let client = gate.client(kind).await;
    let mut all = vec![client.request("tools/list", json!({})).await];
    for name in ["echo", "drop", "missing_one"] {
        all.push(client.call(name).await);
    }
    let plain = |answer: Value| {
        let decision = data(&answer)["decision_id"].as_str().unwrap_or("no decision").to_string();
        answer.to_string().replace(&decision, "DECISION")
    };
    all.into_iter().map(plain).collect()
}

#[tokio::test(start_paused = true)]
async fn a_shadow_entry_is_never_visible() {
    for kind in Kind::ALL {
        let all = |config: &str| {
            let gate = gate(config, &Server::both(&["echo", "drop"])).start();
            async move { responses(&gate, kind).await }
        };
        let plain = all(&rules("echo, drop", "")).await;
        let denying = rules("echo, drop", "{tool: drop, shadow: true}");
        assert_eq!(all(&denying).await, plain, "{kind:?}");
        let plain = all(&rules("echo", "")).await;
        let allowing = rules("echo, {tool: drop, shadow: true}", "");
        assert_eq!(all(&allowing).await, plain, "{kind:?}");
        let conditional = rules("echo", "{tool: '*', shadow: true, when: 'args.say == \"hi\"'}");
        assert_eq!(all(&conditional).await, plain, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_shadow_entry_would_deny_is_recorded() {
    let server = Server::legacy(&["echo", "drop"]);
    let deny =
        "{tool: drop, shadow: true}, other, {tool: 'e*', shadow: true, when: 'args.say != \"hi\"'}";
    let gate = gate(&rules("echo, drop", deny), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.list().await;
    assert!(client.call("drop").await["result"].is_object());
    assert!(client.call("echo").await["result"].is_object());
    assert!(client.call_with("echo", json!({"say": "no"})).await["result"].is_object());
    assert_eq!(server.received("tools/call").len(), 3);
    let intents = gate.records_of("intent").await;
    let would = |at: usize| &intents[at]["would"];
    assert_eq!(intents[0]["verdict"], "allow");
    assert_eq!(would(0)["verdict"], "deny");
    assert_eq!(would(0)["step"], "1-exact-deny");
    assert_eq!(would(0)["rule"], "agents.dev.deny.tools.s[0]");
    assert_eq!(would(0)["layer"], 0);
    assert!(would(1).is_null(), "{}", intents[1]);
    // The entry between them is enforced, and counts in the path.
    assert_eq!(would(2)["rule"], "agents.dev.deny.tools.s[2]");
    let list = gate.record("list").await;
    assert_eq!(list["servers"]["s"]["would"], json!({"hide": 1, "show": 0}), "{list}");
    assert_eq!(list["names"]["s"]["would_hide"], json!(["drop"]), "{list}");
    let totals = gate.gateway().active().shadowed.totals();
    assert_eq!(totals, [("deny", 2), ("ask", 0), ("allow", 0)]);
}

#[tokio::test(start_paused = true)]
async fn what_a_shadow_entry_would_allow_is_recorded() {
    let server = Server::legacy(&["echo", "drop"]);
    let gate = gate(&rules("echo, {tool: drop, shadow: true}", ""), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.list().await;
    assert!(client.call("drop").await["error"].is_object());
    let refusal = gate.record("refusal").await;
    assert_eq!(refusal["verdict"], "deny");
    assert_eq!(refusal["would"]["verdict"], "allow", "{refusal}");
    assert_eq!(refusal["would"]["rule"], "agents.dev.allow.tools.s[1]");
    let list = gate.record("list").await;
    assert_eq!(list["names"]["s"]["would_show"], json!(["drop"]), "{list}");
    assert!(server.received("tools/call").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_list_of_shadow_entries_counts_as_not_written() {
    let server = Server::legacy(&["echo", "drop"]);
    let gate = gate(&rules("{tool: echo, shadow: true}", ""), &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    assert_eq!(client.list().await, ["s__echo", "s__drop"]);
    assert!(client.call("drop").await["result"].is_object());
    let intent = gate.record("intent").await;
    assert_eq!(intent["step"], "5-implicit-grant");
    assert_eq!(intent["would"]["step"], "6-default-deny");
}

#[tokio::test(start_paused = true)]
async fn counts_start_again_with_other_rules() {
    let server = Server::legacy(&["echo"]);
    let config = rules("echo", "{tool: echo, shadow: true}");
    let gate = gate(&config, &server).start();
    let client = gate.client(Kind::StdioLegacy).await;
    client.call("echo").await;
    let denied = || gate.gateway().active().shadowed.totals()[0].1;
    assert_eq!(denied(), 1);
    gate.reload(&config);
    assert_eq!(denied(), 1);
    gate.reload(&rules("echo", "{tool: 'e*', shadow: true}"));
    assert_eq!(denied(), 0);
}
