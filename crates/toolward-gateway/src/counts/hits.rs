//! How many calls each rule decided.

use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use toolward_policy::{Decision, Policy, RuleRef};

use super::PerThread;
use crate::audit::line::micros;

/// The counts of one policy, from zero since it came into force.
#[derive(Debug)]
pub struct Hits {
    /// Where each rule is counted. What no rule decided is counted behind them, together.
    places: HashMap<(u16, RuleRef), u32>,
    counts: PerThread<Box<[AtomicU64]>>,
    /// The same, of names that the agent does not see.
    unseen: PerThread<Box<[AtomicU64]>>,
    /// When it began, in microseconds since 1970.
    since: u64,
}

/// Where a decision is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(u32);

impl Hits {
    pub fn of(policy: &Policy) -> Hits {
        let rules = policy.rules().into_iter().zip(0..);
        let (counts, unseen) = Default::default();
        Hits { places: rules.collect(), counts, unseen, since: micros() }
    }

    /// Where a decision is counted.
    pub(crate) fn place(&self, decision: &Decision) -> Place {
        let rule = decision.layer.zip(decision.rule);
        let of_rule = rule.and_then(|rule| self.places.get(&rule).copied());
        Place(of_rule.unwrap_or(self.places.len() as u32))
    }

    /// A call was decided.
    pub(crate) fn count(&self, place: Place) {
        self.add(&self.counts, place);
    }

    /// A call of a name that the agent does not see was decided.
    pub(crate) fn count_unseen(&self, place: Place) {
        self.add(&self.unseen, place);
    }

    fn add(&self, counts: &PerThread<Box<[AtomicU64]>>, Place(place): Place) {
        let make = || (0..=self.places.len()).map(|_| AtomicU64::new(0)).collect();
        let counts = counts.own(make);
        if let Some(count) = counts.and_then(|counts| counts.get(place as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// When counting began, in microseconds since 1970.
    pub fn since(&self) -> u64 {
        self.since
    }

    fn at(&self, counts: &PerThread<Box<[AtomicU64]>>, place: u32) -> u64 {
        let counts = counts.all().filter_map(|counts| counts.get(place as usize));
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// How many calls a rule decided.
    pub fn of_rule(&self, layer: u16, rule: RuleRef) -> u64 {
        self.places.get(&(layer, rule)).map_or(0, |place| self.at(&self.counts, *place))
    }

    /// How many calls of names that their agents do not see a rule decided.
    pub fn unseen_of_rule(&self, layer: u16, rule: RuleRef) -> u64 {
        self.places.get(&(layer, rule)).map_or(0, |place| self.at(&self.unseen, *place))
    }

    /// How many calls were decided where no rule matched.
    pub fn of_no_rule(&self) -> u64 {
        self.at(&self.counts, self.places.len() as u32)
    }

    /// How many calls were decided.
    pub fn total(&self) -> u64 {
        let counts = self.counts.all().flat_map(|counts| counts.iter());
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolward_policy::source::{AllowlistSource, Case, Entry, LayerSource, RulesSource, Source};
    use toolward_policy::{Call, Caller, Tool};

    #[test]
    fn threads_count_apart_and_are_summed() {
        let list = AllowlistSource {
            path: "allowed_tools".into(),
            case: Case::Sensitive,
            tools: vec![Entry::new("a"), Entry::new("b")],
            prompts: None,
            resources: None,
        };
        let layers = vec![LayerSource { name: "f".into(), rules: RulesSource::Allowlist(list) }];
        let policy = Policy::compile(Source { layers, ..Source::default() }).unwrap();
        let hits = Hits::of(&policy);
        let decide = |tool: &str| {
            let call = Call { action: None, arguments: None };
            policy.decide(Caller { agent: None, claims: None }, "s", &Tool::named(tool), &call)
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for tool in ["a", "b", "b", "none"] {
                        hits.count(hits.place(&decide(tool)));
                    }
                });
            }
        });
        let counted: Vec<u64> =
            policy.rules().into_iter().map(|(layer, rule)| hits.of_rule(layer, rule)).collect();
        assert_eq!((counted, hits.of_no_rule(), hits.total()), (vec![3, 6], 3, 12));
    }
}
