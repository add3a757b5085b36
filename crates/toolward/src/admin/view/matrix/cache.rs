//! Cache of the matrix, and its version before the last reload, so that changed cells can be marked.

use std::sync::{Arc, Mutex, MutexGuard};

use toolward_gateway::active::Active;
use toolward_gateway::client::ServerId;
use toolward_gateway::lock::LockUnpoisoned;

use super::table::{Agents, Group, MatrixTable, PreviousTable};
use crate::admin::lists::List;
use crate::reload::Reloader;

/// The cache key of a group: policy, callers, server, and its list or the error.
type GroupKey = (u64, Agents, ServerId, Result<[u8; 32], String>);

/// The groups of the current table, and the table before the last reload.
#[derive(Default)]
pub(crate) struct MatrixCache(Mutex<CachedTables>);

#[derive(Default)]
struct CachedTables {
    groups: Vec<(GroupKey, Arc<Group>)>,
    before: Option<Arc<PreviousTable>>,
}

impl MatrixCache {
    pub(super) fn table(&self, reloader: &Reloader, lists: &[List]) -> MatrixTable {
        let active = reloader.gateway().active();
        let agents = reloader.callers();
        let mut state = self.lock();
        // Until the new policy is active, the table kept for comparison is the current one.
        let before = state.before.clone().filter(|before| before.serial != active.serial());
        let groups = state.groups(&active, &agents, lists, before.as_deref());
        state.groups.clone_from(&groups);
        drop(state);
        let is_new = |agent: &Option<String>| {
            before.as_ref().is_some_and(|before| !before.agents.contains(agent))
        };
        MatrixTable {
            added: agents.iter().map(is_new).collect(),
            agents,
            groups: groups.into_iter().map(|(_, group)| group).collect(),
            reloaded: before.map(|before| before.at),
        }
    }

    /// Keeps the table of the policy that is about to be replaced.
    pub(crate) fn reloading(&self, active: &Active, agents: Agents, lists: &[List], at: u64) {
        let mut state = self.lock();
        let groups = state.groups(active, &agents, lists, None);
        let groups = groups.into_iter().map(|(_, group)| group).collect();
        let serial = active.serial();
        state.before = Some(Arc::new(PreviousTable { at, serial, agents, groups }));
    }

    /// When the policy was replaced last, in microseconds since 1970.
    pub(crate) fn reloaded(&self) -> Option<u64> {
        self.lock().before.as_ref().map(|before| before.at)
    }

    fn lock(&self) -> MutexGuard<'_, CachedTables> {
        self.0.locked()
    }
}

impl CachedTables {
    /// The groups of all servers, from the cache if nothing has changed.
    fn groups(
        &self,
        active: &Active,
        agents: &Agents,
        lists: &[List],
        before: Option<&PreviousTable>,
    ) -> Vec<(GroupKey, Arc<Group>)> {
        let group = |list: &List| {
            let hash = list.tools.as_ref().map(|tools| *tools.hash()).map_err(ToString::to_string);
            let key = (active.serial(), agents.clone(), list.server.id, hash);
            let known = self.groups.iter().find(|(known, _)| *known == key);
            let known = known.map(|(_, group)| group.clone());
            (key, known.unwrap_or_else(|| Arc::new(Group::new(active, agents, list, before))))
        };
        lists.iter().map(group).collect()
    }
}
