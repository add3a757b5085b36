//! Points of an analysis as text and JSON.

use serde_json::{Map, Value, json};
use toolward_config::sanitize;
use toolward_policy::analyse::{Point, PointKind, Undecided};
use toolward_policy::testing::TestArguments;
use toolward_policy::{Decision, Policy};

/// `reviewer: tracker/put_x {"a": 1}`, with what must hold of the tool.
pub(crate) fn text(point: &Point) -> String {
    let agent = point.agent.as_deref().unwrap_or("an unnamed caller");
    let kind = match point.kind {
        PointKind::Tool => "",
        PointKind::Prompt => "prompt ",
        PointKind::Resource => "resource ",
        PointKind::Template => "resource template ",
        PointKind::ClientRequest => "request to the client ",
    };
    let mut text = format!("{agent}: {kind}{}/{}", point.server, point.name);
    if let Some(arguments) = &point.arguments {
        text.push_str(&format!(" {}", written(arguments)));
    }
    let mut notes = Vec::new();
    for (name, value) in
        point.definition.get("annotations").and_then(Value::as_object).into_iter().flatten()
    {
        notes.push(format!("{name}: {value}"));
    }
    if let Some(properties) = properties(point) {
        let keys: Vec<String> = properties.keys().map(|key| format!("`{key}`")).collect();
        notes.push(format!("{} in its schema", keys.join(", ")));
    }
    if !notes.is_empty() {
        text.push_str(&format!(" ({})", notes.join(", ")));
    }
    sanitize(&text).into_owned()
}

pub(crate) fn to_json(point: &Point) -> Value {
    let kind = match point.kind {
        PointKind::Tool => "tool",
        PointKind::Prompt => "prompt",
        PointKind::Resource => "resource",
        PointKind::Template => "template",
        PointKind::ClientRequest => "client_request",
    };
    let mut value = json!({"agent": point.agent, "server": point.server, kind: point.name});
    if !point.definition.is_empty() {
        value["definition"] = point.definition.clone().into();
    }
    if let Some(arguments) = &point.arguments {
        value["arguments"] = serde_json::from_str(&written(arguments)).unwrap_or_default();
    }
    value
}

/// The deciding rule with its location, or the step if there is no rule.
pub(crate) fn rule(policy: &Policy, decision: &Decision) -> String {
    let text = match policy.rule(decision) {
        Some(rule) => format!("`{}` {} ({})", rule.written(), rule.location(), rule.path),
        None => decision.step.as_str().to_owned(),
    };
    sanitize(&text).into_owned()
}

pub(crate) fn decision_json(policy: &Policy, decision: &Decision) -> Value {
    let rule = policy.rule(decision);
    json!({
        "verdict": decision.verdict.as_str(),
        "step": decision.step.as_str(),
        "rule": rule.as_ref().map(|rule| &rule.path),
        "when": rule.as_ref().and_then(|rule| rule.when.as_ref()),
        "at": rule.as_ref().map(|rule| rule.location()),
    })
}

/// `a on the server s, because …`.
pub(crate) fn undecided(undecided: &Undecided) -> String {
    let who = undecided.agent.as_deref().unwrap_or("an unnamed caller");
    let whose = match &undecided.server {
        Some(server) => format!("{who} on the server {server}"),
        None => who.to_owned(),
    };
    sanitize(&format!("{whose}, because {}", undecided.why)).into_owned()
}

fn properties(point: &Point) -> Option<&Map<String, Value>> {
    point.definition.get("inputSchema")?.get("properties")?.as_object()
}

/// Arguments as JSON, with numbers as they are written.
fn written(arguments: &TestArguments) -> String {
    let mut text = Value::from(arguments.members.clone()).to_string();
    for number in &arguments.numbers {
        let key = number.path.last().and_then(Option::as_ref).map(|key| json!(key).to_string());
        let shown = number.text.parse::<f64>().map(|value| json!(value).to_string());
        if let (Some(key), Ok(shown)) = (key, shown) {
            text = text.replacen(&format!("{key}:{shown}"), &format!("{key}:{}", number.text), 1);
        }
    }
    text
}
