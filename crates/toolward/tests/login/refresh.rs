//! The access token of a login is refreshed, and a live login is never lost.

use serde_json::json;
use toolward_testkit::authorization_server::{Hold, Refresh, TokenFault};
use toolward_testkit::wait::eventually;

use crate::world::World;

#[test]
fn a_token_is_refreshed_before_it_expires_and_if_the_server_rejects_it() {
    let world = World::with(json!({"lifetime": 300}), json!({}));
    world.logged_in();
    let mut gateway = world.gateway();
    assert_eq!(gateway.whoami()["subject"], "alice");
    assert_eq!(world.tokens.counts().refreshes, 0);
    world.tokens.expire_access_tokens();
    assert_eq!(gateway.whoami()["subject"], "alice");
    assert_eq!(world.tokens.counts().refreshes, 1);
    let events: Vec<_> = world.records().iter().map(|record| record["what"].clone()).collect();
    assert_eq!(events.first(), Some(&json!("login")));
    eventually("the refresh is recorded", || {
        world.records().iter().any(|record| record["what"] == "refresh")
    });
    world.files_have_no_secret();
}

#[test]
fn tokens_of_fifteen_seconds_are_refreshed_ahead() {
    // With two announced seconds instead, so that the test is quick. The server accepts the tokens for longer, so that
    // a slow machine does not matter: each refresh happens because of the announced time.
    let world = World::with(json!({"lifetime": 300, "expires_in": 2}), json!({}));
    world.logged_in();
    let mut gateway = world.gateway();
    eventually("two refreshes", || {
        assert_eq!(gateway.whoami()["subject"], "alice");
        world.tokens.counts().refreshes >= 2
    });
    assert!(
        world
            .protected
            .seen()
            .iter()
            .all(|request| request.field("authorization").is_empty() || request.status != 401)
    );
    assert_eq!(world.tokens.counts().reused, 0);
    assert_eq!(world.tokens.counts().live_grants, 1);
}

#[test]
fn a_401_in_the_middle_of_a_call_is_repeated_once() {
    let world = World::new();
    world.logged_in();
    let mut gateway = world.gateway();
    gateway.tools();
    world.protected.switch(|switches| switches.reject_next_calls = 1);
    assert_eq!(gateway.whoami()["subject"], "alice");
    assert_eq!(world.tokens.counts().refreshes, 1);
    // A server that rejects every token causes no refresh per call.
    world.protected.switch(|switches| switches.reject_next_calls = 100);
    for _ in 0..5 {
        let refused = gateway.call("whoami");
        assert!(refused["error"].is_object(), "{refused}");
    }
    assert!(world.tokens.counts().refreshes <= 2, "{:?}", world.tokens.counts());
}

#[test]
fn after_an_error_the_old_token_is_used_to_its_end() {
    // Five seconds before the end of 20, a refresh is due.
    let world = World::with(json!({"lifetime": 300, "expires_in": 20}), json!({}));
    world.logged_in();
    let faults = || TokenFault::Status(503, "busy".into());
    world.tokens.switch(|switches| switches.token_faults = vec![faults(), faults()]);
    // A second gateway: it has only the stored grant.
    let mut gateway = world.gateway();
    eventually("both faults happen", || {
        assert_eq!(gateway.whoami()["subject"], "alice");
        world.tokens.seen_at("/token").len() >= 3
    });
    eventually("a refresh succeeds", || {
        assert_eq!(gateway.whoami()["subject"], "alice");
        world.tokens.counts().refreshes == 1
    });
    assert_eq!(world.tokens.counts().live_grants, 1);
}

#[test]
fn a_refresh_with_a_bad_response_loses_nothing() {
    for fault in
        [json!({"expires_in": -1}), json!({"token_type": "mac"}), json!({"access_token": "a\nb"})]
    {
        let world = World::new();
        world.logged_in();
        let mut gateway = world.gateway();
        assert_eq!(gateway.whoami()["subject"], "alice");
        world.tokens.switch(|switches| switches.apply(&fault).unwrap());
        world.tokens.expire_access_tokens();
        assert!(gateway.call("whoami")["error"].is_object(), "{fault}");
        assert_eq!(world.logins()[0]["lost"], json!(null), "{fault}");
        world.tokens.switch(|switches| {
            let usual = json!({"expires_in": 300, "token_type": "Bearer", "access_token": null});
            switches.apply(&usual).unwrap();
        });
        let mut gateway = world.gateway();
        assert_eq!(gateway.whoami()["subject"], "alice", "{fault}");
        assert_eq!(world.tokens.counts().reused, 0, "{fault}");
    }
}

#[test]
fn the_grant_survives_a_kill_at_every_point_of_a_refresh() {
    // A server that rotates without any leeway makes the last point fatal for every client: it has already replaced
    // the token that the killed process knew.
    for (hold, refresh) in [
        (Hold::Before, Refresh::Rotating),
        (Hold::Before, Refresh::Fixed),
        (Hold::After, Refresh::Fixed),
    ] {
        let world = World::new();
        world.tokens.switch(|switches| switches.refresh = refresh);
        world.logged_in();
        let mut gateway = world.gateway();
        gateway.tools();
        world.tokens.expire_access_tokens();
        world.tokens.switch(|switches| switches.hold = hold);
        gateway.send("tools/call", &json!({"name": "it__whoami", "arguments": {}}));
        eventually("the refresh is in flight", || world.tokens.held() == 1);
        gateway.kill();
        world.tokens.switch(|switches| {
            switches.hold = Hold::Nothing;
            if hold == Hold::Before {
                // The killed process's request is not carried out.
                switches.token_faults = vec![TokenFault::CloseBefore];
            }
        });
        eventually("the request has ended", || world.tokens.held() == 0);
        let mut next = world.gateway();
        eventually("the next process uses the grant", || {
            next.call("whoami")["result"]["content"].is_array()
        });
        assert_eq!(world.tokens.counts().reused, 0, "{hold:?} {refresh:?}");
        assert_eq!(world.tokens.counts().live_grants, 1, "{hold:?} {refresh:?}");
    }
}

#[test]
fn a_client_that_disconnects_does_not_abandon_a_refresh() {
    let world = World::new();
    world.logged_in();
    let mut gateway = world.gateway();
    gateway.tools();
    world.tokens.expire_access_tokens();
    world.tokens.switch(|switches| switches.hold = Hold::After);
    let id = gateway.send("tools/call", &json!({"name": "it__whoami", "arguments": {}}));
    eventually("the refresh is in flight", || world.tokens.held() == 1);
    gateway.cancel(id);
    world.tokens.switch(|switches| switches.hold = Hold::Nothing);
    eventually("the new token is stored", || world.logins()[0]["refreshes"] == 1);
    assert_eq!(gateway.whoami()["subject"], "alice");
    assert_eq!(world.tokens.counts().refreshes, 1);
}
