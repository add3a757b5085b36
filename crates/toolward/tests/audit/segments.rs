//! Rotation, retention, torn lines, several gateways, and gateways that are writing.

use std::io::Write;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use toolward_testkit::wait::eventually;

use super::log::{Log, hash};

/// An audit log in several segments.
fn rotated() -> Log {
    let log = Log::new().audit("rotate", json!({"size": "1500 B", "age": "1 day"}));
    let mut client = log.client("dev");
    for at in 0..8 {
        client.call("read", json!({"at": at}));
    }
    client.close();
    assert!(log.segments().len() >= 4, "{:?}", log.segments());
    log
}

fn whats(findings: &[Value]) -> Vec<&str> {
    findings.iter().map(|finding| finding["what"].as_str().unwrap()).collect()
}

#[test]
fn segments_are_one_chain() {
    let log = rotated();
    let said = log.verify();
    assert_eq!(said.code, 0, "{said:?}");
    let segments = log.segments();
    let report = said.json();
    assert_eq!(report["streams"][0]["segments"], segments.len() + 1);
    let total: usize = segments.iter().map(|name| log.lines(name).len()).sum();
    assert_eq!(report["streams"][0]["records"], total + log.lines("audit.jsonl").len());
    // Meanwhile a gateway continued the log.
    log.client("dev").close();
    assert_eq!(log.verify().code, 0);
}

#[test]
fn every_change_of_a_segment_is_found() {
    let log = rotated();
    let segments = log.segments();
    let last = segments.len() - 1;
    for (at, name) in segments.iter().enumerate() {
        let path = log.file(name);
        let text = std::fs::read(&path).unwrap();
        // Removed as a whole.
        std::fs::remove_file(&path).unwrap();
        let said = log.verify();
        let findings = said.findings();
        assert_eq!(said.code, 1, "{said:?}");
        let number = format!("segment {} is missing", at + 1);
        assert!(
            findings.iter().any(|one| one["message"].to_string().contains(&number)),
            "{said:?}"
        );
        // Without its first and its last record, and with another segment's name.
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        for kept in [&lines[1..], &lines[..lines.len() - 1], &[]] {
            std::fs::write(&path, kept.concat()).unwrap();
            let said = log.verify();
            let next = segments.get(at + 1).map_or("audit.jsonl", String::as_str);
            let named = |one: &Value| one["file"] == **name || one["file"] == *next;
            assert!(said.code == 1 && said.findings().iter().any(named), "{name}: {said:?}");
        }
        std::fs::write(&path, &text).unwrap();
        // Its last line is incomplete.
        std::fs::write(&path, &text[..text.len() - 1]).unwrap();
        assert_eq!(log.verify().code, 1);
        std::fs::write(&path, &text).unwrap();
    }
    let (one, other) = (log.file(&segments[0]), log.file(&segments[last]));
    let swap = || {
        std::fs::rename(&one, log.file("x")).unwrap();
        std::fs::rename(&other, &one).unwrap();
        std::fs::rename(log.file("x"), &other).unwrap();
    };
    swap();
    let findings = log.verify().findings();
    for name in [&segments[0], &segments[last]] {
        let moved = |one: &Value| one["file"] == **name && one["what"] == "reordered";
        assert!(findings.iter().any(moved), "{name}: {findings:#?}");
    }
    swap();
    // A copy under another number.
    std::fs::copy(&one, log.file("audit-00000099.jsonl")).unwrap();
    assert_eq!(log.verify().code, 1);
    std::fs::remove_file(log.file("audit-00000099.jsonl")).unwrap();
    std::fs::remove_file(log.file("audit.jsonl")).unwrap();
    assert_eq!(whats(&log.verify().findings()), ["removed"]);
}

#[test]
fn segments_whose_time_was_over_are_not_missed() {
    let log = rotated();
    let before = log.segments();
    let long_ago = SystemTime::now() - Duration::from_secs(10 * 86_400);
    for name in &before[..2] {
        let file = std::fs::File::options().append(true).open(log.file(name)).unwrap();
        file.set_modified(long_ago).unwrap();
    }
    let log = log.audit("retain", json!("5 days"));
    let mut client = log.client("dev");
    for at in 0..4 {
        client.call("read", json!({"at": at}));
    }
    client.close();
    assert!(!log.file(&before[0]).exists() && !log.file(&before[1]).exists());
    let said = log.verify();
    assert_eq!((said.code, &said.json()["streams"][0]["removed_up_to"]), (0, &json!(2)));
    let text = log.run(&["audit", "verify"]).out;
    assert!(text.contains("segments up to 2 expired and were removed"), "{text}");
    // Removing one more is too many, and so is a segment without its first record.
    let third = std::fs::read(log.file(&before[2])).unwrap();
    let first_end = third.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    std::fs::write(log.file(&before[2]), &third[first_end..]).unwrap();
    assert_eq!(whats(&log.verify().findings()), ["removed"]);
    std::fs::remove_file(log.file(&before[2])).unwrap();
    let findings = log.verify().findings();
    assert_eq!(
        findings[0]["message"].as_str().unwrap().split(',').next(),
        Some("segment 3 is missing")
    );
}

#[test]
fn each_segment_has_the_names_of_the_views_that_were_listed() {
    let log = Log::new().audit("rotate", json!({"size": "1500 B", "age": "1 day"}));
    let mut client = log.client("dev");
    for at in 0..8 {
        client.call("read", json!({"at": at}));
        client.list();
        client.list();
    }
    client.close();
    let mut files = log.segments();
    files.push("audit.jsonl".into());
    let mut listed = 0;
    for name in &files {
        let records = log.records(name);
        let lists: Vec<_> = records.iter().filter(|record| record["kind"] == "list").collect();
        let named = lists.iter().filter(|record| record["names"].is_object()).count();
        assert_eq!(named, lists.len().min(1), "{name}: {lists:#?}");
        listed += named;
    }
    assert!(listed >= 3, "{listed}");
}

#[test]
fn a_torn_last_line_is_reported_and_removed() {
    let log = Log::small();
    let whole = std::fs::read(log.file("audit.jsonl")).unwrap();
    let tear = || {
        let mut file = std::fs::File::options().append(true).open(log.file("audit.jsonl")).unwrap();
        file.write_all(b"{\"id\":\"6605d2f2").unwrap();
    };
    tear();
    let said = log.run(&["audit", "verify"]);
    assert!(said.code == 0 && said.out.contains(": torn: "), "{said:?}");
    assert_eq!(log.verify().json()["streams"][0]["torn"]["bytes"], 15);
    let said = log.run(&["audit", "verify", "--repair"]);
    assert!(said.code == 0 && said.out.contains("was removed (15 bytes)"), "{said:?}");
    // Complete records stay, and the repair is recorded.
    assert!(std::fs::read(log.file("audit.jsonl")).unwrap().starts_with(&whole));
    let records = log.records("audit.jsonl");
    let last = records.last().unwrap();
    assert_eq!((&last["kind"], &last["bytes"]), (&json!("repair"), &json!(15)));
    assert_eq!(last["torn"], "{\"id\":\"6605d2f2");
    // The next gateway continues from there, and does the same by itself.
    log.client("dev").close();
    assert_eq!(log.verify().code, 0);
    tear();
    log.client("dev").close();
    let said = log.verify();
    assert_eq!((said.code, &said.json()["streams"][0]["repairs"]), (0, &json!(2)), "{said:?}");
    assert_eq!(log.run(&["audit", "verify", "--repair"]).code, 0);
}

#[test]
fn nothing_but_a_torn_line_is_repaired() {
    let log = Log::small();
    // Truncated in the middle of the last record: the head shows that it was complete.
    let text = std::fs::read(log.file("audit.jsonl")).unwrap();
    std::fs::write(log.file("audit.jsonl"), &text[..text.len() - 20]).unwrap();
    let said = log.run(&["audit", "verify", "--repair"]);
    assert!(said.code == 1 && said.out.contains("was truncated"), "{said:?}");
    assert_eq!(std::fs::read(log.file("audit.jsonl")).unwrap().len(), text.len() - 20);
    // The next gateway removes the rest of it, and records that a record is missing.
    log.client("dev").close();
    let kinds: Vec<Value> =
        log.records("audit.jsonl").iter().map(|record| record["kind"].clone()).collect();
    assert!(kinds.contains(&json!("repair")) && kinds.contains(&json!("gap")), "{kinds:?}");
    let said = log.run(&["audit", "verify"]);
    assert!(said.code == 1 && said.out.contains(": removed: records before it"), "{said:?}");
}

#[test]
fn a_gateway_that_writes_is_left_alone() {
    let log = Log::new();
    let mut client = log.client("dev");
    client.call("read", json!({}));
    // The outcome of a call is written just after its response.
    eventually("the outcome is recorded", || {
        log.lines("audit.jsonl").last().is_some_and(|line| line.contains("\"outcome\""))
    });
    let mut file = std::fs::File::options().append(true).open(log.file("audit.jsonl")).unwrap();
    file.write_all(b"{\"id\":\"6605").unwrap();
    let said = log.run(&["audit", "verify", "--repair"]);
    assert!(said.code == 3 && said.err.contains("a gateway writes to it"), "{said:?}");
    let said = log.run(&["audit", "verify"]);
    assert!(said.code == 0 && said.out.contains("a line is being written"), "{said:?}");
}

#[test]
fn a_gateway_can_be_looked_at_while_it_writes_and_rotates() {
    let log = Log::new().audit("rotate", json!({"size": "3000 B", "age": "1 day"}));
    let mut client = log.client("dev");
    client.call("read", json!({}));
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let looks: Vec<_> = (0..30).map(|_| log.run(&["audit", "verify"])).collect();
            looks
        });
        let mut calls = 0;
        while !looking.is_finished() {
            client.call("read", json!({"at": calls}));
            calls += 1;
        }
        for said in looking.join().unwrap() {
            assert_eq!(said.code, 0, "after {calls} calls: {said:?}");
        }
    });
    client.close();
    assert_eq!(log.verify().code, 0);
}

#[test]
fn a_gateway_that_was_killed_leaves_a_whole_record() {
    let log = Log::new();
    for _ in 0..3 {
        let mut client = log.client("dev");
        client.call("read", json!({}));
        client.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "s__hang"}}));
        client.call("read", json!({}));
        drop(client);
        let said = log.verify();
        assert_eq!(said.code, 0, "{said:?}");
    }
}

/// A record that fits at the end of a file, with a time this many microseconds later.
fn appended(log: &Log, later: u64) -> String {
    let lines = log.lines("audit.jsonl");
    let last = lines.last().unwrap();
    let record: Value = serde_json::from_str(last).unwrap();
    let (time, rest) = record["id"].as_str().unwrap().split_once('-').unwrap();
    let time = u64::from_str_radix(time, 16).unwrap() + later;
    let body = &last[..last.rfind(",\"prev\":").unwrap()];
    let body = body.replacen(record["id"].as_str().unwrap(), &format!("{time:012x}-{rest}9"), 1);
    format!("{body},\"prev\":\"{}\"}}", hash(last))
}

#[test]
fn a_head_lacks_only_records_of_the_moment_of_a_kill() {
    // A gateway that exited by itself has written everything.
    let closed = Log::small();
    // A killed gateway may not have; but it wrote nothing later.
    let killed = Log::new();
    let mut client = killed.client("dev");
    client.call("read", json!({}));
    // The head is written a moment after the last record.
    eventually("the head knows the last record", || {
        let lines = killed.lines("audit.jsonl");
        let head = std::fs::read_to_string(killed.file("audit.head")).unwrap_or_default();
        lines.last().is_some_and(|line| line.contains("outcome") && head.contains(&hash(line)))
    });
    drop(client);
    for (log, later, code) in [(&closed, 10, 1), (&killed, 60_000_000, 1), (&killed, 10, 0)] {
        let before = log.lines("audit.jsonl");
        log.write("audit.jsonl", &[before.clone(), vec![appended(log, later)]].concat());
        let said = log.verify();
        assert_eq!(said.code, code, "{later}: {said:?}");
        match code {
            0 => assert_eq!(said.json()["streams"][0]["killed"], 1, "{said:?}"),
            _ => assert_eq!(said.findings()[0]["what"], "inserted", "{said:?}"),
        }
        log.write("audit.jsonl", &before);
    }
}

#[test]
fn a_head_that_was_just_removed_is_recreated_at_shutdown() {
    let log = Log::new();
    let mut client = log.client("dev");
    std::fs::remove_file(log.file("audit.head")).unwrap();
    client.call("read", json!({}));
    client.close();
    let said = log.verify();
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn an_end_that_waits_for_the_disk_is_recorded_to_the_end() {
    for _ in 0..8 {
        let log = Log::new().audit("durability", json!("disk"));
        let mut client = log.client("dev");
        client.call("read", json!({}));
        client.close();
        let records = log.records("audit.jsonl");
        assert_eq!(records.last().unwrap()["kind"], "stop");
        let said = log.verify();
        assert_eq!((said.code, &said.json()["streams"][0]["killed"]), (0, &json!(0)), "{said:?}");
        let lines = [log.lines("audit.jsonl"), vec![appended(&log, 10)]].concat();
        log.write("audit.jsonl", &lines);
        assert_eq!(log.verify().code, 1);
    }
}

#[test]
fn gateways_that_share_a_directory_write_separate_streams() {
    let log = Log::new();
    let (mut one, mut other) = (log.client("dev"), log.client("other"));
    one.call("read", json!({}));
    other.call("read", json!({}));
    one.close();
    other.close();
    let report = log.verify().json();
    let names: Vec<&Value> =
        report["streams"].as_array().unwrap().iter().map(|stream| &stream["stream"]).collect();
    assert_eq!(names, ["audit", "audit.2"]);
    assert_eq!(report["whole"], true);
    // Both are searched, in order of time.
    let rows = log.run(&["audit", "query", "--kind", "intent", "--json"]).rows();
    let agents: Vec<&Value> = rows.iter().map(|row| &row["agent"]).collect();
    assert_eq!(agents, ["dev", "other"]);
    std::fs::remove_file(log.file("audit.2.jsonl")).unwrap();
    let findings = log.verify().findings();
    assert_eq!(
        (whats(&findings), &findings[0]["file"]),
        (vec!["removed"], &json!("audit.2.jsonl"))
    );
}

#[test]
fn whoever_has_all_files_and_the_head_can_write_anything() {
    let log = Log::small();
    let mut lines = log.lines("audit.jsonl");
    let mut before = "0".repeat(64);
    for line in &mut lines {
        let begin = line.rfind(",\"prev\":").unwrap();
        *line = format!("{},\"prev\":\"{before}\"}}", line[..begin].replace("\"dev\"", "\"x\""));
        before = hash(line);
    }
    log.write("audit.jsonl", &lines);
    assert_eq!(log.verify().code, 1);
    let bytes: usize = lines.iter().map(|line| line.len() + 1).sum();
    let head = json!({"hash": before, "segment": 1, "bytes": bytes});
    std::fs::write(log.file("audit.head"), head.to_string()).unwrap();
    // A hash chain cannot detect this. A copy of the head elsewhere does.
    assert_eq!(log.verify().code, 0);
}
