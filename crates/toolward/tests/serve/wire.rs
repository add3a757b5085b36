//! A raw HTTP client: bytes are sent and received as they are.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use toolward_testkit::wait::TIMEOUT;

use crate::audit_log::witness::{answered, received};

pub struct Connection {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
    /// The current stream is chunked.
    chunked: bool,
    /// Bytes of events that have been read but not used.
    pending: String,
}

/// A response, or its head.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// An event of a stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Event {
    pub id: Option<String>,
    pub retry: Option<String>,
    pub data: String,
}

impl Event {
    pub fn json(&self) -> Value {
        let message = serde_json::from_str(&self.data).unwrap_or_else(|_| panic!("{self:?}"));
        received(&message);
        message
    }
}

impl Connection {
    pub fn open(port: u16) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Connection { stream, reader, chunked: false, pending: String::new() }
    }

    /// Sends as much as possible: a client that is rejected early need not send all of it.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        match self.reader.read_until(b'\n', &mut line) {
            Ok(1..) => Some(String::from_utf8(line).unwrap().trim_end().to_string()),
            Ok(_) => None,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no line: {error}"),
        }
    }

    /// The head of the next response; `None` if the connection was closed instead.
    pub fn try_head(&mut self) -> Option<Reply> {
        let first = self.line()?;
        let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("{first:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line().unwrap();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap();
            headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
        }
        if let Ok(peer) = self.stream.peer_addr() {
            answered(peer.port(), status);
        }
        let head = Reply { status, headers, body: Vec::new() };
        self.chunked = head.header("transfer-encoding") == Some("chunked");
        Some(head)
    }

    pub fn head(&mut self) -> Reply {
        self.try_head().unwrap_or_else(|| panic!("the connection was closed without an answer"))
    }

    pub fn try_reply(&mut self) -> Option<Reply> {
        let mut reply = self.try_head()?;
        if let Some(length) = reply.header("content-length") {
            let mut body = vec![0; length.parse().unwrap()];
            self.reader.read_exact(&mut body).unwrap();
            reply.body = body;
        } else if self.chunked {
            while let Some(chunk) = self.chunk() {
                reply.body.extend(chunk);
            }
        }
        Some(reply)
    }

    pub fn reply(&mut self) -> Reply {
        self.try_reply().unwrap_or_else(|| panic!("the connection was closed without an answer"))
    }

    fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.line()?, 16).unwrap();
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).ok()?;
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    /// The next event of a stream; `None` at its end.
    pub fn event(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.pending.split_once("\n\n") {
                let event = parse(event);
                self.pending = rest.into();
                match event {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            let chunk = self.chunk()?;
            self.pending.push_str(&String::from_utf8(chunk).unwrap().replace("\r\n", "\n"));
        }
    }

    /// Whether nothing arrives for a while.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        if !self.pending.is_empty() || !self.reader.buffer().is_empty() {
            return false;
        }
        self.stream.set_read_timeout(Some(time)).unwrap();
        let silent = matches!(
            self.reader.fill_buf(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
        );
        self.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        silent
    }

    /// Whether the peer closes without another byte.
    pub fn is_closed(&mut self) -> bool {
        match self.reader.fill_buf() {
            Ok(bytes) => bytes.is_empty(),
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

/// An event, unless it is only a comment.
fn parse(text: &str) -> Option<Event> {
    let mut event = Event::default();
    let mut data = Vec::new();
    let mut any = false;
    for line in text.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => {}
            "id" => event.id = Some(value.into()),
            "data" => data.push(value),
            "event" => assert_eq!(value, "message"),
            "retry" => event.retry = Some(value.into()),
            other => panic!("{other:?}"),
        }
        any |= !field.is_empty();
    }
    event.data = data.join("\n");
    any.then_some(event)
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(one, _)| one == name);
        let first = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} is there twice");
        first
    }

    /// All messages: the body, or the events of a stream.
    pub fn messages(&self) -> Vec<Value> {
        let body = std::str::from_utf8(&self.body).unwrap();
        if self.header("content-type") != Some("text/event-stream") {
            let message = serde_json::from_str(body).unwrap_or_else(|_| panic!("{self:?}"));
            received(&message);
            return vec![message];
        }
        let events = body.split("\n\n").filter_map(parse).filter(|event| !event.data.is_empty());
        events.map(|event| event.json()).collect()
    }

    /// The response, which comes last.
    pub fn json(&self) -> Value {
        self.messages().pop().unwrap_or_else(|| panic!("{self:?}"))
    }

    /// The code of the error in the body, or 0.
    pub fn code(&self) -> i64 {
        if self.body.is_empty() { 0 } else { self.json()["error"]["code"].as_i64().unwrap_or(0) }
    }
}
