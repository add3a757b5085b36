//! Limits: how often calls, listings and refused calls may come.
//!
//! A call takes one of every limit that stands over it, or none of any. What it took is a
//! [`Reservation`], which is given back unless the call is made.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use toolward_policy::{LimitedRule, Rate};

use super::selection::{About, ByAgent, Selection};
use super::store::counters::{Charge, Counters, Pace, now};
use super::store::redis::{Redis, Taken, Unreachable};
use super::{Standing, Stopped};

/// A refused call waits no longer than this.
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// A limit as the configuration has it.
#[derive(Debug, Clone)]
pub struct LimitDefinition {
    /// What a person calls it: `agents.dev.limits.calls`.
    pub name: String,
    /// What it counts, in words for agents: `your calls`. Agents never see the name, which is a path in
    /// the configuration.
    pub scope: String,
    /// What tells it from all others, in every process that has the same configuration.
    pub identity: String,
    pub counts: Counts,
    pub rate: Rate,
}

/// What a limit counts.
#[derive(Debug, Clone)]
pub enum Counts {
    Calls(Selection),
    /// Calls that an entry of the policy lets pass.
    Rule(LimitedRule),
    Lists(Selection),
    Refused(Selection),
}

/// Where limits are counted.
#[derive(Default)]
pub struct StoreSetup {
    pub redis: Option<Arc<Redis>>,
    /// While the store cannot be reached, each process counts for itself; else calls are refused.
    pub fall_back: bool,
}

/// All limits.
pub(super) struct Limits {
    all: Vec<Limit>,
    by_rule: HashMap<LimitedRule, usize>,
    /// Limits that are not about a rule.
    by_agent: ByAgent<usize>,
    pub(super) counters: Arc<Counters>,
    store: StoreSetup,
}

struct Limit {
    name: Box<str>,
    scope: Box<str>,
    counts: Counts,
    rate: Rate,
    pace: Pace,
    slot: usize,
    /// The name of the counter in a store.
    key: Arc<str>,
}

impl Limits {
    pub(super) fn new(
        definitions: Vec<LimitDefinition>,
        store: StoreSetup,
        counters: Arc<Counters>,
    ) -> Limits {
        let (mut by_rule, mut by_agent) = (HashMap::new(), ByAgent::default());
        let all = definitions.into_iter().enumerate().map(|(at, definition)| {
            let LimitDefinition { name, scope, identity, counts, rate } = definition;
            match &counts {
                Counts::Rule(rule) => drop(by_rule.insert(*rule, at)),
                Counts::Calls(whom) | Counts::Lists(whom) | Counts::Refused(whom) => {
                    by_agent.insert(whom.agents.clone(), at);
                }
            }
            // Another rate is another limit.
            let identity = format!("{identity} {rate}");
            Limit {
                name: name.into(),
                scope: scope.into(),
                counts,
                rate,
                pace: Pace::of(rate),
                slot: counters.slot(&identity),
                key: format!("{{toolward}}:limit:{identity}").into(),
            }
        });
        Limits { all: all.collect(), by_rule, by_agent, counters, store }
    }

    /// The limits that stand over calls of a tool.
    pub(super) fn over(&self, about: About<'_>) -> Box<[Standing]> {
        let standing = |at: usize| match &self.all.get(at)?.counts {
            Counts::Calls(whom) => Some(Standing { at, covers: whom.covers(about)? }),
            _ => None,
        };
        self.of_agent(about.agent).into_iter().filter_map(standing).collect()
    }

    /// The limits over entries of the policy.
    pub(super) fn of_rules(&self, rules: &[LimitedRule]) -> impl Iterator<Item = usize> {
        rules.iter().filter_map(|rule| self.by_rule.get(rule).copied())
    }

    /// The limits over an agent's listings.
    pub(super) fn of_lists(&self, agent: Option<&str>) -> Vec<usize> {
        self.matching(agent, |counts| matches!(counts, Counts::Lists(_)))
    }

    /// The limits over an agent's refused calls.
    pub(super) fn of_refused(&self, agent: Option<&str>) -> Vec<usize> {
        self.matching(agent, |counts| matches!(counts, Counts::Refused(_)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What a limit is called, and what it allows.
    pub(super) fn named(&self, at: usize) -> Option<(&str, Rate)> {
        self.all.get(at).map(|limit| (&*limit.name, limit.rate))
    }

    /// Whether a limit counts the calls of all tools together.
    pub(super) fn is_about_every_tool(&self, at: usize) -> bool {
        self.all.get(at).is_some_and(|limit| match &limit.counts {
            Counts::Calls(whom) => whom.is_about_every_tool(),
            _ => false,
        })
    }

    fn matching(&self, agent: Option<&str>, wanted: fn(&Counts) -> bool) -> Vec<usize> {
        let mut found = self.of_agent(agent);
        found.retain(|at| self.all.get(*at).is_some_and(|limit| wanted(&limit.counts)));
        found
    }

    /// All limits over an agent that are not about a rule, in file order.
    fn of_agent(&self, agent: Option<&str>) -> Vec<usize> {
        let mut found: Vec<usize> = self.by_agent.of(agent).copied().collect();
        found.sort_unstable();
        found
    }

    /// Takes one of each of these limits, or says which is full.
    pub(super) async fn take(&self, at: &[usize]) -> Result<Reservation<'_>, Box<Stopped>> {
        let mut reservation = Reservation { limits: self, taken: Where::Nothing, local: false };
        if at.is_empty() {
            return Ok(reservation);
        }
        if let Some(redis) = &self.store.redis {
            let wanted = at.iter().filter_map(|at| self.all.get(*at));
            let wanted: Vec<_> = wanted.map(|limit| (limit.key.clone(), limit.pace)).collect();
            match redis.take(wanted).await {
                Ok(Ok(taken)) => {
                    reservation.taken = Where::Store(taken);
                    return Ok(reservation);
                }
                Ok(Err(full)) => return Err(self.full(at, full.which, full.wait)),
                Err(why) if !self.store.fall_back => return Err(self.unreachable(&why)),
                Err(_) => reservation.local = true,
            }
        }
        let charge = |at: &usize| {
            let limit = self.all.get(*at)?;
            Some(Charge { slot: limit.slot, pace: limit.pace, until: 0 })
        };
        let mut charges: Vec<Charge> = at.iter().filter_map(charge).collect();
        match self.counters.take(&mut charges, now()) {
            Ok(()) => {
                reservation.taken = Where::Memory(charges);
                Ok(reservation)
            }
            Err(full) => Err(self.full(at, full.which, full.wait)),
        }
    }

    /// How long the answer to a refused call of an agent has to wait.
    pub(super) fn delay(&self, agent: Option<&str>) -> Duration {
        let most = u64::try_from(LONGEST_DELAY.as_nanos()).unwrap_or(u64::MAX);
        let wait = |limit: &Limit| {
            let charge = Charge { slot: limit.slot, pace: limit.pace, until: 0 };
            self.counters.queue(charge, now(), most)
        };
        // Delays are counted in each process: they protect this one.
        let refused = self.of_refused(agent);
        let waits = refused.iter().filter_map(|at| self.all.get(*at)).map(wait);
        Duration::from_nanos(waits.max().unwrap_or(0))
    }

    fn full(&self, at: &[usize], which: usize, wait: u64) -> Box<Stopped> {
        let limit = at.get(which).and_then(|at| self.all.get(*at));
        let (name, scope, rate) = match limit {
            Some(limit) => (&*limit.name, &*limit.scope, limit.rate.to_string()),
            None => ("", "", String::new()),
        };
        Box::new(Stopped::limit((name, scope), &rate, Duration::from_nanos(wait)))
    }

    fn unreachable(&self, why: &Unreachable) -> Box<Stopped> {
        Box::new(Stopped::store(&why.to_string()))
    }
}

/// What a call took of its limits. It is given back when it is dropped, unless it was kept.
#[must_use]
pub(super) struct Reservation<'l> {
    limits: &'l Limits,
    taken: Where,
    /// The store could not be reached, and this process counted for itself.
    pub(super) local: bool,
}

enum Where {
    Nothing,
    Memory(Vec<Charge>),
    Store(Taken),
}

impl Reservation<'_> {
    pub(super) fn keep(mut self) {
        self.taken = Where::Nothing;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.taken, Where::Nothing) {
            Where::Nothing => {}
            Where::Memory(charges) => self.limits.counters.give_back(&charges, now()),
            Where::Store(taken) => {
                if let Some(redis) = &self.limits.store.redis {
                    redis.give_back(taken);
                }
            }
        }
    }
}
