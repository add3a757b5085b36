//! Subscriptions to resources, and to tasks, of a connection's server.
//!
//! Clients subscribe to URIs; the connection subscribes at its server to the union of them, in the way of its protocol
//! version: `resources/subscribe` for each URI, or one `subscriptions/listen` for all. A task keeps the two in step, so
//! that a server that was restarted gets its subscriptions again. Subscriptions to MCP tasks exist only in modern protocol
//! versions.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use serde_json::json;
use tokio::sync::Notify;
use toolward_wire::exchange::Event;
use toolward_wire::{Era, Message, Raw};

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

/// Called with each update.
pub(crate) type Deliver = Arc<dyn Fn(Update<'_>) + Send + Sync>;

/// The target of a client's subscription.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Subscribed {
    /// A resource, by its URI.
    Resource(Box<str>),
    /// A modern task, by the server's id.
    Task(Box<str>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Update<'a> {
    /// A resource changed, by its URI.
    Resource(&'a str),
    /// A task changed; the notification of the server.
    Task(&'a Message),
}

#[derive(Default)]
pub(super) struct Subscriptions {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    subscribers: HashMap<Subscribed, Vec<(u64, Deliver)>>,
    next: u64,
    /// The task that keeps the server informed is running.
    is_kept: bool,
    /// Counts sessions of the server; a new one has no subscriptions.
    session: u64,
}

/// A subscription of one client. Dropping it ends it.
pub(crate) struct Subscription {
    connection: Busy,
    to: Subscribed,
    number: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let subscriptions = &self.connection.subscriptions;
        let mut state = subscriptions.state();
        if let Some(all) = state.subscribers.get_mut(&self.to) {
            all.retain(|(number, _)| *number != self.number);
            if all.is_empty() {
                state.subscribers.remove(&self.to);
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
        state.is_kept = !state.subscribers.is_empty();
        !state.is_kept
    }

    fn wanted(&self) -> (HashSet<Subscribed>, u64) {
        let state = self.state();
        (state.subscribers.keys().cloned().collect(), state.session)
    }
}

impl ServerConnection {
    /// Whether the server offers subscriptions.
    pub(crate) async fn has_subscriptions(self: &Arc<Self>) -> bool {
        let Ok(hello) = self.hello().await else { return false };
        let resources = hello.result_member("capabilities").and_then(|raw| raw.member("resources"));
        resources.and_then(|raw| raw.member("subscribe")).and_then(Raw::as_bool) == Some(true)
    }

    /// Subscribes a client. The connection is in use until the subscription is dropped.
    pub(crate) fn subscribe(self: &Arc<Self>, to: Subscribed, deliver: Deliver) -> Subscription {
        let mut state = self.subscriptions.state();
        let number = state.next;
        state.next += 1;
        state.subscribers.entry(to.clone()).or_default().push((number, deliver));
        let is_kept = std::mem::replace(&mut state.is_kept, true);
        drop(state);
        if !is_kept {
            tokio::spawn(keep(Arc::downgrade(self)));
        }
        self.subscriptions.changed.notify_one();
        Subscription { connection: self.busy(), to, number }
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
            .filter_map(|uri| state.subscribers.get(&Subscribed::Resource(uri.into())))
            .flatten()
            .map(|(_, deliver)| deliver.clone())
            .collect();
        drop(state);
        subscribers.iter().for_each(|deliver| deliver(Update::Resource(uri)));
    }

    /// Delivers the state of a task to its subscribers.
    pub(super) fn task_changed(&self, message: &Message) {
        let Some(id) = message.param("taskId").and_then(Raw::as_str) else { return };
        let state = self.subscriptions.state();
        let subscribers = state.subscribers.get(&Subscribed::Task(id.as_ref().into()));
        let subscribers: Vec<Deliver> =
            subscribers.into_iter().flatten().map(|(_, deliver)| deliver.clone()).collect();
        drop(state);
        subscribers.iter().for_each(|deliver| deliver(Update::Task(message)));
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
        if wanted != known.subscribed {
            match connection.era() {
                Era::Legacy => legacy(&connection, &known.subscribed, &wanted).await,
                // The new stream is opened before the old one is closed, so that no update is lost in between.
                Era::Modern => known.stream = listen(&connection, &wanted),
            }
            known.subscribed = wanted;
        }
        if connection.subscriptions.is_over() {
            return;
        }
        tokio::select! {
            () = connection.subscriptions.changed.notified() => tokio::time::sleep(SETTLE).await,
            () = ended(&mut known.stream) => {
                known.subscribed.clear();
                tokio::time::sleep(REOPEN_AFTER).await;
            }
        }
    }
}

/// The subscriptions that the server has.
#[derive(Default)]
struct Known {
    subscribed: HashSet<Subscribed>,
    session: u64,
    /// The stream of a modern server.
    stream: Option<Opened>,
}

async fn legacy(
    connection: &Arc<ServerConnection>,
    known: &HashSet<Subscribed>,
    wanted: &HashSet<Subscribed>,
) {
    let added = wanted.difference(known).map(|to| ("resources/subscribe", to));
    let removed = known.difference(wanted).map(|to| ("resources/unsubscribe", to));
    for (method, to) in added.chain(removed) {
        let Subscribed::Resource(uri) = to else { continue };
        // A server that does not know a resource sends no updates of it.
        let _ = connection.ask(method, json!({ "uri": uri }), REQUEST_TIMEOUT).await;
    }
}

fn listen(connection: &Arc<ServerConnection>, wanted: &HashSet<Subscribed>) -> Option<Opened> {
    if wanted.is_empty() {
        return None;
    }
    let (mut uris, mut tasks) = (Vec::new(), Vec::new());
    for to in wanted {
        match to {
            Subscribed::Resource(uri) => uris.push(&**uri),
            Subscribed::Task(id) => tasks.push(&**id),
        }
    }
    let mut filter = serde_json::Map::new();
    if !uris.is_empty() {
        filter.insert("resourceSubscriptions".into(), json!(uris));
    }
    if !tasks.is_empty() {
        filter.insert("taskIds".into(), json!(tasks));
    }
    let params = json!({ "notifications": filter });
    let own = own_request("subscriptions/listen", params, Era::Modern)?;
    Some(connection.send(Outgoing { declared: connection.key().declared, ..own }))
}

/// Reads a stream until it ends. Updates arrive as signals of the connection.
async fn ended(stream: &mut Option<Opened>) {
    let Some(opened) = stream else { return std::future::pending().await };
    while !matches!(opened.next().await, Event::Done(_)) {}
    *stream = None;
}
