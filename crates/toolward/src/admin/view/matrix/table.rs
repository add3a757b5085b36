//! Builds the matrix: the listing verdict of every tool for every agent, by the same functions as `toolward ls`,
//! with limits and hooks. The rows of a server are cached until its tool list or the policy changes.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use toolward_gateway::active::Active;
use toolward_gateway::guard::InFront;
use toolward_policy::{Caller, Verdict};

use crate::admin::lists::List;
use crate::admin::query::encoded;
use crate::discovery::Route;

pub(super) const ALLOW: u8 = 0;
pub(super) const DEPENDS: u8 = 1;
pub(super) const ASK: u8 = 2;
pub(super) const DENY: u8 = 3;

/// Descriptions are cut at this many characters.
const MAX_DESCRIPTION: usize = 160;

fn byte(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Allow => ALLOW,
        Verdict::Depends => DEPENDS,
        Verdict::Ask => ASK,
        Verdict::Deny => DENY,
    }
}

/// The callers that have a column; `None`: unnamed callers.
pub(super) type Agents = Arc<Vec<Option<String>>>;

pub(super) struct MatrixTable {
    pub(super) agents: Agents,
    pub(super) groups: Vec<Arc<Group>>,
    /// The time of the last reload, if the table before it is known, and the agents that it added.
    pub(super) reloaded: Option<u64>,
    pub(super) added: Vec<bool>,
}

/// The table before a reload.
pub(super) struct PreviousTable {
    /// The time of the reload, in microseconds since 1970.
    pub(super) at: u64,
    /// The policy that the reload replaced.
    pub(super) serial: u64,
    pub(super) agents: Agents,
    pub(super) groups: Vec<Arc<Group>>,
}

/// One tool for one agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MatrixCell {
    pub(super) verdict: u8,
    /// The index of its guards among those of the group; 0: none.
    guards: u16,
    /// The verdict before the last reload, if it was different.
    pub(super) before: Option<u8>,
}

/// A server's tools.
pub(super) struct Group {
    pub(super) server: String,
    /// The URL-encoded name: the displayed name is sanitized and may match no server.
    pub(super) address: String,
    /// Why its tools are not known.
    pub(super) why: Option<String>,
    pub(super) lines: Vec<ToolLine>,
    /// Row by row, one cell per agent.
    cells: Vec<MatrixCell>,
    guards: Vec<InFront>,
    /// How each agent calls the server's tools.
    pub(super) routes: Vec<Route>,
    /// How many tools each agent may call.
    pub(super) allowed: Vec<usize>,
    /// How many cells the last reload changed.
    pub(super) changed: usize,
}

pub(super) struct ToolLine {
    pub(super) name: String,
    pub(super) address: String,
    /// Its display name, if it is renamed.
    pub(super) shown: Option<String>,
    pub(super) hints: Vec<String>,
    /// In lower case, for searching.
    pub(super) searched: String,
    definition: Arc<str>,
    /// The operator's description, which replaces the server's.
    described: Option<Box<str>>,
}

impl MatrixTable {
    pub(super) fn tools(&self) -> usize {
        self.groups.iter().map(|group| group.lines.len()).sum()
    }

    /// How many tools are in an agent's list.
    pub(super) fn listed(&self, column: usize) -> usize {
        self.count(column, |route| route.is_direct())
    }

    /// How many tools an agent calls through `execute_tool`; `None`: it lists tools directly.
    pub(super) fn through(&self, column: usize) -> Option<usize> {
        let progressive = |group: &Arc<Group>| group.route(column) != Route::Direct;
        let any = self.groups.iter().any(progressive);
        any.then(|| self.count(column, |route| route == Route::Execute))
    }

    fn count(&self, column: usize, wanted: impl Fn(Route) -> bool) -> usize {
        let groups = self.groups.iter().filter(|group| wanted(group.route(column)));
        groups.filter_map(|group| group.allowed.get(column)).sum()
    }

    /// The limits and hooks that apply to all tools of an agent, as text.
    pub(super) fn over_every_tool(&self, column: usize) -> (Vec<&str>, Vec<&str>) {
        let guards = |group: &'_ Arc<Group>| {
            let mut cells = (0..group.lines.len()).filter_map(|tool| group.cell(tool, column));
            cells.find(|cell| cell.verdict != DENY).map(|cell| cell.guards)
        };
        let found = self.groups.iter().find_map(|group| Some((group, guards(group)?)));
        let found = found.and_then(|(group, at)| group.guards.get(usize::from(at)));
        let Some(guards) = found else { return Default::default() };
        let limits = guards.limits.iter().filter(|limit| limit.every_tool);
        let hooks = guards.hooks.iter().filter(|hook| hook.every_tool);
        (limits.map(|limit| &*limit.rate).collect(), hooks.map(|hook| &*hook.name).collect())
    }

    pub(super) fn changed(&self) -> usize {
        self.groups.iter().map(|group| group.changed).sum()
    }
}

impl ToolLine {
    /// The beginning of the tool's description.
    pub(super) fn description(&self) -> Option<String> {
        let own = || {
            let definition: Value = serde_json::from_str(&self.definition).ok()?;
            definition.get("description")?.as_str().map(String::from)
        };
        let text = self.described.as_deref().map(String::from).or_else(own)?;
        let line = text.trim().lines().next().unwrap_or_default();
        match line.char_indices().nth(MAX_DESCRIPTION) {
            Some((cut, _)) => Some(format!("{}…", line.get(..cut)?)),
            None => Some(line.into()).filter(|line: &String| !line.is_empty()),
        }
    }
}

impl Group {
    pub(super) fn new(
        active: &Active,
        agents: &[Option<String>],
        list: &List,
        before: Option<&PreviousTable>,
    ) -> Group {
        let server = list.server.name();
        let names = || agents.iter().map(Option::as_deref);
        let route = |agent| active.discovery.route(&active.policy, agent, server);
        let mut group = Group {
            server: server.into(),
            address: encoded(server),
            why: list.tools.as_ref().err().map(ToString::to_string),
            lines: Vec::new(),
            cells: Vec::new(),
            guards: vec![InFront::default()],
            routes: names().map(route).collect(),
            allowed: vec![0; agents.len()],
            changed: 0,
        };
        if list.tools.is_ok() {
            group.fill(active, agents, list);
            if let Some(before) = before {
                group.compare(agents, before);
            }
        }
        group
    }

    fn fill(&mut self, active: &Active, agents: &[Option<String>], list: &List) {
        let Ok(catalogue) = &list.tools else { return };
        let (policy, tools) = (&active.policy, catalogue.tools());
        let server = self.server.as_str();
        let exposure = policy.exposure(server);
        let hints: Vec<_> = tools.tools().iter().map(|tool| policy.hints(server, tool)).collect();
        let line = |(tool, hints): (&toolward_policy::Tool, &toolward_policy::Hints)| {
            let shown = exposure.and_then(|exposure| exposure.show(tool.name()));
            let described = shown.as_ref().and_then(|shown| shown.description.clone());
            let shown = shown.map(|shown| String::from(shown.name));
            let shown = shown.filter(|shown| shown != tool.name());
            let other = shown.as_deref().unwrap_or_default();
            let searched = format!("{server}/{}\n{other}", tool.name()).to_lowercase();
            let (name, address) = (tool.name().into(), encoded(tool.name()));
            let (hints, definition) =
                (hints.iter().map(String::from).collect(), tool.shared_definition());
            ToolLine { name, address, shown, hints, searched, definition, described }
        };
        let lines = tools.tools().iter().zip(&hints).map(line).collect();
        let denied = MatrixCell { verdict: DENY, guards: 0, before: None };
        let mut cells = vec![denied; hints.len() * agents.len()];
        let guarded = !active.guards.is_empty();
        for (column, agent) in agents.iter().enumerate() {
            let caller = Caller { agent: agent.as_deref(), claims: None };
            let closed = matches!(self.route(column), Route::Closed(_));
            let row = policy.row(caller.agent, server, tools);
            let rows = row.iter().zip(&hints).zip(cells.chunks_mut(agents.len().max(1)));
            for (((tool, decided), hints), cells) in rows {
                let Some(cell) = cells.get_mut(column) else { continue };
                let verdict = byte(decided.list(caller).decision.verdict);
                cell.verdict = if closed { DENY } else { verdict };
                if cell.verdict == DENY {
                    continue;
                }
                if let Some(allowed) = self.allowed.get_mut(column) {
                    *allowed += 1;
                }
                if guarded {
                    let rules = (&*decided.all_limits(), decided.settled().is_some());
                    let whom = (caller.agent, server);
                    let guards = active.guards.in_front(whom, (tool, hints), rules);
                    cell.guards = place(&mut self.guards, guards);
                }
            }
        }
        (self.lines, self.cells) = (lines, cells);
    }

    /// Marks the cells that the last reload changed.
    fn compare(&mut self, agents: &[Option<String>], before: &PreviousTable) {
        let Some(old) = before.groups.iter().find(|group| group.server == self.server) else {
            return;
        };
        let columns: Vec<Option<usize>> = agents
            .iter()
            .map(|agent| before.agents.iter().position(|known| known == agent))
            .collect();
        let lines: HashMap<&str, usize> =
            old.lines.iter().enumerate().map(|(at, line)| (line.name.as_str(), at)).collect();
        let mut changed = 0;
        for (line, cells) in self.lines.iter().zip(self.cells.chunks_mut(agents.len().max(1))) {
            let Some(was) = lines.get(line.name.as_str()) else { continue };
            for (cell, column) in cells.iter_mut().zip(&columns) {
                let Some(was) = column.and_then(|column| old.cell(*was, column)) else { continue };
                let same = was.verdict == cell.verdict
                    && old.guards.get(usize::from(was.guards))
                        == self.guards.get(usize::from(cell.guards));
                if !same {
                    cell.before = Some(was.verdict);
                    changed += 1;
                }
            }
        }
        self.changed = changed;
    }

    pub(super) fn route(&self, column: usize) -> Route {
        self.routes.get(column).copied().unwrap_or(Route::Direct)
    }

    pub(super) fn cell(&self, tool: usize, column: usize) -> Option<MatrixCell> {
        self.cells(tool).get(column).copied()
    }

    /// The cells of a tool, agent by agent.
    pub(super) fn cells(&self, tool: usize) -> &[MatrixCell] {
        let start = tool * self.routes.len();
        self.cells.get(start..start + self.routes.len()).unwrap_or_default()
    }

    /// The limits and hooks that apply to a tool for an agent.
    pub(super) fn guards(&self, cell: MatrixCell) -> Option<&InFront> {
        self.guards.get(usize::from(cell.guards)).filter(|guards| !guards.is_empty())
    }
}

/// The index of guards among the known ones; there are few distinct ones.
fn place(known: &mut Vec<InFront>, guards: InFront) -> u16 {
    let at = known.iter().position(|one| *one == guards).unwrap_or_else(|| {
        known.push(guards);
        known.len() - 1
    });
    // If there are too many distinct ones, the last index is shared and shows one of them.
    u16::try_from(at).unwrap_or(u16::MAX)
}
