//! The meta tools: calls of the built-in server's tools.
//!
//! They show an agent its policy, and let it find and call tools step by step. They only show the agent's
//! own view of the other servers, so there is nothing to hide; the call inside `execute_tool` goes
//! through every stage again.

mod arguments;
mod discovery;
pub(crate) mod execute;
mod result;
mod server_config;

use super::request::Envelope;
use super::{events, views};
use crate::audit::NotRecorded;
use crate::context::Context;
use crate::permit::Permit;
use crate::responses::Answer;
use crate::upstream::built_in::{EXECUTE_TOOL, NAME};
use crate::view::View;
use toolward_wire::list::ListKind;

/// Handles a call of a meta tool, which was authorized and recorded like any other. Also returns the
/// outcome for the audit log.
pub(crate) async fn answer(
    context: &Context,
    envelope: &Envelope,
    listed: &View,
    permit: &Permit,
) -> Result<(Answer, &'static str), NotRecorded> {
    let Envelope { active, client, id, .. } = envelope;
    // Waits for the lists of all servers in any case, so that response times reveal nothing about hidden
    // tools.
    let view = views::view(context, active, &client.discovery(), (ListKind::Tools, None)).await;
    let (tool, call) = (&*permit.decision().original, permit.message());
    let result = match tool {
        "server_config" => server_config::describe(active, client, (listed, &view), call),
        "list_servers" => discovery::servers(&view, &active.discovery, call),
        "get_server_tools" => discovery::tools(&view, call),
        "search_tools" => discovery::search(&view, call),
        EXECUTE_TOOL => Err(execute::wrong(call)),
        _ => Err(format!("there is no tool `{tool}`")),
    };
    if result.is_ok() && tool != "server_config" {
        // It shows tools, so it is recorded as a listing.
        let mut facts = events::listing(envelope, call, &view);
        facts.text("via", &format!("{NAME}/{tool}"));
        let names = || events::names(&view);
        context.audit.listing(envelope.agent(), view.id(), names, facts).await?;
    }
    let outcome = if result.is_ok() { "ok" } else { "tool-error" };
    Ok((result::answer(id, client.revision, &result), outcome))
}
