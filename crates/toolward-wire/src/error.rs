//! Answers that the gateway makes itself, and the status table.

use bytes::Bytes;

use crate::id::Id;
use crate::method::Era;
use crate::string;

/// Error codes of JSON-RPC and MCP.
pub mod code {
    pub const PARSE_ERROR: i32 = -32700;
    pub const INVALID_REQUEST: i32 = -32600;
    pub const METHOD_NOT_FOUND: i32 = -32601;
    pub const INVALID_PARAMS: i32 = -32602;
    pub const INTERNAL_ERROR: i32 = -32603;
    /// A header and the body disagree.
    pub const HEADER_MISMATCH: i32 = -32020;
    pub const MISSING_CLIENT_CAPABILITY: i32 = -32021;
    pub const UNSUPPORTED_VERSION: i32 = -32022;
    /// Legacy: a resource that does not exist.
    pub const RESOURCE_NOT_FOUND: i32 = -32002;
    /// 2025-11-25: the client must first visit a URL.
    pub const URL_ELICITATION_REQUIRED: i32 = -32042;
}

/// An error answer. An id that could not be read is null, as JSON-RPC has it.
///
/// ```
/// use toolward_wire::error::{code, error_body};
/// use toolward_wire::Id;
///
/// let body = error_body(Some(&Id::number(7)), code::METHOD_NOT_FOUND, "no such method", None);
/// assert_eq!(
///     &body[..],
///     br#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no such method"}}"#
/// );
/// ```
pub fn error_body(id: Option<&Id>, code: i32, message: &str, data: Option<&[u8]>) -> Bytes {
    let mut body = open(id, b"\"error\":{\"code\":", message.len() + data.map_or(0, <[u8]>::len));
    body.extend_from_slice(code.to_string().as_bytes());
    body.extend_from_slice(b",\"message\":");
    string::write(message, &mut body);
    if let Some(data) = data {
        body.extend_from_slice(b",\"data\":");
        body.extend_from_slice(data);
    }
    body.extend_from_slice(b"}}");
    body.into()
}

/// A result answer; `result` is a JSON object as bytes.
pub fn result_body(id: &Id, result: &[u8]) -> Bytes {
    let mut body = open(Some(id), b"\"result\":", result.len());
    body.extend_from_slice(result);
    body.push(b'}');
    body.into()
}

/// A request or, without an id, a notification; `params` is a JSON object as bytes.
pub fn request_body(id: Option<&Id>, method: &str, params: Option<&[u8]>) -> Bytes {
    let mut body = Vec::with_capacity(64 + method.len() + params.map_or(0, <[u8]>::len));
    body.extend_from_slice(b"{\"jsonrpc\":\"2.0\",");
    if let Some(id) = id {
        body.extend_from_slice(b"\"id\":");
        body.extend_from_slice(id.raw());
        body.push(b',');
    }
    body.extend_from_slice(b"\"method\":");
    string::write(method, &mut body);
    if let Some(params) = params {
        body.extend_from_slice(b",\"params\":");
        body.extend_from_slice(params);
    }
    body.push(b'}');
    body.into()
}

fn open(id: Option<&Id>, part: &[u8], more: usize) -> Vec<u8> {
    let id = id.map_or(&b"null"[..], Id::raw);
    let mut body = Vec::with_capacity(80 + id.len() + more);
    body.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    body.extend_from_slice(id);
    body.push(b',');
    body.extend_from_slice(part);
    body
}

/// A case of the status table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Not one JSON value that every reader reads alike.
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
    /// A notification or a response was taken.
    Accepted,
    /// GET or DELETE without a session.
    NoStream,
    Refusal,
}

/// The HTTP status, and the code of the JSON-RPC error where one belongs to the case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    pub http: u16,
    pub code: Option<i32>,
}

/// The status table; `None` where the era does not have the case.
pub const fn status(case: Case, era: Era) -> Option<Status> {
    let modern = matches!(era, Era::Modern);
    let (http, code) = match case {
        Case::MalformedJson => (400, Some(code::PARSE_ERROR)),
        Case::MalformedEnvelope => (400, Some(code::INVALID_REQUEST)),
        Case::BadParams => (400, Some(code::INVALID_PARAMS)),
        Case::TooLarge => (413, Some(code::INVALID_REQUEST)),
        Case::MissingMeta if modern => (400, Some(code::INVALID_PARAMS)),
        Case::HeaderMismatch if modern => (400, Some(code::HEADER_MISMATCH)),
        Case::UnsupportedVersion if modern => (400, Some(code::UNSUPPORTED_VERSION)),
        Case::UnsupportedVersion => (400, Some(code::INVALID_REQUEST)),
        Case::MissingCapability if modern => (400, Some(code::MISSING_CLIENT_CAPABILITY)),
        Case::UnknownMethod if modern => (404, Some(code::METHOD_NOT_FOUND)),
        // In the legacy era 404 says that the session is gone.
        Case::UnknownMethod => (200, Some(code::METHOD_NOT_FOUND)),
        Case::NoSession if !modern => (400, Some(code::INVALID_REQUEST)),
        Case::UnknownSession if !modern => (404, Some(code::INVALID_REQUEST)),
        Case::Accepted => (202, None),
        Case::NoStream => (405, None),
        Case::Refusal => (200, None),
        Case::MissingMeta
        | Case::HeaderMismatch
        | Case::MissingCapability
        | Case::NoSession
        | Case::UnknownSession => return None,
    };
    Some(Status { http, code })
}
