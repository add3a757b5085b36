//! Tasks of a connection's server, for the gateway itself.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolward_wire::{Era, Kind, Message, Raw, TASKS_EXTENSION};

use super::ServerConnection;

/// The timeout for a request about tasks.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pages of a list of tasks that are read.
const MAX_PAGES: usize = 50;

/// Whether a server can answer a call with a task, by its handshake response: as in 2025-11-25, or by the extension of
/// modern protocol versions.
pub(crate) fn offers_tasks(hello: &Message, era: Era) -> bool {
    let Some(capabilities) = hello.result_member("capabilities") else { return false };
    let offered = match era {
        Era::Legacy => capabilities
            .member("tasks")
            .and_then(|raw| raw.member("requests")?.member("tools")?.member("call")),
        Era::Modern => {
            capabilities.member("extensions").and_then(|raw| raw.member(TASKS_EXTENSION))
        }
    };
    offered.is_some()
}

impl ServerConnection {
    /// Whether the server can answer a call with a task.
    pub(crate) async fn offers_tasks(self: &Arc<Self>) -> bool {
        self.hello().await.is_ok_and(|hello| offers_tasks(&hello, self.era()))
    }

    /// The state of a task, as the server describes it; `None` if it is not known.
    pub(crate) async fn task(self: &Arc<Self>, id: &str) -> Option<Message> {
        let params = json!({ "taskId": id });
        let answer = self.ask("tasks/get", params, REQUEST_TIMEOUT).await.ok()?;
        (answer.kind() == Kind::Response).then_some(answer)
    }

    /// Responds to requests of a modern task for its client.
    pub(crate) async fn update_task(self: &Arc<Self>, id: &str, responses: &[(String, Message)]) {
        let responses = responses.iter().map(|(key, response)| {
            (key.clone(), response.result().map(Raw::to_json).unwrap_or_default())
        });
        let responses: serde_json::Map<String, serde_json::Value> = responses.collect();
        let params = json!({"taskId": id, "inputResponses": responses});
        let _ = self.ask("tasks/update", params, REQUEST_TIMEOUT).await;
    }

    /// Cancels a task. The server may ignore it.
    pub(crate) async fn cancel_task(self: &Arc<Self>, id: &str) {
        let _ = self.ask("tasks/cancel", json!({ "taskId": id }), REQUEST_TIMEOUT).await;
    }

    /// The pages of the list of tasks of a legacy server that has one.
    pub(crate) async fn task_pages(self: &Arc<Self>) -> Vec<Message> {
        let Ok(hello) = self.hello().await else { return Vec::new() };
        let tasks = hello.result_member("capabilities").and_then(|raw| raw.member("tasks"));
        if tasks.is_none_or(|raw| raw.member("list").is_none()) {
            return Vec::new();
        }
        let (mut pages, mut params) = (Vec::new(), json!({}));
        while pages.len() < MAX_PAGES {
            let Ok(page) = self.ask("tasks/list", params, REQUEST_TIMEOUT).await else { break };
            let next = page.result_member("nextCursor").and_then(Raw::as_str);
            let next = next.map(|cursor| json!({ "cursor": cursor }));
            pages.push(page);
            match next {
                Some(next) => params = next,
                None => break,
            }
        }
        pages
    }
}
