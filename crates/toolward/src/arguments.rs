//! Call arguments as written by a person or a test, for policy queries.

use std::ops::Deref;

use serde_json::{Map, Value};
use toolward_config::json as strict;
use toolward_config::node::Node;
use toolward_policy::Arguments;
use toolward_wire::Raw;

/// A JSON object and its text. The text determines which numbers are exact, as in a request to the gateway.
#[derive(Debug, Clone, Default)]
pub(crate) struct ArgumentsText {
    members: Map<String, Value>,
    text: Box<str>,
}

impl ArgumentsText {
    /// Parses an object, or returns the error.
    pub(crate) fn parse(text: &str) -> Result<ArgumentsText, String> {
        let parsed = strict::parse(text).map_err(|fault| {
            let start = usize::try_from(fault.span.start).unwrap_or(usize::MAX);
            let before = text.get(..start).unwrap_or(text);
            let line = before.rsplit('\n').next().unwrap_or_default();
            let (row, column) = (before.matches('\n').count() + 1, line.chars().count() + 1);
            format!("{} (line {row}, column {column})", fault.message)
        })?;
        ArgumentsText::of(&parsed, text)
            .ok_or_else(|| "write an object such as '{\"path\": \"/a\"}'".into())
    }

    /// A node of a JSON text as an object; `None` for any other type.
    pub(crate) fn of(node: &Node<'_>, text: &str) -> Option<ArgumentsText> {
        let Value::Object(members) = node.to_json() else { return None };
        let (start, end) = (node.span.start as usize, node.span.end as usize);
        Some(ArgumentsText { members, text: text.get(start..end)?.into() })
    }

    /// The object as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl Deref for ArgumentsText {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Map<String, Value> {
        &self.members
    }
}

impl Arguments for ArgumentsText {
    fn members(&self, show: &mut dyn FnMut(&str, Option<&str>)) {
        self.members.members(show);
    }

    fn to_json(&self) -> Value {
        self.members.to_json()
    }

    fn numbers(&self, path: &[Box<str>], show: &mut dyn FnMut(&str)) {
        let Ok(object) = Raw::scan(self.text.as_bytes(), usize::MAX) else {
            return self.members.numbers(path, show);
        };
        let found = path.iter().try_fold(object, |raw, key| raw.member(key));
        if let Some(value) = found {
            value.numbers(show);
        }
    }
}
