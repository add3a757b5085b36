//! Streamable HTTP: which requests are taken in, for whom, and how they are answered.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::{mpsc, oneshot};
use toolward_wire::error::{Case, code, error_body, status};
use toolward_wire::headers::{self, Standard};
use toolward_wire::http::{Method, RequestHead};
use toolward_wire::{Era, Id, Message, MethodRow, Revision, Sender, sse};

use super::connection::{Content, Response};
use super::origin::Reachable;
use super::sessions::{Session, Sessions};
use crate::client::{Caller, Client, Owner, Scope};
use crate::identity::{Identities, Unidentified};
use crate::ingress::{self, Incoming};
use crate::notes::{Notes, Queue};
use crate::pipeline::{Gateway, Request};
use crate::present::{self, Answer};
use crate::sealed::Sealer;
use crate::session::Cancel;

const SESSION_ID: &str = "mcp-session-id";
/// Events that wait for a client that does not read.
const WAITING: usize = 64;

/// Everything behind one or several listening sockets.
pub struct Endpoint {
    pub(super) gateway: Arc<Gateway>,
    pub(super) identities: Identities,
    pub(super) reachable: Reachable,
    pub(super) sessions: Sessions,
    pub(super) request_bytes: usize,
    /// What request bodies may take together, and take now.
    buffered_bytes: usize,
    buffered: AtomicUsize,
    /// The clients of stateless requests, by agent and address.
    pub(super) modern: Mutex<HashMap<(Caller, Scope), Arc<Client>>>,
}

/// A request whose sender and address are known.
pub(super) struct Admitted(Place);

enum Place {
    /// `/healthz` and `/readyz`, with the one word that they say.
    Health(&'static str),
    Mcp {
        caller: Caller,
        scope: Scope,
    },
}

/// Room that a request body takes.
pub(super) struct Reserved<'e> {
    endpoint: &'e Endpoint,
    bytes: usize,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.endpoint.buffered.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// How an endpoint is set up.
pub struct Setup {
    pub identities: Identities,
    pub reachable: Reachable,
    pub sealer: Sealer,
    /// The folder of what outlives the process.
    pub state: PathBuf,
    /// The longest request.
    pub request_bytes: usize,
    /// What all requests may take together.
    pub buffered_bytes: usize,
    /// How long a session may be idle; `None`: half an hour.
    pub session_idle: Option<Duration>,
}

impl Endpoint {
    pub fn new(gateway: Arc<Gateway>, setup: Setup) -> Endpoint {
        Endpoint {
            gateway,
            identities: setup.identities,
            reachable: setup.reachable,
            sessions: Sessions::new(Arc::new(setup.sealer), setup.session_idle, &setup.state),
            request_bytes: setup.request_bytes,
            buffered_bytes: setup.buffered_bytes,
            buffered: AtomicUsize::new(0),
            modern: Mutex::default(),
        }
    }

    /// Room for a request body, for as long as it is held; `None` where too much is held already.
    pub(super) fn reserve(&self, bytes: usize) -> Option<Reserved<'_>> {
        let reserved = Reserved { endpoint: self, bytes };
        let before = self.buffered.fetch_add(bytes, Ordering::Relaxed);
        (before + bytes <= self.buffered_bytes).then_some(reserved)
    }

    /// Whether a request may be read at all, judged by its head.
    pub(super) fn admit(&self, head: &RequestHead) -> Result<Admitted, Box<Response>> {
        if !self.reachable.host(&head.host) {
            return Err(refuse(400));
        }
        if let Some(origin) =
            head.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("origin"))
            && !std::str::from_utf8(origin.1).is_ok_and(|origin| self.reachable.origin(origin))
        {
            return Err(refuse(403));
        }
        let word = match head.path.as_str() {
            "/healthz" => Some("ok"),
            "/readyz" => Some("ready"),
            _ => None,
        };
        if let Some(word) = word {
            return match head.method {
                Method::Get => Ok(Admitted(Place::Health(word))),
                _ => Err(Box::new(Response::empty(405).field("Allow", "GET"))),
            };
        }
        let server = match head.path.strip_prefix("/mcp") {
            Some("") => None,
            Some(rest) => Some(rest.strip_prefix('/').ok_or_else(|| refuse(404))?),
            None => return Err(refuse(404)),
        };
        let authorization = head.headers.get("authorization");
        if authorization.is_none() && head.headers.count("authorization") > 0 {
            return Err(challenge(Unidentified::Wrong));
        }
        let caller = self.identities.identify(authorization).map_err(challenge)?;
        let scope = match server {
            None => Scope::All,
            // A server that the agent may not use is one that does not exist.
            Some(name) => {
                let found = self.gateway.servers.find(name);
                let snapshot = &self.gateway.snapshot;
                let found = found.filter(|server| snapshot.may_use(&caller, server.name()));
                Scope::One(found.ok_or_else(|| refuse(404))?.index)
            }
        };
        match head.method {
            Method::Post => {
                let kind = head.headers.get("content-type").unwrap_or_default();
                let kind = kind.split(';').next().unwrap_or_default().trim();
                if !kind.eq_ignore_ascii_case("application/json")
                    || head.headers.count("content-encoding") > 0
                {
                    return Err(refuse(415));
                }
            }
            Method::Get | Method::Delete => {}
            _ => return Err(Box::new(Response::empty(405).field("Allow", "POST, GET, DELETE"))),
        }
        Ok(Admitted(Place::Mcp { caller, scope }))
    }

    pub(super) async fn respond(
        self: &Arc<Self>,
        admitted: Admitted,
        head: RequestHead,
        body: Bytes,
    ) -> Response {
        match (admitted.0, head.method) {
            (Place::Health(word), _) => Response::new(200, Content::Text(word)),
            (Place::Mcp { caller, scope }, Method::Post) => {
                self.post(caller, scope, &head, body).await
            }
            (Place::Mcp { caller, scope }, method) => {
                self.session_method(&caller, scope, method, &head)
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
            return Response::empty(404);
        };
        if let Err(response) = agrees(&session, head) {
            return *response;
        }
        if method == Method::Delete {
            self.sessions.end(&self.gateway, &session);
            return Response::empty(204);
        }
        if !accepts(head, "text/event-stream") {
            return Response::empty(406);
        }
        session.prune();
        match session.resume(head.headers.get("last-event-id")) {
            Some(events) => Response::new(200, Content::Events(events)),
            None => Response::empty(404),
        }
    }

    async fn post(
        self: &Arc<Self>,
        caller: Caller,
        scope: Scope,
        head: &RequestHead,
        body: Bytes,
    ) -> Response {
        let stated = head.headers.get(headers::PROTOCOL_VERSION);
        let says_modern =
            stated.and_then(Revision::parse).is_some_and(|revision| revision.era() == Era::Modern);
        let message = match Message::parse(body, self.request_bytes, Sender::Client) {
            Ok(message) => message,
            Err(malformed) => {
                let era = if says_modern { Era::Modern } else { Era::Legacy };
                return json(present::malformed(&malformed, era));
            }
        };
        if !accepts(head, "application/json") && !accepts(head, "text/event-stream") {
            return Response::empty(406);
        }
        let era = if says_modern { Era::Modern } else { ingress::era(&message) };
        match era {
            Era::Modern => self.modern(caller, scope, head, message).await,
            Era::Legacy => self.legacy(caller, scope, head, message).await,
        }
    }

    /// A request that stands alone.
    async fn modern(
        self: &Arc<Self>,
        caller: Caller,
        scope: Scope,
        head: &RequestHead,
        message: Message,
    ) -> Response {
        let standard = Standard {
            protocol_version: head.headers.get(headers::PROTOCOL_VERSION),
            method: head.headers.get(headers::METHOD),
            name: head.headers.get(headers::NAME),
        };
        let (id, row) = match ingress::admit_with(&message, Era::Modern, Some(&standard)) {
            Ok(Incoming::Request { id, row }) => (id, row),
            Ok(_) => return Response::empty(202),
            Err(answer) => return json(answer),
        };
        let request = Request {
            client: self.modern_client(caller, scope),
            message,
            id,
            row,
            cancel: Arc::new(Cancel::default()),
            headers: Some(param_headers(head)),
        };
        let gateway = self.gateway.clone();
        let told = Arc::new(Queue::default());
        let notes = Notes::Stream(told.clone());
        let mut work = Box::pin(async move { gateway.answer(request, &notes).await });
        let wants_events = accepts(head, "text/event-stream");
        let first = loop {
            tokio::select! {
                biased;
                answer = &mut work => {
                    // What was told just before the answer comes before it.
                    let notes: Vec<Bytes> = std::iter::from_fn(|| told.pop()).collect();
                    if notes.is_empty() || !wants_events {
                        return answer.map_or(Response::empty(202), json);
                    }
                    let (out, events) = mpsc::channel(notes.len() + 1);
                    let answer = answer.map(|answer| answer.body.whole());
                    for body in notes.into_iter().chain(answer) {
                        let _ = out.try_send(event(&body));
                    }
                    return Response::new(200, Content::Events(events));
                }
                note = told.next() => {
                    if wants_events {
                        break note;
                    }
                }
            }
        };
        // There is something to tell before the answer. Whoever closes the stream cancels the work.
        let (out, events) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            let mut next = Some(first);
            let answer = loop {
                if let Some(note) = next.take()
                    && out.send(event(&note)).await.is_err()
                {
                    return;
                }
                tokio::select! {
                    biased;
                    answer = &mut work => break answer,
                    note = told.next() => next = Some(note),
                    () = out.closed() => return,
                }
            };
            while let Some(note) = told.pop() {
                let _ = out.send(event(&note)).await;
            }
            if let Some(answer) = answer {
                let _ = out.send(event(&answer.body.whole())).await;
            }
        });
        Response::new(200, Content::Events(events))
    }

    fn modern_client(&self, caller: Caller, scope: Scope) -> Arc<Client> {
        let mut clients = self.modern.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (caller, scope);
        if let Some(client) = clients.get(&key) {
            return client.clone();
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
    ) -> Response {
        let handle = head.headers.get(SESSION_ID);
        let incoming = ingress::admit(&message, Era::Legacy);
        let begins =
            matches!(&incoming, Ok(Incoming::Request { row, .. }) if row.name == "initialize");
        if begins && handle.is_none() {
            let Ok(Incoming::Request { id, row }) = incoming else { return Response::empty(400) };
            let begun = self.sessions.begin(&self.gateway, caller, scope, &message);
            let Ok((session, handle)) = begun else { return Response::empty(503) };
            let response = self.in_session(session, head, message, id, row).await;
            return response.field("Mcp-Session-Id", handle);
        }
        let Some(handle) = handle else {
            return wrong(Case::NoSession, message.id(), "the header `Mcp-Session-Id` is missing");
        };
        let Some(session) = self.sessions.find(&self.gateway, &caller, scope, handle) else {
            return wrong(
                Case::UnknownSession,
                message.id(),
                "the session is not known; begin anew",
            );
        };
        if let Err(response) = agrees(&session, head) {
            return *response;
        }
        match incoming {
            Err(_) if message.id().is_none() => Response::empty(202),
            Err(answer) => json(answer),
            Ok(Incoming::Request { id, .. }) if begins => {
                let why = "the session has already begun";
                json(present::bad_request(&id, Era::Legacy, why))
            }
            Ok(Incoming::Request { id, row }) => {
                self.in_session(session, head, message, id, row).await
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
        id: Id,
        row: &'static MethodRow,
    ) -> Response {
        let Some(underway) = session.running.begin(&id) else {
            let why = "a request with this id is still under way";
            return json(present::bad_request(&id, Era::Legacy, why));
        };
        let (client, cancel) = (session.client.clone(), underway.cancel.clone());
        let request = Request { client, message, id, row, cancel, headers: None };
        let gateway = self.gateway.clone();
        let told = Arc::new(Queue::default());
        let notes = Notes::Stream(told.clone());
        let (done, mut answer) = oneshot::channel();
        tokio::spawn(async move {
            let answer = gateway.answer(request, &notes).await;
            drop(underway);
            let _ = done.send(answer);
        });
        let wants_events = accepts(head, "text/event-stream");
        let first = loop {
            tokio::select! {
                biased;
                note = told.next() => {
                    if wants_events {
                        break note;
                    }
                }
                answer = &mut answer => {
                    return answer.ok().flatten().map_or(Response::empty(202), json);
                }
            }
        };
        // There is something to tell before the answer: a stream, which can be taken up again.
        let (number, log) = session.stream();
        log.add(first);
        let events = session.read(number, &log, 0);
        tokio::spawn(async move {
            let answer = loop {
                tokio::select! {
                    biased;
                    note = told.next() => log.add(note),
                    answer = &mut answer => break answer,
                }
            };
            if let Ok(Some(answer)) = answer {
                log.add(answer.body.whole());
            }
            log.finish();
        });
        Response::new(200, Content::Events(events))
    }
}

/// Whether the stated revision is that of the session.
fn agrees(session: &Session, head: &RequestHead) -> Result<(), Box<Response>> {
    match head.headers.get(headers::PROTOCOL_VERSION) {
        Some(stated) if stated != session.client.revision.as_str() => {
            let why = format!("this session speaks {}", session.client.revision);
            Err(Box::new(wrong(Case::UnsupportedVersion, None, &why)))
        }
        None if head.headers.count(headers::PROTOCOL_VERSION) > 0 => Err(refuse(400)),
        _ => Ok(()),
    }
}

/// Whether the client reads a kind of answer. One that does not say reads everything.
fn accepts(head: &RequestHead, kind: &str) -> bool {
    let mut said = false;
    for (_, value) in head.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("accept")) {
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

fn param_headers(head: &RequestHead) -> Vec<(String, String)> {
    head.headers
        .iter()
        .filter_map(|(name, value)| {
            let begin = name.get(..headers::PARAM_PREFIX.len())?;
            let ours = begin.eq_ignore_ascii_case(headers::PARAM_PREFIX);
            let value = std::str::from_utf8(value).ok().filter(|_| ours)?;
            Some((name.to_ascii_lowercase(), value.to_string()))
        })
        .collect()
}

fn refuse(status: u16) -> Box<Response> {
    Box::new(Response::empty(status))
}

fn challenge(unidentified: Unidentified) -> Box<Response> {
    let challenge = match unidentified {
        Unidentified::Missing => "Bearer",
        Unidentified::Wrong => "Bearer error=\"invalid_token\"",
    };
    Box::new(Response::empty(401).field("WWW-Authenticate", challenge))
}

fn json(answer: Answer) -> Response {
    Response::new(answer.status, Content::Json(answer.body))
}

fn wrong(case: Case, id: Option<&Id>, why: &str) -> Response {
    let status = status(case, Era::Legacy).map_or(400, |status| status.http);
    let body = error_body(id, code::INVALID_REQUEST, why, None);
    Response::new(status, Content::Json(body.into()))
}

fn event(message: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(message.len() + 16);
    sse::encode(None, None, message, &mut out);
    out.into()
}
