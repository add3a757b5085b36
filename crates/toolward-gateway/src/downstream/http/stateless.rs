//! Stateless requests (modern protocol versions): each carries its own protocol version and capabilities.

use std::sync::Arc;

use tokio::sync::mpsc;
use toolward_wire::headers::{self, StandardHeaders};
use toolward_wire::http::RequestHead;
use toolward_wire::{Era, Message};

use super::{Endpoint, QUIET, WAITING, accepts, cancelled, param_headers, trace_parent};
use crate::active::Active;
use crate::budget::Reservation;
use crate::client::{Caller, Scope, declared};
use crate::downstream::frame::Frame;
use crate::downstream::peer::Peer;
use crate::downstream::response::{Content, Response, json};
use crate::held::Work;
use crate::in_flight::Cancel;
use crate::methods::request::{Envelope, Request};
use crate::notifications::{Note, Notes, Queue};
use crate::traces::with_header;
use crate::validate::{self, Incoming};

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
        let work = gateway.answer_stateless(request, notes);
        let mut work: Work = match trace_parent(head) {
            None => Box::pin(work),
            Some(parent) => Box::pin(with_header(Some(parent), work)),
        };
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
                    let is_streamed = answer.as_ref().is_some_and(|answer| answer.streamed);
                    if (notes.is_empty() && !is_streamed) || !wants_events {
                        return match answer {
                            Some(answer) if answer.scope.is_some() => {
                                self.insufficient_scope(peer, head, answer)
                            }
                            Some(answer) => json(answer),
                            None => cancelled(wants_events),
                        };
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
