//! Refusals of calls and listings: recorded first, then sent to the client.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};
use toolward_policy::refusal::{Limited, Redact as Redaction, Refusal, Sent, in_words};
use toolward_wire::jsonrpc::error_body;
use toolward_wire::jsonrpc_error::code;
use toolward_wire::{Era, Id, Message};

use super::events;
use super::request::{Envelope, Request};
use crate::active::Active;
use crate::audit::redact::Redact;
use crate::context::Context;
use crate::guard::{Stopped, Why};
use crate::in_flight::Cancel;
use crate::permit::{DeniedCall, Permit, RawArguments};
use crate::responses::{self, Answer};
use crate::upstream::Unavailable;
use crate::view::View;

/// What a refusal repeats of a call is redacted as the audit log is.
impl Redaction for Redact {
    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Redact::text(self, text)
    }

    fn value(&self, value: Value) -> Value {
        Redact::value(self, value)
    }
}

/// Refuses a call that the policy denies.
pub(crate) async fn deny(
    context: &Context,
    envelope: &Envelope,
    view: &View,
    name: &str,
    denied: &DeniedCall,
) -> Option<Answer> {
    let Envelope { active, client, id, cancel, .. } = envelope;
    let ticket = context.audit.ticket(envelope.agent());
    let refusal = denial(active, view, name, denied, &ticket.id);
    let facts = events::denial(envelope, (name, denied, &refusal), &context.audit.arguments);
    let answer = match context.audit.record_ticket(&ticket, "refusal", name, &facts).await {
        Ok(()) => responses::refused(id, client.era(), &refusal),
        Err(error) => responses::not_recorded(id, &error),
    };
    delayed(active, envelope.agent(), cancel, answer).await
}

/// Refuses a call that a rate limit or a hook stopped.
pub(crate) async fn stop(
    context: &Context,
    envelope: &Envelope,
    view: &View,
    permit: &Permit,
    stopped: &Stopped,
) -> Option<Answer> {
    let Envelope { active, client, id, cancel, .. } = envelope;
    let ticket = context.audit.ticket(envelope.agent());
    let limit = limit_refusal(active, view, permit, stopped, &ticket.id);
    let about = (permit, stopped, limit.as_ref());
    let facts = events::stopped(envelope, about, &context.audit.arguments);
    let name = permit.exposed();
    let answer = match context.audit.record_ticket(&ticket, "refusal", name, &facts).await {
        Ok(()) => stopped_answer(id, client.era(), permit, stopped, limit.as_ref(), &ticket.id),
        Err(error) => responses::not_recorded(id, &error),
    };
    delayed(active, envelope.agent(), cancel, answer).await
}

/// Refuses a listing that a rate limit stopped.
pub(crate) async fn refuse_listing(
    context: &Context,
    request: &Request,
    stopped: &Stopped,
) -> Answer {
    let envelope = &request.envelope;
    let ticket = context.audit.ticket(envelope.agent());
    let facts = events::list_stopped(envelope, &request.message, stopped);
    match context.audit.record_ticket(&ticket, "refusal", "", &facts).await {
        Ok(()) => listing_answer(&envelope.id, stopped, &ticket.id),
        Err(error) => responses::not_recorded(&envelope.id, &error),
    }
}

/// Refuses a call about which nothing can be decided, because the server's list is not known.
pub(crate) async fn refuse_undecidable(
    context: &Context,
    envelope: &Envelope,
    message: &Message,
    name: &str,
    (server, why): (&str, &Unavailable),
) -> Answer {
    let id = &envelope.id;
    let facts = events::unavailable(envelope, message, name, (server, why));
    let ticket = context.audit.ticket(envelope.agent());
    match context.audit.record_ticket(&ticket, "unavailable", name, &facts).await {
        Ok(()) => why.public().response(id, server),
        Err(error) => responses::not_recorded(id, &error),
    }
}

/// The response to a refused call, after the delay that the agent's refused calls have earned it.
async fn delayed(
    active: &Active,
    agent: Option<&Arc<str>>,
    cancel: &Cancel,
    answer: Answer,
) -> Option<Answer> {
    tokio::select! {
        () = active.guards.delay(agent.map(|agent| &**agent)) => Some(answer),
        () = cancel.cancelled() => None,
    }
}

/// The refusal of a call by the policy.
fn denial(
    active: &Active,
    view: &View,
    name: &str,
    denied: &DeniedCall,
    decision: &str,
) -> Refusal {
    let arguments = denied.message.arguments().map(RawArguments);
    let sent = Sent {
        tool: name,
        action: denied.action.as_deref(),
        arguments: arguments.as_ref().map(|given| given as _),
    };
    let why = denied.why.as_ref();
    view.allowed().refuse(&active.policy, sent, why, &active.redact, decision)
}

/// The refusal of a call by a rate limit; `None` if a hook refused it, which has its own words.
fn limit_refusal(
    active: &Active,
    view: &View,
    permit: &Permit,
    stopped: &Stopped,
    decision: &str,
) -> Option<Refusal> {
    let limited = match &stopped.why {
        Why::Full { scope, rate, .. } => Limited::Exceeded {
            limit: scope,
            rate,
            retry_after: stopped.retry_after().unwrap_or_default(),
        },
        Why::Store => Limited::Unavailable,
        Why::Denied(_) | Why::Failed => return None,
    };
    let sent = Sent { tool: permit.exposed(), action: permit.action(), arguments: None };
    let entry = active.policy.message_of(&permit.decision().decision);
    Some(view.allowed().limit(sent, limited, entry, &active.redact, decision))
}

/// The response to a call that a guard refuses. `limit` is the refusal of a rate limit; a hook has its
/// own code, message and data.
fn stopped_answer(
    id: &Id,
    era: Era,
    permit: &Permit,
    stopped: &Stopped,
    limit: Option<&Refusal>,
    decision: &str,
) -> Answer {
    if let Some(limit) = limit {
        return Answer { retry_after: stopped.retry_after(), ..responses::refused(id, era, limit) };
    }
    if let Why::Denied(denial) = &stopped.why {
        let data = denial.data.as_deref();
        return error_body(Some(id), denial.code, &denial.message, data).into();
    }
    let name = permit.exposed();
    let message = format!("{name} is refused: the hook `{}` failed", stopped.by);
    let data = json!({
        "error": "hook_failed", "message": message, "tool": name, "hook": stopped.by,
        "retryable": true, "decision_id": decision,
    });
    let data = data.to_string();
    error_body(Some(id), code::INTERNAL_ERROR, &message, Some(data.as_bytes())).into()
}

/// The answer to a listing that a limit refuses.
fn listing_answer(id: &Id, stopped: &Stopped, decision: &str) -> Answer {
    let message = match (&stopped.why, stopped.retry_after()) {
        (Why::Full { rate, .. }, Some(wait)) => {
            let wait = in_words(wait);
            format!("listing is limited to {rate}, and that is used up; try again in {wait}")
        }
        _ => "listing is limited, and the limit cannot be checked now".into(),
    };
    let data = limit_data(stopped, &message, decision).to_string();
    let body = error_body(Some(id), code::INTERNAL_ERROR, &message, Some(data.as_bytes()));
    Answer { retry_after: stopped.retry_after(), ..body.into() }
}

fn limit_data(stopped: &Stopped, message: &str, decision: &str) -> Value {
    let (error, limit) = match &stopped.why {
        Why::Full { scope, .. } => ("limit_exceeded", scope.as_str()),
        _ => ("limits_unavailable", "store"),
    };
    let mut data = json!({"error": error, "message": message, "limit": limit});
    if let Why::Full { rate, .. } = &stopped.why {
        data["rate"] = json!(rate);
    }
    if let Some(wait) = stopped.retry_after() {
        data["retry_after_ms"] = json!(wait.as_millis() as u64);
    }
    data["retryable"] = json!(true);
    data["decision_id"] = json!(decision);
    data
}
