//! Elicitation as an approval channel: the client of an agent with `trusted_ui` shows the request to a person.
//!
//! The operator states for which agents this is true; for all others, nothing that a client sends approves anything. The
//! request goes to the client that makes the call, on the stream of the call or, for a modern client, as an
//! `input_required` result whose state is sealed, single-use and bound to the call (`hold.rs`). A response decides only
//! the ticket of its own call, and only for entries without `approvers`.

use bytes::Bytes;
use serde_json::json;
use tokio::sync::oneshot;
use toolward_wire::jsonrpc::request_body;
use toolward_wire::{ClientCapabilities, Message, Raw};

use super::asking::Asking;
use crate::audit::redact::outside;
use crate::client::outlet::{ClientResponse, PendingResponse};
use crate::context::Context;
use crate::guard::approvals::{Scope, Waiting};
use crate::methods::approvals::{self, Approver, Rejected};
use crate::methods::request::ApprovalAttempt;

const METHOD: &str = "elicitation/create";
/// The characters of a call's parameters that the person sees.
const MAX_SHOWN_CHARS: usize = 4000;
const REASON: &str = "declined in the client";

/// A request for approval that waits for the client.
pub(super) enum Elicited {
    Session(PendingResponse),
    Parked(oneshot::Receiver<ClientResponse>),
}

/// Asks the person at the client, if the operator trusts it to show the request.
pub(super) async fn ask(
    context: &Context,
    asking: &Asking<'_>,
    attempt: &ApprovalAttempt,
    waiting: &Waiting,
) -> Option<Elicited> {
    let envelope = asking.envelope;
    let (client, agent) = (&envelope.client, envelope.agent().map(|agent| &**agent));
    let is_channel = envelope.active.policy.trusts_ui(agent)
        && client.declared.contains(ClientCapabilities::FORM)
        && asking.entries.iter().all(|entry| entry.rule.approvers.is_empty());
    if !is_channel {
        return None;
    }
    let params = params(context, asking, waiting)?;
    if let Some(parking) = &envelope.parking {
        return Some(Elicited::Parked(parking.ask(METHOD, Some(params))));
    }
    let pending = client.outlet.as_ref()?.register()?;
    let body = request_body(Some(&pending.id), METHOD, Some(&params));
    attempt.notes.ask(body).await.then_some(Elicited::Session(pending))
}

/// The form: what is to be approved, and a box that is not checked.
fn params(context: &Context, asking: &Asking<'_>, waiting: &Waiting) -> Option<Bytes> {
    let ticket = context.approvals.ticket(&waiting.ticket)?;
    let subject = &ticket.binding.subject;
    let whole = context.approvals.params(&ticket).unwrap_or_default();
    let shown: String = whole.chars().take(MAX_SHOWN_CHARS).collect();
    let cut = match shown.len() < ticket.bytes {
        true => format!(
            "\nOnly {} of {} bytes are shown; the approval is for all of them.",
            shown.len(),
            ticket.bytes
        ),
        false => String::new(),
    };
    let name = outside(&subject.name);
    let message = format!(
        "Toolward: approve this call of {}/{name}?\n{}{cut}",
        subject.server,
        outside(&shown)
    );
    let title = format!("Approve this call of {} once", asking.permit.exposed());
    let params = json!({
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": {"approve": {"type": "boolean", "title": outside(&title), "default": false}},
            "required": ["approve"],
        },
    });
    Some(params.to_string().into())
}

/// The response of the client; `None` if it will not respond. Pending forever if nothing was asked.
pub(super) async fn response(elicited: Option<&mut Elicited>) -> Option<ClientResponse> {
    match elicited {
        None => std::future::pending().await,
        Some(Elicited::Session(pending)) => pending.response().await,
        Some(Elicited::Parked(response)) => response.await.ok(),
    }
}

/// Decides the ticket by the person's response. False: the person decided nothing.
pub(super) async fn decide(
    context: &Context,
    ticket: &str,
    response: Option<&ClientResponse>,
) -> bool {
    let Some(is_approved) = response.and_then(|response| verdict(&response.message)) else {
        return false;
    };
    // The configuration may have changed since the person was asked.
    let Some(active) = context.current.get() else { return false };
    let approver = Approver::at_client();
    let decided = match is_approved {
        true => {
            approvals::approve(context, &active, (ticket, &Scope::Call), &approver).await.map(drop)
        }
        false => approvals::deny(context, &active, (ticket, Some(REASON)), &approver).await,
    };
    match decided {
        Ok(()) => true,
        // Someone else was faster, or the ticket is void; the wait continues and sees that.
        Err(Rejected::NotDecided(_)) => true,
        Err(Rejected::Forbidden) => false,
        Err(why) => {
            tracing::error!(target: "approvals", "a decision in a client is not valid: {why}");
            false
        }
    }
}

/// Whether a person approved. Only an explicit `approve: true` does; a form that was merely accepted decides nothing.
fn verdict(message: &Message) -> Option<bool> {
    let action = message.result_member("action").and_then(Raw::as_str)?;
    match &*action {
        "accept" => {
            let content = message.result_member("content").filter(|raw| raw.is_object())?;
            match content.member("approve")?.bytes() {
                b"true" => Some(true),
                b"false" => Some(false),
                _ => None,
            }
        }
        "decline" => Some(false),
        _ => None,
    }
}
