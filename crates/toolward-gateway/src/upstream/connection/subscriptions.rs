//! Subscriptions to resources of a connection's server.
//!
//! Clients subscribe to URIs; the connection subscribes at its server to the union of them, in the way of its protocol
//! version: `resources/subscribe` for each URI, or one `subscriptions/listen` for all. A task keeps the two in step, so
//! that a server that was restarted gets its subscriptions again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use serde_json::json;
use tokio::sync::Notify;
use toolward_wire::exchange::Event;
use toolward_wire::{Era, Raw};

use super::{Busy, ServerConnection};
use crate::lock::LockUnpoisoned;
use crate::permit::Outgoing;
use crate::upstream::Opened;
use crate::upstream::handshake::own_request;

/// Changes within this time are sent to the server together.
const SETTLE: Duration = Duration::from_millis(5);
/// The timeout for a subscription request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait before a stream that the server ended is opened again.
const REOPEN_AFTER: Duration = Duration::from_secs(2);

/// Called with the URI of an updated resource.
pub(crate) type Deliver = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Default)]
pub(super) struct Subscriptions {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    by_uri: HashMap<Box<str>, Vec<(u64, Deliver)>>,
    next: u64,
    /// The task that keeps the server informed is running.
    is_kept: bool,
    /// Counts sessions of the server; a new one has no subscriptions.
    session: u64,
}

/// A subscription of one client. Dropping it ends it.
pub(crate) struct Subscription {
    connection: Busy,
    uri: Box<str>,
    number: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let subscriptions = &self.connection.subscriptions;
        let mut state = subscriptions.state();
        if let Some(all) = state.by_uri.get_mut(&self.uri) {
            all.retain(|(number, _)| *number != self.number);
            if all.is_empty() {
                state.by_uri.remove(&self.uri);
            }
        }
        drop(state);
        subscriptions.changed.notify_one();
    }
}

impl Subscriptions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// Whether there is no subscription; the task ends then.
    fn is_over(&self) -> bool {
        let mut state = self.state();
        state.is_kept = !state.by_uri.is_empty();
        !state.is_kept
    }

    fn wanted(&self) -> (HashSet<Box<str>>, u64) {
        let state = self.state();
        (state.by_uri.keys().cloned().collect(), state.session)
    }
}

impl ServerConnection {
    /// Whether the server offers subscriptions.
    pub(crate) async fn has_subscriptions(self: &Arc<Self>) -> bool {
        let Ok(hello) = self.hello().await else { return false };
        let resources = hello.result_member("capabilities").and_then(|raw| raw.member("resources"));
        resources.and_then(|raw| raw.member("subscribe")).and_then(Raw::as_bool) == Some(true)
    }

    /// Subscribes a client to a resource. The connection is in use until the subscription is dropped.
    pub(crate) fn subscribe(self: &Arc<Self>, uri: &str, deliver: Deliver) -> Subscription {
        let mut state = self.subscriptions.state();
        let number = state.next;
        state.next += 1;
        state.by_uri.entry(uri.into()).or_default().push((number, deliver));
        let is_kept = std::mem::replace(&mut state.is_kept, true);
        drop(state);
        if !is_kept {
            tokio::spawn(keep(Arc::downgrade(self)));
        }
        self.subscriptions.changed.notify_one();
        Subscription { connection: self.busy(), uri: uri.into(), number }
    }

    /// Delivers an update to the subscribers of the resource, and of those that contain it: a server may report a part
    /// of what was subscribed to.
    pub(super) fn updated(&self, uri: &str) {
        let state = self.subscriptions.state();
        let parts = uri.match_indices('/').filter_map(|(at, _)| uri.get(..at));
        let whole = parts.chain([uri]).chain(uri.strip_suffix('/'));
        let mut seen = HashSet::new();
        let subscribers: Vec<Deliver> = whole
            .filter(|uri| seen.insert(*uri))
            .filter_map(|uri| state.by_uri.get(uri))
            .flatten()
            .map(|(_, deliver)| deliver.clone())
            .collect();
        drop(state);
        subscribers.iter().for_each(|deliver| deliver(uri));
    }

    /// The server has a new session, without subscriptions.
    pub(super) fn resubscribe(&self) {
        self.subscriptions.state().session += 1;
        self.subscriptions.changed.notify_one();
    }
}

/// Keeps the server informed of the subscriptions, until the last one is removed.
async fn keep(connection: Weak<ServerConnection>) {
    let mut known = Known::default();
    loop {
        let Some(connection) = connection.upgrade() else { return };
        let (wanted, session) = connection.subscriptions.wanted();
        if session != known.session {
            known = Known { session, ..Known::default() };
        }
        if wanted != known.uris {
            match connection.era() {
                Era::Legacy => legacy(&connection, &known.uris, &wanted).await,
                // The new stream is opened before the old one is closed, so that no update is lost in between.
                Era::Modern => known.stream = listen(&connection, &wanted),
            }
            known.uris = wanted;
        }
        if connection.subscriptions.is_over() {
            return;
        }
        tokio::select! {
            () = connection.subscriptions.changed.notified() => tokio::time::sleep(SETTLE).await,
            () = ended(&mut known.stream) => {
                known.uris.clear();
                tokio::time::sleep(REOPEN_AFTER).await;
            }
        }
    }
}

/// The subscriptions that the server has.
#[derive(Default)]
struct Known {
    uris: HashSet<Box<str>>,
    session: u64,
    /// The stream of a modern server.
    stream: Option<Opened>,
}

async fn legacy(
    connection: &Arc<ServerConnection>,
    known: &HashSet<Box<str>>,
    wanted: &HashSet<Box<str>>,
) {
    let added = wanted.difference(known).map(|uri| ("resources/subscribe", uri));
    let removed = known.difference(wanted).map(|uri| ("resources/unsubscribe", uri));
    for (method, uri) in added.chain(removed) {
        // A server that does not know a resource sends no updates of it.
        let _ = connection.ask(method, json!({ "uri": uri }), REQUEST_TIMEOUT).await;
    }
}

fn listen(connection: &Arc<ServerConnection>, wanted: &HashSet<Box<str>>) -> Option<Opened> {
    if wanted.is_empty() {
        return None;
    }
    let uris: Vec<&str> = wanted.iter().map(|uri| &**uri).collect();
    let params = json!({"notifications": {"resourceSubscriptions": uris}});
    let own = own_request("subscriptions/listen", params, Era::Modern)?;
    Some(connection.send(Outgoing { declared: connection.key().declared, ..own }))
}

/// Reads a stream until it ends. Updates arrive as signals of the connection.
async fn ended(stream: &mut Option<Opened>) {
    let Some(opened) = stream else { return std::future::pending().await };
    while !matches!(opened.next().await, Event::Done(_)) {}
    *stream = None;
}
