//! What two policies have in common: agents whose rules did not change are not searched.

use std::sync::Arc;

use crate::decision::Kind;
use crate::layer::{Agent, List, Rule, Rules};
use crate::policy::Policy;

/// What two policies have in common, computed once for all agents.
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
