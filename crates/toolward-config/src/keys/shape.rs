//! Shapes: the kinds of values that configuration keys accept.
//!
//! The configuration is data: [`keys`](crate::keys) is one table of all keys and their shapes. Validation, help
//! texts, JSON Schema and the reference page are all derived from it.

/// One key of a mapping.
#[derive(Debug, Clone, Copy)]
pub struct KeySpec {
    pub name: &'static str,
    pub shape: Shape,
    /// The default value, as it would be written.
    pub default: Option<&'static str>,
    pub doc: &'static str,
    pub required: bool,
    /// Accepted in the main file, rejected in a policy layer.
    pub main_only: bool,
    /// Known, and not built: any value but the default is rejected as "not supported in this version". `check`,
    /// `serve`, the schema and the reference page all derive it from here.
    pub not_yet: bool,
}

/// The accepted form of a value.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// Any string, with a description.
    Text(&'static str),
    /// A string that is not empty.
    Name(&'static str),
    /// A text for agents: not empty, at most [`MAX_MESSAGE`](crate::keys::shape::MAX_MESSAGE) characters.
    Message,
    Bool,
    Integer {
        least: i64,
        most: i64,
    },
    /// A string, a number or a boolean.
    Scalar,
    /// Any value of another system.
    Any,
    /// More than zero.
    Duration,
    /// Zero is allowed too.
    Leeway,
    /// A duration, or this word.
    DurationOr(&'static str),
    Size,
    Rate,
    Listen,
    AddressOrOff,
    /// `on`, `off`, or an address.
    AddressOrSwitch,
    /// A number from 0 to 1, or a percentage.
    Ratio,
    IpRange,
    Url,
    Origin,
    Path,
    /// Text that may contain `${NAME}` and `${file:PATH}`.
    Secret,
    /// A URL that may contain references.
    SecretUrl,
    Token,
    /// An attribute of an agent's client certificate.
    Certificate,
    /// One of these words.
    Word(&'static [&'static str]),
    List(&'static Shape),
    OneOrList(&'static Shape),
    /// A mapping with these keys, in groups.
    Keys(&'static [&'static [KeySpec]]),
    /// A mapping whose keys are names of a kind.
    Table {
        key: &'static str,
        value: &'static Shape,
    },
    /// The first for scalars, the second for lists and mappings.
    Either(&'static Shape, &'static Shape),
}

/// The longest `message` that is added to refusals, in characters.
pub const MAX_MESSAGE: usize = 500;

impl Shape {
    /// The expected value, for messages and the reference page.
    pub fn expected(&self) -> String {
        match self {
            Shape::Text(what) | Shape::Name(what) => (*what).into(),
            Shape::Message => format!("a text of at most {MAX_MESSAGE} characters"),
            Shape::Bool => "`true` or `false`".into(),
            Shape::Integer { least, most: i64::MAX } => format!("a whole number from {least}"),
            Shape::Integer { least, most } => format!("a whole number from {least} to {most}"),
            Shape::Scalar => "a string, a whole number or a boolean".into(),
            Shape::Any => "anything".into(),
            Shape::Duration | Shape::Leeway => "a duration such as `5s`".into(),
            Shape::DurationOr(word) => format!("a duration such as `30d`, or `{word}`"),
            Shape::Size => "a size such as `4 MiB`".into(),
            Shape::Rate => "a rate such as `100/min`".into(),
            Shape::Listen => "an address such as `127.0.0.1:7410`, or `unix:PATH`".into(),
            Shape::AddressOrOff => "an address such as `127.0.0.1:7411`, or `off`".into(),
            Shape::AddressOrSwitch => "`on`, `off`, or an address such as `0.0.0.0:9464`".into(),
            Shape::Ratio => "a number from 0 to 1, or a percentage such as `1%`".into(),
            Shape::IpRange => "an IP address or range".into(),
            Shape::Url | Shape::SecretUrl => "a URL".into(),
            Shape::Origin => "an origin such as `https://app.example`".into(),
            Shape::Path => "a path".into(),
            Shape::Secret => "a string".into(),
            Shape::Token => "a token's hash or reference".into(),
            Shape::Certificate => "an attribute such as `CN=NAME`".into(),
            Shape::Word(words) => one_of(words),
            Shape::List(item) => format!("a list, each entry {}", item.expected()),
            Shape::OneOrList(item) => format!("{}, or a list of such", item.expected()),
            Shape::Keys(_) => "a mapping".into(),
            Shape::Table { key, value } => format!("a mapping from {key} to {}", value.expected()),
            Shape::Either(one, other) => format!("{} or {}", one.expected(), other.expected()),
        }
    }

    /// The same in one or two words, for longer messages.
    pub(crate) fn briefly(&self) -> String {
        match self {
            Shape::List(_) => "a list".into(),
            Shape::Table { .. } => "a mapping".into(),
            Shape::OneOrList(item) => format!("{} or a list", item.briefly()),
            Shape::Either(one, other) => format!("{} or {}", one.briefly(), other.briefly()),
            _ => self.expected(),
        }
    }
}

pub(crate) fn one_of(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}
