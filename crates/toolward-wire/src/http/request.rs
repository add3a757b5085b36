//! Parsing of request heads.

use std::ops::Range;

use bytes::BytesMut;
use memchr::memchr;

use super::body::BodyLength;
use super::chars::{is_authority, is_target, is_token, is_token_byte};
use super::error::HeadError;
use super::head::{HeadLimits, Headers, split_head};
use crate::names::header::PARAM_PREFIX;

/// Maximum length of a request target, in bytes.
pub const MAX_TARGET: usize = 8 << 10;
/// Maximum length of a request line whose end has not arrived, in bytes.
const MAX_LINE: usize = MAX_TARGET + 64;

/// A request method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Delete,
    Options,
    Head,
    /// Any other method. No endpoint supports one.
    Other,
}

/// The head of a request.
#[derive(Debug, Clone)]
pub struct RequestHead {
    pub method: Method,
    /// The path as received, without percent-decoding. `*` for `OPTIONS *`.
    pub path: String,
    /// The part of the target after `?`.
    pub query: Option<String>,
    pub headers: Headers,
    pub body: BodyLength,
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// `Host`, in lower case.
    pub host: String,
    /// Whether this is an HTTP/1.0 request.
    pub old: bool,
}

/// Parses the head of a request and removes it from the buffer.
///
/// Returns `None` if the head is incomplete. Call it again with the same buffer when more bytes
/// have arrived.
pub fn read_request(
    buffer: &mut BytesMut,
    limits: &HeadLimits,
) -> Result<Option<RequestHead>, HeadError> {
    // Reject TLS handshakes and empty lines immediately.
    if buffer.first().is_some_and(|byte| !is_token_byte(*byte)) {
        return Err(HeadError::BadRequestLine);
    }
    let window = buffer.get(..limits.bytes).unwrap_or(buffer);
    if window.get(..MAX_LINE).is_some_and(|start| memchr(b'\n', start).is_none()) {
        return Err(HeadError::TargetTooLong { limit: MAX_TARGET });
    }
    let Some(lines) = split_head(buffer, limits)? else { return Ok(None) };
    let RequestLine { method, target, old } = RequestLine::read(lines.first())?;
    let headers = lines.headers()?;
    let target = std::str::from_utf8(headers.in_first_line(target));
    let target = target.map_err(|_| HeadError::BadTarget)?;
    headers.reject_duplicates(is_singleton)?;

    let sent = headers.find("host").ok_or(HeadError::NoHost)?;
    let host = std::str::from_utf8(sent).map_err(|_| HeadError::BadHost)?;
    if !is_authority(host) {
        return Err(HeadError::BadHost);
    }
    let host = host.to_ascii_lowercase();
    let (path, query) = origin(target, method, &host)?;
    let expects = match headers.find("expect") {
        None => false,
        Some(value) if value.eq_ignore_ascii_case(b"100-continue") => true,
        Some(_) => return Err(HeadError::UnknownExpectation),
    };
    let body = headers.body_length(old)?.unwrap_or(BodyLength::Empty);
    let keep_alive = !old && !headers.has_close_option();
    // HTTP/1.0 does not define `100 Continue`.
    let expects_continue = expects && !old;
    Ok(Some(RequestHead {
        method,
        path,
        query,
        headers,
        body,
        keep_alive,
        expects_continue,
        host,
        old,
    }))
}

struct RequestLine {
    method: Method,
    /// The range of the target in the line. The target is ASCII.
    target: Range<usize>,
    old: bool,
}

impl RequestLine {
    fn read(line: &[u8]) -> Result<RequestLine, HeadError> {
        let mut parts = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(HeadError::BadRequestLine);
        };
        if !is_token(method) || target.is_empty() {
            return Err(HeadError::BadRequestLine);
        }
        let old = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                return Err(HeadError::BadVersion);
            }
            _ => return Err(HeadError::BadRequestLine),
        };
        let start = method.len() + 1;
        let method = match method {
            b"GET" => Method::Get,
            b"POST" => Method::Post,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"HEAD" => Method::Head,
            b"CONNECT" => return Err(HeadError::Tunnel),
            _ => Method::Other,
        };
        if target.len() > MAX_TARGET {
            return Err(HeadError::TargetTooLong { limit: MAX_TARGET });
        }
        if !is_target(target) {
            return Err(HeadError::BadTarget);
        }
        Ok(RequestLine { method, target: start..start + target.len(), old })
    }
}

/// Splits a target into path and query.
///
/// A target in absolute form must have the same authority as `Host`. Otherwise two checks that look
/// at different ones could disagree.
fn origin(target: &str, method: Method, host: &str) -> Result<(String, Option<String>), HeadError> {
    if target == "*" && method == Method::Options {
        return Ok((target.to_string(), None));
    }
    let target = if target.starts_with('/') {
        target
    } else {
        let rest = ["http://", "https://"].iter().find_map(|scheme| {
            let (start, rest) = target.split_at_checked(scheme.len())?;
            start.eq_ignore_ascii_case(scheme).then_some(rest)
        });
        let rest = rest.ok_or(HeadError::BadTarget)?;
        let slash = rest.find('/').ok_or(HeadError::BadTarget)?;
        let (authority, path) = rest.split_at(slash);
        if !authority.eq_ignore_ascii_case(host) {
            return Err(HeadError::HostDiffers);
        }
        path
    };
    Ok(match target.split_once('?') {
        Some((path, query)) => (path.to_string(), Some(query.to_string())),
        None => (target.to_string(), None),
    })
}

/// Whether a field may occur only once. With duplicates, parsers disagree about which one applies.
fn is_singleton(name: &[u8]) -> bool {
    const SINGLETONS: [&str; 13] = [
        "host",
        "content-length",
        "transfer-encoding",
        "authorization",
        "content-type",
        "content-encoding",
        "origin",
        "mcp-session-id",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "last-event-id",
        "expect",
    ];
    let start = name.get(..PARAM_PREFIX.len()).unwrap_or_default();
    start.eq_ignore_ascii_case(PARAM_PREFIX.as_bytes())
        || SINGLETONS.iter().any(|alone| name.eq_ignore_ascii_case(alone.as_bytes()))
}
