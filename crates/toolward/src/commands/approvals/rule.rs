//! The change of a policy that would allow the calls of a ticket without approval.

use serde_json::Value;
use toolward_config::yaml_scalar;

/// A change of a policy, for a person to make.
pub(super) struct Change {
    /// The location of the entry that asks.
    pub(super) at: String,
    pub(super) how: String,
    /// The entry to write.
    pub(super) rule: String,
}

/// The narrowest change for a ticket. `keys` are arguments whose values stay as they are.
pub(super) fn change(ticket: &Value, keys: &[&str]) -> Result<Change, String> {
    let rules = ticket["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    let [rule] = rules else {
        return Err("several rules ask; each of them would have to change".into());
    };
    let text = |key: &str| rule[key].as_str().unwrap_or_default().to_string();
    let tool = ticket["tool"].as_str().unwrap_or_default();
    let (at, path) = (text("at"), text("path"));
    let list = path.rsplit_once('[').map_or(&*path, |(list, _)| list).to_string();
    let conditions = conditions(ticket, keys)?;
    let key = match ticket["method"].as_str() {
        Some("prompts/get") => "prompt",
        Some("resources/read") => "resource",
        _ => "tool",
    };
    let name = yaml_scalar(tool);
    let entry = match conditions.is_empty() {
        true => format!("- {name}"),
        false => format!("- {{ {key}: {name}, when: {} }}", yaml_scalar(&conditions)),
    };
    let is_exact = text("rule") == tool;
    let how = match (is_exact, conditions.is_empty()) {
        (true, true) => format!("Replace the entry at {at}, in {list}, with:"),
        _ => format!("Add to {list}, before the entry at {at}:"),
    };
    Ok(Change { at, how, rule: format!("  {entry}") })
}

/// A condition that the chosen arguments have the values of this call.
fn conditions(ticket: &Value, keys: &[&str]) -> Result<String, String> {
    if keys.is_empty() {
        return Ok(String::new());
    }
    if ticket["params_cut"] == true {
        return Err("the parameters are too long to be shown as a condition".into());
    }
    let params =
        ticket["params"].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let params = params.ok_or("the parameters cannot be read")?;
    let condition = |key: &&str| match &params["arguments"][*key] {
        value @ (Value::String(_) | Value::Bool(_) | Value::Number(_)) => {
            let is_name = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !key.starts_with(|c: char| c.is_ascii_digit());
            let access = match is_name {
                true => format!("args.{key}"),
                false => format!("args[{}]", Value::from(*key)),
            };
            Ok(format!("{access} == {value}"))
        }
        Value::Null => Err(format!("the call has no argument `{key}`")),
        _ => Err(format!("the argument `{key}` is neither a string, a number nor a boolean")),
    };
    let conditions: Result<Vec<String>, String> = keys.iter().map(condition).collect();
    Ok(conditions?.join(" && "))
}
