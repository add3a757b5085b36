//! Facts about a cell beside its decision: its limits, whether it can ask, and the actions that a listing keeps.

#![allow(clippy::unwrap_used)]

mod common;

use serde_json::{Value, json};
use toolward_policy::{
    Annotations, Call, Caller, Cell, Family, Hints, LimitedRule, Policy, Subject, Tool, Verdict,
};

fn policy(entries: Value) -> Policy {
    let allow = json!({"servers": ["s"], "tools": {"s": entries}});
    common::policy(&json!({"agents": {"a": {"allow": allow}}}))
}

fn cell(policy: &Policy, tool: &Tool) -> Cell {
    let hints = policy.hints("s", tool);
    policy.cell(Some("a"), "s", Subject::Tool(tool, &hints))
}

fn with_actions(actions: Value) -> Tool {
    let schema = json!({"properties": {"action": {"enum": actions}}});
    Tool::new("x", json!({"inputSchema": schema}).as_object().unwrap())
}

#[test]
fn a_cell_knows_whether_it_can_ask() {
    let tool = Tool::named("x");
    let condition = json!({"tool": "x", "when": "args.n == 1", "ask": true});
    for (entries, asks) in [
        (json!(["x"]), false),
        (json!([{"tool": "x", "ask": true}]), true),
        // Arguments decide which entry matches.
        (json!([condition, "x"]), true),
        (json!([{"tool": "x", "when": "args.n == 1"}, {"tool": "x", "ask": true}]), true),
        (json!([{"tool": "x", "when": "args.n == 1"}, "x"]), false),
    ] {
        assert_eq!(cell(&policy(entries.clone()), &tool).may_ask(), asks, "{entries}");
    }
}

#[test]
fn a_cell_knows_every_limit_that_could_apply() {
    let tool = Tool::named("x");
    let limited = json!({"tool": "x", "limit": 1});
    let condition = json!({"tool": "x", "when": "args.n == 1", "limit": 2});
    for (entries, count) in [
        (json!(["x"]), 0),
        (json!([limited]), 1),
        (json!([condition]), 1),
        (json!([condition, limited]), 2),
        (json!([condition, "x"]), 1),
    ] {
        let limits: Vec<LimitedRule> = cell(&policy(entries.clone()), &tool).all_limits();
        assert_eq!(limits.len(), count, "{entries}");
    }
}

#[test]
fn a_listing_keeps_the_actions_that_can_be_called() {
    let tool = with_actions(json!(["get", "put"]));
    for (entries, verdict, actions) in [
        (json!(["x.get"]), Verdict::Depends, Some(vec!["get".to_owned()])),
        // All of them: the schema stays as it is.
        (json!(["x.get", "x.put"]), Verdict::Allow, None),
        // No selector names an action, so the values are not decided one by one.
        (json!([{"tool": "x", "when": "action == \"get\""}]), Verdict::Depends, None),
        (json!([{"tool": "x", "when": "args.n == 1"}]), Verdict::Depends, None),
    ] {
        let listing = cell(&policy(entries.clone()), &tool).list(Caller::named("a"));
        assert_eq!((listing.decision.verdict, listing.actions), (verdict, actions), "{entries}");
    }
}

#[test]
fn the_claims_of_two_definitions_are_the_less_safe_of_both() {
    let safe = Annotations {
        read_only: Some(true),
        destructive: Some(false),
        idempotent: Some(true),
        open_world: Some(false),
    };
    let none = Annotations::default();
    assert_eq!(safe.least_safe(safe), safe);
    assert_eq!(safe.least_safe(none), none);
    assert_eq!(none.least_safe(safe), none);
    let writes = Annotations { read_only: Some(false), ..safe };
    assert_eq!(safe.least_safe(writes), writes);
    assert_eq!(writes.least_safe(safe), writes);
    assert_eq!(Hints::none(), &Hints::default());
}

#[test]
fn a_decision_on_arguments_is_made_with_them() {
    let policy = policy(json!([{"tool": "x", "when": "args.n == 1"}]));
    let cell = cell(&policy, &Tool::named("x"));
    assert!(cell.settled().is_none());
    assert_eq!(cell.decide(Caller::named("a"), &Call::default()).verdict, Verdict::Deny);
}

fn resources(allow: Value, deny: Value) -> Policy {
    common::policy(&json!({"agents": {"a": {"allow": allow, "deny": deny}}}))
}

#[test]
fn a_server_is_skipped_only_if_nothing_of_a_kind_could_be_allowed() {
    let may = |policy: &Policy| {
        [Family::Tools, Family::Prompts, Family::Resources]
            .map(|family| policy.may_allow(Some("a"), "s", family))
    };
    let all = json!({"servers": ["s"]});
    let narrow = json!({"servers": ["s"], "tools": {"s": ["x"]}});
    let both = json!({"servers": ["s"], "tools": {"s": ["x"]}, "prompts": {"s": ["p"]}});
    for (allow, deny, expected) in [
        (&all, json!({}), [true, true, true]),
        (&narrow, json!({}), [true, false, false]),
        (&both, json!({}), [true, true, false]),
        (&all, json!({"tools": {"s": ["*"]}}), [false, true, true]),
        (&all, json!({"tools": {"s": ["x"]}}), [true, true, true]),
        (&all, json!({"tools": {"s": [{"tool": "*", "when": "args.n == 1"}]}}), [true, true, true]),
        (&all, json!({"servers": ["s"]}), [false, false, false]),
    ] {
        assert_eq!(may(&resources(allow.clone(), deny.clone())), expected, "{allow} {deny}");
    }
    let listed = |value: Value| may(&common::policy(&value));
    assert_eq!(listed(json!({"allowed_tools": ["x"]})), [true, false, false]);
    assert_eq!(listed(json!({"allowed_tools": []})), [false, false, false]);
    assert_eq!(listed(json!({"allowed_tools": ["*"]})), [true, true, true]);
    let prompts = json!({"allowed_tools": ["x"], "allowed_prompts": ["p"]});
    assert_eq!(listed(prompts), [true, true, false]);
}

#[test]
fn a_template_is_shown_if_an_expansion_of_it_could_be_allowed() {
    let shows =
        |policy: &Policy, template: &str| policy.shows_template(Caller::named("a"), "s", template);
    let policy = resources(
        json!({"servers": ["s"], "tools": {"s": ["x"]}, "resources": {"s": ["note://a/*"]}}),
        json!({}),
    );
    assert!(shows(&policy, "note://{user}/x"));
    assert!(!shows(&policy, "note://b/{name}") && !shows(&policy, "file://{path}"));
    // A layer that denies everything shows nothing.
    let both = |tools: Value| {
        common::policy(&json!({
            "agents": {"a": {"allow": {"servers": ["s"]}}},
            "allowed_tools": tools,
        }))
    };
    assert!(shows(&both(json!(["*"])), "note://b/{name}"));
    assert!(!shows(&both(json!(["x"])), "note://b/{name}"));
    let unknown = common::policy(&json!({"agents": {"b": {"allow": {"servers": ["s"]}}}}));
    assert!(!shows(&unknown, "note://b/{name}"));
}

#[test]
fn a_rule_is_named_by_its_path_and_its_role() {
    let policy = common::policy(&json!({
        "roles": {"reader": {"allow": {"servers": ["*"], "tools": {"*": ["get_*"]}}}},
        "agents": {"ci-1": {"roles": ["reader"], "allow": {"tools": {"my-s": ["put"]}}}},
    }));
    let rule = |tool: &str| {
        let decision =
            policy.decide(Caller::named("ci-1"), "my-s", &Tool::named(tool), &Call::default());
        policy.rule(&decision).unwrap()
    };
    assert_eq!(rule("get_x").role.as_deref(), Some("reader"));
    let own = rule("put");
    assert_eq!((own.path.as_str(), own.role), ("agents.ci-1.allow.tools.my-s[0]", None));
    assert_eq!((policy.agent_key("ci-1"), policy.agent_key("ci-2")), (Some("ci-1"), None));
    let listed = common::policy(&json!({
        "allowed_tools": ["x"], "allowed_prompts": ["p"], "allowed_resources": ["note:a"],
    }));
    let path = |subject: Subject<'_>| {
        let cell = listed.cell(Some("a"), "s", subject);
        let decision = cell.decide(Caller::named("a"), &Call::default());
        listed.rule(&decision).unwrap().path
    };
    assert_eq!(path(Subject::Prompt("p")), "allowed_prompts[0]");
    assert_eq!(path(Subject::Resource("note:a")), "allowed_resources[0]");
}
