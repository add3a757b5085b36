//! Cache of the matrix, and its version before the last reload, so that changed cells can be marked.

use std::sync::{Arc, Mutex, MutexGuard};

use toolward_gateway::active::Active;
use toolward_gateway::client::ServerId;
use toolward_gateway::lock::LockUnpoisoned;
use toolward_wire::list::ListKind;

use super::group::{Group, ListOf, PreviousTable};
use super::owners::Owners;
use super::table::MatrixTable;
use super::verdict::Agents;
use crate::admin::lists::List;
use crate::reload::Reloader;

/// The cache key of a group: policy, callers, server, and its list of a kind or the error.
type GroupKey = (u64, Agents, ServerId, ListKind, Result<[u8; 32], String>);

/// The groups of the current table, and the table before the last reload.
#[derive(Default)]
pub(crate) struct MatrixCache(Mutex<CachedTables>);

#[derive(Default)]
struct CachedTables {
    groups: Vec<(GroupKey, Arc<Group>)>,
    /// The owners of the resources in these groups.
    owners: (Vec<Arc<Group>>, Arc<Owners>),
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
        let groups: Vec<Arc<Group>> = groups.into_iter().map(|(_, group)| group).collect();
        let owners = state.owners(&groups, agents.len());
        drop(state);
        let is_new = |agent: &Option<String>| {
            before.as_ref().is_some_and(|before| !before.agents.contains(agent))
        };
        MatrixTable {
            added: agents.iter().map(is_new).collect(),
            agents,
            groups,
            owners,
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
        let group = |(id, of): (ServerId, ListOf<'_>)| {
            let hash = of.list.as_ref().map(|list| *list.hash()).map_err(ToString::to_string);
            let key = (active.serial(), agents.clone(), id, of.kind, hash);
            let known = self.groups.iter().find(|(known, _)| *known == key);
            let known = known.map(|(_, group)| group.clone());
            (key, known.unwrap_or_else(|| Arc::new(Group::new(active, agents, of, before))))
        };
        lists.iter().flat_map(shown).map(group).collect()
    }

    /// The owners of the resources in these groups, from the cache if nothing has changed.
    fn owners(&mut self, groups: &[Arc<Group>], columns: usize) -> Arc<Owners> {
        let (known, owners) = &self.owners;
        let mut pairs = known.iter().zip(groups);
        if known.len() == groups.len() && pairs.all(|(one, other)| Arc::ptr_eq(one, other)) {
            return owners.clone();
        }
        let owners = Arc::new(Owners::new(groups, columns));
        self.owners = (groups.to_vec(), owners.clone());
        owners
    }
}

/// The lists of a server that the table shows: all that have entries or errors, and tools if there is no other.
fn shown(list: &List) -> Vec<(ServerId, ListOf<'_>)> {
    let server = list.server.name();
    let tools = ListOf { server, kind: ListKind::Tools, list: &list.tools };
    let others = list.others.iter().map(|(kind, list)| ListOf { server, kind: *kind, list });
    let has_content =
        |of: &ListOf<'_>| of.list.as_ref().map_or(true, |list| !list.entries().is_empty());
    let mut shown: Vec<ListOf<'_>> = others.filter(has_content).collect();
    if shown.is_empty() || has_content(&tools) {
        shown.insert(0, tools);
    }
    shown.into_iter().map(|of| (list.server.id, of)).collect()
}
