//! Logins in a real browser: Chromium, driven by playwright-core. `./test` installs both.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use toolward_testkit::wait::eventually;

use crate::world::World;

/// Runs the person's part; false if there is no browser.
fn person(facts: &Value) -> bool {
    let Some(peers) = std::env::var_os("TOOLWARD_PEERS") else {
        eprintln!("skipped: ./test installs a browser, and sets TOOLWARD_PEERS");
        return false;
    };
    let output = Command::new(Path::new(&peers).join("node"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/login/person.mjs"))
        .arg(facts.to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{facts}: {why}");
    true
}

#[test]
fn a_person_logs_in_with_chromium() {
    let mut world = World::with(json!({"sign_in": "page"}), json!({}));
    // The browser reaches only this address.
    world.redirect = format!("http://localhost:{}/oauth/callback", free_port());
    world.configure(&json!({}));
    for (button, title, code) in [("#deny", "Login failed", 1), ("#as-bob", "Login complete", 0)] {
        let mut login = world.begin_login(&[]);
        let url = login.url().unwrap();
        let facts = json!({"url": url, "button": button, "title": title, "redirect": world.redirect,
            "page": "http://localhost/"});
        if !person(&facts) {
            login.cancel();
            return;
        }
        let (ended, _, stderr) = login.end();
        assert_eq!(ended, Some(code), "{button}: {stderr}");
    }
    assert_eq!(world.gateway().whoami()["subject"], "bob");
}

#[test]
fn a_running_gateway_passes_the_response_on() {
    let mut world = World::with(json!({"sign_in": "page"}), json!({}));
    let port = free_port();
    world.redirect = format!("http://127.0.0.1:{port}/oauth/callback");
    world.serve_admin(port);
    let mut serving = world.command(&["serve"]).stderr(Stdio::inherit()).spawn().unwrap();
    eventually("the admin UI listens", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let mut login = world.begin_login(&[]);
    let url = login.url().unwrap();
    let facts = json!({"url": url, "button": "#as-alice", "title": "Login complete",
        "redirect": world.redirect, "page": "http://127.0.0.1/"});
    let is_done = person(&facts);
    if !is_done {
        login.cancel();
    }
    let (ended, _, stderr) = login.end();
    let _ = serving.kill();
    let _ = serving.wait();
    if is_done {
        assert_eq!(ended, Some(0), "{stderr}");
        assert_eq!(world.gateway().whoami()["subject"], "alice");
        world.files_have_no_secret();
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}
