//! The last guard: a person approves the call, if a rule asks.
//!
//! A grant that covers the call is redeemed before the call is forwarded. Without one, a ticket is created, and the
//! call waits for a while. Once the ticket is decided, the call is attempted again from the beginning, under the
//! configuration of the moment: it may have changed while the call waited.
//!
//! A call that has waited long enough is answered: a modern client repeats it by itself, with a sealed state; the
//! answer to a legacy client asks for it. An approval that comes later covers the repeated call.

mod asking;
mod elicitation;
mod wait;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use memchr::memmem;
use toolward_wire::{Era, Message, Sender, string};

use self::asking::{Asking, Refused};
use self::wait::{Waited, wait};
use super::{End, stages};
use crate::context::Context;
use crate::guard::approvals::{Nonce, Outcome, Waiting};
use crate::guard::{GuardedCall, Passed};
use crate::methods::approvals;
use crate::methods::request::{ApprovalAttempt, Envelope, Request};
use crate::notifications::Notes;
use crate::opaque_id::Kind;
use crate::responses::{self, Answer};

/// Maximum number of times that a modern client is asked to repeat a call. SDKs give up after ten.
const MAX_ROUNDS: u8 = 8;
/// How long the state of such a client is valid.
const STATE_SECONDS: u64 = 900;

/// Makes a call of a policy that asks: again, if it had to wait for a person.
pub(super) async fn call(context: &Context, request: Request, notes: &Notes) -> Option<Answer> {
    let Request { mut envelope, message, room } = request;
    let opened = ClientState::open(context, &envelope, message);
    let (state, message) = opened?;
    let mut is_repeated = false;
    loop {
        let attempt = Arc::new(ApprovalAttempt {
            notes: notes.clone(),
            round: state.round,
            continues: state.continues,
            is_repeated,
            released: AtomicBool::new(false),
            approved: OnceLock::new(),
        });
        let this = Request {
            envelope: Envelope { approval: Some(attempt.clone()), ..envelope.clone() },
            message: message.clone(),
            room: room.account().reserve_nothing(),
        };
        let end = stages(context, this, None, notes).await.unwrap_or_else(|end| end);
        if !attempt.released.load(Ordering::Acquire) {
            return continuable(context, &envelope, &message, &attempt, end).await;
        }
        // The call is decided again, by the configuration of the moment.
        let active = context.current.get()?;
        if !active.identities.still_names(&envelope.client.caller) {
            let why = "the caller's credential was revoked while the call waited";
            return Some(responses::internal(&envelope.id, "revoked", why, false));
        }
        envelope.active = active;
        is_repeated = true;
    }
}

/// The state that a modern client presents when it repeats a call.
#[derive(Default)]
struct ClientState {
    round: u8,
    continues: Option<Nonce>,
}

impl ClientState {
    /// Takes the gateway's own state out of a call. Another state is left in it.
    fn open(
        context: &Context,
        envelope: &Envelope,
        message: Message,
    ) -> Option<(ClientState, Message)> {
        let caller = &envelope.client.caller;
        let handle = message.param("requestState").and_then(|raw| raw.as_str());
        let payload =
            handle.and_then(|handle| context.sealer.open(Kind::Approval, caller, &handle));
        let Some(payload) = payload else { return Some((ClientState::default(), message)) };
        let (kind, rest) = payload.split_first()?;
        let (state, edit) = match (kind, rest) {
            (0, [round]) => {
                let edit = message.edit().remove_param("requestState");
                let state = ClientState { round: *round, continues: None };
                (state, edit.remove_param("inputResponses"))
            }
            _ => {
                let (nonce, inner) = rest.split_first_chunk::<16>()?;
                let inner = string::quote(std::str::from_utf8(inner).ok()?);
                let state = ClientState { round: 0, continues: Some(*nonce) };
                (state, message.edit().set_param("requestState", inner))
            }
        };
        let message = Message::parse(edit.finish(), usize::MAX, Sender::Client).ok()?;
        Some((state, message))
    }

    fn round(round: u8) -> Vec<u8> {
        vec![0, round]
    }

    fn continuation(nonce: &Nonce, inner: &str) -> Vec<u8> {
        [&[1][..], nonce, inner.as_bytes()].concat()
    }
}

/// The answer to an approved call whose server needs input: the approval covers the repeated call, once.
async fn continuable(
    context: &Context,
    envelope: &Envelope,
    message: &Message,
    attempt: &ApprovalAttempt,
    end: End,
) -> End {
    let answer = end?;
    let Some((subject, approved)) = attempt.approved.get() else { return Some(answer) };
    // Nearly no response has a state, so most are not parsed.
    let has_state = |piece: &Bytes| memmem::find(piece, b"\"requestState\"").is_some();
    if !answer.body.pieces.iter().any(has_state) {
        return Some(answer);
    }
    let size = answer.body.len();
    let body = answer.body.clone().whole();
    let Ok(parsed) = Message::parse(body, size.max(1 << 20), Sender::Server) else {
        return Some(answer);
    };
    let inner = parsed.result_member("requestState").and_then(|raw| raw.as_str());
    let Some(inner) = inner else { return Some(answer) };
    let nonce = context.approvals.permit_continuation(subject.clone(), message, approved);
    let nonce = nonce.await;
    let sealed = nonce.and_then(|nonce| {
        let payload = ClientState::continuation(&nonce, &inner);
        context.sealer.seal(Kind::Approval, &envelope.client.caller, STATE_SECONDS, &payload)
    });
    Some(match sealed {
        Ok(sealed) => {
            let edit = parsed.edit().set_result("requestState", string::quote(&sealed));
            Answer { body: edit.finish_shared().into(), ..answer }
        }
        Err(error) => responses::not_recorded(&envelope.id, &error),
    })
}

/// Redeems a grant for a call that passed all other guards, or waits for a person.
pub(super) async fn approve<'e>(
    context: &Context,
    envelope: &'e Envelope,
    call: &GuardedCall<'_>,
    passed: Passed<'e>,
) -> Result<Passed<'e>, End> {
    let asking = Asking::new(envelope, call);
    let Asking { ref subject, .. } = asking;
    let attempt = match &envelope.approval {
        // A call inside `execute_tool` belongs to the attempt of the outer one.
        Some(attempt) if !asking.entries.is_empty() => attempt,
        _ => return Err(Some(asking.refuse(context, &Refused::Unknown).await)),
    };
    let message = call.permit.message();
    let continues = attempt.continues.as_ref();
    let binding = match context.approvals.redeem(subject.clone(), message, continues).await {
        Ok(Ok(redeemed)) => {
            // Only a modern client repeats a call with the input that its server needs.
            if envelope.client.era() == Era::Modern {
                let _ = attempt.approved.set((subject.clone(), redeemed.clone()));
            }
            return Ok(passed.approved(redeemed));
        }
        Ok(Err(binding)) => binding,
        Err(error) => return Err(Some(asking.refuse(context, &Refused::Store(error)).await)),
    };
    if continues.is_some() {
        let why = "the `requestState` is not known; call again without it";
        return Err(Some(responses::bad_params(&envelope.id, envelope.client.era(), why)));
    }
    if attempt.is_repeated {
        return Err(Some(asking.refuse(context, &Refused::Used).await));
    }
    // While it waits, the call uses no quota.
    drop(passed);
    let asked = context.approvals.ask(&binding, message, asking.question()).await;
    approvals::record_expired(context, &envelope.active).await;
    let waiting = match asked {
        Ok(Ok(waiting)) => waiting,
        Ok(Err(why)) => return Err(Some(asking.refuse(context, &Refused::NotAsked(why)).await)),
        Err(error) => return Err(Some(asking.refuse(context, &Refused::Store(error)).await)),
    };
    if waiting.notify {
        notify(context, envelope, &waiting.ticket);
    }
    let elicited = elicitation::ask(context, &asking, attempt, &waiting).await;
    match wait(context, &asking, attempt, &waiting, elicited).await {
        None => Err(None),
        // A client that was asked to repeat the call would show the request again.
        Some(Waited::Dismissed) => Err(Some(asking.answer_later(context, None, &waiting).await)),
        Some(Waited::Outcome(outcome)) => {
            Err(asking.end(context, attempt, &waiting, outcome).await)
        }
    }
}

/// Notifies approvers in the background.
fn notify(context: &Context, envelope: &Envelope, ticket: &str) {
    let notifiers = envelope.active.approvals.notify.clone();
    let Some(ticket) = context.approvals.ticket(ticket).filter(|_| !notifiers.is_empty()) else {
        return;
    };
    let params = context.approvals.params(&ticket);
    tokio::spawn(async move {
        for notifier in notifiers.iter() {
            notifier.send(&ticket, params.as_deref()).await;
        }
    });
}

impl Asking<'_> {
    /// The end of an attempt whose wait is over. An approved call is attempted again.
    async fn end(
        &self,
        context: &Context,
        attempt: &ApprovalAttempt,
        waiting: &Waiting,
        outcome: Outcome,
    ) -> End {
        match outcome {
            // The active configuration may have changed what the call needs.
            Outcome::Approved | Outcome::Gone => {
                attempt.released.store(true, Ordering::Release);
                None
            }
            Outcome::Denied(reason) => {
                let denied = Refused::Denied { ticket: &waiting.ticket, reason };
                Some(self.refuse(context, &denied).await)
            }
            Outcome::Pending => {
                Some(self.answer_later(context, Some(attempt.round), waiting).await)
            }
        }
    }
}
