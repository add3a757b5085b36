//! A message: scanned bytes, and where their parts lie. It is never written anew as a whole; what
//! the gateway owns is replaced in place ([`Message::edit`]).

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use crate::arguments::Arguments;
use crate::edit::Edit;
use crate::error::{Case, code};
use crate::id::Id;
use crate::method::{Era, MethodRow, NameAt, Sender, lookup};
use crate::raw::{Raw, Shape};
use crate::scan::{Fault, Member, ScanError, Section, Strictness, scan};
use crate::span::Span;
use crate::words::{is_case_variant, meta};

/// One JSON-RPC message.
#[derive(Clone)]
pub struct Message {
    body: Bytes,
    root: Span,
    kind: Kind,
    id: Option<Id>,
    members: Box<[Member]>,
    /// The payload is well-formed, but not what every reader reads alike.
    is_loose: bool,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Request,
    Notification,
    /// An answer with a result.
    Response,
    /// An answer with an error; its id may be missing.
    Error,
}

/// The protocol's own `_meta` members of a modern request.
#[derive(Debug, Clone)]
pub struct Terms<'m> {
    pub version: Cow<'m, str>,
    pub capabilities: Raw<'m>,
    pub client_info: Option<Raw<'m>>,
    pub log_level: Option<Cow<'m, str>>,
}

/// Why a message is refused.
#[derive(Debug, Clone)]
pub struct Malformed {
    pub problem: Problem,
    /// The id to answer to, where one could be read.
    pub id: Option<Id>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    Json(ScanError),
    /// Several messages in an array.
    Batch,
    NotAnObject,
    /// A member that equals a protocol member only after case folding.
    CaseVariant {
        part: &'static str,
        key: String,
    },
    /// `jsonrpc` is not "2.0".
    Version,
    /// The members do not make up a request, notification or answer.
    Envelope,
    BadId,
    BadMethod,
    /// An `error` without an integer `code` and a string `message`.
    BadError,
    /// A member that has to be an object is not one.
    NotObject {
        member: &'static str,
    },
    /// A member of `params` that is missing or of the wrong type.
    BadParam {
        member: &'static str,
        expected: &'static str,
    },
    /// A modern request without a `_meta` member that it must have, or with one of another type.
    MissingMeta {
        key: &'static str,
    },
    /// A method that the table does not have for this sender and era.
    UnknownMethod {
        method: String,
    },
    /// A request without an id, or a notification with one.
    WrongKind {
        method: &'static str,
    },
}

impl Malformed {
    /// The code of the JSON-RPC error.
    pub fn code(&self) -> i32 {
        match self.problem.case() {
            Case::MalformedJson => code::PARSE_ERROR,
            Case::BadParams | Case::MissingMeta => code::INVALID_PARAMS,
            Case::UnknownMethod => code::METHOD_NOT_FOUND,
            _ => code::INVALID_REQUEST,
        }
    }
}

impl Problem {
    /// The row of the status table.
    pub fn case(&self) -> Case {
        match self {
            Self::Json(ScanError { fault: Fault::TooLarge { .. }, .. }) => Case::TooLarge,
            Self::Json(_) => Case::MalformedJson,
            Self::CaseVariant { part: "params" | "_meta", .. }
            | Self::NotObject { member: "_meta" | "arguments" }
            | Self::BadParam { .. } => Case::BadParams,
            Self::MissingMeta { .. } => Case::MissingMeta,
            Self::UnknownMethod { .. } => Case::UnknownMethod,
            _ => Case::MalformedEnvelope,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "{error}"),
            Self::Batch => write!(f, "batches are not accepted: send one message at a time"),
            Self::NotAnObject => write!(f, "a message is a JSON object"),
            Self::CaseVariant { part, key } => {
                write!(f, "`{}` in {part} differs from a protocol member only in case", Plain(key))
            }
            Self::Version => write!(f, "`jsonrpc` must be \"2.0\""),
            Self::Envelope => {
                write!(f, "a message has either `method`, or one of `result` and `error`")
            }
            Self::BadId => write!(f, "`id` must be a string or an integer"),
            Self::BadMethod => write!(f, "`method` must be a non-empty string"),
            Self::BadError => {
                write!(f, "`error` must have an integer `code` and a string `message`")
            }
            Self::NotObject { member } => write!(f, "`{member}` must be an object"),
            Self::BadParam { member, expected } => {
                write!(f, "`params.{member}` must be {expected}")
            }
            Self::MissingMeta { key } => write!(f, "`params._meta` must have `{key}`"),
            Self::UnknownMethod { method } => write!(f, "unknown method `{}`", Plain(method)),
            Self::WrongKind { method } => {
                write!(f, "`{method}` was sent with or without an `id` where it must be otherwise")
            }
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

impl std::error::Error for Malformed {}

/// Foreign text in a message for people: short, and without control or formatting characters.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars().take(64) {
            match character {
                '!'..='~' | ' ' => write!(f, "{character}")?,
                other => write!(f, "{}", other.escape_unicode())?,
            }
        }
        Ok(())
    }
}

impl Message {
    /// Reads a message of at most `limit` bytes.
    ///
    /// What a client sends is strict to the last member. In an answer of a server, payload below
    /// the members that a gateway reads must only be well-formed: what tools return is for the
    /// client to read, with all that JSON allows.
    pub fn parse(body: Bytes, limit: usize, sender: Sender) -> Result<Message, Malformed> {
        let strictness = match sender {
            Sender::Client => Strictness::Everywhere,
            Sender::Server => Strictness::Answer,
        };
        let outline = scan(&body, limit, strictness)
            .map_err(|error| Malformed { problem: Problem::Json(error), id: None })?;
        let mut message = Message {
            body,
            root: outline.root,
            kind: Kind::Notification,
            id: None,
            members: outline.members.into(),
            is_loose: outline.loose.is_some(),
        };
        match message.raw().shape() {
            Shape::Object => {}
            Shape::Array => return Err(Malformed { problem: Problem::Batch, id: None }),
            _ => return Err(Malformed { problem: Problem::NotAnObject, id: None }),
        }
        message.id = message.envelope("id").and_then(Id::of);
        match message.read(outline.loose) {
            Ok(kind) => {
                message.kind = kind;
                Ok(message)
            }
            Err(problem) => Err(Malformed { problem, id: message.id }),
        }
    }

    fn read(&self, loose: Option<ScanError>) -> Result<Kind, Problem> {
        for member in &*self.members {
            let key = member.name(&self.body);
            if is_case_variant(member.section, &key) {
                let part = match member.section {
                    Section::Envelope => "the envelope",
                    Section::Params => "params",
                    Section::Result => "result",
                    Section::Error => "error",
                    Section::ParamsMeta | Section::ResultMeta => "_meta",
                };
                return Err(Problem::CaseVariant { part, key: key.into_owned() });
            }
        }
        if self.envelope("jsonrpc").is_none_or(|raw| raw.as_str().as_deref() != Some("2.0")) {
            return Err(Problem::Version);
        }
        let (id, result, error) = (self.envelope("id"), self.result(), self.envelope("error"));
        let kind = match (self.envelope("method"), result, error) {
            (Some(method), None, None) => {
                if method.as_str().is_none_or(|method| method.is_empty()) {
                    return Err(Problem::BadMethod);
                }
                if let Some(error) = loose {
                    return Err(Problem::Json(error));
                }
                if id.is_some() { Kind::Request } else { Kind::Notification }
            }
            (None, Some(result), None) => {
                object("result", Some(result))?;
                Kind::Response
            }
            (None, None, Some(error)) => {
                object("error", Some(error))?;
                let code = self.find(Section::Error, "code").is_some_and(Raw::is_integer);
                let message = self.find(Section::Error, "message");
                if !code || message.is_none_or(|message| message.shape() != Shape::String) {
                    return Err(Problem::BadError);
                }
                Kind::Error
            }
            _ => return Err(Problem::Envelope),
        };
        match (kind, id) {
            (Kind::Notification, _) => {}
            (Kind::Error, None) => {}
            (Kind::Error, Some(id)) if id.shape() == Shape::Null => {}
            _ if self.id.is_some() => {}
            _ => return Err(Problem::BadId),
        }
        object("params", self.params())?;
        object("arguments", self.param("arguments"))?;
        object("_meta", self.param("_meta"))?;
        object("_meta", self.result_member("_meta"))?;
        for token in [self.meta(meta::PROGRESS_TOKEN), self.param("progressToken")] {
            if token.is_some_and(|token| Id::of(token).is_none()) {
                let (member, expected) = ("progressToken", "a string or an integer");
                return Err(Problem::BadParam { member, expected });
            }
        }
        Ok(kind)
    }

    /// The row of a request's or notification's method, after checking that the message is what
    /// the row says: its kind, and the name of what it is about.
    pub fn row(&self, sender: Sender, era: Era) -> Result<&'static MethodRow, Malformed> {
        let method = self.method().unwrap_or_default();
        let fail = |problem| Malformed { problem, id: self.id.clone() };
        let Some(row) = lookup(&method, sender, era) else {
            return Err(fail(Problem::UnknownMethod { method: method.into_owned() }));
        };
        if row.is_request() != (self.kind == Kind::Request) {
            return Err(fail(Problem::WrongKind { method: row.name }));
        }
        self.name(row.name_at).map_err(fail)?;
        Ok(row)
    }

    /// What a modern request says of itself.
    pub fn terms(&self) -> Result<Terms<'_>, Malformed> {
        let missing =
            |key| Malformed { problem: Problem::MissingMeta { key }, id: self.id.clone() };
        let version = self.meta(meta::PROTOCOL_VERSION).and_then(Raw::as_str);
        let capabilities = self.meta(meta::CLIENT_CAPABILITIES).filter(|raw| raw.is_object());
        Ok(Terms {
            version: version.ok_or_else(|| missing(meta::PROTOCOL_VERSION))?,
            capabilities: capabilities.ok_or_else(|| missing(meta::CLIENT_CAPABILITIES))?,
            client_info: self.meta(meta::CLIENT_INFO),
            log_level: self.meta(meta::LOG_LEVEL).and_then(Raw::as_str),
        })
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The bytes as they came.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    pub fn into_body(self) -> Bytes {
        self.body
    }

    /// The whole message as a value.
    pub fn raw(&self) -> Raw<'_> {
        Raw::scanned(self.root.of(&self.body))
    }

    /// The id; `None` for a notification, and for an error that answers nothing in particular.
    pub fn id(&self) -> Option<&Id> {
        self.id.as_ref()
    }

    pub fn method(&self) -> Option<Cow<'_, str>> {
        self.envelope("method").and_then(Raw::as_str)
    }

    pub fn params(&self) -> Option<Raw<'_>> {
        self.envelope("params")
    }

    /// A member of `params`.
    pub fn param(&self, name: &str) -> Option<Raw<'_>> {
        self.find(Section::Params, name)
    }

    /// A member of `params._meta`.
    pub fn meta(&self, name: &str) -> Option<Raw<'_>> {
        self.find(Section::ParamsMeta, name)
    }

    pub fn result(&self) -> Option<Raw<'_>> {
        self.envelope("result")
    }

    /// A member of `result`.
    pub fn result_member(&self, name: &str) -> Option<Raw<'_>> {
        self.find(Section::Result, name)
    }

    /// A member of `result._meta`.
    pub fn result_meta(&self, name: &str) -> Option<Raw<'_>> {
        self.find(Section::ResultMeta, name)
    }

    /// `error.code`, where it fits.
    pub fn error_code(&self) -> Option<i64> {
        self.find(Section::Error, "code").and_then(Raw::as_i64)
    }

    pub fn error_message(&self) -> Option<Cow<'_, str>> {
        self.find(Section::Error, "message").and_then(Raw::as_str)
    }

    pub fn error_data(&self) -> Option<Raw<'_>> {
        self.find(Section::Error, "data")
    }

    /// The arguments of a call, which are an object.
    pub fn arguments(&self) -> Option<Arguments<'_>> {
        self.param("arguments").map(Arguments::new)
    }

    /// The token under which a request wants progress, or of which a notification reports.
    pub fn progress_token(&self) -> Option<Id> {
        let at = match self.kind {
            Kind::Request => self.meta(meta::PROGRESS_TOKEN),
            _ => self.param("progressToken"),
        };
        at.and_then(Id::of)
    }

    /// What the message is about, where its row says that it has a name.
    pub fn name(&self, at: NameAt) -> Result<Option<Cow<'_, str>>, Problem> {
        match at {
            NameAt::Nowhere => Ok(None),
            NameAt::Param(member) => {
                let missing = Problem::BadParam { member, expected: "a string" };
                self.param(member).and_then(Raw::as_str).map(Some).ok_or(missing)
            }
            NameAt::Ref => {
                let reference = self.param("ref");
                let member = |name| reference.and_then(|raw| raw.member(name)?.as_str());
                let name = match member("type").as_deref() {
                    Some("ref/prompt") => member("name"),
                    Some("ref/resource") => member("uri"),
                    _ => None,
                };
                let expected = "a reference to a prompt or a resource";
                name.map(Some).ok_or(Problem::BadParam { member: "ref", expected })
            }
        }
    }

    /// Begins to change what the gateway owns; all other bytes stay.
    pub fn edit(&self) -> Edit<'_> {
        Edit::new(self)
    }

    pub(crate) fn is_loose(&self) -> bool {
        self.is_loose
    }

    pub(crate) fn root(&self) -> Span {
        self.root
    }

    pub(crate) fn members(&self, section: Section) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |member| member.section == section)
    }

    pub(crate) fn find_member(&self, section: Section, name: &str) -> Option<&Member> {
        self.members(section).find(|member| member.is(&self.body, name))
    }

    fn find(&self, section: Section, name: &str) -> Option<Raw<'_>> {
        self.find_member(section, name).map(|member| Raw::scanned(member.value.of(&self.body)))
    }

    fn envelope(&self, name: &str) -> Option<Raw<'_>> {
        self.find(Section::Envelope, name)
    }
}

fn object(member: &'static str, value: Option<Raw<'_>>) -> Result<(), Problem> {
    match value {
        Some(value) if !value.is_object() => Err(Problem::NotObject { member }),
        _ => Ok(()),
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("kind", &self.kind)
            .field("id", &self.id)
            .field("method", &self.method())
            .field("bytes", &self.body.len())
            .finish()
    }
}
