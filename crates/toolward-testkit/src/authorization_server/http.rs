//! HTTP for the authorization server and the protected server: whole requests and responses.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::http::Connection;

/// The members of a query or a form. Of a member that is repeated, the last one counts.
pub type Form = BTreeMap<String, String>;

/// One request, and the status of its response.
#[derive(Debug, Clone, Default)]
pub struct Exchanged {
    pub method: String,
    /// The path without the query.
    pub path: String,
    pub query: Form,
    /// Header names in lower case.
    pub fields: BTreeMap<String, String>,
    pub body: String,
    /// The status of the response; 0 without a response.
    pub status: u16,
}

impl Exchanged {
    /// The body as a form.
    pub fn form(&self) -> Form {
        form(&self.body)
    }

    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({"method": self.method, "path": self.path, "query": self.query,
            "fields": self.fields, "body": self.body, "status": self.status})
    }
}

pub(super) struct Response {
    pub(super) status: u16,
    /// Complete header lines.
    pub(super) fields: String,
    pub(super) body: Vec<u8>,
}

impl Response {
    pub(super) fn empty(status: u16) -> Response {
        Response { status, fields: String::new(), body: Vec::new() }
    }

    pub(super) fn json(status: u16, value: &Value) -> Response {
        let fields = "Content-Type: application/json\r\nCache-Control: no-store\r\n".into();
        Response { status, fields, body: value.to_string().into_bytes() }
    }

    pub(super) fn html(body: String) -> Response {
        let fields = "Content-Type: text/html; charset=utf-8\r\n".into();
        Response { status: 200, fields, body: body.into_bytes() }
    }

    pub(super) fn redirect(to: &str) -> Response {
        Response { status: 302, fields: format!("Location: {to}\r\n"), body: Vec::new() }
    }

    /// An error of RFC 6749.
    pub(super) fn error(status: u16, error: &str, description: &str) -> Response {
        Response::json(status, &json!({"error": error, "error_description": description}))
    }

    fn bytes(&self) -> Vec<u8> {
        let (status, length) = (self.status, self.body.len());
        let head =
            format!("HTTP/1.1 {status} X\r\n{}Content-Length: {length}\r\n\r\n", self.fields);
        [head.as_bytes(), &self.body].concat()
    }
}

/// Responds to requests. `None` closes the connection.
pub(super) trait Service: Send + Sync + 'static {
    fn respond(&self, request: &Exchanged) -> impl Future<Output = Option<Response>> + Send;
    /// Called after the response is determined and before it is sent.
    fn record(&self, exchanged: Exchanged);
}

/// A thread that serves until the handle is dropped.
pub(super) struct Thread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(super) fn bind(listen: SocketAddr) -> io::Result<(TcpListener, String)> {
    let listener = TcpListener::bind(listen)?;
    let url = format!("http://{}", listener.local_addr()?);
    Ok((listener, url))
}

pub(super) fn start<S: Service>(listener: TcpListener, service: Arc<S>) -> io::Result<Thread> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = accept(listener, service) => {}
                _ = stopped => {}
            }
        });
    });
    Ok(Thread { stop: Some(stop), thread: Some(thread) })
}

async fn accept<S: Service>(listener: TcpListener, service: Arc<S>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = service.clone();
        tokio::spawn(async move {
            // A client that disconnects in the middle of a message is not an error.
            let _ = converse(stream, &*service).await;
        });
    }
}

async fn converse<S: Service>(stream: TcpStream, service: &S) -> io::Result<()> {
    let mut connection = Connection::new(stream);
    while let Some(message) = connection.receive().await? {
        let closes = message.closes();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let line = text(message.line);
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let fields = message.fields();
        let mut request = Exchanged {
            method: method.into(),
            path: path.into(),
            query: form(query),
            fields: fields.map(|(n, v)| (text(n).to_ascii_lowercase(), text(v))).collect(),
            body: text(message.body),
            status: 0,
        };
        let response = service.respond(&request).await;
        request.status = response.as_ref().map_or(0, |response| response.status);
        service.record(request);
        let Some(response) = response else { break };
        connection.send(&response.bytes()).await?;
        if closes {
            break;
        }
    }
    Ok(())
}

/// Fetches a document over plain HTTP.
pub(super) async fn get(url: &str) -> io::Result<Value> {
    let rest = url.strip_prefix("http://").ok_or(io::ErrorKind::Unsupported)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut connection = Connection::new(TcpStream::connect(authority).await?);
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    connection.send(request.as_bytes()).await?;
    let response = connection.receive().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    match response.status() {
        Some(200) => Ok(serde_json::from_slice(response.body)?),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Parses a query or a form. Invalid escape sequences are kept.
pub fn form(text: &str) -> Form {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (byte, escaped) {
            (b'%', Some(value)) => {
                out.push(value);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(*byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Percent-encodes everything but unreserved characters.
pub fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => {
                out.push(byte.into());
            }
            other => out += &format!("%{other:02X}"),
        }
        out
    })
}

/// Escapes text for HTML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
