//! HTTP headers that mirror parts of the body, introduced in 2026-07-28.
//!
//! They let proxies route without parsing the body. The body is authoritative: headers of an
//! incoming request must match it, and headers of an outgoing request are generated from it.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::arguments::Arguments;
use crate::http::is_value;
use crate::message::Message;
use crate::method::{MethodRow, NameAt, PolicySubject};
use crate::names::meta;
use crate::raw::{Raw, Shape};

pub use crate::names::header::{METHOD, NAME, PARAM_PREFIX, PROTOCOL_VERSION};

/// A header that does not match the body. The JSON-RPC error code is -32020.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    Missing {
        header: String,
    },
    /// Not printable ASCII, or declared as base64 but not valid base64.
    Unreadable {
        header: String,
    },
    Differs {
        header: String,
    },
    /// The body has no corresponding value.
    Unexpected {
        header: String,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { header } => write!(f, "the header `{header}` is missing"),
            Self::Unreadable { header } => write!(f, "the header `{header}` cannot be decoded"),
            Self::Differs { header } => {
                write!(f, "the header `{header}` does not match the body")
            }
            Self::Unexpected { header } => {
                write!(f, "the header `{header}` has no corresponding value in the body")
            }
        }
    }
}

impl std::error::Error for Mismatch {}

/// The three standard headers of an incoming request.
#[derive(Debug, Clone, Copy, Default)]
pub struct StandardHeaders<'a> {
    pub protocol_version: Option<&'a str>,
    pub method: Option<&'a str>,
    pub name: Option<&'a str>,
}

impl StandardHeaders<'_> {
    /// Compares the headers of a modern request with its body.
    pub fn check(&self, message: &Message, row: &MethodRow) -> Result<(), Mismatch> {
        let version = message.meta(meta::PROTOCOL_VERSION);
        check_mirrored(PROTOCOL_VERSION, self.protocol_version, version, false)?;
        check_mirrored(METHOD, self.method, message.raw_method(), false)?;
        // Many clients predate the tasks extension, so its header is optional.
        if self.name.is_none() && row.subject == PolicySubject::Task {
            return Ok(());
        }
        check_mirrored(NAME, self.name, mirrored(message, row), true)
    }
}

/// Generates the three standard headers of an outgoing modern request.
pub fn standard(message: &Message, row: &MethodRow) -> Vec<(&'static str, String)> {
    let mut headers = Vec::with_capacity(3);
    if let Some(version) = message.meta(meta::PROTOCOL_VERSION).and_then(Raw::as_str) {
        headers.push((PROTOCOL_VERSION, encode(&version).into_owned()));
    }
    headers.push((METHOD, row.name.to_string()));
    if let Some(name) = mirrored(message, row).and_then(Raw::as_str) {
        headers.push((NAME, encode(&name).into_owned()));
    }
    headers
}

/// The value that `Mcp-Name` mirrors: the name of a tool, prompt, resource or task.
fn mirrored<'m>(message: &'m Message, row: &MethodRow) -> Option<Raw<'m>> {
    use PolicySubject::{Prompt, Resource, Task, Tool};
    match (row.subject, row.name_at) {
        (Tool | Prompt | Resource | Task, NameAt::Param(param)) => message.param(param),
        _ => None,
    }
}

/// Checks that a header matches a string in the body.
fn check_mirrored(
    header: &str,
    sent: Option<&str>,
    body: Option<Raw<'_>>,
    encoded: bool,
) -> Result<(), Mismatch> {
    // Fast path: the two are nearly always the same bytes.
    if let (Some(sent), Some(body)) = (sent, body)
        && body.is_unescaped_str(sent)
        && is_value(sent.as_bytes())
        && !(encoded && sentinel(sent).is_some())
    {
        return Ok(());
    }
    check_equal(header, sent, body.and_then(Raw::as_str).as_deref(), encoded)
}

fn check_equal(
    header: &str,
    sent: Option<&str>,
    body: Option<&str>,
    encoded: bool,
) -> Result<(), Mismatch> {
    let header = || header.to_string();
    match (sent, body) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(Mismatch::Missing { header: header() }),
        (Some(_), None) => Err(Mismatch::Unexpected { header: header() }),
        (Some(sent), Some(body)) => {
            let sent =
                if encoded { decode(sent) } else { is_value(sent.as_bytes()).then(|| sent.into()) };
            match sent {
                None => Err(Mismatch::Unreadable { header: header() }),
                Some(sent) if sent == body => Ok(()),
                Some(_) => Err(Mismatch::Differs { header: header() }),
            }
        }
    }
}

const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// Encodes a header value: unchanged if it is safe in a header, in base64 otherwise.
///
/// ```
/// use toolward_wire::headers::{decode, encode};
///
/// assert_eq!(encode("us-west1"), "us-west1");
/// assert_eq!(encode(" padded "), "=?base64?IHBhZGRlZCA=?=");
/// assert_eq!(decode("=?base64?IHBhZGRlZCA=?=").unwrap(), " padded ");
/// ```
pub fn encode(value: &str) -> Cow<'_, str> {
    if is_value(value.as_bytes()) && sentinel(value).is_none() {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{OPEN}{}{CLOSE}", STANDARD.encode(value)))
}

/// Decodes a header value. Returns `None` if it is invalid.
pub fn decode(value: &str) -> Option<Cow<'_, str>> {
    match sentinel(value) {
        Some(inner) => {
            let bytes = STANDARD.decode(inner).ok()?;
            String::from_utf8(bytes).ok().map(Cow::Owned)
        }
        None => is_value(value.as_bytes()).then_some(Cow::Borrowed(value)),
    }
}

fn sentinel(value: &str) -> Option<&str> {
    value.strip_prefix(OPEN)?.strip_suffix(CLOSE)
}

/// The `Mcp-Param-*` headers of a tool, from the `x-mcp-header` annotations in its input schema.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParamHeaders {
    headers: Vec<ParamHeader>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ParamHeader {
    /// The full header name, in lower case.
    name: String,
    path: Vec<String>,
    integer: bool,
}

/// An invalid `x-mcp-header` annotation. The tool is dropped if its server uses HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamHeaderError {
    /// Not a string that can be part of a header name.
    BadName { path: String },
    /// Two annotations have the same name.
    Repeated { name: String },
    /// The property is not a string, integer or boolean.
    BadType { path: String },
    /// The property is not reachable through `properties` alone.
    Unreachable,
}

impl fmt::Display for ParamHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName { path } => {
                write!(f, "`x-mcp-header` at `{path}` is not a valid header name")
            }
            Self::Repeated { name } => write!(f, "duplicate `x-mcp-header` value `{name}`"),
            Self::BadType { path } => {
                write!(f, "`x-mcp-header` at `{path}` is not on a string, integer or boolean")
            }
            Self::Unreachable => {
                write!(f, "`x-mcp-header` on a schema not reachable through `properties` alone")
            }
        }
    }
}

impl std::error::Error for ParamHeaderError {}

const ANNOTATION: &str = "x-mcp-header";

impl ParamHeaders {
    /// Reads the annotations of an input schema.
    ///
    /// ```
    /// use serde_json::json;
    /// use toolward_wire::headers::ParamHeaders;
    /// use toolward_wire::{Arguments, Raw};
    ///
    /// let schema = json!({"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    /// let headers = ParamHeaders::read(&schema).unwrap();
    /// let arguments = Raw::scan(br#"{"region": "us-west1"}"#, 1024).unwrap();
    /// assert_eq!(
    ///     headers.make(Some(Arguments::new(arguments))),
    ///     [("mcp-param-region".to_string(), "us-west1".to_string())]
    /// );
    /// ```
    pub fn read(schema: &Value) -> Result<ParamHeaders, ParamHeaderError> {
        let mut found = ParamHeaders::default();
        if annotation(schema).is_some() {
            return Err(ParamHeaderError::Unreachable);
        }
        found.object(schema, &mut Vec::new())?;
        Ok(found)
    }

    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// Reads a schema that is reachable through `properties` alone.
    fn object(&mut self, schema: &Value, path: &mut Vec<String>) -> Result<(), ParamHeaderError> {
        let Value::Object(keywords) = schema else {
            return Ok(());
        };
        for (keyword, value) in keywords {
            match (keyword.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    for (name, property) in properties {
                        path.push(name.clone());
                        self.property(property, path)?;
                        path.pop();
                    }
                }
                _ if subschemas(keyword, value).any(has_annotation) => {
                    return Err(ParamHeaderError::Unreachable);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn property(
        &mut self,
        property: &Value,
        path: &mut Vec<String>,
    ) -> Result<(), ParamHeaderError> {
        if let Some(annotation) = annotation(property) {
            let at = || path.join(".");
            let token = annotation.as_str().filter(|name| is_token(name));
            let token = token.ok_or_else(|| ParamHeaderError::BadName { path: at() })?;
            let kind = property.get("type").and_then(Value::as_str);
            if !matches!(kind, Some("string" | "integer" | "boolean")) {
                return Err(ParamHeaderError::BadType { path: at() });
            }
            let name = format!("{PARAM_PREFIX}{}", token.to_ascii_lowercase());
            if self.headers.iter().any(|header| header.name == name) {
                return Err(ParamHeaderError::Repeated { name: token.to_string() });
            }
            let integer = kind == Some("integer");
            self.headers.push(ParamHeader { name, path: path.clone(), integer });
        }
        self.object(property, path)
    }

    /// Generates the headers of an outgoing call.
    pub fn make(&self, arguments: Option<Arguments<'_>>) -> Vec<(String, String)> {
        self.headers
            .iter()
            .filter_map(|header| {
                let text = header.body(arguments)?;
                Some((header.name.clone(), encode(&text).into_owned()))
            })
            .collect()
    }

    /// Compares the headers of an incoming call with its arguments. `sent` returns the value of a
    /// header by its lower-case name.
    pub fn check<'h>(
        &self,
        arguments: Option<Arguments<'_>>,
        sent: impl Fn(&str) -> Option<&'h str>,
    ) -> Result<(), Mismatch> {
        for header in &self.headers {
            let (sent, body) = (sent(&header.name), header.body(arguments));
            let result = check_equal(&header.name, sent, body.as_deref(), true);
            if let Err(Mismatch::Differs { .. }) = result
                && header.integer
                && let (Some(sent), Some(body)) = (sent.and_then(decode), body)
                && integer_part(&sent).is_some_and(|sent| Some(sent) == integer_part(&body))
            {
                continue;
            }
            result?;
        }
        Ok(())
    }
}

impl ParamHeader {
    /// The value in the body as text. `None` if it is missing, or of a type that headers cannot
    /// carry.
    fn body<'b>(&self, arguments: Option<Arguments<'b>>) -> Option<Cow<'b, str>> {
        let value = arguments?.at(self.path.iter().map(String::as_str))?;
        match value.shape() {
            Shape::String => value.as_str(),
            Shape::Number => std::str::from_utf8(value.bytes()).ok().map(Cow::Borrowed),
            Shape::Bool => Some(Cow::Borrowed(if value.as_bool()? { "true" } else { "false" })),
            Shape::Null | Shape::Array | Shape::Object => None,
        }
    }
}

/// The integer part of a number without a fraction, such as `42` or `42.0`.
fn integer_part(text: &str) -> Option<&str> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_whole = !fraction.is_empty() && fraction.bytes().all(|byte| byte == b'0');
    (is_number && is_whole).then_some(whole)
}

/// The annotation of a schema.
///
/// A property that happens to be called `x-mcp-header` is not one, because it is below
/// `properties`.
fn annotation(schema: &Value) -> Option<&Value> {
    schema.as_object().and_then(|schema| schema.get(ANNOTATION))
}

/// The subschemas directly below a keyword.
fn subschemas<'v>(keyword: &str, value: &'v Value) -> Box<dyn Iterator<Item = &'v Value> + 'v> {
    match keyword {
        // Data, not schemas.
        "const" | "enum" | "default" | "examples" | "required" => Box::new(std::iter::empty()),
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
            Box::new(value.as_object().into_iter().flat_map(|map| map.values()))
        }
        _ => match value {
            Value::Array(schemas) => Box::new(schemas.iter()),
            Value::Object(_) => Box::new(std::iter::once(value)),
            _ => Box::new(std::iter::empty()),
        },
    }
}

/// Whether a schema has an annotation at any depth.
fn has_annotation(schema: &Value) -> bool {
    let Value::Object(keywords) = schema else {
        return false;
    };
    keywords.contains_key(ANNOTATION)
        || keywords.iter().any(|(keyword, value)| subschemas(keyword, value).any(has_annotation))
}

/// Whether `name` is a token (RFC 9110), the syntax of a header name.
fn is_token(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(allowed)
}
