//! Appends items to lists. Everything that is there stays as it is written, comments included.

use serde_json::Value as Json;

use super::{Change, Refused, line_end, range, yaml_block};
use crate::read::node::{Node, Value};

/// The change that appends an item.
pub(super) fn append(text: &str, list: &Node<'_>, item: &Json) -> Result<Change, Refused> {
    let Value::Seq(items) = &list.value else {
        return Err(Refused::Unsupported("the entry is not a list"));
    };
    let start = range(list.span).start;
    match text.as_bytes().get(start) {
        Some(b'[') => Ok(append_flow(text, start, items, item)),
        _ => append_block(text, items, item),
    }
}

/// `[a, b]`, on one line or with one item per line.
fn append_flow(text: &str, start: usize, items: &[Node<'_>], item: &Json) -> Change {
    let Some((last, others)) = items.split_last() else {
        return Change { region: start + 1..start + 1, replacement: item.to_string() };
    };
    let before = others.last().map_or(start + 1, |one| range(one.span).end);
    let between = text.get(before..range(last.span).start).unwrap_or_default();
    // The space in front of the last item, on its own line.
    let space = match between.rfind('\n') {
        Some(at) => {
            let line = between.get(at..).unwrap_or_default();
            let blank = line.len() - line.trim_start().len();
            line.get(..blank).unwrap_or_default().to_string()
        }
        None => " ".into(),
    };
    let end = yaml_block::end(text, last);
    Change { region: end..end, replacement: format!(",{space}{item}") }
}

/// A YAML list with one `- item` per line.
fn append_block(text: &str, items: &[Node<'_>], item: &Json) -> Result<Change, Refused> {
    let unsupported =
        || Refused::Unsupported("the list is written in a form that cannot be edited");
    let last = items.last().ok_or_else(unsupported)?;
    let start = range(last.span).start;
    let line = text.get(..start).and_then(|head| head.rfind('\n')).map_or(0, |at| at + 1);
    let prefix = text.get(line..start).unwrap_or_default();
    let dash = prefix.find('-').ok_or_else(unsupported)?;
    let indent = prefix.get(..dash).filter(|indent| indent.trim().is_empty());
    let indent = indent.ok_or_else(unsupported)?;
    // A comment behind the last item stays there.
    let (from, newline) = (yaml_block::end(text, last), line_end(text));
    let rest = text.get(from..).unwrap_or_default();
    let end = from
        + rest.find('\n').map_or(rest.len(), |at| {
            rest.get(..at).map_or(at, |line| line.trim_end_matches('\r').len())
        });
    let replacement = format!("{newline}{indent}- {item}");
    Ok(Change { region: end..end, replacement })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::splice::{FileFormat, Refused, SourceText, Step};

    fn append(text: &str, format: FileFormat) -> Result<String, Refused> {
        let source = SourceText::decode(text.as_bytes(), format)?;
        let edited = source.append(&[Step::key("a")], "l", &json!("x.y"))?;
        Ok(String::from_utf8(edited.encode()).unwrap())
    }

    #[test]
    fn only_the_item_is_added() {
        for (before, after) in [
            ("a: {l: [b, c] }  # d\n", "a: {l: [b, c, \"x.y\"] }  # d\n"),
            ("a: {l: []}\n", "a: {l: [\"x.y\"]}\n"),
            ("a:\n  l: [b,\n      c]\nz: 1\n", "a:\n  l: [b,\n      c,\n      \"x.y\"]\nz: 1\n"),
            ("a:\n  l:\n  - b # c\n  z: 1\n", "a:\n  l:\n  - b # c\n  - \"x.y\"\n  z: 1\n"),
            ("a:\n  l:\n    - b", "a:\n  l:\n    - b\n    - \"x.y\""),
            (
                "a:\r\n  l:\r\n    - b\r\n# c\r\n",
                "a:\r\n  l:\r\n    - b\r\n    - \"x.y\"\r\n# c\r\n",
            ),
            (
                "a:\n  l:\n    - tool: b\n      when: 'c'   # d\n\n    # e\nz: 1\n",
                "a:\n  l:\n    - tool: b\n      when: 'c'   # d\n    - \"x.y\"\n\n    # e\nz: 1\n",
            ),
            (
                "a:\n  l:\n    - b\n    - { tool: c }\n",
                "a:\n  l:\n    - b\n    - { tool: c }\n    - \"x.y\"\n",
            ),
        ] {
            assert_eq!(append(before, FileFormat::Yaml).unwrap(), after);
        }
        let json = "{\"a\": {\"l\": [\n  \"b\" // c\n]}}";
        let after = "{\"a\": {\"l\": [\n  \"b\",\n  \"x.y\" // c\n]}}";
        assert_eq!(append(json, FileFormat::Jsonc).unwrap(), after);
    }

    #[test]
    fn other_values_are_not_edited() {
        for text in ["a: {l: b}\n", "a: {}\n", "a:\n  l:\n", "{}\n"] {
            assert!(append(text, FileFormat::Yaml).is_err(), "{text}");
        }
        assert!(append("[a]\nl = [\"b\"]\n", FileFormat::Toml).is_err());
    }
}
