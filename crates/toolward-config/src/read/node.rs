//! The tree that all parsers produce: values with their spans.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::diagnostics::fault::Fault;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::Span;

/// Deeper nesting is rejected in every format.
pub const MAX_DEPTH: usize = 64;

/// A value with its span. Strings borrow from the text if they contain no escapes.
#[derive(Debug, Clone, PartialEq)]
pub struct Node<'t> {
    pub span: Span,
    pub value: Value<'t>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value<'t> {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer beyond `i64`.
    UInt(u64),
    Float(f64),
    Str(Cow<'t, str>),
    /// TOML's dates, as written.
    Date(Cow<'t, str>),
    Seq(Vec<Node<'t>>),
    Map(Map<'t>),
}

/// A mapping in file order. Keys are unique.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Map<'t>(Vec<(Key<'t>, Node<'t>)>);

#[derive(Debug, Clone, PartialEq)]
pub struct Key<'t> {
    pub span: Span,
    pub name: Cow<'t, str>,
}

impl<'t> Node<'t> {
    pub fn new(span: Span, value: Value<'t>) -> Self {
        Node { span, value }
    }

    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    pub fn as_int(&self) -> Option<i64> {
        match self.value {
            Value::Int(value) => Some(value),
            _ => None,
        }
    }

    pub fn as_map(&self) -> Option<&Map<'t>> {
        match &self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Whether two nodes hold the same data, wherever it is written.
    ///
    /// Digits that a float cannot hold are lost in its value, so that two floats also need the same length.
    pub fn has_data_of(&self, other: &Node<'_>) -> bool {
        match (&self.value, &other.value) {
            (Value::Seq(these), Value::Seq(those)) => {
                let mut pairs = these.iter().zip(those);
                these.len() == those.len() && pairs.all(|(this, that)| this.has_data_of(that))
            }
            (Value::Map(these), Value::Map(those)) => {
                let mut pairs = these.iter().zip(those.iter());
                these.0.len() == those.0.len()
                    && pairs.all(|((key, this), (other, that))| {
                        key.name == other.name && this.has_data_of(that)
                    })
            }
            (Value::Float(this), Value::Float(that)) => {
                let length = |span: Span| span.end - span.start;
                this == that && length(self.span) == length(other.span)
            }
            (this, that) => this == that,
        }
    }

    /// The items of a list; empty for any other value.
    pub fn items(&self) -> &[Node<'t>] {
        match &self.value {
            Value::Seq(items) => items,
            _ => &[],
        }
    }

    /// The entries of a mapping; empty for any other value.
    pub fn entries(&self) -> impl Iterator<Item = (&Key<'t>, &Node<'t>)> {
        self.as_map().into_iter().flat_map(Map::iter)
    }

    /// The value under a key of a mapping.
    pub fn get(&self, key: &str) -> Option<&Node<'t>> {
        self.as_map().and_then(|map| map.get(key))
    }

    /// The kind of value, as used in messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::UInt(_) | Value::Float(_) => "a number",
            Value::Str(_) => "a string",
            Value::Date(_) => "a date",
            Value::Seq(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// The value as a `serde_json` value.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => (*value).into(),
            Value::UInt(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::Str(text) | Value::Date(text) => text.as_ref().into(),
            Value::Seq(items) => items.iter().map(Node::to_json).collect(),
            Value::Map(map) => serde_json::Value::Object(
                map.iter().map(|(key, node)| (key.name.to_string(), node.to_json())).collect(),
            ),
        }
    }
}

impl<'t> Map<'t> {
    /// A mapping, and a fault for each duplicate key.
    pub(crate) fn new(entries: Vec<(Key<'t>, Node<'t>)>, faults: &mut Vec<Fault>) -> Self {
        for (second, first) in duplicates(&entries) {
            faults.push(
                Fault::new(second.span, format!("the key {} is duplicated", quoted(&second.name)))
                    .label("duplicated here")
                    .related(first.span, "first defined here"),
            );
        }
        Map(entries)
    }

    /// A mapping whose keys are known to be unique.
    pub(crate) fn of(entries: Vec<(Key<'t>, Node<'t>)>) -> Self {
        Map(entries)
    }

    pub(crate) fn into_entries(self) -> Vec<(Key<'t>, Node<'t>)> {
        self.0
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key<'t>, &Node<'t>)> {
        self.0.iter().map(|(key, node)| (key, node))
    }

    pub fn get(&self, key: &str) -> Option<&Node<'t>> {
        self.entry(key).map(|(_, node)| node)
    }

    /// The key with its span, and the value.
    pub fn entry(&self, key: &str) -> Option<(&Key<'t>, &Node<'t>)> {
        self.iter().find(|(found, _)| found.name == key)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn duplicates<'m, 't>(entries: &'m [(Key<'t>, Node<'t>)]) -> Vec<(&'m Key<'t>, &'m Key<'t>)> {
    const FEW: usize = 12;
    let keys = entries.iter().map(|(key, _)| key);
    if entries.len() <= FEW {
        let before = |at: usize, key: &Key<'_>| {
            entries.iter().take(at).map(|(earlier, _)| earlier).find(|k| k.name == key.name)
        };
        keys.enumerate().filter_map(|(at, key)| Some((key, before(at, key)?))).collect()
    } else {
        let mut seen: HashMap<&str, &Key<'t>> = HashMap::with_capacity(entries.len());
        let mut found = Vec::new();
        for key in keys {
            match seen.get(key.name.as_ref()) {
                Some(first) => found.push((key, *first)),
                None => drop(seen.insert(&key.name, key)),
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_found_in_short_and_long_mappings() {
        for len in [3usize, 200] {
            let entries: Vec<_> = (0..len)
                .map(|at| {
                    let span = Span::new(at, at + 1);
                    let name = Cow::Owned(format!("k{}", if at == len - 1 { 0 } else { at }));
                    (Key { span, name }, Node::new(span, Value::Null))
                })
                .collect();
            let mut faults = Vec::new();
            Map::new(entries, &mut faults);
            assert_eq!(faults.len(), 1, "{len}");
            assert_eq!(faults[0].span, Span::new(len - 1, len));
        }
    }

    #[test]
    fn a_node_stays_small() {
        assert!(size_of::<Node<'_>>() <= 40);
    }
}
