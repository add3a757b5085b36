//! `toolward tail`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use toolward_testkit::wait::eventually;

use super::log::Log;

/// A running `tail`.
struct Tail {
    child: Child,
    rows: Receiver<Value>,
}

impl Tail {
    fn start(log: &Log, words: &[&str]) -> Tail {
        let mut all = vec!["tail", "--json"];
        all.extend(words);
        let mut child = log.command(&all).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, rows) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    break;
                }
            }
        });
        Tail { child, rows }
    }

    fn next(&self) -> Value {
        self.rows.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    /// The next row of a call or a refusal.
    fn call(&self) -> Value {
        loop {
            let row = self.next();
            if row["kind"] == "intent" || row["kind"] == "refusal" {
                return row;
            }
        }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_last_rows_come_first() {
    let log = Log::small();
    let all = log.run(&["audit", "query", "--json"]).rows();
    let said = log.run(&["tail", "--no-follow", "-n", "3", "--json"]);
    assert_eq!(said.rows(), all[all.len() - 3..]);
    let said = log.run(&["tail", "--no-follow", "--verdict", "deny"]);
    assert_eq!(said.out.lines().count(), 3, "{said:?}");
    assert_eq!(log.run(&["tail", "--no-follow", "-n", "0"]).out, "");
}

#[test]
fn calls_are_shown_as_they_come_over_rotation_and_from_every_gateway() {
    let log = Log::new().audit("rotate", json!({"size": "1500 B", "age": "1 day"}));
    let mut client = log.client("dev");
    client.call("read", json!({}));
    // The outcome is written a moment later.
    eventually("the outcome is recorded", || {
        log.lines("audit.jsonl").iter().any(|line| line.contains("\"outcome\""))
    });
    let tail = Tail::start(&log, &["-n", "1"]);
    assert!(tail.next()["id"].is_string());
    for at in 0..20 {
        let answer = client.call("hidden", json!({"at": at}));
        let row = tail.call();
        assert_eq!(row["id"], answer["error"]["data"]["decision_id"], "{at}");
    }
    assert!(log.segments().len() >= 4);
    // A row is a complete call.
    client.call("read", json!({}));
    let row = tail.call();
    assert_eq!((&row["tool"], &row["outcome"]), (&json!("read"), &json!("ok")));
    // A gateway that starts later has its own stream.
    let mut other = log.client("other");
    other.call("read", json!({}));
    assert_eq!(tail.call()["agent"], "other");
    client.call("read", json!({}));
    assert_eq!(tail.call()["agent"], "dev");
}

#[test]
fn a_call_that_takes_long_is_shown_before_it_ends() {
    let log = Log::new();
    let mut client = log.client("dev");
    client.list();
    let tail = Tail::start(&log, &["-n", "0", "--agent", "dev", "--tool", "s__h*"]);
    // It is following as soon as it prints something.
    while tail.rows.recv_timeout(Duration::from_millis(100)).is_err() {
        client.call("hidden", json!({}));
    }
    let hang = || {
        let mut rows = std::iter::repeat_with(|| tail.next());
        rows.find(|row| row["tool"] == "hang").unwrap()
    };
    client.send(
        &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "s__hang"}}),
    );
    assert_eq!(hang().get("outcome"), None);
    client.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
    );
    assert_eq!(hang()["outcome"], "cancelled");
    // A call that was in flight when `tail` started ends there, too.
    client.send(
        &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "s__hang"}}),
    );
    hang();
    let late = Tail::start(&log, &["-n", "1", "--tool", "hang"]);
    assert_eq!(late.next().get("outcome"), None);
    client.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}),
    );
    assert_eq!(late.next()["outcome"], "cancelled");
}

#[test]
fn a_removed_log_is_followed_again() {
    let log = Log::new();
    let mut client = log.client("dev");
    client.call("read", json!({}));
    let tail = Tail::start(&log, &["-n", "1"]);
    tail.next();
    std::fs::remove_file(log.file("audit.jsonl")).unwrap();
    client.call("write", json!({"path": "/srv/a"}));
    let mut missing = vec!["segment", "gap", "write"];
    while !missing.is_empty() {
        let row = tail.next();
        missing.retain(|wanted| row["kind"] != **wanted && row["tool"] != **wanted);
    }
}

#[test]
fn without_following_all_requested_rows_are_printed() {
    let log = Log::small();
    let lines = log.lines("audit.jsonl");
    let (first, last) = (lines[0].clone(), lines.last().unwrap());
    // More than `tail` reads before it follows the log.
    let long = last.replacen(
        "\"kind\":",
        &format!("\"kind\":\"x\",\"x\":\"{}\",\"k\":", "x".repeat(15 << 20)),
        1,
    );
    for segment in 1..=5 {
        let first = first.replacen("\"segment\":1", &format!("\"segment\":{segment}"), 1);
        let name = match segment {
            5 => "audit.jsonl".to_string(),
            number => format!("audit-{number:08}.jsonl"),
        };
        log.write(&name, &[first, long.clone()]);
    }
    let words = ["tail", "-n", "5", "--kind", "segment", "--no-follow", "--json"];
    let rows = log.run(&words).rows();
    let numbers: Vec<_> = rows.iter().map(|row| row["segment"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}
