//! The heads of responses, from servers further up.

use bytes::BytesMut;

use super::body::BodyLength;
use super::error::HeadError;
use super::head::{HeadLimits, Headers, cut};

/// The head of a response. The response to a `HEAD` request has no body, whatever its head says.
#[derive(Debug, Clone)]
pub struct ResponseHead {
    pub status: u16,
    pub headers: Headers,
    pub body: BodyLength,
    /// Whether the connection can be used again once the body is read.
    pub keep_alive: bool,
}

/// Reads a response's head and takes it from the buffer; `None` while more bytes are needed.
/// Interim responses before it are passed over.
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
        let Some(lines) = cut(buffer, limits)? else { return Ok(None) };
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
    let said = headers.body_length(old)?;
    let body = match status {
        204 | 304 => BodyLength::Empty,
        _ => said.unwrap_or(BodyLength::UntilClose),
    };
    // A server that announces a body where none can be may send it all the same.
    let confused = status == 204 && !matches!(said, None | Some(BodyLength::Known(0)));
    let keep_alive =
        !old && !confused && body != BodyLength::UntilClose && !headers.has_close_option();
    Ok(ResponseHead { status, headers, body, keep_alive })
}

/// `HTTP/1.1 200 OK`. The reason is any text; servers that have none often leave out the space too.
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

/// Fields of which a second one could be read instead of the first.
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
