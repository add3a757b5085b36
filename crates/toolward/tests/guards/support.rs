//! Shared setup for the tests of guards.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use super::harness::*;

/// A gateway for the agents `a` and `b` in front of a server with these tools.
pub fn with_tools(tools: &[&str]) -> Setup {
    setup().web("s", "modern", names(tools)).agents(everyone())
}

/// A program next to the configuration; returns its path as configured.
pub fn program(setup: &Setup, name: &str, text: &str) -> Value {
    let path = setup.path(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    json!(format!("./{name}"))
}

/// A gateway with one hook that is a program.
pub fn with_program(text: &str, more: Value) -> Setup {
    let setup = with_tools(&["t", "u"]);
    let path = program(&setup, "hook", text);
    let mut hook = json!({"name": "h", "exec": [path]});
    merge(&mut hook, more);
    setup.set("hooks", json!([hook]))
}

pub fn merge(into: &mut Value, more: Value) {
    for (key, value) in more.as_object().unwrap() {
        into[key] = value.clone();
    }
}

/// Whether a call was executed.
pub fn passed(answer: &Value) -> bool {
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    answer["result"]["isError"] != true && text.starts_with("did ")
}

/// The message of a refusal by a rate limit.
pub fn limited(answer: &Value) -> Value {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let data = &answer["result"]["_meta"]["io.toolward/refusal"];
    assert_eq!(data["retryable"], true, "{answer}");
    assert!(data["decision_id"].is_string() && data["allowed_tools"].is_array(), "{answer}");
    data.clone()
}

/// The code and message of an error.
pub fn error(answer: &Value) -> (i64, String) {
    let error = &answer["error"];
    let code = error["code"].as_i64().unwrap_or_else(|| panic!("{answer}"));
    (code, error["message"].as_str().unwrap().into())
}

/// Asserts that a call is refused because a hook failed.
pub fn hook_failed(gate: &Gate, agent: &Agent) -> String {
    let calls = gate.calls("s").len();
    let answer = agent.call("s__t", json!({}));
    assert_eq!(error(&answer).0, -32603, "{answer}");
    let data = &answer["error"]["data"];
    assert_eq!((&data["error"], &data["hook"]), (&json!("hook_failed"), &json!("h")), "{answer}");
    let record = refusals(gate).pop().unwrap();
    assert_eq!((&record["step"], &record["hook"]), (&json!("hook"), &json!("h")), "{record}");
    assert_eq!((&record["tool"], &record["verdict"]), (&json!("t"), &json!("deny")), "{record}");
    assert_eq!(record["id"], data["decision_id"]);
    assert_eq!(gate.calls("s").len(), calls, "nothing is forwarded");
    record["reason"].as_str().unwrap().into()
}

pub fn refusals(gate: &Gate) -> Vec<Value> {
    gate.records().into_iter().filter(|record| record["kind"] == "refusal").collect()
}

/// Records of calls that were forwarded.
pub fn intents(gate: &Gate) -> Vec<Value> {
    gate.records().into_iter().filter(|record| record["kind"] == "intent").collect()
}

/// The numbers that a hook wrote into a file, one per line.
pub fn pids(path: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Waits until none of these processes is running.
pub fn gone(pids: &[u32]) {
    assert!(!pids.is_empty());
    eventually("the processes of the hook have ended", || {
        pids.iter().all(|pid| !alive(*pid)).then_some(())
    });
}
