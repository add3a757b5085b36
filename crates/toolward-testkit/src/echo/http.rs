//! The echo server over Streamable HTTP, at `/mcp`.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::{MODERN, Outcome, RequestKind, Server, error};
use crate::http::{Connection, Frame, Message, frame};
use crate::json::{member, string};

/// The error code for headers that do not match the body.
const HEADER_MISMATCH: i32 = -32020;

/// A server that runs on its own thread until the handle is dropped.
pub struct ServerHandle {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a server on a free loopback port.
pub fn start(server: Server) -> io::Result<ServerHandle> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = serve(listener, server) => {}
                _ = stopped => {}
            }
        });
    });
    Ok(ServerHandle { address, stop: Some(stop), thread: Some(thread) })
}

impl ServerHandle {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Accepts and serves connections until accepting fails.
pub async fn serve(listener: TcpListener, server: Server) -> io::Result<Infallible> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let server = Arc::new(server);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let server = server.clone();
        tokio::spawn(async move {
            // A client that disconnects in the middle of a message is not an error.
            let _ = converse(stream, &server).await;
        });
    }
}

async fn converse(stream: TcpStream, server: &Server) -> io::Result<()> {
    let mut connection = Connection::new(stream);
    let (mut body, mut out) = (Vec::new(), Vec::new());
    while let Some(request) = connection.receive().await? {
        body.clear();
        out.clear();
        let closes = request.closes();
        if server.asks(&request) {
            connection.send(question().as_bytes()).await?;
            // The client of this server ends the call by closing the connection.
            connection.receive().await?;
            break;
        }
        server.respond(&request, &mut body, &mut out);
        connection.send(&out).await?;
        if closes {
            break;
        }
    }
    Ok(())
}

/// The headers that the server evaluates.
#[derive(Default)]
struct RelevantHeaders<'a> {
    version: Option<&'a [u8]>,
    method: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
    session: Option<&'a [u8]>,
}

impl<'a> RelevantHeaders<'a> {
    fn read(request: &Message<'a>) -> RelevantHeaders<'a> {
        let mut given = RelevantHeaders::default();
        for (name, value) in request.fields() {
            let place = match name.len() {
                8 if name.eq_ignore_ascii_case(b"mcp-name") => &mut given.name,
                10 if name.eq_ignore_ascii_case(b"mcp-method") => &mut given.method,
                14 if name.eq_ignore_ascii_case(b"mcp-session-id") => &mut given.session,
                20 if name.eq_ignore_ascii_case(b"mcp-protocol-version") => &mut given.version,
                _ => continue,
            };
            *place = Some(value);
        }
        given
    }
}

impl Server {
    /// Whether a request is a call of the tool `ask`.
    fn asks(&self, request: &Message<'_>) -> bool {
        let params = member(request.body, "params").unwrap_or_default();
        self.others.is_some()
            && string(request.body, "method") == Some(b"tools/call")
            && string(params, "name") == Some(b"ask")
    }

    /// The status, header lines and body of the response to a request at `/mcp`, for servers that
    /// put something in front of this one.
    pub(crate) fn exchange<'a>(
        &self,
        method: &str,
        fields: impl Iterator<Item = (&'a str, &'a str)>,
        body: &str,
    ) -> io::Result<(u16, String, Vec<u8>)> {
        let mut text = format!("{method} /mcp HTTP/1.1\r\n");
        for (name, value) in fields.filter(|(name, _)| *name != "content-length") {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        let (mut room, mut scratch, mut out) = (Vec::new(), Vec::new(), Vec::new());
        let incomplete = || io::Error::from(io::ErrorKind::InvalidData);
        let Frame::Whole(layout) = frame(text.as_bytes())? else { return Err(incomplete()) };
        self.respond(&layout.message(text.as_bytes(), &mut room), &mut scratch, &mut out);
        let Frame::Whole(layout) = frame(&out)? else { return Err(incomplete()) };
        let response = layout.message(&out, &mut room);
        let lines = response.fields().filter(|(name, _)| *name != b"Content-Length");
        let lines = lines.map(|(name, value)| {
            format!("{}: {}\r\n", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
        });
        Ok((response.status().unwrap_or(500), lines.collect(), response.body.to_vec()))
    }

    /// Writes the response to a request. `body` is scratch space.
    fn respond(&self, request: &Message<'_>, body: &mut Vec<u8>, out: &mut Vec<u8>) {
        let mut words = request.line.split(|byte| *byte == b' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if path != b"/mcp" {
            return write(out, 404, "", b"");
        }
        let given = RelevantHeaders::read(request);
        match method {
            b"POST" => {}
            b"DELETE" => {
                let ended = given.session.is_some_and(|id| self.end_session(id));
                return write(out, if ended { 200 } else { 404 }, "", b"");
            }
            _ => return write(out, 405, "Allow: POST, DELETE\r\n", b""),
        }
        let (asked, answered) = self.answer(request.body, body);
        let mut fields = String::new();
        let status = match (asked, answered) {
            (RequestKind::Modern { method, name }, answered) => {
                if (given.version, given.method, given.name)
                    != (Some(MODERN.as_bytes()), Some(method), name)
                {
                    body.clear();
                    error(body, b"null", HEADER_MISMATCH, "the headers do not match the body");
                    return write(out, 400, JSON, body);
                }
                match answered {
                    Outcome::Nothing => 202,
                    Outcome::Result => 200,
                    Outcome::Error(status) => status,
                }
            }
            (RequestKind::Initialize, _) => {
                fields = format!("Mcp-Session-Id: {}\r\n", self.begin_session());
                200
            }
            (RequestKind::Legacy, answered) => match given.session {
                None => return write(out, 400, "", b""),
                Some(id) if !self.has_session(id) => return write(out, 404, "", b""),
                Some(_) if answered == Outcome::Nothing => 202,
                Some(_) => 200,
            },
        };
        if status == 202 {
            write(out, status, "", b"");
        } else if self.sse && status == 200 {
            fields += "Content-Type: text/event-stream\r\n";
            stream(out, &fields, body);
        } else {
            fields += JSON;
            write(out, status, &fields, body);
        }
    }
}

/// The beginning of an event stream, with a question to the client.
fn question() -> String {
    let question = json!({
        "jsonrpc": "2.0", "id": "question", "method": "elicitation/create",
        "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
    });
    let event = format!("data: {question}\n\n");
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked";
    format!("{head}\r\n\r\n{:x}\r\n{event}\r\n", event.len())
}

const JSON: &str = "Content-Type: application/json\r\n";

fn write(out: &mut Vec<u8>, status: u16, fields: &str, body: &[u8]) {
    let line: &[u8] = match status {
        200 => b"HTTP/1.1 200 OK\r\n",
        202 => b"HTTP/1.1 202 Accepted\r\n",
        400 => b"HTTP/1.1 400 Bad Request\r\n",
        404 => b"HTTP/1.1 404 Not Found\r\n",
        _ => b"HTTP/1.1 405 Method Not Allowed\r\n",
    };
    out.extend_from_slice(line);
    out.extend_from_slice(fields.as_bytes());
    out.extend_from_slice(b"Content-Length: ");
    out.extend_from_slice(body.len().to_string().as_bytes());
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(body);
}

/// Writes the response as an event stream with a single event.
fn stream(out: &mut Vec<u8>, fields: &str, body: &[u8]) {
    const BEFORE: &[u8] = b"event: message\ndata: ";
    const AFTER: &[u8] = b"\n\n";
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n");
    out.extend_from_slice(fields.as_bytes());
    let length = BEFORE.len() + body.len() + AFTER.len();
    out.extend_from_slice(format!("\r\n{length:x}\r\n").as_bytes());
    for part in [BEFORE, body, AFTER, b"\r\n0\r\n\r\n"] {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tools;
    use super::*;

    /// Status, session and body of a response.
    fn ask(server: &Server, line: &str, fields: &str, body: &str) -> (u16, Option<String>, String) {
        let length = body.len();
        let text = format!("{line} HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n{body}");
        let (mut room, mut out) = (Vec::new(), Vec::new());
        let Frame::Whole(layout) = frame(text.as_bytes()).unwrap() else { panic!("{text}") };
        let request = layout.message(text.as_bytes(), &mut room);
        server.respond(&request, &mut Vec::new(), &mut out);
        let Frame::Whole(layout) = frame(&out).unwrap() else { panic!("{out:?}") };
        assert_eq!(layout.total, out.len());
        let mut room = Vec::new();
        let response = layout.message(&out, &mut room);
        let words = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let session = response.field("mcp-session-id").map(words);
        (response.status().unwrap(), session, words(response.body))
    }

    const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    const LIST_FIELDS: &str = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n";

    #[test]
    fn headers_of_a_modern_request_must_match_the_body() {
        let server = Server::new(&tools(1, 0)).unwrap();
        assert_eq!(ask(&server, "POST /mcp", LIST_FIELDS, LIST).0, 200);
        for fields in [
            String::new(),
            LIST_FIELDS.replace("list", "call"),
            LIST_FIELDS.replace("2026", "2025"),
            format!("{LIST_FIELDS}Mcp-Name: echo\r\n"),
        ] {
            let (status, _, body) = ask(&server, "POST /mcp", &fields, LIST);
            assert_eq!((status, body.contains("-32020")), (400, true), "{fields}");
        }
    }

    #[test]
    fn a_legacy_client_needs_its_session_id() {
        let server = Server::new("[]").unwrap();
        let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
        let (status, session, _) = ask(&server, "POST /mcp", "", hello);
        let session = format!("Mcp-Session-Id: {}\r\n", session.unwrap());
        assert_eq!(status, 200);
        let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        assert_eq!(ask(&server, "POST /mcp", &session, ready), (202, None, String::new()));
        assert_eq!(ask(&server, "POST /mcp", &session, ping).0, 200);
        assert_eq!(ask(&server, "POST /mcp", "", ping).0, 400);
        assert_eq!(ask(&server, "POST /mcp", "Mcp-Session-Id: x\r\n", ping).0, 404);
        assert_eq!(ask(&server, "GET /mcp", &session, "").0, 405);
        assert_eq!(ask(&server, "DELETE /mcp", &session, "").0, 200);
        assert_eq!(ask(&server, "DELETE /mcp", &session, "").0, 404);
        assert_eq!(ask(&server, "POST /mcp", &session, ping).0, 404);
        assert_eq!(ask(&server, "POST /other", &session, ping).0, 404);
    }

    #[test]
    fn an_event_stream_contains_the_same_response() {
        let mut server = Server::new(&tools(1, 0)).unwrap();
        let (_, _, plain) = ask(&server, "POST /mcp", LIST_FIELDS, LIST);
        server.sse = true;
        let (status, _, events) = ask(&server, "POST /mcp", LIST_FIELDS, LIST);
        assert_eq!((status, events), (200, format!("event: message\ndata: {plain}\n\n")));
    }
}
