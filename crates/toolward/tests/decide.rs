//! `toolward decide` on case files, through the real program.
#![allow(clippy::unwrap_used)]

mod program;

use program::toolward;
use serde_json::{Value, json};

/// Case files of the policy crate, whose tests run them through the library.
const POLICY_CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../toolward-policy/tests/data");
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

/// Runs all cases of a file with one command and compares verdict and step.
fn agrees(directory: &str, file: &str) {
    let text = std::fs::read_to_string(format!("{directory}/{file}.jsonl")).unwrap();
    let cases: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let requests: Vec<String> = cases
        .iter()
        .map(|case| {
            let mut request = case.clone();
            if let Some(toml) = case.get("toml") {
                request["policy"] = toml.clone();
            }
            request.to_string()
        })
        .collect();
    let run = toolward(&["decide"], &requests.join("\n"));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let answers: Vec<Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), cases.len());
    let mut failures = Vec::new();
    for (case, answer) in cases.iter().zip(&answers) {
        let want = case.get("want").unwrap_or(case);
        let differs = ["verdict", "step"]
            .iter()
            .any(|key| want.get(key).is_some_and(|value| *value != answer[key]));
        if differs {
            failures.push(format!("{}: got {answer}, wanted {want}", case["id"]));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn agents_are_decided_as_recorded() {
    agrees(POLICY_CASES, "agents");
}

#[test]
fn allowlists_are_decided_as_recorded() {
    agrees(POLICY_CASES, "allowlist");
}

#[test]
fn contract_examples_are_decided_as_wanted() {
    agrees(POLICY_CASES, "contract-examples");
}

#[test]
fn hint_selectors_are_decided_as_recorded() {
    agrees(POLICY_CASES, "hint-selectors");
}

#[test]
fn the_seed_examples_are_decided_as_stated() {
    agrees(CASES, "seed-examples");
}

fn answers(requests: &[Value]) -> (Vec<Value>, i32) {
    let lines: Vec<String> = requests.iter().map(Value::to_string).collect();
    let run = toolward(&["decide"], &lines.join("\n"));
    (run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), run.code)
}

#[test]
fn an_answer_names_layer_rule_and_reason() {
    let policy = json!({"agents": {"dev": {"allow": {"servers": ["*"]}, "deny": {"tools": {"a.b": ["drop_*"]}}}}, "allowed_tools": ["x"]});
    let (answers, code) = answers(&[
        json!({"policy": policy, "agent": "dev", "server": "a.b", "tool": "drop_x"}),
        json!({"policy": policy, "agent": "dev", "server": "db", "tool": "x"}),
        json!({"policy": policy, "agent": "dev", "server": "db", "query": "server"}),
    ]);
    assert_eq!(code, 0);
    assert_eq!(answers[0]["layer"], 0);
    assert_eq!(answers[0]["rule"], r#"agents.dev.deny.tools["a.b"][0]"#);
    assert!(
        answers[0]["reason"].as_str().unwrap().contains("`drop_*` in the deny list of agent `dev`")
    );
    assert_eq!(
        (&answers[1]["layer"], &answers[1]["rule"]),
        (&json!(1), &json!("allowed_tools[0]"))
    );
    assert_eq!(answers[2]["step"], "server-allow");
}

#[test]
fn a_bad_line_gives_an_error_and_the_run_continues() {
    let good = json!({"policy": {"allowed_tools": ["*"]}, "server": "s", "tool": "t"}).to_string();
    let bad = [
        "not json",
        "[]",
        "{}",
        r#"{"server": "s"}"#,
        r#"{"server": 1, "tool": "t"}"#,
        r#"{"server": "s", "tool": "t", "tool": "u"}"#,
        r#"{"server": "s", "tool": "t", "arguments": []}"#,
        r#"{"server": "s", "tool": "t", "hints": ["a", 1]}"#,
        r#"{"server": "s", "tool": "t", "query": "lst"}"#,
        r#"{"server": "s", "tool": "t", "policy": {"alowed_tools": []}}"#,
        r#"{"server": "s", "tool": "t", "policy": "allowed_tools:"}"#,
        r#"{"server": "s", "tool": "t", "policy": {"allowed_tools": ["!t"]}}"#,
        r#"{"server": "s", "tool": "t", "policy": {"allowed_tools": [{"tool": "t", "when": "arg.x"}]}}"#,
    ];
    let mut input = String::new();
    for line in bad {
        input.push_str(&format!("{line}\n\n{good}\n"));
    }
    let run = toolward(&["decide"], &input);
    assert_eq!(run.code, 3);
    let answers: Vec<Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 2 * bad.len());
    for pair in answers.chunks(2) {
        assert!(pair[0]["error"].is_string(), "{}", pair[0]);
        assert_eq!(pair[1]["verdict"], "allow");
    }
}

#[test]
fn null_means_absent_and_other_keys_are_ignored() {
    let (answers, code) = answers(&[json!({
        "policy": {"allowed_tools": ["t.go"]}, "agent": null, "server": "s", "tool": "t", "action": "go",
        "arguments": null, "definition": null, "annotations": null, "hints": null, "query": null, "note": 1,
    })]);
    assert_eq!((code, &answers[0]["verdict"]), (0, &json!("allow")));
}

#[test]
fn policies_from_flags_are_used_if_a_line_has_none() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("p.yaml");
    std::fs::write(&file, "allowed_tools: [a]\n").unwrap();
    let other = directory.path().join("q.yaml");
    std::fs::write(&other, "allowed_tools: [a, b]\n").unwrap();
    let input = "{\"server\":\"s\",\"tool\":\"a\"}\n{\"server\":\"s\",\"tool\":\"b\"}\n";
    let run = toolward(
        &[
            "decide",
            "--policy",
            other.to_str().unwrap(),
            "--allowlist-config",
            file.to_str().unwrap(),
        ],
        input,
    );
    let answers: Vec<Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&answers[0]["verdict"], &answers[0]["layer"]), (&json!("allow"), &json!(1)));
    assert_eq!((&answers[1]["verdict"], &answers[1]["layer"]), (&json!("deny"), &json!(1)));
}

#[test]
fn servers_of_an_inline_configuration_expose_and_state_hints() {
    let policy = json!({
        "servers": {"s": {
            "expose": ["get_*", {"tool": "internal", "display_name": "shown"}],
            "hints": {"get_*": ["read-only"]}, "trust_annotations": false, "action_keys": ["mode"],
        }},
        "allowed_tools": ["hint:read-only", "internal.go"],
    });
    let ask = |tool: &str, arguments: Value| json!({"policy": policy, "server": "s", "tool": tool, "arguments": arguments, "annotations": {"readOnlyHint": true}});
    let (answers, code) = answers(&[
        ask("get_a", json!({})),
        ask("set_a", json!({})),
        ask("internal", json!({"mode": "go"})),
        ask("internal", json!({"action": "go"})),
        ask("shown", json!({"mode": "go"})),
    ]);
    let steps: Vec<&str> = answers.iter().map(|answer| answer["step"].as_str().unwrap()).collect();
    assert_eq!(code, 0);
    assert_eq!(
        steps,
        ["allowlist-match", "not-exposed", "allowlist-match", "allowlist-none", "not-exposed"]
    );
}
