//! Borrowed JSON values in their original bytes.
//!
//! A [`Raw`] is only created from bytes that the scanner accepted. Traversing it needs no checks
//! and cannot disagree with the scan.

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

use crate::member_index::Member;
use crate::scan::{self, ScanError};
use crate::span::Span;
use crate::string;
use crate::swar;

/// A scanned JSON value, without surrounding whitespace.
///
/// ```
/// use toolward_wire::Raw;
///
/// let raw = Raw::scan(br#" {"path": "\u002ftmp", "depth": 2} "#, 1024).unwrap();
/// let path = raw.member("path").unwrap();
/// assert_eq!(path.bytes(), br#""\u002ftmp""#);
/// assert_eq!(path.as_str().unwrap(), "/tmp");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raw<'b> {
    bytes: &'b [u8],
}

/// The type of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

/// A member of an object.
#[derive(Debug, Clone, Copy)]
pub struct RawMember<'b> {
    /// The key as received, without its quotes.
    key: &'b [u8],
    /// Whether the key contains an escape sequence.
    escaped: bool,
    pub value: Raw<'b>,
    /// The span of the key, including its quotes, in the bytes of the object.
    pub key_span: Span,
    /// The span of the value in the bytes of the object.
    pub value_span: Span,
}

impl<'b> Raw<'b> {
    /// Scans any JSON value, as strictly as a request.
    pub fn scan(bytes: &'b [u8], limit: usize) -> Result<Raw<'b>, ScanError> {
        Ok(Raw { bytes: scan::check(bytes, limit)?.of(bytes) })
    }

    /// INVARIANT: `bytes` is a single value that the scanner accepted.
    pub(crate) fn scanned(bytes: &'b [u8]) -> Raw<'b> {
        Raw { bytes }
    }

    pub fn bytes(self) -> &'b [u8] {
        self.bytes
    }

    pub fn shape(self) -> Shape {
        match self.bytes.first() {
            Some(b'{') => Shape::Object,
            Some(b'[') => Shape::Array,
            Some(b'"') => Shape::String,
            Some(b't' | b'f') => Shape::Bool,
            Some(b'-' | b'0'..=b'9') => Shape::Number,
            _ => Shape::Null,
        }
    }

    pub fn is_object(self) -> bool {
        self.shape() == Shape::Object
    }

    pub(crate) fn is_string(self) -> bool {
        self.shape() == Shape::String
    }

    /// Whether this is a number without a fraction or an exponent.
    pub fn is_integer(self) -> bool {
        self.shape() == Shape::Number && self.bytes.iter().skip(1).all(u8::is_ascii_digit)
    }

    /// The unescaped text of a string.
    ///
    /// An unpaired surrogate, which is tolerated in the payload of a response, becomes a
    /// replacement character.
    pub fn as_str(self) -> Option<Cow<'b, str>> {
        self.is_string().then(|| string::unescape(content(self.bytes)))
    }

    /// The unescaped text of a string, as bytes.
    pub(crate) fn string_bytes(self) -> Option<Cow<'b, [u8]>> {
        self.is_string().then(|| string::unescaped(content(self.bytes)))
    }

    /// Whether this is the string `text`, written without escape sequences.
    pub(crate) fn is_unescaped_str(self, text: &str) -> bool {
        self.is_string()
            && content(self.bytes) == text.as_bytes()
            && !swar::any(text.as_bytes(), swar::backslashes)
    }

    /// Whether this is the string `text`, with or without escape sequences.
    pub(crate) fn is_str(self, text: &str) -> bool {
        self.string_bytes().is_some_and(|bytes| *bytes == *text.as_bytes())
    }

    /// The value of an integer that fits in 64 bits.
    pub fn as_i64(self) -> Option<i64> {
        if !self.is_integer() {
            return None;
        }
        std::str::from_utf8(self.bytes).ok()?.parse().ok()
    }

    pub fn as_bool(self) -> Option<bool> {
        match self.bytes {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// The members of an object, in document order. Empty for any other type.
    pub fn members(self) -> Members<'b> {
        Members { bytes: self.bytes, at: if self.is_object() { 1 } else { self.bytes.len() } }
    }

    /// The elements of an array, in document order. Empty for any other type.
    pub fn elements(self) -> Elements<'b> {
        let is_array = self.shape() == Shape::Array;
        Elements { bytes: self.bytes, at: if is_array { 1 } else { self.bytes.len() } }
    }

    /// The value of the member `name` of an object.
    pub fn member(self, name: &str) -> Option<Raw<'b>> {
        self.members().find(|member| member.is(name)).map(|member| member.value)
    }

    /// An object with only the members that are kept.
    pub fn kept(self, is_kept: impl Fn(&RawMember<'b>) -> bool) -> Vec<u8> {
        let mut out = vec![b'{'];
        for member in self.members().filter(is_kept) {
            if out.len() > 1 {
                out.push(b',');
            }
            string::write(&member.name(), &mut out);
            out.push(b':');
            out.extend_from_slice(member.value.bytes());
        }
        out.push(b'}');
        out
    }

    /// Calls `visit` with every number in the value, as it was written.
    pub fn numbers(self, visit: &mut dyn FnMut(&str)) {
        match self.shape() {
            Shape::Number => visit(std::str::from_utf8(self.bytes).unwrap_or_default()),
            Shape::Array => self.elements().for_each(|(element, _)| element.numbers(visit)),
            Shape::Object => self.members().for_each(|member| member.value.numbers(visit)),
            Shape::Null | Shape::Bool | Shape::String => {}
        }
    }

    /// Converts the value to a `serde_json` tree.
    ///
    /// The payload of a response may be ambiguous: the last of two equal keys wins, and a number
    /// beyond the range of a double becomes null.
    pub fn to_json(self) -> Value {
        match self.shape() {
            Shape::Null => Value::Null,
            Shape::Bool => Value::Bool(self.bytes == b"true"),
            Shape::Number => number(self.bytes),
            Shape::String => Value::String(self.as_str().unwrap_or_default().into_owned()),
            Shape::Array => self.elements().map(|(element, _)| element.to_json()).collect(),
            Shape::Object => {
                let mut map = Map::new();
                for member in self.members() {
                    map.insert(member.name().into_owned(), member.value.to_json());
                }
                Value::Object(map)
            }
        }
    }
}

impl<'b> RawMember<'b> {
    /// Creates a member from the index of a message. The object starts at `start` in `body`.
    pub(crate) fn indexed(member: &Member, body: &'b [u8], start: u32) -> RawMember<'b> {
        RawMember {
            key: member.key_content(body),
            escaped: member.escaped,
            value: Raw { bytes: member.value.of(body) },
            key_span: member.key.before(start),
            value_span: member.value.before(start),
        }
    }

    /// The unescaped key.
    pub fn name(&self) -> Cow<'b, str> {
        match self.escaped {
            true => string::unescape(self.key),
            false => Cow::Borrowed(std::str::from_utf8(self.key).unwrap_or_default()),
        }
    }

    /// The key as received, if it contains no escape sequence.
    pub(crate) fn plain_name(&self) -> Option<&'b [u8]> {
        (!self.escaped).then_some(self.key)
    }

    pub fn is(&self, name: &str) -> bool {
        match self.escaped {
            true => string::unescape(self.key) == name,
            false => self.key == name.as_bytes(),
        }
    }
}

/// The bytes of a string without its quotes.
pub(crate) fn content(string: &[u8]) -> &[u8] {
    string.get(1..string.len().saturating_sub(1)).unwrap_or_default()
}

/// Converts a number. Integers that fit in 64 bits stay integers.
///
/// A number beyond the range of a double becomes null. The scanner tolerates one only in the
/// payload of a response.
fn number(bytes: &[u8]) -> Value {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let integer = !bytes.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
    if integer && text != "-0" {
        if let Ok(number) = text.parse::<u64>() {
            return Value::Number(number.into());
        }
        if let Ok(number) = text.parse::<i64>() {
            return Value::Number(number.into());
        }
    }
    text.parse().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
}

/// Iterator over the members of an object. See [`Raw::members`].
#[derive(Debug, Clone)]
pub struct Members<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Iterator for Members<'b> {
    type Item = RawMember<'b>;

    fn next(&mut self) -> Option<RawMember<'b>> {
        let start = next_item(self.bytes, self.at)?;
        let (key_end, escaped) = string::end(self.bytes, start);
        let mut value = skip_space(self.bytes, key_end);
        value = skip_space(self.bytes, value + 1);
        self.at = value_end(self.bytes, value);
        let (key_span, value_span) = (Span::new(start, key_end), Span::new(value, self.at));
        Some(RawMember {
            key: content(key_span.of(self.bytes)),
            escaped,
            value: Raw { bytes: value_span.of(self.bytes) },
            key_span,
            value_span,
        })
    }
}

/// Iterator over the elements of an array, each with its span in the bytes of the array. See
/// [`Raw::elements`].
#[derive(Debug, Clone)]
pub struct Elements<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Iterator for Elements<'b> {
    type Item = (Raw<'b>, Span);

    fn next(&mut self) -> Option<(Raw<'b>, Span)> {
        let start = next_item(self.bytes, self.at)?;
        self.at = value_end(self.bytes, start);
        let span = Span::new(start, self.at);
        Some((Raw { bytes: span.of(self.bytes) }, span))
    }
}

/// The start of the next member or element, after an optional comma.
fn next_item(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = skip_space(bytes, at);
    if bytes.get(at) == Some(&b',') {
        at = skip_space(bytes, at + 1);
    }
    match bytes.get(at) {
        None | Some(b'}' | b']') => None,
        Some(_) => Some(at),
    }
}

pub(crate) fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

/// The end of the value that starts at `at`. Brackets are balanced, because the bytes were scanned.
pub(crate) fn value_end(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at) {
        Some(b'"') => string::end(bytes, at).0,
        Some(b'{' | b'[') => {
            let mut depth = 0usize;
            let mut at = at;
            while let Some(byte) = bytes.get(at) {
                match byte {
                    b'"' => {
                        at = string::end(bytes, at).0;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth = depth.saturating_sub(1);
                        if depth == 0 {
                            return at + 1;
                        }
                    }
                    _ => {}
                }
                at += 1;
            }
            bytes.len()
        }
        _ => {
            let rest = bytes.get(at..).unwrap_or_default();
            let ends =
                |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
            at + rest.iter().position(ends).unwrap_or(rest.len())
        }
    }
}
