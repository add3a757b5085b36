//! Claims in rules: different holders of the same agent have different permissions and separate
//! sessions.

use serde_json::{Value, json};

use crate::harness::*;
use crate::issuer::{Issuer, Key, now};
use crate::jwt::{AUDIENCE, begin, gate_with, turned_away, with};

fn gate(issuer: &Issuer, when: &str) -> Gate {
    gate_with(
        issuer,
        json!({"leeway": "0s"}),
        json!({"dev": {"claims": {"tenant": "t"}, "allow": {"servers": ["*"], "tools": {"s": [
            "t",
            {"tool": "more", "when": when},
        ]}}}}),
    )
    .start()
}

fn token(issuer: &Issuer, more: Value) -> String {
    let mut claims = issuer.claims(AUDIENCE, json!({"tenant": "t"}));
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    issuer.key("p").sign(&claims)
}

#[test]
fn conditions_read_claims_and_each_holder_sees_its_own_list() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let gate = gate(&issuer, r#""admin" in claims.groups"#);
    let anna = with(&gate, token(&issuer, json!({"sub": "anna", "groups": ["admin"]})));
    let ben = with(&gate, token(&issuer, json!({"sub": "ben", "groups": ["staff"]})));
    let cleo = with(&gate, token(&issuer, json!({"sub": "cleo"})));
    for _ in 0..2 {
        assert_eq!(anna.list(), ["s__t", "s__more"]);
        assert_eq!(ben.list(), ["s__t"]);
        assert_eq!(cleo.list(), ["s__t"], "a condition that has no answer allows nothing");
        assert_eq!(anna.session().list(), ["s__t", "s__more"]);
        assert_eq!(ben.session().list(), ["s__t"]);
    }
    assert_eq!(text(&anna.call("s__more", json!({}))), "did more");
    gate.refusal(&ben.call("s__more", json!({})));
    gate.refusal(&cleo.session().call("s__more", json!({})));
    // Rules cannot read claims that differ in every token.
    let other = self::gate(&issuer, "has(claims.jti) || has(claims.exp)");
    let with_id = token(&issuer, json!({"sub": "anna", "jti": "1"}));
    assert_eq!(with(&other, with_id).list(), ["s__t"]);
}

#[test]
fn a_session_is_one_holder_s_and_outlives_its_token() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let list = request(json!(1), "tools/list", json!({}));
    for when in ["true", r#""admin" in claims.groups"#] {
        let gate = gate(&issuer, when);
        let anna = json!({"sub": "anna", "groups": ["admin"], "jti": "1"});
        let session = with(&gate, token(&issuer, anna)).session();
        let ask = |claims: Value| {
            with(&gate, token(&issuer, claims)).post(&session.headers(), &list).status
        };
        let renewed = json!({"sub": "anna", "groups": ["admin"], "jti": "2", "exp": now() + 900});
        assert_eq!(ask(renewed), 200, "{when}");
        assert_eq!(ask(json!({"sub": "ben", "groups": ["admin"]})), 404, "{when}");
        assert_eq!(ask(json!({"groups": ["admin"]})), 404, "{when}");
        // If rules read claims, different claims make a different caller.
        let regrouped = json!({"sub": "anna", "groups": ["staff"]});
        let expected = if when == "true" { 200 } else { 404 };
        assert_eq!(ask(regrouped), expected, "{when}");
        assert_eq!(with(&gate, "x").post(&session.headers(), &list).status, 401);
    }
}

#[test]
fn a_stream_ends_with_the_token_by_which_it_was_opened() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let gate = gate(&issuer, "true");
    let session = with(&gate, token(&issuer, json!({"sub": "anna", "exp": now() + 3}))).session();
    let mut stream = session.listen(None);
    while stream.event().is_some() {}
    let list = request(json!(1), "tools/list", json!({}));
    assert_eq!(session.post(&list).status, 401);
    let renewed = with(&gate, token(&issuer, json!({"sub": "anna"})));
    assert_eq!(renewed.post(&session.headers(), &list).status, 200);
}

#[test]
fn a_token_without_the_scope_gets_the_missing_one() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let agents = json!({
        "dev": {"claims": {"sub": "dev", "scope": "tools:use files"}, "allow": {"servers": ["*"]}},
        "ops": {"claims": {"sub": "ops", "scope": "tools:use"}, "allow": {"servers": ["*"]}},
    });
    let gate = gate_with(&issuer, json!({}), agents).start();
    let token = |subject: &str, scope: Value| {
        let claims = json!({"sub": subject, "scope": scope});
        with(&gate, issuer.key("p").sign(&issuer.claims(AUDIENCE, claims)))
    };
    assert_eq!(begin(&token("dev", json!("x files tools:use"))).status, 200);
    assert_eq!(begin(&token("ops", json!("tools:use"))).status, 200);
    for scope in [json!("files"), json!("tools:use"), json!("tools:user files"), json!("")] {
        let reply = begin(&token("dev", scope.clone()));
        assert_eq!(reply.status, 403, "{scope}");
        let challenge = reply.header("www-authenticate").unwrap();
        assert!(challenge.starts_with("Bearer error=\"insufficient_scope\""), "{challenge}");
        assert!(challenge.contains("scope=\"tools:use files\""), "{challenge}");
        assert!(challenge.contains("resource_metadata=\"https://gate.example/"), "{challenge}");
    }
    // An unknown caller does not learn what it would need.
    assert_eq!(begin(&token("stranger", json!("files"))).status, 401);
    let missing = begin(&gate.nobody());
    let challenge = missing.header("www-authenticate").unwrap();
    assert!(
        challenge.contains("scope=\"tools:use\""),
        "the scope that every caller needs: {challenge}"
    );
    assert!(turned_away(&gate, 6).contains(&"the token lacks a scope".into()));
}
