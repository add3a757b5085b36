//! The issuer's keys: rotated, missing, broken, slow, or in a file.

use std::time::Duration;

use serde_json::json;
use toolward_testkit::proxy::Proxy;

use crate::harness::*;
use crate::issuer::{Issuer, Key, Mood};
use crate::jwt::{AUDIENCE, begin, dev, gate_with, turned_away, with};
use crate::tls::{Certificate, Front, NAME};

fn token(issuer: &Issuer, key: &Key) -> String {
    key.sign(&issuer.claims(AUDIENCE, json!({"sub": "dev"})))
}

#[test]
fn a_key_that_was_rotated_out_is_refused_and_a_new_one_is_found() {
    let issuer = Issuer::start(vec![Key::new("old", "EC")]);
    let gate = gate_with(&issuer, json!({}), dev()).start();
    let old = token(&issuer, &issuer.key("old"));
    assert_eq!(begin(&with(&gate, old.clone())).status, 200);
    assert_eq!(begin(&with(&gate, old.clone())).status, 200);
    issuer.rotate(vec![Key::new("new", "Ed25519")]);
    let new = token(&issuer, &issuer.key("new"));
    assert_eq!(begin(&with(&gate, new)).status, 200);
    assert_eq!(issuer.asked("/keys").len(), 2);
    // Also if it was accepted before.
    assert_eq!(begin(&with(&gate, old)).status, 401);
    // Made-up key ids do not make the gateway fetch the keys.
    for id in ["x", "y", "z"] {
        let made_up = token(&issuer, &Key::new(id, "EC"));
        assert_eq!(begin(&with(&gate, made_up)).status, 401);
    }
    assert_eq!(issuer.asked("/keys").len(), 2);
    let why = "the token is signed by a key that its issuer does not have";
    assert!(turned_away(&gate, 4).contains(&why.into()));
}

#[test]
fn without_keys_every_jwt_is_refused_until_there_are_some() {
    let good = json!({"keys": [Key::new("x", "EC").public()]}).to_string();
    let says = |status, more: &str, body: &str| Mood::Says(status, more.into(), body.into());
    let twice = good.replacen("\"kty\"", "\"kty\":\"EC\",\"kty\"", 1);
    let elsewhere = Issuer::start(vec![Key::new("p", "EC")]);
    let redirect = format!("Location: {}/keys\r\n", elsewhere.url);
    let moods = [
        says(500, "", ""),
        says(200, "", "<html>sign in</html>"),
        says(200, "", "{\"keys\": {}}"),
        says(200, "", &twice),
        says(200, "", "{\"keys\": []}"),
        says(200, "", &format!("{{\"pad\": \"{}\"}}", "x".repeat(300 << 10))),
        says(200, "Content-Encoding: gzip\r\n", &good),
        says(302, &redirect, ""),
    ];
    for (at, mood) in moods.into_iter().enumerate() {
        let issuer = Issuer::start(vec![Key::new("p", "EC")]);
        issuer.feel(mood);
        let agents = json!({
            "dev": {"claims": {"sub": "dev"}, "allow": {"servers": ["*"]}},
            "listed": {"tokens": ["${LISTED}"], "allow": {"servers": ["*"]}},
        });
        let gate =
            gate_with(&issuer, json!({}), agents).env("LISTED", "a-token-that-is-listed").start();
        let client = with(&gate, token(&issuer, &issuer.key("p")));
        let refused = begin(&client);
        assert_eq!(refused.status, 401, "mood {at}");
        let challenge = refused.header("www-authenticate").unwrap();
        assert!(challenge.contains("invalid_token"), "mood {at}: {challenge}");
        // Other callers are not affected.
        assert_eq!(begin(&with(&gate, "a-token-that-is-listed")).status, 200, "mood {at}");
        assert_eq!(turned_away(&gate, 1).len(), 1, "mood {at}");
        let said = gate.said.lock().unwrap().clone();
        assert!(said.contains("identity.jwt: the issuer"), "mood {at}: {said}");
        issuer.feel(Mood::Good);
        if at == 0 {
            eventually("the keys are there", || (begin(&client).status == 200).then_some(()));
            eventually("it is logged", || {
                gate.said.lock().unwrap().contains("are available again").then_some(())
            });
        }
    }
    assert!(elsewhere.asked("/keys").is_empty(), "a redirect was followed");
}

#[test]
fn an_issuer_that_does_not_respond_delays_no_other_caller() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    issuer.feel(Mood::Silent);
    let agents = json!({
        "dev": {"claims": {"sub": "dev"}, "allow": {"servers": ["*"]}},
        "listed": {"tokens": ["${LISTED}"], "allow": {"servers": ["*"]}},
    });
    let gate =
        gate_with(&issuer, json!({}), agents).env("LISTED", "a-token-that-is-listed").start();
    let token = token(&issuer, &issuer.key("p"));
    let mut waiting: Vec<_> = (0..8)
        .map(|_| with(&gate, token.clone()).open("POST", &[], &initialize(LEGACY).to_string()))
        .collect();
    assert_eq!(begin(&with(&gate, "a-token-that-is-listed")).status, 200);
    // The issuer has five seconds to respond; no other caller waited for that.
    assert!(waiting.iter_mut().all(|one| one.is_silent(Duration::from_millis(1))));
    for _ in 0..20 {
        assert_eq!(begin(&with(&gate, "a-token-that-is-listed")).status, 200);
    }
    for mut one in waiting {
        assert_eq!(one.reply().status, 401);
    }
    assert_eq!(issuer.asked("/keys").len(), 1, "one asks for all");
}

#[test]
fn keys_that_are_known_outlive_an_outage() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let gate = gate_with(&issuer, json!({}), dev()).start();
    let first = token(&issuer, &issuer.key("p"));
    assert_eq!(begin(&with(&gate, first.clone())).status, 200);
    issuer.feel(Mood::Says(503, String::new(), String::new()));
    // An unknown key makes the gateway fetch the keys, in vain.
    assert_eq!(begin(&with(&gate, token(&issuer, &Key::new("x", "EC")))).status, 401);
    assert_eq!(issuer.asked("/keys").len(), 2);
    assert_eq!(begin(&with(&gate, first)).status, 200);
    assert_eq!(begin(&with(&gate, token(&issuer, &issuer.key("p")))).status, 200);
}

#[test]
fn keys_may_be_in_a_file_that_is_reread() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let setup = gate_with(&issuer, json!({"jwks": "keys.json"}), dev());
    let file = setup.path("keys.json");
    let write = |key: &Key| std::fs::write(&file, json!({"keys": [key.public()]}).to_string());
    write(&issuer.key("p")).unwrap();
    let gate = setup.start();
    let first = token(&issuer, &issuer.key("p"));
    assert_eq!(begin(&with(&gate, first.clone())).status, 200);
    issuer.rotate(vec![Key::new("q", "EC")]);
    write(&issuer.key("q")).unwrap();
    let second = token(&issuer, &issuer.key("q"));
    assert_eq!(begin(&with(&gate, second)).status, 200);
    assert_eq!(begin(&with(&gate, first)).status, 401);
    assert!(issuer.asked("/keys").is_empty());
}

#[test]
fn keys_are_fetched_through_the_proxy_of_the_environment() {
    let (issuer, proxy) = (Issuer::start(vec![Key::new("p", "EC")]), Proxy::start().unwrap());
    let certificate = Certificate::new();
    let port = issuer.url.rsplit(':').next().unwrap().parse().unwrap();
    let front = Front::start(&certificate, port);
    let setup = || {
        let setup = gate_with(&issuer, json!({"jwks": front.url("/keys")}), dev());
        setup.env("SSL_CERT_FILE", &certificate.path())
    };
    let gate = setup().env("HTTPS_PROXY", &format!("http://127.0.0.1:{}", proxy.port)).start();
    let token = token(&issuer, &issuer.key("p"));
    assert_eq!(begin(&with(&gate, token.clone())).status, 200);
    let heads = proxy.heads();
    let tunnel = format!("CONNECT {NAME}:{} HTTP/1.1\r\n", front.port);
    assert!(!heads.is_empty() && heads.iter().all(|head| head.starts_with(&tunnel)), "{heads:?}");
    assert_eq!(issuer.asked("/keys").len(), 1);
    // Without the proxy, which alone knows the name, there are no keys.
    let gate = setup().start();
    assert_eq!(begin(&with(&gate, token)).status, 401);
}

#[test]
fn keys_over_the_network_in_the_clear_are_not_asked_for() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    for written in ["http://issuer.example/keys", "${KEYS}"] {
        let mut setup = gate_with(&issuer, json!({"jwks": written}), dev());
        if written == "${KEYS}" {
            setup = setup.env("KEYS", "http://issuer.example/keys");
        }
        let (code, said) = setup.fails();
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("jwks") && said.contains("https"), "{said}");
    }
}
