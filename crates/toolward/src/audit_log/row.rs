//! A record as a table row, for every kind of record.

use serde_json::{Map, Value};
use toolward_gateway::audit::line::harmless;

/// Members that an outcome adds to its call.
const OF_OUTCOME: [&str; 4] = ["outcome", "error_code", "duration_us", "bytes_out"];

/// A call and what came of it, as one; any other record as it is, without its link.
pub(crate) fn joined(record: Value, outcome: Option<&Value>) -> Value {
    let Value::Object(mut members) = record else { return record };
    members.shift_remove("prev");
    if let Some(outcome) = outcome {
        for name in OF_OUTCOME {
            members.insert(name.into(), outcome[name].clone());
        }
        members.insert("ended".into(), outcome["time"].clone());
    }
    Value::Object(members)
}

/// An outcome with the id of its call.
pub(crate) fn told(outcome: Value, intent: &Value) -> Value {
    let Value::Object(mut members) = outcome else { return outcome };
    for name in ["agent", "server", "tool", "exposed_name", "action", "verdict", "step"] {
        if let Some(value) = intent.get(name) {
            members.entry(name).or_insert_with(|| value.clone());
        }
    }
    Value::Object(members)
}

/// A row as JSON that does no harm to a terminal.
pub(crate) fn json(row: &Value) -> String {
    harmless(&row.to_string())
}

/// `1.2 ms`
pub(crate) fn took(micros: u64) -> String {
    match micros {
        0..1000 => format!("{micros} µs"),
        1000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

/// What a record is about.
pub(crate) fn what(row: &Value) -> String {
    let text = |name: &str| row[name].as_str();
    let number = |name: &str| row[name].as_u64().unwrap_or(0);
    match text("kind").unwrap_or("?") {
        "intent" | "outcome" | "refusal" | "unavailable" => {
            let name = match (text("server"), text("tool").or(text("exposed_name"))) {
                (Some(server), Some(tool)) => format!("{server}/{tool}"),
                (one, other) => one.or(other).or(text("method")).unwrap_or("-").into(),
            };
            match text("action") {
                Some(action) => format!("{name}.{action}"),
                None => name,
            }
        }
        "list" => {
            let none = Map::new();
            let servers = row["servers"].as_object().unwrap_or(&none);
            let told = servers
                .iter()
                .map(|(name, of)| format!("{name} {}/{}", of["shown"], of["offered"]));
            format!("list {}", told.collect::<Vec<_>>().join(", "))
        }
        "turned-away" => {
            let from = text("source").map(|source| format!(" from {source}")).unwrap_or_default();
            format!("turned away {}{from}: {}", number("count"), text("reason").unwrap_or("?"))
        }
        "start" => {
            let (version, policy) = (text("version").unwrap_or("?"), text("policy").unwrap_or("?"));
            format!("start {version}, policy {policy}")
        }
        "reload" => {
            let (by, policy) = (text("by").unwrap_or("?"), text("policy").unwrap_or("?"));
            match text("error") {
                None => format!("reload by {by}, policy {policy}"),
                Some(error) => format!("reload by {by} refused, policy {policy} stays: {error}"),
            }
        }
        "segment" => format!("segment {}", number("segment")),
        "retention" => format!("removed segments up to {}", number("removed_up_to")),
        "repair" => format!("took off a torn line ({} bytes)", number("bytes")),
        "gap" => text("reason").unwrap_or("records are missing or changed before this one").into(),
        "recovery" => {
            let word = if row["refused"].is_null() { "unrecorded" } else { "refused" };
            let lost = match number("outcomes_lost") {
                0 => String::new(),
                lost => format!(", {lost} outcomes lost"),
            };
            let since = text("since").unwrap_or("?");
            format!("records are written again, {} {word} since {since}{lost}", number(word))
        }
        "head" => text("reason").unwrap_or("the head was made anew").into(),
        "taken-over" => "took over records that the head did not know".into(),
        // Kinds that this version does not know are shown too.
        kind => {
            let own = ["id", "time", "kind", "agent", "verdict", "step", "outcome", "prev"];
            let none = Map::new();
            let members = row.as_object().unwrap_or(&none).iter();
            let told =
                members.filter(|(name, _)| !own.contains(&name.as_str())).map(|(name, value)| {
                    match value.as_str() {
                        Some(text) => format!("{name}={text}"),
                        None => format!("{name}={value}"),
                    }
                });
            format!("{kind} {}", told.collect::<Vec<_>>().join(" ")).trim_end().into()
        }
    }
}
