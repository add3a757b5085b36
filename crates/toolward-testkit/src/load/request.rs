//! Requests that are serialized once. Only a number in them changes.

use memchr::memmem;
use serde_json::json;

use super::{Era, Kind, Target};
use crate::echo::{LEGACY, MODERN};

/// The first number. All numbers have ten digits, so the length of a request never changes.
pub(super) const FIRST: u64 = 1_000_000_000;

/// The default of the target's name: no cursor.
const FIRST_PAGE: &str = "echo";

/// A request with a replaceable number, used as its id and as the argument to be echoed.
#[derive(Debug, Clone)]
pub(super) struct Request {
    bytes: Vec<u8>,
    /// The offsets of the number.
    offsets: Vec<usize>,
    digits: [u8; 10],
}

impl Request {
    fn new(head: &str, body: &str) -> Request {
        let bytes = format!("{head}{body}").into_bytes();
        let digits = *b"1000000000";
        let offsets = memmem::find_iter(body.as_bytes(), &digits).map(|at| head.len() + at);
        Request { offsets: offsets.collect(), bytes, digits }
    }

    /// An HTTP request. A legacy one has a session id, if the session has started.
    pub(super) fn http(
        target: &Target,
        kind: Kind,
        era: Era,
        session: Option<&str>,
        closes: bool,
    ) -> Request {
        let mut fields = match era {
            Era::Legacy => format!("MCP-Protocol-Version: {}\r\n", LEGACY[0]),
            Era::Modern => {
                let mut fields =
                    format!("MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {}\r\n", method(kind));
                if matches!(kind, Kind::Call | Kind::Prompt | Kind::Read) {
                    fields += &format!("Mcp-Name: {}\r\n", target.tool);
                }
                fields
            }
        };
        if let Some(session) = session {
            fields += &format!("Mcp-Session-Id: {session}\r\n");
        }
        if closes {
            fields += "Connection: close\r\n";
        }
        let body = body(kind, era, &target.tool);
        Request::new(&head("POST", target, &fields, body.len()), &body)
    }

    /// A request on stdio.
    pub(super) fn line(tool: &str, kind: Kind, era: Era) -> Request {
        Request::new("", &format!("{}\n", body(kind, era, tool)))
    }

    /// Sets the number and returns the request.
    pub(super) fn number(&mut self, number: u64) -> &[u8] {
        let mut rest = FIRST + number % (9 * FIRST);
        for digit in self.digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        for offset in &self.offsets {
            self.bytes[*offset..*offset + self.digits.len()].copy_from_slice(&self.digits);
        }
        &self.bytes
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The digits of the current number.
    pub(super) fn digits(&self) -> &[u8] {
        &self.digits
    }
}

/// A head with the headers common to all requests.
pub(super) fn head(method: &str, target: &Target, fields: &str, length: usize) -> String {
    let Target { authority, path, token, .. } = target;
    let token = token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n"));
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{}{fields}Content-Length: {length}\r\n\r\n",
        token.unwrap_or_default()
    )
}

/// The two messages of the legacy handshake.
pub(super) fn handshake() -> [String; 2] {
    let params = json!({
        "protocolVersion": LEGACY[0],
        "capabilities": {},
        "clientInfo": info(),
    });
    [
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string(),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string(),
    ]
}

fn body(kind: Kind, era: Era, tool: &str) -> String {
    let mut params = json!({});
    let message = "The quick brown fox jumps over the lazy dog.";
    match kind {
        Kind::Call => {
            params["name"] = json!(tool);
            params["arguments"] = json!({"message": message, "number": FIRST});
        }
        // The arguments of a prompt are strings.
        Kind::Prompt => {
            params["name"] = json!(tool);
            params["arguments"] = json!({"message": message, "number": FIRST.to_string()});
        }
        Kind::Read => params["uri"] = json!(tool),
        Kind::Resources if tool != FIRST_PAGE => params["cursor"] = json!(tool),
        Kind::Resources | Kind::List => {}
    }
    if era == Era::Modern {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": info(),
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    json!({"jsonrpc": "2.0", "id": FIRST, "method": method(kind), "params": params}).to_string()
}

fn method(kind: Kind) -> &'static str {
    match kind {
        Kind::Call => "tools/call",
        Kind::List => "tools/list",
        Kind::Prompt => "prompts/get",
        Kind::Read => "resources/read",
        Kind::Resources => "resources/list",
    }
}

fn info() -> serde_json::Value {
    json!({"name": "testkit", "version": env!("CARGO_PKG_VERSION")})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Frame, frame};

    #[test]
    fn the_number_is_id_and_argument_and_keeps_the_length() {
        let mut target = Target::parse("http://127.0.0.1:1/mcp").unwrap();
        target.token = Some("1000000000".into());
        let mut request = Request::http(&target, Kind::Call, Era::Modern, None, false);
        for number in [0, 7, 123_456_789, 8_999_999_999] {
            let bytes = request.number(number).to_vec();
            let Frame::Whole(layout) = frame(&bytes).unwrap() else { panic!() };
            assert_eq!(layout.total, bytes.len());
            let mut room = Vec::new();
            let message = layout.message(&bytes, &mut room);
            let body: serde_json::Value = serde_json::from_slice(message.body).unwrap();
            assert_eq!(body["id"], FIRST + number);
            assert_eq!(body["params"]["arguments"]["number"], FIRST + number);
            assert_eq!(message.field("authorization"), Some(&b"Bearer 1000000000"[..]));
        }
    }
}
