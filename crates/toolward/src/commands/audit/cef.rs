//! Records as events in the Common Event Format.

use serde_json::Value;
use toolward_config::sanitize;

use super::severity::judged;
use crate::audit_log::row::what;
use crate::audit_log::time::date;

pub(super) fn event(record: &Value) -> String {
    let text = |name: &str| record[name].as_str();
    let kind = text("kind").unwrap_or("record");
    let (name, severity) = judged(kind, text("verdict"), text("outcome"));
    let mut line = format!(
        "CEF:0|Toolward|toolward|{}|{}|{}|{severity}|",
        env!("CARGO_PKG_VERSION"),
        header(kind),
        header(name)
    );
    let mut add = |key: &str, value: &str| {
        if !value.is_empty() {
            if !line.ends_with('|') {
                line.push(' ');
            }
            line.push_str(&format!("{key}={}", extension(value)));
        }
    };
    let millis = text("time").and_then(date).map(|micros| (micros / 1000).to_string());
    add("rt", &millis.unwrap_or_default());
    add("externalId", text("id").unwrap_or_default());
    add("suser", text("agent").unwrap_or_default());
    add("requestClientApplication", text("client").unwrap_or_default());
    add("act", text("verdict").unwrap_or_default());
    add("outcome", text("outcome").unwrap_or_default());
    add("reason", text("reason").unwrap_or_default());
    if let Some(source) = text("source").filter(|source| source.parse::<std::net::IpAddr>().is_ok())
    {
        add("src", source);
    }
    // The label names the kind of the subject.
    let subjects = ["tool", "prompt", "uri", "reference"];
    let subject = subjects.into_iter().find(|name| text(name).is_some()).unwrap_or("tool");
    for (key, name) in [
        ("cs1", "server"),
        ("cs2", subject),
        ("cs3", "rule"),
        ("cs4", "step"),
        ("cs5", "policy"),
        ("cs6", "action"),
    ] {
        if let Some(value) = text(name) {
            add(&format!("{key}Label"), name);
            add(key, value);
        }
    }
    for (key, name) in [("cn1", "duration_us"), ("cn2", "error_code"), ("cn3", "count")] {
        if record[name].is_number() {
            add(&format!("{key}Label"), name);
            add(key, &record[name].to_string());
        }
    }
    for (key, name) in [("in", "bytes_in"), ("out", "bytes_out")] {
        if record[name].is_number() {
            add(key, &record[name].to_string());
        }
    }
    add("msg", &what(record));
    line + "\n"
}

/// A field of the header, where `|` ends it.
fn header(text: &str) -> String {
    sanitize(text).replace('\\', "\\\\").replace('|', "\\|")
}

/// A value of the extension, where `=` belongs to keys.
fn extension(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('=', "\\=");
    let escaped = escaped.replace('\n', "\\n").replace('\r', "\\r");
    sanitize(&escaped).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_value_can_end_its_field() {
        let record = json!({
            "id": "1", "time": "2026-07-28T09:30:00.000000Z", "kind": "a|b\\",
            "agent": "x act=allow|\\", "verdict": "deny", "reason": "one\ntwo\r= \u{1b}[31m",
        });
        let line = event(&record);
        assert!(line.starts_with("CEF:0|Toolward|toolward|"), "{line}");
        assert!(line.contains("|a\\|b\\\\|tool call refused|6|rt=1785231000000 "), "{line}");
        assert!(line.contains(" suser=x act\\=allow|\\\\ act=deny "), "{line}");
        assert!(line.contains(" reason=one\\ntwo\\r\\= ␛[31m "), "{line}");
        assert_eq!(line.matches('\n').count(), 1);
    }
}
