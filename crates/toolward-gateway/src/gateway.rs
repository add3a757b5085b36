//! The gateway: the entry for both listeners, the active configuration, method dispatch.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use toolward_wire::jsonrpc::result_body;
use toolward_wire::method::PolicySubject;

use crate::active::{Active, ActiveSwap, startup};
use crate::client::Client;
use crate::context::Context;
use crate::methods::request::Request;
use crate::methods::{call, initialize, list, views};
use crate::notifications::Notes;
use crate::responses::{self, Answer, Outbound};
use crate::upstream::Unavailable;
use crate::view::cache::Viewer;
use crate::view::changes;

/// Everything between clients and servers.
pub struct Gateway {
    pub context: Context,
    active: ActiveSwap,
    /// Counts activations, for streams that outlive the configuration they began under.
    activated: watch::Sender<u64>,
}

impl Gateway {
    pub fn new(context: Context, active: Active) -> Gateway {
        let (active, activated) = (ActiveSwap::new(active), watch::Sender::new(0));
        Gateway { context, active, activated }
    }

    /// The active configuration. A request takes it once.
    pub fn active(&self) -> Arc<Active> {
        self.active.get()
    }

    /// Activates another configuration: requests from now on begin with it, and servers that it does not have are
    /// retired. Must be called on a runtime that stays, for the processes of hooks.
    pub fn activate(&self, active: Active) {
        let active = Arc::new(active);
        let before = self.active.swap(active.clone());
        active.guards.start();
        self.context.servers.retire(&before.servers, &active.servers);
        self.activated.send_modify(|count| *count += 1);
    }

    /// Changes with every activation.
    pub(crate) fn activations(&self) -> watch::Receiver<u64> {
        self.activated.subscribe()
    }

    /// Starts persistent hooks and eager servers. With flat names, two tools of one name are an error.
    pub async fn start(&self) -> Result<(), String> {
        startup::start(&self.active(), &self.context.servers).await
    }

    /// Answers a request. `None`: the client canceled it, and gets no response.
    pub async fn answer(&self, request: Request, notes: &Notes) -> Option<Answer> {
        let context = &self.context;
        let (id, era) = (&request.envelope.id, request.envelope.client.era());
        match (request.envelope.row.name, request.envelope.row.subject) {
            ("initialize", _) => Some(initialize::initialize(context, &request).await),
            ("server/discover", _) => Some(initialize::discover(context, &request).await),
            ("ping", _) => Some(result_body(id, b"{}").into()),
            (_, PolicySubject::ToolList) => Some(list::list(context, &request).await),
            (_, PolicySubject::Tool) => call::call(context, request, notes).await,
            (method, _) => Some(responses::not_available(id, era, method)),
        }
    }

    /// Whether the one server that a client reaches can be started. One of the other era can.
    pub(crate) async fn ready(&self, client: &Client) -> Result<(), Unavailable> {
        initialize::ready(&self.context, &self.active(), client).await
    }

    /// The same within the time that a client waits for `initialize`; `None` if it is not known by then.
    pub(crate) async fn ready_in_time(&self, client: &Client) -> Option<Result<(), Unavailable>> {
        initialize::ready_in_time(&self.context, &self.active(), client).await
    }

    /// Sends `list_changed` to a client with a session whenever its view changes, until it closes the channel.
    pub fn follow_changes(
        self: &Arc<Self>,
        client: &Arc<Viewer>,
        notifications: mpsc::Sender<Outbound>,
    ) -> AbortHandle {
        let (gateway, changes) = (Arc::downgrade(self), self.context.servers.changes());
        changes::follow(Arc::downgrade(client), changes, notifications, move |client| {
            let gateway = gateway.upgrade()?;
            Some(views::remembered(&gateway.context, &gateway.active(), client))
        })
    }
}
