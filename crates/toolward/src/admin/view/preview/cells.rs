//! Cells of the matrix that a candidate would change.

use toolward_policy::{Caller, Catalogue, Policy, Verdict};

use crate::load::Input;

/// The maximum number of rows shown.
const MAX_ROWS: usize = 300;

/// Tools with at least one changed cell.
pub(super) struct ChangedCells {
    /// `None`: unnamed callers.
    pub(super) agents: Vec<Option<String>>,
    pub(super) rows: Vec<ChangedRow>,
    pub(super) more: usize,
    /// How many cells gain and lose something.
    pub(super) wider: usize,
    pub(super) narrower: usize,
    /// How many tools were compared.
    pub(super) tools: usize,
}

pub(super) struct ChangedRow {
    pub(super) server: String,
    pub(super) tool: String,
    pub(super) cells: Vec<ComparedCell>,
}

/// The listing verdicts of one tool for one agent.
#[derive(Clone, Copy)]
pub(super) struct ComparedCell {
    before: Verdict,
    after: Verdict,
}

impl ComparedCell {
    pub(super) fn is_changed(&self) -> bool {
        self.before != self.after
    }

    /// `+` or `−`.
    pub(super) fn sign(&self) -> &'static str {
        match self.after.cmp(&self.before) {
            std::cmp::Ordering::Less => "+",
            std::cmp::Ordering::Greater => "−",
            std::cmp::Ordering::Equal => "",
        }
    }

    pub(super) fn after(&self) -> &'static str {
        self.after.as_str()
    }

    pub(super) fn before(&self) -> &'static str {
        self.before.as_str()
    }
}

impl ChangedCells {
    pub(super) fn new(
        old: &Policy,
        new: &Input,
        callers: &[Option<String>],
        catalogue: &Catalogue,
    ) -> ChangedCells {
        let mut agents = callers.to_vec();
        for agent in new.policy.agents() {
            let agent = Some(agent.to_string());
            if !agents.contains(&agent) {
                agents.push(agent);
            }
        }
        let mut changed =
            ChangedCells { agents, rows: Vec::new(), more: 0, wider: 0, narrower: 0, tools: 0 };
        for (server, tools) in catalogue.lists() {
            changed.tools += tools.tools().len();
            let columns: Vec<Vec<ComparedCell>> = changed
                .agents
                .iter()
                .map(|agent| {
                    let caller = Caller { agent: agent.as_deref(), claims: None };
                    let rows = [old, &new.policy].map(|policy| {
                        let row = policy.row(caller.agent, server, tools);
                        let cells = row.iter();
                        cells.map(|(_, cell)| cell.list(caller).decision.verdict).collect()
                    });
                    let [before, after]: [Vec<Verdict>; 2] = rows;
                    let pairs = before.into_iter().zip(after);
                    pairs.map(|(before, after)| ComparedCell { before, after }).collect()
                })
                .collect();
            for (at, tool) in tools.tools().iter().enumerate() {
                let cells: Vec<ComparedCell> =
                    columns.iter().filter_map(|column| column.get(at).copied()).collect();
                changed.add(server, tool.name(), cells);
            }
        }
        changed
    }

    fn add(&mut self, server: &str, tool: &str, cells: Vec<ComparedCell>) {
        self.wider += cells.iter().filter(|cell| cell.after < cell.before).count();
        self.narrower += cells.iter().filter(|cell| cell.after > cell.before).count();
        match cells.iter().any(ComparedCell::is_changed) {
            false => {}
            true if self.rows.len() >= MAX_ROWS => self.more += 1,
            true => {
                self.rows.push(ChangedRow { server: server.into(), tool: tool.into(), cells });
            }
        }
    }
}
