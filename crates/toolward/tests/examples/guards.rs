//! Examples of rate limits and hooks.

use serde_json::json;

use super::support::example;
use toolward_testkit::wait::eventually;

#[test]
fn a_limit_refuses_excess_calls_with_a_retry_time() {
    let example = example("limits");
    let mut maintainer = example.as_agent("maintainer");
    let issue = json!({"title": "Slow export"});
    for _ in 0..2 {
        maintainer.done("tracker__create_issue", issue.clone());
    }
    let refusal = maintainer.refused("tracker__create_issue", issue);
    assert_eq!((&refusal["error"], &refusal["rate"]), (&json!("limit_exceeded"), &json!("2/h")));
    assert!(refusal["retry_after_ms"].as_u64() > Some(0), "{refusal}");
    assert_eq!(refusal["retryable"], true);
    // Five destructive calls; other tools are not limited.
    for _ in 0..5 {
        maintainer.call("tracker__delete_issue", json!({"number": 9999}));
    }
    let refusal = maintainer.refused("tracker__delete_issue", json!({"number": 17}));
    assert_eq!(refusal["rate"], "5/h");
    maintainer.done("tracker__get_issue", json!({"number": 17}));
}

#[test]
fn hooks_are_asked_before_a_call() {
    let hooks = |name: &str, value: &str| {
        example("hooks").env("WRITER_TOKEN", "writer-secret-of-16").env(name, value).with_npx()
    };
    let Some(example) = hooks("MYPROJECT_AUDIT_LOG", "lines.log") else { return };
    std::fs::write(example.folder().join("production.txt"), "text").unwrap();
    let mut writer = example.as_agent("writer");
    // Tools that hooks would refuse are listed: hooks apply to calls.
    assert!(writer.list().contains(&"files__write_file".into()));
    let readme = json!({"path": "README.md"});
    assert!(writer.done("files__read_text_file", readme.clone()).contains("Hooks run"));
    let answer = writer.call("files__read_text_file", json!({"path": "production.txt"}));
    assert_eq!(answer["error"]["message"], "read_text_file may not touch production", "{answer}");
    // The last hook logged the calls that passed all others.
    let log = example.file("lines.log");
    assert_eq!(log.matches("tool=read_text_file").count(), 1, "{log}");
    let Some(example) = hooks("MYPROJECT_ALLOWED_TOOLS", "list_directory") else { return };
    let mut writer = example.as_agent("writer");
    writer.done("files__list_directory", json!({"path": "."}));
    let answer = writer.call("files__read_text_file", readme);
    let words = "Tool 'read_text_file' is not in the allowed list";
    assert_eq!(answer["error"]["message"], words, "{answer}");
}

#[test]
fn a_call_waits_until_a_person_approves_it() {
    let example = example("approvals");
    let mut coder = example.as_agent("coder");
    assert!(coder.list().contains(&"tracker__delete_issue".into()), "a tool that asks is listed");
    coder.done("tracker__get_issue", json!({"number": 17}));
    let call =
        std::thread::spawn(move || coder.done("tracker__delete_issue", json!({"number": 17})));
    let id = eventually("the call waits", || {
        let (_, said) = example.shell("toolward pending --json");
        let tickets: serde_json::Value = serde_json::from_str(said.lines().next()?).ok()?;
        Some(tickets[0]["id"].as_str()?.to_string())
    });
    let (code, said) = example.shell(&format!("toolward approve {id}"));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("coder may call tracker/delete_issue once"), "{said}");
    call.join().unwrap();
}
