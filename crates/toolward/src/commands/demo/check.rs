//! Validates arguments against the small JSON schemas of the demo tools.

use serde_json::{Map, Value};

/// The first validation error, worded for the caller.
pub(super) fn arguments(tool: &Value, given: &Map<String, Value>) -> Result<(), String> {
    let schema = &tool["inputSchema"];
    let none = Map::new();
    let known = schema["properties"].as_object().unwrap_or(&none);
    let name = tool["name"].as_str().unwrap_or_default();
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for required in required {
        if !given.contains_key(required) {
            let form = known.get(required).map(form).unwrap_or_default();
            return Err(format!("{name} needs `{required}`: {form}"));
        }
    }
    for (key, value) in given {
        let Some(property) = known.get(key) else {
            let keys: Vec<&str> = known.keys().map(String::as_str).collect();
            let keys = if keys.is_empty() { "nothing".into() } else { keys.join(", ") };
            return Err(format!("{name} does not know `{key}`; it takes {keys}"));
        };
        if !fits(property, value) {
            return Err(format!("`{key}` of {name} must be {}, not {value}", form(property)));
        }
    }
    Ok(())
}

fn fits(property: &Value, value: &Value) -> bool {
    let is_type = match property["type"].as_str() {
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("array") => value.as_array().is_some_and(|all| all.iter().all(Value::is_string)),
        _ => false,
    };
    let number = value.as_f64();
    let least = property["minimum"].as_f64().is_none_or(|least| number >= Some(least));
    let most = property["maximum"].as_f64().is_none_or(|most| number <= Some(most));
    let length = value.as_str().map(|text| text.chars().count() as u64);
    let long = property["minLength"].as_u64().is_none_or(|least| length >= Some(least));
    let listed = property["enum"].as_array().is_none_or(|values| values.contains(value));
    is_type && least && most && long && listed
}

/// The expected value of a property, for people and models.
fn form(property: &Value) -> String {
    let mut form = match property["type"].as_str() {
        _ if property["enum"].is_array() => {
            let values = property["enum"].as_array().into_iter().flatten();
            let values: Vec<&str> = values.filter_map(Value::as_str).collect();
            format!("one of {}", values.join(", "))
        }
        Some("integer") => "a whole number".into(),
        Some("number") => "a number".into(),
        Some("array") => "a list of strings".into(),
        _ => "a string".into(),
    };
    match (property["minimum"].as_f64(), property["maximum"].as_f64()) {
        (Some(least), Some(most)) => form.push_str(&format!(" from {least} to {most}")),
        (Some(least), None) => form.push_str(&format!(" of at least {least}")),
        _ => {}
    }
    if let Some(least) = property["minLength"].as_u64() {
        form.push_str(&format!(" of at least {least} characters"));
    }
    if let Some(about) = property["description"].as_str() {
        form.push_str(&format!(" ({about})"));
    }
    form
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::arguments;
    use crate::commands::demo::world::tools;
    use serde_json::{Value, json};

    fn said(tool: &str, given: Value) -> String {
        let tools = tools(None);
        let tool = tools.iter().find(|found| found["name"] == tool).unwrap();
        arguments(tool, given.as_object().unwrap()).err().unwrap_or_default()
    }

    #[test]
    fn valid_values_pass_and_invalid_ones_are_explained() {
        assert_eq!(said("get_issue", json!({"number": 17})), "");
        assert_eq!(said("weekly_report", json!({"seconds": 0.5})), "");
        assert_eq!(said("create_issue", json!({"title": "abc", "labels": ["bug"]})), "");
        let missing = "get_issue needs `number`: a whole number of at least 1 (The issue's number, such as 17)";
        assert_eq!(said("get_issue", json!({})), missing);
        for (tool, given, part) in [
            ("get_issue", json!({"number": "17"}), "a whole number"),
            ("get_issue", json!({"number": 0}), "at least 1"),
            ("get_issue", json!({"number": 1.5}), "not 1.5"),
            ("get_issue", json!({"number": 1, "id": 2}), "does not know `id`; it takes number"),
            ("board", json!({"action": "burn"}), "one of show, move, clear"),
            ("create_issue", json!({"title": "ab"}), "at least 3 characters"),
            ("create_issue", json!({"title": "abc", "labels": "bug"}), "a list of strings"),
            ("weekly_report", json!({"seconds": 21}), "from 0 to 20"),
            ("write_file", json!({"path": "a", "content": null}), "a string"),
        ] {
            assert!(said(tool, given).contains(part), "{tool}: {part}");
        }
    }
}
