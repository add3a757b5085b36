//! Changes that are easily overlooked: the search for a changed entry must not be restricted too far.

use serde_json::{Value, json};
use toolward_policy::analyse::{Change, PointKind};

use crate::{agent, differ, wider};

fn is_wider(old: &Value, new: &Value) -> Option<bool> {
    differ(old.clone(), new.clone()).is_wider()
}

#[test]
fn an_entry_that_names_an_action_is_searched_in_both_directions() {
    // Without `*.b`, nothing looks for an action: a call with an ambiguous one becomes callable.
    let before = agent(json!(["*", "*.b"]), json!([]));
    let after = agent(json!(["*"]), json!([]));
    let found = differ(before.clone(), after.clone());
    assert_eq!(found.is_wider(), Some(true));
    let change = found.changes.iter().find(|change| change.is_wider()).unwrap();
    assert_eq!(change.before.step.as_str(), "ambiguous-action");
    assert_eq!(is_wider(&after, &before), Some(false));
    // A tool that is denied whatever its action is denied either way; `run.fast` may also be a name.
    let denied = |allow: Value| agent(allow, json!(["run", "run.*"]));
    let same = differ(denied(json!(["x", "run.fast"])), denied(json!(["x"])));
    assert_eq!(same.is_none(), Some(true));
}

#[test]
fn a_condition_that_reads_the_action_makes_every_action_looked_for() {
    let reads = json!({"tool": "y", "when": r#"action == "go""#});
    let before = agent(json!(["x", reads]), json!([]));
    let found = wider(before, agent(json!(["x"]), json!([])));
    assert_eq!(found, ["a s/x deny->allow"]);
}

#[test]
fn a_moved_entry_that_asks_is_found_among_many() {
    let ask = |tool: &str| json!({"tool": tool, "ask": true});
    let names: Vec<Value> = (0..40).map(|at| json!(format!("t{at}_*"))).collect();
    let list = |put: usize| {
        let mut entries = names.clone();
        entries.insert(put, ask("t7_x*"));
        agent(json!(entries), json!([]))
    };
    assert_eq!(wider(list(0), list(20)), ["a s/t7_x ask->allow"]);
    assert_eq!(is_wider(&list(20), &list(0)), Some(false));
    // Before `t7_*`, its place does not matter.
    assert_eq!(differ(list(0), list(3)).is_none(), Some(true));
}

#[test]
fn removed_exposures_of_prompts_are_seen() {
    let everything = json!({"agents": {"a": {"allow": {"servers": ["*"]}}}});
    let mut exposed = everything.clone();
    exposed["servers"] = json!({"s": {"expose_prompts": ["p"]}});
    let found = differ(exposed.clone(), everything.clone());
    assert_eq!(found.is_wider(), Some(true));
    assert!(found.changes.iter().all(|change| change.point.kind == PointKind::Prompt));
    assert_eq!(is_wider(&everything, &exposed), Some(false));
}

#[test]
fn conditions_of_prompts_are_compared() {
    let with = |when: &str| {
        let prompts = json!({"s": [{"tool": "p", "when": when}]});
        json!({"agents": {"a": {"allow": {"servers": ["s"], "tools": {"s": ["x"]}, "prompts": prompts}}}})
    };
    let found = differ(with("args.n < 2"), with("args.n < 3"));
    assert_eq!(found.is_wider(), Some(true));
    let change = found.changes.iter().find(|change| change.is_wider()).unwrap();
    assert_eq!(change.point.kind, PointKind::Prompt);
    assert!(change.point.arguments.is_some());
    assert_eq!(is_wider(&with("args.n < 3"), &with("args.n < 2")), Some(false));
}

#[test]
fn a_resource_is_shown_by_a_uri_that_can_be_read() {
    let open = json!({"agents": {"a": {"allow": {"servers": ["s"]}}}});
    let closed = agent(json!(["x"]), json!([]));
    let found = differ(closed, open);
    let of_resources = |change: &&Change| change.point.kind == PointKind::Resource;
    let resource = found.changes.iter().find(of_resources).unwrap();
    assert!(toolward_policy::uri::normalise(&resource.point.name).is_ok(), "{resource:?}");
    assert!(!found.changes.iter().any(|change| change.point.kind == PointKind::Template));
}

#[test]
fn a_member_of_a_member_of_an_argument_may_be_missing() {
    let when = |text: &str| agent(json!([{"tool": "x", "when": text}]), json!([]));
    let found = is_wider(&when("false"), &when("!has(args.a.b.c)"));
    assert_eq!(found, Some(true));
    let absent = r#"!has(args.a.b.c) || args.a.b.c == "x""#;
    assert_eq!(is_wider(&when(r#"args.a.b.c == "x""#), &when(absent)), Some(true));
}

#[test]
fn a_changed_approver_is_seen() {
    // If no one can approve, an entry that asks denies.
    let with = |approve: &str| {
        let mut policy = agent(json!([{"tool": "*", "ask": true}]), json!([]));
        policy["admins"] = json!({"ann": [approve]});
        policy
    };
    assert_eq!(wider(with("s/get_*"), with("s/*")), ["a s/a deny->ask"]);
    assert_eq!(is_wider(&with("s/*"), &with("s/get_*")), Some(false));
    // The entry changes too, and only some of its names can be approved.
    let mut none = with("s/get_*");
    none["agents"]["a"]["allow"]["tools"]["s"] = json!(["x"]);
    let found = wider(none, with("s/get_*"));
    assert_eq!(found, ["a s/get_ deny->ask"]);
}
