//! The actions of a tool that are allowed, where its schema does not list them.

use super::{Cell, Inner};
use crate::call::{Call, Caller};
use crate::condition::{Condition, Facts};
use crate::decision::Verdict;
use crate::fnmatch::{Pattern, is_pattern};
use crate::selector::{Glob, fold};
use crate::view::{Candidate, LayerCell, Program};

impl Cell {
    /// The allowed actions of a tool whose schema does not list them: the patterns of the first
    /// layer that allows by action alone, without those that another layer denies. `None` if the
    /// tool's actions are not restricted like this.
    pub fn allowed_actions(&self, caller: Caller<'_>) -> Option<Vec<String>> {
        let Inner::Open(open) = &self.0 else { return None };
        let facts = open.facts(caller, &Call::default());
        let programs = || {
            open.layers.iter().filter_map(|layer| match layer {
                LayerCell::Program(program) => Some(program),
                LayerCell::Fixed(_) => None,
            })
        };
        let mut allows = programs().filter(|program| program.names_action).filter_map(|program| {
            let allows = || {
                let candidates = program.candidates.iter();
                candidates.filter(|one| one.answer.verdict != Verdict::Deny)
            };
            let narrow = program.end.verdict == Verdict::Deny && !allows().any(|one| one.by_name);
            narrow.then(|| allows().flat_map(|one| one.actions.iter()).collect::<Vec<_>>())
        });
        let mut actions: Vec<String> = Vec::new();
        for glob in allows.next()? {
            let denied = programs().any(|program| program.denies_all_of(glob.text(), facts));
            if !denied && !actions.iter().any(|known| known == glob.text()) {
                actions.push(glob.text().into());
            }
        }
        Some(actions)
    }
}

impl Program {
    /// Whether every call with an action that this name or pattern covers is denied, whatever its arguments.
    /// If it cannot be determined for two patterns, it counts as not denied.
    fn denies_all_of<'a>(&'a self, actions: &'a str, facts: Facts<'a>) -> bool {
        if !is_pattern(actions) {
            return self.walk(Some(actions), facts).verdict == Verdict::Deny;
        }
        let folded = fold(actions, self.case);
        for candidate in &self.candidates {
            let open = |when: &Condition| when.is_open_in_listing(facts.caller, false);
            let unknown = candidate.when.as_deref().is_some_and(open);
            if !unknown && !candidate.condition_holds(&facts) {
                continue;
            }
            if candidate.answer.verdict != Verdict::Deny {
                let within = Pattern::new(&folded);
                let overlaps = |glob: &Glob| glob.matches(&folded) || within.matches(glob.text());
                if candidate.by_name || candidate.actions.iter().any(overlaps) {
                    return false;
                }
            } else if !unknown && (candidate.by_name || candidate.contains_all_of(&folded)) {
                return true;
            }
        }
        self.end.verdict == Verdict::Deny
    }
}

impl Candidate {
    /// Whether one of the entry's patterns covers everything that another pattern does. A pattern whose only
    /// wildcard is `*` does if it matches the other one's text.
    fn contains_all_of(&self, pattern: &str) -> bool {
        let only_stars = |glob: &&Glob| !glob.text().contains(['?', '[']);
        let equal = self.actions.iter().any(|glob| glob.equals(pattern));
        equal || self.actions.iter().filter(only_stars).any(|glob| glob.matches(pattern))
    }
}
