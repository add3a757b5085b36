//! Audit sinks: every record arrives, whatever the receiver does, and no call waits for it.

use std::collections::HashSet;
use std::path::Path;

use serde_json::{Value, json};

use super::harness::{Gate, MODERN, eventually, everyone, modern_body, names, setup};
use super::otlp::Receiver;
use super::postgres::{PASSWORD, Postgres};

/// Makes calls, all of which must succeed.
pub fn call(gate: &Gate, times: usize) {
    let results = attempt(gate, times);
    let failed: Vec<_> = results.iter().filter(|answer| !answer["result"].is_object()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

fn attempt(gate: &Gate, times: usize) -> Vec<Value> {
    let mut connection = gate.connect();
    let call = json!({"name": "s__a", "arguments": {"text": "x".repeat(500)}});
    let body = modern_body(json!("m"), "tools/call", call).to_string();
    let headers =
        [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", "s__a")];
    let request = gate.agent("a").request("POST", &headers, &body);
    let one = |_| {
        connection.send(request.as_bytes());
        connection.reply().json()
    };
    (0..times).map(one).collect()
}

pub fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    whole.lines().map(String::from).collect()
}

/// Waits until everything in the log was received, in order. Records may arrive twice, never changed.
pub fn is_delivered(gate: &Gate, received: impl Fn() -> Vec<String>) {
    let log = || lines(&gate.file("audit/audit.jsonl"));
    eventually("every record is received", || {
        let (log, received) = (log(), received());
        let mut seen = HashSet::new();
        let once: Vec<&String> = received.iter().filter(|line| seen.insert(*line)).collect();
        log.len() > 5 && once == log.iter().collect::<Vec<_>>()
    });
}

fn gate(sink: Value) -> Gate {
    let audit = json!({"dir": "audit", "sinks": [sink]});
    setup().agents(everyone()).set("audit", audit).web("s", "modern", names(&["a"])).start()
}

fn rows(database: &Postgres) -> Vec<String> {
    database
        .try_query("toolward", "select record from toolward_audit order by \"time\", id")
        .unwrap_or_default()
}

#[test]
fn postgres_gets_every_record_once_although_it_hangs_and_restarts() {
    let mut database = Postgres::start();
    let mut gate = gate(json!({"postgres": database.url()}));
    call(&gate, 20);
    let complete = |gate: &Gate, database: &Postgres| {
        eventually("every record is a row", || {
            let mut log = lines(&gate.file("audit/audit.jsonl"));
            let mut rows = rows(database);
            log.sort();
            rows.sort();
            rows == log && !log.is_empty()
        });
    };
    complete(&gate, &database);
    database.signal_all("-STOP");
    call(&gate, 50);
    database.signal_all("-CONT");
    complete(&gate, &database);
    database.stop();
    call(&gate, 50);
    // The position is kept: a gateway that is killed continues where it was.
    gate.kill();
    database.run();
    gate.restart();
    call(&gate, 5);
    complete(&gate, &database);
    let verdicts = database.query(
        "select agent, server, tool, verdict from toolward_audit where kind = 'intent' limit 1",
    );
    assert_eq!(verdicts, ["a|s|a|allow"]);
    let said = gate.said.lock().unwrap().clone();
    assert!(!said.contains(PASSWORD), "{said}");
}

#[test]
fn max_lag_refuses_calls_until_the_sink_has_caught_up() {
    let database = Postgres::start();
    let gate = gate(json!({"postgres": database.url(), "max_lag": "1s", "name": "archive"}));
    call(&gate, 5);
    eventually("rows are there", || rows(&database).len() >= 5);
    database.signal_all("-STOP");
    eventually("calls are refused", || {
        let answer = attempt(&gate, 1).remove(0);
        answer["error"]["data"]["error"] == "not_recorded"
    });
    assert_eq!(gate.nobody().at("/readyz").send("GET", &[], "").status, 503);
    database.signal_all("-CONT");
    eventually("calls are made again", || attempt(&gate, 1)[0]["result"].is_object());
    let log = lines(&gate.file("audit/audit.jsonl"));
    assert!(log.iter().any(|line| line.contains("\"kind\":\"intent\"")));
}

#[test]
fn hostile_records_do_not_stop_the_database() {
    let database = Postgres::start();
    let gate = gate(json!({"postgres": database.url(), "table": "audit_copy"}));
    for name in ["a\u{0}b", "x'); drop table audit_copy; --", "\u{202e}\u{fffe}", "\\u0000"] {
        let answer = gate.agent("a").modern("tools/call", json!({"name": name, "arguments": {}}));
        assert!(answer["error"].is_object(), "{answer}");
    }
    call(&gate, 3);
    eventually("every record is a row", || {
        let count = database.try_query("toolward", "select count(*) from audit_copy");
        let log = lines(&gate.file("audit/audit.jsonl")).len();
        count.is_some_and(|count| count == [log.to_string()])
    });
}

#[test]
fn otlp_logs_are_decoded_by_the_official_classes() {
    let Some(receiver) = Receiver::start() else { return };
    let sink =
        json!({"otlp": receiver.url(), "headers": {"Authorization": "Bearer of-the-receiver"}});
    let gate = gate(sink);
    call(&gate, 20);
    let denied = gate.agent("a").modern("tools/call", json!({"name": "s__no", "arguments": {}}));
    assert!(denied["error"].is_object(), "{denied}");
    let bodies = || {
        let logs = receiver.received("log");
        logs.iter().map(|log| log["body"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    is_delivered(&gate, bodies);
    // A receiver that hangs costs no call.
    receiver.signal("-STOP");
    call(&gate, 100);
    receiver.signal("-CONT");
    is_delivered(&gate, bodies);
    let logs = receiver.received("log");
    let intent = logs.iter().find(|log| log["event"] == "toolward.intent").unwrap();
    assert_eq!(intent["attributes"]["toolward.agent"], "a");
    assert_eq!(intent["attributes"]["gen_ai.tool.name"], "a");
    assert_eq!(intent["attributes"]["toolward.verdict"], "allow");
    assert_eq!(intent["resource"]["service.name"], "toolward");
    assert_eq!(intent["authorization"], "Bearer of-the-receiver");
    assert_eq!(intent["severity"], 9);
    let refusal = logs.iter().find(|log| log["event"] == "toolward.refusal").unwrap();
    assert_eq!(refusal["severity"], 13);
    let body: Value = serde_json::from_str(intent["body"].as_str().unwrap()).unwrap();
    assert_eq!(intent["attributes"]["log.record.uid"], body["id"]);
}

#[test]
fn status_and_metrics_show_the_lag() {
    // A port without a listener.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let audit = json!({"dir": "audit", "sinks": [{"syslog": format!("tcp://127.0.0.1:{port}")}]});
    let gate = setup()
        .agents(everyone())
        .set("audit", audit)
        .set("admin", json!("127.0.0.1:0"))
        .web("s", "modern", names(&["a"]))
        .start();
    call(&gate, 3);
    let status = || {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"))
            .args(["status", "--json"])
            .env("HOME", gate.file(""))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str::<Value>(&text).unwrap_or_default()[0]["sinks"][0].clone()
    };
    let sink = eventually("the sink is behind", || {
        Some(status()).filter(|sink| sink["lag_s"].as_f64().is_some_and(|lag| lag > 1.0))
    });
    assert_eq!((&sink["name"], &sink["delivered"]), (&json!("syslog"), &json!(0)));
    assert!(sink["error"].as_str().unwrap().contains("cannot connect"), "{sink}");
}

#[test]
fn mistakes_in_sinks_are_reported() {
    let run = |sinks: Value| {
        let audit = json!({"dir": "audit", "sinks": sinks});
        setup().agents(everyone()).set("audit", audit).web("s", "modern", names(&["a"])).fails().1
    };
    for (sinks, expected) in [
        (json!([{"syslog": "udp://h:1"}]), "this is not an address for `syslog`"),
        (json!([{"syslog": "tcp://h:x"}]), "`x` is not a port"),
        (json!([{"postgres": "postgres://h/d", "table": "a;b"}]), "is not the name of a table"),
        (json!([{"name": "x"}]), "this sink has no destination"),
        (json!([{"otlp": "http://h", "table": "t"}]), "`table` belongs to"),
        (json!([{"otlp": "http://h"}, {"otlp": "http://i"}]), "two sinks have the name `otlp`"),
        (json!([{"otlp": "http://h", "name": "../x"}]), "this cannot be the name of a sink"),
    ] {
        let said = run(sinks.clone());
        assert!(said.contains(expected), "{sinks}: {said}");
    }
}
