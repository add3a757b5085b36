//! Streamable HTTP: which requests are taken in, for whom, and how they are answered.

pub(crate) mod route;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::sync::{mpsc, oneshot, watch};
use toolward_wire::headers::{self, StandardHeaders};
use toolward_wire::http::{Method, RequestHead};
use toolward_wire::jsonrpc::error_body;
use toolward_wire::jsonrpc_error::{StatusCase, code, status};
use toolward_wire::{Era, Id, Message, MethodRow, Revision, Sender, meta};

use self::route::{Admitted, Place, Ticket, refuse};
use super::connection::{Content, Received, Response};
use super::cors::Reachable;
use super::frame::Frame;
use super::peer::Peer;
use super::sessions::{MAX_IN_FLIGHT, Session, Sessions};
use super::tls::Tls;
use crate::audit::{Recording, Source};
use crate::authn::Identities;
use crate::budget::Reservation;
use crate::client::{Caller, Client, Owner, Scope, Stated};
use crate::gateway::{Gateway, Request};
use crate::in_flight::Cancel;
use crate::methods::events::traced;
use crate::notifications::{Note, Notes, Queue};
use crate::opaque_id::Sealer;
use crate::parse::parse;
use crate::responses::{self, Answer};
use crate::validate::{self, Incoming};

pub(super) const SESSION_ID: &str = "mcp-session-id";
/// So many clients of stateless requests are remembered; more are, while they ask.
const MOST_MODERN: usize = 1000;
/// Events that wait for a client that does not read: one is written, one is next.
const WAITING: usize = 1;
/// A request that has nothing to send for this long is answered with a stream: its head and the
/// keep-alive comments show clients and proxies that it is still being worked on.
const QUIET: Duration = Duration::from_secs(2);
/// Why requests are refused, as they are counted.
const UNKNOWN_SESSION: &str = "the session is not known, or is another agent's";
const NOT_ACCEPTED: &str = "the client does not accept what is answered";

/// Everything behind one or several listening sockets.
pub struct Endpoint {
    pub(super) gateway: Arc<Gateway>,
    access: RwLock<Arc<Access>>,
    /// Counts how often that was exchanged.
    pub(super) exchanged: watch::Sender<u64>,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) sessions: Sessions,
    pub(super) request_bytes: usize,
    /// Requests that are being read, worked on or answered.
    busy: AtomicUsize,
    /// The clients of stateless requests, by agent and address.
    pub(super) modern: Mutex<HashMap<(Caller, Scope), Arc<Client>>>,
}

/// Who may come in, and by which names. It can change while requests are under way.
pub(super) struct Access {
    pub(super) identities: Arc<Identities>,
    pub(super) reachable: Reachable,
    /// The configuration was not valid, and nobody is let in until it is.
    pub(super) denies_all: bool,
}

/// A request, from its head to the end of its answer.
pub(super) struct Busy<'e>(&'e Endpoint);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How an endpoint is set up.
pub struct Setup {
    pub identities: Arc<Identities>,
    pub reachable: Reachable,
    /// For sockets of TCP.
    pub tls: Option<Arc<Tls>>,
    pub sealer: Sealer,
    /// The folder of what outlives the process.
    pub state: PathBuf,
    /// The longest request.
    pub request_bytes: usize,
    /// How long a session may be idle; `None`: half an hour.
    pub session_idle: Option<Duration>,
    /// The configuration is not valid, and nobody is let in.
    pub denies_all: bool,
}

impl Endpoint {
    pub fn new(gateway: Arc<Gateway>, setup: Setup) -> Endpoint {
        Endpoint {
            gateway,
            access: RwLock::new(Arc::new(Access {
                identities: setup.identities,
                reachable: setup.reachable,
                denies_all: setup.denies_all,
            })),
            exchanged: watch::Sender::new(0),
            tls: setup.tls,
            sessions: Sessions::new(Arc::new(setup.sealer), setup.session_idle, &setup.state),
            request_bytes: setup.request_bytes,
            busy: AtomicUsize::new(0),
            modern: Mutex::default(),
        }
    }

    /// Counts a request for as long as it takes.
    pub(super) fn begin(&self) -> Busy<'_> {
        self.busy.fetch_add(1, Ordering::AcqRel);
        Busy(self)
    }

    /// Whether a request is under way, also one whose connection is lost.
    pub(super) fn is_busy(&self) -> bool {
        let calls = || self.gateway.servers.all().iter().any(|one| one.calls.under_way() > 0);
        self.busy.load(Ordering::Acquire) > 0 || calls()
    }

    /// Who may come in now. Whoever asks keeps to what it got.
    pub(super) fn access(&self) -> Arc<Access> {
        self.access.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Others may come in from now on. Streams whose credential is gone end.
    pub fn adopt(&self, mut identities: Identities, reachable: Reachable) {
        // Keys that were fetched stay known.
        if let Some(before) = &self.access().identities.issuer {
            identities.issuer = identities.issuer.map(|issuer| issuer.sharing(before));
        }
        let identities = Arc::new(identities);
        let access = Arc::new(Access { identities, reachable, denies_all: false });
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = access;
        self.modern.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.exchanged.send_modify(|count| *count += 1);
    }

    /// Counts a request that nobody answers for.
    pub(super) fn turned_away(&self, peer: &Peer, head: Option<&RequestHead>, why: &'static str) {
        let source = peer.source(&self.access().reachable, head);
        self.gateway.audit.turned_away(&source, why);
    }

    /// Counts a request that was refused, where no record of its own says so: by the agent, or by
    /// where it came from.
    pub(super) fn count(
        &self,
        peer: &Peer,
        head: &RequestHead,
        agent: Option<&Arc<str>>,
        response: &Response,
    ) {
        match (response.unrecorded, agent) {
            (None, _) => {}
            (Some(why), Some(agent)) => {
                self.gateway.audit.turn_away(Source::Agent(agent.clone()), why);
            }
            (Some(why), None) => self.turned_away(peer, Some(head), why),
        }
    }

    pub(super) async fn respond(
        self: &Arc<Self>,
        peer: &Peer,
        admitted: Admitted,
        head: RequestHead,
        body: Received,
    ) -> Response {
        match (admitted.0, head.method) {
            // Without a record no call is carried out, unless the configuration says so.
            (Place::Health("ready"), _) => {
                let (status, word) = match self.gateway.audit.recording().await {
                    Recording::Refused => (503, "failing"),
                    _ if self.access().denies_all => (503, "denying"),
                    Recording::Unrecorded => (200, "ready, and calls go unrecorded"),
                    Recording::Recorded if self.gateway.audit.is_low_on_space() => {
                        (200, "ready, and the disk of the audit log is nearly full")
                    }
                    Recording::Recorded => (200, "ready"),
                };
                Response::new(status, Content::Text(word))
            }
            (Place::Health(word), _) => Response::new(200, Content::Text(word)),
            (Place::Mcp { caller, scope, .. }, Method::Post) => {
                let agent = caller.agent.clone();
                let response = self.post(caller, scope, &head, body).await;
                self.count(peer, &head, agent.as_ref(), &response);
                Ticket::keep(response, agent, head)
            }
            (Place::Mcp { caller, scope, until }, method) => {
                // What listens goes on for as long as the credential does.
                let response = self.session_method(&caller, scope, method, &head);
                self.count(peer, &head, caller.agent.as_ref(), &response);
                Ticket::keep(Response { until, ..response }, caller.agent, head)
            }
        }
    }

    /// GET, which listens, and DELETE, which ends a session.
    fn session_method(
        &self,
        caller: &Caller,
        scope: Scope,
        method: Method,
        head: &RequestHead,
    ) -> Response {
        let modern = head.headers.get(headers::PROTOCOL_VERSION).and_then(Revision::parse);
        let modern = modern.is_some_and(|revision| revision.era() == Era::Modern);
        let Some(handle) = head.headers.get(SESSION_ID).filter(|_| !modern) else {
            return Response::empty(405).field("Allow", "POST");
        };
        let Some(session) = self.sessions.find(&self.gateway, caller, scope, handle) else {
            return Response::refused(404, UNKNOWN_SESSION);
        };
        if let Err(response) = agrees(&session, head) {
            return *response;
        }
        if method == Method::Delete {
            self.sessions.end(&self.gateway, &session);
            return Response::empty(204);
        }
        if !accepts(head, "text/event-stream") {
            return Response::refused(406, NOT_ACCEPTED);
        }
        session.prune();
        // To a client 404 would mean that the session is gone: an event that is not known any more
        // begins a new stream.
        let resumed = session.resume(head.headers.get("last-event-id"));
        match resumed.or_else(|| session.resume(None)) {
            Some(events) => Response::new(200, Content::Stream(events)),
            None => Response::refused(404, "the stream is not known"),
        }
    }

    async fn post(
        self: &Arc<Self>,
        caller: Caller,
        scope: Scope,
        head: &RequestHead,
        Received { body, room }: Received,
    ) -> Response {
        let stated = head.headers.get(headers::PROTOCOL_VERSION);
        let says_modern =
            stated.and_then(Revision::parse).is_some_and(|revision| revision.era() == Era::Modern);
        let message = match parse(body, self.request_bytes, Sender::Client).await {
            Ok(message) => message,
            Err(malformed) => {
                let era = if says_modern { Era::Modern } else { Era::Legacy };
                return json(responses::malformed(&malformed, era));
            }
        };
        if !accepts(head, "application/json") && !accepts(head, "text/event-stream") {
            return Response::refused(406, NOT_ACCEPTED);
        }
        let era = if says_modern { Era::Modern } else { validate::era(&message) };
        match era {
            Era::Modern => self.modern(caller, scope, head, message, room).await,
            Era::Legacy => self.legacy(caller, scope, head, message, room).await,
        }
    }

    /// A request that stands alone.
    async fn modern(
        self: &Arc<Self>,
        caller: Caller,
        scope: Scope,
        head: &RequestHead,
        message: Message,
        room: Reservation,
    ) -> Response {
        let standard = StandardHeaders {
            protocol_version: head.headers.get(headers::PROTOCOL_VERSION),
            method: head.headers.get(headers::METHOD),
            name: head.headers.get(headers::NAME),
        };
        let (id, row) = match validate::admit_with(&message, Era::Modern, Some(&standard)) {
            Ok(Incoming::Request { id, row }) => (id, row),
            Ok(_) => return Response::empty(202),
            Err(answer) => return json(*answer),
        };
        let request = Request {
            client: self.modern_client(caller, scope),
            message,
            id,
            row,
            cancel: Arc::new(Cancel::default()),
            headers: Some(param_headers(head)),
            room,
        };
        let gateway = self.gateway.clone();
        let told = Arc::new(Queue::new(Some(request.room.account().clone())));
        let notes = Notes::Stream(told.clone());
        let work = async move { gateway.answer(request, &notes).await };
        let mut work = Box::pin(traced(trace_parent(head), work));
        let wants_events = accepts(head, "text/event-stream");
        let quiet = tokio::time::sleep(QUIET);
        tokio::pin!(quiet);
        let first = loop {
            tokio::select! {
                biased;
                answer = &mut work => {
                    // What was told just before the answer comes before it.
                    let notes: Vec<Note> = std::iter::from_fn(|| told.pop()).collect();
                    if notes.is_empty() || !wants_events {
                        return answer.map_or_else(|| cancelled(wants_events), json);
                    }
                    let (out, events) = mpsc::channel(notes.len() + 1);
                    let notes = notes.into_iter().map(Frame::note);
                    for frame in notes.chain(answer.map(Frame::answer)) {
                        let _ = out.try_send(frame);
                    }
                    return Response::new(200, Content::Stream(events));
                }
                note = told.next() => {
                    if wants_events {
                        break Frame::note(note);
                    }
                }
                () = &mut quiet, if wants_events => break Frame::keep_alive(),
            }
        };
        // There is something to send before the answer, if only a sign of life. Whoever closes the
        // stream cancels the work.
        let (out, events) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            let mut next = Some(first);
            let answer = loop {
                if let Some(frame) = next.take()
                    && out.send(frame).await.is_err()
                {
                    return;
                }
                tokio::select! {
                    biased;
                    answer = &mut work => break answer,
                    note = told.next() => next = Some(Frame::note(note)),
                    () = out.closed() => return,
                }
            };
            while let Some(note) = told.pop() {
                let _ = out.send(Frame::note(note)).await;
            }
            if let Some(answer) = answer {
                let _ = out.send(Frame::answer(answer)).await;
            }
        });
        Response::new(200, Content::Stream(events))
    }

    fn modern_client(&self, caller: Caller, scope: Scope) -> Arc<Client> {
        let mut clients = self.modern.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (caller, scope);
        if let Some(client) = clients.get(&key) {
            return client.clone();
        }
        // Agents are few, and those who come in their name may be many.
        if clients.len() >= MOST_MODERN {
            clients.retain(|_, client| Arc::strong_count(client) > 1);
        }
        let (caller, scope) = key.clone();
        let owner = Owner::Agent(caller.agent.clone());
        let client = Client::new(caller, scope, Revision::newest(Era::Modern), owner);
        clients.entry(key).or_insert(Arc::new(client)).clone()
    }

    /// A message of the era with sessions.
    async fn legacy(
        self: &Arc<Self>,
        caller: Caller,
        scope: Scope,
        head: &RequestHead,
        message: Message,
        room: Reservation,
    ) -> Response {
        let handle = head.headers.get(SESSION_ID);
        let incoming = validate::admit(&message, Era::Legacy);
        let begins =
            matches!(&incoming, Ok(Incoming::Request { row, .. }) if row.name == "initialize");
        if begins && handle.is_none() {
            let Ok(Incoming::Request { id, row }) = incoming else { return Response::empty(400) };
            let stated = match Stated::of(&message) {
                Ok(stated) => stated,
                Err(why) => return json(responses::bad_params(&id, Era::Legacy, &why)),
            };
            let begun = self.sessions.begin(&self.gateway, caller, scope, &message, stated);
            let Ok((session, handle)) = begun else {
                return Response::refused(503, "there are too many sessions");
            };
            let response = self.in_session(session, head, message, (id, row), room).await;
            return response.field("Mcp-Session-Id", handle);
        }
        let Some(handle) = handle else {
            let response = wrong(
                StatusCase::NoSession,
                message.id(),
                "the header `Mcp-Session-Id` is missing",
            );
            return Response { unrecorded: Some("there is no session"), ..response };
        };
        let Some(session) = self.sessions.find(&self.gateway, &caller, scope, handle) else {
            let response = wrong(
                StatusCase::UnknownSession,
                message.id(),
                "the session is not known; begin anew",
            );
            return Response { unrecorded: Some(UNKNOWN_SESSION), ..response };
        };
        if let Err(response) = agrees(&session, head) {
            return *response;
        }
        match incoming {
            Err(answer) if message.id().is_none() => {
                Response { unrecorded: answer.unrecorded, ..Response::empty(202) }
            }
            Err(answer) => json(*answer),
            Ok(Incoming::Request { id, .. }) if begins => {
                let why = "the session has already begun";
                json(responses::bad_request(&id, Era::Legacy, why))
            }
            Ok(Incoming::Request { id, row }) => {
                self.in_session(session, head, message, (id, row), room).await
            }
            Ok(Incoming::Notification) => {
                session.running.notified(&message);
                Response::empty(202)
            }
            Ok(Incoming::Response) => Response::empty(202),
        }
    }

    /// A request in a session. It goes on when its connection is lost.
    async fn in_session(
        &self,
        session: Arc<Session>,
        head: &RequestHead,
        message: Message,
        (id, row): (Id, &'static MethodRow),
        room: Reservation,
    ) -> Response {
        if session.running.count() >= MAX_IN_FLIGHT {
            return json(responses::overloaded(&id));
        }
        let Some(underway) = session.running.begin(&id) else {
            let why = "a request with this id is still under way";
            return json(responses::bad_request(&id, Era::Legacy, why));
        };
        let (client, cancel) = (session.client.clone(), underway.cancel.clone());
        let told = Arc::new(Queue::new(Some(room.account().clone())));
        let request = Request { client, message, id, row, cancel, headers: None, room };
        let gateway = self.gateway.clone();
        let notes = Notes::Stream(told.clone());
        let (done, mut answer) = oneshot::channel();
        tokio::spawn(traced(trace_parent(head), async move {
            let answer = gateway.answer(request, &notes).await;
            drop(underway);
            let _ = done.send(answer);
        }));
        let wants_events = accepts(head, "text/event-stream");
        let quiet = tokio::time::sleep(QUIET);
        tokio::pin!(quiet);
        let first = loop {
            tokio::select! {
                biased;
                note = told.next() => {
                    if wants_events {
                        break Some(note);
                    }
                }
                answer = &mut answer => {
                    return answer.ok().flatten().map_or_else(|| cancelled(wants_events), json);
                }
                () = &mut quiet, if wants_events => break None,
            }
        };
        // There is something to send before the answer, if only a sign of life: a stream, which can be
        // resumed.
        let (number, log) = session.stream();
        if let Some(first) = first {
            log.add(first.bytes.into(), Some(Arc::new(first.room)));
        }
        let events = session.read(number, &log, 0);
        tokio::spawn(async move {
            let answer = loop {
                tokio::select! {
                    biased;
                    note = told.next() => log.add(note.bytes.into(), Some(Arc::new(note.room))),
                    answer = &mut answer => break answer,
                }
            };
            if let Ok(Some(answer)) = answer {
                log.add(answer.body, answer.room);
            }
            log.finish();
        });
        Response::new(200, Content::Stream(events))
    }
}

/// Whether the stated revision is that of the session, or an older one that a server chose at its own
/// address.
fn agrees(session: &Session, head: &RequestHead) -> Result<(), Box<Response>> {
    let revision = session.client.revision;
    let is_older = |stated: &str| {
        let one_server = matches!(session.client.scope, Scope::One(_));
        one_server && Revision::parse(stated).is_some_and(|stated| stated < revision)
    };
    match head.headers.get(headers::PROTOCOL_VERSION) {
        Some(stated) if stated != revision.as_str() && !is_older(stated) => {
            let why = format!("this session speaks {}", session.client.revision);
            let unrecorded = Some("the session speaks another version");
            let response = wrong(StatusCase::UnsupportedVersion, None, &why);
            Err(Box::new(Response { unrecorded, ..response }))
        }
        None if head.headers.count(headers::PROTOCOL_VERSION) > 0 => {
            Err(refuse(400, "the head of the request is malformed"))
        }
        _ => Ok(()),
    }
}

/// Whether the client reads a kind of answer. One that does not say reads everything.
fn accepts(head: &RequestHead, kind: &str) -> bool {
    // What nearly every client sends, and what is asked for here: it need not be taken apart.
    const USUAL: &[u8] = b"application/json, text/event-stream";
    let mut said = false;
    for value in head.headers.values("accept") {
        if value == USUAL && matches!(kind, "application/json" | "text/event-stream") {
            return true;
        }
        said = true;
        let range = kind.split('/').next().unwrap_or_default();
        for one in std::str::from_utf8(value).unwrap_or_default().split(',') {
            let one = one.split(';').next().unwrap_or_default().trim();
            let any = |one: &str| one.eq_ignore_ascii_case(range);
            if one.eq_ignore_ascii_case(kind)
                || one == "*/*"
                || one.strip_suffix("/*").is_some_and(any)
            {
                return true;
            }
        }
    }
    !said
}

/// The trace that the client says its request belongs to.
fn trace_parent(head: &RequestHead) -> Option<&str> {
    head.headers.get(meta::TRACE_PARENT)
}

fn param_headers(head: &RequestHead) -> Vec<(String, String)> {
    let named = head.headers.with_prefix(headers::PARAM_PREFIX);
    let text = |value| std::str::from_utf8(value).ok();
    named
        .filter_map(|(name, value)| Some((name.to_ascii_lowercase(), text(value)?.into())))
        .collect()
}

/// The response to a request that its client cancelled: a stream that ends without a JSON-RPC response.
///
/// MCP has no response for a cancelled request, and 202 only for notifications and responses. A client that
/// does not accept events can be told nothing better.
fn cancelled(wants_events: bool) -> Response {
    if !wants_events {
        return Response::empty(202);
    }
    let (out, events) = mpsc::channel(1);
    let _ = out.try_send(Frame::keep_alive());
    Response::new(200, Content::Stream(events))
}

pub(super) fn json(answer: Answer) -> Response {
    let (unrecorded, room) = (answer.unrecorded, answer.room);
    let response = Response::new(answer.status, Content::Json(answer.body));
    let response = Response { unrecorded, room, ..response };
    match answer.retry_after {
        // Whole seconds, and none too early.
        Some(wait) => {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            response.field("Retry-After", seconds.to_string())
        }
        None => response,
    }
}

fn wrong(case: StatusCase, id: Option<&Id>, why: &str) -> Response {
    let status = status(case, Era::Legacy).map_or(400, |status| status.http);
    let body = error_body(id, code::INVALID_REQUEST, why, None);
    Response::new(status, Content::Json(body.into()))
}
