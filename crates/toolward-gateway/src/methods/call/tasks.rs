//! Tasks of legacy servers: a call that continues after its first response, under a sealed id.
//!
//! The client's id of a task contains the server, the tool that made the task and the server's own id, sealed for the
//! agent, so the gateway keeps nothing. Each `tasks/*` request is decided as the tool that made the task.

use toolward_wire::{Kind as MessageKind, Message, Raw, meta, string};

use crate::client::Caller;
use crate::context::Context;
use crate::opaque_id::{Kind, Sealer};

/// How long a task can be asked about, in seconds. Servers keep tasks for as long as they announce, mostly less.
const SECONDS: u64 = 7 * 24 * 3600;

/// A task, as its sealed id contains it.
pub(super) struct Task {
    pub(super) server: String,
    /// The server's own name of the tool.
    pub(super) tool: String,
    /// The server's id.
    pub(super) id: String,
}

impl Task {
    fn seal(&self, sealer: &Sealer, caller: &Caller) -> Option<String> {
        let payload = serde_json::json!([self.server, self.tool, self.id]).to_string();
        sealer.seal(Kind::Task, caller, SECONDS, payload.as_bytes()).ok()
    }

    /// The task of a sealed id; `None` if it is unknown, has expired, or belongs to another agent.
    pub(super) fn open(context: &Context, caller: &Caller, handle: &str) -> Option<Task> {
        let payload = context.sealer.open(Kind::Task, caller, handle)?;
        let (server, tool, id) = serde_json::from_slice(&payload).ok()?;
        Some(Task { server, tool, id })
    }
}

/// The response that creates a task, with the sealed id; `None` if it creates none.
pub(super) fn created(
    context: &Context,
    caller: &Caller,
    (server, tool): (&str, &str),
    message: &Message,
) -> Option<bytes::Bytes> {
    let task = message.result_member("task").filter(|raw| raw.is_object())?;
    let id = task.member("taskId").and_then(Raw::as_str)?.into_owned();
    let sealed = Task { server: server.into(), tool: tool.into(), id };
    let sealed = sealed.seal(&context.sealer, caller)?;
    let mut shown = task.to_json();
    shown["taskId"] = sealed.into();
    Some(message.edit().set_result("task", shown.to_string().into_bytes()).finish())
}

/// A response about a task, with the id that the client uses.
pub(super) fn about(handle: &str, message: &Message) -> Option<bytes::Bytes> {
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
