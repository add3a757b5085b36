//! Analysis: what policies decide about everything that could be called, also about tools that do not exist
//! yet.
//!
//! A *point* is an agent, a server, a subject (a tool by its name, with the claims of its server and the action
//! keys of its schema; a prompt; a resource; a request to the client) and the arguments of a call. There are
//! infinitely many, but a policy distinguishes finitely many classes of them. The search visits one point of
//! each class and lets the engine decide it, shortest names first, so an answer is either a point that anyone
//! can check with `decide`, or the absence of one. If a class cannot be enumerated within the budget, or
//! depends on a condition that is more than comparisons with constants, the answer is "undecided", with the
//! reason.
//!
//! Calls are decided as [`Policy::decide`] does. Limits, hooks and listings are not part of the analysis.

mod applied;
mod conditions;
mod focus;
mod language;
mod names;
mod never;
mod patterns;
mod requests;
mod search;
mod shared;
mod subjects;
mod ways;

use std::cell::RefCell;
use std::ops::ControlFlow;

use hashbrown::{HashMap, HashSet};

use self::focus::Focus;
pub use self::never::{Ever, NeverOutcome, Witness, can_ever, impossible_hint, never, never_tests};
use self::search::{Asked, PointRef, Search};
pub use self::search::{Point, PointKind, Subjects, Undecided, WhyUndecided};
use self::shared::Shared;
use self::subjects::Failed;

use crate::decision::{Decision, Kind, RuleRef, Verdict};
use crate::layer::Rule;
use crate::policy::Policy;

/// A point at which two policies decide differently.
#[derive(Debug, Clone)]
pub struct Change {
    pub point: Point,
    pub before: Decision,
    pub after: Decision,
    /// Conditions that must have a certain outcome for this; empty if the point is certain.
    pub depends_on: Vec<String>,
}

impl Change {
    /// Whether the new policy is more lenient here.
    pub fn is_wider(&self) -> bool {
        self.after.verdict < self.before.verdict
    }
}

/// All differences between two policies: one point for each combination of rules that decide differently.
#[derive(Debug, Clone, Default)]
pub struct Differences {
    /// Points that the engine decides differently.
    pub changes: Vec<Change>,
    /// Points that are decided differently if conditions that are not analyzed have a certain outcome.
    pub possible: Vec<Change>,
    /// Subjects that could not be searched.
    pub undecided: Vec<Undecided>,
}

impl Differences {
    /// Whether something becomes wider; `None` if that could not be found out.
    pub fn is_wider(&self) -> Option<bool> {
        if self.changes.iter().any(Change::is_wider) {
            return Some(true);
        }
        let open = self.undecided.iter().any(|one| !one.narrower_only)
            || self.possible.iter().any(Change::is_wider);
        (!open).then_some(false)
    }

    /// Whether both policies decide everything alike; `None` if that could not be found out.
    pub fn is_none(&self) -> Option<bool> {
        if !self.changes.is_empty() {
            return Some(false);
        }
        (self.possible.is_empty() && self.undecided.is_empty()).then_some(true)
    }
}

/// All differences between two policies.
pub fn diff(old: &Policy, new: &Policy, subjects: &Subjects<'_>) -> Differences {
    let policies = [old, new];
    let search = Search::new(&policies, subjects);
    let mut found = Found::default();
    let agents = match search.agents(subjects) {
        Ok(agents) => agents,
        Err(why) => {
            let undecided =
                Undecided { agent: None, server: None, why: why.into(), narrower_only: false };
            return Differences { undecided: vec![undecided], ..Differences::default() };
        }
    };
    let shared = Shared::new(old, new);
    let only_listed = shared.only_listed();
    for agent in &agents {
        let agent = agent.as_deref();
        if shared.is_same_for(agent) {
            continue;
        }
        let servers = match search.servers(agent, subjects, only_listed.as_ref()) {
            Ok(servers) => servers,
            Err(why) => {
                found.undecided(agent, None, (why.into(), false));
                continue;
            }
        };
        // The entries of an allowlist that are known to change something for the agent: they need no other server.
        let answered: RefCell<HashSet<*const Rule>> = RefCell::default();
        let all_answered =
            || only_listed.as_ref().is_some_and(|listed| listed.len() == answered.borrow().len());
        for server in &servers {
            for kind in [Kind::Tools, Kind::Prompts, Kind::Resources, Kind::ClientRequests] {
                let focus = match kind {
                    Kind::ClientRequests => Focus::Everything,
                    Kind::Tools if all_answered() => Focus::Nothing,
                    _ => focus::changed(old, new, agent, server, kind),
                };
                let answered = only_listed.as_ref().map(|_| &answered);
                let asked = Asked {
                    agent,
                    server,
                    focus,
                    only: None,
                    stops: false,
                    skips_denied: true,
                    answered,
                };
                let searched = search.subjects(kind, &asked, &mut |point, decisions, assumed| {
                    let [before, after] = decisions else { return ControlFlow::Continue(()) };
                    found.add(point, *before, *after, assumed);
                    let wider = after.verdict < before.verdict;
                    // One example is enough for an entry; where anything may have changed, a wider one.
                    match assumed.is_empty()
                        && before.verdict != after.verdict
                        && wider == point.wider.unwrap_or(true)
                    {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                });
                if let Err(why) = searched {
                    found.undecided(agent, Some(server), why);
                }
            }
        }
    }
    found.differences
}

/// Differences while they are collected: one for each combination of rules.
#[derive(Default)]
struct Found {
    differences: Differences,
    known: HashMap<Combination, ()>,
}

type Combination = (Option<String>, Kind, Verdict, Verdict, [Option<(u16, RuleRef)>; 2], bool);

impl Found {
    fn add(&mut self, point: &PointRef<'_>, before: Decision, after: Decision, assumed: &[&str]) {
        if before.verdict == after.verdict {
            return;
        }
        let rule = |decision: &Decision| Some((decision.layer?, decision.rule?));
        let certain = assumed.is_empty();
        // A template is not reported beside a resource.
        let kind = point.kind;
        let agent = point.agent.map(String::from);
        let rules = [rule(&before), rule(&after)];
        let combination = (agent, kind, before.verdict, after.verdict, rules, certain);
        if self.known.insert(combination, ()).is_some() {
            return;
        }
        let depends_on = assumed.iter().map(|source| (*source).to_owned()).collect();
        let change = Change { point: point.to_point(), before, after, depends_on };
        match certain {
            true => self.differences.changes.push(change),
            false => self.differences.possible.push(change),
        }
    }

    fn undecided(&mut self, agent: Option<&str>, server: Option<&str>, failed: Failed) {
        let (agent, server) = (agent.map(String::from), server.map(String::from));
        let (why, narrower_only) = failed;
        self.differences.undecided.push(Undecided { agent, server, why, narrower_only });
    }
}
