//! Clients of every protocol revision with servers of every revision. Python clients and legacy servers are written
//! with the official SDK of that time; the TypeScript SDK supports every revision, and is the modern server.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::harness::{MODERN, setup};
use super::peers::*;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/revisions");

const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The first revision with elicitation.
const ELICITATION: &str = "2025-06-18";
/// The first revision with Streamable HTTP, which `serve` needs.
const STREAMABLE_HTTP: &str = "2025-03-26";

/// The variable that selects the Python SDK of a revision; the newest one is installed as usual.
fn sdk(peers: &Peers, revision: &str) -> String {
    let folder = peers.file(&format!("sdk/{revision}"));
    assert!(revision == MODERN || folder.exists(), "the SDK of {revision} is not installed");
    format!("PYTHONPATH={}", folder.display())
}

/// The command of a server that supports this revision and, if it is a legacy one, older ones.
fn server(peers: &Peers, revision: &str) -> Vec<String> {
    let file = |name: &str| peers.file(name).display().to_string();
    let script = |name: &str| Path::new(SCRIPTS).join(name).display().to_string();
    let words = match revision {
        MODERN => [format!("TOOLWARD_PEERS={}", file("")), file("node"), script("server.mjs")],
        _ => [sdk(peers, revision), file("python/bin/python"), script("server.py")],
    };
    ["/usr/bin/env".into()].into_iter().chain(words).collect()
}

/// The SDK that a client is written with.
#[derive(Clone, Copy, Debug)]
enum Sdk {
    Python,
    TypeScript,
}

/// The output of a client of this revision.
fn see(peers: &Peers, written_with: Sdk, revision: &str, at: &At) -> Value {
    let mut command = Command::new("/usr/bin/env");
    let script = |name: &str| Path::new(SCRIPTS).join(name);
    match written_with {
        Sdk::Python => command
            .arg(sdk(peers, revision))
            .arg(peers.file("python/bin/python"))
            .arg(script("client.py")),
        Sdk::TypeScript => command
            .arg(format!("TOOLWARD_PEERS={}", peers.file("").display()))
            .arg(peers.file("node"))
            .arg(script("client.mjs"))
            .arg(revision),
    };
    match at {
        At::Command(words) => command.arg("--stdio").args(words),
        At::Url { url, token } => command.args(["--url", url, token]),
    };
    let output = command.stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let client = format!("a {written_with:?} client of {revision} at {at:?}");
    assert!(output.status.success(), "{client}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{client}: {error}"))
}

/// A client of one revision gets everything from a server of another.
fn assert_served(client: &str, server: &str, mut seen: Value) {
    let asks = server >= ELICITATION;
    let ask = seen["ask"].take();
    let answered = if client >= ELICITATION { "accept Ada" } else { "refused" };
    if asks {
        let ask = ask.as_str().unwrap();
        assert!(ask.starts_with(answered), "client {client}, server {server}: {ask}");
    }
    // The gateway responds in the client's own revision, or in the server's if it is an older legacy one and
    // known by then.
    let revision = seen["revision"].take();
    let older = client != MODERN && revision == server && server < client;
    assert!(revision == client || older, "client {client}, server {server}: {revision}");
    let expected = json!({
        "revision": null,
        "tools": if asks { json!(["add", "ask"]) } else { json!(["add"]) },
        "call": "3",
        "prompts": ["greet"],
        "prompt": "Greet Ada.",
        "resources": ["test://notes/today"],
        "read": "grüße",
        "ask": null,
    });
    assert_eq!(seen, expected, "client {client}, server {server}");
}

/// Every client with every server of these revisions, through `serve` and through `wrap`.
fn all_pairs(sdk: Sdk, revisions: &[&str]) {
    let Some(peers) = peers() else { return };
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("all.yaml");
    std::fs::write(&policy, "allowed_tools: [\"*\"]\n").unwrap();
    let patient = setup().set("list_timeout", json!("60s"));
    let gate = revisions
        .iter()
        .fold(patient, |setup, revision| {
            let command = server(&peers, revision);
            setup.server(revision, json!({"command": command[0], "args": command[1..]}))
        })
        .agents(json!({"a": {"allow": {"servers": ["*"]}}}))
        .start();
    for server_revision in revisions.iter().copied() {
        let words = ["wrap", "--audit", "audit", "--policy", "all.yaml", "--name", "s", "--"];
        let words = words.map(|word| match word {
            "audit" | "all.yaml" => folder.path().join(word).display().to_string(),
            _ => word.to_string(),
        });
        let program = [env!("CARGO_BIN_EXE_toolward").to_string()].into_iter();
        let words = program.chain(words).chain(server(&peers, server_revision));
        let wrapped = At::Command(words.collect());
        let served = place(&gate, "a", &format!("/mcp/{server_revision}"));
        for client_revision in revisions.iter().copied() {
            let seen = see(&peers, sdk, client_revision, &wrapped);
            assert_served(client_revision, server_revision, seen);
            if client_revision >= STREAMABLE_HTTP {
                let seen = see(&peers, sdk, client_revision, &served);
                assert_served(client_revision, server_revision, seen);
            }
        }
    }
}

const BOTH: [&str; 2] = ["2025-11-25", MODERN];

#[test]
fn python_clients_and_servers_of_both_protocol_versions_work_together() {
    all_pairs(Sdk::Python, &BOTH);
}

#[test]
fn typescript_clients_and_servers_of_both_protocol_versions_work_together() {
    all_pairs(Sdk::TypeScript, &BOTH);
}

#[test]
fn python_clients_of_every_revision_work_with_servers_of_every_revision() {
    if full() {
        all_pairs(Sdk::Python, &[&LEGACY[..], &[MODERN]].concat());
    }
}

#[test]
fn typescript_clients_of_every_revision_work_with_servers_of_every_revision() {
    if full() {
        all_pairs(Sdk::TypeScript, &[&LEGACY[..], &[MODERN]].concat());
    }
}
