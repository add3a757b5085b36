//! A call that a person has to approve, and the answers to it while no one has.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolward_policy::refusal::in_words;
use toolward_wire::jsonrpc::result_body;
use toolward_wire::{Era, string};

use super::{ClientState, MAX_ROUNDS, STATE_SECONDS};
use crate::audit::line::hex;
use crate::audit::redact::outside;
use crate::client::Client;
use crate::context::Context;
use crate::guard::GuardedCall;
use crate::guard::approvals::{AskingEntry, NotAsked, Question, Subject, Waiting};
use crate::methods::request::Envelope;
use crate::methods::{events, refusals};
use crate::opaque_id::Kind;
use crate::permit::Permit;
use crate::responses::{self, Answer};

/// A call that a person has to approve.
pub(super) struct Asking<'a> {
    pub(super) envelope: &'a Envelope,
    pub(super) permit: &'a Permit,
    pub(super) subject: Subject,
    pub(super) entries: Vec<Arc<AskingEntry>>,
    pub(super) hold: Duration,
    pub(super) ttl: Duration,
}

/// Why a call that needs approval is refused.
pub(super) enum Refused<'a> {
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
    pub(super) fn new(envelope: &'a Envelope, call: &GuardedCall<'a>) -> Asking<'a> {
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
            origin: active.approvals.origin(&call.server.identity, caller.agent.as_deref()),
        };
        // If several rules ask, the shortest times count.
        let shortest = |of: fn(&AskingEntry) -> Option<Duration>, otherwise| {
            entries.iter().map(|entry| of(entry).unwrap_or(otherwise)).min().unwrap_or(otherwise)
        };
        let hold = shortest(|entry| entry.hold, active.approvals.hold);
        let ttl = shortest(|entry| entry.ttl, active.approvals.ttl);
        Asking { envelope, permit, subject, entries, hold, ttl }
    }

    pub(super) fn question(&self) -> Question {
        Question {
            exposed: self.permit.exposed().into(),
            holder_name: self.envelope.client.caller.subject().map(|name| outside(name).into()),
            rules: self.entries.iter().map(|entry| entry.rule.clone()).collect(),
            ttl: self.ttl,
        }
    }

    /// Refuses the call, and records that.
    pub(super) async fn refuse(&self, context: &Context, refused: &Refused<'_>) -> Answer {
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

    /// The answer to a call that no one has decided yet. `round`: a modern client may be asked to repeat it.
    pub(super) async fn answer_later(
        &self,
        context: &Context,
        round: Option<u8>,
        waiting: &Waiting,
    ) -> Answer {
        let Envelope { client, row, .. } = self.envelope;
        let about = ("ask", "no one has decided yet", Some(&*waiting.ticket));
        let is_modern = client.era() == Era::Modern && row.may_request_input;
        if let Some(round) = round.filter(|round| *round < MAX_ROUNDS)
            && is_modern
            && client_repeats(client)
        {
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
