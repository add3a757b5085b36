//! `tools/list`: the tools that the agent may see, and nothing else.

use toolward_wire::{Era, Id, meta};

use super::request::Request;
use super::{events, refusals, views};
use crate::client::Scope;
use crate::context::Context;
use crate::responses::{self, Answer, Body};
use crate::view::View;

/// The `_meta` key under which a list has the outcome of each server.
const SERVERS: &str = "io.toolward/servers";

/// Answers `tools/list`. The listing is recorded before it is sent.
pub(crate) async fn list(context: &Context, request: &Request) -> Answer {
    let (envelope, message) = (&request.envelope, &request.message);
    let (active, client, id) = (&*envelope.active, &envelope.client, &envelope.id);
    if message.param("cursor").is_some() {
        // One page has everything, so that there are no cursors.
        return responses::bad_params(id, client.era(), "the cursor is not known");
    }
    if let Err(stopped) = active.guards.list(client.caller.agent.as_deref()).await {
        return refusals::refuse_listing(context, request, &stopped).await;
    }
    let view = views::view_in_line(context, active, client, None).await;
    if let (Scope::One(_), Some((server, why))) = (client.scope, view.unavailable()) {
        return why.public().response(id, server);
    }
    let facts = events::listing(envelope, message, &view);
    let names = || events::names(&view);
    let recorded = context.audit.listing(envelope.agent(), view.id(), names, facts);
    if let Err(error) = recorded.await {
        return responses::not_recorded(id, &error);
    }
    client.set_sent(view.clone());
    body(id, client.era(), &view, client.scope == Scope::All)
}

/// The response: everything in one page. A client of several servers also gets the outcome of each.
fn body(id: &Id, era: Era, view: &View, several: bool) -> Answer {
    let mut tail = Vec::with_capacity(128);
    if era == Era::Modern {
        tail.extend_from_slice(b",\"resultType\":\"complete\",\"ttlMs\":");
        tail.extend_from_slice(view.ttl_ms().to_string().as_bytes());
        tail.extend_from_slice(b",\"cacheScope\":\"private\"");
    }
    if several {
        tail.extend_from_slice(format!(",\"_meta\":{{\"{SERVERS}\":").as_bytes());
        tail.extend_from_slice(view.outcomes());
        tail.push(b'}');
    } else if let Some(info) = view.server_info().filter(|_| era == Era::Modern) {
        tail.extend_from_slice(format!(",\"_meta\":{{\"{}\":", meta::SERVER_INFO).as_bytes());
        tail.extend_from_slice(info);
        tail.push(b'}');
    }
    tail.extend_from_slice(b"}}");
    let mut head = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
    head.extend_from_slice(id.raw());
    head.extend_from_slice(b",\"result\":{\"tools\":");
    Body { pieces: [head.into(), view.array().clone(), tail.into()] }.into()
}
