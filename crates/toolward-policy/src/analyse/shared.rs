//! The common parts of two policies: agents whose rules did not change are not searched.

use std::sync::Arc;

use hashbrown::HashSet;

use crate::decision::Kind;
use crate::layer::{Agent, AgentsLayer, Allowlist, Layer, List, Rule, Rules};
use crate::policy::Policy;

/// The common parts of two policies, computed once for all agents.
pub(super) struct Shared<'p> {
    old: &'p Policy,
    new: &'p Policy,
    /// Everything except the rules of agents is the same.
    is_same: bool,
}

impl<'p> Shared<'p> {
    pub(super) fn new(old: &'p Policy, new: &'p Policy) -> Shared<'p> {
        let names = old.server_names().chain(new.server_names()).chain([""]);
        let layers = old.layers.iter().zip(&new.layers);
        let is_same = old.layers.len() == new.layers.len()
            && old.approvers == new.approvers
            && names.into_iter().all(|name| old.server(name) == new.server(name))
            && layers.into_iter().all(|(one, other)| match (&one.rules, &other.rules) {
                (Rules::Agents(_), Rules::Agents(_)) | (Rules::ReadOnly, Rules::ReadOnly) => true,
                (Rules::Allowlist(one), Rules::Allowlist(other)) => {
                    let lists = [Kind::Tools, Kind::Prompts, Kind::Resources];
                    let same = |kind: Kind| match (one.of(kind), other.of(kind)) {
                        (Some(one), Some(other)) => same_rules(&one.rules, &other.rules),
                        (None, None) => true,
                        _ => false,
                    };
                    one.case == other.case && lists.into_iter().all(same)
                }
                _ => false,
            });
        Shared { old, new, is_same }
    }

    /// The entries that differ, if the policies differ in one allowlist only, no entry of which asks, and none of
    /// the changed ones depends on an action. Then an entry that both have can only hide a difference: it allows in
    /// both, or has an action looked for in both. `None` if more may have changed.
    pub(super) fn only_listed(&self) -> Option<HashSet<EntryKey<'p>>> {
        let (old, new) = (self.old, self.new);
        let names = old.server_names().chain(new.server_names()).chain([""]);
        let lists = |layers: &'p [Layer]| -> Vec<&'p Allowlist> {
            let lists = layers.iter().filter_map(|layer| match &layer.rules {
                Rules::Allowlist(list) => Some(&**list),
                _ => None,
            });
            lists.collect()
        };
        let ([one], [other]) = (&*lists(&old.layers), &*lists(&new.layers)) else { return None };
        let other_layers = old.layers.iter().zip(&new.layers).all(|(one, other)| {
            match (&one.rules, &other.rules) {
                (Rules::Agents(one), Rules::Agents(other)) => same_agents(one, other),
                (Rules::Allowlist(_), Rules::Allowlist(_)) | (Rules::ReadOnly, Rules::ReadOnly) => {
                    true
                }
                _ => false,
            }
        });
        let same = |kind: Kind| match (one.of(kind), other.of(kind)) {
            (Some(one), Some(other)) => same_rules(&one.rules, &other.rules),
            (None, None) => true,
            _ => false,
        };
        let plain = |rule: &Rule| {
            let acts = rule.selector.name_form().is_some_and(|form| !form.splits.is_empty());
            let reads = rule.when.as_ref().is_some_and(|when| when.reads().action);
            !acts && !reads
        };
        let asks = one.tools.rules.iter().chain(&other.tools.rules).any(|rule| rule.ask.is_some());
        let rest = old.layers.len() == new.layers.len()
            && old.approvers == new.approvers
            && names.into_iter().all(|name| old.server(name) == new.server(name))
            && one.case == other.case
            && one.everything.is_some() == other.everything.is_some()
            && same(Kind::Prompts)
            && same(Kind::Resources);
        if !rest || asks || !other_layers {
            return None;
        }
        let keys = |list: &'p List| list.rules.iter().map(entry_key).collect::<HashSet<_>>();
        let (before, after) = (keys(&one.tools), keys(&other.tools));
        let changed: HashSet<EntryKey<'p>> = before.symmetric_difference(&after).copied().collect();
        let rules = one.tools.rules.iter().chain(&other.tools.rules);
        let mut rules = rules.filter(|rule| changed.contains(&entry_key(rule)));
        rules.all(plain).then_some(changed)
    }

    pub(super) fn is_same_for(&self, agent: Option<&str>) -> bool {
        let mut layers = self.old.layers.iter().zip(&self.new.layers);
        self.is_same
            && layers.all(|(one, other)| match (&one.rules, &other.rules) {
                (Rules::Agents(one), Rules::Agents(other)) => {
                    match (one.agent(agent), other.agent(agent)) {
                        (None, None) => true,
                        (Some(at), Some(other_at)) => {
                            same_agent(&one.agents[at as usize], &other.agents[other_at as usize])
                        }
                        _ => false,
                    }
                }
                _ => true,
            })
    }
}

/// The effect of an entry of an allowlist: equal keys have equal effects.
pub(super) type EntryKey<'p> = (&'p str, Option<&'p str>);

pub(super) fn entry_key(rule: &Rule) -> EntryKey<'_> {
    (rule.selector.written(), rule.when.as_ref().map(|when| when.source()))
}

/// Whether two layers have the same agents with the same rules.
fn same_agents(one: &AgentsLayer, other: &AgentsLayer) -> bool {
    let names = |layer: &AgentsLayer| -> Vec<String> { layer.names().map(String::from).collect() };
    let patterns =
        |layer: &AgentsLayer| -> Vec<String> { layer.pattern_names().map(String::from).collect() };
    names(one) == names(other)
        && patterns(one) == patterns(other)
        && one.agent(None) == other.agent(None)
        && one.agents.iter().zip(&other.agents).all(|(one, other)| same_agent(one, other))
}

fn same_agent(one: &Agent, other: &Agent) -> bool {
    let same_lists = |one: &[Arc<List>], other: &[Arc<List>]| {
        one.len() == other.len()
            && one.iter().zip(other).all(|(one, other)| {
                one.key_written == other.key_written && same_rules(&one.rules, &other.rules)
            })
    };
    one.case == other.case
        && same_rules(&one.client_requests, &other.client_requests)
        && [(&one.deny, &other.deny), (&one.allow, &other.allow)].into_iter().all(|(one, other)| {
            same_rules(&one.servers, &other.servers)
                && same_lists(&one.tools, &other.tools)
                && same_lists(&one.prompts, &other.prompts)
                && same_lists(&one.resources, &other.resources)
        })
}

fn same_rules(one: &[Rule], other: &[Rule]) -> bool {
    let when = |rule: &Rule| rule.when.as_ref().map(|when| when.source().to_owned());
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| {
            one.selector.written() == other.selector.written()
                && one.ask == other.ask
                && (one.when.is_none() == other.when.is_none())
                && when(one) == when(other)
        })
}
