//! Every deviation of real authorization servers: a login works, or fails with an error that names the step and the
//! remedy.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use serde_json::{Value, json};
use toolward_testkit::authorization_server::follow;

use crate::world::World;

/// Logs in, and calls a tool.
fn works(name: &str, world: &World, login: &Value) {
    world.configure(login);
    let ran = world.login();
    assert_eq!(ran.code, 0, "{name}: {ran:?}\n{}", world.tokens.summary());
    let who = world.gateway().whoami();
    assert_eq!(who["subject"], "alice", "{name}");
    world.files_have_no_secret();
}

/// Fails to log in, with an error that contains these texts, and stores nothing.
fn fails(name: &str, world: &World, login: &Value, texts: &[&str]) {
    world.configure(login);
    let ran = world.login();
    assert_eq!(ran.code, 1, "{name}: {ran:?}\n{}", world.tokens.summary());
    for text in texts.iter().chain(&["the login to `it` failed"]) {
        assert!(ran.stderr.contains(text), "{name}: {text} is not in {}", ran.stderr);
    }
    assert_eq!(world.logins()[0]["state"], "needs login", "{name}");
}

#[test]
fn deviations_that_do_not_matter() {
    let cases: BTreeMap<&str, (Value, Value)> = BTreeMap::from([
        ("correct", (json!({}), json!({}))),
        ("a path", (json!({"path": "/tenant/1"}), json!({}))),
        ("only as OAuth", (json!({"path": "/t", "metadata": "oauth"}), json!({}))),
        ("only as OIDC", (json!({"path": "/t", "metadata": "oidc"}), json!({}))),
        ("OIDC, inserted", (json!({"path": "/t", "metadata": "oidc-inserted"}), json!({}))),
        ("only at the root", (json!({"path": "/t", "metadata": "root"}), json!({}))),
        ("OIDC without a path", (json!({"metadata": "oidc"}), json!({}))),
        (
            "resource metadata with the path",
            (json!({}), json!({"challenge": "bare", "resource_metadata": "path"})),
        ),
        (
            "resource metadata at the root",
            (json!({}), json!({"challenge": "missing", "resource_metadata": "root"})),
        ),
        ("registration wants `none`", (json!({"registration": "public-only"}), json!({}))),
        ("registration gives a secret", (json!({"registration": "confidential"}), json!({}))),
        ("documents are announced", (json!({"documents": "rejected"}), json!({}))),
        ("no `iss`", (json!({"iss": "unsupported"}), json!({}))),
        ("refresh needs the resource", (json!({"refresh_needs_resource": true}), json!({}))),
        ("no refresh token", (json!({"refresh": "never"}), json!({}))),
        ("no `expires_in`", (json!({"expires_in": null}), json!({}))),
        ("`expires_in` as text", (json!({"expires_in": "300"}), json!({}))),
        ("JWTs", (json!({"jwt": true}), json!({}))),
    ]);
    for (name, (switches, protected)) in cases {
        works(name, &World::with(switches, protected), &json!({}));
    }
}

#[test]
fn deviations_that_end_a_login() {
    let cases: Vec<(&str, Value, Value, Vec<&str>)> = vec![
        (
            "no registration",
            json!({"registration": "missing"}),
            json!({}),
            vec!["registration:", "client_id"],
        ),
        (
            "422",
            json!({"registration": "refused"}),
            json!({}),
            vec!["registration:", "422", "client_id"],
        ),
        ("no PKCE", json!({"pkce": "absent"}), json!({}), vec!["discovery:", "S256"]),
        ("plain PKCE", json!({"pkce": "plain"}), json!({}), vec!["discovery:", "S256"]),
        (
            "another issuer",
            json!({"issuer": "https://evil.example"}),
            json!({}),
            vec!["discovery:", "evil.example"],
        ),
        ("no `iss`", json!({"iss": "missing"}), json!({}), vec!["authorization:", "iss"]),
        (
            "a wrong `iss`",
            json!({"iss": {"wrong": "https://evil.example"}}),
            json!({}),
            vec!["authorization:", "iss"],
        ),
        (
            "no metadata",
            json!({"metadata": "missing"}),
            json!({}),
            vec!["discovery:", "no metadata"],
        ),
        (
            "10 MB of metadata",
            json!({"metadata": "huge"}),
            json!({}),
            vec!["discovery:", "too large"],
        ),
        (
            "endless redirects",
            json!({"metadata": "redirects"}),
            json!({}),
            vec!["discovery:", "redirects"],
        ),
        ("no JSON", json!({"metadata": "not-json"}), json!({}), vec!["discovery:", "JSON"]),
        (
            "10 MB of resource metadata",
            json!({}),
            json!({"resource_metadata": "huge"}),
            vec!["discovery:"],
        ),
        (
            "endless redirects of it",
            json!({}),
            json!({"resource_metadata": "redirects"}),
            vec!["discovery:", "redirects"],
        ),
        ("denied", json!({"sign_in": "denied"}), json!({}), vec!["authorization:", "denied"]),
        ("negative lifetime", json!({"expires_in": -5}), json!({}), vec!["token:", "expires_in"]),
        ("no lifetime", json!({"expires_in": 0}), json!({}), vec!["token:", "expires_in"]),
        ("another token type", json!({"token_type": "mac"}), json!({}), vec!["token:", "bearer"]),
        (
            "a token with a line break",
            json!({"access_token": "a\r\nX: 1"}),
            json!({}),
            vec!["token:", "access_token"],
        ),
        ("no token", json!({"access_token": ""}), json!({}), vec!["token:", "access_token"]),
        (
            "`resource` is rejected",
            json!({"reject_resource": true}),
            json!({}),
            vec!["authorization:", "invalid_target"],
        ),
        (
            "the token endpoint fails",
            json!({"token_faults": [{"status": 500, "body": "oops"}]}),
            json!({}),
            vec!["token:", "500"],
        ),
    ];
    for (name, switches, protected, texts) in cases {
        fails(name, &World::with(switches, protected), &json!({}), &texts);
    }
}

#[test]
fn settings_help_with_unusual_servers() {
    let world = World::with(json!({"reject_resource": true}), json!({"check_audience": false}));
    works("no resource", &world, &json!({"resource": false}));

    let world =
        World::with(json!({}), json!({"challenge": "bare", "resource_metadata": "missing"}));
    works("issuer", &world, &json!({"issuer": world.tokens.issuer()}));
    fails(
        "another issuer",
        &World::new(),
        &json!({"issuer": "http://127.0.0.1:1"}),
        &["login.issuer"],
    );

    let world = World::with(json!({"registration": "missing"}), json!({}));
    world.tokens.switch(|switches| {
        let client = json!([{"id": "own", "secret": "s3cret", "redirect_uris": [world.redirect]}]);
        switches.apply(&json!({"clients": client})).unwrap();
    });
    works("configured", &world, &json!({"client_id": "own", "client_secret": "${CLIENT_SECRET}"}));

    let world = World::new();
    world.tokens.switch(|switches| switches.redirect_uris = Some(vec![world.redirect.clone()]));
    works("redirect allow-list", &world, &json!({}));

    let world =
        World::with(json!({"granted_scope": "read"}), json!({"challenge_scope": "read write"}));
    works("fewer scopes", &world, &json!({}));
    assert_eq!(world.logins()[0]["scope"], "read");
    works("scope", &world, &json!({"scope": "admin"}));
    let asked = world.tokens.seen_at("/authorize");
    assert_eq!(asked.last().unwrap().query["scope"], "admin", "{asked:?}");
}

#[test]
fn a_client_id_metadata_document_is_used_if_one_is_configured() {
    for (documents, registers) in [("accepted", false), ("absent", true)] {
        let world = World::with(json!({"documents": documents}), json!({}));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/client.json", listener.local_addr().unwrap());
        let document = json!({"client_id": url, "client_name": "T", "redirect_uris": [world.redirect],
            "grant_types": ["authorization_code", "refresh_token"]});
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let mut line = String::new();
                while stream.read_line(&mut line).is_ok() && !line.ends_with("\r\n\r\n") {}
                let body = document.to_string();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                stream.get_mut().write_all((head + &body).as_bytes()).unwrap();
            }
        });
        works(documents, &world, &json!({"client_metadata_url": url}));
        assert_eq!(!world.tokens.seen_at("/register").is_empty(), registers, "{documents}");
    }
}

#[test]
fn a_person_can_log_in_with_a_device() {
    for device in ["approves", "slows-down"] {
        let world = World::with(json!({"device": device}), json!({}));
        works(device, &world, &json!({"flow": "device"}));
    }
    for (device, text) in
        [("denies", "denied"), ("expires", "expired"), ("absent", "no device flow")]
    {
        fails(
            device,
            &World::with(json!({"device": device}), json!({})),
            &json!({"flow": "device"}),
            &[text],
        );
    }
}

#[test]
fn a_person_can_paste_the_address() {
    let world = World::new();
    let begin = || {
        let mut login = world.begin_login(&["--paste"]);
        let url = login.url().unwrap();
        (login, url)
    };
    // Something has to answer at the redirect address; the login itself does not listen.
    let own = world.redirect.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let listener = TcpListener::bind(own).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut head = String::new();
            while stream.read_line(&mut head).is_ok() && !head.ends_with("\r\n\r\n") {}
            let response = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
            let _ = stream.get_mut().write_all(response);
        }
    });
    let (mut login, url) = begin();
    let address = follow(&url).unwrap().visited.pop().unwrap();
    login.paste(&address);
    let (code, _, stderr) = login.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(world.gateway().whoami()["subject"], "alice");
    // The same address a second time belongs to no login.
    let (mut login, _) = begin();
    login.paste(&address);
    let (code, _, stderr) = login.end();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("does not belong to this login"), "{stderr}");
    let (login, _) = begin();
    assert_eq!(login.end().0, Some(2));
}
