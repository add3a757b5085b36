//! An audit log that cannot be written: no call is forwarded until it can.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::audit_log;
use super::harness::{Gate, MODERN, eventually, everyone, modern_body, names, setup};
use super::mount::Mount;

/// Makes `times` calls. Returns the numbers of calls that were executed and that were
/// refused because they could not be recorded; anything else fails.
fn call_on(gate: &Gate, times: usize) -> (usize, usize) {
    let mut connection = gate.connect();
    let agent = gate.agent("a");
    let (mut done, mut refused) = (0, 0);
    let call = json!({"name": "s__a", "arguments": {}});
    let body = modern_body(json!("m"), "tools/call", call).to_string();
    let headers =
        [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", "s__a")];
    let request = agent.request("POST", &headers, &body);
    for _ in 0..times {
        connection.send(request.as_bytes());
        let answer = connection.reply().json();
        match answer["error"]["data"]["error"].as_str() {
            None if answer["result"].is_object() => done += 1,
            Some("not_recorded") => refused += 1,
            _ => panic!("{answer}"),
        }
    }
    (done, refused)
}

fn gate() -> Gate {
    setup().agents(everyone()).web("s", "modern", names(&["a"])).start()
}

fn intents(folder: &Path) -> usize {
    audit_log::all(folder).iter().filter(|record| record["kind"] == "intent").count()
}

/// Repairs the log, and waits until a call is executed again.
fn back_after(gate: &Gate, repair: impl FnOnce()) {
    repair();
    eventually("calls are executed again", || call_on(gate, 1).0 == 1);
}

fn ready(gate: &Gate) -> u16 {
    let agent = gate.nobody().at("/readyz");
    agent.send("GET", &[], "").status
}

fn recoveries(folder: &Path) -> Vec<Value> {
    let records = audit_log::all(folder).into_iter();
    records.filter(|record| record["kind"] == "recovery").collect()
}

#[test]
fn on_a_full_disk_no_call_is_executed_without_a_record() {
    let setup = setup().agents(everyone()).web("s", "modern", names(&["a"]));
    let audit = setup.path("audit");
    let Some(_disk) = Mount::create("size=1m", &audit) else { return };
    let gate = setup.start();
    let ballast = audit.join("ballast");
    std::fs::write(&ballast, vec![0; 300 << 10]).unwrap();
    let (done, refused) = call_on(&gate, 2_000);
    assert!(done > 100 && refused > 100, "{done} {refused}");
    assert_eq!(gate.calls("s").len(), done);
    assert_eq!(intents(&audit), done);
    assert_eq!(ready(&gate), 503);
    back_after(&gate, || std::fs::remove_file(&ballast).unwrap());
    assert_eq!(ready(&gate), 200);
    // The audit log records the outage, and otherwise only what happened.
    let (records, told) = (audit_log::all(&audit), recoveries(&audit));
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["refused"], refused);
    assert!(told[0]["since"].as_str() < told[0]["time"].as_str(), "{told:?}");
    assert!(told[0]["reason"].as_str().unwrap().contains("No space"), "{told:?}");
    assert!(records.iter().all(|record| record["room"].is_null()));
    // The disk fills up again, completely.
    let (more, refused) = call_on(&gate, 2_000);
    assert!(refused > 0, "{more}");
    assert_eq!(gate.calls("s").len(), done + 1 + more);
    assert_eq!(intents(&audit), done + 1 + more);
}

#[test]
fn a_disk_that_became_read_only_refuses_until_it_is_writable() {
    let setup = setup().agents(everyone()).web("s", "modern", names(&["a"]));
    let audit = setup.path("audit");
    let Some(disk) = Mount::create("size=8m", &audit) else { return };
    let gate = setup.start();
    assert_eq!(call_on(&gate, 10), (10, 0));
    disk.cover();
    assert_eq!(call_on(&gate, 100), (0, 100));
    assert_eq!(gate.calls("s").len(), 10);
    back_after(&gate, || disk.uncover());
    assert_eq!(intents(&audit), 11);
}

#[test]
fn without_a_directory_and_with_a_pipe_nothing_is_executed() {
    let gate = gate();
    let (audit, away) = (gate.file("audit"), gate.file("away"));
    assert_eq!(call_on(&gate, 10), (10, 0));
    std::fs::rename(&audit, &away).unwrap();
    assert_eq!(call_on(&gate, 100), (0, 100));
    back_after(&gate, || std::fs::rename(&away, &audit).unwrap());
    // A pipe without a reader would block everything.
    audit_log::all(&audit);
    let (file, kept) = (gate.file("audit/audit.jsonl"), gate.file("audit/kept"));
    std::fs::rename(&file, &kept).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    assert_eq!(call_on(&gate, 100), (0, 100));
    assert_eq!(ready(&gate), 503);
    back_after(&gate, || {
        std::fs::remove_file(&file).unwrap();
        std::fs::rename(&kept, &file).unwrap();
    });
    assert_eq!(gate.calls("s").len(), 12);
    assert_eq!(intents(&audit), 12);
    assert_eq!(ready(&gate), 200);
}

#[test]
fn with_an_optional_audit_log_calls_continue_and_the_outage_is_logged() {
    let gate = setup()
        .agents(everyone())
        .web("s", "modern", names(&["a"]))
        .set("audit", json!({"dir": "audit", "required": false}))
        .start();
    std::fs::rename(gate.file("audit"), gate.file("away")).unwrap();
    assert_eq!(call_on(&gate, 10), (10, 0));
    assert!(gate.said.lock().unwrap().contains("calls are forwarded without a record"));
    // `status` reports it.
    let (readiness, status) = (
        || gate.nobody().at("/readyz").send("GET", &[], ""),
        || super::reload::beside(&gate, &["status"]).1,
    );
    let reply = readiness();
    assert_eq!(reply.status, 200);
    assert_eq!(String::from_utf8_lossy(&reply.body), "ready, and calls go unrecorded");
    assert!(status().contains("CALLS GO UNRECORDED"), "{}", status());
    std::fs::rename(gate.file("away"), gate.file("audit")).unwrap();
    assert_eq!(String::from_utf8_lossy(&readiness().body), "ready");
    let healthy = status();
    assert!(!healthy.contains("UNRECORDED") && healthy.contains("not required"), "{healthy}");
    assert_eq!(call_on(&gate, 1), (1, 0));
    assert_eq!(intents(&gate.file("audit")), 1);
    // Their number is recorded; calls that were not recorded have no outcome.
    let told = recoveries(&gate.file("audit"));
    assert_eq!((told.len(), &told[0]["unrecorded"]), (1, &json!(10)), "{told:?}");
    let records = audit_log::all(&gate.file("audit"));
    assert_eq!(records.iter().filter(|record| record["kind"] == "outcome").count(), 1);
}

#[test]
fn outcomes_of_calls_during_an_outage_are_recorded_after_it() {
    let gate = setup().agents(everyone()).web("s", "modern", names(&["a", "slow"])).start();
    let agent = gate.agent("a");
    let (audit, away) = (gate.file("audit"), gate.file("away"));
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            agent.modern("tools/call", json!({"name": "s__slow", "arguments": {"seconds": 1.5}}))
        });
        eventually("the call is in flight", || (gate.calls("s").len() == 1).then_some(()));
        std::fs::rename(&audit, &away).unwrap();
        assert_eq!(call_on(&gate, 3), (0, 3));
        assert!(slow.join().unwrap()["result"].is_object());
    });
    std::fs::rename(&away, &audit).unwrap();
    assert_eq!(call_on(&gate, 1), (1, 0));
    let records = audit_log::all(&audit);
    let slow = |record: &&Value| record["kind"] == "intent" && record["tool"] == "slow";
    let intent = records.iter().find(slow).unwrap();
    let of_it = |record: &&Value| record["intent"] == intent["id"];
    assert_eq!(records.iter().filter(of_it).count(), 1);
    assert_eq!(recoveries(&audit)[0]["refused"], 3);
}

#[test]
fn synced_records_are_on_disk_before_the_call() {
    let gate = setup()
        .agents(everyone())
        .web("s", "modern", names(&["a"]))
        .set("audit", json!({"dir": "audit", "durability": "disk"}))
        .start();
    assert_eq!(call_on(&gate, 50), (50, 0));
    assert_eq!(intents(&gate.file("audit")), 50);
    std::fs::rename(gate.file("audit"), gate.file("away")).unwrap();
    assert_eq!(call_on(&gate, 10), (0, 10));
    assert_eq!(gate.calls("s").len(), 50);
}

#[test]
fn a_segment_ends_at_its_size_and_old_ones_go() {
    let gate = setup()
        .agents(everyone())
        .web("s", "modern", names(&["a"]))
        .set("audit", json!({"dir": "audit", "rotate": {"size": "8KiB"}, "retain": "1s"}))
        .start();
    assert_eq!(call_on(&gate, 40), (40, 0));
    let segments = || {
        let entries = std::fs::read_dir(gate.file("audit")).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".jsonl")).collect();
        names.sort();
        names
    };
    let before = segments();
    assert!(before.len() > 3 && before[0] == "audit-00000001.jsonl", "{before:?}");
    let after = eventually("a segment older than `retain` is removed", || {
        assert_eq!(call_on(&gate, 20), (20, 0));
        Some(segments()).filter(|after| !after.contains(&before[0]))
    });
    // The removal is recorded in the audit log.
    let mut text = String::new();
    for name in &after {
        text += &std::fs::read_to_string(gate.file("audit").join(name)).unwrap();
    }
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let removed: Vec<Value> = records.filter(|record| record["kind"] == "retention").collect();
    assert!(!removed.is_empty(), "{text}");
}

#[test]
fn a_torn_line_is_removed_at_startup_and_recorded() {
    let mut gate = gate();
    let gate_audit = gate.file("audit");
    assert_eq!(call_on(&gate, 3), (3, 0));
    gate.kill();
    let file = gate.file("audit/audit.jsonl");
    let mut text = std::fs::read_to_string(&file).unwrap();
    text.push_str("{\"id\":\"torn");
    std::fs::write(&file, text).unwrap();
    gate.restart();
    assert_eq!(call_on(&gate, 1), (1, 0));
    let records = audit_log::all(&gate.file("audit"));
    let repaired: Vec<_> = records.iter().filter(|record| record["kind"] == "repair").collect();
    assert_eq!(repaired.len(), 1);
    assert_eq!(repaired[0]["torn"], "{\"id\":\"torn");
    assert_eq!(intents(&gate.file("audit")), 4);
    // Missing records are reported too.
    gate.kill();
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    std::fs::write(&file, lines[..lines.len() - 2].concat()).unwrap();
    gate.restart();
    let gaps = || {
        let records = audit_log::all(&gate_audit);
        records.iter().filter(|record| record["kind"] == "gap").count()
    };
    assert_eq!(gaps(), 1);
    // So is a last record that was changed without changing its length.
    gate.kill();
    let text = std::fs::read_to_string(&file).unwrap();
    let last = text.trim_end().rfind('\n').unwrap() + 1;
    let changed = text[last..].replacen("time", "tame", 1);
    std::fs::write(&file, format!("{}{changed}", &text[..last])).unwrap();
    gate.restart();
    assert_eq!(gaps(), 2);
}

#[test]
fn two_processes_share_a_directory_and_not_a_hash_chain() {
    let first = gate();
    let second = setup()
        .agents(everyone())
        .web("s", "modern", names(&["a"]))
        .set("audit", json!({"dir": first.file("audit")}))
        .start();
    assert_eq!((call_on(&first, 5), call_on(&second, 7)), ((5, 0), (7, 0)));
    assert_eq!(intents(&first.file("audit")), 5);
    let text = std::fs::read_to_string(first.file("audit/audit.2.jsonl")).unwrap();
    assert_eq!(text.matches("\"kind\":\"intent\"").count(), 7);
}

#[test]
fn whoever_floods_does_not_fill_the_disk() {
    let gate = gate();
    let agent = gate.nobody();
    let begun = Instant::now();
    let mut sent = 0;
    while begun.elapsed() < Duration::from_secs(3) {
        assert_eq!(agent.send("POST", &[], "{}").status, 401);
        sent += 1;
    }
    let counted = || {
        let records = audit_log::all(&gate.file("audit"));
        let away = records.into_iter().filter(|record| record["kind"] == "turned-away");
        away.map(|record| record["count"].as_u64().unwrap()).sum::<u64>()
    };
    eventually("all are counted", || (counted() == sent).then_some(()));
    let size = std::fs::metadata(gate.file("audit/audit.jsonl")).unwrap().len();
    assert!(size < 20_000, "{size} bytes for {sent} requests");
}

#[test]
fn arguments_are_recorded_as_configured() {
    for (how, shown, hidden) in [
        ("none", "\"arguments\":null", "hunter2"),
        ("hash", "\"arguments\":\"blake3:", "hunter2"),
        ("redacted", "\"path\":\"/srv/a\"", "hunter2"),
        ("full", "hunter2", "nothing is hidden"),
    ] {
        let gate = setup()
            .agents(everyone())
            .web("s", "modern", names(&["a"]))
            .set("audit", json!({"dir": "audit", "arguments": how}))
            .start();
        let arguments = json!({"path": "/srv/a", "password": "hunter2"});
        let call = json!({"name": "s__a", "arguments": arguments});
        let answer = gate.agent("a").modern("tools/call", call);
        assert!(answer["result"].is_object(), "{answer}");
        audit_log::all(&gate.file("audit"));
        let text = std::fs::read_to_string(gate.file("audit/audit.jsonl")).unwrap();
        assert!(text.contains(shown) && !text.contains(hidden), "{how}: {text}");
    }
}
