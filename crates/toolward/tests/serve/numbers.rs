//! Numbers that servers may parse more precisely than conditions and hooks do.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::harness::*;

/// A gateway whose agent may call `t` up to an amount, and `u` unless a list contains a forbidden
/// number.
fn limited() -> Setup {
    setup().web("s", "modern", names(&["t", "u", "v"])).agents(json!({"a": {"allow": {
        "servers": ["s"],
        "tools": {"s": [
            {"tool": "t", "when": "args.amount <= 100"},
            {"tool": "u", "when": "!args.list.exists(n, n > 5.0)"},
            {"tool": "v", "when": "args.path == 'x'"},
        ]},
    }}}))
}

/// A call whose arguments are sent exactly as written here.
fn call(agent: &Agent, tool: &str, arguments: &str) -> Value {
    let body = modern_body(json!(1), "tools/call", json!({"name": tool, "arguments": {}}));
    let body =
        body.to_string().replacen("\"arguments\":{}", &format!("\"arguments\":{arguments}"), 1);
    let headers =
        [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", tool)];
    agent.send("POST", &headers, &body).json()
}

fn is_allowed(answer: &Value) -> bool {
    answer["result"]["content"][0]["text"].as_str().is_some_and(|text| text.starts_with("did "))
}

/// Arguments of a tool, and whether the call passes.
const CASES: [(&str, &str, bool); 31] = [
    ("t", r#"{"amount":100}"#, true),
    ("t", r#"{"amount":100.0}"#, true),
    ("t", r#"{"amount":1e2}"#, true),
    ("t", r#"{"amount":0.1}"#, true),
    ("t", r#"{"amount":1.50}"#, true),
    ("t", r#"{"amount":-0}"#, true),
    ("t", r#"{"amount":-0.0}"#, true),
    ("t", r#"{"amount":-9007199254740993}"#, true),
    ("t", r#"{"amount":101}"#, false),
    ("t", r#"{"amount":100.00000000000000001}"#, false),
    ("t", r#"{"amount":1.0000000000000000001e2}"#, false),
    ("t", r#"{"amount":1e-400}"#, false),
    ("t", r#"{"amount":-18446744073709551617}"#, false),
    ("t", r#"{"amount":-9223372036854775809}"#, false),
    ("t", r#"{"amount":18446744073709551616}"#, false),
    // Arguments that the condition does not read may be anything.
    ("t", r#"{"amount":100,"other":100.00000000000000001}"#, true),
    ("t", r#"{"amount":100,"other":[{"n":1e-400}]}"#, true),
    ("t", r#"{"other":100.00000000000000001}"#, false),
    ("u", r#"{"list":[1,2.5,5]}"#, true),
    ("u", r#"{"list":[1,6]}"#, false),
    ("u", r#"{"list":[1,5.00000000000000000001]}"#, false),
    ("u", r#"{"list":[1,{"deep":[5.00000000000000000001]}]}"#, false),
    ("u", r#"{"list":[]}"#, true),
    // An integer that is compared with a double is converted to one.
    ("u", r#"{"list":[-9007199254740993]}"#, false),
    ("u", r#"{"list":[-9007199254740992]}"#, true),
    ("v", r#"{"path":"x"}"#, true),
    ("v", r#"{"path":"x","amount":100.00000000000000001}"#, true),
    ("v", r#"{"path":"y"}"#, false),
    ("v", r#"{"path":0.1}"#, false),
    ("v", r#"{"path":{"n":0.10000000000000000001}}"#, false),
    ("v", r#"{"path":"x","n":[0.10000000000000000001,1e-400]}"#, true),
];

#[test]
fn conditions_decide_on_the_number_that_is_forwarded() {
    let gate = limited().start();
    let a = gate.agent("a");
    for (tool, arguments, allowed) in CASES {
        let answer = call(&a, &format!("s__{tool}"), arguments);
        assert_eq!(is_allowed(&answer), allowed, "{tool} {arguments}: {answer}");
    }
    let forwarded = gate.calls("s").len();
    assert_eq!(forwarded, CASES.iter().filter(|(_, _, allowed)| *allowed).count());
}

#[test]
fn decide_and_can_i_agree_with_the_gateway() {
    let setup = limited();
    let file = setup.file();
    let run = |arguments: &[&str], input: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_toolward"))
            .args(arguments)
            .arg("-c")
            .arg(&file)
            .env("TOKEN_OF_a", "token-of-agent-a")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let lines: String = CASES
        .iter()
        .map(|(tool, arguments, _)| {
            format!(
                "{{\"agent\":\"a\",\"server\":\"s\",\"tool\":\"{tool}\",\"arguments\":{arguments}}}\n"
            )
        })
        .collect();
    let output = run(&["decide"], &lines);
    let answers = String::from_utf8_lossy(&output.stdout);
    assert_eq!(answers.lines().count(), CASES.len(), "{output:?}");
    for (answer, (tool, arguments, allowed)) in answers.lines().zip(CASES) {
        let answer: Value = serde_json::from_str(answer).unwrap();
        let verdict = if allowed { "allow" } else { "deny" };
        assert_eq!(answer["verdict"], verdict, "{tool} {arguments}: {answer}");
    }
    let exact = r#"{"amount":100.0}"#;
    let inexact = r#"{"amount":100.00000000000000001}"#;
    for (command, code) in [("can-i", 1), ("explain", 1)] {
        let ask = |arguments| run(&[command, "--as", "a", "s/t", arguments], "");
        assert_eq!(ask(exact).status.code(), Some(0), "{command}: {:?}", ask(exact));
        let denied = ask(inexact);
        assert_eq!(denied.status.code(), Some(code), "{command}: {denied:?}");
    }
}
