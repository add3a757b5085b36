//! Tasks: calls that continue after their first response, under a sealed id.
//!
//! The client's id of a task contains the server, the tool that made the task, the server's own id and whether the task is
//! legacy or modern, sealed for the agent. Each `tasks/*` request is decided as the tool that made the task. Tasks are not
//! translated: a client uses tasks of its own protocol version only.

use bytes::Bytes;
use toolward_wire::input_requests;
use toolward_wire::{Era, Kind as MessageKind, Message, Raw, meta, string};

use super::input_state;
use super::questions::{Declined, MALFORMED};
use crate::active::Active;
use crate::client::{Caller, Client};
use crate::context::Context;
use crate::made_tasks::Task;
use crate::opaque_id::Kind;

/// How long a task can be asked about, in seconds. Servers keep tasks for as long as they announce, mostly less.
const SECONDS: u64 = 7 * 24 * 3600;

fn seal(context: &Context, caller: &Caller, era: Era, task: &Task) -> Option<String> {
    let Task { server, tool, id } = task;
    let payload = serde_json::json!([server, tool, id, era == Era::Modern]).to_string();
    context.sealer.seal(Kind::Task, caller, SECONDS, payload.as_bytes()).ok()
}

/// The task of a sealed id; `None` if it is unknown, has expired, or belongs to another agent or to the other protocol
/// version.
pub(crate) fn open(context: &Context, client: &Client, handle: &str) -> Option<Task> {
    let payload = context.sealer.open(Kind::Task, &client.caller, handle)?;
    let parts: (String, String, String, bool) = serde_json::from_slice(&payload).ok()?;
    let (server, tool, id, is_modern) = parts;
    let is_own = is_modern == (client.era() == Era::Modern);
    is_own.then_some(Task { server, tool, id })
}

/// A task that a call made: the response with the sealed id.
pub(super) struct CreatedTask {
    pub(super) body: Bytes,
    pub(super) handle: String,
    pub(super) task: Task,
}

/// The task that a response creates, if it creates one.
pub(super) fn created(
    context: &Context,
    client: &Client,
    (server, tool): (&str, &str),
    message: &Message,
) -> Option<CreatedTask> {
    let result = match client.era() {
        Era::Legacy => message.result_member("task").filter(|raw| raw.is_object())?,
        Era::Modern => message.result().filter(|_| is_modern_task(message))?,
    };
    let id = result.member("taskId").and_then(Raw::as_str)?.into_owned();
    let task = Task { server: server.into(), tool: tool.into(), id };
    let handle = seal(context, &client.caller, client.era(), &task)?;
    let edit = message.edit();
    let body = match client.era() {
        Era::Legacy => {
            let mut shown = result.to_json();
            shown["taskId"] = handle.as_str().into();
            edit.set_result("task", shown.to_string().into_bytes()).finish()
        }
        Era::Modern => edit.set_result("taskId", string::quote(&handle)).finish(),
    };
    Some(CreatedTask { body, handle, task })
}

/// Whether a modern response is a task.
pub(super) fn is_modern_task(message: &Message) -> bool {
    let kind = message.result_member("resultType").and_then(Raw::as_str);
    kind.as_deref() == Some("task")
}

/// A response about a task, with the id that the client uses.
pub(super) fn about(handle: &str, message: &Message) -> Option<Bytes> {
    if message.kind() != MessageKind::Response {
        return None;
    }
    let has_id = message.result_member("taskId").is_some();
    let is_related = message.result_meta(meta::RELATED_TASK).is_some();
    if !has_id && !is_related {
        return None;
    }
    let mut edit = message.edit();
    if has_id {
        edit = edit.set_result("taskId", string::quote(handle));
    }
    if is_related {
        let related = serde_json::json!({ "taskId": handle }).to_string().into_bytes();
        edit = edit.set_result_meta(meta::RELATED_TASK, related);
    }
    Some(edit.finish())
}

/// Decides about what a task asks the client, in a response or a notification: `inputRequests` with changed parameters,
/// if some have to change.
pub(crate) fn decide_requests(
    active: &Active,
    client: &Client,
    server: &str,
    message: &Message,
) -> Result<Option<Vec<u8>>, &'static str> {
    let entries = input_requests::entries(message).ok_or(MALFORMED.0)?;
    input_state::decide(active, client, server, &entries).map_err(|Declined(why)| why)
}
