//! Exact texts of refusals: a policy, a call, and every line that the agent gets.
#![allow(clippy::unwrap_used)]

mod common;

use common::world::{World, definition, dev, tools};
use serde_json::{Value, json};

/// The refusal of `dev`'s call of a tool of the server `s`, without the last line.
fn text(rules: Value, schema: Value, name: &str, arguments: Value) -> String {
    let mut offered = tools(&["look"]);
    offered.push(definition("do", schema));
    let text = World::new(rules, vec![("s", offered)]).call(name, arguments).text();
    let (text, last) = text.rsplit_once('\n').unwrap();
    assert!(last.starts_with("Decision 66064ca24dc9f (a person can run: "), "{last}");
    text.into()
}

fn allow(entries: Value) -> Value {
    dev(json!({"servers": ["*"], "tools": {"s": entries}}), json!({}))
}

fn deny(entries: Value) -> Value {
    dev(json!({"servers": ["*"]}), json!({"tools": {"s": entries}}))
}

/// The rules, where `operation` and `verb` select the action.
fn operations(mut rules: Value) -> Value {
    rules["action_keys"] = json!({"s": ["operation", "verb"]});
    rules
}

fn schema(key: &str) -> Value {
    json!({"inputSchema": {"properties": {key: {"type": "string"}}}})
}

const AGAIN: &str = "Repeating the same call will not help.";

#[test]
fn a_refused_action_names_its_argument_and_the_allowed_values() {
    let narrow = || allow(json!(["do.get", "do.list_*", "look"]));
    let enumerated =
        json!({"inputSchema": {"properties": {"operation": {"enum": ["get", "drop", "put"]}}}});
    for (rules, schema, arguments, expected) in [
        (
            operations(narrow()),
            json!({}),
            json!({"operation": "drop"}),
            format!(
                "do.drop is not permitted. Allowed: do.get, do.list_*, look\n\
                 You sent operation = \"drop\". Allowed values of operation: get, list_*. {AGAIN}"
            ),
        ),
        // An argument that selects the action on another server is not an action here.
        (
            operations(narrow()),
            json!({}),
            json!({"verb": "drop", "action": "get"}),
            format!(
                "do.drop is not permitted. Allowed: do.get, do.list_*, look\n\
                 You sent verb = \"drop\". Allowed values of verb: get, list_*. {AGAIN}"
            ),
        ),
        (
            operations(narrow()),
            json!({}),
            json!({"action": "get"}),
            format!(
                "do is not permitted. Allowed: do.get, do.list_*, look\n\
                 Neither operation nor verb was sent. Allowed values: get, list_*. {AGAIN}"
            ),
        ),
        // The schema has one of the two.
        (
            operations(narrow()),
            schema("verb"),
            json!({}),
            format!(
                "do is not permitted. Allowed: do.get, do.list_*, look\n\
                 The argument verb is missing. Allowed values of verb: get, list_*. {AGAIN}"
            ),
        ),
        (
            operations(deny(json!(["do.drop"]))),
            enumerated.clone(),
            json!({"operation": "drop"}),
            format!(
                "do.drop is not permitted. Allowed: do.get, do.put, look\n\
                 You sent operation = \"drop\". Allowed values of operation: get, put. \
                 Denied by policy. {AGAIN}"
            ),
        ),
        // The other actions are not known.
        (
            operations(deny(json!(["do.drop"]))),
            json!({}),
            json!({"operation": "drop"}),
            format!(
                "do.drop is not permitted. Allowed: look\n\
                 You sent operation = \"drop\". Denied by policy. {AGAIN}"
            ),
        ),
        (
            narrow(),
            json!({}),
            json!({"action": "drop"}),
            format!(
                "do.drop is not permitted. Allowed: do.get, do.list_*, look\n\
                 You sent action = \"drop\". Allowed values of action: get, list_*. {AGAIN}"
            ),
        ),
    ] {
        assert_eq!(text(rules, schema, "do", arguments), expected);
    }
}

#[test]
fn no_refused_action_is_named_as_allowed() {
    let both = |list: Value, agents: Value| {
        let mut rules = agents;
        rules["allowed_tools"] = list;
        operations(rules)
    };
    let others = json!({"tool": "do.g*", "when": "agent == 'other'"});
    for (rules, arguments, expected) in [
        // A pattern that covers the refused action.
        (
            operations(dev(
                json!({"servers": ["*"], "tools": {"s": ["do.list_*", "do.get", "look"]}}),
                json!({"tools": {"s": ["do.list_secret"]}}),
            )),
            json!({"operation": "list_secret"}),
            format!(
                "do.list_secret is not permitted. Allowed: do.get, look\n\
                 You sent operation = \"list_secret\". Allowed values of operation: get. Denied by \
                 policy. {AGAIN}"
            ),
        ),
        // An action that another layer denies, by name, by pattern or by its condition.
        (
            both(json!(["do.get", "do.drop", "do.drop_*"]), deny(json!(["do.drop*"]))),
            json!({"operation": "put"}),
            format!(
                "do.put is not permitted. Allowed: do.get\n\
                 You sent operation = \"put\". Allowed values of operation: get. {AGAIN}"
            ),
        ),
        (
            both(
                json!(["do.get", "do.drop"]),
                deny(json!([{"tool": "do", "when": "action == 'drop'"}])),
            ),
            json!({}),
            format!(
                "do is not permitted. Allowed: do.get\n\
                 Neither operation nor verb was sent. Allowed values: get. {AGAIN}"
            ),
        ),
        // An entry that is not for this caller.
        (
            operations(allow(json!(["do.put", others, "look"]))),
            json!({}),
            format!(
                "do is not permitted. Allowed: do.put, look\n\
                 Neither operation nor verb was sent. Allowed values: put. {AGAIN}"
            ),
        ),
    ] {
        assert_eq!(text(rules, json!({}), "do", arguments), expected);
    }
}

#[test]
fn an_ambiguous_action_names_its_arguments() {
    let of = "is not permitted with these arguments:";
    let rules = || operations(allow(json!(["do.get"])));
    let denied = || operations(deny(json!(["do.drop"])));
    for (rules, arguments, expected) in [
        (
            rules(),
            json!({"operation": "get", "verb": "drop"}),
            format!(
                "do.get {of} the arguments operation and verb name different actions.\n\
                 Allowed values: get. {AGAIN}"
            ),
        ),
        (
            rules(),
            json!({"operation": 7}),
            format!(
                "do {of} the argument operation is not a string.\n\
                 Allowed values of operation: get. {AGAIN}"
            ),
        ),
        (
            rules(),
            json!({"Operation": "get"}),
            format!(
                "do {of} the argument Operation differs from operation only in case.\n\
                 Allowed values of operation: get. {AGAIN}"
            ),
        ),
        (
            denied(),
            json!({}),
            format!("do {of} one of operation and verb must name the action.\n{AGAIN}"),
        ),
    ] {
        assert_eq!(text(rules, json!({}), "do", arguments), expected);
    }
    let expected = format!("do {of} the argument verb must name the action.\n{AGAIN}");
    assert_eq!(text(denied(), schema("verb"), "do", json!({})), expected);
}

#[test]
fn a_message_belongs_to_the_entry_that_refused() {
    let get = json!({"tool": "do.get", "message": "Ask Ann for get."});
    // The entry applies to another action.
    let refused = text(allow(json!([get, "look"])), json!({}), "do", json!({"action": "drop"}));
    assert!(!refused.contains("Ann"), "{refused}");
    let refused = text(allow(json!([get])), json!({}), "do", json!({}));
    assert!(!refused.contains("Ann"), "{refused}");
    let list = json!({"allowed_tools": [get]});
    let refused = text(list, json!({}), "do", json!({"action": "drop"}));
    assert!(!refused.contains("Ann"), "{refused}");
    // Its condition was false, or it denies.
    let unmet = json!({"tool": "do.get", "when": "args.n == 1", "message": "Ask Ann for get."});
    let refused = text(allow(json!([unmet])), json!({}), "do", json!({"action": "get", "n": 2}));
    assert!(refused.ends_with("\nAsk Ann for get."), "{refused}");
    let refused = text(deny(json!([get])), json!({}), "do", json!({"action": "get"}));
    assert!(refused.ends_with("\nAsk Ann for get."), "{refused}");
}

#[test]
fn each_condition_has_its_own_missing_arguments() {
    let when = |conditions: &[&str]| {
        let entry = |when: &&str| json!({"tool": "do", "when": when});
        allow(conditions.iter().map(entry).collect())
    };
    let of = "do is not permitted with these arguments: it is allowed only";
    for (conditions, arguments, expected) in [
        (vec!["args.a == 1"], json!({}), format!("{of} when args.a == 1 (a is missing).\n{AGAIN}")),
        (
            vec!["args.a == 1 && args.b.c == 2 && args.d == 3"],
            json!({"b": {}}),
            format!(
                "{of} when args.a == 1 && args.b.c == 2 && args.d == 3 (a, b.c and d are missing).\n\
                 {AGAIN}"
            ),
        ),
        (
            vec!["args.a == 1", "args.b == 2", "args.c == 3"],
            json!({"b": 5}),
            format!(
                "{of} when args.a == 1 (a is missing), or when args.b == 2, or when args.c == 3 \
                 (c is missing).\nYou sent b = 5. {AGAIN}"
            ),
        ),
        (
            vec!["args.a.startsWith('x')", "claims.team == 'ops'"],
            json!({"a": 1}),
            format!(
                "{of} when args.a.startsWith('x') (which cannot be evaluated for these arguments), \
                 or under a condition on the caller.\nYou sent a = 1. {AGAIN}"
            ),
        ),
        // A failing condition on the caller is reported as it is.
        (
            vec!["claims.team == 'ops' && args.a == 1"],
            json!({}),
            format!("{of} under a condition on the caller.\n{AGAIN}"),
        ),
    ] {
        assert_eq!(text(when(&conditions), json!({}), "do", arguments), expected);
    }
}
