//! Calls of modern clients that are held while their client is asked, and continued by its next request.

use std::sync::Arc;

use toolward_wire::{Message, Sender};

use super::authorize::authorize;
use super::input_state::digest;
use super::resolve::resolve;
use crate::context::Context;
use crate::held::{self, Continuation, Found, GATHER, HeldCall, Parking, Question, Work};
use crate::methods::request::{Envelope, Request};
use crate::notifications::{Note, Notes, Queue};
use crate::opaque_id::Kind;
use crate::responses::{self, Answer};

const UNKNOWN: &str = "the `requestState` is not known; call again without it";

/// The parts of a request that are needed while its call runs elsewhere.
struct Waiting<'a> {
    context: &'a Context,
    envelope: Envelope,
    notes: Notes,
    call: [u8; 32],
}

/// Answers a request of a modern client. `begin` starts a call; it is held if its server asks the client something.
pub(crate) async fn answer(
    context: &Context,
    request: Request,
    notes: Notes,
    begin: impl FnOnce(Request, Notes) -> Work,
) -> Option<Answer> {
    let (envelope, message) = (&request.envelope, &request.message);
    let name = message.name(envelope.row.name_at).ok().flatten().unwrap_or_default().into_owned();
    let handle = message.param("requestState").and_then(|raw| raw.as_str());
    let caller = &envelope.client.caller;
    let sealed = handle.and_then(|handle| context.sealer.open(Kind::Held, caller, &handle));
    if let Some(payload) = sealed {
        let call = digest(envelope.row.name, &name, message);
        return Box::pin(resume(context, request, notes, &payload, call)).await;
    }
    let parking = Parking::default();
    let body = message.body().clone();
    let waiting = Envelope { parking: None, headers: None, ..envelope.clone() };
    let cancel = envelope.cancel.clone();
    let stream = match &notes {
        Notes::Stream(queue) => Some(queue.clone()),
        Notes::Connection(..) => None,
    };
    let envelope = Envelope { parking: Some(parking.clone()), ..request.envelope };
    let work = begin(Request { envelope, ..request }, notes.clone());
    let mut held =
        HeldCall { work, parking: parking.clone(), asked: Vec::new(), cancel, notes: stream };
    let question = tokio::select! {
        biased;
        answer = &mut held.work => return answer,
        question = parking.next() => question,
    };
    let message = Message::parse(body, usize::MAX, Sender::Client).ok()?;
    let call = digest(waiting.row.name, &name, &message);
    let waiting = Waiting { context, envelope: waiting, notes, call };
    Box::pin(waiting.hold(held, question)).await
}

/// Continues a held call with the client's responses. The call is decided again first.
async fn resume(
    context: &Context,
    request: Request,
    notes: Notes,
    payload: &[u8],
    call: [u8; 32],
) -> Option<Answer> {
    let Request { envelope, message, room: _room } = request;
    let wrong = |why: &str| Some(responses::bad_params(&envelope.id, envelope.client.era(), why));
    let Some((slot, bound)) = payload.split_first_chunk::<16>() else { return wrong(UNKNOWN) };
    if *bound != call {
        return wrong("the `requestState` belongs to another call");
    }
    let slot = u128::from_le_bytes(*slot);
    let plain = message.edit().remove_param("requestState").remove_param("inputResponses").finish();
    let Ok(plain) = Message::parse(plain, usize::MAX, Sender::Client) else {
        return wrong(UNKNOWN);
    };
    let resolved = match resolve(context, &envelope, plain).await {
        Ok(resolved) => resolved,
        Err(end) => return end,
    };
    if let Err(end) = authorize(context, &envelope, resolved).await {
        // It may not be continued: it is canceled at its server.
        drop(context.held.take(slot));
        context.held.finish(slot, None);
        return end;
    }
    let mut held = match context.held.take(slot) {
        Found::Nothing => return wrong(UNKNOWN),
        Found::InUse => return wrong("the `requestState` is in use; wait for the response"),
        Found::Result(body) => return Some(held::readdressed(&envelope.id, &body).into()),
        Found::Call(held) => held,
    };
    let continuation = Continuation::new(&context.held, slot);
    let responses = message.param("inputResponses").filter(|raw| raw.is_object());
    for (key, respond) in held.asked.drain(..) {
        let result = responses.and_then(|raw| raw.member(&key)).filter(|raw| raw.is_object());
        // Without a response the question counts as declined.
        if let Some(response) = result.and_then(|raw| held::response(&key, raw.bytes())) {
            let _ = respond.send(response);
        }
    }
    let waiting = Waiting { context, envelope, notes, call };
    waiting.follow(*held, continuation).await
}

impl Waiting<'_> {
    /// Follows a call that another request began, until it ends or asks again.
    async fn follow(self, mut held: HeldCall, continuation: Continuation<'_>) -> Option<Answer> {
        let parking = held.parking.clone();
        let cancel = self.envelope.cancel.clone();
        let question = loop {
            tokio::select! {
                biased;
                answer = &mut held.work => {
                    let answer = answer?;
                    continuation.finish(&answer.body);
                    let body = held::readdressed(&self.envelope.id, &answer.body);
                    return Some(Answer { body, ..answer });
                }
                question = parking.next() => break question,
                note = next_note(held.notes.as_ref()) => self.notes.send(note.bytes).await,
                () = cancel.cancelled(), if !held.cancel.is_cancelled() => held.cancel.cancel(),
            }
        };
        let answer = self.hold(held, question).await;
        // A client that lost this answer repeats its request.
        if let Some(answer) = &answer {
            continuation.finish(&answer.body);
        }
        answer
    }

    /// Holds a call, and asks its client.
    async fn hold(self, mut held: HeldCall, first: Question) -> Option<Answer> {
        let Waiting { context, envelope, call, .. } = &self;
        let mut asked = vec![(key(0), first)];
        let parking = held.parking.clone();
        let gathered = tokio::time::sleep(GATHER);
        tokio::pin!(gathered);
        loop {
            tokio::select! {
                biased;
                // It ended without waiting for the client.
                answer = &mut held.work => {
                    let answer = answer?;
                    let body = held::readdressed(&envelope.id, &answer.body);
                    return Some(Answer { body, ..answer });
                }
                question = parking.next() => asked.push((key(asked.len()), question)),
                () = &mut gathered => break,
            }
        }
        let (questions, senders): (Vec<_>, Vec<_>) = asked
            .into_iter()
            .map(|(key, Question { method, params, respond })| {
                ((key.clone(), method, params), (key, respond))
            })
            .unzip();
        held.asked = senders;
        let era = envelope.client.era();
        let about = (envelope.row.subject, "the call");
        let declined = |why| Some(responses::question_declined(&envelope.id, era, about, why));
        let Some(hold) = context.held.hold(envelope.agent(), held) else {
            return declined("too many calls of this agent wait for their client");
        };
        let payload = [&hold.slot.to_le_bytes()[..], call].concat();
        let seconds = held::HOLD.as_secs();
        let state = context.sealer.seal(Kind::Held, &envelope.client.caller, seconds, &payload);
        match state {
            Ok(state) => {
                let answer = held::input_required(&envelope.id, &questions, &state);
                Some(Answer { held: Some(hold), ..answer })
            }
            Err(_) => {
                context.held.cancel(hold.slot);
                declined("the state cannot be sealed")
            }
        }
    }
}

fn key(at: usize) -> String {
    format!("q{}", at + 1)
}

async fn next_note(queue: Option<&Arc<Queue>>) -> Note {
    match queue {
        Some(queue) => queue.next().await,
        None => std::future::pending().await,
    }
}
