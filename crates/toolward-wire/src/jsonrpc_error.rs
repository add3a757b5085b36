//! JSON-RPC error codes, and the HTTP status of each error.

use crate::method::Era;

/// Error codes of JSON-RPC and MCP.
pub mod code {
    pub const PARSE_ERROR: i32 = -32700;
    pub const INVALID_REQUEST: i32 = -32600;
    pub const METHOD_NOT_FOUND: i32 = -32601;
    pub const INVALID_PARAMS: i32 = -32602;
    pub const INTERNAL_ERROR: i32 = -32603;
    /// An HTTP header differs from the body.
    pub const HEADER_MISMATCH: i32 = -32020;
    pub const MISSING_CLIENT_CAPABILITY: i32 = -32021;
    pub const UNSUPPORTED_VERSION: i32 = -32022;
    /// Legacy only: the resource does not exist.
    pub const RESOURCE_NOT_FOUND: i32 = -32002;
    /// 2025-11-25 only: the user must visit a URL first.
    pub const URL_ELICITATION_REQUIRED: i32 = -32042;
}

/// A condition that determines the HTTP status of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusCase {
    /// Not a single, unambiguous JSON value.
    MalformedJson,
    MalformedEnvelope,
    BadParams,
    TooLarge,
    MissingMeta,
    HeaderMismatch,
    UnsupportedVersion,
    MissingCapability,
    UnknownMethod,
    NoSession,
    UnknownSession,
    /// A notification or a response was accepted.
    Accepted,
    /// GET or DELETE without a session.
    NoStream,
    Refusal,
}

/// An HTTP status, and the JSON-RPC error code if the response is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    pub http: u16,
    pub code: Option<i32>,
}

/// The HTTP status of a case, or `None` if the case cannot occur in this protocol version.
pub const fn status(case: StatusCase, era: Era) -> Option<Status> {
    let modern = matches!(era, Era::Modern);
    let (http, code) = match case {
        StatusCase::MalformedJson => (400, Some(code::PARSE_ERROR)),
        StatusCase::MalformedEnvelope => (400, Some(code::INVALID_REQUEST)),
        StatusCase::BadParams if modern => (400, Some(code::INVALID_PARAMS)),
        // Not 400: older SDKs end the whole session on that.
        StatusCase::BadParams => (200, Some(code::INVALID_PARAMS)),
        StatusCase::TooLarge => (413, Some(code::INVALID_REQUEST)),
        StatusCase::MissingMeta if modern => (400, Some(code::INVALID_PARAMS)),
        StatusCase::HeaderMismatch if modern => (400, Some(code::HEADER_MISMATCH)),
        StatusCase::UnsupportedVersion if modern => (400, Some(code::UNSUPPORTED_VERSION)),
        StatusCase::UnsupportedVersion => (400, Some(code::INVALID_REQUEST)),
        StatusCase::MissingCapability if modern => (400, Some(code::MISSING_CLIENT_CAPABILITY)),
        StatusCase::UnknownMethod if modern => (404, Some(code::METHOD_NOT_FOUND)),
        // Not 404: for a legacy client that means the session has expired.
        StatusCase::UnknownMethod => (200, Some(code::METHOD_NOT_FOUND)),
        StatusCase::NoSession if !modern => (400, Some(code::INVALID_REQUEST)),
        StatusCase::UnknownSession if !modern => (404, Some(code::INVALID_REQUEST)),
        StatusCase::Accepted => (202, None),
        StatusCase::NoStream => (405, None),
        StatusCase::Refusal => (200, None),
        StatusCase::MissingMeta
        | StatusCase::HeaderMismatch
        | StatusCase::MissingCapability
        | StatusCase::NoSession
        | StatusCase::UnknownSession => return None,
    };
    Some(Status { http, code })
}
