//! The first listing after a start shows the last known lists, and decides nothing on them.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use toolward_testkit::wait::eventually;

use super::kit::*;

fn slow(tools: &[&str], seconds: u64) -> Server {
    let server = Server::legacy(tools);
    server.set_start_takes(Duration::from_secs(seconds));
    server
}

fn files(state: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(state.join("lists")).into_iter().flatten().flatten();
    files.map(|file| file.path()).filter(|path| path.extension().is_none()).collect()
}

/// A run of the gateway in which a client of this kind lists.
async fn earlier_run(config: &str, tools: &[&str], kind: Kind, state: &Path) {
    let before = files(state).len();
    let gate = gate(config, &Server::legacy(tools)).state(state).start();
    assert_eq!(gate.client(kind).await.list().await.len(), tools.len());
    eventually("the list is stored", || files(state).len() > before);
}

fn names(answer: &Value) -> Vec<&str> {
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_starting_is_listed_at_once_from_the_second_start_on() {
    for kind in Kind::ALL {
        let state = tempfile::tempdir().unwrap();
        earlier_run(&allow("'*'"), &["echo", "other"], kind, state.path()).await;
        let server = slow(&["echo", "other"], 10);
        let gate = gate(&allow("'*'"), &server).state(state.path()).start();
        let client = gate.client(kind).await;
        let begun = Instant::now();
        let answer = client.request("tools/list", json!({})).await;
        assert_eq!(names(&answer), ["s__echo", "s__other"], "{kind:?}");
        assert_eq!(begun.elapsed().as_secs(), 0, "{kind:?}");
        if kind.is_modern() {
            assert_eq!(answer["result"]["ttlMs"], 0, "{kind:?}");
        }
        // A call waits for the server's own list.
        assert!(client.call("echo").await["result"].is_object(), "{kind:?}");
        assert!(begun.elapsed().as_secs() >= 10, "{kind:?}");
        assert_eq!(server.connections(), 1, "{kind:?}");
        // The list did not change.
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(client.notifications("notifications/tools/list_changed").is_empty(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lists_of_every_kind_are_shown_at_once() {
    let rules = "servers: {s: {command: x}}\nagents: {dev: {allow: {servers: [s]}}}\n";
    let lists = [
        ("tools/list", vec!["s__echo"]),
        ("prompts/list", vec!["s__plan"]),
        ("resources/list", vec!["note:1", "note:2"]),
        ("resources/templates/list", vec!["note:{id}"]),
    ];
    let server = |seconds| {
        let server = slow(&["echo"], seconds);
        server
            .set_prompts(&["plan"])
            .set_resources(&["note:1", "note:2"])
            .set_templates(&["note:{id}"]);
        server
    };
    for kind in Kind::ALL {
        let state = tempfile::tempdir().unwrap();
        let first = gate(rules, &server(0)).state(state.path()).start();
        let client = first.client(kind).await;
        for (method, expected) in &lists {
            assert_eq!(client.entries(method).await, *expected, "{kind:?}");
        }
        eventually("the lists are stored", || files(state.path()).len() == lists.len());
        let starting = server(10);
        let second = gate(rules, &starting).state(state.path()).start();
        let client = second.client(kind).await;
        let begun = Instant::now();
        for (method, expected) in &lists {
            assert_eq!(client.entries(method).await, *expected, "{kind:?}");
        }
        assert_eq!(begun.elapsed().as_secs(), 0, "{kind:?}");
        // Reading waits for the server: nothing is decided on a stored list.
        let answer = client.request("resources/read", json!({"uri": "note:2"})).await;
        assert!(answer["result"].is_object(), "{kind:?} {answer}");
        assert!(begun.elapsed().as_secs() >= 10, "{kind:?}");
        assert_eq!(starting.connections(), 1, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrapped_server_is_listed_before_it_has_started() {
    let (state, kind) = (tempfile::tempdir().unwrap(), Kind::StdioLegacy);
    for (seconds, longest) in [(10, 11), (10, 1)] {
        let gate =
            gate(&allow("'*'"), &slow(&["echo"], seconds)).state(state.path()).wrapping().start();
        let begun = Instant::now();
        assert_eq!(gate.client(kind).await.list().await, ["echo"]);
        assert!(begun.elapsed().as_secs() <= longest);
        eventually("the list is stored", || !files(state.path()).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_decided_on_the_servers_own_list_only() {
    let (state, kind) = (tempfile::tempdir().unwrap(), Kind::StdioLegacy);
    earlier_run(&allow("'*'"), &["echo", "gone"], kind, state.path()).await;
    let server = slow(&["echo", "fresh"], 10);
    let gate = gate(&allow("'*'"), &server).state(state.path()).start();
    let client = gate.client(kind).await;
    assert_eq!(client.list().await, ["s__echo", "s__gone"]);
    let gone = client.call("gone").await;
    assert!(gone.get("error").is_some(), "{gone}");
    assert!(server.received("tools/call").is_empty());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(client.notifications("notifications/tools/list_changed").len(), 1);
    assert_eq!(client.list().await, ["s__echo", "s__fresh"]);
}

#[tokio::test(start_paused = true)]
async fn a_stored_list_is_filtered_by_the_current_policy() {
    let (state, kind) = (tempfile::tempdir().unwrap(), Kind::StdioLegacy);
    earlier_run(&allow("'*'"), &["echo", "secret"], kind, state.path()).await;
    let server = slow(&["echo", "secret"], 10);
    let gate = gate(&allow("echo"), &server).state(state.path()).start();
    assert_eq!(gate.client(kind).await.list().await, ["s__echo"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_is_no_longer_listed() {
    let (state, kind) = (tempfile::tempdir().unwrap(), Kind::StdioLegacy);
    earlier_run(&allow("'*'"), &["echo"], kind, state.path()).await;
    let server = Server::legacy(&["echo"]);
    server.set_unstartable(true);
    let gate = gate(&allow("'*'"), &server).state(state.path()).start();
    let client = gate.client(kind).await;
    client.list().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(client.notifications("notifications/tools/list_changed").len(), 1);
    assert!(client.list().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_cache_is_waited_for() {
    let (state, kind) = (tempfile::tempdir().unwrap(), Kind::StdioLegacy);
    let server = slow(&["echo"], 10);
    let config = config("cache: false", "'*'");
    for _ in 0..2 {
        let gate = gate(&config, &server).state(state.path()).start();
        let begun = Instant::now();
        assert_eq!(gate.client(kind).await.list().await, ["s__echo"]);
        assert!(begun.elapsed().as_secs() >= 10);
    }
    assert!(files(state.path()).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stored_list_is_private_and_a_damaged_one_is_ignored() {
    let (state, kind) = (tempfile::tempdir().unwrap(), Kind::StdioLegacy);
    earlier_run(&allow("'*'"), &["echo"], kind, state.path()).await;
    let file = &files(state.path())[0];
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    for damage in ["", "{", "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"tools\":5}}"] {
        std::fs::write(file, damage).unwrap();
        let gate = gate(&allow("'*'"), &slow(&["echo"], 10)).state(state.path()).start();
        let begun = Instant::now();
        assert_eq!(gate.client(kind).await.list().await, ["s__echo"], "{damage}");
        assert!(begun.elapsed().as_secs() >= 10, "{damage}");
        eventually("it is replaced", || std::fs::read_to_string(file).unwrap() != damage);
    }
}
