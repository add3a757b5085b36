//! The gateway behind a bridge: its HTTP requests, the session, and the streams of responses.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use toolward_wire::headers::{self, ParamHeaders};
use toolward_wire::http::{BodyStream, Piece, ResponseHead};
use toolward_wire::jsonrpc::request_body;
use toolward_wire::sse::{SseDecoder, SseEvent};
use toolward_wire::{Era, Kind, Message, Raw, Sender};

use crate::http_client::{Address, Client, Connection};
use crate::lock::LockUnpoisoned;
use crate::parse::parse;
use crate::responses::{self, Outbound};

const SESSION_ID: &str = "Mcp-Session-Id";
/// The maximum size of a message of the gateway.
const MAX_MESSAGE_BYTES: usize = 256 << 20;
/// The timeout for messages that have no response.
const ONE_WAY_TIMEOUT: Duration = Duration::from_secs(10);
/// The delay before a stream is resumed, unless the gateway requests another one.
const RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// The maximum number of consecutive attempts to resume a stream.
const MAX_RESUME_ATTEMPTS: u32 = 5;

type Field = (String, String);

pub(super) struct Remote {
    address: Address,
    client: Client,
    /// `Authorization`, if there is a token.
    credential: Option<Field>,
    out: mpsc::Sender<Outbound>,
    session: Mutex<Option<Session>>,
    /// The task that follows the gateway's own messages in a session.
    follower: Mutex<Option<AbortHandle>>,
    /// Parameters that modern calls repeat in headers, by tool.
    param_headers: Mutex<HashMap<String, ParamHeaders>>,
}

/// A legacy session.
#[derive(Clone)]
struct Session {
    id: Option<String>,
    revision: String,
    /// The client's `initialize`, to begin again if the gateway no longer knows the session.
    initialize: Bytes,
}

/// Why a request has no response.
enum Failed {
    Io(io::Error),
    Status(u16),
    /// The gateway does not know the session.
    NoSession,
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Io(error)
    }
}

/// The gateway's response to a POST.
enum Reply {
    Json(Message),
    Events(Box<Events>),
    Accepted,
}

impl Remote {
    pub(super) fn new(
        address: Address,
        token: Option<String>,
        out: mpsc::Sender<Outbound>,
    ) -> Remote {
        let credential = token.map(|token| ("Authorization".into(), format!("Bearer {token}")));
        let client = Client::new(address.clone(), None);
        let (session, follower, param_headers) = Default::default();
        Remote { address, client, credential, out, session, follower, param_headers }
    }

    /// Sends a request of the client and passes on everything that belongs to its response.
    pub(super) async fn request(self: &Arc<Self>, message: &Message, era: Era) {
        let Some(id) = message.id().cloned() else { return };
        let answered = match era {
            Era::Modern => self.exchange(message, &self.mirrored(message)).await,
            Era::Legacy => match self.exchange(message, &[]).await {
                Err(Failed::NoSession) => match self.begin_again().await {
                    Ok(()) => self.exchange(message, &[]).await,
                    Err(failed) => Err(failed),
                },
                answered => answered,
            },
        };
        if let Err(failed) = answered {
            let (error, text, retryable) = self.explain(&failed);
            tracing::warn!(target: "bridge", "{text}");
            self.say(responses::internal(&id, error, &text, retryable).body).await;
        }
    }

    /// Sends a notification or a response of the client.
    pub(super) async fn tell(&self, message: &Message) {
        let sent = self.post(message.body(), &[]);
        match tokio::time::timeout(ONE_WAY_TIMEOUT, sent).await {
            Ok(Ok(_)) => {}
            Ok(Err(failed)) => tracing::warn!(target: "bridge", "{}", self.explain(&failed).1),
            Err(_) => tracing::warn!(target: "bridge", "the gateway does not respond"),
        }
    }

    /// Ends the session.
    pub(super) async fn end(&self) {
        if let Some(follower) = self.follower.locked().take() {
            follower.abort();
        }
        if self.session.locked().as_ref().is_some_and(|session| session.id.is_some()) {
            let _ = self.send("DELETE", &[], None).await;
        }
    }

    /// Sends a request and reads until its response.
    async fn exchange(self: &Arc<Self>, message: &Message, more: &[Field]) -> Result<(), Failed> {
        let (reply, session) = self.post(message.body(), more).await?;
        let mut last = None;
        let mut reply = reply;
        let mut attempts = 0;
        loop {
            match reply {
                Reply::Json(answer) => return self.answered(message, answer, session).await,
                Reply::Accepted => return Err(Failed::Status(202)),
                Reply::Events(mut events) => {
                    while let Some(event) = events.next().await.unwrap_or_default() {
                        attempts = 0;
                        if let Some(id) = event.id.clone() {
                            last = Some((id, event.retry.map(Duration::from_millis)));
                        }
                        if !event.is_message() {
                            continue;
                        }
                        let received = parse(event.data, MAX_MESSAGE_BYTES, Sender::Server).await;
                        let received =
                            received.map_err(|error| io::Error::other(error.to_string()))?;
                        if received.kind() != Kind::Request && received.id() == message.id() {
                            return self.answered(message, received, session).await;
                        }
                        self.say(received.into_body()).await;
                    }
                }
            }
            // The stream was cut: it is resumed after its last event, and the call is not sent again.
            let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
            let Some((event, delay)) = last.clone() else { return Err(cut().into()) };
            loop {
                attempts += 1;
                if attempts > MAX_RESUME_ATTEMPTS {
                    return Err(cut().into());
                }
                tokio::time::sleep(delay.unwrap_or(RETRY_DELAY).min(MAX_RETRY_DELAY)).await;
                let field = [("Last-Event-ID".into(), event.clone())];
                match self.get(&field).await {
                    Ok(events) => {
                        reply = Reply::Events(Box::new(events));
                        break;
                    }
                    // The gateway may be restarting.
                    Err(Failed::Io(_) | Failed::Status(429 | 500..)) => {}
                    Err(failed) => return Err(failed),
                }
            }
        }
    }

    /// Passes on the response to a request.
    async fn answered(
        self: &Arc<Self>,
        request: &Message,
        answer: Message,
        session: Option<String>,
    ) -> Result<(), Failed> {
        match request.method().as_deref() {
            Some("initialize") if answer.kind() == Kind::Response => {
                let revision = answer.result_member("protocolVersion").and_then(Raw::as_str);
                *self.session.locked() = Some(Session {
                    id: session,
                    revision: revision.unwrap_or_default().into_owned(),
                    initialize: request.body().clone(),
                });
                self.follow();
            }
            Some("tools/list") => self.remember_headers(&answer),
            _ => {}
        }
        self.say(answer.into_body()).await;
        Ok(())
    }

    /// Begins a new session as the client began the last one, without the client.
    async fn begin_again(self: &Arc<Self>) -> Result<(), Failed> {
        let Some(before) = self.session.locked().take() else { return Err(Failed::NoSession) };
        let (reply, id) = self.post(&before.initialize, &[]).await?;
        if let Reply::Events(mut events) = reply {
            while events.next().await?.is_some() {}
        }
        *self.session.locked() = Some(Session { id, ..before });
        let initialized = request_body(None, "notifications/initialized", None);
        self.post(&initialized, &[]).await?;
        self.follow();
        Ok(())
    }

    /// Follows the gateway's own messages of the session, such as `list_changed`.
    fn follow(self: &Arc<Self>) {
        if self.session.locked().as_ref().is_none_or(|session| session.id.is_none()) {
            return;
        }
        let remote = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            let mut last: Option<String> = None;
            while let Some(remote) = remote.upgrade() {
                let after = last.clone().map(|id| ("Last-Event-ID".to_owned(), id));
                match remote.get(after.as_slice()).await {
                    Ok(mut events) => {
                        while let Some(event) = events.next().await.unwrap_or_default() {
                            last = event.id.clone().or(last);
                            if event.is_message() {
                                remote.say(event.data).await;
                            }
                        }
                    }
                    Err(Failed::Io(_) | Failed::Status(429 | 500..)) => {}
                    // The gateway has no such stream.
                    Err(_) => return,
                }
                drop(remote);
                tokio::time::sleep(RETRY_DELAY).await;
            }
        });
        if let Some(before) = self.follower.locked().replace(task.abort_handle()) {
            before.abort();
        }
    }

    async fn post(&self, body: &[u8], more: &[Field]) -> Result<(Reply, Option<String>), Failed> {
        let (connection, head) = self.send("POST", more, Some(body)).await?;
        let session = head.headers.get(SESSION_ID).map(String::from);
        let kind = head.headers.get("content-type").unwrap_or_default();
        if head.status == 200 && kind.starts_with("text/event-stream") {
            return Ok((Reply::Events(Box::new(Events::new(connection, &head))), session));
        }
        let body = self.client.body(connection, &head, MAX_MESSAGE_BYTES).await?;
        match head.status {
            202 | 204 => return Ok((Reply::Accepted, session)),
            401 | 403 => return Err(Failed::Status(head.status)),
            404 if self.session.locked().as_ref().is_some_and(|session| session.id.is_some()) => {
                return Err(Failed::NoSession);
            }
            _ => {}
        }
        match parse(body, MAX_MESSAGE_BYTES, Sender::Server).await {
            // An error can have any status.
            Ok(message) if head.status == 200 || message.kind() == Kind::Error => {
                Ok((Reply::Json(message), session))
            }
            _ => Err(Failed::Status(head.status)),
        }
    }

    async fn get(&self, more: &[Field]) -> Result<Events, Failed> {
        let (connection, head) = self.send("GET", more, None).await?;
        match head.status {
            200 => Ok(Events::new(connection, &head)),
            status => Err(Failed::Status(status)),
        }
    }

    async fn send(
        &self,
        method: &str,
        more: &[Field],
        body: Option<&[u8]>,
    ) -> Result<(Connection, ResponseHead), Failed> {
        let accept = match method {
            "POST" => "application/json, text/event-stream",
            _ => "text/event-stream",
        };
        let session = self.session.locked().clone();
        let mut fields = vec![("Accept", accept), ("Accept-Encoding", "identity")];
        fields.extend(body.map(|_| ("Content-Type", "application/json")));
        fields.extend(self.credential.iter().chain(more).map(|(name, value)| (&**name, &**value)));
        // Modern requests bring their own version.
        if let Some(session) = session.as_ref().filter(|_| !is_mirrored(more)) {
            fields.push(("MCP-Protocol-Version", &session.revision));
            fields.extend(session.id.as_deref().map(|id| (SESSION_ID, id)));
        }
        let length = body.map(<[u8]>::len);
        let mut request = self.client.request(method, &self.address.target, &fields, length)?;
        request.extend_from_slice(body.unwrap_or_default());
        let mut connection = self.client.send(&request).await.map_err(io::Error::from)?;
        let head = connection.response().await?;
        Ok((connection, head))
    }

    /// The headers that mirror the body of a modern request.
    fn mirrored(&self, message: &Message) -> Vec<Field> {
        let Ok(row) = message.row(Sender::Client, Era::Modern) else {
            // The gateway reports the unknown method.
            let method = message.method().unwrap_or_default();
            return vec![(METHOD.into(), headers::encode(&method).into_owned())];
        };
        let standard = headers::standard(message, row).into_iter();
        let mut fields: Vec<Field> = standard.map(|(name, value)| (name.into(), value)).collect();
        if row.name == "tools/call"
            && let Ok(Some(tool)) = message.name(row.name_at)
            && let Some(of_tool) = self.param_headers.locked().get(&*tool)
        {
            fields.extend(of_tool.make(message.arguments()));
        }
        fields
    }

    /// Keeps the schemas' header declarations of listed tools: a client on stdio does not send headers.
    fn remember_headers(&self, list: &Message) {
        let tools = list.result_member("tools").map(|raw| serde_json::from_slice(raw.bytes()));
        let Some(Ok(Value::Array(tools))) = tools else { return };
        let mut known = self.param_headers.locked();
        for tool in &tools {
            let read = tool.get("inputSchema").map(ParamHeaders::read);
            if let (Some(name), Some(Ok(of_tool))) = (tool["name"].as_str(), read) {
                match of_tool.is_empty() {
                    true => drop(known.remove(name)),
                    false => drop(known.insert(name.into(), of_tool)),
                }
            }
        }
    }

    /// A failure as code, text and whether a retry can help.
    fn explain(&self, failed: &Failed) -> (&'static str, String, bool) {
        let at = &self.address.authority;
        match failed {
            Failed::Io(error) => {
                let text = format!("the gateway at {at} cannot be reached: {error}");
                ("gateway_unreachable", text, true)
            }
            Failed::Status(status @ (401 | 403)) => {
                let help = match self.credential {
                    Some(_) => "check the token in TOOLWARD_TOKEN",
                    None => "set TOOLWARD_TOKEN to a token of your agent",
                };
                let text = format!("the gateway at {at} rejects this client ({status}): {help}");
                ("not_authenticated", text, false)
            }
            Failed::Status(status) => {
                let text = format!(
                    "the gateway at {at} returned status {status} for {}: check the URL",
                    self.address.target
                );
                ("gateway_failed", text, *status >= 500)
            }
            Failed::NoSession => {
                let text = format!("the gateway at {at} has ended the session: restart the client");
                ("session_ended", text, false)
            }
        }
    }

    async fn say(&self, body: impl Into<responses::Body>) {
        let _ = self.out.send(Outbound { body: body.into(), room: None }).await;
    }
}

const METHOD: &str = "mcp-method";

fn is_mirrored(fields: &[Field]) -> bool {
    fields.iter().any(|(name, _)| name == METHOD)
}

/// A stream of events on one connection.
struct Events {
    connection: Connection,
    body: BodyStream,
    decoder: SseDecoder,
}

impl Events {
    fn new(connection: Connection, head: &ResponseHead) -> Events {
        let body = BodyStream::new(head.body);
        Events { connection, body, decoder: SseDecoder::new(MAX_MESSAGE_BYTES) }
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<SseEvent>> {
        loop {
            if let Some(event) = self.decoder.next_event() {
                return event.map(Some).map_err(|error| io::Error::other(error.to_string()));
            }
            match self.body.next(&mut self.connection.buffer) {
                Ok(Piece::Data(data)) => self.decoder.push(&data),
                Ok(Piece::End) => return Ok(None),
                Ok(Piece::NeedMore) => {
                    if !self.connection.read_more().await? {
                        return Ok(None);
                    }
                }
                Err(problem) => return Err(io::Error::other(problem.to_string())),
            }
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(follower) = self.follower.locked().take() {
            follower.abort();
        }
    }
}
