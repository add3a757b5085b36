//! JSON-RPC messages: the original bytes and an index of their members.
//!
//! A message is never serialized again as a whole. The members that the gateway owns are replaced
//! in place, with [`Message::edit`].

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use crate::arguments::Arguments;
use crate::error::{MessageError, MessageProblem};
use crate::id::Id;
use crate::member_index::{Member, MemberIndex, Section};
use crate::method::{Era, MethodRow, NameAt, Sender, lookup_bytes};
use crate::names::{is_case_variant, is_own_key, meta};
use crate::raw::{Raw, RawMember, Shape};
use crate::scan::{ScanError, Strictness, scan};
use crate::span::Span;

/// One JSON-RPC message.
#[derive(Clone)]
pub struct Message {
    body: Bytes,
    root: Span,
    kind: Kind,
    id: Option<Id>,
    members: MemberIndex,
    /// The payload is well-formed, but parsers may disagree about it.
    is_ambiguous: bool,
    /// A key at any depth starts with the prefix of the gateway's own `_meta` keys.
    has_own_keys: bool,
}

/// The kind of a JSON-RPC message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Request,
    Notification,
    /// A response with a result.
    Response,
    /// A response with an error. Its id may be missing.
    Error,
}

/// The `_meta` members that the protocol defines for a modern request.
#[derive(Debug, Clone)]
pub struct RequestMeta<'m> {
    pub version: Cow<'m, str>,
    pub capabilities: Raw<'m>,
    pub client_info: Option<Raw<'m>>,
    pub log_level: Option<Cow<'m, str>>,
}

impl Message {
    /// Parses a message of at most `limit` bytes.
    ///
    /// Messages from a client are checked strictly throughout. In a response from a server, payload
    /// that the gateway does not read only has to be well-formed JSON: a tool's output is for the
    /// client to interpret, and rejecting it would break working servers.
    pub fn parse(body: Bytes, limit: usize, sender: Sender) -> Result<Message, MessageError> {
        let strictness = match sender {
            Sender::Client => Strictness::Everywhere,
            Sender::Server => Strictness::Response,
        };
        let outline = scan(&body, limit, strictness)
            .map_err(|error| MessageError { problem: MessageProblem::Json(error), id: None })?;
        let mut message = Message {
            body,
            root: outline.root,
            kind: Kind::Notification,
            id: None,
            members: outline.members,
            is_ambiguous: outline.ambiguity.is_some(),
            has_own_keys: outline.has_own_keys,
        };
        match message.raw().shape() {
            Shape::Object => {}
            Shape::Array => return Err(MessageError { problem: MessageProblem::Batch, id: None }),
            _ => return Err(MessageError { problem: MessageProblem::NotAnObject, id: None }),
        }
        message.id = message.envelope("id").and_then(Id::of);
        match message.read(outline.ambiguity) {
            Ok(kind) => {
                message.kind = kind;
                Ok(message)
            }
            Err(problem) => Err(MessageError { problem, id: message.id }),
        }
    }

    fn read(&self, loose: Option<ScanError>) -> Result<Kind, MessageProblem> {
        let parts = self.parts()?;
        if parts
            .version
            .is_none_or(|version| version.bytes() != b"\"2.0\"" && !version.is_str("2.0"))
        {
            return Err(MessageProblem::Version);
        }
        let kind = match (parts.method, parts.result, parts.error) {
            (Some(method), None, None) => {
                // The only spelling of an empty string is `""`.
                if !method.is_string() || method.bytes() == b"\"\"" {
                    return Err(MessageProblem::BadMethod);
                }
                if let Some(error) = loose {
                    return Err(MessageProblem::Json(error));
                }
                if parts.id.is_some() { Kind::Request } else { Kind::Notification }
            }
            (None, Some(result), None) => {
                object("result", Some(result))?;
                Kind::Response
            }
            (None, None, Some(error)) => {
                object("error", Some(error))?;
                let code = parts.code.is_some_and(Raw::is_integer);
                if !code || parts.message.is_none_or(|message| message.shape() != Shape::String) {
                    return Err(MessageProblem::BadError);
                }
                Kind::Error
            }
            _ => return Err(MessageProblem::Envelope),
        };
        match (kind, parts.id) {
            (Kind::Notification, _) => {}
            (Kind::Error, None) => {}
            (Kind::Error, Some(id)) if id.shape() == Shape::Null => {}
            _ if self.id.is_some() => {}
            _ => return Err(MessageProblem::BadId),
        }
        object("params", parts.params)?;
        object("arguments", parts.arguments)?;
        object("_meta", parts.params_meta)?;
        object("_meta", parts.result_meta)?;
        for token in [parts.wanted_token, parts.reported_token] {
            if token.is_some_and(|token| Id::of(token).is_none()) {
                let (member, expected) = ("progressToken", "a string or an integer");
                return Err(MessageProblem::BadParam { member, expected });
            }
        }
        Ok(kind)
    }

    /// Collects the members to be checked, and rejects case variants of protocol members, in one
    /// pass.
    fn parts(&self) -> Result<Parts<'_>, MessageProblem> {
        let mut parts = Parts::default();
        for member in self.members.iter() {
            let key = member.name(&self.body);
            let part = match (member.section, &*key) {
                (Section::Envelope, b"jsonrpc") => &mut parts.version,
                (Section::Envelope, b"id") => &mut parts.id,
                (Section::Envelope, b"method") => &mut parts.method,
                (Section::Envelope, b"params") => &mut parts.params,
                (Section::Envelope, b"result") => &mut parts.result,
                (Section::Envelope, b"error") => &mut parts.error,
                (Section::Error, b"code") => &mut parts.code,
                (Section::Error, b"message") => &mut parts.message,
                (Section::Params, b"arguments") => &mut parts.arguments,
                (Section::Params, b"_meta") => &mut parts.params_meta,
                (Section::Params, b"progressToken") => &mut parts.reported_token,
                (Section::ParamsMeta, b"progressToken") => &mut parts.wanted_token,
                (Section::Result, b"_meta") => &mut parts.result_meta,
                (section, key) if is_case_variant(section, key) => {
                    let key = String::from_utf8_lossy(key).into_owned();
                    return Err(MessageProblem::CaseVariant { part: section_name(section), key });
                }
                _ => continue,
            };
            *part = Some(Raw::scanned(member.value.of(&self.body)));
        }
        Ok(parts)
    }

    /// Looks up the method of a request or notification in the method table.
    ///
    /// Also checks that the message has the kind and the name parameter that the table requires.
    pub fn row(&self, sender: Sender, era: Era) -> Result<&'static MethodRow, MessageError> {
        let fail = |problem| MessageError { problem, id: self.id.clone() };
        let method = self.raw_method().and_then(Raw::string_bytes).unwrap_or_default();
        let Some(row) = lookup_bytes(&method, sender, era) else {
            let method = String::from_utf8_lossy(&method).into_owned();
            return Err(fail(MessageProblem::UnknownMethod { method }));
        };
        if row.is_request() != (self.kind == Kind::Request) {
            return Err(fail(MessageProblem::WrongKind { method: row.name }));
        }
        match row.name_at {
            NameAt::Param(member) if self.param(member).is_some_and(Raw::is_string) => {}
            at => drop(self.name(at).map_err(fail)?),
        }
        Ok(row)
    }

    /// Reads the protocol version, capabilities and other `_meta` members of a modern request.
    pub fn request_meta(&self) -> Result<RequestMeta<'_>, MessageError> {
        let missing = |key| MessageError {
            problem: MessageProblem::MissingMeta { key },
            id: self.id.clone(),
        };
        let version = self.meta(meta::PROTOCOL_VERSION).and_then(Raw::as_str);
        let capabilities = self.meta(meta::CLIENT_CAPABILITIES).filter(|raw| raw.is_object());
        Ok(RequestMeta {
            version: version.ok_or_else(|| missing(meta::PROTOCOL_VERSION))?,
            capabilities: capabilities.ok_or_else(|| missing(meta::CLIENT_CAPABILITIES))?,
            client_info: self.meta(meta::CLIENT_INFO),
            log_level: self.meta(meta::LOG_LEVEL).and_then(Raw::as_str),
        })
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The original bytes.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    pub fn into_body(self) -> Bytes {
        self.body
    }

    /// The whole message as a JSON value.
    pub fn raw(&self) -> Raw<'_> {
        Raw::scanned(self.root.of(&self.body))
    }

    /// The id. `None` for a notification, and for an error response without an id.
    pub fn id(&self) -> Option<&Id> {
        self.id.as_ref()
    }

    pub fn method(&self) -> Option<Cow<'_, str>> {
        self.raw_method().and_then(Raw::as_str)
    }

    pub(crate) fn raw_method(&self) -> Option<Raw<'_>> {
        self.envelope("method")
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

    /// The members of `result` in document order. They come from the index, without traversing the
    /// value.
    pub fn result_members(&self) -> impl Iterator<Item = RawMember<'_>> {
        let start = self.find_member(Section::Envelope, "result").map_or(0, |it| it.value.start);
        self.members(Section::Result)
            .map(move |member| RawMember::indexed(member, &self.body, start))
    }

    /// A member of `result`.
    pub fn result_member(&self, name: &str) -> Option<Raw<'_>> {
        self.find(Section::Result, name)
    }

    /// A member of `result._meta`.
    pub fn result_meta(&self, name: &str) -> Option<Raw<'_>> {
        self.find(Section::ResultMeta, name)
    }

    /// `error.code`, if it fits in 64 bits.
    pub fn error_code(&self) -> Option<i64> {
        self.find(Section::Error, "code").and_then(Raw::as_i64)
    }

    pub fn error_message(&self) -> Option<Cow<'_, str>> {
        self.find(Section::Error, "message").and_then(Raw::as_str)
    }

    pub fn error_data(&self) -> Option<Raw<'_>> {
        self.find(Section::Error, "data")
    }

    /// The arguments of a call.
    pub fn arguments(&self) -> Option<Arguments<'_>> {
        self.param("arguments").map(Arguments::new)
    }

    /// The progress token that a request asks for, or that a progress notification refers to.
    pub fn progress_token(&self) -> Option<Id> {
        let at = match self.kind {
            Kind::Request => self.meta(meta::PROGRESS_TOKEN),
            _ => self.param("progressToken"),
        };
        at.and_then(Id::of)
    }

    /// The name of the tool, prompt, resource or task, at the position given by the method table.
    pub fn name(&self, at: NameAt) -> Result<Option<Cow<'_, str>>, MessageProblem> {
        match at {
            NameAt::Nowhere => Ok(None),
            NameAt::Param(member) => {
                let missing = MessageProblem::BadParam { member, expected: "a string" };
                self.param(member).and_then(Raw::as_str).map(Some).ok_or(missing)
            }
            NameAt::Ref => {
                let reference = self.param("ref");
                let known = ["type", "name", "uri"];
                let is_variant = |name: &str| {
                    known.iter().any(|known| known.eq_ignore_ascii_case(name) && *known != name)
                };
                let mut members = reference.into_iter().flat_map(|raw| raw.members());
                let reference =
                    reference.filter(|_| !members.any(|member| is_variant(&member.name())));
                let member = |name| reference.and_then(|raw| raw.member(name)?.as_str());
                let name = match member("type").as_deref() {
                    Some("ref/prompt") => member("name"),
                    Some("ref/resource") => member("uri"),
                    _ => None,
                };
                let expected = "a reference to a prompt or a resource";
                name.map(Some).ok_or(MessageProblem::BadParam { member: "ref", expected })
            }
        }
    }

    pub(crate) fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }

    pub(crate) fn root(&self) -> Span {
        self.root
    }

    /// Whether any key, at any depth, starts with the prefix of the gateway's own `_meta` keys.
    pub(crate) fn has_own_keys(&self) -> bool {
        self.has_own_keys
    }

    /// The gateway's own keys in the `_meta` of `params` and `result`.
    pub(crate) fn own_meta(&self) -> impl Iterator<Item = &Member> {
        let metas = [Section::ParamsMeta, Section::ResultMeta];
        let members = metas.into_iter().flat_map(|section| self.members(section));
        members.filter(|member| is_own_key(&member.name(&self.body)))
    }

    pub(crate) fn members(&self, section: Section) -> impl Iterator<Item = &Member> + Clone {
        self.members.of(section)
    }

    #[inline(always)]
    pub(crate) fn find_member(&self, section: Section, name: &str) -> Option<&Member> {
        self.members.find(section, name, &self.body)
    }

    #[inline(always)]
    fn find(&self, section: Section, name: &str) -> Option<Raw<'_>> {
        self.find_member(section, name).map(|member| Raw::scanned(member.value.of(&self.body)))
    }

    #[inline(always)]
    fn envelope(&self, name: &str) -> Option<Raw<'_>> {
        self.find(Section::Envelope, name)
    }
}

/// The members that are checked by [`Message::parse`].
#[derive(Default)]
struct Parts<'m> {
    version: Option<Raw<'m>>,
    id: Option<Raw<'m>>,
    method: Option<Raw<'m>>,
    params: Option<Raw<'m>>,
    result: Option<Raw<'m>>,
    error: Option<Raw<'m>>,
    code: Option<Raw<'m>>,
    message: Option<Raw<'m>>,
    arguments: Option<Raw<'m>>,
    params_meta: Option<Raw<'m>>,
    result_meta: Option<Raw<'m>>,
    /// The progress token that a request asks for.
    wanted_token: Option<Raw<'m>>,
    /// The progress token that a notification refers to.
    reported_token: Option<Raw<'m>>,
}

/// The name of a section in error messages.
fn section_name(section: Section) -> &'static str {
    match section {
        Section::Envelope => "the envelope",
        Section::Params => "params",
        Section::Result => "result",
        Section::Error => "error",
        Section::ParamsMeta | Section::ResultMeta => "_meta",
    }
}

fn object(member: &'static str, value: Option<Raw<'_>>) -> Result<(), MessageProblem> {
    match value {
        Some(value) if !value.is_object() => Err(MessageProblem::NotObject { member }),
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
