//! Stage 1, resolve: the client's view, and checks that need the tool's name alone.

use std::sync::Arc;

use toolward_wire::Message;
use toolward_wire::jsonrpc_error::{StatusCase, code};

use super::End;
use crate::context::Context;
use crate::methods::request::Envelope;
use crate::methods::{refusals, views};
use crate::responses;
use crate::view::View;

/// A call with the view in which its name is looked up. The view contains nothing that is hidden from the agent.
pub(super) struct Resolved {
    pub(super) view: Arc<View>,
    pub(super) name: String,
    pub(super) message: Message,
}

pub(super) async fn resolve(
    context: &Context,
    envelope: &Envelope,
    message: Message,
) -> Result<Resolved, End> {
    let (active, client) = (&*envelope.active, &envelope.client);
    // Validation made sure that a call has a name.
    let name = message.name(envelope.row.name_at).ok().flatten().ok_or(None)?.into_owned();
    check_case(envelope, &message)?;
    let view = tokio::select! {
        view = views::view_in_line(context, active, client, Some(&name)) => view,
        () = envelope.cancel.cancelled() => return Err(None),
    };
    if let Some(unknown) = views::undecidable(active, client, &view, &name) {
        let refused = refusals::refuse_undecidable(context, envelope, &message, &name, unknown);
        return Err(Some(refused.await));
    }
    check_headers(envelope, &view, &name, &message)?;
    Ok(Resolved { view, name, message })
}

/// Rejects arguments that differ only in case if rules or hooks read them: servers may take either.
#[expect(clippy::result_large_err, reason = "the error is the response itself, made once")]
fn check_case(envelope: &Envelope, message: &Message) -> Result<(), End> {
    let active = &envelope.active;
    if !active.policy.reads_arguments() && !active.guards.read_arguments() {
        return Ok(());
    }
    let Some((first, second)) = message.arguments().and_then(|given| given.case_collision()) else {
        return Ok(());
    };
    let why = format!("the arguments `{first}` and `{second}` differ only in case");
    Err(Some(responses::bad_params(&envelope.id, envelope.client.era(), &why)))
}

/// Rejects a call whose `Mcp-Param-*` headers do not repeat its arguments.
#[expect(clippy::result_large_err, reason = "the error is the response itself, made once")]
fn check_headers(
    envelope: &Envelope,
    view: &View,
    name: &str,
    message: &Message,
) -> Result<(), End> {
    let (Some(sent), Some(marks)) = (&envelope.headers, view.headers(name)) else { return Ok(()) };
    let sent = |wanted: &str| {
        sent.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    };
    marks.check(message.arguments(), sent).map_err(|mismatch| {
        let (case, code) = (StatusCase::HeaderMismatch, code::HEADER_MISMATCH);
        let (era, why) = (envelope.client.era(), mismatch.to_string());
        Some(responses::wrong(case, era, &envelope.id, code, &why, None))
    })
}
