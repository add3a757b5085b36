//! Stage 3, guard: checks rate limits and hooks, then whether a person has to approve. Consumed units are returned
//! unless the call is forwarded.

use super::{End, approval};
use crate::context::Context;
use crate::guard::{GuardedCall, OnDisconnect, Passed};
use crate::methods::request::Envelope;
use crate::methods::{events, refusals};
use crate::view::View;

pub(super) async fn guard<'e>(
    context: &Context,
    envelope: &'e Envelope,
    view: &View,
    call: &GuardedCall<'_>,
) -> Result<Passed<'e>, End> {
    let (audit, permit) = (&context.audit, call.permit);
    let disconnect = OnDisconnect::new(|| {
        let facts = events::left(envelope, permit, &audit.arguments);
        audit.note_ticket(envelope.agent(), "refusal", permit.exposed(), &facts);
    });
    let passed = tokio::select! {
        biased;
        passed = envelope.active.guards.pass(call) => passed,
        () = envelope.cancel.cancelled() => return Err(None),
    };
    disconnect.answered();
    match passed {
        Ok(passed) if !call.needs_approval() => Ok(passed),
        // Boxed because it is rare and would otherwise enlarge the future of every call.
        Ok(passed) => Box::pin(approval::approve(context, envelope, call, passed)).await,
        Err(stopped) => Err(refusals::stop(context, envelope, view, permit, &stopped).await),
    }
}
