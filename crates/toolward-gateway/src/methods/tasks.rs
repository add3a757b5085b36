//! `tasks/list` and `notifications/tasks/status` of legacy clients: only tasks that this holder of a credential made, of tools
//! that it may still use.

use std::sync::Arc;

use serde_json::{Value, json};
use toolward_wire::jsonrpc::result_body;
use toolward_wire::list::ListKind;
use toolward_wire::{Message, Raw};

use super::request::Request;
use super::{events, refusals, views};
use crate::active::Active;
use crate::client::Client;
use crate::context::Context;
use crate::made_tasks::MadeTask;
use crate::responses::{self, Answer};
use crate::upstream::{Server, ServerConnection};

/// Tasks that a server without a list is asked about one by one; these are the newest.
const MAX_SINGLE: usize = 32;

/// Answers `tasks/list`, as one page. It is recorded before it is sent.
pub(crate) async fn list(context: &Context, request: &Request) -> Answer {
    let (envelope, message) = (&request.envelope, &request.message);
    let (active, client, id) = (&*envelope.active, &envelope.client, &envelope.id);
    if message.param("cursor").is_some() {
        return responses::bad_params(id, client.era(), "unknown cursor");
    }
    if let Err(stopped) = active.guards.list(client.caller.agent.as_deref()).await {
        return refusals::refuse_listing(context, request, envelope.row.name, &stopped).await;
    }
    let made = context.tasks.of(&client.caller);
    let mut shown: Vec<Value> = Vec::new();
    if !made.is_empty() {
        let tools = views::view(context, active, client, (ListKind::Tools, None)).await;
        for server in active.usable(client) {
            let listed = |made: &&MadeTask| {
                made.server == server.id
                    && tools.exposed_name(server.name(), &made.task.tool).is_some()
            };
            let made: Vec<&MadeTask> = made.iter().filter(listed).collect();
            if !made.is_empty()
                && let Some(connection) = connect(context, request, &server).await
            {
                shown.extend(states(&connection, &made).await);
            }
        }
    }
    let facts = events::tasks_listed(envelope, message, shown.len());
    let ticket = context.audit.ticket(envelope.agent());
    if let Err(error) = context.audit.record_ticket(&ticket, "list", "", &facts).await {
        return responses::not_recorded(id, &error);
    }
    result_body(id, json!({ "tasks": shown }).to_string().as_bytes()).into()
}

/// The client's id of a task that it made, if it may still use the tool.
pub(crate) fn handle(
    context: &Context,
    active: &Active,
    client: &Client,
    (server, id): (&str, &str),
) -> Option<String> {
    let made = context.tasks.find(&client.caller, server, id)?;
    let tools = views::remembered(context, active, (client, ListKind::Tools));
    tools.exposed_name(server, &made.task.tool)?;
    Some(made.handle)
}

async fn connect(
    context: &Context,
    request: &Request,
    server: &Arc<Server>,
) -> Option<Arc<ServerConnection>> {
    let (active, client) = (&request.envelope.active, &request.envelope.client);
    context.servers.connect(server, client, active.declared(client, server)).await.ok()
}

/// The states of tasks at a server, with the ids that the client has. A task that the server has forgotten is missing.
async fn states(connection: &Arc<ServerConnection>, made: &[&MadeTask]) -> Vec<Value> {
    let pages = connection.task_pages().await;
    if pages.is_empty() {
        let mut states = Vec::new();
        for made in made.iter().rev().take(MAX_SINGLE).rev() {
            let answer = connection.task(&made.task.id).await;
            states.extend(answer.as_ref().and_then(Message::result).map(|task| shown(made, task)));
        }
        return states;
    }
    let lists = pages.iter().filter_map(|page| page.result_member("tasks"));
    let listed: Vec<Raw<'_>> =
        lists.flat_map(|list| list.elements().map(|(task, _)| task)).collect();
    let of = |made: &MadeTask| {
        let is = |task: &&Raw<'_>| {
            task.member("taskId").and_then(Raw::as_str).is_some_and(|id| *id == *made.task.id)
        };
        listed.iter().find(is).copied()
    };
    made.iter().filter_map(|made| Some(shown(made, of(made)?))).collect()
}

/// A task as its client sees it.
fn shown(made: &MadeTask, task: Raw<'_>) -> Value {
    let mut shown = task.to_json();
    if let Some(members) = shown.as_object_mut() {
        members.remove("_meta");
        members.insert("taskId".into(), made.handle.as_str().into());
    }
    shown
}
