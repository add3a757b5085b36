//! A client that reconnects when its connection is lost.

use std::io::{Error, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

use toolward_testkit::http::{Frame, frame};

pub(super) struct Client {
    port: u16,
    token: &'static str,
    stream: Option<TcpStream>,
}

impl Client {
    pub(super) fn new(port: u16, token: &'static str) -> Client {
        Client { port, token, stream: None }
    }

    /// Makes the next request use a new connection.
    pub(super) fn disconnect(&mut self) {
        self.stream = None;
    }

    /// Calls the tool `echo__echo`, with an id of its own. `true`: it was carried out.
    pub(super) fn call(&mut self, id: &str) -> Result<bool> {
        let body = body("tools/call", id, Some(("echo__echo", id)));
        let answer = self.ask("tools/call", Some("echo__echo"), &body)?;
        Ok(String::from_utf8_lossy(&answer).contains("\"result\""))
    }

    /// The current tool list, as sent.
    pub(super) fn list(&mut self) -> Result<String> {
        let answer = self.ask("tools/list", None, &body("tools/list", "l", None))?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Sends one request and reads its response. After an error, a new connection is used.
    fn ask(&mut self, method: &str, name: Option<&str>, body: &str) -> Result<Vec<u8>> {
        let name = name.map_or(String::new(), |name| format!("Mcp-Name: {name}\r\n"));
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\nContent-Type: \
             application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{name}Content-Length: \
             {}\r\n\r\n{body}",
            self.port,
            self.token,
            body.len()
        );
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(("127.0.0.1", self.port))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(Duration::from_secs(20)))?;
                stream
            }
        };
        stream.write_all(request.as_bytes())?;
        let mut read = Vec::new();
        let mut room = [0; 8192];
        let layout = loop {
            match stream.read(&mut room)? {
                0 => return Err(Error::other("the connection was closed")),
                count => read.extend_from_slice(room.get(..count).unwrap_or_default()),
            }
            if let Frame::Whole(layout) = frame(&read)? {
                break layout;
            }
        };
        let mut joined = Vec::new();
        let answer = layout.message(&read, &mut joined);
        // After `Connection: close`, the connection is not reused.
        if !answer.closes() {
            self.stream = Some(stream);
        }
        Ok(answer.body.to_vec())
    }
}

/// A request of the newest revision; a call has a tool and a text.
pub(super) fn body(method: &str, id: &str, call: Option<(&str, &str)>) -> String {
    let call = call.map_or(String::new(), |(tool, text)| {
        format!("\"name\":\"{tool}\",\"arguments\":{{\"text\":\"{text}\"}},")
    });
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"{id}\",\"method\":\"{method}\",\"params\":{{{call}\"_meta\":{{\
         \"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
         \"io.modelcontextprotocol/clientInfo\":{{\"name\":\"torture\",\"version\":\"1\"}},\
         \"io.modelcontextprotocol/clientCapabilities\":{{}}}}}}}}"
    )
}
