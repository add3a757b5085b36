//! `tools/list`, `prompts/list`, `resources/list` and `resources/templates/list`: the entries that the agent may see,
//! and nothing else.

use std::sync::Arc;

use toolward_wire::list::ListKind;
use toolward_wire::{Era, Raw, meta};

use super::request::{Envelope, Request};
use super::{events, refusals, views};
use crate::client::Scope;
use crate::context::Context;
use crate::opaque_id::Kind;
use crate::responses::{self, Answer, Body};
use crate::upstream::Server;
use crate::view::View;

/// The `_meta` key for the outcome of each server.
const SERVERS: &str = "io.toolward/servers";
/// How long a cursor is valid.
const CURSOR_SECONDS: u64 = 3600;

/// Answers a listing. It is recorded before it is sent.
pub(crate) async fn list(context: &Context, request: &Request, kind: ListKind) -> Answer {
    let (envelope, message) = (&request.envelope, &request.message);
    let (active, client, id) = (&*envelope.active, &envelope.client, &envelope.id);
    let unknown = || responses::bad_params(id, client.era(), "unknown cursor");
    let cursor = match message.param("cursor").map(|raw| Cursor::open(context, envelope, raw)) {
        Some(None) => return unknown(),
        cursor => cursor.flatten(),
    };
    if let Err(stopped) = active.guards.list(client.caller.agent.as_deref()).await {
        return refusals::refuse_listing(context, request, kind.method(), &stopped).await;
    }
    let generation = context.servers.generation();
    let view = views::view_to_list(context, active, client, kind).await;
    if let (Scope::One(_), Some((server, why))) = (client.scope, view.unavailable()) {
        return why.public().response(id, server);
    }
    let page = match &cursor {
        None => 0,
        Some(cursor) if cursor.kind == kind && cursor.view == view.id() => cursor.page,
        // Of another list, or the list has changed: the client begins again.
        Some(_) => return unknown(),
    };
    let Some((entries, more)) = view.page(page) else { return unknown() };
    let next = Cursor { kind, view: view.id().into(), page: page + 1 };
    let next = match more.then(|| next.seal(context, envelope)) {
        Some(None) => return responses::internal(id, "internal", "no cursor can be made", true),
        next => next.flatten(),
    };
    let facts = events::listing(envelope, message, &view);
    let names = || events::names(&view);
    let recorded = context.audit.listing(envelope.agent(), view.id(), names, facts);
    if let Err(error) = recorded.await {
        return responses::not_recorded(id, &error);
    }
    client.set_sent(view.clone());
    // A list that changed meanwhile was compared with the one that was sent before.
    if context.servers.generation() != generation {
        client.compare_again();
    }
    let answer = body(envelope, &view, entries, next.as_deref());
    Answer { streamed: is_streamed(context, envelope), ..answer }
}

/// Whether the only server in a client's scope responds with streams, as the list itself would be one.
fn is_streamed(context: &Context, envelope: &Envelope) -> bool {
    let (active, client) = (&envelope.active, &envelope.client);
    let Scope::One(id) = client.scope else { return false };
    let streams = |server: &Arc<Server>| {
        let connection = context.servers.existing(server, client, active.declared(client, server));
        connection.is_some_and(|it| it.era() == client.era() && it.streams())
    };
    active.server_by_id(id).is_some_and(streams)
}

/// The response. A client of several servers also gets the outcome of each.
fn body(envelope: &Envelope, view: &View, entries: bytes::Bytes, next: Option<&str>) -> Answer {
    let (era, several) = (envelope.client.era(), envelope.client.scope == Scope::All);
    let mut tail = Vec::with_capacity(128);
    tail.push(b']');
    if let Some(next) = next {
        // A sealed cursor needs no escaping.
        tail.extend_from_slice(format!(",\"nextCursor\":\"{next}\"").as_bytes());
    }
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
    head.extend_from_slice(envelope.id.raw());
    head.extend_from_slice(format!(",\"result\":{{\"{}\":[", view.kind().member()).as_bytes());
    Body { pieces: [head.into(), entries, tail.into()] }.into()
}

/// A position in a list, sealed for the agent.
struct Cursor {
    kind: ListKind,
    /// The view that it is a position in.
    view: String,
    page: usize,
}

impl Cursor {
    fn seal(&self, context: &Context, envelope: &Envelope) -> Option<String> {
        let mut payload = vec![self.kind.index() as u8];
        payload.extend_from_slice(&(self.page as u64).to_le_bytes());
        payload.extend_from_slice(self.view.as_bytes());
        let caller = &envelope.client.caller;
        context.sealer.seal(Kind::Cursor, caller, CURSOR_SECONDS, &payload).ok()
    }

    /// `None` if it is not one of this agent's, or has expired.
    fn open(context: &Context, envelope: &Envelope, cursor: Raw<'_>) -> Option<Cursor> {
        let caller = &envelope.client.caller;
        let payload = context.sealer.open(Kind::Cursor, caller, &cursor.as_str()?)?;
        let (kind, rest) = payload.split_first()?;
        let (page, view) = rest.split_first_chunk::<8>()?;
        Some(Cursor {
            kind: *ListKind::ALL.get(usize::from(*kind))?,
            page: usize::try_from(u64::from_le_bytes(*page)).ok()?,
            view: String::from_utf8(view.to_vec()).ok()?,
        })
    }
}
