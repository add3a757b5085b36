//! Decisions on past calls: certain only if every call with the same record gets the same decision.
#![allow(clippy::unwrap_used)]

use serde_json::{Map, Value, json};
use toolward_policy::recorded::{RecordedAction, RecordedCall, Unrecorded};
use toolward_policy::source::{
    AgentSource, AgentsSource, Entry, KeyedList, LayerSource, RulesSource, SideSource,
};
use toolward_policy::{Call, Caller, Catalogue, Family, Policy, Source, Tool, ToolSet, Verdict};

fn entry(text: &str) -> Entry {
    match text.split_once(" when ") {
        Some((selector, when)) => Entry { when: Some(when.into()), ..Entry::new(selector) },
        None => Entry::new(text),
    }
}

fn policy(allow: &[&str], deny: &[&str]) -> Policy {
    let list = |entries: &[&str]| {
        let entries: Vec<Entry> = entries.iter().map(|text| entry(text)).collect();
        vec![KeyedList { key: "s".into(), entries, ..KeyedList::default() }]
    };
    let allow = SideSource { servers: vec!["s".into()], tools: list(allow), ..Default::default() };
    let deny = SideSource { tools: list(deny), ..Default::default() };
    let agent = AgentSource { allow, deny, ..AgentSource::default() };
    let agents = vec![("a".into(), agent)];
    let rules = RulesSource::Agents(AgentsSource { agents, ..AgentsSource::default() });
    let layers = vec![LayerSource { name: "p".into(), rules }];
    Policy::compile(Source { layers, ..Source::default() }).unwrap()
}

fn definition(action: bool) -> Value {
    let properties = if action { json!({"action": {"type": "string"}}) } else { json!({}) };
    json!({"name": "t", "inputSchema": {"properties": properties}, "annotations": {"readOnlyHint": true}})
}

/// Compares the decision on a record with those on all calls that it may stand for.
#[test]
fn a_certain_decision_is_that_of_every_call_with_the_same_record() {
    let entries: [&[&str]; 8] = [
        &["t"],
        &["t.x"],
        &["t when args.n == 1"],
        &["t.x when args.n == 1", "t.y"],
        &["hint:read-only"],
        &["t when claims.c == 1"],
        &["t when action == \"x\""],
        &["*.x", "u"],
    ];
    let denials: [&[&str]; 5] =
        [&[], &["t.y"], &["t when args.n == 2"], &["*.x"], &["hint:destructive"]];
    let mut calls: Vec<Map<String, Value>> = Vec::new();
    for action in [None, Some(json!("x")), Some(json!("y")), Some(json!(1))] {
        for n in [None, Some(1), Some(2)] {
            let mut arguments = Map::new();
            arguments.extend(action.clone().map(|action| ("action".to_string(), action)));
            arguments.extend(n.map(|n| ("n".to_string(), json!(n))));
            calls.push(arguments);
        }
    }
    let claims: Vec<Map<String, Value>> =
        [json!({}), json!({"c": 1})].iter().map(|one| one.as_object().unwrap().clone()).collect();
    let (mut certain, mut open) = (0, 0);
    for (allow, deny) in entries.iter().flat_map(|allow| denials.map(|deny| (allow, deny))) {
        let policy = policy(allow, deny);
        for with_action in [false, true] {
            let (tools, _) = ToolSet::read(&[definition(with_action)]);
            let tool: Tool = tools.tools()[0].clone();
            let mut catalogue = Catalogue::default();
            catalogue.insert("s", Some(tools));
            let subject = policy.recorded_subject(Some("a"), "s", (Family::Tools, "t"), &catalogue);
            let unknown = policy.recorded_subject(
                Some("a"),
                "s",
                (Family::Tools, "t"),
                &Catalogue::default(),
            );
            for arguments in &calls {
                let action = match arguments.get("action") {
                    None => RecordedAction::None,
                    Some(Value::String(action)) => RecordedAction::Is(action),
                    Some(_) => RecordedAction::Unknown,
                };
                let records = [
                    (RecordedAction::Unknown, None),
                    (action, None),
                    (action, Some(arguments as &dyn toolward_policy::Arguments)),
                ];
                for (action, recorded) in records {
                    let record = RecordedCall { agent: Some("a"), action, arguments: recorded };
                    for subject in [&subject, &unknown] {
                        let (decision, why) = subject.decide(&record);
                        assert_eq!(why.is_some(), decision.verdict == Verdict::Depends);
                        if why.is_some() {
                            open += 1;
                            continue;
                        }
                        certain += 1;
                        for claims in &claims {
                            let caller = Caller { agent: Some("a"), claims: Some(claims) };
                            let listed = policy.list(caller, "s", &tool).decision.verdict;
                            let made = policy.decide(caller, "s", &tool, &Call::with(arguments));
                            let verdict = match listed {
                                Verdict::Deny => Verdict::Deny,
                                _ => made.verdict,
                            };
                            let about = format!("{allow:?} {deny:?} {with_action} {arguments:?}");
                            assert_eq!(decision.verdict, verdict, "{about} {action:?}");
                        }
                    }
                }
            }
        }
    }
    assert!(certain > 1000 && open > 1000, "{certain} {open}");
}

#[test]
fn unknown_definitions_are_told_from_unknown_calls() {
    let policy = policy(&["hint:read-only", "u when args.n == 1"], &[]);
    let none = Catalogue::default();
    let decide = |name: &str| {
        let subject = policy.recorded_subject(Some("a"), "s", (Family::Tools, name), &none);
        subject.decide(&RecordedCall { agent: Some("a"), ..RecordedCall::default() }).1
    };
    assert_eq!(decide("t"), Some(Unrecorded::Definition));
    assert_eq!(decide("u"), Some(Unrecorded::Definition));
    let (tools, _) = ToolSet::read(&[json!({"name": "u", "annotations": {}})]);
    let mut known = Catalogue::default();
    known.insert("s", Some(tools));
    let subject = policy.recorded_subject(Some("a"), "s", (Family::Tools, "u"), &known);
    let (_, why) = subject.decide(&RecordedCall { agent: Some("a"), ..RecordedCall::default() });
    assert_eq!(why, Some(Unrecorded::Call));
    assert_eq!(subject.is_listed(Some("a")), Some(true));
}

#[test]
fn a_record_that_decides_is_certain() {
    let (tools, _) = ToolSet::read(&[definition(true)]);
    let mut catalogue = Catalogue::default();
    catalogue.insert("s", Some(tools));
    let decide = |allow: &[&str], action, arguments: Option<&Map<String, Value>>| {
        let policy = policy(allow, &[]);
        let subject = policy.recorded_subject(Some("a"), "s", (Family::Tools, "t"), &catalogue);
        let arguments = arguments.map(|arguments| arguments as &dyn toolward_policy::Arguments);
        let record = RecordedCall { agent: Some("a"), action, arguments };
        (subject.decide(&record).0.verdict, subject.reads_action())
    };
    use RecordedAction::{Is, None as Without, Unknown};
    // The listing of `t` is `depends`, but the call is certain.
    assert_eq!(decide(&["t.x"], Is("x"), None), (Verdict::Allow, true));
    assert_eq!(decide(&["t.x"], Is("y"), None), (Verdict::Deny, true));
    assert_eq!(decide(&["t.x"], Without, None), (Verdict::Deny, true));
    assert_eq!(decide(&["t.x"], Unknown, None), (Verdict::Depends, true));
    assert_eq!(decide(&["t when action == \"x\""], Is("x"), None), (Verdict::Allow, true));
    let n = json!({"n": 1});
    let condition = &["t when args.n == 1"];
    assert_eq!(decide(condition, Without, n.as_object()), (Verdict::Allow, false));
    assert_eq!(decide(condition, Without, None), (Verdict::Depends, false));
}

#[test]
fn the_strictest_layer_decides_a_record() {
    let mut layers = Vec::new();
    for tools in [&["t when args.n == 1"][..], &["u"]] {
        let tools = tools.iter().map(|text| entry(text)).collect();
        let list = toolward_policy::source::AllowlistSource {
            path: "allowed_tools".into(),
            case: Default::default(),
            tools,
            prompts: None,
            resources: None,
        };
        layers.push(LayerSource { name: "p".into(), rules: RulesSource::Allowlist(list) });
    }
    let policy = Policy::compile(Source { layers, ..Source::default() }).unwrap();
    let none = Catalogue::default();
    let subject = policy.recorded_subject(Some("a"), "s", (Family::Tools, "t"), &none);
    let (decision, why) = subject.decide(&RecordedCall::default());
    assert_eq!((decision.verdict, decision.layer, why), (Verdict::Deny, Some(1), None));
}
