//! Compares JSON Schemas: does a change accept more, less, or the same?
//!
//! Every keyword of a schema is a condition on its own, so a schema accepts less if each changed keyword does. A change
//! for which that is not certain counts as widening. A new parameter counts as widening, too, even where a schema
//! accepts any: it is what agents are asked to fill in.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::canonical::pointer_to;
use super::change::{Change, Class};
use super::prose;

/// The texts of schemas, which accept or refuse nothing.
const PROSE: [&str; 4] = ["description", "title", "$comment", "examples"];

/// Compares schemas, and collects what changed.
pub(super) struct Comparison<'a> {
    /// The names of other tools, which a text should not gain.
    pub(super) others: &'a [&'a str],
    pub(super) changes: Vec<Change>,
}

impl Comparison<'_> {
    pub(super) fn add(&mut self, at: &str, class: Class, what: impl Into<String>) {
        self.changes.push(Change { at: at.into(), class, what: what.into() });
    }

    /// A changed text: neutral, unless it gains something that could steer a model.
    pub(super) fn prose(&mut self, at: &str, old: Option<&Value>, new: Option<&Value>) {
        if old == new {
            return;
        }
        let text = |value: Option<&Value>| {
            let mut text = String::new();
            value.into_iter().for_each(|value| strings(value, &mut text));
            text
        };
        let gained = prose::gained(&text(old), &text(new), self.others.iter().copied());
        if gained.is_empty() {
            let what = match (old, new) {
                (None, _) => "text added",
                (_, None) => "text removed",
                _ => "text changed",
            };
            return self.add(at, Class::Neutral, what);
        }
        for cue in gained {
            self.add(at, Class::Widening, cue.as_str());
        }
    }

    /// Compares two schemas. A missing schema accepts everything.
    pub(super) fn schema(&mut self, at: &str, old: &Value, new: &Value) {
        if old == new {
            return;
        }
        let everything = Map::new();
        let members = |value: &Value| match value {
            Value::Object(members) => Some(members.clone()),
            Value::Bool(true) => Some(everything.clone()),
            _ => None,
        };
        match (members(old), members(new)) {
            (Some(_), None) if new == false => self.add(at, Class::Narrowing, "accepts nothing"),
            (Some(old), Some(new)) => {
                let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
                for key in keys {
                    let changed = (old.get(key), new.get(key));
                    if changed.0 != changed.1 {
                        self.keyword(at, key, changed, &new);
                    }
                }
            }
            _ => self.add(at, Class::Widening, "accepts more"),
        }
    }

    fn keyword(
        &mut self,
        at: &str,
        key: &str,
        (old, new): (Option<&Value>, Option<&Value>),
        whole: &Map<String, Value>,
    ) {
        let here = pointer_to(at, key);
        let here = here.as_str();
        match key {
            _ if PROSE.contains(&key) => self.prose(here, old, new),
            "type" => self.types(here, old, new),
            "enum" => self.values(here, old, new),
            "const" => self.bound(here, (old, new), new.is_some() && old.is_none()),
            "required" => self.required(here, old, new),
            "properties" => self.properties(here, (old, new), whole),
            "additionalProperties" | "items" => {
                let everything = Value::Bool(true);
                self.schema(here, old.unwrap_or(&everything), new.unwrap_or(&everything));
            }
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
                let narrower = tightened(old, new, |old, new| new > old);
                self.bound(here, (old, new), narrower);
            }
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
                let narrower = tightened(old, new, |old, new| new < old);
                self.bound(here, (old, new), narrower);
            }
            "pattern" | "format" | "multipleOf" => {
                self.bound(here, (old, new), old.is_none() && new.is_some());
            }
            "uniqueItems" => self.bound(here, (old, new), new == Some(&Value::Bool(true))),
            "anyOf" | "allOf" => self.alternatives(here, key, old, new),
            "oneOf" | "$defs" | "definitions" => self.only_prose(here, old, new),
            // `$ref`, `not`, `if`, `default`, unknown keywords: nothing is certain.
            _ => self.add(here, Class::Widening, "changed"),
        }
    }

    fn bound(&mut self, at: &str, (old, new): (Option<&Value>, Option<&Value>), narrower: bool) {
        match (narrower, old, new) {
            (true, ..) => self.add(at, Class::Narrowing, "accepts less"),
            (false, _, None) => self.add(at, Class::Widening, "limit removed"),
            (false, ..) => self.add(at, Class::Widening, "accepts other values"),
        }
    }

    fn types(&mut self, at: &str, old: Option<&Value>, new: Option<&Value>) {
        let set = |value: &Value| -> Option<BTreeSet<String>> {
            match value {
                Value::String(one) => Some(BTreeSet::from([one.clone()])),
                Value::Array(many) => {
                    many.iter().map(|one| one.as_str().map(String::from)).collect()
                }
                _ => None,
            }
        };
        let old_types = old.map(set);
        match (old_types, new.map(set)) {
            (None, Some(Some(_))) => self.add(at, Class::Narrowing, "type restricted"),
            (Some(Some(old)), Some(Some(new))) if old == new => {
                self.add(at, Class::Neutral, "same types");
            }
            (Some(Some(old)), Some(Some(new)))
                if new.iter().all(|one| {
                    old.contains(one) || (one == "integer" && old.contains("number"))
                }) =>
            {
                self.add(at, Class::Narrowing, "type restricted");
            }
            _ => self.add(at, Class::Widening, "type widened"),
        }
    }

    fn values(&mut self, at: &str, old: Option<&Value>, new: Option<&Value>) {
        let (old, new) = (old.map(Value::as_array), new.map(Value::as_array));
        match (old, new) {
            (Some(Some(old)), Some(Some(new))) => {
                let has = |set: &[Value], one: &Value| set.contains(one);
                let added = new.iter().filter(|one| !has(old, one)).count();
                match (added, old.iter().all(|one| has(new, one))) {
                    (0, true) => self.add(at, Class::Neutral, "same values in another order"),
                    (0, false) => self.add(at, Class::Narrowing, "values removed"),
                    _ => self.add(at, Class::Widening, "values added"),
                }
            }
            // The values are texts that the agent reads, so a new list is not only a limit.
            (None, Some(Some(new))) => {
                let mut text = String::new();
                new.iter().for_each(|value| strings(value, &mut text));
                let gained = prose::gained("", &text, self.others.iter().copied());
                match gained.first() {
                    None => self.add(at, Class::Narrowing, "values restricted"),
                    Some(cue) => self.add(at, Class::Widening, cue.as_str()),
                }
            }
            _ => self.add(at, Class::Widening, "values no longer restricted"),
        }
    }

    /// A parameter that becomes required makes agents send more, one that becomes optional accepts more calls.
    fn required(&mut self, at: &str, old: Option<&Value>, new: Option<&Value>) {
        let set = |value: Option<&Value>| -> Option<BTreeSet<String>> {
            match value {
                None => Some(BTreeSet::new()),
                Some(Value::Array(names)) => {
                    names.iter().map(|name| name.as_str().map(String::from)).collect()
                }
                Some(_) => None,
            }
        };
        match (set(old), set(new)) {
            (Some(old), Some(new)) if old == new => {
                self.add(at, Class::Neutral, "same names in another order");
            }
            (Some(old), Some(new)) => {
                for name in new.difference(&old) {
                    self.add(at, Class::Widening, format!("`{name}` becomes required"));
                }
                for name in old.difference(&new) {
                    self.add(at, Class::Widening, format!("`{name}` becomes optional"));
                }
            }
            _ => self.add(at, Class::Widening, "changed"),
        }
    }

    fn properties(
        &mut self,
        at: &str,
        (old, new): (Option<&Value>, Option<&Value>),
        whole: &Map<String, Value>,
    ) {
        let empty = Value::Object(Map::new());
        let (old, new) = (old.unwrap_or(&empty), new.unwrap_or(&empty));
        let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
            return self.add(at, Class::Widening, "changed");
        };
        let is_closed = whole.get("additionalProperties") == Some(&Value::Bool(false));
        for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
            let here = pointer_to(at, name);
            match (old.get(name), new.get(name)) {
                (Some(old), Some(new)) => self.schema(&here, old, new),
                (None, _) => self.add(&here, Class::Widening, "new parameter"),
                (_, None) if is_closed => self.add(&here, Class::Narrowing, "parameter removed"),
                // With open `additionalProperties`, it is accepted with any value now.
                (_, None) => {
                    self.add(&here, Class::Widening, "parameter no longer described, but accepted");
                }
            }
        }
    }

    fn alternatives(&mut self, at: &str, key: &str, old: Option<&Value>, new: Option<&Value>) {
        let lists = (old.map(Value::as_array), new.map(Value::as_array));
        let (old, new) = match lists {
            (Some(Some(old)), Some(Some(new))) => (old, new),
            _ => return self.add(at, Class::Widening, "changed"),
        };
        if old.len() == new.len() {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                self.schema(&format!("{at}/{index}"), old, new);
            }
            return;
        }
        let within = |inner: &[Value], outer: &[Value]| inner.iter().all(|one| outer.contains(one));
        let narrower = match key {
            "anyOf" => within(new, old),
            _ => within(old, new),
        };
        match narrower {
            true => self.add(at, Class::Narrowing, "accepts less"),
            false => self.add(at, Class::Widening, "accepts more"),
        }
    }

    /// Parts in which accepting less can mean that the whole accepts more: anything but texts is widening.
    fn only_prose(&mut self, at: &str, old: Option<&Value>, new: Option<&Value>) {
        let (Some(old), Some(new)) = (old, new) else {
            return self.add(at, Class::Widening, "changed");
        };
        let mut inner = Comparison { others: self.others, changes: Vec::new() };
        match (old, new) {
            (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
                for (index, (old, new)) in old.iter().zip(new).enumerate() {
                    inner.schema(&format!("{at}/{index}"), old, new);
                }
            }
            (Value::Object(old), Value::Object(new))
                if old.len() == new.len() && old.keys().all(|name| new.contains_key(name)) =>
            {
                for (name, old) in old {
                    let new = new.get(name).unwrap_or(&Value::Null);
                    inner.schema(&pointer_to(at, name), old, new);
                }
            }
            _ => return self.add(at, Class::Widening, "changed"),
        }
        for change in inner.changes {
            let class = match change.class {
                Class::Neutral => Class::Neutral,
                _ => Class::Widening,
            };
            self.changes.push(Change { class, ..change });
        }
    }
}

/// Whether a bound was added, or is stricter than before.
fn tightened(
    old: Option<&Value>,
    new: Option<&Value>,
    is_stricter: impl Fn(f64, f64) -> bool,
) -> bool {
    match (old, new.and_then(Value::as_f64)) {
        (None, Some(_)) => true,
        (Some(old), Some(new)) => old.as_f64().is_some_and(|old| is_stricter(old, new)),
        (_, None) => false,
    }
}

/// All strings in a value, keys included.
fn strings(value: &Value, text: &mut String) {
    match value {
        Value::String(one) => {
            text.push_str(one);
            text.push('\n');
        }
        Value::Array(many) => many.iter().for_each(|one| strings(one, text)),
        Value::Object(members) => {
            for (key, value) in members {
                text.push_str(key);
                text.push('\n');
                strings(value, text);
            }
        }
        _ => {}
    }
}
