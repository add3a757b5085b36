//! Tasks that agents made, for `tasks/list` and notifications of legacy clients.
//!
//! A server may list tasks of others as well, and knows tasks by its own ids only. So the gateway remembers which ones
//! belong to whom, and the ids that their clients have.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

use crate::budget::{Account, Reservation};
use crate::client::{Caller, Holder, ServerId};
use crate::lock::LockUnpoisoned;

/// Tasks that are remembered for one holder of a credential; the oldest are forgotten first.
const MAX_TASKS: usize = 256;
/// Holders whose tasks are remembered.
const MAX_HOLDERS: usize = 10_000;
const TTL: Duration = Duration::from_secs(24 * 3600);
/// Memory overhead of a task.
const OVERHEAD: usize = 512;

/// A task, as a server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) server: String,
    /// The server's own name of the tool.
    pub(crate) tool: String,
    /// The server's id.
    pub(crate) id: String,
}

/// A task of an agent, with the id that its client has.
#[derive(Debug, Clone)]
pub(crate) struct MadeTask {
    pub(crate) handle: String,
    pub(crate) server: ServerId,
    pub(crate) task: Task,
}

struct Entry {
    made: MadeTask,
    until: Instant,
    _room: Reservation,
}

/// The tasks of all agents. They belong to the holder of a credential, not to the agent alone.
#[derive(Default)]
pub struct MadeTasks(Mutex<HashMap<Holder, VecDeque<Entry>>>);

impl MadeTasks {
    /// Remembers a task, unless the agent's memory limit is reached.
    pub(crate) fn remember(&self, caller: &Caller, made: MadeTask, account: &Arc<Account>) {
        let Task { server, tool, id } = &made.task;
        let bytes = OVERHEAD + made.handle.len() + server.len() + tool.len() + id.len();
        let Some(room) = account.try_reserve(bytes) else { return };
        let mut all = self.0.locked();
        let now = Instant::now();
        if all.len() >= MAX_HOLDERS {
            all.retain(|_, tasks| tasks.back().is_some_and(|newest| now < newest.until));
        }
        let holder = caller.holder();
        if all.len() >= MAX_HOLDERS && !all.contains_key(&holder) {
            return;
        }
        let tasks = all.entry(holder).or_default();
        while tasks.len() >= MAX_TASKS || tasks.front().is_some_and(|oldest| now >= oldest.until) {
            tasks.pop_front();
        }
        tasks.push_back(Entry { made, until: now + TTL, _room: room });
    }

    /// The task of a caller with a server's id.
    pub(crate) fn find(&self, caller: &Caller, server: &str, id: &str) -> Option<MadeTask> {
        let all = self.0.locked();
        let mut made = all.get(&caller.holder())?.iter().rev().map(|entry| &entry.made);
        made.find(|made| made.task.server == server && made.task.id == id).cloned()
    }

    /// The tasks of a caller, oldest first.
    pub(crate) fn of(&self, caller: &Caller) -> Vec<MadeTask> {
        let now = Instant::now();
        let mut all = self.0.locked();
        let Some(tasks) = all.get_mut(&caller.holder()) else { return Vec::new() };
        tasks.retain(|entry| now < entry.until);
        tasks.iter().map(|entry| entry.made.clone()).collect()
    }
}
