//! Records as events of the Open Cybersecurity Schema Framework, class API Activity (6003).

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::severity::judged;
use crate::audit_log::time::date;

const SCHEMA: &str = "1.4.0";
const CLASS: u64 = 6003;

pub(super) fn event(record: &Value) -> Value {
    let text = |name: &str| record[name].as_str();
    let kind = text("kind").unwrap_or("record");
    let (verdict, outcome) = (text("verdict"), text("outcome"));
    let (name, severity) = judged(kind, verdict, outcome);
    let (activity, activity_name) = activity(record);
    let failed = verdict == Some("deny") || outcome.is_some_and(|outcome| outcome != "ok");
    let (status, status_name) = if failed { (2, "Failure") } else { (1, "Success") };
    let mut event = json!({
        "activity_id": activity,
        "activity_name": activity_name,
        "category_uid": 6,
        "category_name": "Application Activity",
        "class_uid": CLASS,
        "class_name": "API Activity",
        "type_uid": CLASS * 100 + activity,
        "time": text("time").and_then(date).map(|micros| micros / 1000),
        "severity_id": severity_id(severity),
        "status_id": status,
        "status": status_name,
        "message": name,
        "metadata": {
            "version": SCHEMA,
            "uid": record["id"],
            "event_code": kind,
            "log_name": "audit",
            "profiles": ["security_control"],
            "product": {"name": "Toolward", "vendor_name": "Toolward", "version": env!("CARGO_PKG_VERSION")},
        },
        "actor": {"user": {"name": text("agent").unwrap_or("unknown")}},
        "api": {"operation": subject(record).unwrap_or(kind)},
        "src_endpoint": source(text("source"), text("client")),
    });
    if let Some(client) = text("client") {
        event["actor"]["app_name"] = json!(client);
    }
    if let Some(server) = text("server") {
        event["api"]["service"] = json!({"name": server});
    }
    if !record["request_id"].is_null() {
        event["api"]["request"] =
            json!({"uid": record["request_id"].to_string().trim_matches('"')});
    }
    if !record["error_code"].is_null() {
        event["api"]["response"] = json!({"code": record["error_code"]});
    }
    if let Some(verdict) = verdict {
        let (id, action) = if verdict == "deny" { (2, "Denied") } else { (1, "Allowed") };
        event["action_id"] = json!(id);
        event["action"] = json!(action);
        event["policy"] =
            json!({"name": record["rule"], "uid": record["step"], "version": record["policy"]});
    }
    if let Some(reason) = text("reason") {
        event["status_detail"] = json!(reason);
    }
    if let Some(micros) = record["duration_us"].as_u64() {
        event["duration"] = json!(micros / 1000);
    }
    let unmapped = rest(record);
    if !unmapped.is_empty() {
        event["unmapped"] = Value::Object(unmapped);
    }
    event
}

/// The OCSF activity. Whether a call reads or writes is not recorded, so it is `Other`.
fn activity(record: &Value) -> (u64, &'static str) {
    match record["kind"].as_str() {
        Some("list") => (2, "Read"),
        _ if record["uri"].is_string() => (2, "Read"),
        _ => (99, "Other"),
    }
}

/// From 0–10 to 1 informational, 2 low, 3 medium, 4 high, 5 critical.
fn severity_id(severity: u8) -> u8 {
    match severity {
        0..=3 => 1,
        4 => 2,
        5 | 6 => 3,
        7 | 8 => 4,
        _ => 5,
    }
}

/// The tool, prompt or resource of a record.
fn subject(record: &Value) -> Option<&str> {
    ["tool", "prompt", "uri", "reference"].into_iter().find_map(|name| record[name].as_str())
}

fn source(address: Option<&str>, client: Option<&str>) -> Value {
    match address.filter(|address| address.parse::<IpAddr>().is_ok()) {
        Some(address) => json!({"ip": address}),
        None => json!({"name": client.unwrap_or("unknown")}),
    }
}

/// Fields that have no place in the schema.
fn rest(record: &Value) -> Map<String, Value> {
    const MAPPED: [&str; 20] = [
        "id",
        "time",
        "kind",
        "agent",
        "client",
        "server",
        "tool",
        "prompt",
        "uri",
        "reference",
        "verdict",
        "rule",
        "step",
        "policy",
        "reason",
        "request_id",
        "error_code",
        "duration_us",
        "source",
        "outcome",
    ];
    let members = record.as_object().into_iter().flatten();
    let rest = members.filter(|(name, value)| !MAPPED.contains(&name.as_str()) && !value.is_null());
    rest.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denied_call_is_a_failed_api_activity() {
        let record = json!({
            "id": "1-2-3", "time": "2026-07-28T09:30:00.000000Z", "kind": "refusal", "agent": "reader",
            "client": "curl 8", "server": "files", "tool": "write", "verdict": "deny", "step": "6-default-deny",
            "rule": null, "policy": "abc", "reason": "no rule allows it", "request_id": 7, "prev": "00",
        });
        let event = event(&record);
        assert_eq!((&event["class_uid"], &event["type_uid"]), (&json!(6003), &json!(600_399)));
        assert_eq!((&event["status_id"], &event["action_id"]), (&json!(2), &json!(2)));
        assert_eq!(event["time"], 1_785_231_000_000_u64);
        assert_eq!(event["actor"], json!({"user": {"name": "reader"}, "app_name": "curl 8"}));
        let api =
            json!({"operation": "write", "service": {"name": "files"}, "request": {"uid": "7"}});
        assert_eq!(event["api"], api);
        assert_eq!(event["unmapped"], json!({"prev": "00"}));
    }
}
