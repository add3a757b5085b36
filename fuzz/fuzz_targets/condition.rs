//! Any text as a condition: it is refused or accepted, never a panic and never a stack overflow.
//! What is accepted is evaluated too.
#![no_main]

use std::thread;

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use toolward_policy::condition::Condition;
use toolward_policy::source::{AllowlistSource, Case, Entry, LayerSource, RulesSource, Source};
use toolward_policy::{Call, Caller, Policy, Tool, Verdict};

/// What a thread has that serves requests.
const STACK: usize = 2 << 20;

fuzz_target!(|text: &str| {
    // A stack overflow ends the process before libFuzzer can save the input.
    if let Some(file) = std::env::var_os("FUZZ_LAST_INPUT") {
        std::fs::write(file, text).expect("the last input can be kept");
    }
    // A text in three parts stands for long ones, in which the middle is repeated: one just below
    // what is accepted, one far beyond.
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
    let checked = thread::Builder::new().stack_size(STACK).spawn(check);
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
