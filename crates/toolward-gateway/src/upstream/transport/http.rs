//! A server on Streamable HTTP. A request is one POST; its answer is JSON, or a stream of events
//! that ends with it. The task that asks does the reading: nothing hops between tasks.

mod call;
mod follow;
mod messages;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, mpsc};
use toolward_wire::headers;
use toolward_wire::http::{BodyError, BodyLength, BodyReader, ResponseHead};
use toolward_wire::jsonrpc::request_body;
use toolward_wire::{Era, Id, Kind, Message, Raw, Revision, Sender};

pub(in crate::upstream) use self::call::Call;
use self::follow::Follower;
use self::messages::Messages;
use super::Signal;
use super::event_stream::Events;
use super::ids;
use super::line_transport::address;
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
/// How long the first answer may take.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// Messages to which no answer is expected.
const ONE_WAY: Duration = Duration::from_secs(5);
/// The longest message that is no answer, where answers must be shorter.
const BESIDE: usize = 1 << 20;

pub(in crate::upstream) struct HttpLink {
    name: String,
    remote: Remote,
    opening: Opening,
    revision: Revision,
    /// The longest answer.
    longest: usize,
    signal: mpsc::UnboundedSender<Signal>,
    life: Arc<Life>,
    client: Client,
    /// One handshake at a time.
    greeted: Mutex<Option<Arc<Greeted>>>,
    /// It was greeted before.
    again: AtomicBool,
    /// The task that follows the server's own messages.
    follower: Follower,
}

/// What the server said first.
struct Greeted {
    hello: Message,
    session: Option<String>,
    /// The revision that the server chose.
    revision: String,
}

/// What came back for a POST.
enum Reply {
    Json(Message),
    Events(Box<Messages>),
    Accepted,
    /// The session is not known any more; nothing was done.
    NoSession,
    /// Nothing that can be read as an answer.
    Refused(u16),
}

/// Why a POST has no reply.
struct PostError {
    error: io::Error,
    /// The request, or a part of it, may have reached the server.
    sent: bool,
}

impl PostError {
    fn unsent(error: io::Error) -> PostError {
        PostError { error, sent: false }
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

impl HttpLink {
    pub(in crate::upstream) fn new(
        server: &Server,
        remote: Remote,
        opening: Opening,
        revision: Revision,
        signal: mpsc::UnboundedSender<Signal>,
    ) -> Arc<HttpLink> {
        Arc::new(HttpLink {
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
        })
    }

    fn era(&self) -> Era {
        self.revision.era()
    }

    pub(in crate::upstream) async fn hello(self: &Arc<Self>) -> Result<Message, Unavailable> {
        Ok(self.greeted().await?.hello.clone())
    }

    async fn greeted(self: &Arc<Self>) -> Result<Arc<Greeted>, Unavailable> {
        let mut greeted = self.greeted.lock().await;
        if let Some(greeted) = &*greeted {
            return Ok(greeted.clone());
        }
        // Rare beside calls, whose futures hold it otherwise.
        let handshake = tokio::time::timeout(HANDSHAKE, Box::pin(self.handshake()));
        let late = || Unavailable::Down("it did not answer in time".into());
        let made = handshake.await.unwrap_or_else(|_| Err(late()));
        let made = Arc::new(made.inspect_err(|why| {
            if matches!(why, Unavailable::Down(_) | Unavailable::Refuses(_)) {
                tracing::warn!(target: "upstream", server = self.name, "{why}");
                self.life.failed(&why.to_string());
            }
        })?);
        let again = self.again.swap(true, Ordering::Relaxed);
        self.life.started(again);
        *greeted = Some(made.clone());
        drop(greeted);
        if again {
            // A new session may be with another version of the server.
            let _ = self.signal.send(Signal::Renewed);
        }
        self.follower.replace(self, &made);
        Ok(made)
    }

    /// What is said first, and the answer to it. It tells whether the server speaks the era.
    async fn handshake(&self) -> Result<Greeted, Unavailable> {
        let (mut answer, mut session) = self.first_answer(&self.opening).await?;
        if let Some(other) = self.opening.in_supported(&answer) {
            (answer, session) = self.first_answer(&other).await?;
        }
        self.opening.accept(&answer)?;
        let chosen = answer.result_member("protocolVersion").and_then(Raw::as_str);
        let revision =
            chosen.map_or_else(|| self.revision.as_str().into(), |text| text.into_owned());
        let greeted = Greeted { hello: answer, session, revision };
        if self.era() == Era::Legacy {
            let body = request_body(None, "notifications/initialized", None);
            let _ = self.post(&body, &[], Some(&greeted), self.longest).await;
        }
        Ok(greeted)
    }

    /// The answer to what is said first, and the session that began with it.
    async fn first_answer(
        &self,
        opening: &Opening,
    ) -> Result<(Message, Option<String>), Unavailable> {
        let down = |why: String| Unavailable::Down(why);
        let id = Id::number(ids::mint());
        let body = opening.request(&id).ok_or_else(|| down("it cannot be asked".into()))?;
        let more = match self.era() {
            Era::Legacy => Vec::new(),
            Era::Modern => modern_headers(opening.method(), None),
        };
        let (reply, session) =
            self.post(&body, &more, None, self.longest).await.map_err(|e| down(e.to_string()))?;
        let answer = match reply {
            Reply::Json(message) => message,
            Reply::Events(mut events) => loop {
                match events.next().await.map_err(|error| down(unreachable(&error)))? {
                    Some(message) if message.id() == Some(&id) => break message,
                    Some(_) => {}
                    None => return Err(down("it ended before it answered".into())),
                }
            },
            Reply::Refused(status @ (401 | 403)) => return Err(Unavailable::Refuses(status)),
            Reply::Refused(status @ 300..400) => {
                let why = "it sends us to another address; put that one into the configuration";
                return Err(down(format!("{why} ({status})")));
            }
            // What does not know the question may know that of the other era.
            Reply::Refused(400 | 404..=407 | 410 | 415 | 422 | 426)
                if self.era() == Era::Modern =>
            {
                return Err(Unavailable::OtherEra);
            }
            // Some stumble over what they do not know.
            Reply::Refused(500 | 501) if self.era() == Era::Modern => {
                return Err(Unavailable::Unclear);
            }
            // Servers of 2024-11-05 take no POST at the address of their stream.
            Reply::Refused(400 | 404 | 405) if self.remote.transport.is_none() => {
                return Err(Unavailable::OldTransport);
            }
            Reply::Refused(status) => return Err(down(format!("it answers with status {status}"))),
            Reply::Accepted | Reply::NoSession => return Err(down("it did not answer".into())),
        };
        Ok((answer, session))
    }

    /// Forgets a session that the server does not know any more.
    async fn forget(&self, gone: &Arc<Greeted>) {
        let mut greeted = self.greeted.lock().await;
        if greeted.as_ref().is_some_and(|now| Arc::ptr_eq(now, gone)) {
            *greeted = None;
        }
    }

    /// Sends one message; gives what came back, and the session id of the answer.
    async fn post(
        &self,
        body: &[u8],
        more: &[Field],
        greeted: Option<&Greeted>,
        allowance: impl Into<Allowance>,
    ) -> Result<(Reply, Option<String>), PostError> {
        let mut token = self.remote.token().await.map_err(PostError::unsent)?;
        let (connection, head) = loop {
            let request = self.head("POST", more, greeted, Some(body.len()));
            let mut request = request.map_err(PostError::unsent)?;
            request.extend_from_slice(body);
            let mut connection = self.client.send(&request).await?;
            let head = connection.response().await?;
            // A token that is not taken any more is replaced once: nothing was done with it.
            if head.status != 401 || !self.remote.renewed(&mut token).await? {
                break (connection, head);
            }
        };
        let session = head.headers.get(SESSION_ID).map(String::from);
        let has_session = greeted.is_some_and(|greeted| greeted.session.is_some());
        Ok((self.reply(connection, head, has_session, allowance.into()).await?, session))
    }

    /// Asks for a stream of the session's.
    async fn get(
        &self,
        more: &[Field],
        greeted: &Greeted,
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
            // What is told beside the answer is not the answer, and may be longer than that.
            let longest = longest.max(self.longest.min(BESIDE));
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
            // An error may come with its own status.
            Ok(message) if message.kind() == Kind::Error => Ok(Reply::Json(message)),
            Err(malformed) if head.status == 200 => Err(io::Error::other(malformed.to_string())),
            _ => Ok(Reply::Refused(head.status)),
        }
    }

    fn head(
        &self,
        method: &str,
        more: &[Field],
        greeted: Option<&Greeted>,
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

    /// Sends a message to which no answer is expected.
    fn tell(self: &Arc<Self>, body: Bytes, greeted: Arc<Greeted>) {
        let link = self.clone();
        tokio::spawn(async move {
            let sent = link.post(&body, &[], Some(&greeted), link.longest);
            let _ = tokio::time::timeout(ONE_WAY, sent).await;
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

/// The session ends with the link; a server that is not told finds out by itself.
impl Drop for HttpLink {
    fn drop(&mut self) {
        let Some(greeted) = self.greeted.get_mut().take() else { return };
        if greeted.session.is_none() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let Ok(head) = self.head("DELETE", &[], Some(&greeted), None) else { return };
        let client = self.remote.client();
        tokio::spawn(tokio::time::timeout(ONE_WAY, async move {
            let mut connection = client.send(&head).await?;
            connection.response().await
        }));
    }
}

/// A body after decompression, which counts against the same limit and memory.
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

/// The headers that repeat what a modern request says.
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
        io::ErrorKind::UnexpectedEof => "it closed the connection without an answer".into(),
        _ => format!("it cannot be reached: {error}"),
    }
}
