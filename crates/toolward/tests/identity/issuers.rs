//! Several issuers, and issuers whose keys are found by their metadata.

use serde_json::{Value, json};
use toolward_testkit::authorization_server::{AuthorizationServer, Metadata, Switches};

use crate::harness::*;
use crate::issuer::{Issuer, Key};
use crate::jwt::{AUDIENCE, GATE, begin, dev, turned_away, with};

fn gate(jwt: Value, agents: Value) -> Setup {
    setup()
        .stdio("s", "legacy", names(&["t", "more"]))
        .set("public_url", json!(GATE))
        .set("identity", json!({"jwt": jwt}))
        .set("agents", agents)
}

#[test]
fn each_issuer_s_tokens_identify_its_own_agents() {
    let one = Issuer::start(vec![Key::new("same", "EC")]);
    let two = Issuer::start(vec![Key::new("same", "EC")]);
    let jwt = |issuer: &Issuer| issuer.identity(json!({}))["jwt"].clone();
    let agents = json!({
        "one": {"claims": {"iss": one.url, "sub": "dev"}, "allow": {"servers": ["*"]}},
        "two": {"claims": {"iss": two.url, "sub": "dev"}, "allow": {"servers": ["*"], "tools": {"s": ["t"]}}},
    });
    let gate = gate(json!([jwt(&one), jwt(&two)]), agents).start();
    let token =
        |issuer: &Issuer, claims: Value| issuer.key("same").sign(&issuer.claims(AUDIENCE, claims));
    let dev = json!({"sub": "dev"});
    for _ in 0..2 {
        let first = with(&gate, token(&one, dev.clone())).session();
        assert_eq!(first.list(), ["s__t", "s__more"]);
        let second = with(&gate, token(&two, dev.clone())).session();
        assert_eq!(second.list(), ["s__t"]);
    }
    // Mix-up: a token that names the one issuer and is signed by the other.
    let mixed = two.key("same").sign(&one.claims(AUDIENCE, dev.clone()));
    assert_eq!(begin(&with(&gate, mixed)).status, 401);
    assert_eq!(turned_away(&gate, 1), ["the token's signature is wrong"]);
    // An issuer that is not listed.
    let foreign = token(&one, json!({"sub": "dev", "iss": "https://other.example"}));
    assert_eq!(begin(&with(&gate, foreign)).status, 401);
    let reply = gate.nobody().at("/.well-known/oauth-protected-resource/mcp").send("GET", &[], "");
    let document: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(document["authorization_servers"], json!([one.url, two.url]));
}

#[test]
fn the_same_subject_of_two_issuers_is_two_holders() {
    let [one, two] = [0, 1].map(|_| Issuer::start(vec![Key::new("p", "EC")]));
    let jwt = |issuer: &Issuer| issuer.identity(json!({"agent_claim": "agent"}))["jwt"].clone();
    let agents = json!({"dev": {"allow": {"servers": ["*"]}}});
    let gate = gate(json!([jwt(&one), jwt(&two)]), agents).start();
    let session = |issuer: &Issuer| {
        let claims = issuer.claims(AUDIENCE, json!({"sub": "u", "agent": "dev"}));
        with(&gate, issuer.key("p").sign(&claims)).session()
    };
    let (first, second) = (session(&one), session(&two));
    assert_eq!(first.list(), second.list());
    let mut stolen = session(&two);
    stolen.id = first.id.clone();
    let reply = stolen.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    assert_eq!(reply.status, 404, "a session of the other issuer's holder");
}

#[test]
fn one_issuer_s_outage_does_not_affect_another() {
    let (good, bad) = (Issuer::start(vec![Key::new("p", "EC")]), "http://127.0.0.1:1");
    let jwt = json!([{"issuer": bad, "jwks": format!("{bad}/keys")},
        good.identity(json!({}))["jwt"]]);
    let gate = gate(jwt, dev()).start();
    let claims = good.claims(AUDIENCE, json!({"sub": "dev"}));
    let token = good.key("p").sign(&claims);
    assert_eq!(with(&gate, token).session().list(), ["s__t", "s__more"]);
    let down = good.claims(AUDIENCE, json!({"sub": "dev", "iss": bad}));
    assert_eq!(begin(&with(&gate, good.key("p").sign(&down))).status, 401);
}

#[test]
fn an_issuer_alone_is_enough_in_every_form_of_metadata() {
    for (path, metadata) in [
        ("", Metadata::Everywhere),
        ("", Metadata::Oidc),
        ("/tenant", Metadata::OAuth),
        ("/tenant", Metadata::Oidc),
        ("/tenant", Metadata::OidcInserted),
    ] {
        let switches = Switches { path: path.into(), metadata, ..Switches::default() };
        let issuer = AuthorizationServer::start(switches).unwrap();
        let gate = gate(json!({"issuer": issuer.issuer()}), dev()).start();
        let agent = with(&gate, issuer.jwt("dev", AUDIENCE, &json!({})));
        assert_eq!(agent.session().list(), ["s__t", "s__more"], "{path} {metadata:?}");
        assert_eq!(begin(&with(&gate, issuer.jwt("dev", "other", &json!({})))).status, 401);
        let found = issuer.seen().into_iter();
        let found = found.filter(|one| one.path.contains("well-known") && one.status == 200);
        assert_eq!(found.count(), 1, "{}", issuer.summary());
    }
}

#[test]
fn unusable_metadata_is_reported_and_accepts_nothing() {
    let other = AuthorizationServer::start(Switches::default()).unwrap();
    for (switches, why) in [
        (Switches { metadata: Metadata::Missing, ..Switches::default() }, "has no metadata"),
        (Switches { metadata: Metadata::Huge, ..Switches::default() }, "too large"),
        (Switches { metadata: Metadata::Redirects, ..Switches::default() }, "redirects"),
        (Switches { metadata: Metadata::NotJson, ..Switches::default() }, "not valid JSON"),
        (Switches { issuer: Some(other.issuer().into()), ..Switches::default() }, "instead of"),
    ] {
        let issuer = AuthorizationServer::start(switches).unwrap();
        let gate = gate(json!({"issuer": issuer.issuer()}), dev()).start();
        let reply = begin(&with(&gate, issuer.jwt("dev", AUDIENCE, &json!({}))));
        assert_eq!(reply.status, 401, "{why}");
        let said = eventually("it is logged", || {
            let said = gate.said.lock().unwrap().clone();
            said.contains("keys cannot be fetched").then_some(said)
        });
        assert!(said.contains(why), "{why}: {said}");
    }
}

#[test]
fn a_list_of_issuers_is_checked() {
    let twice = json!([{"issuer": "https://a.example"}, {"issuer": "https://a.example"}]);
    for (jwt, why) in [
        (json!([]), "`jwt` is empty"),
        (twice, "is listed twice"),
        (json!([{"issuer": "http://a.example"}]), "could come from anyone"),
        (json!([{"jwks": "https://a.example/keys"}]), "issuer"),
    ] {
        let (code, said) = gate(jwt, dev()).fails();
        assert_eq!(code, 3, "{said}");
        assert!(said.contains(why), "{why}: {said}");
    }
}
