//! Servers that start slowly are started once, and asked in both protocol versions on the same process.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::kit::*;

/// How a server reacts to the first message of the protocol version that it does not support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    Rejects,
    Ignores,
    Exits,
}

/// A server that takes this many seconds to start.
fn slow(server: Server, seconds: u64) -> Server {
    server.set_start_takes(Duration::from_secs(seconds));
    server
}

fn legacy(unknown: Unknown, seconds: u64) -> Server {
    let server = slow(Server::legacy(&["echo"]), seconds);
    match unknown {
        Unknown::Rejects => {}
        Unknown::Ignores => drop(server.on("server/discover", |_| vec![])),
        Unknown::Exits => drop(server.on("server/discover", |_| vec![Step::Close])),
    }
    server
}

/// Lists until the server is listed: it may take longer than a listing waits.
async fn listed(client: &Client) {
    let listed = async {
        let tools = || async {
            let answer = client.request("tools/list", json!({})).await;
            answer["result"]["tools"].as_array().map_or(0, Vec::len)
        };
        while tools().await == 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    within_an_hour("the server is listed", listed).await;
}

/// The starts of a server for a client of a new gateway, which lists and calls.
async fn starts(server: &Server, kind: Kind, state: &Path) -> usize {
    let before = server.connections();
    // The client waits for the server itself.
    let gate = gate(&config("cache: false", "echo"), server).state(state).start();
    let client = gate.client(kind).await;
    listed(&client).await;
    let answer = client.call("echo").await;
    assert!(answer["result"].is_object(), "{kind:?}: {answer}");
    server.connections() - before
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_is_started_once_whatever_it_and_its_client_support() {
    for seconds in [0, 3, 20, 40] {
        for kind in Kind::ALL {
            for make in [Server::legacy, Server::modern, Server::both] {
                let (server, state) =
                    (slow(make(&["echo"]), seconds), tempfile::tempdir().unwrap());
                for run in ["first", "second"] {
                    let started = starts(&server, kind, state.path()).await;
                    assert_eq!(started, 1, "{kind:?}, {seconds} s, {run} run");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_that_exits_on_an_unknown_method_is_started_twice_on_the_first_run_only() {
    for seconds in [0, 3, 20, 40] {
        for kind in [Kind::StdioModern, Kind::HttpModern] {
            let (server, state) = (legacy(Unknown::Exits, seconds), tempfile::tempdir().unwrap());
            let runs = [2, 1, 1];
            for (run, expected) in runs.into_iter().enumerate() {
                let started = starts(&server, kind, state.path()).await;
                assert_eq!(started, expected, "{kind:?}, {seconds} s, run {run}");
            }
        }
        let (server, state) = (legacy(Unknown::Exits, seconds), tempfile::tempdir().unwrap());
        assert_eq!(starts(&server, Kind::StdioLegacy, state.path()).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_that_ignores_an_unknown_method_is_asked_on_the_same_process() {
    for seconds in [0, 3, 20, 40] {
        let (server, state) = (legacy(Unknown::Ignores, seconds), tempfile::tempdir().unwrap());
        for (run, discovers) in [1, 1].into_iter().enumerate() {
            assert_eq!(starts(&server, Kind::StdioModern, state.path()).await, 1);
            let asked = server.received("server/discover").len();
            assert_eq!(asked, discovers, "{seconds} s, run {run}: it is remembered");
        }
    }
}

/// A server of both protocol versions whose process serves the one that it was asked last.
fn serving_the_latest(seconds: u64) -> Server {
    let server = slow(Server::both(&["echo"]), seconds);
    let discovers = AtomicUsize::new(0);
    server.on("server/discover", move |request| {
        let result = json!({
            "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 60000,
            "cacheScope": "private", "resultType": "complete",
        });
        match discovers.fetch_add(1, Ordering::Relaxed) {
            1 => vec![Step::Error(request["id"].clone(), -32601, "this is a session")],
            _ => vec![Step::Result(request["id"].clone(), result)],
        }
    });
    server
}

/// Whether the server got its latest call in the modern protocol version.
fn is_called_as_modern(server: &Server) -> bool {
    let calls = server.received("tools/call");
    let meta = &calls.last().unwrap()["params"]["_meta"];
    meta.get("io.modelcontextprotocol/protocolVersion").is_some()
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_that_serves_the_latest_handshake_is_started_once() {
    let state = tempfile::tempdir().unwrap();
    for kind in [Kind::StdioModern, Kind::HttpModern] {
        // So slow that `initialize` is sent before it responds to `server/discover`. It serves only the former then,
        // and the client's requests are translated.
        let server = serving_the_latest(40);
        let gate = gate(&config("cache: false", "echo"), &server).state(state.path()).start();
        let client = gate.client(kind).await;
        for _ in 0..3 {
            listed(&client).await;
            assert!(client.call("echo").await["result"].is_object());
            tokio::time::sleep(Duration::from_secs(3600)).await;
        }
        assert_eq!(server.connections(), 1, "{kind:?}");
        assert!(!is_called_as_modern(&server), "{kind:?}");
    }
    // It is not taken for a legacy server in the next run, when it starts faster.
    let server = serving_the_latest(3);
    assert_eq!(starts(&server, Kind::StdioModern, state.path()).await, 1);
    assert!(is_called_as_modern(&server));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_serves_the_latest_handshake_serves_clients_of_both_eras() {
    let server = serving_the_latest(10);
    let gate = gate(&config("cache: false", "echo"), &server).start();
    let modern = gate.client(Kind::HttpModern).await;
    let legacy = gate.client(Kind::HttpLegacy).await;
    tokio::join!(listed(&modern), listed(&legacy));
    assert!(legacy.call("echo").await["result"].is_object());
    assert!(!is_called_as_modern(&server));
    // The session of one client cannot be used for another, so there is a second process.
    assert!(modern.call("echo").await["result"].is_object());
    assert!(is_called_as_modern(&server));
    assert_eq!(server.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_changed_its_era_is_found_after_one_attempt_in_vain() {
    let state = tempfile::tempdir().unwrap();
    for kind in Kind::ALL {
        for (before, after) in [
            (Server::legacy(&["echo"]), Server::modern(&["echo"])),
            (Server::modern(&["echo"]), Server::legacy(&["echo"])),
        ] {
            starts(&before, kind, state.path()).await;
            assert_eq!(starts(&after, kind, state.path()).await, 1, "{kind:?}");
            // The memory is corrected.
            let handshakes = |server: &Server| {
                server.received("initialize").len() + server.received("server/discover").len()
            };
            let so_far = handshakes(&after);
            assert_eq!(starts(&after, kind, state.path()).await, 1, "{kind:?}");
            assert_eq!(handshakes(&after), so_far + 1, "{kind:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_remembered_server_that_exits_in_its_era_is_tried_in_the_other() {
    let state = tempfile::tempdir().unwrap();
    starts(&Server::legacy(&["echo"]), Kind::StdioModern, state.path()).await;
    let server = Server::modern(&["echo"]);
    server.on("initialize", |_| vec![Step::Close]);
    assert_eq!(starts(&server, Kind::StdioModern, state.path()).await, 2);
    assert_eq!(starts(&server, Kind::StdioModern, state.path()).await, 1);
}

/// A client of one server that probes for the modern protocol version and waits for the response.
async fn probed(server: &Server, state: &Path) -> (Client, Value) {
    let gate = gate(&config("cache: false", "echo"), server).state(state).wrapping().start();
    let client = gate.client(Kind::StdioModern).await;
    let found = client.request("server/discover", json!({})).await;
    (client, found)
}

async fn calls(client: &Client) {
    listed(client).await;
    let answer = client.request("tools/call", json!({"name": "echo"})).await;
    assert!(answer["result"].is_object(), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_wrapped_server_is_started_once_for_a_client_that_probes() {
    for seconds in [0, 3, 20] {
        for (unknown, runs) in
            [(Unknown::Rejects, [1, 1]), (Unknown::Ignores, [1, 1]), (Unknown::Exits, [2, 1])]
        {
            let (server, state) = (legacy(unknown, seconds), tempfile::tempdir().unwrap());
            for expected in runs {
                let before = server.connections();
                let (client, found) = probed(&server, state.path()).await;
                assert_eq!(found["error"]["code"], -32601, "{unknown:?}: {found}");
                calls(&client.fall_back().await).await;
                assert_eq!(server.connections() - before, expected, "{unknown:?}, {seconds} s");
            }
        }
        for server in [Server::modern(&["echo"]), Server::both(&["echo"])] {
            let (server, state) = (slow(server, seconds), tempfile::tempdir().unwrap());
            let (client, found) = probed(&server, state.path()).await;
            assert!(found["result"].is_object(), "{found}");
            calls(&client).await;
            assert_eq!(server.connections(), 1, "{seconds} s");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_gives_up_its_probe_continues_on_the_same_process() {
    for unknown in [Unknown::Rejects, Unknown::Ignores, Unknown::Exits] {
        let server = legacy(unknown, 20);
        let gate = gate(&allow("echo"), &server).wrapping().start();
        let client = gate.client(Kind::StdioModern).await;
        let _probe = client.begin("server/discover", json!({}));
        tokio::time::sleep(Duration::from_secs(5)).await;
        let client = client.fall_back().await;
        calls(&client).await;
        let expected = if unknown == Unknown::Exits { 2 } else { 1 };
        assert_eq!(server.connections(), expected, "{unknown:?}");
        assert_eq!(server.received("tools/call").len(), 1);
    }
}
