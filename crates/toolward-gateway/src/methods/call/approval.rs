//! The last guard: a person approves the call, if a rule asks.
//!
//! A grant that covers the call is redeemed before the call is forwarded. Without one, a ticket is created, and the
//! call waits for a while. Once the ticket is decided, the call is attempted again from the beginning, under the
//! configuration of the moment: it may have changed while the call waited.
//!
//! A call that has waited long enough is answered: a modern client repeats it by itself, with a sealed state; the
//! answer to a legacy client asks for it. An approval that comes later covers the repeated call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use memchr::memmem;
use serde_json::json;
use tokio::time::{Instant, interval_at};
use toolward_policy::refusal::in_words;
use toolward_wire::jsonrpc::result_body;
use toolward_wire::{Era, Id, Message, Sender, string};

use super::{End, stages};
use crate::audit::line::hex;
use crate::audit::redact::outside;
use crate::client::Client;
use crate::context::Context;
use crate::guard::approvals::{
    AskingEntry, Nonce, NotAsked, Outcome, POLL_INTERVAL, Question, Subject, Waiting,
};
use crate::guard::{GuardedCall, OnDisconnect, Passed};
use crate::methods::request::{ApprovalAttempt, Envelope, Request};
use crate::methods::{approvals, events, refusals};
use crate::notifications::Notes;
use crate::opaque_id::Kind;
use crate::permit::Permit;
use crate::responses::{self, Answer};

/// Maximum number of times that a modern client is asked to repeat a call. SDKs give up after ten.
const MAX_ROUNDS: u8 = 8;
/// How long the state of such a client is valid.
const STATE_SECONDS: u64 = 900;
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// Progress reports of the gateway are far below those of a server, because progress must increase.
const PROGRESS_STEP: f64 = 1e-6;

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
            return continuable(context, &envelope, &message, &attempt, end);
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
fn continuable(
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
    let binding = match context.approvals.redeem(subject.clone(), message, continues) {
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
    let asked = context.approvals.ask(&binding, message, asking.question());
    approvals::record_expired(context, &envelope.active).await;
    let waiting = match asked {
        Ok(Ok(waiting)) => waiting,
        Ok(Err(why)) => return Err(Some(asking.refuse(context, &Refused::NotAsked(why)).await)),
        Err(error) => return Err(Some(asking.refuse(context, &Refused::Store(error)).await)),
    };
    if waiting.notify {
        notify(context, envelope, &waiting.ticket);
    }
    let outcome = match wait(context, envelope, call.permit, attempt, &waiting, asking.hold).await {
        Some(outcome) => outcome,
        None => return Err(None),
    };
    match outcome {
        // The active configuration may have changed what the call needs.
        Outcome::Approved | Outcome::Gone => {
            attempt.released.store(true, Ordering::Release);
            Err(None)
        }
        Outcome::Denied(reason) => {
            let denied = Refused::Denied { ticket: &waiting.ticket, reason };
            Err(Some(asking.refuse(context, &denied).await))
        }
        Outcome::Pending => Err(Some(asking.answer_later(context, attempt.round, &waiting).await)),
    }
}

/// Waits until a ticket is decided, or for as long as the call may be held. `None`: the client cancelled or
/// disconnected.
async fn wait(
    context: &Context,
    envelope: &Envelope,
    permit: &Permit,
    attempt: &ApprovalAttempt,
    waiting: &Waiting,
    hold: Duration,
) -> Option<Outcome> {
    let (approvals, audit) = (&context.approvals, &context.audit);
    let disconnect = OnDisconnect::new(|| {
        let reason = "its client disconnected while it waited for approval";
        let about = ("ask", reason, Some(&*waiting.ticket));
        let facts = events::unapproved(envelope, permit, &audit.arguments, about);
        audit.note_ticket(envelope.agent(), "refusal", permit.exposed(), &facts);
    });
    let _waits = approvals.wait(&waiting.ticket);
    let (mut changes, is_shared) = (approvals.changes(), approvals.is_shared());
    let begun = Instant::now();
    let end = begun + hold.min(waiting.left);
    let token = permit.message().progress_token();
    let mut progress = interval_at(begun + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
    let mut reports = 0;
    let outcome = loop {
        changes.borrow_and_update();
        match approvals.outcome(&waiting.ticket) {
            Outcome::Pending => {}
            decided => break decided,
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {
                if attempt.notes.is_abandoned() {
                    return None;
                }
                if is_shared {
                    approvals.look();
                }
            }
            () = tokio::time::sleep_until(end) => break Outcome::Pending,
            _ = progress.tick(), if token.is_some() => {
                reports += 1;
                if let Some(token) = &token {
                    attempt.notes.send(report(token, reports).into()).await;
                }
            }
            () = envelope.cancel.cancelled() => return None,
        }
    };
    disconnect.answered();
    Some(outcome)
}

/// A progress notification.
fn report(token: &Id, number: u32) -> Vec<u8> {
    let mut note = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":".to_vec();
    note.extend_from_slice(token.raw());
    let progress = f64::from(number) * PROGRESS_STEP;
    let rest =
        format!(",\"progress\":{progress:.6},\"message\":\"waiting for a person to approve\"}}}}");
    note.extend_from_slice(rest.as_bytes());
    note
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

/// A call that a person has to approve.
struct Asking<'a> {
    envelope: &'a Envelope,
    permit: &'a Permit,
    subject: Subject,
    entries: Vec<Arc<AskingEntry>>,
    hold: Duration,
    ttl: Duration,
}

/// Why a call that needs approval is refused.
enum Refused<'a> {
    Denied {
        ticket: &'a str,
        reason: Option<String>,
    },
    NotAsked(NotAsked),
    /// The approval was used for an identical call, or is void.
    Used,
    Store(std::io::Error),
    /// The rules that ask are not known. This cannot happen.
    Unknown,
}

impl<'a> Asking<'a> {
    fn new(envelope: &'a Envelope, call: &GuardedCall<'a>) -> Asking<'a> {
        let (active, permit) = (&envelope.active, call.permit);
        let calls = call.through.into_iter().map(|outer| outer.permit).chain([permit]);
        let rules = calls.flat_map(|permit| permit.asks().rules.iter().copied());
        let entry = |rule| active.approvals.entry(&active.policy, rule);
        let entries: Vec<Arc<AskingEntry>> = rules.filter_map(entry).collect();
        let (decision, caller) = (permit.decision(), &envelope.client.caller);
        let subject = Subject {
            agent: caller.agent.clone(),
            holder: caller.claims.as_ref().map(|claims| hex(claims.digest())),
            server: decision.server.to_string(),
            method: envelope.row.name.into(),
            name: decision.original.to_string(),
            definition: permit.asks().definition.as_deref().unwrap_or_default().into(),
            entries: entries.iter().map(|entry| entry.digest.clone()).collect(),
        };
        // If several rules ask, the shortest times count.
        let shortest = |of: fn(&AskingEntry) -> Option<Duration>, otherwise| {
            entries.iter().map(|entry| of(entry).unwrap_or(otherwise)).min().unwrap_or(otherwise)
        };
        let hold = shortest(|entry| entry.hold, active.approvals.hold);
        let ttl = shortest(|entry| entry.ttl, active.approvals.ttl);
        Asking { envelope, permit, subject, entries, hold, ttl }
    }

    fn question(&self) -> Question {
        Question {
            exposed: self.permit.exposed().into(),
            holder_name: self.envelope.client.caller.subject().map(|name| outside(name).into()),
            rules: self.entries.iter().map(|entry| entry.rule.clone()).collect(),
            ttl: self.ttl,
        }
    }

    /// Refuses the call, and records that.
    async fn refuse(&self, context: &Context, refused: &Refused<'_>) -> Answer {
        let (error, reason, retryable) = match refused {
            Refused::Denied { .. } => ("approval_denied", "a person denied this call", false),
            Refused::NotAsked(NotAsked::Fatigue) => {
                let why = "people have denied such calls repeatedly, so no one was asked again";
                ("approval_denied", why, false)
            }
            Refused::NotAsked(NotAsked::TooMany | NotAsked::Full) => {
                let why = "too many calls of this agent wait for a person already";
                ("approvals_full", why, true)
            }
            Refused::Used => {
                let why = "the approval was used by an identical call, or no longer applies";
                ("approval_used", why, true)
            }
            Refused::Store(_) | Refused::Unknown => {
                ("approvals_unavailable", "approvals cannot be checked now", true)
            }
        };
        let (ticket, said) = match refused {
            Refused::Denied { ticket, reason } => (Some(*ticket), reason.as_deref()),
            _ => (None, None),
        };
        let recorded = match (refused, said) {
            (Refused::Store(error), _) => {
                tracing::error!(target: "approvals", "tickets and grants cannot be stored: {error}");
                format!("{reason}: {error}")
            }
            (_, Some(said)) => format!("{reason}: {said}"),
            _ => reason.into(),
        };
        let agent = self.envelope.agent().map(|agent| &**agent);
        let (explains, message) = self.envelope.active.policy.wording(agent);
        let mut text = format!("{} is not permitted", self.permit.exposed());
        if explains {
            text += &format!(": {reason}.");
            if let Some(said) = said {
                text += &format!("\nThe reason given: {}", outside(said));
            }
            text += match refused {
                Refused::Used => "\nRepeat the call to ask again.",
                _ if retryable => "\nTry again later.",
                _ => "\nRepeating the same call will not help.",
            };
        }
        if let Some(message) = message {
            text += &format!("\n{message}");
        }
        let about = ("deny", &*recorded, ticket);
        self.answer(context, about, (error, retryable), text, |_| {}).await
    }

    /// The answer to a call that no one has decided yet.
    async fn answer_later(&self, context: &Context, round: u8, waiting: &Waiting) -> Answer {
        let Envelope { client, row, .. } = self.envelope;
        let about = ("ask", "no one has decided yet", Some(&*waiting.ticket));
        let is_modern = client.era() == Era::Modern && row.may_request_input;
        if is_modern && round < MAX_ROUNDS && client_repeats(client) {
            let payload = ClientState::round(round + 1);
            let sealed =
                context.sealer.seal(Kind::Approval, &client.caller, STATE_SECONDS, &payload);
            if let Ok(state) = sealed {
                return self.answer_with_state(context, about, &state).await;
            }
        }
        let name = self.permit.exposed();
        let reference = &waiting.reference;
        let left = in_words(waiting.left.saturating_sub(self.hold));
        let text = format!(
            "{name} is not permitted yet: it needs a person's approval. A person has been asked and \
             has not decided yet.\nRepeat the identical call later, within {left}: once the person \
             approves, it is carried out. Do not change the arguments, and do not try another way.\n\
             Reference {reference}. It approves nothing; a person can find the request by it.",
        );
        let kind = ("approval_pending", true);
        self.answer(context, about, kind, text, |data| data["reference"] = json!(reference)).await
    }

    async fn answer_with_state(
        &self,
        context: &Context,
        about: (&str, &str, Option<&str>),
        state: &str,
    ) -> Answer {
        let mut result = b"{\"resultType\":\"input_required\",\"requestState\":".to_vec();
        string::write(state, &mut result);
        result.push(b'}');
        match self.record(context, about, "").await {
            Ok(_) => result_body(&self.envelope.id, &result).into(),
            Err(answer) => *answer,
        }
    }

    async fn answer(
        &self,
        context: &Context,
        about: (&str, &str, Option<&str>),
        (error, retryable): (&'static str, bool),
        mut text: String,
        add: impl FnOnce(&mut serde_json::Value),
    ) -> Answer {
        let Envelope { active, client, id, row, cancel, .. } = self.envelope;
        let decision = match self.record(context, about, &text).await {
            Ok(decision) => decision,
            Err(answer) => return *answer,
        };
        let mut data = json!({
            "error": error, "message": text, "tool": self.permit.exposed(),
            "retryable": retryable, "decision_id": decision,
        });
        add(&mut data);
        text += &format!("\nDecision {decision} (a person can run: toolward explain {decision})");
        let answer = responses::error_text(id, client.era(), row.subject, &text, &data);
        let answer = answer.error(error);
        match about.0 {
            "deny" => refusals::delayed(active, self.envelope.agent(), cancel, answer)
                .await
                .unwrap_or_else(|| {
                    responses::internal(id, "cancelled", "the call was cancelled", false)
                }),
            _ => answer,
        }
    }

    /// Records the refusal, and returns its decision id.
    async fn record(
        &self,
        context: &Context,
        about: (&str, &str, Option<&str>),
        text: &str,
    ) -> Result<String, Box<Answer>> {
        let audit = &context.audit;
        let ticket = audit.ticket(self.envelope.agent());
        let mut facts = events::unapproved(self.envelope, self.permit, &audit.arguments, about);
        facts.text("refusal", text);
        let recorded = audit.record_ticket(&ticket, "refusal", self.permit.exposed(), &facts);
        match recorded.await {
            Ok(()) => Ok(ticket.id),
            Err(error) => Err(Box::new(responses::not_recorded(&self.envelope.id, &error))),
        }
    }
}

/// Whether the client repeats calls by itself. A call inside `execute_tool` would be repeated under another name.
fn client_repeats(client: &Client) -> bool {
    client.scope != crate::client::Scope::Discovery
}
