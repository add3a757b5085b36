//! The Streamable HTTP transport.
//!
//! A request is one POST; its response is JSON, or an event stream that ends with it. The task that
//! sends also reads, so that a call never moves between tasks.

mod call;
mod follow;
mod messages;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use toolward_wire::headers;
use toolward_wire::http::{BodyError, BodyLength, BodyReader, ResponseHead};
use toolward_wire::jsonrpc::request_body;
use toolward_wire::{Era, Id, Kind, Message, Raw, Revision, Sender};

pub(in crate::upstream) use self::call::Call;
use self::follow::Follower;
use self::messages::Messages;
use super::event_stream::Events;
use super::ids;
use super::line_transport::address;
use super::{Signal, Signals};
use crate::http_client::gzip::{Coding, Gunzip};
use crate::http_client::{Client, Connection, SendError};
use crate::metrics::lifecycle::Life;
use crate::parse::parse;
use crate::permit::Outgoing;
use crate::upstream::handshake::Opening;
use crate::upstream::remote::Remote;
use crate::upstream::size_limit::{Allowance, TooLarge};
use crate::upstream::{Server, Unavailable};

const SESSION_ID: &str = "Mcp-Session-Id";
/// The timeout for the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout for messages that have no response.
const ONE_WAY_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of messages other than the response, if the limit on responses is smaller.
const MIN_MESSAGE_LIMIT: usize = 1 << 20;

pub(in crate::upstream) struct HttpSession {
    name: String,
    remote: Remote,
    opening: Opening,
    revision: Revision,
    /// The maximum size of a response.
    longest: usize,
    signal: Signals,
    life: Arc<Life>,
    client: Client,
    /// Locked during a handshake: there is one at a time.
    greeted: Mutex<Option<Arc<HandshakeResult>>>,
    /// There was a handshake before.
    again: AtomicBool,
    /// The task that follows the server's own messages.
    follower: Follower,
    /// The server's latest response was a stream.
    streams: AtomicBool,
}

/// The result of a handshake.
struct HandshakeResult {
    hello: Message,
    session: Option<String>,
    /// The protocol version that the server chose.
    revision: String,
    /// The login that the session belongs to.
    login: Option<Arc<str>>,
}

/// The response to a POST.
enum Reply {
    Json(Message),
    Events(Box<Messages>),
    Accepted,
    /// The session has expired; the request was not processed.
    NoSession,
    /// A status without a readable response.
    Refused(u16),
}

/// Why a POST has no response.
struct PostError {
    error: io::Error,
    /// Some of the request may have reached the server.
    sent: bool,
}

impl PostError {
    fn unsent(error: io::Error) -> PostError {
        PostError { error, sent: false }
    }

    fn unavailable(&self) -> Unavailable {
        Unavailable::down(&self.error, self.to_string())
    }
}

impl From<io::Error> for PostError {
    fn from(error: io::Error) -> PostError {
        PostError { error, sent: true }
    }
}

impl From<SendError> for PostError {
    fn from(SendError { error, sent }: SendError) -> PostError {
        PostError { error, sent }
    }
}

impl std::fmt::Display for PostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&unreachable(&self.error))
    }
}

impl HttpSession {
    pub(in crate::upstream) fn new(
        server: &Server,
        remote: Remote,
        opening: Opening,
        revision: Revision,
        signal: Signals,
    ) -> Arc<HttpSession> {
        Arc::new(HttpSession {
            name: server.name().into(),
            client: remote.client(),
            remote,
            opening,
            revision,
            longest: server.definition.answer_bytes,
            signal,
            life: server.life.clone(),
            greeted: Mutex::default(),
            again: AtomicBool::new(false),
            follower: Follower::default(),
            streams: AtomicBool::new(false),
        })
    }

    fn era(&self) -> Era {
        self.revision.era()
    }

    pub(in crate::upstream) fn signals(&self) -> &Signals {
        &self.signal
    }

    /// Whether the server responds with streams, by its latest response.
    pub(in crate::upstream) fn streams(&self) -> bool {
        self.streams.load(Ordering::Relaxed)
    }

    fn responds_with_stream(&self, streams: bool) {
        self.streams.store(streams, Ordering::Relaxed);
    }

    pub(in crate::upstream) async fn hello(self: &Arc<Self>) -> Result<Message, Unavailable> {
        Ok(self.greeted().await?.hello.clone())
    }

    async fn greeted(self: &Arc<Self>) -> Result<Arc<HandshakeResult>, Unavailable> {
        // Also tells whether somebody has to log in, or has logged in as somebody else.
        let token = self.remote.token().await.map_err(|error| {
            let why = Unavailable::down(&error, unreachable(&error));
            self.report(&why);
            why
        })?;
        let mut greeted = self.greeted.lock().await;
        let is_current = |greeted: &HandshakeResult| match &token {
            // A session of a login is not used without its token.
            None => greeted.login.is_none(),
            Some(_) => self.remote.login_id().is_none_or(|id| greeted.login.as_ref() == Some(&id)),
        };
        if let Some(greeted) = greeted.as_ref().filter(|greeted| is_current(greeted)) {
            return Ok(greeted.clone());
        }
        // Boxed because it is rare: the future of every call would have to hold it otherwise.
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, Box::pin(self.handshake()));
        let late = || Unavailable::Down("it did not respond in time".into());
        let made = handshake.await.unwrap_or_else(|_| Err(late()));
        let made = Arc::new(made.inspect_err(|why| self.report(why))?);
        let again = self.again.swap(true, Ordering::Relaxed);
        self.life.started(again);
        *greeted = Some(made.clone());
        drop(greeted);
        if again {
            // The server of a new session may be another version.
            self.signal.send(&Signal::Renewed);
        }
        self.follower.replace(self, &made);
        Ok(made)
    }

    /// Logs why there is no session, if the server failed.
    fn report(&self, why: &Unavailable) {
        if matches!(why, Unavailable::Down(_) | Unavailable::Refuses(_)) {
            tracing::warn!(target: "upstream", server = self.name, "{why}");
            self.life.failed(&why.to_string());
        }
    }

    /// Performs the handshake, which shows whether the server supports the protocol version.
    async fn handshake(&self) -> Result<HandshakeResult, Unavailable> {
        let (mut answer, mut session) = self.first_answer(&self.opening).await?;
        if let Some(other) = self.opening.in_supported(&answer) {
            (answer, session) = self.first_answer(&other).await?;
        }
        self.opening.accept(&answer)?;
        let chosen = answer.result_member("protocolVersion").and_then(Raw::as_str);
        let revision =
            chosen.map_or_else(|| self.revision.as_str().into(), |text| text.into_owned());
        let login = self.remote.login_id();
        let greeted = HandshakeResult { hello: answer, session, revision, login };
        if self.era() == Era::Legacy {
            let body = request_body(None, "notifications/initialized", None);
            let _ = self.post(&body, &[], Some(&greeted), self.longest).await;
        }
        Ok(greeted)
    }

    /// The response to the first request, and the session that began with it.
    async fn first_answer(
        &self,
        opening: &Opening,
    ) -> Result<(Message, Option<String>), Unavailable> {
        let down = |why: String| Unavailable::Down(why);
        let id = Id::number(ids::mint());
        let body = opening
            .request(&id)
            .ok_or_else(|| down("internal error: no handshake request".into()))?;
        let more = match self.era() {
            Era::Legacy => Vec::new(),
            Era::Modern => modern_headers(opening.method(), None),
        };
        let (reply, session) =
            self.post(&body, &more, None, self.longest).await.map_err(|e| e.unavailable())?;
        let answer = match reply {
            Reply::Json(message) => message,
            Reply::Events(mut events) => loop {
                match events.next().await.map_err(|error| down(unreachable(&error)))? {
                    Some(message) if message.id() == Some(&id) => break message,
                    Some(_) => {}
                    None => return Err(down("its stream ended before the response".into())),
                }
            },
            Reply::Refused(status @ (401 | 403)) => return Err(Unavailable::Refuses(status)),
            Reply::Refused(status @ 300..400) => {
                let why = "it redirects to another address; configure that one instead";
                return Err(down(format!("{why} ({status})")));
            }
            // A server that does not know the method may know that of the other protocol version.
            Reply::Refused(400 | 404..=407 | 410 | 415 | 422 | 426)
                if self.era() == Era::Modern =>
            {
                return Err(Unavailable::OtherEra);
            }
            // Some servers fail on unknown methods.
            Reply::Refused(500 | 501) if self.era() == Era::Modern => {
                return Err(Unavailable::Unclear);
            }
            // Servers of 2024-11-05 do not accept a POST at the address of their stream.
            Reply::Refused(400 | 404 | 405) if self.remote.transport.is_none() => {
                return Err(Unavailable::OldTransport);
            }
            Reply::Refused(status) => return Err(down(format!("it returned status {status}"))),
            Reply::Accepted | Reply::NoSession => return Err(down("it did not respond".into())),
        };
        Ok((answer, session))
    }

    /// Forgets an expired session.
    async fn forget(&self, gone: &Arc<HandshakeResult>) {
        let mut greeted = self.greeted.lock().await;
        if greeted.as_ref().is_some_and(|now| Arc::ptr_eq(now, gone)) {
            *greeted = None;
        }
    }

    /// Sends one message; returns the response and its session id.
    async fn post(
        &self,
        body: &[u8],
        more: &[Field],
        greeted: Option<&HandshakeResult>,
        allowance: impl Into<Allowance>,
    ) -> Result<(Reply, Option<String>), PostError> {
        let mut token = self.remote.token().await.map_err(PostError::unsent)?;
        let is_anonymous = token.is_none();
        let (connection, head) = loop {
            let request = self.head("POST", more, greeted, Some(body.len()));
            let mut request = request.map_err(PostError::unsent)?;
            request.extend_from_slice(body);
            let mut connection = self.client.send(&request).await?;
            let head = connection.response().await?;
            // An expired token is replaced once: a rejected request was not processed.
            if head.status != 401
                || !self.remote.renewed(&mut token).await.map_err(PostError::unsent)?
            {
                break (connection, head);
            }
        };
        if is_anonymous && head.status < 400 {
            self.remote.accepted_without_token();
        }
        let session = head.headers.get(SESSION_ID).map(String::from);
        let has_session = greeted.is_some_and(|greeted| greeted.session.is_some());
        Ok((self.reply(connection, head, has_session, allowance.into()).await?, session))
    }

    /// Opens a stream of the session.
    async fn get(
        &self,
        more: &[Field],
        greeted: &HandshakeResult,
        allowance: impl Into<Allowance>,
    ) -> io::Result<Reply> {
        self.remote.token().await?;
        let request = self.head("GET", more, Some(greeted), None)?;
        let mut connection = self.client.send(&request).await?;
        let head = connection.response().await?;
        self.reply(connection, head, true, allowance.into()).await
    }

    async fn reply(
        &self,
        mut connection: Connection,
        head: ResponseHead,
        has_session: bool,
        allowance: Allowance,
    ) -> io::Result<Reply> {
        let longest = allowance.longest;
        let kind = head.headers.get("content-type").unwrap_or_default().to_ascii_lowercase();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let coding = Coding::of(&head.headers)?;
        if head.status == 200 && kind == "text/event-stream" {
            // Messages other than the response may be larger than the limit on the response.
            let longest = longest.max(self.longest.min(MIN_MESSAGE_LIMIT));
            let events = Events::new(connection, &head, Allowance { longest, ..allowance })?;
            return Ok(Reply::Events(Box::new(Messages::new(events, longest))));
        }
        let problem = |problem| match (problem, head.body) {
            (BodyError::TooLarge, BodyLength::Known(size)) => TooLarge::error(Some(size)),
            (BodyError::TooLarge, _) => TooLarge::error(None),
            (problem, _) => io::Error::other(format!("{problem}")),
        };
        let mut reader = BodyReader::new(head.body, longest).map_err(problem)?;
        if let BodyLength::Known(length) = head.body {
            allowance.hold_all(length).await;
        }
        let body = loop {
            if let Some(body) = reader.read(&mut connection.buffer).map_err(problem)? {
                break body;
            }
            if !matches!(head.body, BodyLength::Known(_)) {
                allowance.hold(reader.held() + connection.buffer.len()).await;
            }
            if !connection.read_more().await? {
                break reader.at_eof(&mut connection.buffer).map_err(problem)?;
            }
        };
        self.client.put(connection);
        let body = match coding {
            Coding::Identity => body,
            Coding::Gzip => decompressed(&body, &allowance).await?,
        };
        if matches!(head.status, 202 | 204) {
            return Ok(Reply::Accepted);
        }
        if head.status == 404 && has_session && self.era() == Era::Legacy {
            return Ok(Reply::NoSession);
        }
        match parse(body, longest, Sender::Server).await {
            Ok(message) if head.status == 200 && kind == "application/json" => {
                Ok(Reply::Json(message))
            }
            // An error can have any status.
            Ok(message) if message.kind() == Kind::Error => Ok(Reply::Json(message)),
            Err(malformed) if head.status == 200 => Err(io::Error::other(malformed.to_string())),
            _ => Ok(Reply::Refused(head.status)),
        }
    }

    fn head(
        &self,
        method: &str,
        more: &[Field],
        greeted: Option<&HandshakeResult>,
        length: Option<usize>,
    ) -> io::Result<Vec<u8>> {
        let accept = match method {
            "POST" => "application/json, text/event-stream",
            _ => "text/event-stream",
        };
        let mut fields = Vec::with_capacity(12);
        fields.extend([("Accept", accept), ("Accept-Encoding", "identity")]);
        if length.is_some() {
            fields.push(("Content-Type", "application/json"));
        }
        fields.extend(self.remote.headers.iter().map(|(name, value)| (&**name, &**value)));
        let token = self.remote.oauth.as_ref().and_then(|oauth| oauth.known());
        fields.extend(token.as_deref().map(|token| ("Authorization", token)));
        fields.extend(more.iter().map(|(name, value)| (&**name, &**value)));
        if self.era() == Era::Legacy
            && let Some(greeted) = greeted
        {
            fields.push(("MCP-Protocol-Version", &greeted.revision));
            if let Some(session) = &greeted.session {
                fields.push((SESSION_ID, session));
            }
        }
        self.client.request(method, &self.remote.address.target, &fields, length)
    }

    /// Sends a message that has no response.
    fn tell(self: &Arc<Self>, body: Bytes, greeted: Arc<HandshakeResult>) {
        let session = self.clone();
        tokio::spawn(async move {
            let sent = session.post(&body, &[], Some(&greeted), session.longest);
            let _ = tokio::time::timeout(ONE_WAY_TIMEOUT, sent).await;
        });
    }

    pub(in crate::upstream) fn send(self: &Arc<Self>, outgoing: Outgoing) -> Call {
        let minted = ids::mint();
        let (body, exchange) = address(&outgoing, self.era(), minted);
        let mut more = Vec::new();
        if self.era() == Era::Modern {
            let row = outgoing.row;
            let name = match &outgoing.name {
                Some(name) => Some(String::from(&**name)),
                None => outgoing.message.name(row.name_at).ok().flatten().map(|n| n.into_owned()),
            };
            more = modern_headers(row.name, name.as_deref());
            let marks = outgoing.headers.into_iter();
            more.extend(marks.map(|(name, value)| (Cow::Owned(name), Cow::Owned(value))));
        }
        let longest = outgoing.longest.map_or(self.longest, |most| most.min(self.longest));
        let allowance = Allowance { longest, room: outgoing.room };
        Call::new(self.clone(), exchange, body, more, allowance)
    }
}

/// Ends the session with the connection. If the request fails, the session times out on the server.
impl Drop for HttpSession {
    fn drop(&mut self) {
        let Some(greeted) = self.greeted.get_mut().take() else { return };
        if greeted.session.is_none() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let Ok(head) = self.head("DELETE", &[], Some(&greeted), None) else { return };
        let client = self.remote.client();
        tokio::spawn(tokio::time::timeout(ONE_WAY_TIMEOUT, async move {
            let mut connection = client.send(&head).await?;
            connection.response().await
        }));
    }
}

/// Decompresses a body, subject to the same size limit and memory budget.
async fn decompressed(body: &[u8], allowance: &Allowance) -> io::Result<Bytes> {
    let (mut out, mut gunzip) = (Vec::new(), Gunzip::new());
    let is_long = |out: &Vec<u8>| out.len() > allowance.longest;
    for step in Gunzip::steps(body) {
        out.extend_from_slice(&gunzip.push(step)?);
        if is_long(&out) {
            return Err(TooLarge::error(None));
        }
        allowance.hold(body.len() + out.len()).await;
    }
    out.extend_from_slice(&gunzip.finish()?);
    if is_long(&out) { Err(TooLarge::error(None)) } else { Ok(out.into()) }
}

/// A header.
type Field = (Cow<'static, str>, Cow<'static, str>);

/// The headers that repeat members of a modern request.
fn modern_headers(method: &'static str, name: Option<&str>) -> Vec<Field> {
    let version = Revision::newest(Era::Modern).as_str();
    let mut fields: Vec<Field> =
        vec![("MCP-Protocol-Version".into(), version.into()), ("Mcp-Method".into(), method.into())];
    fields.extend(
        name.map(|name| {
            (Cow::Borrowed("Mcp-Name"), Cow::Owned(headers::encode(name).into_owned()))
        }),
    );
    fields
}

fn unreachable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::Other => error.to_string(),
        io::ErrorKind::UnexpectedEof => "it closed the connection without a response".into(),
        _ => format!("it cannot be reached: {error}"),
    }
}
