//! Registered clients are used again, logouts are revoked, and a kill while a login is written loses nothing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;
use toolward_testkit::authorization_server::{Refresh, Revocation};
use toolward_testkit::wait::eventually;

use crate::world::World;

fn registrations(world: &World) -> usize {
    world.tokens.seen_at("/register").len()
}

#[test]
fn a_registration_is_used_again_while_the_server_knows_it() {
    for registration in ["open", "confidential"] {
        let world = World::with(json!({"registration": registration}), json!({}));
        world.logged_in();
        world.logged_in();
        assert_eq!(world.run(&["logout", "it"]).code, 0);
        world.logged_in();
        assert_eq!(registrations(&world), 1, "{registration}");
        world.tokens.forget_clients();
        world.logged_in();
        assert_eq!(registrations(&world), 2, "{registration}");
        assert_eq!(world.gateway().whoami()["subject"], "alice");
        world.files_have_no_secret();
    }
}

#[test]
fn another_redirect_address_and_a_login_that_was_not_completed_register_again() {
    let mut world = World::new();
    world.logged_in();
    let mut login = world.begin_login(&[]);
    assert!(login.url().is_some());
    login.cancel();
    login.end();
    assert_eq!(registrations(&world), 1);
    // The provider may have shown an error to the browser only.
    world.logged_in();
    assert_eq!(registrations(&world), 2);
    world.redirect = world.redirect.replace("/oauth/callback", "/other");
    world.configure(&json!({}));
    world.logged_in();
    assert_eq!(registrations(&world), 3);
}

#[test]
fn a_logout_revokes_the_login_at_the_provider() {
    let world = World::with(json!({"revocation": "supported"}), json!({}));
    world.logged_in();
    let ran = world.run(&["logout", "it"]);
    assert!(ran.code == 0 && ran.stdout.contains("is revoked at"), "{ran:?}");
    assert_eq!(world.tokens.counts().live_grants, 0);
    let hints: Vec<_> = world.tokens.seen_at("/revoke");
    let hints: Vec<_> = hints.iter().map(|one| one.form()["token_type_hint"].clone()).collect();
    assert_eq!(hints, ["refresh_token", "access_token"]);
    // A provider that fails: it is said, and the login is removed nevertheless.
    world.logged_in();
    world.tokens.switch(|switches| switches.revocation = Revocation::Fails);
    let ran = world.run(&["logout", "it"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("did not revoke") && ran.stderr.contains("503"), "{ran:?}");
    assert!(ran.stdout.contains("may still be listed"), "{ran:?}");
    assert_eq!(world.run(&["logout", "it"]).code, 1);
    assert_eq!(world.tokens.counts().live_grants, 1);
}

/// The file of the only login.
fn grant_file(world: &World) -> PathBuf {
    let files = fs::read_dir(world.path("state").join("logins")).unwrap();
    let mut files = files.map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|end| end == "grant")).unwrap()
}

#[test]
fn a_kill_before_the_new_login_is_in_place_leaves_the_old_one() {
    let world = World::new();
    world.tokens.switch(|switches| switches.refresh = Refresh::Fixed);
    world.logged_in();
    let mut gateway = world.gateway();
    gateway.tools();
    let file = grant_file(&world);
    let (before, temporary) = (fs::read(&file).unwrap(), file.with_extension("new"));
    // A pipe that no one reads: the process stops where it opens the temporary file.
    assert!(Command::new("mkfifo").arg(&temporary).status().unwrap().success());
    world.tokens.expire_access_tokens();
    gateway.send("tools/call", &json!({"name": "it__whoami", "arguments": {}}));
    eventually("the new token is issued", || world.tokens.counts().refreshes == 1);
    gateway.kill();
    assert!(fs::read(&file).unwrap() == before, "the login was replaced");
    // As after a kill in the middle of the write.
    fs::remove_file(&temporary).unwrap();
    fs::write(&temporary, &before[..before.len() / 2]).unwrap();
    assert_eq!(world.gateway().whoami()["subject"], "alice");
    assert!(!temporary.exists());
    assert_eq!(world.tokens.counts().live_grants, 1);
}

#[test]
fn a_kill_after_the_new_login_is_in_place_loses_nothing() {
    let world = World::new();
    world.logged_in();
    let mut gateway = world.gateway();
    gateway.tools();
    let file = grant_file(&world);
    let before = fs::read(&file).unwrap();
    world.tokens.expire_access_tokens();
    gateway.send("tools/call", &json!({"name": "it__whoami", "arguments": {}}));
    eventually("the login is replaced", || fs::read(&file).unwrap() != before);
    gateway.kill();
    assert_eq!(world.gateway().whoami()["subject"], "alice");
    let counts = world.tokens.counts();
    assert_eq!((counts.refreshes, counts.reused, counts.live_grants), (1, 0, 1));
}
