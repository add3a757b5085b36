//! Edits of mappings in braces: JSON objects, YAML flow mappings, TOML inline tables.

use serde_json::Value as Json;

use super::{Change, Refused, range, section};
use crate::read::node::Node;

/// Adds a member behind the last one, separated as the first one is from the brace.
pub(super) fn insert(
    text: &str,
    entry: &Node<'_>,
    sign: &str,
    name: &str,
    value: &Json,
) -> Result<Change, Refused> {
    let is_toml = sign != ": ";
    let name = if is_toml { section::key(name) } else { Json::from(name).to_string() };
    let value = if is_toml { section::value(value) } else { value.to_string() };
    let whole = range(entry.span);
    let mut members = entry.entries();
    let Some((first, first_value)) = members.next() else {
        // A comment may be all that is between the braces: it stays.
        let at = whole.start + 1;
        return Ok(Change { region: at..at, replacement: format!("{name}{sign}{value}") });
    };
    let last = members.last().map_or(first_value, |(_, node)| node);
    let lead = text.get(whole.start + 1..range(first.span).start).unwrap_or_default();
    // Behind a comment, only the line break and the indentation are repeated.
    let separator = match lead.rfind('\n') {
        Some(_) if is_toml => " ".into(),
        Some(at) => {
            let start =
                if lead.get(..at).is_some_and(|lead| lead.ends_with('\r')) { at - 1 } else { at };
            lead.get(start..).unwrap_or("\n").to_owned()
        }
        None => " ".into(),
    };
    let at = range(last.span).end;
    Ok(Change { region: at..at, replacement: format!(",{separator}{name}{sign}{value}") })
}

/// Removes a member and one of the commas around it.
pub(super) fn remove(text: &str, entry: &Node<'_>, name: &str) -> Result<Change, Refused> {
    let members: Vec<_> = entry.entries().collect();
    let at = members.iter().position(|(key, _)| key.name == name).ok_or(Refused::Missing)?;
    let (key, node) = members.get(at).ok_or(Refused::Missing)?;
    let (start, end) = (range(key.span).start, range(node.span).end);
    let region =
        match (at.checked_sub(1).and_then(|before| members.get(before)), members.get(at + 1)) {
            (_, Some((next, _))) => start..range(next.span).start,
            (Some((_, before)), None) => range(before.span).end..end,
            (None, None) => {
                let rest = text.get(end..range(entry.span).end).unwrap_or_default();
                if rest.contains(',') {
                    return Err(Refused::Unsupported("the entry would be empty"));
                }
                start..end
            }
        };
    Ok(Change { region, replacement: String::new() })
}
