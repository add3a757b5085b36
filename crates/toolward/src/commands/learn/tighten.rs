//! The current rules of an agent, without those that no recorded call needed.

use toolward_config::escape_pattern;
use toolward_policy::Family;
use toolward_policy::source::{Entry, KeyedList};

use super::current::{CurrentPolicy, Standing, of_family};
use super::proposal::{Line, Proposal, Uncovered, UnusedGrant, attention};
use super::seen::SeenCalls;

/// The families with the names of their lists.
const FAMILIES: [(Family, &str); 3] =
    [(Family::Tools, "tools"), (Family::Prompts, "prompts"), (Family::Resources, "resources")];

impl Proposal {
    pub(super) fn tightened(current: &CurrentPolicy<'_>, seen: &SeenCalls) -> Proposal {
        let mut proposal = Proposal::with_denials(current);
        let Some((layer, rules)) = current.rules.first() else { return proposal };
        // One line for each entry, in the order of the file.
        let mut lists: Vec<(Family, &KeyedList, Vec<Line>)> = Vec::new();
        for (family, _) in FAMILIES {
            for list in of_family(&rules.allow, family) {
                // A shadow entry grants nothing.
                let entries = list.entries.iter().filter(|entry| !entry.shadow);
                let lines = entries.map(|entry| Line::new(entry.clone())).collect();
                lists.push((family, list, lines));
            }
        }
        for (target, uses) in seen.uses.iter().filter(|(_, uses)| uses.made > 0) {
            if !matches!(current.standing(target), Standing::Granted(_)) {
                proposal.uncovered.push(Uncovered {
                    target: target.clone(),
                    calls: uses.made,
                    why: "the current policy does not allow it".into(),
                });
                continue;
            }
            let needed = current.covering(target);
            let needed: Vec<&Entry> =
                needed.iter().filter(|(_, layer)| *layer == 0).map(|(entry, _)| entry).collect();
            for (family, _, lines) in &mut lists {
                let is_needed = |line: &&mut Line| {
                    *family == target.family
                        && needed.iter().any(|entry| {
                            entry.place == line.entry.place && entry.selector == line.entry.selector
                        })
                };
                for line in lines.iter_mut().filter(is_needed) {
                    line.cover(target, uses, attention(current, target));
                }
            }
            proposal.add_server(target, uses, Entry::new(escape_pattern(&target.server)));
        }
        let location = |entry: &Entry| match entry.place.line {
            0 => layer.to_string(),
            line => format!("{layer}:{line}:{}", entry.place.column),
        };
        for (family, list, lines) in lists {
            let name = FAMILIES.iter().find(|(of, _)| *of == family).map_or("", |(_, name)| name);
            let (used, unused): (Vec<Line>, Vec<Line>) =
                lines.into_iter().partition(|line| !line.targets.is_empty());
            proposal.unused.extend(unused.into_iter().map(|line| UnusedGrant {
                list: format!("{name}.{}", list.key),
                location: location(&line.entry),
                written: written(&line.entry),
            }));
            if !used.is_empty() {
                proposal.lists.entry((family, list.key.clone())).or_default().extend(used);
            }
        }
        let unused_servers = rules.allow.servers.iter().filter(|entry| {
            let mut used = proposal.servers.iter().filter_map(|line| line.targets.first());
            !used.any(|target| {
                entry.selector == target.server
                    || toolward_policy::fnmatch::fnmatch(&entry.selector, &target.server)
            })
        });
        let unused_servers: Vec<UnusedGrant> = unused_servers
            .map(|entry| UnusedGrant {
                list: "servers".into(),
                location: location(entry),
                written: entry.selector.clone(),
            })
            .collect();
        proposal.unused.extend(unused_servers);
        proposal.close_unused();
        proposal
    }
}

fn written(entry: &Entry) -> String {
    match &entry.when {
        Some(when) => format!("{} when {when}", entry.selector),
        None => entry.selector.clone(),
    }
}
