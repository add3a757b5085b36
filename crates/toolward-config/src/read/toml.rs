//! TOML parser, based on the `toml` crate, which reports spans and recovers from errors.

use std::borrow::Cow;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

use crate::diagnostics::fault::Fault;
use crate::diagnostics::text::Span;
use crate::read::node::{Key, Map, Node, Value};

/// Reads a TOML document as one mapping.
pub fn parse(text: &str) -> Result<Node<'_>, Vec<Fault>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(errors.into_iter().map(|error| fault(text, &error)).collect());
    }
    Ok(Node::new(Span::new(0, text.len()), Value::Map(mapping(text, table.into_inner()))))
}

fn fault(text: &str, error: &::toml::de::Error) -> Fault {
    let span = error.span().unwrap_or(text.len()..text.len());
    let help = (error.message().contains("string")).then_some("strings must be in double quotes");
    let fault =
        Fault::new(Span::new(span.start, span.end), format!("invalid TOML: {}", error.message()));
    match help {
        Some(help) => fault.help(help),
        None => fault,
    }
}

fn mapping<'t>(text: &'t str, table: DeTable<'t>) -> Map<'t> {
    let mut entries: Vec<_> = table
        .into_iter()
        .map(|(key, value)| {
            let span = key.span();
            let key = Key { span: Span::new(span.start, span.end), name: key.into_inner() };
            (key, node(text, value))
        })
        .collect();
    // The parser sorts tables by name; this restores file order.
    entries.sort_by_key(|(key, _)| key.span.start);
    Map::new(entries, &mut Vec::new())
}

fn node<'t>(text: &'t str, value: Spanned<DeValue<'t>>) -> Node<'t> {
    let range = value.span();
    let span = Span::new(range.start, range.end);
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Str(text),
        DeValue::Boolean(value) => Value::Bool(value),
        DeValue::Integer(written) => {
            match i64::from_str_radix(&written.as_str().replace('_', ""), written.radix()) {
                Ok(value) => Value::Int(value),
                Err(_) => Value::Float(f64::INFINITY),
            }
        }
        DeValue::Float(written) => Value::Float(written.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Datetime(_) => Value::Date(Cow::Borrowed(text.get(range).unwrap_or_default())),
        DeValue::Array(items) => {
            Value::Seq(items.into_iter().map(|item| node(text, item)).collect())
        }
        DeValue::Table(table) => Value::Map(mapping(text, table)),
    };
    Node::new(span, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_in_its_own_order_with_places() {
        let text = "z = 1\n[chat]\ntools = [\"a\", 'b']\nday = 1979-05-27\n";
        let node = parse(text).unwrap();
        let names: Vec<_> = node.entries().map(|(key, _)| key.name.as_ref()).collect();
        assert_eq!(names, ["z", "chat"]);
        let tools = node.get("chat").and_then(|chat| chat.get("tools")).unwrap();
        let span = tools.items()[1].span;
        assert_eq!(&text[span.start as usize..span.end as usize], "'b'");
        assert_eq!(tools.items()[1].as_str(), Some("b"));
    }

    #[test]
    fn duplicate_keys_and_deep_nesting_are_refused() {
        assert!(parse("a = 1\na = 2\n").is_err());
        assert!(parse("[a]\n[a]\n").is_err());
        assert!(parse(&format!("a = {}", "[".repeat(100_000))).is_err());
    }
}
