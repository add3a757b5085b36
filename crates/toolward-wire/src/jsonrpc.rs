//! JSON-RPC messages that the gateway builds itself.

use bytes::Bytes;

use crate::id::Id;
use crate::string;

/// Builds an error response.
///
/// Without an id, because the request had no valid one, `id` is null as JSON-RPC requires.
///
/// ```
/// use toolward_wire::jsonrpc::error_body;
/// use toolward_wire::{Id, code};
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

/// Builds a response with a result. `result` is the JSON of an object.
pub fn result_body(id: &Id, result: &[u8]) -> Bytes {
    let mut body = open(Some(id), b"\"result\":", result.len());
    body.extend_from_slice(result);
    body.push(b'}');
    body.into()
}

/// Builds a request or, without an id, a notification. `params` is the JSON of an object.
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

/// Starts a response, with room for `more` bytes.
fn open(id: Option<&Id>, part: &[u8], more: usize) -> Vec<u8> {
    let id = id.map_or(&b"null"[..], Id::raw);
    let mut body = Vec::with_capacity(80 + id.len() + more);
    body.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    body.extend_from_slice(id);
    body.push(b',');
    body.extend_from_slice(part);
    body
}
