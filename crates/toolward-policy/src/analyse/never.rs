//! Whether a kind of call can ever be allowed: `can-ever`, and `never` tests of a policy.

use std::ops::ControlFlow;

use super::focus;
use super::search::{Asked, Point, PointRef, Search, Subjects, Undecided, WhyUndecided};
use crate::decision::{Decision, Kind, Verdict};
use crate::fnmatch::is_pattern;
use crate::hints::BUILT_IN;
use crate::policy::{Family, Policy};
use crate::selector::Selector;
use crate::source::Case;
use crate::testing::{NeverCall, NeverTest, PolicyTest};

/// The memory that the search of one `never` test may use, in bytes: tests run at every load.
const MEMORY: usize = 64 << 20;

/// The answer to "can this ever be allowed?".
#[derive(Debug, Clone)]
pub enum Ever {
    /// By this point.
    Yes(Box<Witness>),
    /// Only after a person approves, as at this point.
    Asks(Box<Witness>),
    Never,
    /// If conditions that are not analyzed have a certain outcome.
    Depends(Box<Witness>),
    Undecided(Undecided),
}

/// A point, the policy's decision about it, and the conditions whose outcome was assumed.
#[derive(Debug, Clone)]
pub struct Witness {
    pub point: Point,
    pub decision: Decision,
    pub depends_on: Vec<String>,
}

/// Whether a call that a selector matches can ever be allowed.
pub fn can_ever(policy: &Policy, subjects: &Subjects<'_>, family: Family, selector: &str) -> Ever {
    let found = granted(policy, subjects, family, selector, Verdict::Allow);
    match found {
        Granted { allows: Some(witness), .. } => Ever::Yes(witness),
        Granted { may_allow: Some(witness), .. } => Ever::Depends(witness),
        Granted { open: Some(open), .. } => Ever::Undecided(open),
        Granted { asks: Some(witness), .. } => Ever::Asks(witness),
        Granted { may_ask: Some(witness), .. } => Ever::Depends(witness),
        _ => Ever::Never,
    }
}

/// Whether no call that a selector matches can be allowed: [`Ever::Never`], or what contradicts it. With
/// `unless_ask`, calls that a person must approve do not count.
pub fn never(
    policy: &Policy,
    subjects: &Subjects<'_>,
    family: Family,
    selector: &str,
    unless_ask: bool,
) -> Ever {
    let strictest = if unless_ask { Verdict::Allow } else { Verdict::Ask };
    let found = granted(policy, subjects, family, selector, strictest);
    match found {
        Granted { allows: Some(witness), .. } => Ever::Yes(witness),
        Granted { asks: Some(witness), .. } if !unless_ask => Ever::Asks(witness),
        Granted { may_allow: Some(witness), .. } => Ever::Depends(witness),
        Granted { may_ask: Some(witness), .. } if !unless_ask => Ever::Depends(witness),
        Granted { open: Some(open), .. } => Ever::Undecided(open),
        _ => Ever::Never,
    }
}

/// The outcome of one call of a `never` test.
#[derive(Debug)]
pub struct NeverOutcome<'t> {
    pub test: &'t NeverTest,
    pub call: &'t NeverCall,
    /// [`Ever::Never`] if it holds.
    pub answer: Ever,
    /// Why it could not fail, which is a mistake in the test.
    pub vacuous: Option<String>,
}

impl NeverOutcome<'_> {
    pub fn passed(&self) -> bool {
        matches!(self.answer, Ever::Never) && self.vacuous.is_none()
    }
}

/// Runs the `never` tests of a policy, in order.
pub fn never_tests<'t>(policy: &Policy, tests: &'t [PolicyTest]) -> Vec<NeverOutcome<'t>> {
    let tests = tests.iter().filter_map(|test| test.never.as_ref());
    let calls = tests.flat_map(|test| test.calls.iter().map(move |call| (test, call)));
    calls
        .map(|(test, call)| {
            let agents = test.agents.as_deref().filter(|agents| *agents != "*");
            let subjects = Subjects {
                agent: agents.filter(|agents| !is_pattern(agents)),
                agents: agents.filter(|agents| is_pattern(agents)),
                servers: Some(&call.server),
                memory: Some(MEMORY),
            };
            let answer = never(policy, &subjects, call.family, &call.selector, test.unless_ask);
            NeverOutcome { test, call, answer, vacuous: impossible_hint(policy, &call.selector) }
        })
        .collect()
}

/// Reports that a selector has a hint that no tool can have: the answer is "never" for any policy.
pub fn impossible_hint(policy: &Policy, selector: &str) -> Option<String> {
    let selector = Selector::new(selector, Case::Sensitive);
    let stated = policy.stated_tags();
    let known = |tag: &str| BUILT_IN.contains(&tag) || stated.iter().any(|own| own == tag);
    let unknown = selector.tags()?.iter().find(|tag| !known(tag))?;
    Some(format!("no tool has the hint `{unknown}`, and no server's `hints` define it"))
}

/// The first point of each kind, and the first thing that could not be searched.
#[derive(Default)]
struct Granted {
    allows: Option<Box<Witness>>,
    asks: Option<Box<Witness>>,
    may_allow: Option<Box<Witness>>,
    may_ask: Option<Box<Witness>>,
    open: Option<Undecided>,
}

impl Granted {
    fn add(&mut self, point: &PointRef<'_>, decision: Decision, assumed: &[&str]) {
        let place = match (decision.verdict, assumed.is_empty()) {
            (Verdict::Deny, _) => return,
            (Verdict::Allow | Verdict::Depends, true) => &mut self.allows,
            (Verdict::Allow | Verdict::Depends, false) => &mut self.may_allow,
            (Verdict::Ask, true) => &mut self.asks,
            (Verdict::Ask, false) => &mut self.may_ask,
        };
        place.get_or_insert_with(|| {
            let depends_on = assumed.iter().map(|source| (*source).to_owned()).collect();
            Box::new(Witness { point: point.to_point(), decision, depends_on })
        });
    }

    fn undecided(&mut self, agent: Option<&str>, server: Option<&str>, why: WhyUndecided) {
        self.open.get_or_insert_with(|| Undecided {
            agent: agent.map(String::from),
            server: server.map(String::from),
            why,
            narrower_only: false,
        });
    }
}

/// Looks for calls that are allowed; the first one with a verdict up to `strictest` ends the search.
fn granted(
    policy: &Policy,
    subjects: &Subjects<'_>,
    family: Family,
    selector: &str,
    strictest: Verdict,
) -> Granted {
    let kind = match family {
        Family::Tools => Kind::Tools,
        Family::Prompts => Kind::Prompts,
        Family::Resources => Kind::Resources,
    };
    let policies = [policy];
    let search = Search::new(&policies, subjects);
    let selector = Selector::new(selector, Case::Sensitive);
    let mut found = Granted::default();
    let agents = match search.agents(subjects) {
        Ok(agents) => agents,
        Err(why) => {
            found.undecided(None, None, why.into());
            return found;
        }
    };
    for agent in agents.iter().map(Option::as_deref) {
        let servers = match search.servers(agent, subjects, None) {
            Ok(servers) => servers,
            Err(why) => {
                found.undecided(agent, None, why.into());
                continue;
            }
        };
        for server in &servers {
            let focus = focus::granted(policy, agent, server, kind);
            let only = Some(&selector);
            let (stops, skips_denied, answered) = (true, true, None);
            let asked = Asked { agent, server, focus, only, stops, skips_denied, answered };
            let searched = search.subjects(kind, &asked, &mut |point, decisions, assumed| {
                let Some(decision) = decisions.first() else { return ControlFlow::Continue(()) };
                found.add(point, *decision, assumed);
                match assumed.is_empty() && decision.verdict <= strictest {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            match searched {
                Ok(ControlFlow::Break(())) => return found,
                Ok(ControlFlow::Continue(())) => {}
                Err((why, _)) => found.undecided(agent, Some(server), why),
            }
        }
    }
    found
}
