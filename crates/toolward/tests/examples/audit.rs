//! The example that verifies an audit log without the program.

use serde_json::json;

use super::support::example;

#[test]
fn the_log_can_be_verified_without_the_program() {
    let example = example("verify-audit");
    let mut maintainer = example.as_agent("maintainer");
    for number in 0..5 {
        maintainer.done("tracker__get_issue", json!({"number": 17}));
        maintainer.call("tracker__delete_issue", json!({"number": number}));
    }
    drop(maintainer);
    let verify = || example.shell("./verify.py audit");
    let (code, said) = verify();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("the chain is intact"), "{said}");
    let (code, said) = example.shell("toolward audit verify --dir audit");
    assert_eq!(code, 0, "{said}");

    let log = example.folder().join("audit/audit.jsonl");
    let whole = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    assert!(lines.len() > 10, "{whole}");
    let changed = whole.replacen("tracker", "tricker", 1);
    let removed = [&lines[..5], &lines[6..]].concat().concat();
    let moved = [&lines[..5], &[lines[6], lines[5]], &lines[7..]].concat().concat();
    let shortened = lines[..lines.len() - 1].concat();
    for damaged in [changed, removed, moved, shortened] {
        std::fs::write(&log, damaged).unwrap();
        let (code, said) = verify();
        assert_eq!(code, 1, "{said}");
    }
    std::fs::write(&log, whole).unwrap();
    assert_eq!(verify().0, 0);
}
