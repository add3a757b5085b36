//! Edits of YAML block mappings. New values are written in flow style, which is valid at any indentation.

use serde_json::Value as Json;

use super::{Change, Refused, line_end, range};
use crate::read::node::{Key, Node, Value};

/// Replaces everything between a key and the end of its value: a list below its key may have an indentation at
/// which no other value may be written.
pub(super) fn set(text: &str, key: &Key<'_>, node: &Node<'_>, value: &Json) -> Change {
    let region = colon(text, key)..member_end(text, key, node);
    Change { region, replacement: format!(": {value}") }
}

/// Where a mapping or another value ends: behind its last visible character. The parser lets a text block end where
/// the next key begins, and a value that is missing where its key ends.
pub(super) fn end(text: &str, node: &Node<'_>) -> usize {
    let span = range(node.span);
    let is_block = !matches!(text.as_bytes().get(span.start), Some(b'{' | b'['));
    match &node.value {
        Value::Map(_) if is_block => {
            node.entries().last().map_or(span.end, |(key, value)| member_end(text, key, value))
        }
        Value::Seq(items) if is_block => items.last().map_or(span.end, |item| end(text, item)),
        _ => {
            let whole = text.get(span.clone()).unwrap_or_default();
            span.start + whole.trim_end().len()
        }
    }
}

fn member_end(text: &str, key: &Key<'_>, value: &Node<'_>) -> usize {
    end(text, value).max(colon(text, key) + 1)
}

/// The colon behind a key, which may be preceded by spaces.
fn colon(text: &str, key: &Key<'_>) -> usize {
    let end = range(key.span).end;
    text.get(end..).and_then(|rest| rest.find(':')).map_or(end, |at| end + at)
}

/// Adds a member in front of the first one, at its column.
pub(super) fn insert(
    text: &str,
    entry: &Node<'_>,
    name: &str,
    value: &Json,
) -> Result<Change, Refused> {
    let Some((first, _)) = entry.entries().next() else {
        return Err(Refused::Unsupported("the entry is empty"));
    };
    let at = range(first.span).start;
    let line = text.get(..at).and_then(|before| before.rsplit('\n').next()).unwrap_or_default();
    // `- ` of a list item in front of the key counts as indentation.
    let indentation = " ".repeat(line.chars().count());
    let name = Json::from(name);
    let name = match name.as_str() {
        Some(plain) if is_plain(plain) => plain.to_owned(),
        _ => name.to_string(),
    };
    let replacement = format!("{name}: {value}{}{indentation}", line_end(text));
    Ok(Change { region: at..at, replacement })
}

/// A name that needs no quotes.
fn is_plain(name: &str) -> bool {
    let words = ["true", "false", "null", "yes", "no", "on", "off"];
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        && !words.contains(&name.to_ascii_lowercase().as_str())
}

pub(super) fn remove(text: &str, entry: &Node<'_>, name: &str) -> Result<Change, Refused> {
    let members: Vec<_> = entry.entries().collect();
    let at = members.iter().position(|(key, _)| key.name == name).ok_or(Refused::Missing)?;
    let (key, node) = members.get(at).ok_or(Refused::Missing)?;
    let region =
        match (at.checked_sub(1).and_then(|before| members.get(before)), members.get(at + 1)) {
            (_, Some((next, _))) => range(key.span).start..range(next.span).start,
            (Some((before_key, before)), None) => {
                member_end(text, before_key, before)..member_end(text, key, node)
            }
            (None, None) => return Err(Refused::Unsupported("the entry would be empty")),
        };
    Ok(Change { region, replacement: String::new() })
}
