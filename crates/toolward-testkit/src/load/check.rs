//! Checks that a response is correct.

use memchr::{memchr, memmem};

use super::Kind;
use crate::http::Message;
use crate::json::member;

/// Minimum length of a list that is parsed only once. Later ones are recognized by length and id.
const MIN_KNOWN_BYTES: usize = 16 << 10;
/// Maximum distance of the id from either end of such a list.
const ID_WINDOW_BYTES: usize = 64;

/// Checks the responses on one connection.
#[derive(Debug)]
pub(super) struct Checker {
    kind: Kind,
    /// The length of the long list that was parsed.
    known: usize,
}

impl Checker {
    pub(super) fn new(kind: Kind) -> Checker {
        Checker { kind, known: 0 }
    }

    /// The JSON-RPC message in an HTTP response if it is correct, or a description of the error.
    pub(super) fn response<'a>(
        &mut self,
        response: &Message<'a>,
        digits: &[u8],
    ) -> Result<&'a [u8], String> {
        let body = response.body;
        if response.status() != Some(200) {
            return Err(format!("{}: {}", text(response.line), text(body)));
        }
        let events = response
            .field("content-type")
            .is_some_and(|value| value.starts_with(b"text/event-stream"));
        let answer = match events {
            false => body,
            true => event(body, digits).ok_or_else(|| format!("no response in {}", text(body)))?,
        };
        self.check(answer, digits).map(|()| answer)
    }

    /// Checks that a message is the correct response to the request with this number.
    pub(super) fn check(&mut self, answer: &[u8], digits: &[u8]) -> Result<(), String> {
        if answer.len() == self.known && near_an_end(answer, digits) {
            return Ok(());
        }
        let wrong = |why: &str| Err(format!("{why}: {}", text(answer)));
        if member(answer, "id") != Some(digits) {
            return wrong("unexpected id");
        }
        let Some(result) = member(answer, "result") else { return wrong("no result") };
        let right = match self.kind {
            Kind::Call => {
                member(result, "isError") != Some(b"true")
                    && member(result, "content")
                        .is_some_and(|content| memmem::find(content, digits).is_some())
            }
            Kind::Prompt => member(result, "messages")
                .is_some_and(|messages| memmem::find(messages, digits).is_some()),
            Kind::List => member(result, "tools").is_some_and(|tools| tools.starts_with(b"[{")),
            Kind::Read => member(result, "contents").is_some_and(|parts| parts.starts_with(b"[{")),
            Kind::Resources => {
                member(result, "resources").is_some_and(|entries| entries.starts_with(b"[{"))
            }
        };
        if !right {
            return wrong("unexpected result");
        }
        if matches!(self.kind, Kind::List | Kind::Resources) && answer.len() > MIN_KNOWN_BYTES {
            self.known = answer.len();
        }
        Ok(())
    }
}

/// The data of the event with the response to the request with this id.
fn event<'a>(stream: &'a [u8], digits: &[u8]) -> Option<&'a [u8]> {
    let mut rest = stream;
    while !rest.is_empty() {
        let end = memchr(b'\n', rest).unwrap_or(rest.len());
        let line = rest[..end].trim_ascii_end();
        rest = rest.get(end + 1..).unwrap_or_default();
        if let Some(data) = line.strip_prefix(b"data:")
            && member(data, "id") == Some(digits)
            && member(data, "method").is_none()
        {
            return Some(data.trim_ascii_start());
        }
    }
    None
}

fn near_an_end(answer: &[u8], digits: &[u8]) -> bool {
    let near = ID_WINDOW_BYTES.min(answer.len());
    memmem::find(&answer[..near], digits).is_some()
        || memmem::find(&answer[answer.len() - near..], digits).is_some()
}

/// The start of `bytes` as text, for error messages.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Frame, frame};

    const ID: &[u8] = b"1000000007";
    const RIGHT: &str = r#"{"jsonrpc":"2.0","id":1000000007,"result":{"content":[{"type":"text","text":"{\"number\":1000000007}"}]}}"#;

    fn check(kind: Kind, answer: &str) -> bool {
        Checker::new(kind).check(answer.as_bytes(), ID).is_ok()
    }

    #[test]
    fn the_response_to_a_call_has_its_id_and_argument() {
        assert!(check(Kind::Call, RIGHT));
        for wrong in [
            RIGHT.replacen("7", "8", 1),
            RIGHT.replace(":1000000007}", ":1000000008}"),
            RIGHT.replace("result", "error"),
            RIGHT.replace("\"content\"", "\"isError\":true,\"content\""),
            String::new(),
        ] {
            assert!(!check(Kind::Call, &wrong), "{wrong}");
        }
    }

    #[test]
    fn the_response_to_a_list_has_its_id_and_tools() {
        assert!(check(Kind::List, r#"{"id":1000000007,"result":{"tools":[{"name":"a"}]}}"#));
        assert!(!check(Kind::List, r#"{"id":1000000007,"result":{"tools":[]}}"#));
        assert!(!check(Kind::List, RIGHT));
    }

    #[test]
    fn a_long_list_is_recognized_by_id_and_length() {
        let description = "x".repeat(MIN_KNOWN_BYTES);
        let list =
            |id: &str| format!(r#"{{"id":{id},"result":{{"tools":[{{"d":"{description}"}}]}}}}"#);
        let mut checker = Checker::new(Kind::List);
        assert!(checker.check(list("1000000007").as_bytes(), ID).is_ok());
        assert!(checker.check(list("1000000008").as_bytes(), b"1000000008").is_ok());
        assert!(checker.check(list("1000000008").as_bytes(), ID).is_err());
    }

    #[test]
    fn a_response_is_found_among_events() {
        let events = format!(
            "id: 1\ndata:\n\nevent: message\ndata: {{\"method\":\"notifications/progress\"}}\n\ndata: {RIGHT}\n\n"
        );
        let response = |kind: &str, body: &str| {
            let length = body.len();
            let text = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            let Frame::Whole(layout) = frame(text.as_bytes()).unwrap() else { panic!() };
            let mut room = Vec::new();
            let message = layout.message(text.as_bytes(), &mut room);
            Checker::new(Kind::Call).response(&message, ID).map(<[u8]>::to_vec)
        };
        assert_eq!(response("text/event-stream", &events).unwrap(), RIGHT.as_bytes());
        assert_eq!(response("application/json", RIGHT).unwrap(), RIGHT.as_bytes());
        assert!(response("application/json", &events).is_err());
        assert!(response("text/event-stream", RIGHT).is_err());
    }
}
