//! Parsing of response heads.

use bytes::BytesMut;

use super::body::BodyLength;
use super::error::HeadError;
use super::head::{HeadLimits, Headers, split_head};

/// The head of a response.
///
/// The response to a `HEAD` request has no body, regardless of its head.
#[derive(Debug, Clone)]
pub struct ResponseHead {
    pub status: u16,
    pub headers: Headers,
    pub body: BodyLength,
    /// Whether the connection can be reused after the body was read.
    pub keep_alive: bool,
}

/// Parses the head of a response and removes it from the buffer.
///
/// Returns `None` if the head is incomplete. Interim responses are skipped.
pub fn read_response(
    buffer: &mut BytesMut,
    limits: &HeadLimits,
) -> Result<Option<ResponseHead>, HeadError> {
    loop {
        const START: &[u8] = b"HTTP/1.";
        let start = buffer.get(..START.len()).unwrap_or(buffer);
        if !START.starts_with(start) {
            return Err(HeadError::BadStatusLine);
        }
        let Some(lines) = split_head(buffer, limits)? else { return Ok(None) };
        let (status, old) = status_line(lines.first())?;
        let headers = lines.headers()?;
        match status {
            101 => return Err(HeadError::SwitchedProtocols),
            100..200 => continue,
            _ => return finish(status, old, headers).map(Some),
        }
    }
}

fn finish(status: u16, old: bool, headers: Headers) -> Result<ResponseHead, HeadError> {
    headers.reject_duplicates(is_singleton)?;
    let declared = headers.body_length(old)?;
    let body = match status {
        204 | 304 => BodyLength::Empty,
        _ => declared.unwrap_or(BodyLength::UntilClose),
    };
    // A server that declares a body for a 204 may actually send it, so do not reuse the connection.
    let unexpected = status == 204 && !matches!(declared, None | Some(BodyLength::Known(0)));
    let keep_alive =
        !old && !unexpected && body != BodyLength::UntilClose && !headers.has_close_option();
    Ok(ResponseHead { status, headers, body, keep_alive })
}

/// Parses a status line such as `HTTP/1.1 200 OK`. Returns the status, and whether it is HTTP/1.0.
///
/// The reason is ignored. Servers without one often omit the space as well.
fn status_line(line: &[u8]) -> Result<(u16, bool), HeadError> {
    let old = match line.get(..8) {
        Some(b"HTTP/1.1") => false,
        Some(b"HTTP/1.0") => true,
        _ => return Err(HeadError::BadStatusLine),
    };
    let (digits, rest) = match line.get(8..) {
        Some([b' ', a, b, c, rest @ ..]) => ([a, b, c], rest),
        _ => return Err(HeadError::BadStatusLine),
    };
    if !matches!(rest, [] | [b' ', ..]) || !digits.iter().all(|digit| digit.is_ascii_digit()) {
        return Err(HeadError::BadStatusLine);
    }
    let status = digits.iter().fold(0, |status, digit| status * 10 + u16::from(**digit - b'0'));
    match status {
        100..600 => Ok((status, old)),
        _ => Err(HeadError::BadStatusLine),
    }
}

/// Whether a field may occur only once. With duplicates, parsers disagree about which one applies.
fn is_singleton(name: &[u8]) -> bool {
    const SINGLETONS: [&str; 6] = [
        "content-length",
        "transfer-encoding",
        "content-type",
        "content-encoding",
        "mcp-session-id",
        "location",
    ];
    SINGLETONS.iter().any(|alone| name.eq_ignore_ascii_case(alone.as_bytes()))
}
