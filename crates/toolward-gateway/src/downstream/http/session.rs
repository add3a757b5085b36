//! Sessions over HTTP (legacy protocol versions): POST, GET and DELETE with `Mcp-Session-Id`.

use std::sync::Arc;

use tokio::sync::oneshot;
use toolward_wire::headers;
use toolward_wire::http::{Method, RequestHead};
use toolward_wire::jsonrpc::error_body;
use toolward_wire::jsonrpc_error::{StatusCase, code, status};
use toolward_wire::{Era, Id, Message, MethodRow, Revision};

use super::{Endpoint, NOT_ACCEPTED, QUIET, accepts, cancelled, trace_parent};
use crate::active::Active;
use crate::budget::Reservation;
use crate::client::{Caller, ClientStatement, Scope};
use crate::downstream::response::{Content, Response, json, refuse};
use crate::downstream::sessions::{MAX_IN_FLIGHT, SESSION_ID, Session};
use crate::methods::request::{Envelope, Request};
use crate::notifications::{Notes, Queue, StreamItem};
use crate::responses::{self, Answer};
use crate::traces::with_header;
use crate::validate::{self, Incoming};

/// The reason logged for such rejected requests.
const UNKNOWN_SESSION: &str = "unknown session, or a session of another agent";

impl Endpoint {
    /// GET, which opens a stream, and DELETE, which ends the session.
    pub(super) fn session_method(
        &self,
        active: &Active,
        (caller, scope): (&Caller, Scope),
        method: Method,
        head: &RequestHead,
    ) -> Response {
        let modern = head.headers.get(headers::PROTOCOL_VERSION).and_then(Revision::parse);
        let modern = modern.is_some_and(|revision| revision.era() == Era::Modern);
        let Some(handle) = head.headers.get(SESSION_ID).filter(|_| !modern) else {
            return Response::empty(405).field("Allow", "POST");
        };
        let Some(session) = self.sessions.find(&self.gateway, active, (caller, scope), handle)
        else {
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
        session.streams.prune();
        // A client would read 404 as an ended session, so an expired event id begins a new stream
        // instead.
        let resumed = session.streams.resume(head.headers.get("last-event-id"));
        match resumed.or_else(|| session.streams.resume(None)) {
            Some(events) => Response::new(200, Content::Stream(events)),
            None => Response::refused(404, "unknown stream"),
        }
    }

    /// Handles a message of a session, or the one that begins it.
    pub(super) async fn legacy(
        self: &Arc<Self>,
        active: Arc<Active>,
        (caller, scope): (Caller, Scope),
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
            let stated = match ClientStatement::of(&message) {
                Ok(stated) => stated,
                Err(why) => return json(responses::bad_params(&id, Era::Legacy, &why)),
            };
            let begun =
                self.sessions.begin(&self.gateway, &active, (caller, scope), &message, stated);
            let Ok((session, handle)) = begun else {
                return Response::refused(503, "there are too many sessions");
            };
            let response = self.in_session(active, session, head, message, (id, row), room).await;
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
        let Some(session) = self.sessions.find(&self.gateway, &active, (&caller, scope), handle)
        else {
            let response = wrong(
                StatusCase::UnknownSession,
                message.id(),
                "unknown session; initialize again",
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
                self.in_session(active, session, head, message, (id, row), room).await
            }
            Ok(Incoming::Notification) => {
                session.running.notified(&message);
                Response::empty(202)
            }
            Ok(Incoming::Response) => {
                if let Some(outlet) = &session.client.outlet {
                    outlet.responded(message, Some(room));
                }
                Response::empty(202)
            }
        }
    }

    /// Handles a request in a session. It continues if its connection is lost.
    async fn in_session(
        &self,
        active: Arc<Active>,
        session: Arc<Session>,
        head: &RequestHead,
        message: Message,
        (id, row): (Id, &'static MethodRow),
        room: Reservation,
    ) -> Response {
        if session.running.count() >= MAX_IN_FLIGHT {
            return json(responses::overloaded(&id));
        }
        let Some(in_flight) = session.running.begin(&id) else {
            let why = "a request with this id is still in flight";
            return json(responses::bad_request(&id, Era::Legacy, why));
        };
        let (client, cancel) = (session.client.clone(), in_flight.cancel.clone());
        let revoked = cancel.clone();
        let wants_events = accepts(head, "text/event-stream");
        let queue = Queue::new(Some(room.account().clone()));
        let queue = Arc::new(if wants_events { queue } else { queue.without_stream() });
        let envelope = Envelope {
            active,
            client,
            id,
            row,
            cancel,
            headers: None,
            parking: None,
            approval: None,
        };
        let request = Request { envelope, message, room };
        let gateway = self.gateway.clone();
        let notes = Notes::Stream(queue.clone());
        let (done, mut answer) = oneshot::channel();
        tokio::spawn(with_header(trace_parent(head), async move {
            let answer = gateway.answer(request, &notes).await;
            drop(in_flight);
            let _ = done.send(answer);
        }));
        let connection = ConnectionGuard(Some(queue.clone()));
        let quiet = tokio::time::sleep(QUIET);
        tokio::pin!(quiet);
        let resumable = session.streams.are_resumable();
        let mut next = loop {
            tokio::select! {
                biased;
                item = queue.next_item() => match item {
                    _ if !wants_events => {}
                    StreamItem::Closed(_) if !resumable => {}
                    item => break Some(Next::Item(item)),
                },
                answer = &mut answer => match answer.ok().flatten() {
                    Some(answer) if answer.streamed && wants_events && resumable => {
                        break Some(Next::Answer(Some(answer)));
                    }
                    answer => return answer.map_or_else(|| cancelled(wants_events), json),
                },
                () = &mut quiet, if wants_events => break None,
            }
        };
        // There is something to send before the response, if only a keep-alive, or the server sent a stream,
        // too: answer with a resumable stream.
        let (log, events) = session.streams.begin();
        connection.answered();
        let read = log.clone();
        queue.read_while(move || read.is_read());
        let stream = async move {
            loop {
                match next {
                    Some(Next::Item(StreamItem::Note(note))) => {
                        log.add(note.bytes.into(), Some(Arc::new(note.room)));
                    }
                    Some(Next::Item(StreamItem::Closed(retry))) if resumable => {
                        log.close_reader(retry);
                    }
                    Some(Next::Item(StreamItem::Closed(_))) | None => {}
                    Some(Next::Answer(answer)) => {
                        if let Some(answer) = answer {
                            log.add(answer.body, answer.room);
                        }
                        return log.finish();
                    }
                }
                next = tokio::select! {
                    biased;
                    item = queue.next_item() => Some(Next::Item(item)),
                    answer = &mut answer => Some(Next::Answer(answer.ok().flatten())),
                };
            }
        };
        tokio::spawn(stream);
        Response { cancel: Some(revoked), ..Response::new(200, Content::Stream(events)) }
    }
}

/// The next step of a stream.
enum Next {
    Item(StreamItem),
    /// `None`: the client cancelled the request.
    Answer(Option<Answer>),
}

/// Tells a call that its connection was lost before it was answered.
struct ConnectionGuard(Option<Arc<Queue>>);

impl ConnectionGuard {
    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            queue.lose();
        }
    }
}

/// Whether the stated protocol version is the session's, or an older one that the server of a
/// single-server address negotiated.
fn agrees(session: &Session, head: &RequestHead) -> Result<(), Box<Response>> {
    let revision = session.client.revision;
    let is_older = |stated: &str| {
        let one_server = matches!(session.client.scope, Scope::One(_));
        one_server && Revision::parse(stated).is_some_and(|stated| stated < revision)
    };
    match head.headers.get(headers::PROTOCOL_VERSION) {
        Some(stated) if stated != revision.as_str() && !is_older(stated) => {
            let why = format!("this session uses protocol version {}", session.client.revision);
            let unrecorded = Some("the session uses another protocol version");
            let response = wrong(StatusCase::UnsupportedVersion, None, &why);
            Err(Box::new(Response { unrecorded, ..response }))
        }
        None if head.headers.count(headers::PROTOCOL_VERSION) > 0 => {
            Err(refuse(400, "the head of the request is malformed"))
        }
        _ => Ok(()),
    }
}

fn wrong(case: StatusCase, id: Option<&Id>, why: &str) -> Response {
    let status = status(case, Era::Legacy).map_or(400, |status| status.http);
    let body = error_body(id, code::INVALID_REQUEST, why, None);
    Response::new(status, Content::Json(body.into()))
}
