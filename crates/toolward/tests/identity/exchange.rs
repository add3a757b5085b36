//! `exchange`: servers get tokens that are exchanged for the caller's JWT (RFC 8693).

use serde_json::{Value, json};
use toolward_testkit::authorization_server::{
    AuthorizationServer, Exchange, KnownClient, ProtectedServer, ProtectedSwitches, Switches,
};

use crate::harness::*;
use crate::jwt::{AUDIENCE, GATE, with};

/// An issuer of callers' JWTs, an authorization server that exchanges them, and the server behind it.
struct Servers {
    issuer: AuthorizationServer,
    tokens: AuthorizationServer,
    protected: ProtectedServer,
}

impl Servers {
    fn start(switches: Switches) -> Servers {
        let client =
            KnownClient { id: "gate".into(), secret: Some("s3cret".into()), redirect_uris: vec![] };
        let issuer = AuthorizationServer::start(Switches::default()).unwrap();
        let tokens = AuthorizationServer::start(Switches { clients: vec![client], ..switches });
        let tokens = tokens.unwrap();
        let audience = Some("tracker".into());
        let switches = ProtectedSwitches { audience, ..ProtectedSwitches::default() };
        let protected = ProtectedServer::start(&tokens, switches).unwrap();
        Servers { issuer, tokens, protected }
    }

    fn gate(&self) -> Gate {
        let exchange = json!({"token_url": format!("{}/token", self.tokens.issuer()),
            "client_id": "gate", "client_secret": "${SECRET}", "audience": "tracker",
            "scope": "issues"});
        setup()
            .server("w", json!({"url": self.protected.url(), "exchange": exchange}))
            .stdio("s", "legacy", names(&["t"]))
            .set("public_url", json!(GATE))
            .set("identity", json!({"jwt": {"issuer": self.issuer.issuer()}}))
            .set(
                "agents",
                json!({
                    "dev": {"claims": {"team": "x"}, "allow": {"servers": ["*"]}},
                    "robot": {"tokens": ["${ROBOT}"], "allow": {"servers": ["*"]}},
                }),
            )
            .env("SECRET", "s3cret")
            .env("ROBOT", "token-of-the-robot")
            .start()
    }

    fn jwt(&self, subject: &str) -> String {
        self.issuer.jwt(subject, AUDIENCE, &json!({"team": "x"}))
    }
}

/// The subject that the server got for the caller.
fn subject(answer: &Value) -> Value {
    let about: Value = serde_json::from_str(text(answer)).unwrap_or_else(|_| panic!("{answer}"));
    about["subject"].clone()
}

#[test]
fn each_caller_has_a_token_of_its_own_and_its_jwt_never_reaches_the_server() {
    let servers = Servers::start(Switches { exchange: Exchange::Supported, ..Switches::default() });
    let gate = servers.gate();
    let (alice, bob) = (servers.jwt("alice"), servers.jwt("bob"));
    let sessions = [("alice", &alice), ("bob", &bob)].map(|(name, jwt)| {
        let agent = with(&gate, jwt.clone());
        (name, agent.clone(), agent.session())
    });
    for _ in 0..3 {
        for (name, modern, legacy) in &sessions {
            assert_eq!(subject(&modern.call("w__whoami", json!({}))), *name);
            assert_eq!(subject(&legacy.call("w__whoami", json!({}))), *name);
        }
    }
    assert_eq!(servers.tokens.counts().exchanges, 2, "{}", servers.tokens.summary());
    // A renewed JWT belongs to the same holder.
    let renewed = with(&gate, servers.jwt("alice"));
    assert_eq!(subject(&renewed.call("w__whoami", json!({}))), "alice");
    assert_eq!(servers.tokens.counts().exchanges, 2);
    let form = servers.tokens.seen_at("/token")[0].form();
    assert_eq!(form["audience"], "tracker");
    assert_eq!(form["scope"], "issues");
    assert_eq!(form["subject_token_type"], "urn:ietf:params:oauth:token-type:access_token");
    assert!([&alice, &bob].contains(&&form["subject_token"]));
    let server = format!("{:?}", servers.protected.seen());
    assert!(!server.contains(&alice) && !server.contains(&bob), "the JWT went upstream");
    let said = gate.said.lock().unwrap().clone();
    let shown = format!("{said}{:?}", gate.records());
    for secret in servers.tokens.secrets().iter().chain([&alice, &bob, &"s3cret".to_string()]) {
        assert!(!shown.contains(secret.as_str()), "a secret is in the output or the audit log");
    }
}

#[test]
fn a_token_that_the_server_rejects_is_exchanged_again_with_the_newest_jwt() {
    let servers = Servers::start(Switches { exchange: Exchange::Supported, ..Switches::default() });
    let gate = servers.gate();
    let first = with(&gate, servers.jwt("alice"));
    assert_eq!(subject(&first.call("w__whoami", json!({}))), "alice");
    let newest = servers.jwt("alice");
    let second = with(&gate, newest.clone());
    servers.tokens.expire_access_tokens();
    assert_eq!(subject(&second.call("w__whoami", json!({}))), "alice");
    let requests = servers.tokens.seen_at("/token");
    assert_eq!(requests.len(), 2, "{}", servers.tokens.summary());
    assert_eq!(requests[1].form()["subject_token"], newest);
}

#[test]
fn without_a_token_the_server_is_not_asked() {
    let servers = Servers::start(Switches { exchange: Exchange::Refused, ..Switches::default() });
    let gate = servers.gate();
    for agent in [with(&gate, servers.jwt("alice")), with(&gate, "token-of-the-robot")] {
        assert_eq!(agent.list(), ["s__t"]);
        let answer = agent.call("w__whoami", json!({}));
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
    }
    assert!(servers.protected.seen().is_empty(), "it was asked without a token");
    assert_eq!(servers.tokens.counts().exchanges, 0);
}
