//! JWTs: which identify an agent, which are unnamed callers, and which are rejected.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};

use crate::harness::*;
use crate::issuer::{Issuer, Key, now};
use crate::wire::Reply;

pub const GATE: &str = "https://gate.example";
pub const AUDIENCE: &str = "https://gate.example/mcp";

/// A gateway that trusts the issuer, with a server `s`.
pub fn gate_with(issuer: &Issuer, jwt: Value, agents: Value) -> Setup {
    // Agents without tokens: only claims identify them.
    setup()
        .stdio("s", "legacy", names(&["t", "more"]))
        .set("public_url", json!(GATE))
        .set("identity", issuer.identity(jwt))
        .set("agents", agents)
}

pub fn dev() -> Value {
    json!({"dev": {"claims": {"sub": "dev"}, "allow": {"servers": ["*"]}}})
}

/// A client with this token.
pub fn with(gate: &Gate, token: impl Into<String>) -> Agent {
    let mut agent = gate.nobody();
    agent.token = Some(token.into());
    agent
}

pub fn begin(agent: &Agent) -> Reply {
    agent.post(&[], &initialize(LEGACY))
}

/// The reasons for which requests were rejected, once there are `count`.
pub fn turned_away(gate: &Gate, count: u64) -> Vec<String> {
    eventually("rejected requests are recorded", || {
        let records = gate.records();
        let told: Vec<_> = records.iter().filter(|one| one["kind"] == "turned-away").collect();
        let counted: u64 = told.iter().map(|one| one["count"].as_u64().unwrap()).sum();
        (counted >= count)
            .then(|| told.iter().map(|one| one["reason"].as_str().unwrap().to_string()).collect())
    })
}

#[test]
fn a_jwt_is_the_agent_whose_claims_it_has_by_every_algorithm() {
    let kinds = [("p", "EC"), ("q", "P-384"), ("e", "Ed25519"), ("r", "RSA")];
    let issuer = Issuer::start(kinds.map(|(id, kind)| Key::new(id, kind)).into());
    let algorithms = json!(["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]);
    let gate = gate_with(
        &issuer,
        json!({"algorithms": algorithms}),
        json!({
            "dev": {"claims": {"groups": "dev", "tenant": 7}, "allow": {"servers": ["*"]}},
            "ops": {"claims": {"groups": "ops"}, "allow": {"servers": ["*"], "tools": {"s": ["t"]}}},
        }),
    )
    .start();
    let dev = issuer.claims(AUDIENCE, json!({"sub": "u1", "groups": ["x", "dev"], "tenant": 7}));
    let ops =
        issuer.claims(AUDIENCE, json!({"sub": "u2", "groups": "ops", "aud": [AUDIENCE, "x"]}));
    for (key, algorithm) in [
        ("p", "ES256"),
        ("q", "ES384"),
        ("e", "EdDSA"),
        ("r", "RS256"),
        ("r", "RS384"),
        ("r", "RS512"),
        ("r", "PS256"),
    ] {
        let key = issuer.key(key);
        let head = json!({"alg": algorithm, "kid": key.id}).to_string();
        let all = with(&gate, key.sign_text(&head, &dev.to_string())).session();
        assert_eq!(all.list(), ["s__t", "s__more"], "{algorithm}");
        let some = with(&gate, key.sign_text(&head, &ops.to_string()));
        assert_eq!(some.list(), ["s__t"], "{algorithm}");
    }
    let records = gate.records();
    let lists: Vec<_> = records.iter().filter(|one| one["kind"] == "list").collect();
    assert_eq!(lists.len(), 14);
    for (at, record) in lists.iter().enumerate() {
        let (agent, subject) = if at % 2 == 0 { ("dev", "u1") } else { ("ops", "u2") };
        assert_eq!((&record["agent"], &record["identity"]), (&json!(agent), &json!("jwt")));
        assert_eq!(record["subject"], subject, "{record}");
    }
    // One fetch of the keys was enough for all of them.
    assert_eq!(issuer.asked("/keys").len(), 1);
    assert!(!json!(gate.log("s")).to_string().contains("eyJ"), "a token reached the server");
}

#[test]
fn a_jwt_that_is_wrong_in_any_way_is_401_and_recorded() {
    let keys = vec![Key::new("p", "EC"), Key::new("p2", "EC"), Key::new("r", "RSA")];
    let issuer = Issuer::start(keys);
    let gate = gate_with(
        &issuer,
        json!({"leeway": "5s"}),
        json!({
            "dev": {"claims": {"groups": "dev"}, "allow": {"servers": ["*"]}},
            "ops": {"claims": {"groups": "ops"}, "allow": {"servers": ["*"]}},
        }),
    )
    .start();
    let (p, r) = (issuer.key("p"), issuer.key("r"));
    let good = issuer.claims(AUDIENCE, json!({"sub": "u", "groups": "dev"}));
    assert_eq!(begin(&with(&gate, p.sign(&good))).status, 200);
    let but = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        p.sign(&claims)
    };
    let without = |name: &str| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().shift_remove(name);
        p.sign(&claims)
    };
    let head = |head: Value| p.sign_text(&head.to_string(), &good.to_string());
    let plain = |text: &str| BASE64.encode(text);
    let unsigned = |algorithm: &str| {
        let head = json!({"alg": algorithm, "typ": "JWT"}).to_string();
        format!("{}.{}.", plain(&head), plain(&good.to_string()))
    };
    // Signed with the public key as if it were a shared secret.
    let shared = {
        let head = plain(&json!({"alg": "HS256", "kid": "r"}).to_string());
        let signed = format!("{head}.{}", plain(&good.to_string()));
        let secret = r.public()["n"].as_str().unwrap().to_string();
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
        format!("{signed}.{}", BASE64.encode(ring::hmac::sign(&key, signed.as_bytes())))
    };
    let attacker = Key::new("p", "EC");
    let own_key = json!({"alg": "ES256", "jwk": attacker.public(), "kid": "p",
        "jku": format!("{}/evil", issuer.url)});
    let token = p.sign(&good);
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let claims = signed.split_once('.').unwrap().1;
    let swapped = {
        let mut evil = good.clone();
        evil["groups"] = json!("ops");
        token.replace(claims, &plain(&evil.to_string()))
    };
    let twice = good.to_string().replace("\"groups\"", "\"groups\":\"ops\",\"groups\"");
    let wrong = [
        ("the token is for another audience", but("aud", json!("https://other.example/mcp"))),
        ("the token is for another audience", but("aud", json!(GATE))),
        ("the token is for another audience", but("aud", json!(format!("{AUDIENCE}/")))),
        ("the token is for another audience", but("aud", json!([]))),
        ("the token is for another audience", but("aud", json!({"0": AUDIENCE}))),
        ("the token is for another audience", without("aud")),
        ("the token has expired", but("exp", json!(now() - 10))),
        ("the token is malformed", without("exp")),
        ("the token is malformed", but("exp", json!((now() + 60).to_string()))),
        ("the token is not valid yet", but("nbf", json!(now() + 60))),
        ("the token is not valid yet", but("iat", json!(now() + 60))),
        ("the token is from another issuer", but("iss", json!("https://other.example"))),
        ("the token is from another issuer", but("iss", json!(format!("{}/", issuer.url)))),
        ("the token is from another issuer", without("iss")),
        ("the token is signed by an algorithm that is not accepted", unsigned("none")),
        ("the token is signed by an algorithm that is not accepted", unsigned("None")),
        ("the token is signed by an algorithm that is not accepted", shared),
        (
            "the token is signed by an algorithm that is not accepted",
            r.sign_text(r#"{"alg":"RS512","kid":"r"}"#, &good.to_string()),
        ),
        (
            "the token is signed by a key that its issuer does not have",
            head(json!({"alg": "RS256", "kid": "p"})),
        ),
        (
            "the token is signed by a key that its issuer does not have",
            head(json!({"alg": "ES256", "kid": "P"})),
        ),
        ("the token does not name the key that signed it", head(json!({"alg": "ES256"}))),
        ("the token's signature is wrong", head(json!({"alg": "ES256", "kid": "p2"}))),
        ("the token's signature is wrong", attacker.sign(&good)),
        (
            "the token's signature is wrong",
            attacker.sign_text(&own_key.to_string(), &good.to_string()),
        ),
        ("the token's signature is wrong", swapped),
        ("the token's signature is wrong", format!("{signed}.")),
        ("the token's signature is wrong", format!("{signed}.{}", BASE64.encode([0; 64]))),
        ("the token is malformed", head(json!({"alg": "ES256", "kid": "p", "crit": ["exp"]}))),
        ("the token is malformed", head(json!({"alg": "ES256", "kid": "p", "typ": "id+jwt"}))),
        ("the token is malformed", p.sign_text(&p.head().to_string(), &twice)),
        ("the token is malformed", format!("{token}.x.y")),
        ("the token is malformed", format!("{signed}.{signature}==")),
        ("the token is malformed", "a.b.c".into()),
        ("the token is malformed", "..".into()),
        ("the token is too long", but("x", json!("x".repeat(9000)))),
        ("the credential matches two agents", but("groups", json!(["dev", "ops"]))),
        ("the credential names no agent", but("groups", json!(["x"]))),
        ("the credential names no agent", but("groups", json!("Dev"))),
    ];
    let count = wrong.len() as u64;
    let mut reasons = Vec::new();
    for (why, token) in wrong {
        let reply = begin(&with(&gate, token));
        assert_eq!(reply.status, 401, "{why}: {reply:?}");
        assert!(reply.body.is_empty(), "{why}");
        let challenge = reply.header("www-authenticate").unwrap();
        assert!(challenge.starts_with("Bearer error=\"invalid_token\""), "{why}: {challenge}");
        assert!(challenge.contains(&format!("error_description=\"{why}\"")), "{challenge}");
        let document = format!("{GATE}/.well-known/oauth-protected-resource/mcp");
        assert!(challenge.ends_with(&format!("resource_metadata=\"{document}\"")), "{challenge}");
        reasons.push(why.to_string());
    }
    let recorded = turned_away(&gate, count);
    for why in reasons {
        assert!(recorded.contains(&why), "{why} is not in the audit log: {recorded:?}");
    }
    assert!(issuer.asked("/evil").is_empty(), "keys were fetched from a URL in the token");
    assert!(gate.log("s").is_empty());
    // An invalid token does not make an unnamed caller, even if unnamed callers are allowed.
    let reply = begin(&with(&gate, p.sign(&good)));
    assert_eq!(reply.status, 200);
}

#[test]
fn a_jwt_of_no_agent_is_an_unnamed_caller_and_an_invalid_one_is_rejected() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let gate = gate_with(
        &issuer,
        json!({}),
        json!({
            "dev": {"claims": {"sub": "dev"}, "allow": {"servers": ["*"]}},
            "default": {"allow": {"servers": ["*"], "tools": {"s": ["t"]}}},
        }),
    )
    .set("defaults", json!({"deny_on_missing_agent": false}))
    .start();
    let key = issuer.key("p");
    let token = |subject: &str, more: u64| {
        key.sign(&issuer.claims(AUDIENCE, json!({"sub": subject, "exp": now() + more})))
    };
    assert_eq!(with(&gate, token("dev", 300)).session().list(), ["s__t", "s__more"]);
    assert_eq!(with(&gate, token("someone", 300)).session().list(), ["s__t"]);
    assert_eq!(gate.nobody().session().list(), ["s__t"]);
    let other = Key::new("p", "EC").sign(&issuer.claims(AUDIENCE, json!({"sub": "someone"})));
    assert_eq!(begin(&with(&gate, other)).status, 401);
}

#[test]
fn a_token_is_for_one_address() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let gate = gate_with(&issuer, json!({}), dev()).start();
    let token =
        |audience: &str| issuer.key("p").sign(&issuer.claims(audience, json!({"sub": "dev"})));
    let one = format!("{AUDIENCE}/s");
    for (audience, path, status) in [
        (AUDIENCE, "/mcp", 200),
        (AUDIENCE, "/mcp/s", 200),
        (&*one, "/mcp/s", 200),
        (&*one, "/mcp", 401),
        (&*format!("{AUDIENCE}/other"), "/mcp/s", 401),
        // `/s/mcp` is the same endpoint, whose audience has only one spelling.
        (&*one, "/s/mcp", 200),
        (AUDIENCE, "/s/mcp", 200),
        (&*format!("{GATE}/s/mcp"), "/s/mcp", 401),
        (&*format!("{GATE}/s/mcp"), "/mcp/s", 401),
        (&*format!("{AUDIENCE}/other"), "/s/mcp", 401),
        ("http://127.0.0.1/mcp", "/mcp", 401),
    ] {
        let agent = with(&gate, token(audience)).at(path);
        assert_eq!(begin(&agent).status, status, "a token for {audience} at {path}");
    }
    // With `audience`, that value and no other.
    let gate = gate_with(&issuer, json!({"audience": ["a", "b"]}), dev()).start();
    for (audience, status) in [("a", 200), ("b", 200), (AUDIENCE, 401), ("c", 401)] {
        assert_eq!(begin(&with(&gate, token(audience))).status, status, "{audience}");
    }
}

#[test]
fn a_listed_token_and_a_jwt_live_beside_each_other() {
    let issuer = Issuer::start(vec![Key::new("p", "EC")]);
    let agents = json!({
        "dev": {"claims": {"sub": "dev"}, "tokens": ["${DEV}"], "allow": {"servers": ["*"]}},
    });
    let gate = gate_with(&issuer, json!({}), agents).env("DEV", "listed.token.1.of.dev").start();
    assert_eq!(with(&gate, "listed.token.1.of.dev").session().list(), ["s__t", "s__more"]);
    let jwt = issuer.key("p").sign(&issuer.claims(AUDIENCE, json!({"sub": "dev"})));
    let begun = with(&gate, jwt.clone()).session();
    assert_eq!(begun.list(), ["s__t", "s__more"]);
    // The holder of a JWT is not the holder of the token, although both are the same agent.
    let list = request(json!(1), "tools/list", json!({}));
    assert_eq!(with(&gate, "listed.token.1.of.dev").post(&begun.headers(), &list).status, 404);
    assert_eq!(with(&gate, jwt).post(&begun.headers(), &list).status, 200);
}
