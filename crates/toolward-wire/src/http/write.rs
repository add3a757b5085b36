//! Serialization of heads and chunks.
//!
//! A field whose value contains a line end could inject fields. Such a head is not written at all.

use std::fmt;

use super::chars::{is_authority, is_target, is_token, is_value};
use crate::decimal::Digits;

/// A value that cannot be written into a head.
///
/// It is an error rather than sanitized, because the caller expects the value to arrive unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadField {
    /// The name of the field, or `method`, `target` or `status`.
    pub name: String,
}

impl BadField {
    fn new(name: &str) -> BadField {
        BadField { name: name.escape_debug().to_string() }
    }
}

impl fmt::Display for BadField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid value for `{}` in the head of a message", self.name)
    }
}

impl std::error::Error for BadField {}

/// Capacity for the parts of a head that do not depend on its fields, in bytes.
const FIXED_HEAD_BYTES: usize = 128;

/// The body that follows the head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseBody {
    Empty,
    Length(usize),
    Chunked,
    UntilClose,
}

/// Appends the head of a response.
///
/// The headers that determine the length of the body are added here and must not be in `fields`.
/// Interim responses, 204 and 304 have no body, regardless of `body`. On an error, nothing is
/// appended.
pub fn write_response(
    out: &mut Vec<u8>,
    status: u16,
    fields: &[(&str, &str)],
    body: ResponseBody,
    keep_alive: bool,
) -> Result<(), BadField> {
    if !(100..600).contains(&status) {
        return Err(BadField::new("status"));
    }
    check(fields)?;
    out.reserve(FIXED_HEAD_BYTES + length(fields));
    if status == 200 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(Digits::of(status.into()).bytes());
        out.push(b' ');
        out.extend_from_slice(reason(status).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    write_fields(fields, out);
    match body {
        _ if matches!(status, 100..200 | 204 | 304) => {}
        ResponseBody::Empty => write_length(0, out),
        ResponseBody::Length(length) => write_length(length, out),
        ResponseBody::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        ResponseBody::UntilClose => {}
    }
    // A body that ends with the connection requires closing it.
    if !keep_alive || body == ResponseBody::UntilClose {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends the head of a request.
///
/// `body` is the length of the body, if there is one. On an error, nothing is appended.
pub fn write_request(
    out: &mut Vec<u8>,
    method: &str,
    target: &str,
    host: &str,
    fields: &[(&str, &str)],
    body: Option<usize>,
) -> Result<(), BadField> {
    if !is_token(method.as_bytes()) || method == "CONNECT" {
        return Err(BadField::new("method"));
    }
    if !target.starts_with('/') || !is_target(target.as_bytes()) {
        return Err(BadField::new("target"));
    }
    if !is_authority(host) || fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        return Err(BadField::new("host"));
    }
    check(fields)?;
    out.reserve(FIXED_HEAD_BYTES + method.len() + target.len() + host.len() + length(fields));
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(host.as_bytes());
    out.extend_from_slice(b"\r\n");
    write_fields(fields, out);
    if let Some(length) = body {
        write_length(length, out);
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends a chunk of a body. Empty data is skipped, because an empty chunk would end the body.
pub fn write_chunk(out: &mut Vec<u8>, data: &[u8]) {
    // A chunk size has at most eight digits.
    for data in data.chunks(0xffff_ffff) {
        out.reserve(data.len() + 12);
        out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
        out.extend_from_slice(data);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends the end of a chunked body.
pub fn write_last_chunk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}

fn check(fields: &[(&str, &str)]) -> Result<(), BadField> {
    for (name, value) in fields {
        // These headers are generated here, from the arguments.
        let reserved = match name.len() {
            10 => name.eq_ignore_ascii_case("connection"),
            14 => name.eq_ignore_ascii_case("content-length"),
            17 => name.eq_ignore_ascii_case("transfer-encoding"),
            _ => false,
        };
        if reserved || !is_value(value.as_bytes()) || !is_token(name.as_bytes()) {
            return Err(BadField::new(name));
        }
    }
    Ok(())
}

/// The length of the fields as lines.
fn length(fields: &[(&str, &str)]) -> usize {
    fields.iter().map(|(name, value)| name.len() + value.len() + 4).sum()
}

fn write_fields(fields: &[(&str, &str)], out: &mut Vec<u8>) {
    for (name, value) in fields {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

fn write_length(length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Content-Length: ");
    out.extend_from_slice(Digits::of(length as u64).bytes());
    out.extend_from_slice(b"\r\n");
}

fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}
