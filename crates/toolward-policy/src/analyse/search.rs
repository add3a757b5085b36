//! A search over the points of policies: its budget, the points that it visits, and what it is asked.

use std::cell::{Cell as Counter, RefCell};
use std::ops::ControlFlow;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use serde_json::{Map, Value, json};

use super::conditions::Reading;
use super::focus::Focus;
use crate::automaton::{Automaton, BUDGET, State, TooLarge};
use crate::condition::Condition;
use crate::decision::{Decision, Kind};
use crate::hints::Annotations;
use crate::layer::{Layer, List, Rule, Rules};
use crate::policy::Policy;
use crate::selector::Selector;
use crate::testing::TestArguments;

/// A call that policies can be asked about, or a prompt, a resource, or a request to the client.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// `None` for an unnamed caller.
    pub agent: Option<String>,
    pub server: String,
    pub kind: PointKind,
    /// The name of the tool or prompt, the URI of the resource, or the kind of request.
    pub name: String,
    /// The tool's definition: the server's claims about it, and the action keys of its schema.
    pub definition: Map<String, Value>,
    /// The arguments of the call, if they matter.
    pub arguments: Option<TestArguments>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PointKind {
    Tool,
    Prompt,
    Resource,
    /// A resource template: its name is not the URI of any resource.
    Template,
    ClientRequest,
}

/// Something that could not be searched, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecided {
    /// `None` for an unnamed caller, or if the agents could not be enumerated.
    pub agent: Option<String>,
    pub server: Option<String>,
    pub why: WhyUndecided,
    /// Nothing here could become wider.
    pub narrower_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyUndecided {
    /// The patterns distinguish more names than fit into the memory that a search may use.
    TooLarge,
    /// The outcomes of these conditions are not known, and there are too many combinations of them.
    Conditions(Vec<String>),
}

impl std::fmt::Display for WhyUndecided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WhyUndecided::TooLarge => {
                write!(f, "its patterns distinguish too many names to search them all")
            }
            WhyUndecided::Conditions(conditions) => {
                write!(f, "it depends on too many conditions: `{}`", conditions.join("`, `"))
            }
        }
    }
}

/// The subjects of a query.
#[derive(Debug, Clone, Copy, Default)]
pub struct Subjects<'a> {
    /// Exactly this agent.
    pub agent: Option<&'a str>,
    /// Agents that match this pattern, if `agent` is not given. `None`: all of them, and unnamed callers.
    pub agents: Option<&'a str>,
    /// Servers that match this name or pattern.
    pub servers: Option<&'a str>,
    /// The memory that one search may use, in bytes; `None` is 256 MiB.
    pub memory: Option<usize>,
}

/// A search over the points of one policy, or of two that are compared.
pub(super) struct Search<'p> {
    pub(super) policies: &'p [&'p Policy],
    readings: HashMap<Box<str>, Arc<Reading>>,
    /// Bytes that one search may use, and that may still be used, over all subjects.
    each: usize,
    left: Counter<usize>,
}

/// Called with a point, the decision of each policy, and the conditions whose outcomes are assumed.
pub(super) type Visit<'v> = dyn FnMut(&PointRef<'_>, &[Decision], &[&str]) -> ControlFlow<()> + 'v;

/// All searches of one question together may use this many times the budget of one of them.
const SEARCHES: usize = 8;

impl<'p> Search<'p> {
    pub(super) fn new(policies: &'p [&'p Policy], subjects: &Subjects<'_>) -> Search<'p> {
        let mut readings: HashMap<Box<str>, Arc<Reading>> = HashMap::new();
        for layer in policies.iter().flat_map(|policy| &policy.layers) {
            for_each_condition(layer, &mut |condition| {
                if !readings.contains_key(condition.source()) {
                    readings.insert(condition.source().into(), Arc::new(Reading::of(condition)));
                }
            });
        }
        let each = subjects.memory.unwrap_or(BUDGET);
        Search { policies, readings, each, left: Counter::new(each.saturating_mul(SEARCHES)) }
    }

    pub(super) fn readings(&self) -> impl Iterator<Item = &Reading> {
        self.readings.values().map(|reading| &**reading)
    }

    pub(super) fn reading(&self, condition: &Condition) -> Arc<Reading> {
        let known = self.readings.get(condition.source()).cloned();
        known.unwrap_or_else(|| Arc::new(Reading::of(condition)))
    }

    /// The bytes that the next search may use.
    pub(super) fn left(&self) -> usize {
        self.left.get().min(self.each)
    }

    pub(super) fn spend(&self, bytes: usize) -> Result<(), TooLarge> {
        let left = self.left.get().checked_sub(bytes).ok_or(TooLarge)?;
        self.left.set(left);
        Ok(())
    }

    pub(super) fn explore<B>(
        &self,
        automaton: &Automaton,
        start: State,
        keep: impl FnMut(&State) -> bool,
        visit: impl FnMut(&State, &dyn Fn() -> String) -> ControlFlow<B>,
    ) -> Result<Option<B>, TooLarge> {
        let left = self.left();
        self.spent(automaton.explore(start, left, keep, visit), left)
    }

    /// Counts the memory of a search; one that was given up has used all that it may.
    pub(super) fn spent<B>(
        &self,
        searched: Result<(Option<B>, usize), TooLarge>,
        budget: usize,
    ) -> Result<Option<B>, TooLarge> {
        match searched {
            Ok((found, used)) => self.spend(used).map(|()| found),
            Err(TooLarge) => {
                self.left.set(self.left.get().saturating_sub(budget));
                Err(TooLarge)
            }
        }
    }
}

fn for_each_condition(layer: &Layer, visit: &mut dyn FnMut(&Condition)) {
    let mut in_list = |list: &List| {
        list.rules.iter().filter_map(|rule| rule.when.as_deref()).for_each(&mut *visit);
    };
    match &layer.rules {
        Rules::ReadOnly => {}
        Rules::Allowlist(list) => {
            let others = [&list.prompts, &list.resources].into_iter().flatten();
            others.chain([&list.tools]).for_each(in_list);
        }
        Rules::Agents(layer) => {
            let sides = layer.agents.iter().flat_map(|agent| [&agent.deny, &agent.allow]);
            let lists = sides.flat_map(|side| [&side.tools, &side.prompts, &side.resources]);
            lists.flatten().for_each(|list| in_list(list));
        }
    }
}

/// A point while it is visited.
pub(super) struct PointRef<'a> {
    pub(super) agent: Option<&'a str>,
    pub(super) server: &'a str,
    pub(super) kind: Kind,
    pub(super) name: &'a str,
    pub(super) claims: Annotations,
    pub(super) declared: &'a [&'a str],
    pub(super) arguments: Option<&'a TestArguments>,
    /// The direction that the search looks for: only wider decisions, or only narrower ones.
    pub(super) wider: Option<bool>,
}

impl PointRef<'_> {
    pub(super) fn kind(&self) -> PointKind {
        match self.kind {
            Kind::Prompts => PointKind::Prompt,
            Kind::Resources => match crate::uri::normalise(self.name) {
                Ok(uri) if uri == self.name => PointKind::Resource,
                _ => PointKind::Template,
            },
            Kind::ClientRequests => PointKind::ClientRequest,
            Kind::Tools | Kind::Servers => PointKind::Tool,
        }
    }

    pub(super) fn to_point(&self) -> Point {
        Point {
            agent: self.agent.map(String::from),
            server: self.server.into(),
            kind: self.kind(),
            name: self.name.into(),
            definition: definition(self.claims, self.declared),
            arguments: self.arguments.filter(|given| !given.members.is_empty()).cloned(),
        }
    }
}

/// The parameters of a search on one server.
pub(super) struct Asked<'a> {
    pub(super) agent: Option<&'a str>,
    pub(super) server: &'a str,
    pub(super) focus: Focus<'a>,
    /// Only subjects that this selector matches.
    pub(super) only: Option<&'a Selector>,
    /// The first answer ends the search; otherwise it only ends that of an entry.
    pub(super) stops: bool,
    /// Subjects that every policy denies do not matter.
    pub(super) skips_denied: bool,
    /// Entries that are not searched, because an answer for them is known. Others are added when they are answered.
    pub(super) answered: Option<&'a RefCell<HashSet<*const Rule>>>,
}

/// The definition of a tool with these claims and properties.
pub(super) fn definition(claims: Annotations, declared: &[&str]) -> Map<String, Value> {
    let mut annotations = Map::new();
    for (name, claim) in [
        ("readOnlyHint", claims.read_only),
        ("destructiveHint", claims.destructive),
        ("idempotentHint", claims.idempotent),
        ("openWorldHint", claims.open_world),
    ] {
        if let Some(claim) = claim {
            annotations.insert(name.into(), json!(claim));
        }
    }
    let mut definition = Map::new();
    if !annotations.is_empty() {
        definition.insert("annotations".into(), annotations.into());
    }
    if !declared.is_empty() {
        let properties: Map<String, Value> =
            declared.iter().map(|key| ((*key).to_owned(), json!({"type": "string"}))).collect();
        definition
            .insert("inputSchema".into(), json!({"type": "object", "properties": properties}));
    }
    definition
}

impl From<TooLarge> for WhyUndecided {
    fn from(_: TooLarge) -> WhyUndecided {
        WhyUndecided::TooLarge
    }
}
