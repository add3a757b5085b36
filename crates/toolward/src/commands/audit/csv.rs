//! Records as CSV (RFC 4180).

use serde_json::{Map, Value};
use toolward_config::sanitize;

/// Members that have a column of their own; all others are in the last one, as JSON.
const COLUMNS: [&str; 34] = [
    "time",
    "kind",
    "id",
    "agent",
    "identity",
    "subject",
    "client",
    "server",
    "tool",
    "method",
    "prompt",
    "uri",
    "reference",
    "exposed_name",
    "action",
    "verdict",
    "layer",
    "step",
    "rule",
    "rule_text",
    "rule_at",
    "reason",
    "policy",
    "arguments",
    "arguments_hash",
    "outcome",
    "error_code",
    "duration_us",
    "bytes_in",
    "bytes_out",
    "ended",
    "request_id",
    "trace_id",
    "listed",
];

pub(super) fn headline() -> String {
    let mut line = COLUMNS.join(",");
    line.push_str(",more\r\n");
    line
}

pub(super) fn row(record: &Value) -> String {
    let none = Map::new();
    let members = record.as_object().unwrap_or(&none);
    let mut line = String::new();
    for name in COLUMNS {
        line.push_str(&members.get(name).map(cell).unwrap_or_default());
        line.push(',');
    }
    let more = members.iter().filter(|(name, _)| !COLUMNS.contains(&name.as_str()));
    let more: Map<String, Value> =
        more.map(|(name, value)| (name.clone(), value.clone())).collect();
    if !more.is_empty() {
        line.push_str(&cell(&Value::Object(more)));
    }
    line + "\r\n"
}

fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => text.clone(),
        // A number is never a formula.
        Value::Number(number) => return number.to_string(),
        other => other.to_string(),
    };
    // A spreadsheet could evaluate text that begins with one of these, also after spaces.
    let formula = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];
    let guard = if text.trim_start_matches(' ').starts_with(formula) { "'" } else { "" };
    let text = sanitize(&text);
    if guard.is_empty() && !text.contains([',', '"', '\r', '\n', ' ', ';']) {
        return text.into_owned();
    }
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_are_quoted_and_no_formula_is_left() {
        for (value, expected) in [
            (json!("plain"), "plain"),
            (json!(null), ""),
            (json!(-32603), "-32603"),
            (json!("a,b"), "\"a,b\""),
            (json!("say \"x\""), "\"say \"\"x\"\"\""),
            (json!("=1+1"), "\"'=1+1\""),
            (json!("+1"), "\"'+1\""),
            (json!("-1"), "\"'-1\""),
            (json!("@SUM(A1)"), "\"'@SUM(A1)\""),
            (json!("\t=1"), "\"'␉=1\""),
            (json!("\r=1"), "\"'␍=1\""),
            (json!("  =1"), "\"'  =1\""),
            (json!("a\nb"), "a␊b"),
            (json!({"a": "=1"}), "\"{\"\"a\"\":\"\"=1\"\"}\""),
        ] {
            assert_eq!(cell(&value), expected, "{value}");
        }
        let line = row(&json!({"time": "t", "kind": "k", "verdict": "deny", "extra": [1]}));
        assert!(
            line.starts_with("t,k,,") && line.ends_with(",\"{\"\"extra\"\":[1]}\"\r\n"),
            "{line}"
        );
        assert_eq!(headline().matches(',').count(), COLUMNS.len());
    }
}
