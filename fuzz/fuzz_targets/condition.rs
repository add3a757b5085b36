//! Any text as a condition: it is refused or accepted, never a panic and never a stack overflow.
//! What is accepted is evaluated too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use toolward_policy::condition::Condition;
use toolward_policy::source::{AllowlistSource, Case, Entry, LayerSource, RulesSource, Source};
use toolward_policy::{Call, Caller, Policy, Tool, Verdict};

fuzz_target!(|text: &str| {
    let condition = Condition::new(text);
    let entry = Entry { when: Some(text.into()), ..Entry::new("*") };
    let list = AllowlistSource {
        path: "allowed_tools".into(),
        case: Case::Sensitive,
        tools: vec![entry],
        prompts: None,
        resources: None,
    };
    let layer = LayerSource { name: "list".into(), rules: RulesSource::Allowlist(list) };
    let policy = Policy::compile(Source { layers: vec![layer], ..Source::default() });
    assert_eq!(condition.is_ok(), policy.is_ok());
    let Ok(policy) = policy else { return };

    let arguments = json!({ "path": "/srv/a", "n": 3, "list": [1, "a", null], "flag": true });
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let (caller, tool) = (Caller::named("agent"), Tool::named("write_file"));
    let called = policy.decide(caller, "files", &tool, &Call::with(&arguments));
    assert!(matches!(called.verdict, Verdict::Allow | Verdict::Deny));
    policy.list(caller, "files", &tool);
});
