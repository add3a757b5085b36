//! Refusals of calls and listings: written to the audit log first, then sent to the client.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};
use toolward_policy::refusal::{Limited, Redact as Redaction, Refusal, Refused, Sent, in_words};
use toolward_wire::jsonrpc::error_body;
use toolward_wire::jsonrpc_error::code;
use toolward_wire::list::ListKind;
use toolward_wire::method::PolicySubject;
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

/// Parts of the call that a refusal repeats are redacted like the audit log.
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
    let subject = envelope.row.subject;
    let refusal = denial(active, view, name, denied, &ticket.id).of(refused(subject));
    let facts = events::denial(envelope, (name, denied, &refusal), &context.audit.arguments);
    context.series.refused("policy");
    // Legacy clients, and callers without a token of an issuer, get the same as a result.
    let can_ask = client.era() == Era::Modern && client.caller.claims.is_some();
    let scope = refusal.scope().filter(|_| can_ask);
    let answer = match context.audit.record_ticket(&ticket, "refusal", name, &facts).await {
        Ok(()) if subject == PolicySubject::Completion && denied.asks() => {
            responses::no_completion(id, client.era())
        }
        Ok(()) if let Some(scope) = scope => responses::insufficient_scope(id, &refusal, scope),
        Ok(()) if subject == PolicySubject::Resource || view.kind() == ListKind::Resources => {
            responses::resource_not_found(id, client.era(), name, &ticket.id)
        }
        Ok(()) => responses::refused(id, client.era(), subject, &refusal),
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
    let limit = limit.map(|limit| limit.of(refused(envelope.row.subject)));
    let about = (permit, stopped, limit.as_ref());
    let facts = events::stopped(envelope, about, &context.audit.arguments);
    context.series.refused(stopped.step());
    let name = permit.exposed();
    let answer = match context.audit.record_ticket(&ticket, "refusal", name, &facts).await {
        Ok(()) => {
            let about = (envelope.row.subject, permit);
            stopped_answer(id, client.era(), about, stopped, limit.as_ref(), &ticket.id)
        }
        Err(error) => responses::not_recorded(id, &error),
    };
    delayed(active, envelope.agent(), cancel, answer).await
}

/// Refuses a listing that a rate limit stopped.
pub(crate) async fn refuse_listing(
    context: &Context,
    request: &Request,
    method: &str,
    stopped: &Stopped,
) -> Answer {
    let envelope = &request.envelope;
    let ticket = context.audit.ticket(envelope.agent());
    let facts = events::list_stopped(envelope, &request.message, method, stopped);
    context.series.refused(stopped.step());
    match context.audit.record_ticket(&ticket, "refusal", "", &facts).await {
        Ok(()) => listing_answer(&envelope.id, stopped, &ticket.id),
        Err(error) => responses::not_recorded(&envelope.id, &error),
    }
}

/// Rejects a call that cannot be decided, because the server's tool list is not known.
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

/// Delays the response to a refused call according to the agent's `refused` limit.
pub(crate) async fn delayed(
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

/// The name of a request's subject in refusals.
fn refused(subject: PolicySubject) -> Refused {
    match subject {
        PolicySubject::Tool => Refused::Tool,
        PolicySubject::Resource => Refused::Resource,
        _ => Refused::Prompt,
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
    if view.kind() == ListKind::Prompts && why.is_none() {
        let mut listed: Vec<&str> = view.names().collect();
        listed.sort_unstable();
        return view.allowed().refuse_prompt(name, &listed, &active.redact, decision);
    }
    view.allowed().refuse(&active.policy, sent, why, &active.redact, decision)
}

/// The refusal of a call by a rate limit; `None` if a hook refused it, which has its own message.
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
    (subject, permit): (PolicySubject, &Permit),
    stopped: &Stopped,
    limit: Option<&Refusal>,
    decision: &str,
) -> Answer {
    if let Some(limit) = limit {
        let answer = responses::refused(id, era, subject, limit);
        return Answer { retry_after: stopped.retry_after(), ..answer };
    }
    if let Why::Denied(denial) = &stopped.why {
        let data = denial.data.as_deref();
        let body = error_body(Some(id), denial.code, &denial.message, data);
        return Answer::from(body).error("refused");
    }
    let name = permit.exposed();
    let message = format!("{name} is refused: the hook `{}` failed", stopped.by);
    let data = json!({
        "error": "hook_failed", "message": message, "tool": name, "hook": stopped.by,
        "retryable": true, "decision_id": decision,
    });
    let data = data.to_string();
    let body = error_body(Some(id), code::INTERNAL_ERROR, &message, Some(data.as_bytes()));
    Answer::from(body).error("hook_failed")
}

/// The response to a listing that a rate limit refuses.
fn listing_answer(id: &Id, stopped: &Stopped, decision: &str) -> Answer {
    let message = match (&stopped.why, stopped.retry_after()) {
        (Why::Full { rate, .. }, Some(wait)) => {
            let wait = in_words(wait);
            format!("listing is limited to {rate}, and the limit is reached; try again in {wait}")
        }
        _ => "listing is limited, and the limit cannot be checked now".into(),
    };
    let data = limit_data(stopped, &message, decision).to_string();
    let body = error_body(Some(id), code::INTERNAL_ERROR, &message, Some(data.as_bytes()));
    let error_type = Some("refused");
    Answer { retry_after: stopped.retry_after(), error_type, ..body.into() }
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
