//! The rows of one list of a server, decided by the same functions as `toolward ls`, with limits and hooks. They are
//! cached until the list or the policy changes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use toolward_gateway::active::Active;
use toolward_gateway::guard::InFront;
use toolward_gateway::upstream::Unavailable;
use toolward_gateway::upstream::catalogue::Catalogue;
use toolward_policy::exposure::Exposure;
use toolward_policy::{Caller, Hints, Tool};
use toolward_wire::list::{Entry, ListKind};

use super::verdict::{Agents, DENY, MatrixCell, QUARANTINED, byte};
use crate::admin::query::encoded;
use crate::admin::view::words::plural;
use crate::discovery::Route;
use crate::listing;

/// Descriptions are cut at this many characters.
const MAX_DESCRIPTION: usize = 160;

/// One list of a server.
pub(super) struct Group {
    pub(super) server: String,
    pub(super) kind: ListKind,
    /// The URL-encoded name: the displayed name is sanitized and may match no server.
    pub(super) address: String,
    /// Identifies the group in URLs, as collapsed: the server's name, or `SERVER/prompts`.
    pub(super) fold: String,
    /// Why its entries are not known.
    pub(super) why: Option<String>,
    pub(super) lines: Vec<EntryLine>,
    /// Row by row, one cell per agent.
    cells: Vec<MatrixCell>,
    guards: Vec<InFront>,
    /// How each agent calls the server's tools, or uses the other entries.
    pub(super) routes: Vec<Route>,
    /// How many entries each agent may use.
    pub(super) allowed: Vec<usize>,
    /// How many cells the last reload changed.
    pub(super) changed: usize,
    /// Entries that no agent sees, because their definitions are not approved.
    hidden: BTreeSet<Box<str>>,
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

/// A tool, prompt, resource or template.
pub(super) struct EntryLine {
    pub(super) name: String,
    pub(super) address: String,
    /// Its display name, if it is renamed.
    pub(super) shown: Option<String>,
    pub(super) hints: Vec<String>,
    /// In lower case, for searching.
    pub(super) searched: String,
    /// Identifies a resource that several servers list.
    pub(super) key: Box<str>,
    definition: Bytes,
    /// The operator's description, which replaces the server's.
    described: Option<Box<str>>,
}

/// A server's list of one kind, or the error.
#[derive(Clone, Copy)]
pub(super) struct ListOf<'a> {
    pub(super) server: &'a str,
    pub(super) kind: ListKind,
    pub(super) list: &'a Result<Arc<Catalogue>, Unavailable>,
}

impl EntryLine {
    fn new(
        exposure: Option<&Exposure>,
        (server, kind): (&str, ListKind),
        entry: &Entry,
        hints: Option<&Hints>,
    ) -> EntryLine {
        let name = entry.name();
        let shown = exposure.and_then(|exposure| exposure.show(name));
        let described = shown.as_ref().and_then(|shown| shown.description.clone());
        let shown = shown.map(|shown| String::from(shown.name)).filter(|shown| shown != name);
        let other = shown.as_deref().unwrap_or_default();
        let key = listing::shared_key(kind, name).unwrap_or_default();
        EntryLine {
            searched: format!("{server}/{name}\n{other}").to_lowercase(),
            name: name.into(),
            address: encoded(name),
            hints: hints.map(|hints| hints.iter().map(String::from).collect()).unwrap_or_default(),
            key: key.into(),
            definition: entry.bytes().clone(),
            shown,
            described,
        }
    }

    /// The beginning of the description, or the title of a resource without one.
    pub(super) fn description(&self) -> Option<String> {
        let own = || {
            let definition: Value = serde_json::from_slice(&self.definition).ok()?;
            let text = |member: &str| definition.get(member)?.as_str().map(String::from);
            let title = || text("title").or_else(|| text("name"));
            text("description").or_else(|| title().filter(|title| *title != self.name))
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
        of: ListOf<'_>,
        before: Option<&PreviousTable>,
    ) -> Group {
        let ListOf { server, kind, list } = of;
        let names = || agents.iter().map(Option::as_deref);
        let route = |agent| match kind {
            ListKind::Tools => active.discovery.route(&active.policy, agent, server),
            _ => active.discovery.route_to_others(agent),
        };
        let mut group = Group {
            server: server.into(),
            kind,
            address: encoded(server),
            fold: match kind {
                ListKind::Tools => server.into(),
                // No server's name contains a slash.
                _ => format!("{server}/{}", plural(kind)),
            },
            why: list.as_ref().err().map(ToString::to_string),
            lines: Vec::new(),
            cells: Vec::new(),
            guards: vec![InFront::default()],
            routes: names().map(route).collect(),
            allowed: vec![0; agents.len()],
            changed: 0,
            hidden: match (active.server(server), list) {
                (Some(server), Ok(list)) => active.pins.hidden(server, list),
                _ => BTreeSet::new(),
            },
        };
        if let Ok(catalogue) = list {
            let denied = MatrixCell { verdict: DENY, guards: 0, before: None };
            group.cells = vec![denied; catalogue.entries().len() * agents.len()];
            match kind {
                ListKind::Tools => group.fill_tools(active, agents, catalogue),
                _ => group.fill_others(active, agents, catalogue),
            }
            if let Some(before) = before {
                group.compare(agents, before);
            }
        }
        group
    }

    fn fill_tools(&mut self, active: &Active, agents: &[Option<String>], list: &Catalogue) {
        let (policy, tools) = (&active.policy, list.tools());
        let server = self.server.clone();
        let exposure = policy.exposure(&server);
        let hints = |tool: &Tool| policy.hints(&server, tool);
        let hints: Vec<Hints> = tools.tools().iter().map(hints).collect();
        let lines = list.entries().iter().zip(&hints);
        let about = (&*server, self.kind);
        self.lines = lines
            .map(|(entry, hints)| EntryLine::new(exposure, about, entry, Some(hints)))
            .collect();
        for (column, agent) in agents.iter().enumerate() {
            let caller = Caller { agent: agent.as_deref(), claims: None };
            let row = policy.row(caller.agent, &server, tools);
            for (at, ((tool, cell), hints)) in row.iter().zip(&hints).enumerate() {
                let guards = || {
                    let rules = (&*cell.all_limits(), cell.settled().is_some());
                    active.guards.in_front((caller.agent, &server), (tool, hints), rules)
                };
                let verdict = byte(cell.list(caller).decision.verdict);
                self.set((at, column), verdict, || (!active.guards.is_empty()).then(guards));
            }
        }
    }

    fn fill_others(&mut self, active: &Active, agents: &[Option<String>], list: &Catalogue) {
        let policy = &active.policy;
        let server = self.server.clone();
        let is_prompt = self.kind == ListKind::Prompts;
        let exposure = policy.prompt_exposure(&server).filter(|_| is_prompt);
        let about = (&*server, self.kind);
        let lines = list.entries().iter();
        self.lines = lines.map(|entry| EntryLine::new(exposure, about, entry, None)).collect();
        let names = || list.entries().iter().map(Entry::name);
        for (column, agent) in agents.iter().enumerate() {
            let caller = Caller { agent: agent.as_deref(), claims: None };
            let decided = listing::decisions(policy, (caller, &server), self.kind, names());
            for (at, decided) in decided.iter().enumerate() {
                let guards = || {
                    let cell = &decided.cell;
                    let rules = (&*cell.all_limits(), cell.settled().is_some());
                    active.guards.in_front_of_other((caller.agent, &server), rules)
                };
                let verdict = byte(decided.decision.verdict);
                self.set((at, column), verdict, || (!active.guards.is_empty()).then(guards));
            }
        }
    }

    /// Sets the cell of a row and column. The agent's route may deny what the policy allows.
    fn set(
        &mut self,
        (line, column): (usize, usize),
        verdict: u8,
        guards: impl FnOnce() -> Option<InFront>,
    ) {
        let closed = matches!(self.route(column), Route::Closed(_) | Route::ToolsOnly);
        if closed || verdict == DENY {
            return;
        }
        if self.lines.get(line).is_some_and(|line| self.hidden.contains(&*line.name)) {
            if let Some(cell) = self.cells.get_mut(line * self.routes.len() + column) {
                cell.verdict = QUARANTINED;
            }
            return;
        }
        let guards = guards().map_or(0, |guards| place(&mut self.guards, guards));
        if let Some(allowed) = self.allowed.get_mut(column) {
            *allowed += 1;
        }
        if let Some(cell) = self.cells.get_mut(line * self.routes.len() + column) {
            (cell.verdict, cell.guards) = (verdict, guards);
        }
    }

    /// Marks the cells that the last reload changed.
    fn compare(&mut self, agents: &[Option<String>], before: &PreviousTable) {
        let mut old = before.groups.iter();
        let is_same = |group: &&Arc<Group>| group.fold == self.fold;
        let Some(old) = old.find(is_same) else { return };
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

    pub(super) fn cell(&self, line: usize, column: usize) -> Option<MatrixCell> {
        self.cells(line).get(column).copied()
    }

    /// The cells of an entry, agent by agent.
    pub(super) fn cells(&self, line: usize) -> &[MatrixCell] {
        let start = line * self.routes.len();
        self.cells.get(start..start + self.routes.len()).unwrap_or_default()
    }

    /// The limits and hooks that apply to an entry for an agent.
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
