//! `scope` of entries: what a token without it may see, and how a call is refused that only lacks scopes.

use serde_json::{Value, json};

use crate::harness::*;
use crate::issuer::{Issuer, Key};
use crate::jwt::{AUDIENCE, gate_with, with};

const TOOLS: [&str; 3] = ["read", "write", "drop"];

/// An agent whose calls of `write` need one scope in one layer and another one in the other.
fn setup_with(issuer: &Issuer) -> Setup {
    let agents = json!({"dev": {
        "claims": {"sub": "dev"},
        "allow": {"servers": ["*"], "tools": {"s": [
            "read",
            {"tool": "write", "scope": "issues:write"},
            {"tool": "drop", "scope": "admin", "when": "args.sure == true"},
        ]}},
    }});
    gate_with(issuer, json!({}), agents)
        .stdio("s", "modern", names(&TOOLS))
        .set("allowed_tools", json!(["read", "drop", {"tool": "write", "scope": "org"}]))
}

fn call(agent: &Agent, tool: &str, arguments: Value) -> crate::wire::Reply {
    let params = json!({"name": format!("s__{tool}"), "arguments": arguments});
    agent.modern_reply(json!(1), "tools/call", params)
}

#[test]
fn a_call_that_only_lacks_scopes_is_403_and_names_all_of_them() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let gate = setup_with(&issuer).start();
    let token = |scope: &str| {
        issuer.key("p").sign(&issuer.claims(AUDIENCE, json!({"sub": "dev", "scope": scope})))
    };
    let poor = with(&gate, token("openid"));
    assert_eq!(poor.list(), ["s__read", "s__write", "s__drop"], "they stay listed");
    assert_eq!(call(&poor, "read", json!({})).status, 200);
    for agent in [&poor, &with(&gate, token("org"))] {
        let reply = call(agent, "write", json!({}));
        assert_eq!(reply.status, 403, "{reply:?}");
        let challenge = reply.header("www-authenticate").unwrap();
        assert!(challenge.starts_with("Bearer error=\"insufficient_scope\""), "{challenge}");
        assert!(challenge.contains("scope=\"issues:write org\""), "{challenge}");
        assert!(challenge.contains("resource_metadata=\"https://gate.example/"), "{challenge}");
        let answer: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(answer["error"]["data"]["error"], "insufficient_scope", "{answer}");
        assert_eq!(answer["error"]["data"]["scope"], "issues:write org");
    }
    let rich = with(&gate, token("org issues:write"));
    let reply = call(&rich, "write", json!({}));
    assert_eq!(reply.status, 200, "{reply:?}");
    // A call that also fails for another reason is an ordinary refusal.
    let reply = call(&poor, "drop", json!({"sure": false}));
    assert_eq!(reply.status, 200, "{reply:?}");
    let answer = reply.json();
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let reply = call(&poor, "drop", json!({"sure": true}));
    assert_eq!(reply.status, 403);
    assert!(reply.header("www-authenticate").unwrap().contains("scope=\"admin\""));
    let refusals = gate.records().into_iter().filter(|one| one["kind"] == "refusal");
    assert_eq!(refusals.count(), 4);
    assert_eq!(gate.calls("s").len(), 2, "nothing was forwarded that was refused");
}

#[test]
fn a_legacy_client_reads_the_same_in_a_result() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let gate = setup_with(&issuer).start();
    let claims = issuer.claims(AUDIENCE, json!({"sub": "dev", "scp": ["org"]}));
    let session = with(&gate, issuer.key("p").sign(&claims)).session();
    let answer = session.call("s__write", json!({}));
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let said = text(&answer);
    assert!(said.contains("it needs the scopes `issues:write`, `org`"), "{said}");
    let data = &answer["result"]["_meta"]["io.toolward/refusal"];
    assert_eq!(
        (&data["error"], &data["scope"]),
        (&json!("insufficient_scope"), &json!("issues:write org"))
    );
}

#[test]
fn a_caller_without_a_jwt_has_no_scopes() {
    let gate = setup()
        .stdio("s", "modern", names(&TOOLS))
        .agents(json!({"a": {"allow": {"servers": ["*"], "tools": {"s": [{"tool": "write", "scope": "w"}]}}}}))
        .start();
    let agent = gate.agent("a");
    assert_eq!(agent.list(), ["s__write"]);
    let reply = call(&agent, "write", json!({}));
    assert_eq!((reply.status, reply.header("www-authenticate")), (200, None));
    assert!(reply.json()["result"]["isError"] == true);
}
