//! The matrix: the listing verdict of every tool, prompt, resource and template for every agent.

use std::sync::Arc;

use toolward_wire::list::ListKind;

use super::group::Group;
use super::owners::Owners;
use super::verdict::{Agents, is_closed};
use crate::discovery::Route;

pub(super) struct MatrixTable {
    pub(super) agents: Agents,
    /// The lists of each server: its tools first, then the other kinds that it has.
    pub(super) groups: Vec<Arc<Group>>,
    pub(super) owners: Arc<Owners>,
    /// The time of the last reload, if the table before it is known, and the agents that it added.
    pub(super) reloaded: Option<u64>,
    pub(super) added: Vec<bool>,
}

impl MatrixTable {
    /// The number of entries of a kind.
    pub(super) fn entries(&self, kind: ListKind) -> usize {
        let groups = self.groups.iter().filter(|group| group.kind == kind);
        groups.map(|group| group.lines.len()).sum()
    }

    fn of_tools(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.groups.iter().filter(|group| group.kind == ListKind::Tools)
    }

    /// Whether it has anything but tools.
    pub(super) fn has_others(&self) -> bool {
        self.groups.iter().any(|group| group.kind != ListKind::Tools)
    }

    /// How many tools are in an agent's list.
    pub(super) fn listed(&self, column: usize) -> usize {
        self.count(column, |route| route.is_direct())
    }

    /// How many tools an agent calls through `execute_tool`; `None`: it lists tools directly.
    pub(super) fn through(&self, column: usize) -> Option<usize> {
        let any = self.of_tools().any(|group| group.route(column) != Route::Direct);
        any.then(|| self.count(column, |route| route == Route::Execute))
    }

    fn count(&self, column: usize, wanted: impl Fn(Route) -> bool) -> usize {
        let groups = self.of_tools().filter(|group| wanted(group.route(column)));
        groups.filter_map(|group| group.allowed.get(column)).sum()
    }

    /// How many entries of a group each of these agents may use.
    pub(super) fn allowed(&self, group: usize, columns: &[usize]) -> Vec<usize> {
        let Some(of) = self.groups.get(group) else { return Vec::new() };
        let allowed = |column: &usize| {
            let allowed = of.allowed.get(*column).copied().unwrap_or(0);
            allowed.saturating_sub(self.owners.hidden(group, *column))
        };
        columns.iter().map(allowed).collect()
    }

    /// The server that owns a resource which this group lists too, for an agent that may see both.
    pub(super) fn owner(&self, group: usize, line: usize, column: usize) -> Option<&str> {
        let owner = self.owners.of(group, line, column)?;
        self.groups.get(owner).map(|owner| owner.server.as_str())
    }

    /// The limits and hooks that apply to all tools of an agent, as text.
    pub(super) fn over_every_tool(&self, column: usize) -> (Vec<&str>, Vec<&str>) {
        let guards = |group: &Arc<Group>| {
            let mut cells = (0..group.lines.len()).filter_map(|tool| group.cell(tool, column));
            cells.find(|cell| !is_closed(cell.verdict))
        };
        let mut found = self.of_tools().filter_map(|group| Some((group, guards(group)?)));
        let found = found.next().and_then(|(group, cell)| group.guards(cell));
        let Some(guards) = found else { return Default::default() };
        let limits = guards.limits.iter().filter(|limit| limit.every_tool);
        let hooks = guards.hooks.iter().filter(|hook| hook.every_tool);
        (limits.map(|limit| &*limit.rate).collect(), hooks.map(|hook| &*hook.name).collect())
    }

    pub(super) fn changed(&self) -> usize {
        self.groups.iter().map(|group| group.changed).sum()
    }
}
