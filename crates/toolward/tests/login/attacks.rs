//! Attacks on a login: by another server, by a web page, by anyone who can send requests to the redirect address.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;
use toolward_testkit::authorization_server::{
    AuthorizationServer, Challenge, ProtectedServer, ProtectedSwitches, Switches, follow,
};
use toolward_testkit::wait::eventually;

use crate::world::World;

/// A second server with its own authorization server.
fn another(world: &World) -> (AuthorizationServer, ProtectedServer) {
    let tokens = AuthorizationServer::start(Switches::default()).unwrap();
    let protected = ProtectedServer::start(&tokens, ProtectedSwitches::default()).unwrap();
    world.configure_servers(&json!({
        "it": {"url": world.protected.url(), "login": world.login_with(&json!({}))},
        "evil": {"url": protected.url(), "login": world.login_with(&json!({}))},
    }));
    (tokens, protected)
}

#[test]
fn a_server_cannot_obtain_the_token_of_another_one() {
    let world = World::new();
    let (evil_tokens, evil) = another(&world);
    world.logged_in();
    let login = |world: &World| world.run(&["login", "evil", "--no-browser"]);

    // It names the authorization server of the other one.
    let issuer = world.tokens.issuer().to_string();
    evil.switch(|switches| switches.authorization_servers = Some(vec![issuer]));
    let ran = login(&world);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("the authorization server of your server `it`"), "{ran:?}");

    // It points to the metadata of the other one.
    let origin = world.protected.url().trim_end_matches("/mcp").to_string();
    let metadata = format!("{origin}/.well-known/oauth-protected-resource/mcp");
    evil.switch(|switches| switches.challenge = Challenge::MetadataAt(metadata));
    let ran = login(&world);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("not about this server"), "{ran:?}");

    // It claims to be the other one.
    let url = world.protected.url().to_string();
    evil.switch(|switches| {
        switches.challenge = Challenge::Metadata;
        switches.resource = Some(url);
    });
    let ran = login(&world);
    assert!(ran.stderr.contains("not about this server"), "{ran:?}");

    // Nothing that the gateway sent to it has a token of the other one.
    let mut gateway = world.gateway();
    assert_eq!(gateway.whoami()["subject"], "alice");
    let seen = format!("{:?} {:?}", evil.seen(), evil_tokens.seen());
    world.has_no_secret(&seen);
}

#[test]
fn a_response_of_another_authorization_server_is_not_accepted() {
    // The attacker lets the honest server redirect to the gateway with a code, for a login at the attacker's.
    let world = World::with(json!({"iss": {"wrong": "https://honest.example"}}), json!({}));
    let ran = world.login();
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("another authorization server"), "{ran:?}");
    assert_eq!(world.tokens.seen_at("/token").len(), 0, "the code is not sent anywhere");
}

/// Sends a request to the redirect address.
fn request(world: &World, target: &str, host: &str) -> (u16, String) {
    let own = world.redirect.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let mut stream = TcpStream::connect(own).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, text)
}

#[test]
fn forged_responses_neither_complete_nor_end_a_login() {
    let world = World::new();
    let mut login = world.begin_login(&[]);
    let url = login.url().unwrap();
    let own = world.redirect.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let state = url.split(&['?', '&']).find_map(|pair| pair.strip_prefix("state=")).unwrap();
    let injected = format!("/oauth/callback?code=injected&state={state}&iss=x");
    for (target, host) in [
        ("/oauth/callback?code=injected&state=guess".to_string(), own),
        ("/oauth/callback?code=injected".to_string(), own),
        ("/oauth/callback".to_string(), own),
        (format!("/oauth/callback?code=a&code=b&state={state}"), own),
        (format!("/other?code=injected&state={state}"), own),
        // A page of another site that was rebound to this machine.
        (injected.clone(), "evil.example"),
        ("/oauth/callback?error=<script>alert(1)</script>&state=x".to_string(), own),
    ] {
        let (status, text) = request(&world, &target, host);
        assert_eq!(status, 400, "{target}");
        assert!(!text.contains("script") && !text.contains("injected"), "{text}");
        assert!(
            text.contains("Referrer-Policy: no-referrer") && text.contains("no-store"),
            "{text}"
        );
        assert!(login.is_running(), "{target}");
    }
    // The person completes it.
    let end = follow(&url).unwrap();
    assert_eq!(end.status, 200, "{end:?}");
    assert!(end.body.contains("Login complete"), "{end:?}");
    let (code, _, stderr) = login.end();
    assert_eq!(code, Some(0), "{stderr}");
    // Its response cannot be replayed: no one listens any longer, and another login has another state.
    let used = end.visited.last().unwrap().clone();
    let mut second = world.begin_login(&[]);
    second.url().unwrap();
    let target = used.strip_prefix(&format!("http://{own}")).unwrap();
    assert_eq!(request(&world, target, own).0, 400);
    assert!(second.is_running());
    second.cancel();
    second.end();
    world.has_no_secret(&stderr);
}

#[test]
fn a_code_that_belongs_to_somebody_else_is_not_redeemed() {
    // The attacker knows the state, and injects a code of their own: the verifier does not match it.
    let world = World::new();
    let (mut victim, mut attacker) = (world.begin_login(&[]), World::new());
    attacker.redirect = world.redirect.clone();
    let url = victim.url().unwrap();
    let own = world.redirect.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let value = |url: &str, name: &str| {
        let found = url.split(&['?', '&']).find_map(|pair| pair.strip_prefix(&format!("{name}=")));
        found.unwrap().to_string()
    };
    // The same request with the attacker's own challenge.
    let other = url.replace(&value(&url, "code_challenge"), &"A".repeat(43));
    let end = follow(&other);
    drop(end);
    let (code, _, stderr) = victim.end();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("invalid_grant"), "{stderr}");
    assert_eq!(world.logins()[0]["state"], "needs login");
    assert!(own.starts_with("127."));
}

#[test]
fn the_token_goes_only_to_the_origin_of_the_login() {
    let world = World::new();
    world.logged_in();
    assert_eq!(world.gateway().whoami()["subject"], "alice");
    // Somebody changes the URL of the server, but not its name.
    let elsewhere = ProtectedServer::start(&world.tokens, ProtectedSwitches::default()).unwrap();
    let login = world.login_with(&json!({}));
    world.configure_server(&json!({"url": elsewhere.url(), "login": login}));
    let mut gateway = world.gateway();
    assert_eq!(gateway.call("whoami")["error"]["data"]["error"], "needs_login");
    world.has_no_secret(&format!("{:?}", elsewhere.seen()));
}

#[test]
fn no_output_has_a_token() {
    let world = World::new();
    world.logged_in();
    let mut gateway = world.gateway();
    assert_eq!(gateway.whoami()["subject"], "alice");
    world.tokens.expire_access_tokens();
    assert_eq!(gateway.whoami()["subject"], "alice");
    for arguments in [
        &["status", "--json"][..],
        &["status"],
        &["logins"],
        &["logins", "--json"],
        &["doctor", "--json"],
        &["check"],
        &["audit", "query", "--json"],
    ] {
        // `run` checks the output.
        let ran = world.run(arguments);
        assert!(!ran.stdout.is_empty() || !ran.stderr.is_empty(), "{arguments:?}");
    }
    eventually("the refresh is recorded", || {
        world.records().iter().any(|record| record["what"] == "refresh")
    });
    world.files_have_no_secret();
}
