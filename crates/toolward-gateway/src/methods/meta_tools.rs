//! The meta tools: the gateway's own server answers calls of its tools here.
//!
//! They tell an agent its policy, and let it find and call tools step by step. What they show is the agent's own view
//! of the other servers, so that there is nothing to hide; what `execute_tool` calls goes through every stage again.

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

/// Answers a call of a meta tool, which was authorized and recorded like any other. Also gives the outcome for the
/// audit log.
pub(crate) async fn answer(
    context: &Context,
    envelope: &Envelope,
    listed: &View,
    permit: &Permit,
) -> Result<(Answer, &'static str), NotRecorded> {
    let Envelope { active, client, id, .. } = envelope;
    // The lists of all servers are waited for, whatever is asked: response times reveal nothing about hidden tools.
    let view = views::view(context, active, &client.discovery(), None).await;
    let (tool, call) = (&*permit.decision().original, permit.message());
    let said = match tool {
        "server_config" => server_config::said(active, client, (listed, &view), call),
        "list_servers" => discovery::servers(&view, &active.discovery, call),
        "get_server_tools" => discovery::tools(&view, call),
        "search_tools" => discovery::search(&view, call),
        EXECUTE_TOOL => Err(execute::wrong(call)),
        _ => Err(format!("there is no tool `{tool}`")),
    };
    if said.is_ok() && tool != "server_config" {
        // It shows tools, and is recorded as a listing.
        let mut facts = events::listing(envelope, call, &view);
        facts.text("via", &format!("{NAME}/{tool}"));
        let names = || events::names(&view);
        context.audit.listing(envelope.agent(), view.id(), names, facts).await?;
    }
    let outcome = if said.is_ok() { "ok" } else { "tool-error" };
    Ok((result::answer(id, client.revision, &said), outcome))
}
