//! A record as a table row, for every kind of record.

use serde_json::{Map, Value};
use toolward_gateway::audit::line::harmless;

/// Members that an outcome adds to its call.
const OF_OUTCOME: [&str; 4] = ["outcome", "error_code", "duration_us", "bytes_out"];

/// Members with the subject of a request, by the server's own name for it, and what to call anything but a tool.
const SUBJECTS: [(&str, &str); 5] = [
    ("tool", ""),
    ("prompt", "prompt "),
    ("uri", "resource "),
    ("reference", "completion "),
    ("task", "task "),
];

/// The subject of a request: what it is, if it is not a tool, and its name.
pub(crate) fn subject(row: &Value) -> Option<(&'static str, &str)> {
    SUBJECTS.iter().find_map(|(member, noun)| Some((*noun, row[member].as_str()?)))
}

/// A call joined with its outcome; any other record unchanged, without its chain hash.
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
    let own = ["agent", "server", "method", "exposed_name", "action", "verdict", "step"];
    for name in own.into_iter().chain(SUBJECTS.map(|(name, _)| name)) {
        if let Some(value) = intent.get(name) {
            members.entry(name).or_insert_with(|| value.clone());
        }
    }
    Value::Object(members)
}

/// A row as JSON, sanitized for a terminal.
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

/// A one-line description of a record.
pub(crate) fn what(row: &Value) -> String {
    let text = |name: &str| row[name].as_str();
    let number = |name: &str| row[name].as_u64().unwrap_or(0);
    match text("kind").unwrap_or("?") {
        "intent" | "outcome" | "refusal" | "unavailable" => {
            let (noun, name) = subject(row).unzip();
            let name = match (text("server"), name.or(text("exposed_name"))) {
                (Some(server), Some(name)) => format!("{server}/{name}"),
                (one, other) => one.or(other).or(text("method")).unwrap_or("-").into(),
            };
            let name = format!("{}{name}", noun.unwrap_or_default());
            match text("action") {
                Some(action) => format!("{name}.{action}"),
                None => name,
            }
        }
        "list" if text("method") == Some("tasks/list") => format!("list tasks {}", row["tasks"]),
        "list" => {
            let none = Map::new();
            let servers = row["servers"].as_object().unwrap_or(&none);
            let told = servers
                .iter()
                .map(|(name, of)| format!("{name} {}/{}", of["shown"], of["offered"]));
            let kind = match text("method") {
                Some("prompts/list") => "prompts ",
                Some("resources/list") => "resources ",
                Some("resources/templates/list") => "templates ",
                _ => "",
            };
            format!("list {kind}{}", told.collect::<Vec<_>>().join(", "))
        }
        "subscription" => {
            let uris = row["uris"].as_array().into_iter().flatten().filter_map(Value::as_str);
            match uris.collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => "subscribe to changes of lists".into(),
                uris => format!("subscribe to {uris}"),
            }
        }
        "question" => {
            let (server, method) = (text("server").unwrap_or("?"), text("method").unwrap_or("?"));
            format!("{server} asks the client: {method}")
        }
        "turned-away" => {
            let from = text("source").map(|source| format!(" from {source}")).unwrap_or_default();
            format!("rejected {}{from}: {}", number("count"), text("reason").unwrap_or("?"))
        }
        "start" => {
            let (version, policy) = (text("version").unwrap_or("?"), text("policy").unwrap_or("?"));
            format!("start {version}, policy {policy}")
        }
        "reload" => {
            let (by, policy) = (text("by").unwrap_or("?"), text("policy").unwrap_or("?"));
            match text("error") {
                None => format!("reload by {by}, policy {policy}"),
                Some(error) => {
                    format!("reload by {by} rejected, policy {policy} stays active: {error}")
                }
            }
        }
        "pin-change" => {
            let entry = ["tool", "prompt", "template"].into_iter().find_map(text);
            let server = text("server").unwrap_or("?");
            let name = entry.map_or_else(
                || format!("{server} (instructions)"),
                |entry| format!("{server}/{entry}"),
            );
            let class = text("class").map(|class| format!(" ({class})")).unwrap_or_default();
            let outcome = match text("outcome") {
                Some("quarantined") => ", quarantined",
                Some("approved-shown") => ", agents see the approved definition",
                _ => "",
            };
            format!("definition of {name} changed{class}{outcome}")
        }
        "policy-edit" => {
            let (by, agent) = (text("by").unwrap_or("?"), text("agent").unwrap_or("?"));
            let (server, tool) = (text("server").unwrap_or("?"), text("tool").unwrap_or("?"));
            format!("{by} allows {agent} to call {server}/{tool}")
        }
        "pin-approved" if row["accepts"].is_string() => {
            let (by, target) = (text("by").unwrap_or("?"), text("accepts").unwrap_or("?"));
            format!("{by} accepts the definition of {target}")
        }
        "login" => {
            let server = text("server").unwrap_or("?");
            let of = text("agent").map(|agent| format!(" of {agent}")).unwrap_or_default();
            let issuer = text("issuer").unwrap_or("?");
            match text("what").unwrap_or("?") {
                "login" => format!("login{of} to {server} at {issuer}"),
                "refresh" => format!("the login{of} to {server} was refreshed"),
                "loss" => {
                    let reason = text("reason").unwrap_or("?");
                    format!("the login{of} to {server} is lost: {reason}")
                }
                "logout" => format!("logout{of} from {server}"),
                what => format!("{what}{of}: {server}"),
            }
        }
        "pin-approved" => format!("approved definitions loaded, {} changed", number("count")),
        "segment" => format!("segment {}", number("segment")),
        "retention" => format!("removed segments up to {}", number("removed_up_to")),
        "repair" => format!("removed an incomplete line ({} bytes)", number("bytes")),
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
        "head" => text("reason").unwrap_or("the head was written again").into(),
        "taken-over" => "kept records that the head did not cover".into(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_kind_of_request_is_named() {
        let list = json!({"s": {"shown": 1, "offered": 2}});
        for (row, expected) in [
            (json!({"kind": "intent", "server": "s", "tool": "t", "action": "a"}), "s/t.a"),
            (json!({"kind": "intent", "server": "s", "prompt": "p"}), "prompt s/p"),
            (json!({"kind": "refusal", "server": "s", "uri": "note:1"}), "resource s/note:1"),
            (json!({"kind": "refusal", "uri": "note:1"}), "resource note:1"),
            (json!({"kind": "intent", "server": "s", "reference": "p"}), "completion s/p"),
            (json!({"kind": "refusal", "exposed_name": "s__x"}), "s__x"),
            (json!({"kind": "list", "servers": list}), "list s 1/2"),
            (
                json!({"kind": "list", "method": "prompts/list", "servers": list}),
                "list prompts s 1/2",
            ),
            (json!({"kind": "list", "method": "tasks/list", "tasks": 2}), "list tasks 2"),
            (json!({"kind": "subscription", "uris": ["a:1", "a:2"]}), "subscribe to a:1, a:2"),
            (json!({"kind": "subscription", "uris": []}), "subscribe to changes of lists"),
            (
                json!({"kind": "question", "server": "s", "method": "roots/list"}),
                "s asks the client: roots/list",
            ),
        ] {
            assert_eq!(what(&row), expected, "{row}");
        }
    }

    #[test]
    fn an_outcome_has_the_subject_of_its_call() {
        let intent = json!({"agent": "a", "server": "s", "method": "prompts/get", "prompt": "p"});
        let row = told(json!({"kind": "outcome", "outcome": "ok"}), &intent);
        assert_eq!(what(&row), "prompt s/p");
    }
}
