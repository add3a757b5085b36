//! The verdicts of the listing for every tool and every agent: one byte a cell, made by the same
//! functions as `toolward ls`. What is made of a server's list is kept for as long as the list and the
//! policy stay what they are.

use std::sync::{Arc, Mutex, PoisonError};

use toolward_gateway::sight::Snapshot;
use toolward_policy::{Caller, Verdict};

use crate::page::lists::List;
use crate::page::query::encoded;
use crate::reload::Reloader;

pub(super) const ALLOW: u8 = 0;
pub(super) const DEPENDS: u8 = 1;
pub(super) const ASK: u8 = 2;
pub(super) const DENY: u8 = 3;

fn byte(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Allow => ALLOW,
        Verdict::Depends => DEPENDS,
        Verdict::Ask => ASK,
        Verdict::Deny => DENY,
    }
}

/// What a group was made of: the policy, the callers, the server, and its list or why there is none.
type Key = (u64, Agents, usize, Result<[u8; 32], String>);

/// Who may come in; `None`: callers without a name.
type Agents = Arc<Vec<Option<String>>>;

/// The groups of the table that was made last.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Vec<(Key, Arc<Group>)>>);

impl Kept {
    pub(super) fn table(&self, reloader: &Reloader, lists: &[List]) -> Table {
        let snapshot = reloader.gateway().current.get();
        let agents = reloader.callers();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let group = |list: &List| {
            let hash = list.tools.as_ref().map(|tools| *tools.hash()).map_err(ToString::to_string);
            let key = (snapshot.serial(), agents.clone(), list.server.index, hash);
            let known =
                kept.iter().find(|(known, _)| *known == key).map(|(_, group)| group.clone());
            (key, known.unwrap_or_else(|| Arc::new(Group::new(&snapshot, &agents, list))))
        };
        let groups: Vec<(Key, Arc<Group>)> = lists.iter().map(group).collect();
        kept.clone_from(&groups);
        drop(kept);
        Table { agents, groups: groups.into_iter().map(|(_, group)| group).collect() }
    }
}

pub(super) struct Table {
    pub(super) agents: Agents,
    pub(super) groups: Vec<Arc<Group>>,
}

/// A server's tools.
pub(super) struct Group {
    pub(super) server: String,
    /// As it stands in an address: what is shown is made harmless, and names nothing.
    pub(super) address: String,
    /// Why its tools are not known.
    pub(super) why: Option<String>,
    pub(super) lines: Vec<Line>,
    /// Line by line, agents beside each other.
    cells: Vec<u8>,
    agents: usize,
}

pub(super) struct Line {
    pub(super) name: String,
    pub(super) address: String,
    /// What clients call it, where that is something else.
    pub(super) shown: Option<String>,
    pub(super) hints: Vec<String>,
    /// In lower case, for searching.
    pub(super) searched: String,
}

impl Table {
    pub(super) fn tools(&self) -> usize {
        self.groups.iter().map(|group| group.lines.len()).sum()
    }

    /// How many tools an agent sees.
    pub(super) fn sees(&self, column: usize) -> usize {
        let cells = self.groups.iter().flat_map(|group| group.cells.chunks(group.agents));
        cells.filter(|cells| cells.get(column).is_some_and(|verdict| *verdict != DENY)).count()
    }
}

impl Group {
    fn new(snapshot: &Snapshot, agents: &[Option<String>], list: &List) -> Group {
        let (policy, server) = (&snapshot.policy, list.server.name());
        let mut group = Group {
            server: server.into(),
            address: encoded(server),
            why: list.tools.as_ref().err().map(ToString::to_string),
            lines: Vec::new(),
            cells: Vec::new(),
            agents: agents.len(),
        };
        let Ok(catalogue) = &list.tools else { return group };
        let tools = catalogue.tools();
        let exposure = policy.exposure(server);
        group.lines.extend(tools.tools().iter().map(|tool| {
            let shown = exposure.and_then(|exposure| exposure.show(tool.name()));
            let shown = shown.map(|shown| String::from(shown.name));
            let shown = shown.filter(|shown| shown != tool.name());
            let other = shown.as_deref().unwrap_or_default();
            let searched = format!("{server}/{}\n{other}", tool.name()).to_lowercase();
            let hints = policy.hints(server, tool).iter().map(String::from).collect();
            let (name, address) = (tool.name().into(), encoded(tool.name()));
            Line { name, address, shown, hints, searched }
        }));
        group.cells.resize(group.lines.len() * agents.len(), DENY);
        for (column, agent) in agents.iter().enumerate() {
            let caller = Caller { agent: agent.as_deref(), claims: None };
            let row = policy.row(caller.agent, server, tools);
            for ((_, cell), cells) in row.iter().zip(group.cells.chunks_mut(agents.len())) {
                if let Some(place) = cells.get_mut(column) {
                    *place = byte(cell.list(caller).decision.verdict);
                }
            }
        }
        group
    }

    /// The verdicts of a tool, agent by agent.
    pub(super) fn verdicts(&self, tool: usize) -> &[u8] {
        let start = tool * self.agents;
        self.cells.get(start..start + self.agents).unwrap_or_default()
    }
}
