//! Records as events of the Elastic Common Schema.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::severity::judged;

const SCHEMA: &str = "8.17.0";

pub(super) fn event(record: &Value) -> Value {
    let text = |name: &str| record[name].as_str();
    let kind = text("kind").unwrap_or("record");
    let (verdict, outcome) = (text("verdict"), text("outcome"));
    let (message, severity) = judged(kind, verdict, outcome);
    let mut event = json!({
        "@timestamp": text("time"),
        "ecs": {"version": SCHEMA},
        "message": message,
        "event": {
            "id": record["id"],
            "kind": "event",
            "category": [category(kind)],
            "type": types(kind, verdict),
            "action": kind,
            "outcome": result(verdict, outcome),
            "severity": severity,
            "dataset": "toolward.audit",
            "provider": "toolward",
        },
        "service": {"name": "toolward", "version": env!("CARGO_PKG_VERSION")},
    });
    if let Some(reason) = text("reason") {
        event["event"]["reason"] = json!(reason);
    }
    if let Some(micros) = record["duration_us"].as_u64() {
        event["event"]["duration"] = json!(micros.saturating_mul(1000));
    }
    if let Some(agent) = text("agent") {
        event["user"] = json!({"name": agent});
    }
    if let Some(client) = text("client") {
        event["user_agent"] = json!({"original": client});
    }
    if let Some(address) = text("source").filter(|source| source.parse::<IpAddr>().is_ok()) {
        event["source"] = json!({"ip": address});
    }
    if let Some(rule) = text("rule") {
        event["rule"] = json!({"name": rule, "version": record["policy"]});
    }
    if let Some(trace) = text("trace_id") {
        event["trace"] = json!({"id": trace});
    }
    let rest = rest(record);
    if !rest.is_empty() {
        event["toolward"] = Value::Object(rest);
    }
    event
}

fn category(kind: &str) -> &'static str {
    match kind {
        "start" | "stop" | "taken-over" => "process",
        "reload" | "segment" | "retention" | "repair" | "gap" | "head" | "recovery" => {
            "configuration"
        }
        "turned-away" | "login" => "authentication",
        _ => "api",
    }
}

fn types(kind: &str, verdict: Option<&str>) -> Vec<&'static str> {
    match (kind, verdict) {
        ("start", _) => vec!["start"],
        ("stop", _) => vec!["end"],
        ("turned-away", _) => vec!["denied"],
        ("outcome", _) => vec!["end"],
        (_, Some("deny")) => vec!["access", "denied"],
        (_, Some(_)) => vec!["access", "allowed"],
        _ => vec!["info"],
    }
}

fn result(verdict: Option<&str>, outcome: Option<&str>) -> &'static str {
    match (verdict, outcome) {
        (_, Some("ok")) => "success",
        (Some("deny"), _) | (_, Some(_)) => "failure",
        _ => "unknown",
    }
}

/// Toolward's own fields.
fn rest(record: &Value) -> Map<String, Value> {
    const MAPPED: [&str; 9] =
        ["id", "time", "reason", "agent", "client", "source", "rule", "trace_id", "duration_us"];
    let members = record.as_object().into_iter().flatten();
    let rest = members.filter(|(name, value)| !MAPPED.contains(&name.as_str()) && !value.is_null());
    rest.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_and_its_refusal_differ_in_type_and_outcome() {
        let record = |verdict: &str, outcome: Option<&str>| {
            json!({
                "id": "1", "time": "2026-07-28T09:30:00.000000Z", "kind": "intent", "agent": "reader",
                "server": "files", "tool": "read", "verdict": verdict, "outcome": outcome, "duration_us": 3,
            })
        };
        let allowed = event(&record("allow", Some("ok")));
        assert_eq!(allowed["event"]["type"], json!(["access", "allowed"]));
        assert_eq!(
            (&allowed["event"]["outcome"], &allowed["event"]["duration"]),
            (&json!("success"), &json!(3000))
        );
        assert_eq!(allowed["toolward"]["tool"], "read");
        let denied = event(&record("deny", None));
        assert_eq!(denied["event"]["type"], json!(["access", "denied"]));
        assert_eq!(
            (&denied["event"]["outcome"], &denied["user"]["name"]),
            (&json!("failure"), &json!("reader"))
        );
    }
}
