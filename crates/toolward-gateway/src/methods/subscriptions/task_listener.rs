//! `subscriptions/listen` for tasks: `notifications/tasks` with the ids that the client has.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use toolward_wire::list::ListKind;
use toolward_wire::{Message, Raw, meta};

use crate::budget::{Account, Reservation};
use crate::client::outlet::MAX_SUBSCRIPTIONS;
use crate::context::Context;
use crate::made_tasks::Task;
use crate::methods::call::tasks;
use crate::methods::request::Envelope;
use crate::methods::views;
use crate::upstream::{Deliver, Subscribed, Subscription, Update};

/// An update for the stream of a client.
pub(super) enum Changed {
    /// Of a resource, by its URI.
    Resource(String),
    Task(Arc<ListenedTask>, Message, Reservation),
}

/// A task that a client listens to.
pub(super) struct ListenedTask {
    /// The client's id.
    pub(super) handle: String,
    task: Task,
}

/// Subscribes a client to tasks.
pub(super) struct TaskListener<'a> {
    pub(super) context: &'a Context,
    pub(super) envelope: &'a Envelope,
    pub(super) updates: &'a mpsc::Sender<Changed>,
}

/// A subscription, with its memory.
type Guard = (Subscription, Reservation);

impl TaskListener<'_> {
    /// Subscribes to the tasks with these ids. Those that are unknown, belong to another agent, or are of a tool that it
    /// may not use are left out.
    pub(super) async fn subscribe(
        &self,
        handles: Raw<'_>,
        account: &Arc<Account>,
    ) -> Vec<(Arc<ListenedTask>, Guard)> {
        let mut all = Vec::new();
        for (handle, _) in handles.elements().take(MAX_SUBSCRIPTIONS) {
            let Some(handle) = handle.as_str() else { continue };
            let Some(room) = account.try_reserve(1024 + 8 * handle.len()) else { break };
            if let Some((task, subscription)) = self.subscribe_one(&handle, account).await {
                all.push((task, (subscription, room)));
            }
        }
        all
    }

    async fn subscribe_one(
        &self,
        handle: &str,
        account: &Arc<Account>,
    ) -> Option<(Arc<ListenedTask>, Subscription)> {
        let (context, client) = (self.context, &self.envelope.client);
        let active = &*self.envelope.active;
        let task = tasks::open(context, client, handle)?;
        let tools = views::view_in_line(context, active, client, (ListKind::Tools, None)).await;
        tools.exposed_name(&task.server, &task.tool)?;
        let server = active.server(&task.server)?.clone();
        let declared = active.declared(client, &server);
        let connection = context.servers.connect(&server, client, declared).await.ok()?;
        if !connection.offers_tasks().await {
            return None;
        }
        let to = Subscribed::Task(task.id.as_str().into());
        let task = Arc::new(ListenedTask { handle: handle.into(), task });
        let (listened, updates, account) = (task.clone(), self.updates.clone(), account.clone());
        let deliver: Deliver = Arc::new(move |update| {
            let Update::Task(message) = update else { return };
            if let Some(room) = account.try_reserve(message.body().len()) {
                let _ = updates.try_send(Changed::Task(listened.clone(), message.clone(), room));
            }
        });
        Some((task, connection.subscribe(to, deliver)))
    }
}

impl ListenedTask {
    /// A notification about the task as the client gets it. `None` if it may not use the tool any longer, or if the task
    /// asks for something that may not reach the client: then `tasks/get` ends the task.
    pub(super) fn shown(
        &self,
        context: &Context,
        envelope: &Envelope,
        message: &Message,
    ) -> Option<Bytes> {
        let active = context.current.get()?;
        let (client, Task { server, tool, .. }) = (&envelope.client, &self.task);
        let tools = views::remembered(context, &active, (client, ListKind::Tools));
        tools.exposed_name(server, tool)?;
        let requests = tasks::decide_requests(&active, client, server, message).ok()?;
        let id = envelope.id.raw();
        let edit = message.edit().remove_own_meta().set_param_str("taskId", &self.handle);
        let edit = edit.set_meta(meta::SUBSCRIPTION_ID, id);
        Some(match requests {
            Some(requests) => edit.set_param("inputRequests", requests).finish(),
            None => edit.finish(),
        })
    }
}
