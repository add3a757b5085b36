//! Transports to servers: stdio, Streamable HTTP, and legacy HTTP+SSE.
//!
//! Child processes and HTTP+SSE share one line-based transport: both deliver messages one by one
//! over a connection that outlives a request.

pub(crate) mod environment;
pub(crate) mod event_stream;
pub(crate) mod http;
pub(crate) mod ids;
pub(crate) mod legacy_sse;
pub(crate) mod line_orders;
pub(crate) mod line_server;
pub(crate) mod line_session;
pub(crate) mod line_transport;
pub(crate) mod reusable_process;
pub(crate) mod stdio;
pub(crate) mod writer;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use toolward_wire::Message;
use toolward_wire::list::ListKind;

use crate::lock::LockUnpoisoned;

/// Events of a transport other than responses.
#[derive(Debug, Clone)]
pub(crate) enum Signal {
    /// The server announced a change of a list. For resources, that includes templates.
    ListChanged(ListKind),
    /// A resource changed, by its URI.
    Updated(Box<str>),
    /// The state of a modern task changed.
    Task(Arc<TaskUpdate>),
    /// A new session began on the same connection; its lists may differ.
    Renewed,
    /// The connection, or the stream of announcements, ended after it had worked for a while; lists may have changed
    /// unannounced.
    Ended,
    /// The connection ended soon after its start; it is restarted on the next use.
    Failed,
}

/// The connections that receive the signals of a transport.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signals(Arc<Mutex<Vec<mpsc::UnboundedSender<Signal>>>>);

impl Signals {
    /// Adds a connection; it receives signals until it drops the receiver.
    pub(crate) fn subscribe(&self) -> mpsc::UnboundedReceiver<Signal> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut all = self.0.locked();
        all.retain(|one| !one.is_closed());
        all.push(sender);
        receiver
    }

    pub(crate) fn send(&self, signal: &Signal) {
        self.0.locked().retain(|one| one.send(signal.clone()).is_ok());
    }
}

impl Signal {
    /// The signal of a server's notification, if it is one that concerns the whole connection.
    pub(crate) fn of(message: &Message) -> Option<Signal> {
        let method = message.method()?;
        if method == "notifications/resources/updated" {
            return message.param("uri")?.as_str().map(|uri| Signal::Updated(uri.as_ref().into()));
        }
        if method == "notifications/tasks" {
            return TaskUpdate::new(message).map(Arc::new).map(Signal::Task);
        }
        let announced = ListKind::ALL.into_iter().find(|kind| kind.changed() == method);
        announced.map(Signal::ListChanged)
    }
}

/// A longer notification about a task is dropped; the client can ask for the task.
const MAX_TASK_UPDATE_BYTES: usize = 256 << 10;
/// Notifications about tasks that wait to be delivered, of all servers. Further ones are dropped.
const MAX_TASK_UPDATES: usize = 256;

static WAITING_TASK_UPDATES: AtomicUsize = AtomicUsize::new(0);

/// A notification about a task. A server can send any number of them, so those that wait are counted.
#[derive(Debug)]
pub(crate) struct TaskUpdate(Message);

impl TaskUpdate {
    fn new(message: &Message) -> Option<TaskUpdate> {
        if message.body().len() > MAX_TASK_UPDATE_BYTES {
            return None;
        }
        let waiting = WAITING_TASK_UPDATES.fetch_add(1, Ordering::Relaxed);
        // Uncounted when it is dropped.
        Some(TaskUpdate(message.clone())).filter(|_| waiting < MAX_TASK_UPDATES)
    }

    pub(crate) fn message(&self) -> &Message {
        &self.0
    }
}

impl Drop for TaskUpdate {
    fn drop(&mut self) {
        WAITING_TASK_UPDATES.fetch_sub(1, Ordering::Relaxed);
    }
}
