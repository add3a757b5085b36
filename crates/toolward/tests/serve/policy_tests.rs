//! Tests in the policy, at startup and on reload.

use serde_json::{Value, json};

use super::harness::{eventually, setup};
use super::reload::{beside, listed, only, said, two};

/// Starts with tests that must prevent the start.
fn fails(policy: Value, tests: Value, words: &str) {
    let setup = setup().agents(policy).web("s", "modern", two());
    let (code, told) = setup.set("tests", tests).fails();
    assert!(code == 3 && told.contains(words), "{code} {told}");
}

#[test]
fn tests_that_need_no_list_run_before_the_gateway_starts() {
    let everything = || json!({"a": {"allow": {"servers": ["s"]}}});
    let deny = |what: &str| json!([{"as": "a", "deny": [what]}]);
    let allow = |what: &str| json!([{"as": "a", "allow": [what]}]);
    fails(everything(), deny("s/write"), "FAIL a deny s/write");
    fails(only(&["re*"]), deny("s/read"), "FAIL a deny s/read");
    fails(only(&["read"]), allow("s/write"), "FAIL a allow s/write");
    fails(only(&["read"]), json!([{"as": "nobody", "allow": ["s/read"]}]), "nobody allow s/read");
    fails(only(&["read"]), json!([{"allow": ["s/read"]}]), "an unnamed caller allow s/read");
    fails(json!({"a": {"deny": {"servers": ["s"]}}}), allow("s/read"), "FAIL a allow s/read");
    fails(only(&["read"]), allow("other/read"), "FAIL a allow other/read");
    let hidden = json!([{"as": "a", "hidden": ["s/read"]}]);
    fails(only(&["read"]), hidden, "FAIL a hidden s/read");
    let never = json!([{"never": {"calls": ["*/hint:destructive"]}}]);
    fails(everything(), never.clone(), "FAIL everyone never */hint:destructive");
    let claims = json!({"a": {"allow": {"servers": ["s"], "tools": {"s": [
        {"tool": "drop", "when": "claims.team == 'ops'"}
    ]}}}});
    // An undecided one prevents the start, too.
    fails(claims, never, "undecided, perhaps allowed: a: s/drop");
}

#[test]
fn tests_that_depend_on_a_list_run_once_the_list_is_known() {
    let policy =
        json!({"a": {"allow": {"servers": ["s"], "tools": {"s": ["hint:read-only", "t"]}}}});
    let tools = json!([
        {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
        {"name": "write", "inputSchema": {"type": "object"}},
    ]);
    let tests = json!([
        {"as": "a", "allow": ["s/read"], "deny": ["s/write"]},
        {"as": "a", "allow": ["s/write"]},
    ]);
    let gate = setup().agents(policy).web("s", "modern", tools).set("tests", tests).start();
    assert_eq!(listed(&gate.agent("a")), ["s__read"]);
    said(&gate, " ERROR policy: a test of the policy fails");
    said(&gate, "\n    FAIL a allow s/write");
    let status = || {
        let (code, said) = beside(&gate, &["status", "--json"]);
        assert_eq!(code, 0, "{said}");
        serde_json::from_str::<Value>(&said).unwrap()[0]["failing_tests"].clone()
    };
    eventually("it is shown", || (status().as_array().unwrap().len() == 1).then_some(()));
    let (_, said) = beside(&gate, &["status"]);
    assert!(said.contains("FAIL a allow s/write"), "{said}");
    // A reload that leaves them failing is rejected.
    let (code, said) = beside(&gate, &["reload"]);
    assert!(code == 3 && said.contains("a allow s/write"), "{said}");
}
