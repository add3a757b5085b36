//! Whether a rule can ever decide about a call, computed with the automata of the analysis.
//!
//! A rule is *shadowed* if the rules before it, together, match everything that it matches, on every server that its
//! key matches and that the agent may use. It *never matches* if there is no such server, or if the server's `expose`
//! leaves no tool for it.
//!
//! A rule without wildcards costs a few lookups in the indexes of decisions, however many rules there are. A pattern
//! is compared with all others, so the work is bounded: in a policy with too many patterns, the last ones are only
//! compared with single rules.

use std::ops::ControlFlow;

use hashbrown::HashSet;

use crate::automaton::{Automaton, Group, Wanted};
use crate::decision::Verdict;
use crate::exposure::Exposure;
use crate::fnmatch::is_pattern;
use crate::hints::{Annotations, Hints};
use crate::layer::{Agent, List, Rule};
use crate::selector::{Glob, NameForm, fold};
use crate::source::Case;
use crate::view::server_step;

/// The memory of one search, in bytes. A search that needs more finds nothing to report.
const MEMORY: usize = 2 << 20;

/// How many rules all patterns of a policy are compared with, at most.
const COMPARISONS: usize = 1_000_000;

/// How many comparisons a rule counts for that becomes part of a search.
const SEARCHED: usize = 40;

/// How much work is left.
pub(super) struct Work(usize);

impl Default for Work {
    fn default() -> Work {
        Work(COMPARISONS)
    }
}

impl Work {
    /// `None` if too little is left for this many comparisons.
    pub(super) fn spend(&mut self, comparisons: usize) -> Option<()> {
        self.0 = self.0.checked_sub(comparisons)?;
        Some(())
    }
}

/// Lists that are evaluated one after the other, with the entries of each that come before a rule.
pub(super) struct Before<'p> {
    pub(super) lists: Vec<(&'p List, Entries)>,
    pub(super) case: Case,
}

/// Which entries of a list come before a rule.
#[derive(Clone, Copy)]
pub(super) enum Entries {
    All,
    /// Exact ones.
    Exact,
    /// Exact ones, and wildcards up to this entry.
    ExactAndWildcardsTo(usize),
    /// Exact ones up to this entry.
    ExactTo(usize),
    /// All up to this entry.
    To(usize),
}

impl Entries {
    fn contains(self, entry: usize, rule: &Rule) -> bool {
        let wildcard = rule.selector.is_wildcard();
        match self {
            Entries::All => true,
            Entries::Exact => !wildcard,
            Entries::ExactAndWildcardsTo(end) => !wildcard || entry < end,
            Entries::ExactTo(end) => !wildcard && entry < end,
            Entries::To(end) => entry < end,
        }
    }
}

impl<'p> Before<'p> {
    /// The rules that always match what their selector matches.
    fn rules(&self) -> impl Iterator<Item = &'p Rule> {
        self.lists.iter().flat_map(|(list, entries)| {
            let rules = list.rules.iter().enumerate();
            let before =
                |(at, rule): &(usize, &Rule)| rule.when.is_none() && entries.contains(*at, rule);
            rules.filter(before).map(|(_, rule)| rule)
        })
    }

    /// Whether the rules before it match everything that a rule matches. `false` may also mean that it could not be
    /// found out.
    pub(super) fn cover(&self, rule: &Rule, work: &mut Work) -> bool {
        let Some(form) = rule.selector.name_form() else {
            return self.cover_hints(rule, work);
        };
        if all_claims().iter().all(|hints| self.match_hints(hints)) {
            return true;
        }
        let whole = [Some(&form.whole), form.every_action.as_ref()].into_iter().flatten();
        whole.into_iter().all(|glob| self.cover_names(glob, work))
            && form.splits.iter().all(|split| {
                self.cover_names(&split.tool, work) || self.cover_action(form, &split.tool, work)
            })
    }

    /// For a rule on hints: with every set of hints that it matches.
    fn cover_hints(&self, rule: &Rule, work: &mut Work) -> bool {
        let Some(tags) = rule.selector.tags() else { return false };
        let mut sets = all_claims().into_iter().filter_map(|claims| {
            // A tool may have any of the operator's own hints.
            let own = tags.iter().filter(|tag| !crate::hints::BUILT_IN.contains(&&***tag));
            let hints = Hints::new(claims.iter().chain(own.map(|tag| &**tag)));
            rule.selector.carried_by(&hints).then_some(hints)
        });
        sets.all(|hints| self.match_hints(&hints))
            || self.cover_names(&Glob::new("*", Case::Sensitive), work)
    }

    fn match_hints(&self, hints: &Hints) -> bool {
        self.lists.iter().any(|(list, entries)| {
            list.index.hints().iter().any(|at| {
                let rule = &list.rules[*at as usize];
                let before = entries.contains(*at as usize, rule);
                before && rule.when.is_none() && rule.selector.carried_by(hints)
            })
        })
    }

    /// Whether every name that a pattern matches is matched, whatever the action.
    fn cover_names(&self, glob: &Glob, work: &mut Work) -> bool {
        if !is_pattern(glob.text()) {
            let mut found = Vec::new();
            return self.lists.iter().any(|(list, entries)| {
                if work.spend(list.index.scanned()).is_none() {
                    return false;
                }
                found.clear();
                list.index.by_name(glob.text(), &mut found);
                found.iter().any(|at| {
                    let rule = &list.rules[*at as usize];
                    let before = entries.contains(*at as usize, rule);
                    before && rule.when.is_none() && rule.selector.names_tool(glob.text())
                })
            });
        }
        let wholes = self.rules().filter_map(|rule| rule.selector.name_form());
        let globs = wholes
            .flat_map(|form| [Some(&form.whole), form.every_action.as_ref()].into_iter().flatten());
        covered(glob, globs, self.case, work)
    }

    /// Whether every action that a rule names of a tool is named before.
    fn cover_action(&self, form: &NameForm, tool: &Glob, work: &mut Work) -> bool {
        let actions = |form: &'p NameForm| {
            let same = move |split: &&'p crate::selector::Split| split.tool.text() == tool.text();
            form.splits.iter().filter(same).map(|split| &split.action)
        };
        let mut own = form.splits.iter().filter(|split| split.tool.text() == tool.text());
        own.all(|split| {
            let forms = self.rules().filter_map(|rule| rule.selector.name_form());
            covered(&split.action, forms.flat_map(actions), self.case, work)
        })
    }
}

/// Whether other patterns, together, match everything that one of them matches.
fn covered<'g>(
    glob: &Glob,
    others: impl Iterator<Item = &'g Glob>,
    case: Case,
    work: &mut Work,
) -> bool {
    let mut names = Automaton::default();
    // That a name which is equal to a pattern matches it, too, does not make the pattern useful.
    let own = names.pattern(glob.text(), case);
    let mut avoid = Group::new();
    for other in others {
        let meets = may_meet(glob.text(), other.text());
        if work.spend(if meets { SEARCHED } else { 1 }).is_none() {
            return false;
        }
        if meets {
            avoid.insert(names.pattern(other.text(), case));
        }
    }
    if avoid.contains(&own) {
        return true;
    }
    let groups = [Group::from_iter([own])];
    let wanted = Wanted { groups: &groups, avoid: &avoid };
    let found = names.seek(&names.start(), MEMORY, &wanted, |_| ControlFlow::Break(()));
    matches!(found, Ok((None, _)))
}

/// Whether two patterns may have a name in common, by what they begin with.
fn may_meet(one: &str, other: &str) -> bool {
    let literal = |text: &str| text.find(['*', '?', '[']).unwrap_or(text.len());
    let shared = literal(one).min(literal(other));
    one.as_bytes()[..shared] == other.as_bytes()[..shared]
}

/// Every set of hints that annotations can lead to.
fn all_claims() -> Vec<Hints> {
    let mut all = Vec::new();
    for (read_only, destructive) in [(None, None), (Some(true), None), (None, Some(false))] {
        for idempotent in [None, Some(true)] {
            for open_world in [None, Some(false)] {
                all.push(Annotations { read_only, destructive, idempotent, open_world }.hints());
            }
        }
    }
    all
}

/// Servers of an agent, one of each class that its rules distinguish, which it may use; `None` if there are too many.
pub(super) fn servers(agent: &Agent, at: u32) -> Option<Vec<String>> {
    let mut names = Automaton::default();
    for side in [&agent.deny, &agent.allow] {
        for rule in &side.servers {
            match rule.selector.name_form() {
                Some(form) => names.glob(&form.whole, agent.case),
                None => [names.literal(rule.selector.written(), Case::Sensitive); 2],
            };
        }
        for list in &side.tools {
            names.glob(&list.key, agent.case);
        }
    }
    let mut seen: HashSet<Vec<u32>> = HashSet::new();
    let mut found = Vec::new();
    let explored = names.explore(
        names.start(),
        MEMORY,
        |_| true,
        |state, text| {
            let name = text();
            let usable = || {
                let server = fold(&name, agent.case);
                server_step(agent, at, &server).verdict != Verdict::Deny
            };
            if seen.insert(names.matched(state).collect()) && !name.is_empty() && usable() {
                found.push(name);
            }
            ControlFlow::<()>::Continue(())
        },
    );
    explored.is_ok().then_some(found)
}

/// Whether some exposed tool can match a rule on names.
pub(super) fn is_exposed(rule: &Rule, case: Case, exposure: &Exposure, work: &mut Work) -> bool {
    let Some(form) = rule.selector.name_form() else { return true };
    let whole = [Some(&form.whole), form.every_action.as_ref()].into_iter().flatten();
    let mut globs = whole.chain(form.splits.iter().map(|split| &split.tool));
    globs.any(|glob| {
        let mut names = Automaton::default();
        let own: Group = names.glob(glob, case).into_iter().collect();
        let mut exposed = Group::new();
        for other in exposure.patterns() {
            exposed.extend(names.glob(other, Case::Sensitive));
        }
        for name in exposure.names().filter(|name| exposure.show(name).is_some()) {
            exposed.insert(names.literal(name, Case::Sensitive));
        }
        if work.spend(exposed.len()).is_none() {
            return true;
        }
        let groups = [own, exposed];
        let none = Group::new();
        let wanted = Wanted { groups: &groups, avoid: &none };
        let found =
            names.seek(&names.start(), MEMORY, &wanted, |name| match exposure.show(&name) {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            });
        !matches!(found, Ok((None, _)))
    })
}
