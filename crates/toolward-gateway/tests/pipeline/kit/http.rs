//! HTTP/1.1 by hand, over an in-memory stream.

use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use toolward_gateway::downstream::http::Endpoint;
use toolward_gateway::downstream::in_memory;

/// A response.
pub struct Reply {
    pub status: u16,
    pub session: Option<String>,
    body: String,
}

impl Reply {
    /// All messages in the response: one, or those of an event stream.
    pub fn messages(&self) -> Vec<Value> {
        let lines = self.body.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
        lines.filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object).collect()
    }
}

/// A connection with the beginning of a request that was not sent completely.
pub struct HalfSent {
    stream: DuplexStream,
    rest: Vec<u8>,
}

/// Sends the head of a request, and keeps its body back.
pub async fn send_head(
    endpoint: &Arc<Endpoint>,
    headers: &[(&str, &str)],
    message: &Value,
) -> HalfSent {
    let (mut stream, theirs) = tokio::io::duplex(64 << 10);
    let endpoint = endpoint.clone();
    tokio::spawn(async move { in_memory::serve(endpoint, theirs).await });
    let body = message.to_string();
    let mut head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    HalfSent { stream, rest: body.into_bytes() }
}

impl HalfSent {
    /// Sends the rest, and reads the response to its end.
    pub async fn finish(self) -> Reply {
        self.finish_with(|_| {}).await
    }

    /// The same, with each message of an event stream as it arrives.
    pub async fn finish_with(mut self, mut on_message: impl FnMut(&Value)) -> Reply {
        // A server that has refused the request may have closed the connection.
        let _ = self.stream.write_all(&self.rest).await;
        let (mut bytes, mut seen) = (Vec::new(), 0);
        while self.stream.read_buf(&mut bytes).await.unwrap() > 0 {
            let text = String::from_utf8_lossy(&bytes);
            let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
            let messages: Vec<Value> =
                events.filter_map(|event| serde_json::from_str(event).ok()).collect();
            messages.iter().skip(seen).for_each(&mut on_message);
            seen = messages.len();
        }
        parse(&String::from_utf8(bytes).unwrap())
    }
}

fn parse(text: &str) -> Reply {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let field = |wanted: &str| {
        head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case(wanted).then(|| value.to_string())
        })
    };
    let chunked = field("transfer-encoding").is_some();
    let body = if chunked { unchunked(body) } else { body.to_string() };
    Reply { status, session: field("mcp-session-id"), body }
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        body += &after[..size];
        rest = &after[size + 2..];
    }
    body
}
