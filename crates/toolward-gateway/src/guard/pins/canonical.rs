//! Canonical JSON, for digests that do not depend on how a server formats its definitions.
//!
//! Keys are sorted, strings are written with one set of escapes, and numbers that have the same decimal value are
//! written alike: `1`, `1.0` and `10e-1` are equal, while `9007199254740992` and `9007199254740993` are not, as they
//! would be in RFC 8785. Nothing is normalized in strings: two spellings of a letter are two strings.

use std::fmt;

use serde_json::{Map, Number, Value, json};
use sha2::{Digest as _, Sha256};
use toolward_policy::number::Precision;
use toolward_policy::text;
use toolward_wire::{Raw, Shape, string};

/// The SHA-256 of a value in canonical form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of a JSON value, without the values at these pointers.
    pub fn of(value: Raw<'_>, ignored: &[Pointer]) -> Digest {
        let mut canonical = Vec::with_capacity(value.bytes().len());
        write(value, &ignored.iter().map(|one| &one.0[..]).collect::<Vec<_>>(), &mut canonical);
        Digest(Sha256::digest(canonical).into())
    }

    /// The digest of a plain text.
    pub fn of_text(text: &str) -> Digest {
        Digest(Sha256::digest(text).into())
    }

    /// The digest of several digests with names, in the order of the names.
    pub fn of_all<'a>(parts: impl IntoIterator<Item = (&'a str, Digest)>) -> Digest {
        let mut parts: Vec<_> = parts.into_iter().collect();
        parts.sort_unstable();
        let mut hash = Sha256::new();
        for (name, digest) in parts {
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name);
            hash.update(digest.0);
        }
        Digest(hash.finalize().into())
    }

    /// Parses `sha256:` and 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Digest> {
        let hex = text.strip_prefix("sha256:")?.as_bytes();
        let mut bytes = [0; 32];
        let (pairs, rest) = hex.as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
        }
        Some(Digest(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A JSON Pointer (RFC 6901) to a part of a definition, as its decoded segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer(Box<[Box<str>]>);

impl Pointer {
    /// `None` if the text is not a JSON Pointer, or points to the whole definition.
    pub fn parse(text: &str) -> Option<Pointer> {
        let segments = text.strip_prefix('/')?.split('/');
        let decoded = segments.map(|segment| {
            let valid = segment.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
            valid.then(|| segment.replace("~1", "/").replace("~0", "~").into())
        });
        decoded.collect::<Option<Box<[Box<str>]>>>().map(Pointer)
    }

    /// Removes what it points to.
    pub(super) fn remove_from(&self, value: &mut Value) {
        let Some((last, way)) = self.0.split_last() else { return };
        let index = |key: &str| key.parse::<usize>().ok();
        let parent = way.iter().try_fold(value, |value, key| match value {
            Value::Object(members) => members.get_mut(&**key),
            Value::Array(elements) => elements.get_mut(index(key)?),
            _ => None,
        });
        match parent {
            Some(Value::Object(members)) => drop(members.remove(&**last)),
            Some(Value::Array(elements)) => {
                // The others keep their indices.
                if let Some(element) = index(last).and_then(|at| elements.get_mut(at)) {
                    *element = Value::Null;
                }
            }
            _ => {}
        }
    }
}

/// Appends a key to the text of a pointer.
pub(super) fn pointer_to(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn write(value: Raw<'_>, ignored: &[&[Box<str>]], out: &mut Vec<u8>) {
    // The pointers that lead into a member; `None` if one points to the member itself.
    let inside = |key: &str| -> Option<Vec<&[Box<str>]>> {
        let mut rest = Vec::new();
        for pointer in ignored {
            match pointer.split_first() {
                Some((first, [])) if **first == *key => return None,
                Some((first, more)) if **first == *key => rest.push(more),
                _ => {}
            }
        }
        Some(rest)
    };
    match value.shape() {
        Shape::Object => {
            let mut members: Vec<_> =
                value.members().map(|member| (member.name(), member.value)).collect();
            members.sort_unstable_by(|one, other| one.0.cmp(&other.0));
            out.push(b'{');
            for (key, value) in members {
                let Some(inside) = inside(&key) else { continue };
                if out.last() != Some(&b'{') {
                    out.push(b',');
                }
                string::write(&key, out);
                out.push(b':');
                write(value, &inside, out);
            }
            out.push(b'}');
        }
        Shape::Array => {
            out.push(b'[');
            for (at, (element, _)) in value.elements().enumerate() {
                let Some(inside) = inside(&at.to_string()) else { continue };
                if out.last() != Some(&b'[') {
                    out.push(b',');
                }
                write(element, &inside, out);
            }
            out.push(b']');
        }
        Shape::String => string::write(&value.as_str().unwrap_or_default(), out),
        Shape::Number => out.extend_from_slice(decimal(value.bytes()).as_bytes()),
        Shape::Null | Shape::Bool => out.extend_from_slice(value.bytes()),
    }
}

/// The canonical form of a number: its digits without zeros at either end, and an exponent. A number whose exponent
/// does not fit is kept as written.
fn decimal(written: &[u8]) -> String {
    let written = String::from_utf8_lossy(written);
    let normal = || {
        let (negative, text) = match written.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, &*written),
        };
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        let short = digits.trim_end_matches('0');
        if short.is_empty() {
            return Some("0".to_string());
        }
        let exponent: i64 = exponent.parse().ok()?;
        let zeros = i64::try_from(digits.len() - short.len()).ok()?;
        let scale = i64::try_from(fraction.len()).ok()?;
        let exponent = exponent.checked_sub(scale)?.checked_add(zeros)?;
        let sign = if negative { "-" } else { "" };
        Some(format!("{sign}{short}e{exponent}"))
    };
    normal().unwrap_or_else(|| written.clone().into_owned())
}

/// A JSON value for comparisons. Numbers of equal value are equal, and a number that a double cannot hold exactly equals
/// only itself.
pub(super) fn comparable(value: Raw<'_>) -> Value {
    match value.shape() {
        Shape::Object => {
            let members = value.members();
            let members = members.map(|one| (one.name().into_owned(), comparable(one.value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        Shape::Array => value.elements().map(|(element, _)| comparable(element)).collect(),
        Shape::Number => number(value.bytes()),
        Shape::Null | Shape::Bool | Shape::String => value.to_json(),
    }
}

fn number(written: &[u8]) -> Value {
    let text = String::from_utf8_lossy(written);
    let exact = match Precision::of(&text) {
        Precision::Integer => text.parse::<i64>().ok().map(Number::from),
        Precision::Double => text.parse::<f64>().ok().and_then(|number| {
            // Doubles below 2^53 that are whole are the integer.
            let whole = number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0;
            if whole { Some(Number::from(number as i64)) } else { Number::from_f64(number) }
        }),
        Precision::WideInteger | Precision::Inexact => None,
    };
    exact.map_or_else(|| json!({ "number": decimal(written) }), Value::Number)
}

/// Writes a JSON value for people to read, one member per line, in its own order. Strings and numbers are kept as
/// written.
pub(super) fn pretty(value: Raw<'_>, indent: usize, out: &mut String) {
    let line = |out: &mut String, indent: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', indent));
    };
    match value.shape() {
        Shape::Object if value.members().next().is_some() => {
            out.push('{');
            for (at, member) in value.members().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                line(out, indent + 1);
                out.push_str(&quoted(&member.name()));
                out.push_str(": ");
                pretty(member.value, indent + 1, out);
            }
            line(out, indent);
            out.push('}');
        }
        Shape::Array if value.elements().next().is_some() => {
            out.push('[');
            for (at, (element, _)) in value.elements().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                line(out, indent + 1);
                pretty(element, indent + 1, out);
            }
            line(out, indent);
            out.push(']');
        }
        Shape::Object => out.push_str("{}"),
        Shape::Array => out.push_str("[]"),
        Shape::String => out.push_str(&quoted(&value.as_str().unwrap_or_default())),
        _ => out.push_str(&String::from_utf8_lossy(value.bytes())),
    }
}

/// A JSON string in which characters that a reviewer cannot see are escaped.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if text::is_invisible(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    quoted.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str) -> Digest {
        Digest::of(Raw::scan(text.as_bytes(), usize::MAX).unwrap(), &[])
    }

    #[test]
    fn formatting_does_not_change_a_digest() {
        let one = digest(r#"{"a": 1, "b": ["x", {"d": true, "c": null}]}"#);
        assert_eq!(digest(r#"{"b":["\u0078",{"c":null,"d":true}],"a":1.0}"#), one);
        for other in [r#"{"a": 1}"#, r#"{"a": 2, "b": ["x", {"d": true, "c": null}]}"#] {
            assert_ne!(digest(other), one);
        }
        assert_ne!(digest(r#"["a","b"]"#), digest(r#"["b","a"]"#));
    }

    #[test]
    fn numbers_are_equal_if_their_decimal_values_are() {
        for (one, other) in
            [("1", "1.0"), ("10e-1", "1"), ("-0", "0"), ("100", "1E2"), ("0.50", "5e-1")]
        {
            assert_eq!(digest(one), digest(other), "{one} {other}");
        }
        for (one, other) in [
            ("9007199254740992", "9007199254740993"),
            ("1", "-1"),
            ("1", "10"),
            ("0.1", "0.10000000000000000001"),
        ] {
            assert_ne!(digest(one), digest(other), "{one} {other}");
            let value = |text: &str| comparable(Raw::scan(text.as_bytes(), usize::MAX).unwrap());
            assert_ne!(value(one), value(other), "{one} {other}");
        }
    }

    #[test]
    fn ignored_parts_do_not_change_a_digest() {
        let of = |text: &str| {
            let ignored = ["/a/enum", "/b~1c", "/l/0"].map(|one| Pointer::parse(one).unwrap());
            Digest::of(Raw::scan(text.as_bytes(), usize::MAX).unwrap(), &ignored)
        };
        let one = of(r#"{"a": {"enum": [1], "x": 1}, "b/c": 1, "l": [1, 2]}"#);
        assert_eq!(of(r#"{"a": {"enum": [2], "x": 1}, "l": [3, 2]}"#), one);
        assert_ne!(of(r#"{"a": {"enum": [2], "x": 2}, "l": [3, 2]}"#), one);
        for not in ["", "a", "/a~2", "/a~"] {
            assert_eq!(Pointer::parse(not), None, "{not}");
        }
    }

    #[test]
    fn a_digest_can_be_written_and_read() {
        let one = digest("1");
        assert_eq!(Digest::parse(&one.to_string()), Some(one));
        for not in ["", "sha256:", "sha256:00", &one.to_string()[7..], "sha256:+0"] {
            assert_eq!(Digest::parse(not), None);
        }
    }

    #[test]
    fn readable_text_has_the_same_digest_and_shows_invisible_characters() {
        let text = "{\"a\":\"x\u{200b}\u{e0041}\\u0007\",\"b\":[],\"c\":[1e2,{\"d\":{}}]}";
        let mut shown = String::new();
        pretty(Raw::scan(text.as_bytes(), usize::MAX).unwrap(), 0, &mut shown);
        assert_eq!(digest(&shown), digest(text));
        assert!(shown.contains(r#""x\u200b\udb40\udc41\u0007""#), "{shown}");
        assert!(shown.contains("1e2"), "{shown}");
    }
}
