//! Rate limits on calls, listings and refused calls.
//!
//! A call consumes one unit of every limit that applies to it, or none of any. The consumed units are a
//! [`Reservation`], which is returned unless the call is made.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use toolward_policy::{LimitedRule, Rate};

use super::selection::{ByAgent, CallSubject, Coverage, Selection};
use super::store::counters::{Charge, Counters, Pace, now};
use super::store::redis::{ConsumedUnits, Redis, Unreachable};
use super::{Applicable, Stopped, Why};

/// Maximum delay of the response to a refused call.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// A limit as configured.
#[derive(Debug, Clone)]
pub struct LimitDefinition {
    /// Its path in the configuration: `agents.dev.limits.calls`.
    pub name: String,
    /// A description for agents of what it counts: `your calls`. Agents never see the name, which is a
    /// path in the configuration.
    pub scope: String,
    /// A unique identity, the same in every process that has the same configuration.
    pub identity: String,
    pub counts: Counts,
    pub rate: Rate,
}

/// The kind of requests that a limit counts.
#[derive(Debug, Clone)]
pub enum Counts {
    Calls(Selection),
    /// Calls that an entry of the policy allows.
    Rule(LimitedRule),
    Lists(Selection),
    Refused(Selection),
}

/// The store of the counters.
#[derive(Default)]
pub struct StoreSetup {
    pub redis: Option<Arc<Redis>>,
    /// While the store is unreachable, count in memory; otherwise calls are refused.
    pub fall_back: bool,
}

/// All limits.
pub(super) struct Limits {
    all: Vec<Limit>,
    by_rule: HashMap<LimitedRule, usize>,
    /// Limits that do not belong to a rule.
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
    /// The key of the counter in Redis.
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
            // A limit with a changed rate starts with a new counter.
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

    /// The limits that apply to calls of a tool.
    pub(super) fn over(&self, about: CallSubject<'_>) -> Box<[Applicable]> {
        let standing = |at: usize| match &self.all.get(at)?.counts {
            Counts::Calls(whom) => Some(Applicable { at, covers: whom.covers(about)? }),
            _ => None,
        };
        self.of_agent(about.agent).into_iter().filter_map(standing).collect()
    }

    /// The limits on an agent's use of a server that name no tool.
    pub(super) fn over_other(&self, agent: Option<&str>, server: &str) -> Box<[Applicable]> {
        let standing = |at: usize| match &self.all.get(at)?.counts {
            Counts::Calls(whom) if whom.covers_other(agent, server) => {
                Some(Applicable { at, covers: Coverage::Always })
            }
            _ => None,
        };
        self.of_agent(agent).into_iter().filter_map(standing).collect()
    }

    /// The limits of these policy entries. An entry without a counter has an index that [`take`](Self::take) refuses.
    pub(super) fn of_rules(&self, rules: &[LimitedRule]) -> impl Iterator<Item = usize> {
        rules.iter().map(|rule| self.by_rule.get(rule).copied().unwrap_or(usize::MAX))
    }

    /// The limits on an agent's listings.
    pub(super) fn of_lists(&self, agent: Option<&str>) -> Vec<usize> {
        self.matching(agent, |counts| matches!(counts, Counts::Lists(_)))
    }

    /// The limits on an agent's refused calls.
    pub(super) fn of_refused(&self, agent: Option<&str>) -> Vec<usize> {
        self.matching(agent, |counts| matches!(counts, Counts::Refused(_)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The name and rate of a limit.
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

    /// All limits on an agent that do not belong to a rule, in file order.
    fn of_agent(&self, agent: Option<&str>) -> Vec<usize> {
        let mut found: Vec<usize> = self.by_agent.of(agent).copied().collect();
        found.sort_unstable();
        found
    }

    /// Consumes one unit of each of these limits; the error is the limit that is used up.
    pub(super) async fn take(&self, at: &[usize]) -> Result<Reservation<'_>, Box<Stopped>> {
        let mut reservation = Reservation { limits: self, taken: Consumed::Nothing, local: false };
        if at.is_empty() {
            return Ok(reservation);
        }
        // All indices are those of this configuration. If one ever was not, the call must not pass uncounted.
        if at.iter().any(|at| *at >= self.all.len()) {
            return Err(Box::new(Stopped::unknown_guard(Why::Store, "limit")));
        }
        if let Some(redis) = &self.store.redis {
            let wanted = at.iter().filter_map(|at| self.all.get(*at));
            let wanted: Vec<_> = wanted.map(|limit| (limit.key.clone(), limit.pace)).collect();
            match redis.take(wanted).await {
                Ok(Ok(taken)) => {
                    reservation.taken = Consumed::Store(taken);
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
                reservation.taken = Consumed::Memory(charges);
                Ok(reservation)
            }
            Err(full) => Err(self.full(at, full.which, full.wait)),
        }
    }

    /// The delay of the response to an agent's refused call.
    pub(super) fn delay(&self, agent: Option<&str>) -> Duration {
        let most = u64::try_from(MAX_DELAY.as_nanos()).unwrap_or(u64::MAX);
        let wait = |limit: &Limit| {
            let charge = Charge { slot: limit.slot, pace: limit.pace, until: 0 };
            self.counters.queue(charge, now(), most)
        };
        // Delays are counted per process, because they protect this process.
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

/// The units that a call consumed. Dropping it returns them, unless it was kept.
#[must_use]
pub(super) struct Reservation<'l> {
    limits: &'l Limits,
    taken: Consumed,
    /// The store was unreachable, and the units were counted in memory.
    pub(super) local: bool,
}

enum Consumed {
    Nothing,
    Memory(Vec<Charge>),
    Store(ConsumedUnits),
}

impl Reservation<'_> {
    pub(super) fn keep(mut self) {
        self.taken = Consumed::Nothing;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.taken, Consumed::Nothing) {
            Consumed::Nothing => {}
            Consumed::Memory(charges) => self.limits.counters.give_back(&charges, now()),
            Consumed::Store(taken) => {
                if let Some(redis) = &self.limits.store.redis {
                    redis.give_back(taken);
                }
            }
        }
    }
}
