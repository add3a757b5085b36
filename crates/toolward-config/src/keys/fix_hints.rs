//! Help for wrong values: the expected syntax, and what to write instead.

use crate::diagnostics::sanitize::quoted;
use crate::keys::shape::{MAX_MESSAGE, Shape};
use crate::keys::value_syntax::{self, SyntaxError};
use crate::read::node::{Node, Value};

/// Checks a string against a shape; `None` if the shape does not accept strings.
pub(crate) fn form(shape: &Shape, written: &str) -> Option<Result<(), SyntaxError>> {
    let nonzero = |text: &str| {
        value_syntax::duration(text).and_then(|duration| match duration.is_zero() {
            false => Ok(()),
            true => Err(SyntaxError::new(
                "the duration must be more than zero",
                "leave the key out for the default",
            )),
        })
    };
    Some(match shape {
        Shape::Name(what) if written.is_empty() => {
            Err(SyntaxError::new(format!("{what} must not be empty"), "set a value, or remove it"))
        }
        Shape::Name(_) => Ok(()),
        Shape::Message => match written.chars().count() {
            0 => Err(SyntaxError::new("a message must not be empty", "set a value, or remove it")),
            length if length > MAX_MESSAGE => Err(SyntaxError::new(
                format!(
                    "a message has at most {MAX_MESSAGE} characters, and this one has {length}"
                ),
                "every refusal includes it: link to a longer text",
            )),
            _ => Ok(()),
        },
        Shape::Path if written.is_empty() => {
            Err(SyntaxError::new("a path must not be empty", "set a value, or remove it"))
        }
        Shape::Path => Ok(()),
        Shape::Scalar => Ok(()),
        Shape::Duration => nonzero(written),
        Shape::Leeway => value_syntax::duration(written).map(drop),
        Shape::DurationOr(word) if written == *word => Ok(()),
        Shape::DurationOr(word) => nonzero(written).map_err(|error| SyntaxError {
            help: error.help.map(|help| format!("{help}, or `{word}`")),
            ..error
        }),
        Shape::Size => value_syntax::size(written).map(drop),
        Shape::Rate => value_syntax::rate(written).map(drop),
        Shape::Listen => value_syntax::listen(written).map(drop),
        Shape::AddressOrOff if written == "off" => Ok(()),
        Shape::AddressOrSwitch if matches!(written, "on" | "off") => Ok(()),
        Shape::AddressOrSwitch => value_syntax::address(written).map(drop),
        Shape::Ratio => value_syntax::ratio(written).map(drop),
        Shape::AddressOrOff => value_syntax::address(written).map(drop),
        Shape::IpRange => value_syntax::ip_range(written).map(drop),
        Shape::Url => value_syntax::url(written),
        Shape::Origin => value_syntax::origin(written),
        Shape::Secret => value_syntax::reference_parts(written).map(drop),
        // A URL with a reference is validated after the reference is resolved.
        Shape::SecretUrl => {
            value_syntax::reference_parts(written).and_then(|parts| match parts.as_slice() {
                [] | [value_syntax::ReferencePart::Literal(_)] => value_syntax::url(written),
                _ => Ok(()),
            })
        }
        Shape::Token => value_syntax::token(written).map(drop),
        Shape::Certificate => value_syntax::certificate(written).map(drop),
        _ => return None,
    })
}

/// Suggests a fix for a value of the wrong kind, under a key or as an entry of its list.
pub(crate) fn remedy(
    shape: &Shape,
    node: &Node<'_>,
    written: &str,
    key: &str,
    entry: bool,
    hidden: bool,
) -> Option<String> {
    let again = |shape: &Shape| remedy(shape, node, written, key, entry, hidden);
    // Secrets are not echoed.
    let shown = |written: &str| if hidden { "…".to_owned() } else { written.to_owned() };
    Some(match (shape, &node.value) {
        (_, Value::Null) if entry => "write it after the `-`, or remove the line".into(),
        (Shape::List(_), Value::Null) if key == "allowed_tools" => {
            "write `[]` to allow nothing, or leave the key out".into()
        }
        (Shape::List(_), Value::Null) => {
            "write `[]` for an empty list, or leave the key out".into()
        }
        (Shape::Keys(_) | Shape::Table { .. }, Value::Null) => {
            "write `{}` for an empty mapping, or leave the key out".into()
        }
        (_, Value::Null) => "set a value, or leave the key out".into(),
        (Shape::Either(list @ Shape::List(_), _), Value::Str(_)) => return again(list),
        (Shape::List(_), Value::Str(_)) if written.starts_with('-') => {
            "write a space after each `-`".into()
        }
        (Shape::List(_), Value::Str(word)) => {
            format!("write a list: {}", quoted(&format!("[\"{}\"]", shown(word))))
        }
        (Shape::List(_), Value::Map(map)) => {
            let names: Vec<_> = map.iter().take(3).map(|(key, _)| key.name.as_ref()).collect();
            format!("write a list: {}", quoted(&format!("[{}]", shown(&names.join(", ")))))
        }
        (Shape::Table { key, .. }, Value::Seq(_)) => {
            format!("each {key} is a key with a value of its own: `{}: …`", key.to_uppercase())
        }
        (Shape::Keys(groups), Value::Str(word)) => {
            let required = groups.iter().copied().flatten().find(|key| key.required)?;
            format!(
                "write a mapping: {}",
                quoted(&format!("{{ {}: {} }}", required.name, shown(word)))
            )
        }
        (Shape::Bool, Value::Str(word)) => match word.to_ascii_lowercase().as_str() {
            "yes" | "on" | "1" => "write `true`".into(),
            "no" | "off" | "0" => "write `false`".into(),
            "true" | "false" => "leave the quotes out".into(),
            _ => "write `true` or `false`".into(),
        },
        (Shape::Bool, Value::Int(0 | 1)) => "write `true` or `false`".into(),
        (Shape::AddressOrOff, Value::Bool(false)) => "write `off` to switch it off".into(),
        (Shape::Ratio, Value::Int(number)) => format!("write a percentage: `{number}%`"),
        (Shape::Integer { .. }, Value::Str(word)) if word.parse::<i64>().is_ok() => {
            "leave the quotes out".into()
        }
        (Shape::Duration | Shape::Leeway | Shape::DurationOr(_), Value::Int(number)) => {
            format!("add a unit: `{number}s` or `{number}ms`")
        }
        (Shape::Listen | Shape::AddressOrOff | Shape::AddressOrSwitch, Value::Int(port)) => {
            format!("write the address too: `127.0.0.1:{port}`")
        }
        (_, Value::Seq(_)) if key == "command" => "put the program's arguments in `args`".into(),
        (Shape::Either(Shape::Text(_), Shape::Keys(_)), Value::Seq(_)) => {
            "a name that begins with `[` needs quotes".into()
        }
        (_, Value::Seq(_) | Value::Map(_) | Value::Str(_) | Value::Date(_)) => return None,
        (Shape::OneOrList(item) | Shape::Either(item, _), _) => return again(item),
        (
            Shape::Text(_)
            | Shape::Name(_)
            | Shape::Message
            | Shape::Secret
            | Shape::Path
            | Shape::Word(_),
            _,
        ) => {
            format!("put it in quotes: {}", quoted(&format!("\"{}\"", shown(written))))
        }
        _ => return None,
    })
}
