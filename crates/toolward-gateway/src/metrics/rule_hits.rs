//! How many calls each rule decided.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use toolward_policy::{Decision, Policy, RuleRef};

use super::per_thread::PerThread;
use crate::clock::micros;

/// The hit counters of one policy. After a reload, rules that did not change keep their counts.
#[derive(Debug)]
pub struct Hits {
    /// The index of each rule's counter. Calls that no rule decided share the last counter.
    places: HashMap<(u16, RuleRef), u32>,
    counters: Arc<Counters>,
    /// Counts of earlier policies.
    carried: Carried,
    /// When counting began, in microseconds since 1970.
    since: u64,
}

/// One counter per rule and thread.
#[derive(Debug, Default)]
struct Counters {
    counts: PerThread<Box<[AtomicU64]>>,
    /// The same for names that are not listed for the agent.
    unlisted: PerThread<Box<[AtomicU64]>>,
}

/// Counts of earlier policies. Requests that began under the previous policy still count in its
/// counters, so those are read rather than copied; older ones are sums.
#[derive(Debug, Default)]
struct Carried {
    previous: Option<Arc<Counters>>,
    /// By index: the index in the previous counters, for rules that existed then, and the sums of
    /// calls and of unlisted names before that.
    rules: Box<[(Option<u32>, u64, u64)]>,
    /// All calls that were counted before the previous policy.
    total: u64,
}

/// The counter of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterIndex(u32);

impl Hits {
    pub fn of(policy: &Policy) -> Hits {
        let rules = policy.rules().into_iter().zip(0..);
        let (counters, carried) = Default::default();
        Hits { places: rules.collect(), counters, carried, since: micros() }
    }

    /// The counters of a policy that replaces another one. A rule is the same if its file, list,
    /// selector, condition and limit are; its position in the list may change.
    pub(crate) fn continuing(policy: &Policy, previous: &Policy, hits: &Hits) -> Hits {
        let mut old: HashMap<(String, usize), u32> = HashMap::new();
        let mut times: HashMap<String, usize> = HashMap::new();
        for (identity, (layer, rule)) in identities(previous) {
            if let Some(place) = hits.places.get(&(layer, rule)) {
                let time = times.entry(identity.clone()).or_default();
                old.insert((identity, *time), *place);
                *time += 1;
            }
        }
        times.clear();
        let mut rules: Vec<(Option<u32>, u64, u64)> = Vec::new();
        let mut carry = |place: Option<u32>| {
            let sums = place.map_or((0, 0), |place| hits.carried.at(place));
            rules.push((place, sums.0, sums.1));
        };
        for (identity, _) in identities(policy) {
            let time = times.entry(identity.clone()).or_default();
            carry(old.get(&(identity, *time)).copied());
            *time += 1;
        }
        carry(Some(hits.places.len() as u32));
        let carried = Carried {
            previous: Some(hits.counters.clone()),
            rules: rules.into(),
            total: hits.carried.total(),
        };
        Hits { carried, since: hits.since, ..Hits::of(policy) }
    }

    /// The counter of a decision.
    pub(crate) fn place(&self, decision: &Decision) -> CounterIndex {
        let rule = decision.layer.zip(decision.rule);
        let of_rule = rule.and_then(|rule| self.places.get(&rule).copied());
        CounterIndex(of_rule.unwrap_or(self.places.len() as u32))
    }

    /// Counts a decided call.
    pub(crate) fn count(&self, place: CounterIndex) {
        self.add(&self.counters.counts, place);
    }

    /// Counts a decided call of an unlisted name.
    pub(crate) fn count_unlisted(&self, place: CounterIndex) {
        self.add(&self.counters.unlisted, place);
    }

    fn add(&self, counts: &PerThread<Box<[AtomicU64]>>, CounterIndex(place): CounterIndex) {
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

    /// The number of calls that a rule decided.
    pub fn of_rule(&self, layer: u16, rule: RuleRef) -> u64 {
        self.places.get(&(layer, rule)).map_or(0, |place| self.calls_at(*place))
    }

    /// The number of calls of unlisted names that a rule decided.
    pub fn unlisted_of_rule(&self, layer: u16, rule: RuleRef) -> u64 {
        let of = |place: &u32| at(&self.counters.unlisted, *place) + self.carried.at(*place).1;
        self.places.get(&(layer, rule)).map_or(0, of)
    }

    /// The number of calls that no rule matched.
    pub fn of_no_rule(&self) -> u64 {
        self.calls_at(self.places.len() as u32)
    }

    fn calls_at(&self, place: u32) -> u64 {
        at(&self.counters.counts, place) + self.carried.at(place).0
    }

    /// The number of decided calls.
    pub fn total(&self) -> u64 {
        sum(&self.counters.counts) + self.carried.total()
    }
}

impl Carried {
    /// The calls and unlisted names counted for the rule at an index.
    fn at(&self, place: u32) -> (u64, u64) {
        let Some((before, calls, unlisted)) = self.rules.get(place as usize) else { return (0, 0) };
        match self.previous.as_ref().zip(*before) {
            Some((previous, place)) => {
                (calls + at(&previous.counts, place), unlisted + at(&previous.unlisted, place))
            }
            None => (*calls, *unlisted),
        }
    }

    fn total(&self) -> u64 {
        self.total + self.previous.as_ref().map_or(0, |previous| sum(&previous.counts))
    }
}

fn at(counts: &PerThread<Box<[AtomicU64]>>, place: u32) -> u64 {
    let counts = counts.all().filter_map(|counts| counts.get(place as usize));
    counts.map(|count| count.load(Ordering::Relaxed)).sum()
}

fn sum(counts: &PerThread<Box<[AtomicU64]>>) -> u64 {
    let counts = counts.all().flat_map(|counts| counts.iter());
    counts.map(|count| count.load(Ordering::Relaxed)).sum()
}

/// All rules, in the order of [`Policy::rules`], with a text that identifies them across reloads.
fn identities(policy: &Policy) -> Vec<(String, (u16, RuleRef))> {
    let identity = |(layer, rule): (u16, RuleRef)| {
        let text = policy.rule_at(layer, rule);
        let identity = text.map(|text| {
            let list = text.path.rsplit_once('[').map_or(text.path.as_str(), |(list, _)| list);
            let limit = text.limit.map(|rate| rate.to_string());
            format!("{:?}", (&text.layer, list, &text.selector, &text.when, limit))
        });
        (identity.unwrap_or_default(), (layer, rule))
    };
    policy.rules().into_iter().map(identity).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolward_policy::source::{AllowlistSource, Case, Entry, LayerSource, RulesSource, Source};
    use toolward_policy::{Call, Caller, Tool};

    fn policy(tools: &[&str]) -> Policy {
        let list = AllowlistSource {
            path: "allowed_tools".into(),
            case: Case::Sensitive,
            tools: tools.iter().map(|tool| Entry::new(*tool)).collect(),
            prompts: None,
            resources: None,
        };
        let layers = vec![LayerSource { name: "f".into(), rules: RulesSource::Allowlist(list) }];
        Policy::compile(Source { layers, ..Source::default() }).unwrap()
    }

    fn decide(policy: &Policy, tool: &str) -> Decision {
        let call = Call { action: None, arguments: None };
        policy.decide(Caller { agent: None, claims: None }, "s", &Tool::named(tool), &call)
    }

    fn counted(policy: &Policy, hits: &Hits) -> Vec<(u64, u64)> {
        let rules = policy.rules().into_iter();
        rules.map(|(l, r)| (hits.of_rule(l, r), hits.unlisted_of_rule(l, r))).collect()
    }

    #[test]
    fn rules_that_a_reload_leaves_as_they_are_keep_their_counts() {
        let count = |policy: &Policy, hits: &Hits, tool: &str| {
            hits.count(hits.place(&decide(policy, tool)));
            hits.count_unlisted(hits.place(&decide(policy, tool)));
        };
        let first = policy(&["a", "b", "b"]);
        let hits = Hits::of(&first);
        for tool in ["a", "b", "none"] {
            count(&first, &hits, tool);
        }
        // `a` moves down, one `b` is removed, `c` is new.
        let second = policy(&["c", "b", "a"]);
        let next = Hits::continuing(&second, &first, &hits);
        assert_eq!(counted(&second, &next), [(0, 0), (1, 1), (1, 1)]);
        count(&second, &next, "c");
        // A request that began before the reload still counts.
        count(&first, &hits, "a");
        assert_eq!(counted(&second, &next), [(1, 1), (1, 1), (2, 2)]);
        assert_eq!((next.of_no_rule(), next.total(), next.since()), (1, 5, hits.since()));
        let third = policy(&["a", "c"]);
        let last = Hits::continuing(&third, &second, &next);
        count(&third, &last, "a");
        assert_eq!(counted(&third, &last), [(3, 3), (1, 1)]);
        assert_eq!((last.of_no_rule(), last.total()), (1, 6));
    }

    #[test]
    fn threads_count_apart_and_are_summed() {
        let policy = policy(&["a", "b"]);
        let hits = Hits::of(&policy);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for tool in ["a", "b", "b", "none"] {
                        hits.count(hits.place(&decide(&policy, tool)));
                    }
                });
            }
        });
        let counted = counted(&policy, &hits);
        assert_eq!((counted, hits.of_no_rule(), hits.total()), (vec![(3, 0), (6, 0)], 3, 12));
    }
}
