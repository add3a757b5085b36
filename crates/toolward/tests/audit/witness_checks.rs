//! The test kit's own verification of audit logs detects what it must.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::json;

use super::log::Log;
use super::witness::{Ended, received};

fn ask(log: &Log, said: &str) -> bool {
    let secrets = vec!["hunter-2".into()];
    let ended = Ended { audit: &log.path("audit"), secrets, said, unrecorded: false };
    catch_unwind(AssertUnwindSafe(|| ended.ask())).is_ok()
}

#[test]
fn the_kit_sees_what_is_wrong_with_a_record() {
    let log = Log::small();
    let lines = log.lines("audit.jsonl");
    let records = log.records("audit.jsonl");
    let at = |kind: &str| records.iter().position(|record| record["kind"] == kind).unwrap();
    let refusal = json!({"error": {"data": {"decision_id": records[at("refusal")]["id"]}}});
    received(&refusal);
    assert!(ask(&log, "all is well"));
    assert!(!ask(&log, "the token is hunter-2"));
    // Links are recomputed, so that only one thing is wrong.
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut changed = lines.clone();
        change(&mut changed);
        let mut before = "0".repeat(64);
        for line in &mut changed {
            let begin = line.rfind(",\"prev\":").unwrap();
            *line = format!("{},\"prev\":\"{before}\"}}", &line[..begin]);
            before = super::log::hash(line);
        }
        log.write("audit.jsonl", &changed);
        ask(&log, "")
    };
    assert!(with(&|_| {}));
    assert!(!with(&|lines| drop(lines.remove(at("refusal")))), "a refusal without a record");
    assert!(!with(&|lines| lines.push(lines[at("refusal")].clone())), "a refusal with two records");
    assert!(!with(&|lines| drop(lines.remove(at("outcome")))), "a call without an outcome");
    assert!(
        !with(&|lines| lines.insert(5, lines[at("outcome")].clone())),
        "two outcomes of a call"
    );
    assert!(!with(&|lines| lines[1] = lines[1].replace("0.1.0", "hunter-2")), "a secret");
    // A killed gateway may lack outcomes.
    assert!(with(&|lines| {
        lines.remove(at("stop"));
        lines.remove(at("outcome"));
    }));
    let mut broken = lines.clone();
    broken[2] = broken[2].replacen("\"agent\":\"dev\"", "\"agent\":\"you\"", 1);
    assert_ne!(broken, lines);
    log.write("audit.jsonl", &broken);
    assert!(!ask(&log, ""), "a changed record");
}
