//! Rate limit on records that an agent can cause without any effect, so that it cannot fill the
//! disk: refusals, listings, and calls to unavailable servers.
//!
//! Up to a rate, each of them is a record. Beyond it they are counted: the first one writes a
//! record `refusals`, whose id all of them share as their decision id, and every [`SPAN`] a
//! second record has the count. So every refusal that a client received has a record, even if the
//! gateway is killed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use serde_json::json;
use toolward_policy::Rate;
use toolward_policy::rate::Per;

use super::batch::{Wait, Written};
use super::facts::Facts;
use super::line::time;
use super::redact::outside;
use super::{Audit, NotRecorded, UNRECORDED, When, lock};
use crate::clock::micros;

/// How long refusals are counted before the count is recorded.
const SPAN: Duration = Duration::from_secs(10);
/// The maximum number of names in a count.
const MAX_NAMES: usize = 16;
/// Beyond this number, agents whose limit has refilled are forgotten.
const MAX_AGENTS: usize = 4096;

/// The default limit.
pub const DEFAULT: Rate = Rate { count: 60, per: Per::Minute, burst: Some(1000) };

type Agent = Option<Arc<str>>;

#[derive(Debug)]
pub(super) struct Refusals {
    rate: Rate,
    begun: Instant,
    agents: Mutex<HashMap<Agent, AgentState>>,
}

/// The state of an agent.
#[derive(Debug, Default)]
struct AgentState {
    /// When the limit will have refilled (GCRA), in nanoseconds since the start.
    empty_at: u64,
    counting: Option<Arc<Counting>>,
}

/// Refusals of an agent that are being counted.
#[derive(Debug)]
struct Counting {
    id: String,
    agent: Agent,
    since: u64,
    /// Whether the first record has been written.
    opened: OnceLock<Arc<Written>>,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    kinds: BTreeMap<&'static str, u64>,
    names: BTreeMap<String, u64>,
    other_names: u64,
}

/// The id of a refusal, and how it is recorded.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) id: String,
    counting: Option<Arc<Counting>>,
}

impl Ticket {
    /// Whether it has no record of its own.
    pub(crate) fn is_counted(&self) -> bool {
        self.counting.is_some()
    }
}

impl Refusals {
    pub(super) fn new(rate: Rate) -> Refusals {
        Refusals { rate, begun: Instant::now(), agents: Mutex::default() }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A refusal of an agent: recorded, or counted if it exceeds the rate.
    fn ticket(&self, agent: Option<&Arc<str>>, id: String) -> Ticket {
        let (now, interval) = (self.now(), self.rate.interval_ns());
        let most = interval.saturating_mul(self.rate.at_once());
        let mut agents = lock(&self.agents);
        if agents.len() >= MAX_AGENTS {
            agents.retain(|_, state| state.counting.is_some() || state.empty_at > now);
        }
        let state = agents.entry(agent.cloned()).or_default();
        let empty_at = state.empty_at.max(now).saturating_add(interval);
        if empty_at - now <= most {
            state.empty_at = empty_at;
            return Ticket { id, counting: None };
        }
        let counting = state.counting.get_or_insert_with(|| {
            let (opened, counts) = Default::default();
            Arc::new(Counting { id, agent: agent.cloned(), since: micros(), opened, counts })
        });
        Ticket { id: counting.id.clone(), counting: Some(counting.clone()) }
    }

    /// Ends a count, unless it has ended already.
    fn end(&self, counting: &Arc<Counting>) -> Option<Facts> {
        let mut agents = lock(&self.agents);
        let open = &mut agents.get_mut(&counting.agent)?.counting;
        open.take_if(|open| Arc::ptr_eq(open, counting))?;
        Some(counting.facts())
    }

    /// Ends all counts.
    fn end_all(&self) -> Vec<Facts> {
        let mut agents = lock(&self.agents);
        let open = agents.values_mut().filter_map(|state| state.counting.take());
        open.map(|counting| counting.facts()).collect()
    }
}

impl Counting {
    /// The first record of a count.
    fn opening(&self, rate: Rate) -> Facts {
        let mut facts = Facts::default();
        facts.maybe("agent", self.agent.as_deref());
        facts.text("limit", &rate.to_string());
        facts.text(
            "reason",
            "too many refusals and listings of this agent; further ones are counted",
        );
        facts
    }

    fn count(&self, kind: &'static str, name: &str) {
        let mut counts = lock(&self.counts);
        *counts.kinds.entry(kind).or_default() += 1;
        if name.is_empty() {
            return;
        }
        let (name, room) = (outside(name), counts.names.len() < MAX_NAMES);
        match counts.names.get_mut(&*name) {
            Some(count) => *count += 1,
            None if room => drop(counts.names.insert(name.into_owned(), 1)),
            None => counts.other_names += 1,
        }
    }

    /// The second record, with the count.
    fn facts(&self) -> Facts {
        let counts = lock(&self.counts);
        let mut facts = Facts::default();
        facts.maybe("agent", self.agent.as_deref());
        facts.text("counted_from", &self.id);
        facts.text("since", &time(self.since));
        facts.number("count", counts.kinds.values().sum());
        facts.json("kinds", &json!(counts.kinds).to_string());
        facts.json("exposed_names", &json!(counts.names).to_string());
        if counts.other_names > 0 {
            facts.number("other_names", counts.other_names);
        }
        facts
    }
}

impl Audit {
    /// The id of an agent's refusal or listing, which is recorded with [`Audit::record_ticket`].
    pub(crate) fn ticket(&self, agent: Option<&Arc<str>>) -> Ticket {
        self.refusals.ticket(agent, self.id())
    }

    /// Records a refusal or listing, or counts it.
    pub(crate) async fn record_ticket(
        self: &Arc<Self>,
        ticket: &Ticket,
        kind: &'static str,
        name: &str,
        facts: &Facts,
    ) -> Result<(), NotRecorded> {
        let Some(counting) = ticket.counting.as_ref().filter(|_| !UNRECORDED) else {
            return self.record(&ticket.id, kind, facts).await;
        };
        let opened = self.count(counting, kind, name);
        let written = Wait(opened).await;
        if written.is_err() {
            // The failure is not recorded. The next count tries again.
            drop(self.refusals.end(counting));
        }
        if self.is_required() { written } else { Ok(()) }
    }

    /// The same for a refusal that no task waits for.
    pub(crate) fn note_ticket(
        self: &Arc<Self>,
        agent: Option<&Arc<str>>,
        kind: &'static str,
        name: &str,
        facts: &Facts,
    ) {
        if UNRECORDED {
            return;
        }
        let ticket = self.ticket(agent);
        match &ticket.counting {
            Some(counting) => drop(self.count(counting, kind, name)),
            None => drop(self.push(&ticket.id, kind, facts, When::Whenever)),
        }
    }

    fn count(
        self: &Arc<Self>,
        counting: &Arc<Counting>,
        kind: &'static str,
        name: &str,
    ) -> Arc<Written> {
        counting.count(kind, name);
        let open = || {
            self.end_later(counting.clone());
            let facts = counting.opening(self.refusals.rate);
            self.push(&counting.id, "refusals", &facts, When::Soon).0
        };
        counting.opened.get_or_init(open).clone()
    }

    fn end_later(self: &Arc<Self>, counting: Arc<Counting>) {
        let audit = Arc::downgrade(self);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            tokio::time::sleep(SPAN).await;
            let Some(audit) = audit.upgrade() else { return };
            if let Some(facts) = audit.refusals.end(&counting) {
                drop(audit.push(&audit.id(), "refusals", &facts, When::Whenever));
            }
        });
    }

    /// Records all counts that have not ended.
    pub(super) fn push_refusals(self: &Arc<Self>) {
        for facts in self.refusals.end_all() {
            drop(self.push(&self.id(), "refusals", &facts, When::Whenever));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_beyond_the_limit_are_counted_by_agent() {
        let rate = Rate { count: 1, per: Per::Hour, burst: Some(3) };
        let refusals = Refusals::new(rate);
        let (a, b) = (Arc::from("a"), Arc::from("b"));
        let ticket = |agent: &Arc<str>, id: &str| refusals.ticket(Some(agent), id.into());
        for id in ["1", "2", "3"] {
            assert!(ticket(&a, id).counting.is_none());
        }
        let counted = ticket(&a, "4");
        assert_eq!((counted.id.as_str(), counted.counting.is_some()), ("4", true));
        // All of them share one id, and another agent is not affected.
        assert_eq!(ticket(&a, "5").id, "4");
        assert!(ticket(&b, "6").counting.is_none());
        let counting = counted.counting.unwrap();
        for at in 0..40 {
            counting.count("refusal", &format!("tool_{}", at % 20));
        }
        counting.count("list", "");
        let facts = refusals.end(&counting).unwrap();
        let text = format!("{{\"x\":0{}}}", String::from_utf8_lossy(facts.members()));
        let facts: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&facts["count"], &facts["counted_from"]), (&json!(41), &json!("4")));
        assert_eq!(facts["kinds"], json!({"refusal": 40, "list": 1}));
        assert_eq!(
            (facts["exposed_names"].as_object().unwrap().len(), &facts["other_names"]),
            (16, &json!(8))
        );
        // The interval has ended; the next refusal starts another one.
        assert!(refusals.end(&counting).is_none());
        assert_eq!(ticket(&a, "7").id, "7");
        assert_eq!(refusals.end_all().len(), 1);
    }
}
