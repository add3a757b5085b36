//! Approvals of calls that no longer are what a person was asked about, and approvals by another user.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::approvals::{failure, json_of, run, ticket};
use super::harness::*;

fn token(text: &str) -> String {
    let digest: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digest}")
}

/// A configuration in which both tools of `hub` ask, with a second server over HTTP.
fn asking() -> Setup {
    let ask = |tool: &str| json!({"tool": tool, "ask": {"hold": "100ms"}});
    let tools = json!({"hub": [ask("drop"), ask("other")], "web": [ask("drop"), ask("other")]});
    let allow = json!({"servers": ["hub", "web"], "tools": tools});
    setup()
        .stdio("hub", "both", names(&["drop", "other"]))
        .web("web", "both", names(&["drop", "other"]))
        .set("agents", json!({"a": {"tokens": [token("token-of-agent-a")], "allow": allow}}))
}

fn call(gate: &Gate, tool: &str) -> Value {
    gate.agent("a").modern("tools/call", json!({"name": tool, "arguments": {}}))
}

fn asks(gate: &Gate, tool: &str) -> bool {
    call(gate, tool)["result"]["resultType"] == "input_required"
}

fn listed(gate: &Gate, what: &str) -> usize {
    json_of(&run(gate, &[what, "--json"], None)).as_array().unwrap().len()
}

/// Activates the configuration of the setup, in the running gateway or in the next one.
fn activate(gate: &mut Gate, restarts: bool) {
    if restarts {
        return gate.restart();
    }
    gate.setup.file();
    let reloaded = run(gate, &["reload", "--accept"], None);
    assert!(reloaded.status.success(), "{reloaded:?}");
}

/// Gives a grant for one tool, lets a call of another wait, and changes the configuration and changes it back.
fn assert_void_after(server: &str, change: impl Fn(&mut Value), restarts: bool) {
    let (granted, waits) = (format!("{server}__drop"), format!("{server}__other"));
    let mut gate = asking().start();
    assert!(asks(&gate, &granted));
    let id = ticket(&gate, None)["id"].as_str().unwrap().to_string();
    let approved = run(&gate, &["approve", &id, "--scope", "tool", "--for", "1h"], None);
    assert!(approved.status.success(), "{approved:?}");
    assert!(!asks(&gate, &granted) && asks(&gate, &waits));
    let id = ticket(&gate, None)["id"].as_str().unwrap().to_string();

    // A change of something else keeps both.
    gate.setup.config["agents"]["b"] =
        json!({"allow": {"servers": ["hub"]}, "tokens": [token("b-b-b-b-b-b-b-b-b")]});
    activate(&mut gate, restarts);
    assert_eq!((listed(&gate, "pending"), listed(&gate, "grants")), (1, 1));
    assert!(!asks(&gate, &granted));

    let before = gate.setup.config.clone();
    change(&mut gate.setup.config);
    activate(&mut gate, restarts);
    let is_void = || (listed(&gate, "pending"), listed(&gate, "grants")) == (0, 0);
    eventually("ticket and grant are void", || is_void().then_some(()));
    assert_eq!(failure(&run(&gate, &["approve", &id], None)).0, Some(1));
    gate.setup.config = before;
    activate(&mut gate, restarts);
    assert_eq!((listed(&gate, "pending"), listed(&gate, "grants")), (0, 0));
    let calls = gate.calls(server).len();
    assert!(asks(&gate, &granted) && asks(&gate, &waits));
    assert_eq!(gate.calls(server).len(), calls);
}

#[test]
fn a_changed_command_of_the_server_voids_tickets_and_grants() {
    for restarts in [false, true] {
        let change = |config: &mut Value| {
            let hub = &mut config["servers"]["hub"];
            hub["args"].as_array_mut().unwrap().insert(0, json!("python3"));
            hub["command"] = json!("env");
        };
        assert_void_after("hub", change, restarts);
    }
}

#[test]
fn a_changed_url_of_the_server_voids_tickets_and_grants() {
    for restarts in [false, true] {
        let change = |config: &mut Value| {
            let url = &mut config["servers"]["web"]["url"];
            *url = json!(url.as_str().unwrap().replace("/mcp", "/mcp?tenant=2"));
        };
        assert_void_after("web", change, restarts);
    }
}

#[test]
fn changed_credentials_of_the_agent_void_its_tickets_and_grants() {
    for restarts in [false, true] {
        let change = |config: &mut Value| {
            config["agents"]["a"]["tokens"] = json!([token("token-of-agent-a-2")]);
        };
        assert_void_after("hub", change, restarts);
    }
}

/// Becomes another user, connects to a control socket, sends a line, and prints the reply as JSON.
const CONTROL: &str = "import json, os, socket, sys\n\
    uid = int(sys.argv[3])\n\
    os.setgroups([])\n\
    os.setgid(uid)\n\
    os.setuid(uid)\n\
    control = socket.socket(socket.AF_UNIX)\n\
    try:\n    \
        control.connect(sys.argv[1])\n\
    except PermissionError:\n    \
        print(json.dumps('not permitted'))\n    \
        sys.exit()\n\
    reply = b''\n\
    try:\n    \
        control.sendall(sys.argv[2].encode() + b'\\n')\n    \
        while True:\n        \
            part = control.recv(65536)\n        \
            if not part: break\n        \
            reply += part\n\
    except (BrokenPipeError, ConnectionResetError):\n    \
        pass\n\
    print(json.dumps(reply.decode()))\n";

#[test]
fn another_user_cannot_approve() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can run a process of another user");
        return;
    }
    let gate = asking().start();
    assert!(asks(&gate, "hub__drop"));
    let id = ticket(&gate, None)["id"].as_str().unwrap().to_string();
    let control = gate.file("state/control");
    let mut files = std::fs::read_dir(&control).unwrap().flatten().map(|entry| entry.path());
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|end| end == "sock");
    let socket = files.find(is_socket).unwrap();
    let send = |uid: &str, request: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", CONTROL]).arg(&socket).args([request, uid]);
        let output = command.output().unwrap();
        let reply: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{uid} {request}: {output:?}"));
        reply.as_str().unwrap().to_string()
    };
    let approve = format!("approvals {}", json!({"do": "approve", "id": id}));
    let requests = [&*approve, "approvals {\"do\":\"pending\"}", "status", "reload"];
    for request in requests {
        assert_eq!(send("65534", request), "not permitted", "{request}");
    }
    // Even if someone opens the directories and the socket to all users.
    for (path, mode) in [
        (gate.file(""), 0o755),
        (gate.file("state"), 0o755),
        (control, 0o755),
        (socket.clone(), 0o777),
    ] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    for request in requests {
        assert_eq!(send("65534", request), "", "{request}");
    }
    assert_eq!((listed(&gate, "pending"), listed(&gate, "grants")), (1, 0));
    assert!(gate.calls("hub").is_empty());
    let reply = send("0", &approve);
    assert!(reply.contains("\"approved\":true"), "the request itself is valid: {reply}");
}
