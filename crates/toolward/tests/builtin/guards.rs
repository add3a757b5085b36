//! Rate limits and hooks in front of calls through `execute_tool`.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::harness::*;
use super::support::*;

fn passed(answer: &Value) -> bool {
    answer["result"]["isError"] != true && answer["result"].is_object()
}

fn limit(answer: &Value) -> Value {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    answer["result"]["_meta"]["io.toolward/refusal"]["limit"].clone()
}

#[test]
fn a_limit_counts_a_call_once_whichever_way_it_comes() {
    let gate = world()
        .set("limits", json!({"calls": "5/day", "tools": {"files/read_file": "2/day", "toolward/execute_tool": "3/day"}}))
        .agents(everyone())
        .start();
    let a = gate.agent("a");
    assert!(passed(&a.call("files__read_file", json!({}))));
    assert!(passed(&execute(&a, "files", "read_file", json!({}))));
    let answer = execute(&a, "files", "read_file", json!({}));
    assert_eq!(limit(&answer), json!("calls of this kind by all agents"));
    assert!(text(&answer).starts_with("files/read_file is not permitted at this rate"), "{answer}");
    assert!(text(&answer).contains("the limit of 2/day on"), "{answer}");
    // Refused calls consumed nothing, neither of the tool's limit nor of `execute_tool`'s.
    assert!(passed(&execute(&a, "files", "write_file", json!({}))));
    assert!(passed(&execute(&a, "files", "write_file", json!({}))));
    assert_eq!(
        limit(&execute(&a, "files", "write_file", json!({}))),
        json!("calls of this kind by all agents")
    );
    assert!(passed(&a.call("files__write_file", json!({}))));
    assert_eq!(limit(&a.call("files__write_file", json!({}))), json!("all calls by all agents"));
    assert_eq!(gate.calls("files").len(), 5);
    let refusals = records(&gate, "refusal");
    assert_eq!(
        (&refusals[1]["tool"], &refusals[1]["via"]),
        (&json!("write_file"), &json!("toolward/execute_tool"))
    );
}

#[test]
fn only_the_limits_of_the_agent_are_described() {
    let gate = world()
        .set("limits", json!({"tools": {"files/*": "50/min", "files/remove_file": "1/day", "secret/*": "1/day"}}))
        .with("tracker", "limits", json!({"calls": "9/s"}))
        .server("secret", json!({"command": "false", "limits": {"calls": "1/s"}}))
        .agents(json!({
            "a": {
                "allow": {"servers": ["files", "toolward"], "tools": {"files": [{"tool": "read_file", "limit": "3/h"}, "list_folder"]}},
                "limits": {"calls": "100/min", "lists": "10/min", "refused": "5/s"},
            },
            "b": {"allow": {"servers": ["*"]}, "limits": {"calls": "7/min"}},
        }))
        .start();
    let config = said(&own(&gate.agent("a"), "server_config", json!({})));
    let limits: Vec<String> = config["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{} {}", one["limit"].as_str().unwrap(), one["rate"].as_str().unwrap()))
        .collect();
    assert_eq!(
        limits,
        [
            "limits.tools[\"files/*\"] 50/min",
            "agents.a.limits.calls 100/min",
            "agents.a.limits.lists 10/min",
            "agents.a.limits.refused 5/s",
            "agents.a.allow.tools.files[0] 3/h",
        ]
    );
    assert_eq!(config["allow"], json!(["files/read_file", "files/list_folder", "toolward/*"]));
    let all = config.to_string();
    for hidden in ["secret", "tracker", "remove_file", "agents.b", "\"b\""] {
        assert!(!all.contains(hidden), "{hidden}: {all}");
    }
}

#[test]
fn hooks_are_asked_about_the_way_and_about_the_call() {
    let setup = world().agents(everyone());
    let (hook, seen) = (setup.path("hook"), setup.path("seen.jsonl"));
    let script = r#"#!/bin/sh
read -r line
printf '%s\n' "$line" >> SEEN
case "$line" in
  *'"agent":"a","server":"files","tool":"write_file"'*)
    echo '{"code": -32600, "message": "not now"}'
    exit 1
esac
"#;
    std::fs::write(&hook, script.replace("SEEN", seen.to_str().unwrap())).unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let hooks = json!([{"name": "h", "exec": ["./hook"], "arguments": true, "timeout": "10s"}]);
    let gate = setup.set("hooks", hooks).start();
    let a = gate.agent("a");
    assert!(passed(&execute(&a, "files", "read_file", json!({"path": "x"}))));
    let refused = execute(&a, "files", "write_file", json!({"path": "y"}));
    assert_eq!(
        (&refused["error"]["code"], &refused["error"]["message"]),
        (&json!(-32600), &json!("not now"))
    );
    assert_eq!(gate.calls("files").len(), 1);
    let asked: Vec<Value> = std::fs::read_to_string(seen)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let about: Vec<(&str, &str)> = asked
        .iter()
        .map(|one| (one["server"].as_str().unwrap(), one["tool"].as_str().unwrap()))
        .collect();
    let way = ("toolward", "execute_tool");
    assert_eq!(about, [way, ("files", "read_file"), way, ("files", "write_file")]);
    assert_eq!(asked[1]["arguments"], json!({"path": "x"}));
    assert_eq!(asked[1]["definition"]["name"], "read_file");
    let refusal = records(&gate, "refusal").pop().unwrap();
    assert_eq!((&refusal["tool"], &refusal["hook"]), (&json!("write_file"), &json!("h")));
}
