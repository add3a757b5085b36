//! Entries that ask: who can approve, and what the verdict is if no one can.

#![allow(clippy::unwrap_used)]

mod common;

use serde_json::{Value, json};
use toolward_policy::explain::Query;
use toolward_policy::source::{AdminSource, ApproversSource, Source};
use toolward_policy::{Call, Caller, Catalogue, Policy, Subject, Tool, Verdict};

fn with(policy: Value, approvers: ApproversSource) -> Policy {
    Policy::compile(Source { approvers, ..common::source(&policy) }).unwrap()
}

fn admins(admins: &[(&str, &[&str])]) -> ApproversSource {
    let admin = |(name, approve): &(&str, &[&str])| AdminSource {
        name: (*name).into(),
        approve: approve.iter().map(|pattern| String::from(*pattern)).collect(),
    };
    ApproversSource { admins: Some(admins.iter().map(admin).collect()), trusted_ui: Vec::new() }
}

fn rules(entry: Value) -> Value {
    json!({"agents": {"dev": {"allow": {"servers": ["*"], "tools": {"s": [entry]}}}}})
}

/// The verdict of a call, which the listing and the explanation must share.
fn verdict(policy: &Policy, agent: Option<&str>) -> Verdict {
    let (caller, tool) = (Caller { agent, claims: None }, Tool::named("drop"));
    let decision = policy.decide(caller, "s", &tool, &Call::default());
    let hints = policy.hints("s", &tool);
    let subject = Subject::Tool(&tool, &hints);
    let explained = policy.explain(caller, "s", subject, Query::Call(Call::default()));
    assert_eq!(decision, explained.decision);
    assert_eq!(policy.list(caller, "s", &tool).decision, decision);
    decision.verdict
}

#[test]
fn an_entry_asks_if_someone_can_approve_and_denies_otherwise() {
    let plain = json!({"tool": "drop", "ask": true});
    let ops = json!({"tool": "drop", "ask": {"approvers": ["ops"]}});
    let nobody = ApproversSource::default;
    let cases = [
        (&plain, nobody(), Verdict::Ask),
        (&ops, nobody(), Verdict::Deny),
        (&plain, admins(&[("ops", &["s/*"])]), Verdict::Ask),
        (&plain, admins(&[("ops", &["s/get_*", "t/*"])]), Verdict::Deny),
        (&plain, admins(&[("ops", &[])]), Verdict::Deny),
        (&ops, admins(&[("ops", &["*"])]), Verdict::Ask),
        (&ops, admins(&[("sec", &["*"]), ("ops", &[])]), Verdict::Deny),
        (&ops, admins(&[("sec", &["*"])]), Verdict::Deny),
    ];
    for (entry, approvers, expected) in cases {
        let shown = format!("{entry} {approvers:?}");
        assert_eq!(
            verdict(&with(rules(entry.clone()), approvers), Some("dev")),
            expected,
            "{shown}"
        );
    }
}

#[test]
fn a_trusted_client_can_show_requests_for_entries_without_approvers() {
    let trusted = |entry: Value| {
        let approvers =
            ApproversSource { trusted_ui: vec!["dev".into()], ..admins(&[("ops", &[])]) };
        verdict(&with(rules(entry), approvers), Some("dev"))
    };
    assert_eq!(trusted(json!({"tool": "drop", "ask": true})), Verdict::Ask);
    assert_eq!(trusted(json!({"tool": "drop", "ask": {"approvers": ["ops"]}})), Verdict::Deny);
}

#[test]
fn callers_without_a_name_are_denied_if_a_name_is_required() {
    let mut policy =
        with(json!({"allowed_tools": [{"tool": "drop", "ask": true}]}), ApproversSource::default());
    assert_eq!(verdict(&policy, None), Verdict::Ask);
    policy.ask_for_named_callers_only();
    assert_eq!(verdict(&policy, None), Verdict::Deny);
    assert_eq!(verdict(&policy, Some("dev")), Verdict::Ask);
}

#[test]
fn an_entry_is_the_same_wherever_it_is_in_its_list() {
    let list = |entries: Value| {
        let policy =
            json!({"agents": {"dev": {"allow": {"servers": ["*"], "tools": {"s": entries}}}}});
        let policy = with(policy, ApproversSource::default());
        policy.all_asks().into_iter().map(|ask| ask.identity).collect::<Vec<_>>()
    };
    let drop = json!({"tool": "drop", "ask": true});
    let one = list(json!([drop]));
    assert_eq!(one.len(), 1);
    assert_eq!(list(json!(["a", "b", drop])), one);
    for other in [
        json!({"tool": "dro*", "ask": true}),
        json!({"tool": "drop", "ask": true, "when": "true"}),
        json!({"tool": "drop", "ask": {"approvers": ["ops"]}}),
    ] {
        assert_ne!(list(json!([other])), one, "{other}");
    }
}

#[test]
fn check_reports_entries_that_nobody_can_approve() {
    let lints = |entry: Value, approvers: ApproversSource| {
        let policy = with(rules(entry), approvers);
        let lints = policy.lint(&Catalogue::default()).into_iter();
        let lints = lints.filter(|lint| lint.kind.as_str() == "nobody-approves");
        lints.map(|lint| lint.message).collect::<Vec<_>>()
    };
    let ops = json!({"tool": "drop", "ask": {"approvers": ["ops"]}});
    let plain = json!({"tool": "drop", "ask": true});
    let found = lints(ops.clone(), ApproversSource::default());
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("there is no admin `ops`"), "{found:?}");
    assert_eq!(lints(ops.clone(), admins(&[("sec", &["*"])])).len(), 1);
    assert_eq!(lints(plain.clone(), admins(&[("sec", &[])])).len(), 1);
    assert!(lints(plain.clone(), ApproversSource::default()).is_empty());
    assert!(lints(ops, admins(&[("ops", &["s/*"])])).is_empty());
}

#[test]
fn all_layers_that_ask_are_known() {
    let policy = with(
        json!({
            "agents": {"dev": {"allow": {"servers": ["*"], "tools": {"s": [{"tool": "drop", "ask": true}]}}}},
            "allowed_tools": [{"tool": "dr*", "ask": true}],
        }),
        ApproversSource::default(),
    );
    let (caller, tool) = (Caller { agent: Some("dev"), claims: None }, Tool::named("drop"));
    let hints = policy.hints("s", &tool);
    let cell = policy.cell(Some("dev"), "s", Subject::Tool(&tool, &hints));
    let asks = cell.asks(caller, &Call::default());
    let rules: Vec<String> =
        asks.iter().filter_map(|at| Some(policy.ask_at(*at)?.rule.selector)).collect();
    assert_eq!(rules, ["drop", "dr*"]);
}
