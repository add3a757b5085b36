//! Subjects of past calls and listings, whose definitions may not be known anymore.

use crate::call::Caller;
use crate::catalogue::Catalogue;
use crate::cell::Cell;
pub use crate::cell::{RecordedAction, RecordedCall};
use crate::decision::{Decision, Verdict};
use crate::hints::Annotations;
use crate::policy::{Family, Policy, Subject};
use crate::tool::Tool;

/// The policy for the subject of past calls of one agent.
#[derive(Debug, Clone)]
pub struct RecordedSubject {
    /// One cell; or, if the tool's definition is not known, one for each set of hints that it may have.
    cells: Vec<Cell>,
}

/// Why a past call cannot be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unrecorded {
    /// Its arguments, action or claims were not recorded.
    Call,
    /// The tool's definition is not known, and its hints or schema decide.
    Definition,
}

impl Policy {
    /// The subject of past calls. A tool that is not in the catalogue may have any definition.
    pub fn recorded_subject(
        &self,
        agent: Option<&str>,
        server: &str,
        (family, name): (Family, &str),
        catalogue: &Catalogue,
    ) -> RecordedSubject {
        let subject = match family {
            Family::Tools => return self.recorded_tool(agent, server, name, catalogue),
            Family::Prompts => Subject::Prompt(name),
            Family::Resources => Subject::Resource(name),
        };
        RecordedSubject { cells: vec![self.cell(agent, server, subject)] }
    }

    fn recorded_tool(
        &self,
        agent: Option<&str>,
        server: &str,
        name: &str,
        catalogue: &Catalogue,
    ) -> RecordedSubject {
        let cell = |tool: &Tool| {
            let hints = self.hints(server, tool);
            self.cell(agent, server, Subject::Tool(tool, &hints))
        };
        let known = catalogue.tools(server).and_then(|_| catalogue.tool(server, name));
        if let Some(tool) = known {
            return RecordedSubject { cells: vec![cell(&tool)] };
        }
        let cells: Vec<Cell> = possible_tools(name).iter().map(cell).collect();
        let settled: Option<Vec<Decision>> = cells.iter().map(Cell::settled).collect();
        let same = settled.is_some_and(|all| all.windows(2).all(|two| two.first() == two.last()));
        match same {
            true => RecordedSubject { cells: cells.into_iter().take(1).collect() },
            false => RecordedSubject { cells },
        }
    }
}

/// A tool with each set of hints that annotations can give it, with and without an action.
fn possible_tools(name: &str) -> Vec<Tool> {
    let mut all = Vec::new();
    for (read_only, destructive) in [(true, false), (false, true), (false, false)] {
        for idempotent in [false, true] {
            for open_world in [false, true] {
                let tool = Tool::named(name).with_annotations(Annotations {
                    read_only: Some(read_only),
                    destructive: Some(destructive),
                    idempotent: Some(idempotent),
                    open_world: Some(open_world),
                });
                all.extend([tool.clone().with_declared_action(), tool]);
            }
        }
    }
    all
}

impl RecordedSubject {
    /// Decides a past call; if the verdict is `depends`, also why.
    pub fn decide(&self, call: &RecordedCall<'_>) -> (Decision, Option<Unrecorded>) {
        self.combine(|cell| cell.decide_recorded(call))
    }

    /// Whether the agent's listing has the subject; `None` if that is not known.
    pub fn is_listed(&self, agent: Option<&str>) -> Option<bool> {
        let caller = Caller { agent, claims: None };
        let listed = |cell: &Cell| cell.list(caller).decision.verdict != Verdict::Deny;
        let first = self.cells.first().map(listed)?;
        let reads = self.cells.iter().any(Cell::reads_claims) || self.is_open();
        let same = self.cells.iter().all(|cell| listed(cell) == first);
        (same && !reads).then_some(first)
    }

    /// The decision, if it is the same for every call.
    pub fn settled(&self) -> Option<Decision> {
        match self.cells.as_slice() {
            [only] => only.settled(),
            _ => None,
        }
    }

    /// Whether decisions can depend on the call's action.
    pub fn reads_action(&self) -> bool {
        self.cells.iter().any(Cell::reads_action)
    }

    /// Whether the tool's unknown definition matters beyond its hints.
    fn is_open(&self) -> bool {
        self.cells.len() > 1 && self.cells.iter().any(Cell::reads_definition)
    }

    fn combine(&self, decide: impl Fn(&Cell) -> Decision) -> (Decision, Option<Unrecorded>) {
        let mut decisions = self.cells.iter().map(decide);
        let Some(first) = decisions.next() else {
            return (Decision::outside(Verdict::Deny, crate::Step::DefaultDeny), None);
        };
        let other = decisions.find(|decision| decision.verdict != first.verdict);
        match (other, first.verdict) {
            (Some(_), _) => (depends(first), Some(Unrecorded::Definition)),
            (None, Verdict::Depends) => (first, Some(Unrecorded::Call)),
            (None, _) if self.is_open() => (depends(first), Some(Unrecorded::Definition)),
            (None, _) => (first, None),
        }
    }
}

fn depends(decision: Decision) -> Decision {
    Decision { verdict: Verdict::Depends, ..decision }
}
