//! Edits of TOML tables with a header, and TOML's notation of values.

use std::ops::Range;

use serde_json::Value as Json;

use super::{Change, Refused, line_end, range};
use crate::read::node::{Node, Value};

/// From the header to the end of the last value, tables below it included.
pub(super) fn region(
    text: &str,
    tree: &Node<'_>,
    entry: &Node<'_>,
) -> Result<Range<usize>, Refused> {
    let start = range(entry.span).start;
    let end = last_byte(entry).max(range(entry.span).end);
    let region = start..end;
    if start > end || intrudes(tree, entry, &region) || text.get(region.clone()).is_none() {
        return Err(Refused::Unsupported("the tables of the entry are spread over the file"));
    }
    Ok(region)
}

/// The end of the last value of a node. A table's own span is its header.
fn last_byte(node: &Node<'_>) -> usize {
    let own = range(node.span).end;
    node.entries().map(|(_, node)| last_byte(node)).fold(own, usize::max)
}

/// The end of the last value or header that begins before an offset.
fn last_byte_before(node: &Node<'_>, offset: usize) -> usize {
    let before = node.entries().filter(|(_, inner)| range(inner.span).start < offset);
    let own = range(node.span).end;
    before.map(|(_, inner)| last_byte_before(inner, offset)).fold(own, usize::max)
}

/// Whether a value or header outside of the entry lies in its region.
fn intrudes(node: &Node<'_>, entry: &Node<'_>, region: &Range<usize>) -> bool {
    node.entries().any(|(_, inner)| {
        if std::ptr::eq(inner, entry) {
            return false;
        }
        let is_inside = |node: &Node<'_>| region.contains(&range(node.span).start);
        let items = inner.items().iter();
        (is_inside(inner) && !contains(inner, entry))
            || items.clone().any(|item| is_inside(item) && !contains(item, entry))
            || intrudes(inner, entry, region)
            || items.clone().any(|item| intrudes(item, entry, region))
    })
}

/// Whether a node is an ancestor of the entry: one without a header has the span of some descendant.
fn contains(node: &Node<'_>, entry: &Node<'_>) -> bool {
    node.entries().any(|(_, inner)| std::ptr::eq(inner, entry) || contains(inner, entry))
}

/// Adds a member in a line above the first one.
pub(super) fn insert(
    text: &str,
    entry: &Node<'_>,
    name: &str,
    value: &Json,
) -> Result<Change, Refused> {
    let header = range(entry.span).end;
    let is_own = |node: &Node<'_>| {
        text.as_bytes().get(range(node.span).start) != Some(&b'[') || !is_table(node)
    };
    let first = entry.entries().find(|(key, node)| is_own(node) && range(key.span).start >= header);
    let Some((first, _)) = first else {
        return Err(Refused::Unsupported("the entry has no keys of its own"));
    };
    let at = range(first.span).start;
    let line = text.get(..at).and_then(|before| before.rsplit('\n').next()).unwrap_or_default();
    if !line.trim().is_empty() {
        return Err(Refused::Unsupported("the entry is written with dotted keys"));
    }
    let replacement = format!("{} = {}{}{line}", key(name), self::value(value), line_end(text));
    Ok(Change { region: at..at, replacement })
}

fn is_table(node: &Node<'_>) -> bool {
    matches!(node.value, Value::Map(_))
}

/// Removes the lines of a member, or of a table below the entry.
pub(super) fn remove(text: &str, entry: &Node<'_>, name: &str) -> Result<Change, Refused> {
    let (key, node) = entry.as_map().and_then(|map| map.entry(name)).ok_or(Refused::Missing)?;
    let is_section = is_table(node) && text.as_bytes().get(range(node.span).start) == Some(&b'[');
    let (from, to) = match is_section {
        true => (range(node.span).start, last_byte(node)),
        false => (range(key.span).start, range(node.span).end),
    };
    let start = text.get(..from).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    if !text.get(start..from).unwrap_or_default().trim().is_empty() {
        return Err(Refused::Unsupported("the entry is written with dotted keys"));
    }
    // The entry ends with its last value, so everything behind the value before belongs to the removed one.
    let is_last = to >= last_byte(entry);
    let region = match is_last {
        true => last_byte_before(entry, start)..to,
        false => {
            let end = text
                .get(to..)
                .and_then(|rest| rest.find('\n'))
                .map_or(text.len(), |at| to + at + 1);
            start..end
        }
    };
    Ok(Change { region, replacement: String::new() })
}

pub(super) fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match !name.is_empty() && name.chars().all(is_bare) {
        true => name.into(),
        false => Json::from(name).to_string(),
    }
}

/// A value in TOML's notation. TOML has no null; no edit needs one.
pub(super) fn value(json: &Json) -> String {
    match json {
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(value).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(map) => {
            let members =
                map.iter().map(|(name, inner)| format!("{} = {}", key(name), value(inner)));
            let members: Vec<String> = members.collect();
            match members.is_empty() {
                true => "{}".into(),
                false => format!("{{ {} }}", members.join(", ")),
            }
        }
        // JSON's escapes are TOML's, except for the control character U+007F, which TOML wants escaped.
        Json::String(_) => json.to_string().replace('\u{7f}', "\\u007F"),
        other => other.to_string(),
    }
}
