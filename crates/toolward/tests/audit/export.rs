//! `toolward audit export`.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::log::Log;

/// Cells of a CSV text, by RFC 4180.
fn cells(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => cell.push(chars.next().unwrap()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut cell)),
            '\r' if !quoted => {
                assert_eq!(chars.next(), Some('\n'));
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            c => cell.push(c),
        }
    }
    assert!(row.is_empty() && cell.is_empty() && !quoted);
    rows
}

#[test]
fn jsonl_has_the_records_as_they_are() {
    let log = Log::small();
    let said = log.run(&["audit", "export", "--format", "jsonl"]);
    let mut lines = log.lines("audit.jsonl");
    lines.sort();
    let mut exported: Vec<&str> = said.out.lines().collect();
    exported.sort_unstable();
    assert_eq!(exported, lines);
    let said = log.run(&["audit", "export", "--format", "jsonl", "--tool", "read"]);
    let kinds: Vec<Value> = said.rows().iter().map(|record| record["kind"].clone()).collect();
    assert_eq!(kinds, ["intent", "outcome"]);
}

#[test]
fn csv_has_one_row_per_call_and_holds_no_formula() {
    let log = Log::new();
    let mut client = log.client("dev");
    client.call("read", json!({"a": 1}));
    client.ask("tools/call", json!({"name": "=HYPERLINK(\"http://x\")", "arguments": {}}));
    client.close();
    let said = log.run(&["audit", "export", "--format", "csv"]);
    let rows = cells(&said.out);
    let at = |name: &str| rows[0].iter().position(|column| column == name).unwrap();
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    let records = log.records("audit.jsonl");
    let outcomes = records.iter().filter(|record| record["kind"] == "outcome").count();
    assert_eq!((outcomes, rows.len()), (1, records.len() - outcomes + 1));
    let calls: Vec<_> = rows.iter().filter(|row| row[at("kind")] == "intent").collect();
    assert_eq!(calls.len(), 1);
    let call = ["agent", "tool", "verdict", "outcome"].map(|name| &*calls[0][at(name)]);
    assert_eq!(call, ["dev", "read", "allow", "ok"]);
    assert!(
        calls[0][at("duration_us")].parse::<u64>().is_ok() && !calls[0][at("ended")].is_empty()
    );
    let refusal = rows.iter().find(|row| row[at("kind")] == "refusal").unwrap();
    assert_eq!(refusal[at("exposed_name")], "'=HYPERLINK(\"http://x\")");
    let dangerous = |cell: &String| cell.starts_with(['=', '+', '@', '\t', '\r']);
    assert!(!rows.iter().flatten().any(dangerous));
    // Members without a column of their own are not lost.
    let start = rows.iter().find(|row| row[at("kind")] == "start").unwrap();
    let more: Value = serde_json::from_str(&start[at("more")]).unwrap();
    assert!(more["layers"].is_array() && more["process"].is_u64());
}

#[test]
fn cef_has_a_severity_by_verdict() {
    let log = Log::small();
    let said = log.run(&["audit", "export", "--format", "cef"]);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), log.lines("audit.jsonl").len());
    assert!(lines.iter().all(|line| line.starts_with("CEF:0|Toolward|toolward|0.1.0|")));
    let severity = |kind: &str| {
        let line = lines.iter().find(|line| line.contains(&format!("|{kind}|"))).unwrap();
        line.split('|').nth(6).unwrap().parse::<u8>().unwrap()
    };
    assert!(severity("refusal") > severity("intent") && severity("intent") > severity("list"));
    let refusal = lines.iter().find(|line| line.contains("|refusal|")).unwrap();
    assert!(refusal.contains(" act=deny ") && refusal.contains(" suser=dev "), "{refusal}");
}

#[test]
fn json_schemas_have_one_event_per_record() {
    let log = Log::small();
    let events = |format: &str| -> Vec<Value> {
        let said = log.run(&["audit", "export", "--format", format]);
        assert_eq!(said.code, 0, "{said:?}");
        said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (ocsf, ecs) = (events("ocsf"), events("ecs"));
    let records = log.lines("audit.jsonl").len();
    assert_eq!((ocsf.len(), ecs.len()), (records, records));
    // Attributes that the schema requires of every API Activity.
    let required = "activity_id category_uid class_uid type_uid time severity_id metadata actor api src_endpoint";
    for event in &ocsf {
        assert!(required.split(' ').all(|name| !event[name].is_null()), "{event}");
    }
    let refused = ocsf.iter().find(|event| event["metadata"]["event_code"] == "refusal").unwrap();
    assert_eq!(
        (&refused["action"], &refused["actor"]["user"]["name"]),
        (&json!("Denied"), &json!("dev"))
    );
    for event in &ecs {
        assert!(
            event["@timestamp"].is_string() && event["event"]["outcome"].is_string(),
            "{event}"
        );
    }
    let refused = ecs.iter().find(|event| event["event"]["action"] == "refusal").unwrap();
    assert_eq!(refused["event"]["type"], json!(["access", "denied"]));
}

#[test]
fn a_file_is_new_and_private() {
    let log = Log::small();
    let target = log.path("out.csv");
    let words = ["audit", "export", "--format", "csv", "--output", target.to_str().unwrap()];
    let said = log.run(&words);
    assert_eq!((said.code, &*said.out), (0, ""), "{said:?}");
    assert_eq!(target.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read_to_string(&target).unwrap().starts_with("time,kind,id,"));
    assert_eq!(log.run(&words).code, 2);
    // A mistyped command does not destroy the audit log.
    let record = log.file("audit.jsonl");
    let before = std::fs::read(&record).unwrap();
    let words = ["audit", "export", "--format", "jsonl", "--output", record.to_str().unwrap()];
    assert_eq!(log.run(&words).code, 2);
    assert_eq!(std::fs::read(&record).unwrap(), before);
}
