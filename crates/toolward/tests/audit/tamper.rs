//! A changed, removed, inserted or moved record is found, wherever it is.

use serde_json::{Value, json};

use super::log::{Log, hash};

const FILE: &str = "audit.jsonl";

/// Verifies a changed file, and that the output names the line or one next to it; returns the output.
fn found(log: &Log, lines: &[String], near: usize, what: &str) -> Vec<Value> {
    log.write(FILE, lines);
    let said = log.verify();
    assert_eq!(said.code, 1, "{what}: {said:?}");
    let findings = said.findings();
    let is_near = |finding: &Value| {
        let line = finding["line"].as_u64().unwrap_or(0) as usize;
        finding["file"] == FILE && line.abs_diff(near) <= 1
    };
    assert!(findings.iter().any(is_near), "{what} near line {near}: {findings:#?}");
    findings
}

fn words(findings: &[Value]) -> Vec<&str> {
    findings.iter().map(|finding| finding["what"].as_str().unwrap()).collect()
}

/// A record without its hash link, so that another one can be inserted.
fn without_link(line: &str) -> String {
    line[..line.rfind(",\"prev\":").unwrap()].into()
}

fn linked(record: &str, prev: &str) -> String {
    format!("{record},\"prev\":\"{prev}\"}}")
}

#[test]
fn the_record_of_a_gateway_is_whole() {
    let log = Log::small();
    let said = log.verify();
    assert_eq!(said.code, 0, "{said:?}");
    let report = said.json();
    let stream = &report["streams"][0];
    let records = log.records(FILE);
    let kinds: Vec<&Value> = records.iter().map(|record| &record["kind"]).collect();
    for kind in ["segment", "start", "list", "intent", "outcome", "refusal", "stop"] {
        assert!(kinds.contains(&&json!(kind)), "{kind}: {kinds:?}");
    }
    assert_eq!((&report["whole"], &stream["segments"]), (&json!(true), &json!(1)));
    assert_eq!(stream["records"], records.len());
    assert_eq!(stream["first"], records[0]["time"]);
    assert_eq!(stream["last"], records[records.len() - 1]["time"]);
    let text = log.run(&["audit", "verify"]);
    assert!(text.out.ends_with(": whole\n") && text.err.is_empty(), "{text:?}");
}

#[test]
fn every_removed_record_is_found() {
    let log = Log::small();
    let lines = log.lines(FILE);
    for at in 0..lines.len() {
        let mut changed = lines.clone();
        changed.remove(at);
        found(&log, &changed, at + 1, "removed");
    }
}

#[test]
fn every_cut_is_found() {
    let log = Log::small();
    let lines = log.lines(FILE);
    for kept in 0..lines.len() {
        let findings = found(&log, &lines[..kept], kept, "cut");
        assert_eq!(words(&findings), ["removed"], "{findings:#?}");
    }
    std::fs::remove_file(log.file(FILE)).unwrap();
    assert_eq!(words(&log.verify().findings()), ["removed"]);
    // Truncation inside a line is not a torn write: the head has more records.
    let text = lines.join("\n") + "\n";
    for end in [1, 10, text.len() / 2, text.len() - 1] {
        std::fs::write(log.file(FILE), &text[..end]).unwrap();
        let said = log.verify();
        assert!(said.code == 1 && words(&said.findings()).contains(&"removed"), "{end}: {said:?}");
    }
}

#[test]
fn every_repeated_record_is_found() {
    let log = Log::small();
    let lines = log.lines(FILE);
    for at in 0..lines.len() {
        let mut changed = lines.clone();
        changed.insert(at, lines[at].clone());
        let findings = found(&log, &changed, at + 1, "repeated");
        assert!(words(&findings).contains(&"inserted"), "{at}: {findings:#?}");
        // Also if the member is moved.
        for to in 0..=lines.len() {
            let mut changed = lines.clone();
            changed.insert(to, lines[at].clone());
            if to != at && to != at + 1 {
                found(&log, &changed, to + 1, "repeated elsewhere");
            }
        }
    }
}

#[test]
fn every_swap_and_move_is_found() {
    let log = Log::small();
    let lines = log.lines(FILE);
    for at in 1..lines.len() {
        let mut changed = lines.clone();
        changed.swap(at - 1, at);
        let findings = found(&log, &changed, at, "swapped");
        assert!(words(&findings).contains(&"reordered"), "{at}: {findings:#?}");
    }
    for from in 0..lines.len() {
        for to in 0..lines.len() {
            if from.abs_diff(to) > 1 {
                let mut changed = lines.clone();
                let moved = changed.remove(from);
                changed.insert(to, moved);
                let findings = found(&log, &changed, to + 1, "moved");
                assert!(words(&findings).contains(&"reordered"), "{from} {to}: {findings:#?}");
            }
        }
    }
}

#[test]
fn every_forged_record_is_found() {
    let log = Log::small();
    let lines = log.lines(FILE);
    let head = std::fs::read(log.file("audit.head")).unwrap();
    for at in 0..=lines.len() {
        let before = at.checked_sub(1).map_or("0".repeat(64), |before| hash(&lines[before]));
        let forged = "{\"id\":\"6605d2f252b7f-226f8544-0\",\"time\":\"2026-11-16T04:26:39.454083Z\",\
                      \"kind\":\"refusal\",\"agent\":\"dev\"";
        // With the right link, a wrong one, none, and as a line that is not a record at all.
        for line in [
            linked(forged, &before),
            linked(forged, &"1".repeat(64)),
            format!("{forged}}}"),
            "not a record".into(),
            String::new(),
        ] {
            let mut changed = lines.clone();
            changed.insert(at, line);
            let findings = found(&log, &changed, at + 1, "forged");
            assert!(
                findings.iter().any(|one| one["what"] == "inserted")
                    || findings.iter().any(|one| one["message"].to_string().contains("inserted"))
                    || at == 0,
                "{at}: {findings:#?}"
            );
        }
        // An attacker who also recomputes the following links cannot change the head.
        let mut changed = lines.clone();
        changed.insert(at, linked(forged, &before));
        for next in at + 1..changed.len() {
            changed[next] = linked(&without_link(&changed[next]), &hash(&changed[next - 1]));
        }
        log.write(FILE, &changed);
        let said = log.verify();
        assert_eq!(said.code, 1, "{said:?}");
        assert_eq!(std::fs::read(log.file("audit.head")).unwrap(), head);
    }
}

#[test]
fn every_changed_field_is_found() {
    let log = Log::small();
    let lines = log.lines(FILE);
    let mut fields = 0;
    for (at, line) in lines.iter().enumerate() {
        let record: Value = serde_json::from_str(line).unwrap();
        for (name, value) in record.as_object().unwrap() {
            let (id, time) = (record["id"].to_string(), record["time"].to_string());
            let others: Vec<Value> = match value {
                Value::String(text) if name == "prev" => {
                    vec![json!("0".repeat(64)), json!(format!("f{}", &text[1..])), json!(1)]
                }
                Value::String(text) => {
                    vec![json!(format!("{text}x")), json!(""), json!(null), json!(1)]
                }
                Value::Number(_) => vec![json!(value.as_u64().unwrap() + 1), json!("1")],
                Value::Bool(is) => vec![json!(!is)],
                Value::Null => vec![json!("x")],
                _ => vec![json!(null)],
            };
            for other in others.into_iter().filter(|other| other != value) {
                let mut record = record.clone();
                record[name] = other;
                let mut changed = lines.clone();
                changed[at] = record.to_string();
                found(&log, &changed, at + 1, &format!("{name} of {id} {time}"));
                fields += 1;
            }
            // Removed altogether.
            let mut record = record.clone();
            record.as_object_mut().unwrap().shift_remove(name);
            let mut changed = lines.clone();
            changed[at] = record.to_string();
            found(&log, &changed, at + 1, &format!("no {name} in {id} {time}"));
        }
        // The same object in other bytes.
        let mut changed = lines.clone();
        changed[at] = line.replacen("\":", "\": ", 1);
        found(&log, &changed, at + 1, "a space");
    }
    assert!(fields > 200, "{fields}");
}

#[test]
fn several_places_are_all_named() {
    let log = Log::small();
    let mut lines = log.lines(FILE);
    let last = lines.len();
    lines[1] = lines[1].replace("\"version\":\"", "\"version\":\"9");
    lines[last - 3] = lines[last - 3].replace("\"kind\":\"", "\"kind\":\"x");
    let findings = found(&log, &lines, 3, "two changes");
    assert!(findings.iter().any(|one| one["line"] == last as u64 - 1), "{findings:#?}");
    assert_eq!(findings.len(), 2, "{findings:#?}");
    let text = log.run(&["audit", "verify"]);
    assert!(text.out.contains("audit.jsonl:3 (") && text.out.contains("not whole: 2 places\n"));
    // More findings than anyone would read are counted.
    let line = lines[2].clone();
    lines.extend(std::iter::repeat_n(line, 500));
    let said = {
        log.write(FILE, &lines);
        log.verify()
    };
    assert_eq!(said.findings().len(), 100);
    assert!(said.json()["streams"][0]["more_findings"].as_u64().unwrap() > 300);
}

#[test]
fn a_record_without_its_head_is_not_whole() {
    let log = Log::small();
    let head = std::fs::read(log.file("audit.head")).unwrap();
    for content in [None, Some(&b""[..]), Some(b"{\"hash\":\"zz\"}")] {
        match content {
            None => std::fs::remove_file(log.file("audit.head")).unwrap(),
            Some(content) => std::fs::write(log.file("audit.head"), content).unwrap(),
        }
        let said = log.verify();
        assert_eq!((said.code, words(&said.findings())), (1, vec!["no-head"]), "{said:?}");
    }
    std::fs::write(log.file("audit.head"), &head).unwrap();
    assert_eq!(log.verify().code, 0);
}

#[test]
fn a_line_that_is_not_a_record_is_reported_and_skipped() {
    let log = Log::small();
    for name in ["audit.jsonl", "audit-00000001.jsonl"] {
        let path = log.file(name);
        let kept = std::fs::read(&path).ok();
        let _ = std::fs::remove_file(&path);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let said = log.run(&["audit", "verify"]);
        assert!(said.code == 3 && said.err.contains("not a file"), "{said:?}");
        std::fs::remove_file(&path).unwrap();
        if let Some(kept) = kept {
            std::fs::write(&path, kept).unwrap();
        }
    }
    let mut lines = log.lines(FILE);
    lines.insert(2, "{\"id\":\"\u{1b}[31m\u{202e}\",\"time\":\"\u{7}\",\"kind\":\"x\"}".into());
    log.write(FILE, &lines);
    for words in [["audit", "verify"], ["audit", "query"], ["tail", "--no-follow"]] {
        let said = log.run(&words);
        assert!(!said.out.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{said:?}");
        let json = log.run(&[words[0], words[1], "--json"]);
        assert!(!json.out.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{json:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    for words in [["audit", "verify"], ["audit", "query"], ["tail", "--no-follow"]] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"));
        command.args(words).args(["--dir", empty]);
        let said = super::log::said(command);
        assert!(said.code == 3 && said.err.contains("there is no audit log"), "{said:?}");
    }
}
