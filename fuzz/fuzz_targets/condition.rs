//! Fuzzes conditions with any text.
//!
//! A condition is rejected or accepted, without a panic or a stack overflow. Accepted conditions
//! are evaluated too.
#![no_main]

use std::thread;

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use toolward_policy::condition::Condition;
use toolward_policy::source::{AllowlistSource, Case, Entry, LayerSource, RulesSource, Source};
use toolward_policy::{Call, Caller, Policy, Tool, Verdict};

/// Stack size of a thread that serves requests.
const STACK_BYTES: usize = 2 << 20;

fuzz_target!(|text: &str| {
    // A stack overflow ends the process before libFuzzer can save the input.
    if let Some(file) = std::env::var_os("FUZZ_LAST_INPUT") {
        std::fs::write(file, text).expect("the last input can be saved");
    }
    // A text in three parts is expanded by repeating the middle: once to just below the maximum
    // length, and once far beyond it.
    let parts: Vec<&str> = text.split('\u{1}').collect();
    let texts = match parts[..] {
        [head, middle, tail] => [1_900, 20_000]
            .map(|length| {
                let middle = middle.repeat(length / middle.len().max(1));
                [head, &middle, tail].concat()
            })
            .to_vec(),
        _ => vec![text.to_string()],
    };
    let check = move || texts.iter().for_each(|text| check(text));
    let checked = thread::Builder::new().stack_size(STACK_BYTES).spawn(check);
    checked.expect("a thread starts").join().expect("the check does not panic");
});

fn check(text: &str) {
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
}
