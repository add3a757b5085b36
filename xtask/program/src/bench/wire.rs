//! A client of the gateway that sends one request at a time, and reads event streams.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use toolward_testkit::echo::{LEGACY, MODERN};
use toolward_testkit::http::{Frame, frame};

use super::Result;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The endpoint of a gateway, and the credentials for it.
#[derive(Clone)]
pub(super) struct Endpoint {
    authority: String,
    token: String,
    /// The session of a legacy client.
    session: Option<String>,
}

/// A connection on which requests are sent one after the other.
pub(super) struct Wire {
    stream: TcpStream,
    endpoint: Endpoint,
    next: u64,
}

impl Endpoint {
    pub(super) fn new(url: &str, token: &str) -> Endpoint {
        let authority = url.trim_start_matches("http://").trim_end_matches("/mcp").into();
        Endpoint { authority, token: token.into(), session: None }
    }

    fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(&self.authority);
        let stream = stream.map_err(|error| format!("{}: {error}", self.authority))?;
        let set = stream.set_nodelay(true).and(stream.set_read_timeout(Some(RESPONSE_TIMEOUT)));
        set.map(|()| stream).map_err(|error| error.to_string())
    }

    pub(super) fn open(&self) -> Result<Wire> {
        Ok(Wire { stream: self.connect()?, endpoint: self.clone(), next: 1 })
    }

    /// The head of a request.
    fn head(&self, method: &str, fields: &str) -> String {
        let Endpoint { authority, token, session } = self;
        let session = match session {
            Some(id) => format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: {}\r\n", LEGACY[0]),
            None => String::new(),
        };
        format!(
            "{method} /mcp HTTP/1.1\r\nHost: {authority}\r\nAuthorization: Bearer {token}\r\n\
             Accept: application/json, text/event-stream\r\n{session}{fields}\r\n"
        )
    }

    fn post(&self, body: &Value, modern: bool) -> String {
        let mut fields = String::from("Content-Type: application/json\r\n");
        if modern {
            let method = body["method"].as_str().unwrap_or_default();
            fields += &format!("MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n");
            if let Some(name) = body["params"]["name"].as_str() {
                fields += &format!("Mcp-Name: {name}\r\n");
            }
        }
        let body = body.to_string();
        fields += &format!("Content-Length: {}\r\n", body.len());
        self.head("POST", &fields) + &body
    }

    /// Starts a legacy session.
    pub(super) fn begin_session(mut self) -> Result<Endpoint> {
        let mut wire = self.open()?;
        let client = json!({"name": "bench", "version": "1"});
        let params = json!({
            "protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": client,
        });
        let (head, _) = wire.exchange("initialize", params, false)?;
        let field = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("mcp-session-id").then(|| value.to_string())
        });
        self.session = Some(field.ok_or("the gateway starts no session")?);
        let mut wire = self.open()?;
        wire.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}), false)?;
        wire.response()?;
        Ok(self)
    }

    /// The event stream of a legacy session.
    pub(super) fn events(&self) -> Result<TcpStream> {
        let mut stream = self.connect()?;
        let sent = stream.write_all(self.head("GET", "").as_bytes());
        sent.map(|()| stream).map_err(|error| error.to_string())
    }

    /// The event stream that is the response to a modern request.
    pub(super) fn stream(&self, method: &str, params: Value) -> Result<TcpStream> {
        let mut wire = self.open()?;
        let body = modern_body(1, method, params);
        wire.send(&body, true)?;
        Ok(wire.stream)
    }
}

impl Wire {
    /// The result of a legacy request.
    pub(super) fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        result(self.exchange(method, params, false)?.1)
    }

    /// The result of a modern request.
    pub(super) fn ask_modern(&mut self, method: &str, params: Value) -> Result<Value> {
        result(self.exchange(method, params, true)?.1)
    }

    fn exchange(&mut self, method: &str, params: Value, modern: bool) -> Result<(String, Value)> {
        self.next += 1;
        let body = match modern {
            true => modern_body(self.next, method, params),
            false => {
                json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params})
            }
        };
        self.send(&body, modern)?;
        let (head, body) = self.response()?;
        // An event stream has the response in its last event.
        let text = String::from_utf8_lossy(&body);
        let data = text.lines().rev().find_map(|line| line.strip_prefix("data: "));
        let message = data.unwrap_or(&text);
        let message = serde_json::from_str(message);
        let message = message.map_err(|error| format!("{method}: {head} {text}: {error}"))?;
        Ok((head, message))
    }

    fn send(&mut self, body: &Value, modern: bool) -> Result<()> {
        let request = self.endpoint.post(body, modern);
        self.stream.write_all(request.as_bytes()).map_err(|error| error.to_string())
    }

    /// The head and the body of the next response.
    fn response(&mut self) -> Result<(String, Vec<u8>)> {
        let (mut bytes, mut piece) = (Vec::new(), [0; 16 << 10]);
        loop {
            if let Frame::Whole(layout) = frame(&bytes).map_err(|error| error.to_string())? {
                let end = bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap_or(0);
                let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
                let mut joined = Vec::new();
                let body = layout.message(&bytes, &mut joined).body.to_vec();
                return Ok((head, body));
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return Err("the gateway closes the connection".into()),
                Ok(read) => bytes.extend_from_slice(&piece[..read]),
                Err(error) => return Err(format!("no response: {error}")),
            }
        }
    }
}

fn result(mut message: Value) -> Result<Value> {
    match message.get("result") {
        Some(_) => Ok(message["result"].take()),
        None => Err(format!("no result: {message}")),
    }
}

fn modern_body(id: u64, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    });
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}
