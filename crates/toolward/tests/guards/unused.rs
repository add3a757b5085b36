//! `toolward check` on limits and hooks that apply to nothing.

use std::process::Command;

use serde_json::{Value, json};

/// The warnings of `check`, one text per finding.
fn warnings(config: &Value) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let (file, lists) = (folder.path().join("toolward.yaml"), folder.path().join("lists"));
    std::fs::write(&file, config.to_string()).unwrap();
    std::fs::create_dir(&lists).unwrap();
    let tools = json!({"tools": [
        {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
        {"name": "write", "inputSchema": {"type": "object"}},
    ]});
    std::fs::write(lists.join("files.json"), tools.to_string()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["check", "--json", "-c"])
        .arg(&file)
        .arg("--tools")
        .arg(&lists)
        .env("T", "token-of-agent-w")
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let findings = said["findings"].as_array().unwrap().iter();
    findings.map(|finding| format!("{} {}", finding["message"], finding["help"])).collect()
}

fn config(change: impl FnOnce(&mut Value)) -> Value {
    let mut config = json!({
        "admin": "off", "state": "state", "audit": {"dir": "audit"},
        "servers": {"files": {"command": "cat"}, "other": {"command": "cat"}},
        "agents": {"w": {"tokens": ["${T}"], "allow": {"servers": ["*"]}}},
    });
    change(&mut config);
    config
}

fn hook(more: Value) -> Value {
    let mut hook = json!({"name": "h", "exec": ["true"]});
    super::support::merge(&mut hook, more);
    config(|config| config["hooks"] = json!([hook]))
}

#[test]
fn guards_that_name_something_unknown_are_reported() {
    let limits = |tools: Value| config(|config| config["limits"] = json!({"tools": tools}));
    let of_server = |tools: Value| {
        config(|config| config["servers"]["files"]["limits"] = json!({"tools": tools}))
    };
    let of_agent =
        |tools: Value| config(|config| config["agents"]["w"]["limits"] = json!({"tools": tools}));
    let server = |key: &str, value: Value| config(|config| config["servers"]["files"][key] = value);
    for (config, expected) in [
        (limits(json!({"files/wriet": "1/s"})), "did you mean `write`"),
        (limits(json!({"files/hint:open-word": "1/s"})), "hint"),
        (of_server(json!({"nope_*": "1/s"})), "servers.files.limits.tools"),
        (of_server(json!({"files/write": "1/s"})), "leave out the server"),
        (of_agent(json!({"files/nope": "1/s"})), "agents.w.limits.tools"),
        (server("timeout", json!({"nope": "3s"})), "servers.files.timeout.nope"),
        (server("timeout", json!({"hint:read-only": "3s"})), "never-matches"),
        (server("result_bytes", json!({"write.two": 100})), "no-known-tool"),
        (server("result_bytes", json!({"hint:read-only": 100})), "never-matches"),
        (hook(json!({"tools": ["nope"], "servers": ["files"]})), "no-known-tool"),
        (hook(json!({"tools": ["files/write"]})), "files.write"),
        (hook(json!({"agents": ["nobody"]})), "no agent is named `nobody`"),
        (hook(json!({"agents": ["w", "x*"]})), "no agent is named `x*`"),
        (hook(json!({"servers": ["fo*"]})), "no server matches `fo*`"),
    ] {
        let said = warnings(&config);
        assert!(said.iter().any(|one| one.contains(expected)), "{expected}: {said:?}");
    }
}

#[test]
fn guards_that_may_apply_are_not_reported() {
    for config in [
        config(|_| {}),
        config(|config| {
            let tools = json!({
                "files/w*": "1/s", "*/hint:read-only": "1/s", "files/read.one": "1/s",
                "other/unknown": "1/s", "*/unknown": "1/s",
            });
            config["limits"] = json!({"tools": tools});
        }),
        config(|config| {
            config["servers"]["files"]["timeout"] = json!({"write": "3s", "*": "2s"});
            config["servers"]["other"]["result_bytes"] = json!({"unknown": 5});
        }),
        hook(json!({"tools": ["write", "files.read", "hint:read-only"], "servers": ["files"]})),
        hook(json!({"tools": ["unknown"], "agents": ["w"], "servers": ["*"]})),
    ] {
        let said = warnings(&config);
        let guards = ["no-known-tool", "never-matches"];
        let about = |one: &&String| guards.iter().any(|word| one.contains(word));
        assert_eq!(said.iter().find(about), None, "{config}");
    }
}
