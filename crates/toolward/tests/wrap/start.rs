//! The environment of the server, and the client's handshake.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::*;

/// The names of the server's variables.
fn environment(flags: &[&str]) -> Vec<String> {
    let flags = flags.iter().map(|flag| flag.to_string()).collect();
    let mut wrapped =
        Setup { flags, ..setup("allowed_tools: [\"*\"]\n", names(&["environment"])) }.ready();
    let answer = wrapped.call("environment", json!({}));
    Wrapped::text(&answer).split(' ').map(String::from).collect()
}

#[test]
fn the_server_gets_the_environment_that_the_client_chose() {
    let seen = environment(&["--env", "GIVEN=1"]);
    for name in ["GIVEN", "PATH", "SECRET_OF_THE_CLIENT", "HTTPS_PROXY"] {
        assert!(seen.iter().any(|seen| seen == name), "{name}: {seen:?}");
    }
    assert!(!seen.iter().any(|seen| seen.starts_with("TOOLWARD_")), "{seen:?}");
}

#[test]
fn with_a_clean_environment_the_server_gets_connectivity_and_declared_variables() {
    let seen = environment(&["--clean-env", "--env", "GIVEN=1"]);
    for name in ["GIVEN", "PATH", "HTTPS_PROXY"] {
        assert!(seen.iter().any(|seen| seen == name), "{name}: {seen:?}");
    }
    assert!(!seen.iter().any(|seen| seen == "SECRET_OF_THE_CLIENT"), "{seen:?}");
}

#[test]
fn a_server_that_ends_is_reported_with_the_variables_that_it_did_not_get() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["wrap", "--clean-env", "--audit"])
        .arg(tempfile::tempdir().unwrap().path())
        .args(["--", "sh", "-c", "exit 1"])
        .env("API_KEY_OF_THE_SERVER", "hunter2")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }});
    writeln!(stdin, "{begin}").unwrap();
    let mut answer = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("API_KEY_OF_THE_SERVER"), "{said} {answer}");
    assert!(!said.contains("hunter2") && !answer.contains("hunter2"));
}

#[test]
fn instructions_that_name_a_hidden_tool_are_left_out() {
    let flags = || vec!["--env".into(), "INSTRUCTIONS=Use DAN-ger first.".into()];
    let make =
        || Setup { flags: flags(), ..setup("allowed_tools: [a]\n", names(&["a", "danger"])) };
    let (_, hello) = heard(make, |hello| hello["serverInfo"]["name"] == "scripted");
    assert!(hello["result"].get("instructions").is_none(), "{hello}");
    let make =
        || Setup { flags: flags(), ..setup("allowed_tools: [\"*\"]\n", names(&["a", "danger"])) };
    heard(make, |hello| hello["instructions"] == "Use DAN-ger first.");
}

#[test]
fn a_session_begins_with_initialize_and_begins_once() {
    let mut wrapped = setup("allowed_tools: [a]\n", names(&["a"])).start();
    assert_eq!(wrapped.request(json!(1), "tools/list", json!({}))["error"]["code"], -32600);
    assert!(wrapped.initialize()["result"].is_object());
    assert!(wrapped.initialize()["error"].is_object());
    assert_eq!(wrapped.request(json!(2), "ping", json!({}))["result"], json!({}));
}

#[test]
fn a_request_id_in_use_is_refused() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["hang", "a"])).ready();
    wrapped.list();
    for _ in 0..2 {
        wrapped.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang"}}"#);
    }
    assert_eq!(wrapped.next()["error"]["code"], -32600);
    // A later call has reached the server after everything that was sent before it.
    wrapped.call("a", json!({}));
    assert_eq!(wrapped.forwarded().len(), 2);
}

#[test]
fn an_agent_that_no_rule_names_is_a_start_error() {
    // The agent is `dev`.
    let unknown = "agents: {devs: {allow: {servers: [\"*\"]}}}\n";
    let mut wrapped = setup(unknown, names(&["a"])).start();
    let answer = wrapped.initialize();
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("no agent is named `dev`"), "{message}");
    assert!(message.contains("did you mean `devs`?"), "{message}");
    assert_eq!(wrapped.close(), 3);
    // Rules of `default` apply to any agent, and allowlists have no agents.
    let default = "defaults: {deny_on_missing_agent: false}\nagents: {default: {allow: {servers: [\"*\"]}}}\n";
    for policy in [default, "allowed_tools: [a]\n"] {
        assert_eq!(setup(policy, names(&["a"])).ready().list(), ["a"]);
    }
}

#[test]
fn the_first_request_gets_the_reason_of_a_failed_start() {
    let mut wrapped = setup("alowed_tools: []\n", names(&[])).start();
    let answer = wrapped.initialize();
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("unknown key `alowed_tools`") && message.contains("did you mean"),
        "{message}"
    );
    assert_eq!(wrapped.close(), 3);

    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["wrap", "--audit", folder.path().to_str().unwrap(), "--", "/nonexistent/server"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let line = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    writeln!(child.stdin.as_mut().unwrap(), "{line}").unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer["error"]["message"].as_str().unwrap().contains("cannot be started"), "{answer}");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn conditions_decide_on_the_arguments_that_are_forwarded() {
    let policy = "agents:\n  dev:\n    allow:\n      servers: [s]\n      tools:\n        s: [{tool: write, when: 'args.path.startsWith(\"/srv/\")'}]\n";
    let mut wrapped = setup(policy, names(&["write"])).ready();
    assert_eq!(wrapped.list(), ["write"]);
    assert_eq!(Wrapped::text(&wrapped.call("write", json!({"path": "/srv/a"}))), "did write");
    assert_eq!(wrapped.call("write", json!({"path": "/etc/a"}))["result"]["isError"], true);
    assert_eq!(wrapped.call("write", json!({}))["result"]["isError"], true);
    let twins = wrapped.call("write", json!({"path": "/srv/a", "Path": "/etc/a"}));
    assert_eq!(twins["error"]["code"], -32602);
    assert_eq!(wrapped.forwarded().len(), 1);
}

#[test]
fn a_client_that_probes_the_era_first_starts_the_server_once() {
    const BOTH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/both.py");
    // A server that reports an unknown method continues. One that exits is started again for `initialize`.
    for (unknown, most) in [("answer", 1), ("exit", 2)] {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("tools.json"), names(&["a"]).to_string()).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_toolward"))
            .args(["wrap", "--env", &format!("UNKNOWN={unknown}"), "--audit"])
            .arg(folder.path())
            .args(["--", "python3", BOTH, "stdio", "legacy"])
            .args([file("log"), file("tools.json")])
            .env("HOME", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let meta = "io.modelcontextprotocol/";
        let terms = json!({"_meta": {
            format!("{meta}protocolVersion"): "2026-07-28", format!("{meta}clientCapabilities"): {},
            format!("{meta}clientInfo"): {"name": "c", "version": "1"},
        }});
        let begin = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        });
        let mut ask = |id: u32, method: &str, params: &Value| -> Value {
            let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
            serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap()
        };
        let found = ask(1, "server/discover", &terms);
        assert_eq!(found["error"]["code"], -32601, "{unknown}: {found}");
        let hello = ask(2, "initialize", &begin);
        assert!(hello["result"]["serverInfo"].is_object(), "{unknown}: {hello}");
        let answer = ask(3, "tools/call", &json!({"name": "a"}));
        assert_eq!(Wrapped::text(&answer), "did a", "{unknown}");
        drop(stdin);
        assert!(child.wait().unwrap().success());
        let log = std::fs::read_to_string(file("log")).unwrap();
        let log: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let starts = log.iter().filter(|entry| entry["event"] == "start").count();
        assert_eq!(starts, most, "{unknown}");
        // The process that serves the client has received the client's information.
        let heard = |entry: &&Value| entry["body"].as_str().is_some_and(|b| b.contains("\"c\""));
        assert_eq!(log.iter().filter(heard).count(), 1, "{unknown}");
    }
}
