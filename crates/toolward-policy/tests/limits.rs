//! Limited entries through which a call passes. Counting is done elsewhere.

#![allow(clippy::unwrap_used)]

use serde_json::{Map, Value, json};
use toolward_policy::rate::Per;
use toolward_policy::source::*;
use toolward_policy::{Call, Caller, CompileProblem, Policy, Rate, Subject, Tool};

const RATE: Rate = Rate { count: 10, per: Per::Minute, burst: None };

fn limited(selector: &str, when: Option<&str>) -> Entry {
    Entry { when: when.map(Into::into), limit: Some(RATE), ..Entry::new(selector) }
}

fn side(entries: Vec<Entry>) -> SideSource {
    let list = KeyedList { key: "*".into(), entries, ..KeyedList::default() };
    SideSource { servers: vec!["*".into()], tools: vec![list], ..SideSource::default() }
}

fn agents(allow: Vec<Entry>, deny: Vec<Entry>) -> LayerSource {
    let agent = AgentSource { allow: side(allow), deny: side(deny), ..AgentSource::default() };
    let agent = AgentSource { deny: SideSource { servers: Vec::new(), ..agent.deny }, ..agent };
    let agents = vec![("dev".into(), agent)];
    let rules = RulesSource::Agents(AgentsSource { agents, ..AgentsSource::default() });
    LayerSource { name: "agents".into(), rules }
}

fn allowlist(tools: Vec<Entry>) -> LayerSource {
    let rules = RulesSource::Allowlist(AllowlistSource {
        path: "allowed_tools".into(),
        case: Case::Insensitive,
        tools,
        prompts: None,
        resources: None,
    });
    LayerSource { name: "list".into(), rules }
}

fn compile(layers: Vec<LayerSource>) -> Policy {
    Policy::compile(Source { layers, ..Source::default() }).unwrap()
}

/// The paths of the limited entries through which a call passes.
fn through(policy: &Policy, tool: &str, arguments: Value) -> Vec<String> {
    let arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
    let (tool, caller) = (Tool::named(tool), Caller::named("dev"));
    let hints = policy.hints("s", &tool);
    let cell = policy.cell(caller.agent, "s", Subject::Tool(&tool, &hints));
    let limits = cell.limits(caller, &Call::with(&arguments));
    let path = |at: &toolward_policy::LimitedRule| policy.rule_at(at.layer, at.rule).unwrap().path;
    limits.iter().map(path).collect()
}

#[test]
fn every_layer_counts_the_entry_that_decided_in_it() {
    let policy = compile(vec![
        agents(vec![limited("a", None), limited("*", None), "free".into()], Vec::new()),
        allowlist(vec!["free".into(), limited("*", None)]),
    ]);
    let paths: Vec<String> = policy
        .limits()
        .iter()
        .map(|(at, _)| policy.rule_at(at.layer, at.rule).unwrap().path)
        .collect();
    let (first, second) =
        (r#"agents.dev.allow.tools["*"][0]"#, r#"agents.dev.allow.tools["*"][1]"#);
    assert_eq!(paths, [first, second, "allowed_tools[1]"]);
    assert_eq!(through(&policy, "a", json!({})), [first, "allowed_tools[1]"]);
    assert_eq!(through(&policy, "b", json!({})), [second, "allowed_tools[1]"]);
    // An exact entry takes precedence over a pattern, whatever the order in the file.
    assert_eq!(through(&policy, "free", json!({})), [""; 0]);
}

#[test]
fn actions_and_conditions_choose_the_entry_that_counts() {
    let policy = compile(vec![agents(
        vec![limited("go.far", None), limited("go", Some("args.n > 1")), "go".into()],
        Vec::new(),
    )]);
    let path = |at: usize| vec![format!(r#"agents.dev.allow.tools["*"][{at}]"#)];
    assert_eq!(through(&policy, "go", json!({"action": "far", "n": 5})), path(0));
    assert_eq!(through(&policy, "go", json!({"action": "near", "n": 5})), path(1));
    assert_eq!(through(&policy, "go", json!({"action": "near", "n": 1})), Vec::<String>::new());
}

#[test]
fn a_denied_call_counts_nowhere_and_a_deny_has_no_limit() {
    let policy =
        compile(vec![agents(vec![limited("*", None)], vec!["no".into()]), allowlist(Vec::new())]);
    assert_eq!(through(&policy, "no", json!({})), [""; 0]);
    let wrong = vec![agents(Vec::new(), vec![limited("x", None)])];
    let errors = Policy::compile(Source { layers: wrong, ..Source::default() }).unwrap_err();
    assert_eq!(errors[0].problem, CompileProblem::LimitInDeny);
}
