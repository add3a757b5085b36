//! A server on Streamable HTTP. A request is one POST; its answer is JSON, or a stream of events
//! that ends with it. The task that asks does the reading: nothing hops between tasks.

use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::{Mutex, mpsc};
use toolward_wire::error::request_body;
use toolward_wire::exchange::{Done, Event, Exchange, Failure, Step};
use toolward_wire::headers;
use toolward_wire::http::{BodyReader, ResponseHead, write_request};
use toolward_wire::{Era, Id, Kind, Message, Raw, Revision, Sender};

use super::address::Remote;
use super::child::address;
use super::events::Events;
use super::link::{Signal, own_request};
use super::pool::{Connection, Pool};
use super::process::{is_list_changed, own_answer, tells_changes};
use super::{Log, Opening, Outgoing, Unavailable};

const SESSION_ID: &str = "Mcp-Session-Id";
/// How long the first answer may take.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// Messages to which no answer is expected.
const ONE_WAY: Duration = Duration::from_secs(5);
/// Between two attempts to follow a server's own messages.
const AGAIN: Duration = Duration::from_secs(2);

pub(super) struct HttpLink {
    name: String,
    remote: Remote,
    opening: Opening,
    revision: Revision,
    /// The longest answer.
    longest: usize,
    signal: mpsc::UnboundedSender<Signal>,
    log: Log,
    pool: Pool,
    next: AtomicU64,
    /// One handshake at a time.
    greeted: Mutex<Option<Arc<Greeted>>>,
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

/// A stream of messages.
struct Messages {
    events: Events,
    longest: usize,
}

impl Messages {
    /// The next message; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Message>> {
        while let Some(event) = self.events.next().await? {
            if event.is_message() {
                let message = Message::parse(event.data, self.longest, Sender::Server);
                return message.map(Some).map_err(|error| io::Error::other(error.to_string()));
            }
        }
        Ok(None)
    }
}

impl HttpLink {
    pub(super) fn new(
        name: &str,
        remote: Remote,
        opening: Opening,
        revision: Revision,
        longest: usize,
        signal: mpsc::UnboundedSender<Signal>,
        log: Log,
    ) -> Arc<HttpLink> {
        Arc::new(HttpLink {
            name: name.into(),
            pool: Pool::new(remote.address.clone()),
            remote,
            opening,
            revision,
            longest,
            signal,
            log,
            next: AtomicU64::new(1),
            greeted: Mutex::default(),
        })
    }

    fn era(&self) -> Era {
        self.revision.era()
    }

    pub(super) async fn hello(self: &Arc<Self>) -> Result<Message, Unavailable> {
        Ok(self.greeted().await?.hello.clone())
    }

    async fn greeted(self: &Arc<Self>) -> Result<Arc<Greeted>, Unavailable> {
        let mut greeted = self.greeted.lock().await;
        if let Some(greeted) = &*greeted {
            return Ok(greeted.clone());
        }
        let handshake = tokio::time::timeout(HANDSHAKE, self.handshake());
        let late = || Unavailable::Down("it did not answer in time".into());
        let made = Arc::new(handshake.await.unwrap_or_else(|_| Err(late()))?);
        *greeted = Some(made.clone());
        drop(greeted);
        tokio::spawn(follow(Arc::downgrade(self), made.clone()));
        Ok(made)
    }

    /// What is said first, and the answer to it. It tells whether the server speaks the era.
    async fn handshake(&self) -> Result<Greeted, Unavailable> {
        let down = |why: String| Unavailable::Down(why);
        let id = Id::number(self.next.fetch_add(1, Ordering::Relaxed));
        let (body, more) = match &self.opening {
            Opening::Legacy { params } => {
                (request_body(Some(&id), "initialize", Some(params)), Vec::new())
            }
            Opening::Modern => {
                let own = own_request("server/discover", json!({}), Era::Modern);
                let own = own.ok_or_else(|| down("it cannot be asked".into()))?;
                (own.message.edit().id(&id).finish(), modern_headers("server/discover", None))
            }
        };
        let (reply, session) =
            self.post(&body, &more, None).await.map_err(|e| down(unreachable(&e)))?;
        let answer = match reply {
            Reply::Json(message) => message,
            Reply::Events(mut events) => loop {
                match events.next().await.map_err(|error| down(unreachable(&error)))? {
                    Some(message) if message.id() == Some(&id) => break message,
                    Some(_) => {}
                    None => return Err(down("it ended before it answered".into())),
                }
            },
            Reply::Refused(status @ (401 | 403)) => {
                return Err(down(format!("it refuses the configured credentials ({status})")));
            }
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
            // Servers of 2024-11-05 take no POST at the address of their stream.
            Reply::Refused(400 | 404 | 405) if self.remote.transport.is_none() => {
                return Err(Unavailable::OldTransport);
            }
            Reply::Refused(status) => return Err(down(format!("it answers with status {status}"))),
            Reply::Accepted | Reply::NoSession => return Err(down("it did not answer".into())),
        };
        self.opening.accept(&answer)?;
        let chosen = answer.result_member("protocolVersion").and_then(Raw::as_str);
        let revision =
            chosen.map_or_else(|| self.revision.as_str().into(), |text| text.into_owned());
        let greeted = Greeted { hello: answer, session, revision };
        if self.era() == Era::Legacy {
            let body = request_body(None, "notifications/initialized", None);
            let _ = self.post(&body, &[], Some(&greeted)).await;
        }
        Ok(greeted)
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
    ) -> io::Result<(Reply, Option<String>)> {
        let mut connection = self.pool.take().await?;
        let mut request = self.head("POST", more, greeted, Some(body.len()))?;
        request.extend_from_slice(body);
        connection.write(&request).await?;
        let head = connection.response().await?;
        let session = head.headers.get(SESSION_ID).map(String::from);
        let has_session = greeted.is_some_and(|greeted| greeted.session.is_some());
        Ok((self.reply(connection, head, has_session).await?, session))
    }

    async fn reply(
        &self,
        mut connection: Connection,
        head: ResponseHead,
        has_session: bool,
    ) -> io::Result<Reply> {
        let kind = head.headers.get("content-type").unwrap_or_default().to_ascii_lowercase();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if head.headers.count("content-encoding") > 0
            && head.headers.get("content-encoding") != Some("identity")
        {
            return Err(io::Error::other("its answer is encoded, which was not asked for"));
        }
        if head.status == 200 && kind == "text/event-stream" {
            let events = Events::new(connection, head.body, self.longest);
            return Ok(Reply::Events(Box::new(Messages { events, longest: self.longest })));
        }
        let problem = |problem| io::Error::other(format!("{problem}"));
        let mut reader = BodyReader::new(head.body, self.longest).map_err(problem)?;
        let body = loop {
            if let Some(body) = reader.read(&mut connection.buffer).map_err(problem)? {
                break body;
            }
            if !connection.read_more().await? {
                break reader.at_eof(&mut connection.buffer).map_err(problem)?;
            }
        };
        if head.keep_alive {
            self.pool.put(connection);
        }
        if matches!(head.status, 202 | 204) {
            return Ok(Reply::Accepted);
        }
        if head.status == 404 && has_session && self.era() == Era::Legacy {
            return Ok(Reply::NoSession);
        }
        match Message::parse(body, self.longest, Sender::Server) {
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
        fields.extend(more.iter().map(|(name, value)| (&**name, &**value)));
        if self.era() == Era::Legacy
            && let Some(greeted) = greeted
        {
            fields.push(("MCP-Protocol-Version", &greeted.revision));
            if let Some(session) = &greeted.session {
                fields.push((SESSION_ID, session));
            }
        }
        let mut out = Vec::with_capacity(512 + length.unwrap_or(0));
        let at = &self.remote.address;
        write_request(&mut out, method, &at.target, &at.authority, &fields, length)
            .map_err(|error| io::Error::other(error.to_string()))?;
        Ok(out)
    }

    /// Sends a message to which no answer is expected.
    fn tell(self: &Arc<Self>, body: Bytes, greeted: Arc<Greeted>) {
        let link = self.clone();
        tokio::spawn(async move {
            let sent = link.post(&body, &[], Some(&greeted));
            let _ = tokio::time::timeout(ONE_WAY, sent).await;
        });
    }

    pub(super) fn send(self: &Arc<Self>, outgoing: Outgoing) -> Call {
        let minted = self.next.fetch_add(1, Ordering::Relaxed);
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
        let stage = Stage::Unsent { body, more };
        Call { link: self.clone(), exchange, greeted: None, stage, pending: None }
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
        let pool = Pool::new(self.remote.address.clone());
        tokio::spawn(tokio::time::timeout(ONE_WAY, async move {
            let mut connection = pool.take().await?;
            connection.write(&head).await?;
            connection.response().await
        }));
    }
}

/// A request under way. Dropped before its end, it is cancelled.
pub(super) struct Call {
    link: Arc<HttpLink>,
    exchange: Exchange,
    greeted: Option<Arc<Greeted>>,
    stage: Stage,
    /// An end that has not been told yet.
    pending: Option<Event>,
}

enum Stage {
    Unsent {
        body: Bytes,
        more: Vec<Field>,
    },
    /// About to be sent, once there is a session.
    Waiting,
    /// On its way: whether it arrived is not known.
    Sent,
    Streaming(Box<Messages>),
    Over,
}

impl Call {
    pub(super) async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.pending.take() {
                return event;
            }
            let step = match &mut self.stage {
                Stage::Unsent { .. } => self.begin().await,
                Stage::Streaming(events) => match events.next().await {
                    Ok(Some(message)) => self.exchange.upstream(message),
                    Ok(None) => self.exchange.gone(),
                    Err(error) => {
                        (self.link.log)(&format!("{}: {}", self.link.name, unreachable(&error)));
                        self.exchange.unreadable()
                    }
                },
                Stage::Waiting | Stage::Sent | Stage::Over => self.exchange.gone(),
            };
            if let Some(event) = self.carry_out(step) {
                return event;
            }
            if matches!(self.stage, Stage::Over) && self.pending.is_none() {
                return Event::Done(Done::Failed(Failure::Gone));
            }
        }
    }

    /// Sends the request. A session that is gone is begun anew once: nothing was done under the old.
    async fn begin(&mut self) -> Step {
        let (body, more) = match std::mem::replace(&mut self.stage, Stage::Waiting) {
            Stage::Unsent { body, more } => (body, more),
            stage => {
                self.stage = stage;
                return Step::default();
            }
        };
        for _ in 0..2 {
            let greeted = match self.link.greeted().await {
                Ok(greeted) => greeted,
                Err(_) => return self.exchange.gone(),
            };
            self.greeted = Some(greeted.clone());
            self.stage = Stage::Sent;
            match self.link.post(&body, &more, Some(&greeted)).await {
                Ok((Reply::Json(message), _)) => return self.exchange.upstream(message),
                Ok((Reply::Events(events), _)) => {
                    self.stage = Stage::Streaming(events);
                    return Step::default();
                }
                Ok((Reply::NoSession, _)) => self.link.forget(&greeted).await,
                Ok((Reply::Accepted, _)) => return self.exchange.unreadable(),
                Ok((Reply::Refused(status), _)) => {
                    let name = &self.link.name;
                    (self.link.log)(&format!("{name}: it answers with status {status}"));
                    return self.exchange.gone();
                }
                Err(error) => {
                    (self.link.log)(&format!("{}: {}", self.link.name, unreachable(&error)));
                    let unread = error.kind() == io::ErrorKind::Other;
                    return if unread { self.exchange.unreadable() } else { self.exchange.gone() };
                }
            }
        }
        self.exchange.gone()
    }

    fn carry_out(&mut self, step: Step) -> Option<Event> {
        if let Some(message) = &step.elsewhere
            && is_list_changed(message)
        {
            let _ = self.link.signal.send(Signal::ListChanged);
        }
        if let (Some(body), Some(greeted), Era::Legacy) =
            (step.upstream, &self.greeted, self.link.era())
        {
            self.link.tell(body, greeted.clone());
        }
        if self.exchange.is_done()
            && let Stage::Streaming(events) = std::mem::replace(&mut self.stage, Stage::Over)
        {
            events.events.finish(&self.link.pool);
        }
        step.event
    }

    /// Closing the stream is what cancels a modern request; a legacy one is told.
    pub(super) fn give_up(&mut self, timed_out: bool) {
        let unsent = matches!(self.stage, Stage::Unsent { .. } | Stage::Waiting);
        let step = if timed_out { self.exchange.timed_out() } else { self.exchange.cancelled() };
        self.stage = Stage::Over;
        if let (Some(body), Some(greeted), Era::Legacy, false) =
            (step.upstream, &self.greeted, self.link.era(), unsent)
        {
            self.link.tell(body, greeted.clone());
        }
        self.pending = step.event;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.exchange.is_done() {
            self.give_up(false);
        }
    }
}

/// Follows what a server says of its own accord, for as long as there is a link and a session.
async fn follow(link: Weak<HttpLink>, greeted: Arc<Greeted>) {
    if !tells_changes(&greeted.hello) {
        return;
    }
    let mut first = true;
    loop {
        let Some(link) = link.upgrade() else { return };
        if !std::mem::take(&mut first) {
            // What was said in between is not known.
            let _ = link.signal.send(Signal::ListChanged);
        }
        let opened = link.listen(&greeted).await;
        let weak = Arc::downgrade(&link);
        drop(link);
        match opened {
            Ok(Some(mut events)) => {
                while let Ok(Some(message)) = events.next().await {
                    let Some(link) = weak.upgrade() else { return };
                    match message.id() {
                        Some(id) if message.kind() == Kind::Request => {
                            link.tell(own_answer(&message, id), greeted.clone());
                        }
                        _ if is_list_changed(&message) => {
                            let _ = link.signal.send(Signal::ListChanged);
                        }
                        _ => {}
                    }
                }
            }
            // It has no such stream.
            Ok(None) => return,
            Err(_) => {}
        }
        tokio::time::sleep(AGAIN).await;
    }
}

impl HttpLink {
    /// Opens the stream of the server's own messages; `None` where it has none, or not any more.
    async fn listen(&self, greeted: &Greeted) -> io::Result<Option<Messages>> {
        let reply = match self.era() {
            Era::Legacy => {
                let mut connection = self.pool.take().await?;
                let head = self.head("GET", &[], Some(greeted), None)?;
                connection.write(&head).await?;
                let head = connection.response().await?;
                self.reply(connection, head, true).await?
            }
            Era::Modern => {
                let params = json!({"notifications": {"toolsListChanged": true}});
                let Some(own) = own_request("subscriptions/listen", params, Era::Modern) else {
                    return Ok(None);
                };
                let id = Id::number(self.next.fetch_add(1, Ordering::Relaxed));
                let body = own.message.edit().id(&id).finish();
                self.post(&body, &modern_headers("subscriptions/listen", None), None).await?.0
            }
        };
        match reply {
            Reply::Events(events) => Ok(Some(*events)),
            _ => Ok(None),
        }
    }
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
