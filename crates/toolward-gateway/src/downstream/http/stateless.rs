//! Stateless requests (modern protocol versions): each carries its own protocol version and capabilities.

use std::sync::{Arc, Mutex};

use hashbrown::HashMap;
use tokio::sync::mpsc;
use toolward_wire::headers::{self, StandardHeaders};
use toolward_wire::http::RequestHead;
use toolward_wire::{ClientCapabilities, Era, Message, Revision};

use super::{Endpoint, QUIET, WAITING, accepts, cancelled, param_headers, trace_parent};
use crate::active::Active;
use crate::budget::Reservation;
use crate::client::{Caller, Client, Owner, Scope, declared};
use crate::downstream::frame::Frame;
use crate::downstream::peer::Peer;
use crate::downstream::response::{Content, Response, json};
use crate::in_flight::Cancel;
use crate::lock::LockUnpoisoned;
use crate::methods::events::traced;
use crate::methods::request::{Envelope, Request};
use crate::notifications::{Note, Notes, Queue};
use crate::validate::{self, Incoming};
use crate::view::cache::Viewer;

/// Beyond this number, clients without a request in flight are evicted.
const MAX_CLIENTS: usize = 1000;

/// The clients of stateless requests by caller and scope, so that their views are cached between
/// requests.
#[derive(Default)]
pub(super) struct StatelessClients(Mutex<Clients>);

#[derive(Default)]
struct Clients {
    /// The active configuration under which the clients authenticated.
    active: u64,
    by_caller: HashMap<(Caller, Scope, ClientCapabilities), Arc<Viewer>>,
}

impl StatelessClients {
    fn client(
        &self,
        active: u64,
        (caller, scope): (Caller, Scope),
        declared: ClientCapabilities,
    ) -> Arc<Viewer> {
        let mut clients = self.0.locked();
        if clients.active != active {
            *clients = Clients { active, by_caller: HashMap::new() };
        }
        let clients = &mut clients.by_caller;
        let key = (caller, scope, declared);
        if let Some(client) = clients.get(&key) {
            return client.clone();
        }
        if clients.len() >= MAX_CLIENTS {
            clients.retain(|_, client| Arc::strong_count(client) > 1);
        }
        let (caller, scope, declared) = key.clone();
        let owner = Owner::Agent(caller.holder());
        let mut client = Client::new(caller, scope, Revision::newest(Era::Modern), owner);
        client.declared = declared;
        clients.entry(key).or_insert(Arc::new(Viewer::from(client))).clone()
    }
}

impl Endpoint {
    /// Answers a stateless request.
    pub(super) async fn stateless(
        self: &Arc<Self>,
        active: Arc<Active>,
        (caller, scope): (Caller, Scope),
        (peer, head): (&Peer, &RequestHead),
        message: Message,
        room: Reservation,
    ) -> Response {
        let agent = caller.agent.clone();
        let watch = || self.watch_held(peer, agent.clone(), head);
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
        let envelope = Envelope {
            client: self.stateless.client(active.serial(), (caller, scope), declared(&message)),
            active,
            id,
            row,
            cancel: Arc::new(Cancel::default()),
            headers: Some(param_headers(head)),
            parking: None,
            approval: None,
        };
        let request = Request { envelope, message, room };
        let gateway = self.gateway.clone();
        let queue = Arc::new(Queue::new(Some(request.room.account().clone())));
        let notes = Notes::Stream(queue.clone());
        let work = async move { gateway.answer_stateless(request, notes).await };
        let mut work = Box::pin(traced(trace_parent(head), work));
        let wants_events = accepts(head, "text/event-stream");
        let quiet = tokio::time::sleep(QUIET);
        tokio::pin!(quiet);
        let first = loop {
            tokio::select! {
                biased;
                answer = &mut work => {
                    let answer = answer.map(|mut answer| {
                        if let Some(hold) = answer.held.take() {
                            watch().begin(hold);
                        }
                        answer
                    });
                    // Notifications sent just before the response go out before it.
                    let notes: Vec<Note> = std::iter::from_fn(|| queue.pop()).collect();
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
                note = queue.next() => {
                    if wants_events {
                        break Frame::note(note);
                    }
                }
                () = &mut quiet, if wants_events => break Frame::keep_alive(),
            }
        };
        // There is something to send before the response, if only a keep-alive: answer with a stream. If
        // the client closes it, the work is cancelled.
        let (out, events) = mpsc::channel(WAITING);
        let watch = watch();
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
                    note = queue.next() => next = Some(Frame::note(note)),
                    () = out.closed() => return,
                }
            };
            while let Some(note) = queue.pop() {
                let _ = out.send(Frame::note(note)).await;
            }
            if let Some(mut answer) = answer {
                if let Some(hold) = answer.held.take() {
                    watch.begin(hold);
                }
                let _ = out.send(Frame::answer(answer)).await;
            }
        });
        Response::new(200, Content::Stream(events))
    }
}
