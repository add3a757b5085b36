//! The gateway: entry point for the HTTP and stdio listeners, the active configuration, method dispatch.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use toolward_wire::jsonrpc::result_body;
use toolward_wire::list::ListKind;
use toolward_wire::method::PolicySubject;
use toolward_wire::{ClientCapabilities, Era};

use crate::active::{Active, ActiveSwap, startup};
use crate::client::Client;
use crate::client::outlet::{Gate, RequestGate, TaskGate};
use crate::context::Context;
use crate::held::Work;
use crate::methods::request::Request;
use crate::methods::{approvals, call, initialize, list, logging, subscriptions, tasks, views};
use crate::notifications::Notes;
use crate::responses::{self, Answer, Outbound};
use crate::traces::{self, Traced};
use crate::upstream::Unavailable;
use crate::view::cache::Viewer;
use crate::view::changes;

/// Everything between clients and servers.
pub struct Gateway {
    pub context: Context,
    active: Arc<ActiveSwap>,
    /// The number of activations, for streams that outlive the configuration they began under.
    activated: watch::Sender<u64>,
}

impl Gateway {
    pub fn new(context: Context, active: Active) -> Gateway {
        let (active, activated) = (Arc::new(ActiveSwap::new(active)), watch::Sender::new(0));
        context.current.set(&active);
        approvals::activated(&context, &active.get());
        Gateway { context, active, activated }
    }

    /// The active configuration. A request reads it once.
    pub fn active(&self) -> Arc<Active> {
        self.active.get()
    }

    /// Activates another configuration: new requests use it, and servers that it does not have are
    /// retired. Must be called on a long-lived runtime, which runs the processes of hooks.
    pub fn activate(&self, active: Active) {
        let active = Arc::new(active);
        let before = self.active.swap(active.clone());
        active.guards.start();
        self.context.servers.retire(&before.servers, &active.servers);
        self.context.held.retain(|agent| active.policy.has_rules_for(agent));
        approvals::activated(&self.context, &active);
        self.activated.send_modify(|count| *count += 1);
        self.report_pins();
    }

    /// Changes with every activation.
    pub(crate) fn activations(&self) -> watch::Receiver<u64> {
        self.activated.subscribe()
    }

    /// Starts persistent hooks and eager servers. With flat names, two tools with the same name are an
    /// error.
    pub async fn start(&self) -> Result<(), String> {
        startup::start(&self.active(), &self.context.servers).await
    }

    /// Records which definitions were approved since the configuration was last loaded.
    pub fn report_pins(&self) {
        views::report_changes(&self.context, &self.active());
    }

    /// Handles a request. `None`: the client canceled it, so there is no response.
    pub async fn answer(&self, request: Request, notes: &Notes) -> Option<Answer> {
        let envelope = &request.envelope;
        let agent = envelope.active.agent_label(envelope.agent());
        let (method, version) = (envelope.row.name, envelope.client.revision.as_str());
        let series = &self.context.series;
        if let Some(traced) = series.traces.begin(&request.message) {
            return Box::pin(self.answer_traced(request, notes, traced)).await;
        }
        let timer = series.begin(method, version, agent);
        let answer = self.dispatch(request, notes).await;
        timer.end(answer.as_ref().map(|answer| answer.error_type.unwrap_or_default()));
        answer
    }

    /// The same for a request that is traced.
    async fn answer_traced(
        &self,
        request: Request,
        notes: &Notes,
        traced: Arc<Traced>,
    ) -> Option<Answer> {
        let envelope = &request.envelope;
        let agent = envelope.active.agent_label(envelope.agent());
        let (method, version) = (envelope.row.name, envelope.client.revision.as_str());
        traced.note(|facts| {
            (facts.agent, facts.version) = (Some(agent.clone()), version);
            facts.request_id =
                String::from_utf8_lossy(envelope.id.raw()).chars().take(64).collect();
        });
        let timer = self.context.series.begin(method, version, agent);
        let answer = traces::within(traced.clone(), self.dispatch(request, notes)).await;
        let error_type = answer.as_ref().map(|answer| answer.error_type.unwrap_or_default());
        timer.end(error_type);
        self.context.series.traces.end(&traced, method, error_type.unwrap_or("cancelled"));
        answer
    }

    async fn dispatch(&self, request: Request, notes: &Notes) -> Option<Answer> {
        let context = &self.context;
        let (id, era) = (&request.envelope.id, request.envelope.client.era());
        match (request.envelope.row.name, request.envelope.row.subject) {
            ("initialize", _) => Some(initialize::initialize(context, &request).await),
            ("server/discover", _) => Some(initialize::discover(context, &request).await),
            ("ping", _) => Some(result_body(id, b"{}").into()),
            (_, subject) if let Some(kind) = ListKind::of(subject) => {
                Some(list::list(context, &request, kind).await)
            }
            (_, PolicySubject::Tool | PolicySubject::Prompt | PolicySubject::Completion)
            | ("resources/read", _) => call::call(context, request, notes).await,
            ("resources/subscribe", _) => subscriptions::subscribe(context, request).await,
            ("tasks/list", _) => Some(Box::pin(tasks::list(context, &request)).await),
            (_, PolicySubject::Task) if lacks_tasks(&request.envelope.client) => {
                Some(responses::tasks_undeclared(id))
            }
            (_, PolicySubject::Task) => call::call(context, request, notes).await,
            ("logging/setLevel", _) => Some(logging::set_level(context, &request)),
            ("resources/unsubscribe", _) => Some(subscriptions::unsubscribe(&request)),
            ("subscriptions/listen", _) => {
                // Boxed because it is rare and would otherwise enlarge the future of every call.
                Box::pin(subscriptions::listen(context, request, notes)).await
            }
            (method, _) => Some(responses::not_available(id, era, method)),
        }
    }

    /// Whether a method lists, and the last known list of a server is shown because the server has not responded yet.
    pub(crate) fn has_stored_list(&self, client: &Client, method: &str) -> bool {
        let kind = ListKind::ALL.into_iter().find(|kind| kind.method() == method);
        let shows = |kind| views::has_first_list(&self.context, &self.active(), (client, kind));
        kind.is_some_and(shows)
    }

    /// Answers a request of a modern client. Its call is held if a server asks the client something.
    pub(crate) async fn answer_stateless(
        self: Arc<Self>,
        request: Request,
        notes: Notes,
    ) -> Option<Answer> {
        // Boxed, as is the work of a call, so that this future is small: it is moved several times.
        if !request.envelope.row.may_request_input {
            return Box::pin(self.answer(request, &notes)).await;
        }
        let gateway = self.clone();
        let begin = |request, notes: Notes| -> Work {
            Box::pin(async move { gateway.answer(request, &notes).await })
        };
        call::hold::answer(&self.context, request, notes, begin).await
    }

    /// Whether the only server in a client's scope can be started. One that uses the other protocol
    /// version counts as started.
    pub(crate) async fn ready(&self, client: &Client) -> Result<(), Unavailable> {
        initialize::ready(&self.context, &self.active(), client).await
    }

    /// Like [`ready`](Gateway::ready), within the time that a client waits for `initialize`; `None` if it
    /// is not known by then.
    pub(crate) async fn ready_in_time(&self, client: &Client) -> Option<Result<(), Unavailable>> {
        initialize::ready_in_time(&self.context, &self.active(), client).await
    }

    /// Decides about messages of servers to a client that belong to no call, under the configuration of the moment.
    pub(crate) fn client_gate(self: &Arc<Self>, client: &Client) -> Gate {
        let copy = || (Arc::downgrade(self), client.with_scope(client.scope));
        let (gateway, client) = copy();
        let request: Box<RequestGate> = Box::new(move |server, asked| {
            gateway.upgrade()?.active().client_request(&client, server, asked).ok()
        });
        let (gateway, client) = copy();
        let task: Box<TaskGate> = Box::new(move |server, id| {
            let gateway = gateway.upgrade()?;
            tasks::handle(&gateway.context, &gateway.active(), &client, (server, id))
        });
        Gate { request, task }
    }

    /// Sends `list_changed` to a client with a session whenever its view changes, until it closes the channel.
    pub(crate) fn follow_changes(
        self: &Arc<Self>,
        client: &Arc<Viewer>,
        notifications: mpsc::Sender<Outbound>,
    ) -> AbortHandle {
        let (gateway, changes) = (Arc::downgrade(self), self.context.servers.changes());
        changes::follow(Arc::downgrade(client), changes, notifications, move |client, kind| {
            let gateway = gateway.upgrade()?;
            Some(views::remembered(&gateway.context, &gateway.active(), (client, kind)))
        })
    }
}

/// Whether tasks are an extension for a client, which it did not declare.
fn lacks_tasks(client: &Client) -> bool {
    client.era() == Era::Modern && !client.declared.contains(ClientCapabilities::TASKS)
}
