//! The agents and servers that policies distinguish: one name for each class of names.

use std::ops::ControlFlow;

use hashbrown::HashSet;

use super::patterns::name_globs;
use super::search::{Search, Subjects};
use super::shared::{EntryKey, entry_key};
use crate::automaton::{Automaton, Space, State, TooLarge};
use crate::fnmatch::fnmatch;
use crate::layer::{Agent, Layer, List, Rules};
use crate::policy::Policy;
use crate::selector::Glob;
use crate::source::Case;

impl Search<'_> {
    /// Agents that some policy may treat differently; `None` is an unnamed caller.
    pub(super) fn agents(&self, subjects: &Subjects<'_>) -> Result<Vec<Option<String>>, TooLarge> {
        if let Some(name) = subjects.agent {
            return Ok(vec![Some(name.into())]);
        }
        let mut exact: Vec<&str> = Vec::new();
        let mut patterns = Automaton::default();
        for layer in self.layers() {
            let Rules::Agents(layer) = &layer.rules else { continue };
            let of_layer: HashSet<&str> = layer.pattern_names().collect();
            for name in &of_layer {
                patterns.pattern(name, Case::Sensitive);
            }
            exact.extend(layer.names().filter(|name| !of_layer.contains(name)));
        }
        self.readings().for_each(|reading| reading.of_name("agent").add_to(&mut patterns));
        for glob in self.policies.iter().flat_map(|policy| policy.approvers.agents()) {
            patterns.glob(glob, Case::Sensitive);
        }
        // The agents that a question is about are classes of their own.
        if let Some(pattern) = subjects.agents {
            patterns.pattern(pattern, Case::Sensitive);
        }
        exact.sort_unstable();
        exact.dedup();
        let mut found: Vec<Option<String>> =
            exact.iter().map(|name| Some((*name).into())).collect();
        let names = patterns.len();
        for name in &exact {
            patterns.literal(name, Case::Sensitive);
        }
        let mut seen: HashSet<Vec<u32>> = HashSet::new();
        self.explore(
            &patterns,
            patterns.start(),
            |_| true,
            |state, text| {
                let matched: Vec<u32> = patterns.matched(state).collect();
                let is_exact = matched.iter().any(|number| *number as usize >= names);
                let name = text();
                let is_exact = is_exact || exact.binary_search(&name.as_str()).is_ok();
                if !is_exact && !name.is_empty() && seen.insert(matched) {
                    found.push(Some(name));
                }
                ControlFlow::<()>::Continue(())
            },
        )?;
        match subjects.agents {
            Some(pattern) => {
                found.retain(|name| name.as_deref().is_some_and(|name| fnmatch(pattern, name)));
            }
            None => found.push(None),
        }
        Ok(found)
    }

    /// Servers that some policy may treat differently for an agent.
    pub(super) fn servers(
        &self,
        agent: Option<&str>,
        subjects: &Subjects<'_>,
        only_listed: Option<&HashSet<EntryKey<'_>>>,
    ) -> Result<Vec<String>, TooLarge> {
        let mut names = Automaton::default();
        let mut only: Option<[u32; 2]> = None;
        if let Some(pattern) = subjects.servers {
            only = Some(names.glob(&Glob::new(pattern, Case::Sensitive), Case::Sensitive));
        }
        for policy in self.policies {
            for name in policy.server_names() {
                names.literal(name, Case::Sensitive);
            }
            for layer in &policy.layers {
                if let Rules::Agents(layer) = &layer.rules
                    && let Some(agent) = layer.agent(agent)
                {
                    add_servers(&mut names, &layer.agents[agent as usize]);
                }
            }
        }
        self.readings().for_each(|reading| reading.of_name("server").add_to(&mut names));
        let servers = names.len();
        // In an allowlist, the server's name may be the beginning of what an entry matches.
        names.space = Space::Qualified;
        let mut changed: HashSet<u32> = HashSet::new();
        for policy in self.policies {
            for layer in &policy.layers {
                add_qualified(&mut names, layer, only_listed, &mut changed);
            }
        }
        names.space = Space::Approvals;
        for policy in self.policies.iter().filter(|policy| policy.layers.iter().any(Layer::asks)) {
            for glob in policy.approvers.globs() {
                names.glob(glob, Case::Sensitive);
            }
        }
        let mut seen: HashSet<(Vec<u32>, [Vec<u32>; 2])> = HashSet::new();
        let mut found = Vec::new();
        // The positions, in patterns of `space`, after the server's name and a separator.
        let after = |state: &[u32], separator: char, space: Space| -> Vec<u32> {
            let owned = |at: &u32| names.space_of(names.owner(*at)) == space;
            names.step(state, separator).iter().copied().filter(owned).collect()
        };
        let mut add = |state: &State, name: String| {
            let matched: Vec<u32> =
                names.matched(state).filter(|number| (*number as usize) < servers).collect();
            let is_asked = only.is_none_or(|only| only.iter().any(|one| matched.contains(one)));
            let after = [('.', Space::Qualified), ('/', Space::Approvals)]
                .map(|(separator, space)| after(state, separator, space));
            if is_asked && !name.is_empty() && seen.insert((matched, after)) {
                found.push(name);
            }
        };
        if only_listed.is_none() {
            self.explore(
                &names,
                names.start(),
                |_| true,
                |state, text| {
                    add(state, text());
                    ControlFlow::<()>::Continue(())
                },
            )?;
            return Ok(found);
        }
        // An entry that both policies have can only hide a difference. So a server's name with which fewer of these
        // can match, and the same others, represents those with which more can.
        let is_common =
            |number: u32| names.space_of(number) == Space::Qualified && !changed.contains(&number);
        let used = names.frontier(names.start(), self.left(), is_common, add)?;
        self.spend(used)?;
        Ok(found)
    }

    fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.policies.iter().flat_map(|policy: &&Policy| &policy.layers)
    }
}

/// The patterns of an agent that are about servers.
fn add_servers(names: &mut Automaton, agent: &Agent) {
    for side in [&agent.deny, &agent.allow] {
        for rule in &side.servers {
            if let Some(form) = rule.selector.name_form() {
                names.glob(&form.whole, agent.case);
            } else {
                names.literal(rule.selector.written(), Case::Sensitive);
            }
        }
        for list in [&side.tools, &side.prompts, &side.resources].into_iter().flatten() {
            names.glob(&list.key, agent.case);
        }
    }
}

/// The entries of an allowlist that can match `SERVER.NAME`: they contain a dot, or something that matches
/// one.
fn add_qualified(
    names: &mut Automaton,
    layer: &Layer,
    only_listed: Option<&HashSet<EntryKey<'_>>>,
    changed: &mut HashSet<u32>,
) {
    let Rules::Allowlist(allowlist) = &layer.rules else { return };
    let lists = [Some(&allowlist.tools), allowlist.prompts.as_ref(), allowlist.resources.as_ref()];
    let may_match_a_dot = |glob: &&&Glob| glob.text().contains(['.', '*', '?', '[']);
    for rule in lists.into_iter().flatten().flat_map(|list: &List| &list.rules) {
        let globs = name_globs(&rule.selector).unwrap_or_default();
        let is_changed = only_listed.is_some_and(|listed| listed.contains(&entry_key(rule)));
        for glob in globs.iter().filter(may_match_a_dot) {
            let numbers = names.glob(glob, allowlist.case);
            if is_changed {
                changed.extend(numbers);
            }
        }
    }
}
