//! Subscriptions: `resources/subscribe` and `resources/unsubscribe` of legacy clients, `subscriptions/listen` of modern
//! ones.
//!
//! Each URI is decided like a read of it, each task as the tool that made it, and an update is decided again under the
//! configuration of the moment before it is delivered.

mod task_listener;

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use toolward_policy::uri;
use toolward_wire::jsonrpc::{request_body, result_body};
use toolward_wire::jsonrpc_error::{StatusCase, code};
use toolward_wire::list::ListKind;
use toolward_wire::{ClientCapabilities, Id, Raw, meta};

use self::task_listener::{Changed, TaskListener};
use super::call::{look_up_resource, resolve_and_authorize};
use super::request::{Envelope, Request};
use super::{events, views};
use crate::active::CurrentActive;
use crate::client::Caller;
use crate::client::outlet::MAX_SUBSCRIPTIONS;
use crate::context::Context;
use crate::notifications::Notes;
use crate::responses::{self, Answer};
use crate::upstream::{Deliver, Server, ServerConnection, Subscribed, Update};

/// Updates that wait for the reader of a stream; further ones are dropped.
const MAX_WAITING: usize = 1024;
/// Changes within this time are combined into one notification.
const SETTLE: Duration = Duration::from_millis(20);

/// Answers `resources/subscribe`.
pub(crate) async fn subscribe(context: &Context, request: Request) -> Option<Answer> {
    let current = &context.current;
    let Request { envelope, message, room } = request;
    let uri = message.param("uri").and_then(Raw::as_str).unwrap_or_default().into_owned();
    let (id, era) = (envelope.id.clone(), envelope.client.era());
    let outlet = envelope.client.outlet.clone()?;
    if !outlet.may_subscribe(&key(&uri)) {
        let why = format!("a session has at most {MAX_SUBSCRIPTIONS} subscriptions");
        return Some(responses::bad_params(&id, era, &why));
    }
    let Some(memory) = room.account().try_reserve(subscription_bytes(&uri)) else {
        return Some(responses::overloaded(&id));
    };
    let authorization = match resolve_and_authorize(context, &envelope, message).await {
        Ok(authorization) => authorization,
        Err(end) => return end,
    };
    let server = authorization.server.clone();
    let facts = events::intent(&envelope, &authorization.permit, &context.audit.arguments);
    let ticket = context.audit.ticket(envelope.agent());
    let recorded = context.audit.record_ticket(&ticket, "subscription", &uri, &facts);
    if let Err(error) = recorded.await {
        return Some(responses::not_recorded(&id, &error));
    }
    let to = Arc::downgrade(&outlet);
    let deliver = deliver_resource(current, &envelope.client.caller, &server, move |uri| {
        if let Some(outlet) = Weak::upgrade(&to) {
            let params = json!({ "uri": uri }).to_string();
            let method = "notifications/resources/updated";
            outlet.notify(request_body(None, method, Some(params.as_bytes())));
        }
    });
    match connect(context, &envelope, &server).await {
        Some(connection) => {
            let to = Subscribed::Resource(uri.as_str().into());
            let subscription = connection.subscribe(to, deliver);
            outlet.subscribe(&key(&uri), Box::new((subscription, memory)));
            Some(result_body(&id, b"{}").into())
        }
        None => {
            let why = "the server does not offer subscriptions";
            let (case, code) = (StatusCase::UnknownMethod, code::METHOD_NOT_FOUND);
            Some(responses::wrong(case, era, &id, code, why, None))
        }
    }
}

/// Answers `resources/unsubscribe`. The response is always the same, so that it reveals nothing.
pub(crate) fn unsubscribe(request: &Request) -> Answer {
    let uri = request.message.param("uri").and_then(Raw::as_str).unwrap_or_default();
    if let Some(outlet) = &request.envelope.client.outlet {
        outlet.unsubscribe(&key(&uri));
    }
    result_body(&request.envelope.id, b"{}").into()
}

/// Answers `subscriptions/listen`: acknowledges, then sends notifications until the client cancels.
pub(crate) async fn listen(context: &Context, request: Request, notes: &Notes) -> Option<Answer> {
    let current = &context.current;
    let Request { envelope, message, room } = request;
    let id = &envelope.id;
    let Some(filter) = message.param("notifications").filter(|raw| raw.is_object()) else {
        let why = "`params.notifications` must be an object";
        return Some(responses::bad_params(id, envelope.client.era(), why));
    };
    let wanted = |name: &str| filter.member(name).and_then(Raw::as_bool) == Some(true);
    let mut accepted = Map::new();
    let mut kinds = Vec::new();
    for (name, of) in [
        ("toolsListChanged", &[ListKind::Tools][..]),
        ("promptsListChanged", &[ListKind::Prompts]),
        ("resourcesListChanged", &[ListKind::Resources, ListKind::ResourceTemplates]),
    ] {
        if wanted(name) {
            accepted.insert(name.into(), json!(true));
            kinds.extend_from_slice(of);
        }
    }
    let uris = filter.member("resourceSubscriptions").into_iter().flat_map(|raw| {
        let uris: Vec<String> =
            raw.elements().filter_map(|(uri, _)| Some(uri.as_str()?.into_owned())).collect();
        uris
    });
    if filter.member("taskIds").is_some()
        && !envelope.client.declared.contains(ClientCapabilities::TASKS)
    {
        return Some(responses::tasks_undeclared(id));
    }
    let (updates, mut updated) = mpsc::channel(MAX_WAITING);
    // Subscriptions end with the stream.
    let (mut subscriptions, mut subscribed) = (Vec::new(), Vec::new());
    let mut connections: Vec<(Arc<Server>, Option<Arc<ServerConnection>>)> = Vec::new();
    for uri in uris.take(MAX_SUBSCRIPTIONS) {
        let Some(server) = look_up_resource(context, &envelope, &uri).await else { continue };
        let Some(memory) = room.account().try_reserve(subscription_bytes(&uri)) else { break };
        let known = connections.iter().find(|(known, _)| Arc::ptr_eq(known, &server));
        let connection = match known {
            Some((_, connection)) => connection.clone(),
            None => {
                let connection = connect(context, &envelope, &server).await;
                connections.push((server.clone(), connection.clone()));
                connection
            }
        };
        let Some(connection) = connection else { continue };
        let updates = updates.clone();
        let deliver = deliver_resource(current, &envelope.client.caller, &server, move |uri| {
            let _ = updates.try_send(Changed::Resource(uri.to_string()));
        });
        let to = Subscribed::Resource(uri.as_str().into());
        subscriptions.push((connection.subscribe(to, deliver), memory));
        subscribed.push(uri);
    }
    let listener = TaskListener { context, envelope: &envelope, updates: &updates };
    let tasks = match filter.member("taskIds") {
        Some(handles) => Box::pin(listener.subscribe(handles, room.account())).await,
        None => Vec::new(),
    };
    if filter.member("taskIds").is_some() {
        let handles: Vec<&str> = tasks.iter().map(|(task, _)| &*task.handle).collect();
        accepted.insert("taskIds".into(), json!(handles));
    }
    if filter.member("resourceSubscriptions").is_some() {
        accepted.insert("resourceSubscriptions".into(), json!(subscribed));
    }
    let facts = events::subscribed(&envelope, &message, &subscribed);
    let ticket = context.audit.ticket(envelope.agent());
    if let Err(error) = context.audit.record_ticket(&ticket, "subscription", "", &facts).await {
        return Some(responses::not_recorded(id, &error));
    }
    let mut changes = context.servers.changes();
    let view = |kind| {
        let active = current.get()?;
        Some(views::remembered(context, &active, (&envelope.client, kind)).array().clone())
    };
    let mut shown: Vec<(ListKind, Bytes)> = Vec::new();
    for kind in kinds {
        shown.push((kind, view(kind)?));
    }
    let acknowledged = json!({ "notifications": accepted });
    notes.send(notification(id, "notifications/subscriptions/acknowledged", acknowledged)).await;
    loop {
        tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() {
                    return Some(closed(id));
                }
                tokio::time::sleep(SETTLE).await;
                let mut announced = "";
                for (kind, before) in &mut shown {
                    let Some(now) = view(*kind) else { return Some(closed(id)) };
                    // Resources and templates share one notification.
                    if *before != now && announced != kind.changed() {
                        announced = kind.changed();
                        notes.send(notification(id, announced, json!({}))).await;
                    }
                    *before = now;
                }
            }
            Some(changed) = updated.recv() => match changed {
                Changed::Resource(uri) => {
                    let params = json!({ "uri": uri });
                    notes.send(notification(id, "notifications/resources/updated", params)).await;
                }
                Changed::Task(task, message, _room) => {
                    if let Some(body) = task.shown(context, &envelope, &message) {
                        notes.send(body).await;
                    }
                }
            },
            () = envelope.cancel.cancelled() => return None,
        }
    }
}

/// The client's connection to a server that offers subscriptions.
async fn connect(
    context: &Context,
    envelope: &Envelope,
    server: &Arc<Server>,
) -> Option<Arc<ServerConnection>> {
    let declared = envelope.active.declared(&envelope.client, server);
    let connection = context.servers.connect(server, &envelope.client, declared).await.ok()?;
    connection.has_subscriptions().await.then_some(connection)
}

/// One key for all spellings of a URI.
fn key(uri: &str) -> String {
    uri::normalise(uri).unwrap_or_else(|_| uri.into())
}

/// The memory that a subscription takes: its URI is kept by the stream, the connection and what is sent to the server.
fn subscription_bytes(uri: &str) -> usize {
    1024 + 8 * uri.len()
}

/// Passes on updates that the agent may read at the moment of the update.
fn deliver_resource(
    current: &CurrentActive,
    caller: &Caller,
    server: &Server,
    send: impl Fn(&str) + Send + Sync + 'static,
) -> Deliver {
    let (current, caller, server) = (current.clone(), caller.clone(), Box::from(server.name()));
    Arc::new(move |update| {
        let Update::Resource(uri) = update else { return };
        let Some(active) = current.get() else { return };
        if active.may_read(&caller, &server, uri) {
            send(uri);
        }
    })
}

/// A notification on a stream, with the id of the request that opened it.
fn notification(id: &Id, method: &str, mut params: Value) -> Bytes {
    params["_meta"] = json!({ meta::SUBSCRIPTION_ID: raw(id) });
    request_body(None, method, Some(params.to_string().as_bytes()))
}

/// The response that closes a stream.
fn closed(id: &Id) -> Answer {
    let result =
        json!({"resultType": "complete", "_meta": {meta::SUBSCRIPTION_ID: raw(id)}}).to_string();
    result_body(id, result.as_bytes()).into()
}

fn raw(id: &Id) -> Value {
    serde_json::from_slice(id.raw()).unwrap_or_default()
}
