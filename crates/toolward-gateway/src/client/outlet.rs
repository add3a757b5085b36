//! Server requests to a client that has a session, and the client's responses.
//!
//! Ids are created by the gateway and belong to one session, so that no client can respond to a request
//! that was sent to another.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::{mpsc, oneshot};
use toolward_wire::input_requests::InputRequest;
use toolward_wire::jsonrpc::{error_body, request_body, result_body};
use toolward_wire::{Id, LogLevel, Message, Raw, code, meta};

use crate::budget::Reservation;
use crate::lock::LockUnpoisoned;
use crate::random;
use crate::responses::Outbound;

/// Maximum number of server requests that wait for one client.
const MAX_PENDING: usize = 64;
/// Maximum number of subscriptions of one session.
pub(crate) const MAX_SUBSCRIPTIONS: usize = 2000;
/// How long a client may take to respond to a request that belongs to no call.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Visits whose end is awaited, and the longest id of one.
const MAX_VISITS: usize = 64;
const MAX_VISIT_ID_BYTES: usize = 256;

/// Decides what of a server may reach the client outside of its own requests.
pub(crate) struct Gate {
    /// A request: its parameters as the client gets them.
    pub(crate) request: Box<RequestGate>,
    /// A task, by the server's id: the client's id of it.
    pub(crate) task: Box<TaskGate>,
}

pub(crate) type RequestGate =
    dyn Fn(&str, &InputRequest<'_>) -> Option<Option<Bytes>> + Send + Sync;
pub(crate) type TaskGate = dyn Fn(&str, &str) -> Option<String> + Send + Sync;

/// Sends requests to a client with a session, outside of its own requests.
pub struct Outlet {
    /// Weak, so that a connection to a server does not keep the client's open.
    out: mpsc::WeakSender<Outbound>,
    gate: Gate,
    pending: Mutex<HashMap<Vec<u8>, oneshot::Sender<ClientResponse>>>,
    /// The log level that the client set; `u8::MAX` if it set none.
    log_level: AtomicU8,
    /// The client's subscriptions, which end with the session.
    subscriptions: Mutex<HashMap<Box<str>, Guard>>,
    /// Servers and ids of the URLs that the client was asked to visit last.
    visits: Mutex<VecDeque<(Box<str>, Box<str>)>>,
}

/// Ends a subscription when it is dropped.
pub(crate) type Guard = Box<dyn Send + Sync>;

/// A client's response to a server request, with its reserved memory.
#[derive(Debug)]
pub(crate) struct ClientResponse {
    pub(crate) message: Message,
    pub(crate) _room: Option<Reservation>,
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outlet").finish_non_exhaustive()
    }
}

impl Outlet {
    /// `out` takes messages that belong to no request of the client.
    pub(crate) fn new(out: &mpsc::Sender<Outbound>, gate: Gate) -> Arc<Outlet> {
        let (pending, subscriptions, visits) = Default::default();
        let log_level = AtomicU8::new(u8::MAX);
        Arc::new(Outlet { out: out.downgrade(), gate, pending, log_level, subscriptions, visits })
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<Vec<u8>, oneshot::Sender<ClientResponse>>> {
        self.pending.locked()
    }

    /// Registers a request to the client. `None` if too many wait already.
    pub(crate) fn register(self: &Arc<Self>) -> Option<PendingResponse> {
        let id = Id::text(&format!("toolward-{:032x}", random::random().ok()?));
        let (sender, response) = oneshot::channel();
        let mut pending = self.pending();
        if pending.len() >= MAX_PENDING {
            return None;
        }
        pending.insert(id.raw().to_vec(), sender);
        drop(pending);
        Some(PendingResponse { id, response, outlet: self.clone() })
    }

    /// The log level of the session, if the client set one.
    pub(crate) fn log_level(&self) -> Option<LogLevel> {
        LogLevel::ALL.get(usize::from(self.log_level.load(Ordering::Relaxed))).copied()
    }

    pub(crate) fn set_log_level(&self, level: LogLevel) {
        self.log_level.store(level as u8, Ordering::Relaxed);
    }

    /// The client is asked to visit a URL; the server may announce the end of the visit.
    pub(crate) fn expect_visit(&self, server: &str, id: &str) {
        if id.len() <= MAX_VISIT_ID_BYTES {
            let mut visits = self.visits.locked();
            if visits.len() >= MAX_VISITS {
                visits.pop_front();
            }
            visits.push_back((server.into(), id.into()));
        }
    }

    /// Delivers a notification of a server that belongs to no call: a log message, the state of a task of this client, or
    /// the end of a visit that it was asked for.
    pub(crate) fn notified(&self, server: &str, message: &Message) {
        match message.method().as_deref() {
            Some("notifications/elicitation/complete") => self.visited(server, message),
            Some("notifications/tasks/status") => {
                let id = message.param("taskId").and_then(Raw::as_str).unwrap_or_default();
                if let Some(handle) = (self.gate.task)(server, &id) {
                    let edit = message.edit().remove_own_meta().remove_meta(meta::RELATED_TASK);
                    self.notify(edit.set_param_str("taskId", &handle).finish());
                }
            }
            _ => self.log(message),
        }
    }

    fn visited(&self, server: &str, message: &Message) {
        let id = message.param("elicitationId").and_then(Raw::as_str).unwrap_or_default();
        let mut visits = self.visits.locked();
        let at =
            visits.iter().position(|(asked_by, known)| **asked_by == *server && **known == *id);
        if at.and_then(|at| visits.remove(at)).is_some() {
            self.notify(message.edit().remove_own_meta().finish());
        }
    }

    /// Delivers a log message, unless the client wants only more severe ones.
    fn log(&self, message: &Message) {
        let level = message.param("level").and_then(Raw::as_str);
        let level = level.and_then(|level| LogLevel::parse(&level));
        let wanted = self.log_level().is_none_or(|least| level.is_none_or(|level| level >= least));
        if wanted && message.method().as_deref() == Some("notifications/message") {
            self.notify(message.edit().remove_own_meta().finish());
        }
    }

    /// Sends a notification, unless the client does not read.
    pub(crate) fn notify(&self, body: Bytes) {
        if let Some(out) = self.out.upgrade() {
            let _ = out.try_send(body.into());
        }
    }

    /// Whether the client has a subscription, or has room for another one.
    pub(crate) fn may_subscribe(&self, uri: &str) -> bool {
        let subscriptions = self.subscriptions.locked();
        subscriptions.contains_key(uri) || subscriptions.len() < MAX_SUBSCRIPTIONS
    }

    /// Keeps a subscription until the client ends it, or the session ends.
    pub(crate) fn subscribe(&self, uri: &str, subscription: Guard) {
        let mut subscriptions = self.subscriptions.locked();
        if subscriptions.len() < MAX_SUBSCRIPTIONS {
            subscriptions.insert(uri.into(), subscription);
        }
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        drop(self.subscriptions.locked().remove(uri));
    }

    /// Forwards a response of the client. One that nothing waits for is dropped.
    pub(crate) fn responded(&self, message: Message, room: Option<Reservation>) {
        let waiting = message.id().and_then(|id| self.pending().remove(id.raw()));
        if let Some(waiting) = waiting {
            let _ = waiting.send(ClientResponse { message, _room: room });
        }
    }

    /// Relays a server request that belongs to no call. `reply` gets the response for the server, or an
    /// error if the policy or the client does not allow the request.
    pub(crate) fn relay(
        self: &Arc<Self>,
        server: &str,
        message: &Message,
        reply: impl FnOnce(Bytes) + Send + 'static,
    ) {
        let Some(id) = message.id().cloned() else { return };
        let asked = InputRequest::of(message);
        let params = asked.as_ref().and_then(|asked| (self.gate.request)(server, asked));
        let Some((mut pending, params)) =
            params.and_then(|params| Some((self.register()?, params)))
        else {
            reply(declined(&id, asked.as_ref()));
            return;
        };
        let body = request(message, &pending.id, params.as_deref());
        if let Some(id) = asked.as_ref().and_then(InputRequest::elicitation_id) {
            self.expect_visit(server, &id);
        }
        let (out, declined) = (self.out.clone(), declined(&id, asked.as_ref()));
        tokio::spawn(async move {
            let sent = match out.upgrade() {
                Some(out) => out.send(body.into()).await.is_ok(),
                None => false,
            };
            let response = tokio::time::timeout(TIMEOUT, pending.response());
            let response = if sent { response.await.ok().flatten() } else { None };
            reply(match response {
                Some(response) => response.message.edit().id(&id).remove_own_meta().finish(),
                None => declined,
            });
        });
    }
}

/// A request of a server as the client gets it.
pub(crate) fn request(message: &Message, id: &Id, params: Option<&[u8]>) -> Bytes {
    match params {
        Some(params) => request_body(Some(id), &message.method().unwrap_or_default(), Some(params)),
        None => message.edit().id(id).remove_own_meta().finish(),
    }
}

/// The response to a server whose request does not reach the client.
pub(crate) fn not_available(id: &Id) -> Bytes {
    error_body(Some(id), code::METHOD_NOT_FOUND, "not available", None)
}

/// The response that declines a request: a server that asked for a confirmation must not take it as given.
pub(crate) fn declined(id: &Id, asked: Option<&InputRequest<'_>>) -> Bytes {
    match asked.and_then(InputRequest::name) {
        Some("elicitation.form" | "elicitation.url") => result_body(id, br#"{"action":"decline"}"#),
        _ => not_available(id),
    }
}

/// A request that waits for the client. Dropped, it waits no longer.
pub(crate) struct PendingResponse {
    pub(crate) id: Id,
    response: oneshot::Receiver<ClientResponse>,
    outlet: Arc<Outlet>,
}

impl PendingResponse {
    /// The client's response; `None` if its session has ended.
    pub(crate) async fn response(&mut self) -> Option<ClientResponse> {
        (&mut self.response).await.ok()
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        self.outlet.pending().remove(self.id.raw());
    }
}
