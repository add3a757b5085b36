//! Classifies changes of a definition: widening, neutral or narrowing.
//!
//! A change that is not certainly neutral or narrowing is widening.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use toolward_policy::Annotations;
use toolward_wire::list::ListKind;

use super::canonical::{Pointer, pointer_to};
use super::change::{Change, Class};
use super::definition::Definition;
use super::schema::Comparison;

/// The differences between an approved and a current definition. `others` are the names of other tools.
pub fn changes(
    kind: ListKind,
    (approved, current): (&Definition, &Definition),
    ignored: &[Pointer],
    others: &[&str],
) -> Vec<Change> {
    if approved.digest_without(ignored) == current.digest_without(ignored) {
        return Vec::new();
    }
    let (old, new) = (approved.comparable(ignored), current.comparable(ignored));
    let mut comparison = Comparison { others, changes: Vec::new() };
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for key in keys {
        if old.get(key) != new.get(key) {
            field(&mut comparison, (kind, key), old.get(key), new.get(key));
        }
    }
    if comparison.changes.is_empty() {
        // The digests differ, so something did change.
        comparison.add("", Class::Widening, "changed");
    }
    comparison.changes
}

/// The most dangerous class of several changes; `None` without changes.
pub fn worst(changes: &[Change]) -> Option<Class> {
    changes.iter().map(|change| change.class).max()
}

fn field(
    comparison: &mut Comparison<'_>,
    (kind, key): (ListKind, &str),
    old: Option<&Value>,
    new: Option<&Value>,
) {
    let at = pointer_to("", key);
    let everything = Value::Bool(true);
    match (kind, key) {
        (_, "description" | "title") => comparison.prose(&at, old, new),
        // A template is identified by its `uriTemplate`; its name is for display.
        (ListKind::ResourceTemplates, "name") => comparison.prose(&at, old, new),
        (_, "icons") => comparison.add(&at, Class::Neutral, "icons changed"),
        (ListKind::Tools, "inputSchema" | "outputSchema") => {
            comparison.schema(&at, old.unwrap_or(&everything), new.unwrap_or(&everything));
        }
        (ListKind::Tools, "annotations") => annotations(comparison, &at, old, new),
        (ListKind::Prompts, "arguments") => arguments(comparison, &at, old, new),
        _ => comparison.add(&at, Class::Widening, "changed"),
    }
}

/// Hints are claims: one that makes a tool look safer is widening.
fn annotations(
    comparison: &mut Comparison<'_>,
    at: &str,
    old: Option<&Value>,
    new: Option<&Value>,
) {
    let (was, is) = (Annotations::of(old), Annotations::of(new));
    let hints = [
        ("readOnlyHint", was.read_only == Some(true), is.read_only == Some(true)),
        ("destructiveHint", was.destructive == Some(false), is.destructive == Some(false)),
        ("idempotentHint", was.idempotent == Some(true), is.idempotent == Some(true)),
        ("openWorldHint", was.open_world == Some(false), is.open_world == Some(false)),
    ];
    let empty = Value::Object(Map::new());
    let (old, new) = (old.unwrap_or(&empty), new.unwrap_or(&empty));
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return comparison.add(at, Class::Widening, "changed");
    };
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for key in keys.into_iter().filter(|key| old.get(*key) != new.get(*key)) {
        let here = pointer_to(at, key);
        match hints.iter().find(|(hint, _, _)| hint == key) {
            Some((_, false, true)) => comparison.add(&here, Class::Widening, "claims to be safer"),
            Some((_, true, false)) => {
                comparison.add(&here, Class::Narrowing, "no longer claims to be safe");
            }
            Some(_) => comparison.add(&here, Class::Neutral, "claims the same as before"),
            None if key == "title" => comparison.prose(&here, old.get(key), new.get(key)),
            None => comparison.add(&here, Class::Widening, "changed"),
        }
    }
    if old.is_empty() && new.is_empty() {
        comparison.add(at, Class::Neutral, "claims the same as before");
    }
}

/// The arguments of a prompt, by name.
fn arguments(comparison: &mut Comparison<'_>, at: &str, old: Option<&Value>, new: Option<&Value>) {
    let by_name = |value: Option<&Value>| -> Option<Vec<(String, Map<String, Value>)>> {
        let list = match value {
            None => return Some(Vec::new()),
            Some(value) => value.as_array()?,
        };
        let named = |one: &Value| {
            let members = one.as_object()?.clone();
            Some((members.get("name")?.as_str()?.to_string(), members))
        };
        let named: Vec<_> = list.iter().map(named).collect::<Option<_>>()?;
        let names: BTreeSet<&String> = named.iter().map(|(name, _)| name).collect();
        (names.len() == named.len()).then_some(named)
    };
    let (Some(old), Some(new)) = (by_name(old), by_name(new)) else {
        return comparison.add(at, Class::Widening, "changed");
    };
    let find = |list: &[(String, Map<String, Value>)], name: &str| {
        list.iter().find(|(own, _)| own == name).map(|(_, members)| members.clone())
    };
    let before = comparison.changes.len();
    for (name, new) in &new {
        let here = pointer_to(at, name);
        let Some(old) = find(&old, name) else {
            comparison.add(&here, Class::Widening, "new argument");
            continue;
        };
        let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for key in keys.into_iter().filter(|key| old.get(*key) != new.get(*key)) {
            let inner = pointer_to(&here, key);
            match key.as_str() {
                "description" | "title" => {
                    comparison.prose(&inner, old.get(key), new.get(key));
                }
                "required" => {
                    let required =
                        |of: &Map<String, Value>| of.get("required") == Some(&Value::Bool(true));
                    match (required(&old), required(new)) {
                        (was, is) if was == is => {
                            comparison.add(&inner, Class::Neutral, "as before");
                        }
                        (_, true) => comparison.add(&inner, Class::Widening, "becomes required"),
                        _ => comparison.add(&inner, Class::Widening, "becomes optional"),
                    }
                }
                _ => comparison.add(&inner, Class::Widening, "changed"),
            }
        }
    }
    for (name, _) in &old {
        if find(&new, name).is_none() {
            comparison.add(&pointer_to(at, name), Class::Narrowing, "argument removed");
        }
    }
    if comparison.changes.len() == before {
        comparison.add(at, Class::Neutral, "same arguments in another order");
    }
}
