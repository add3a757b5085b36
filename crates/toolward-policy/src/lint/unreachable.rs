//! Rules that can never decide: the rules before them, denied servers or `expose` leave nothing for them.

use std::cmp::Ordering;

use super::reach::{self, Before, Entries};
use super::{LintKind, Linter};
use crate::decision::{Kind, RuleRef, Side};
use crate::fnmatch::is_pattern;
use crate::layer::{Agent, List, Rule};
use crate::reason::list_name;
use crate::selector::fold;
use crate::source::Case;

impl Linter<'_> {
    /// An agent's own rules that the rules before them leave nothing for, on any server that it may use.
    pub(super) fn unreachable(&mut self, agent: &Agent, index: u32) {
        let Some(servers) = reach::servers(agent, index) else { return };
        let applies = |list: &List, server: &str| list.key.matches(&fold(server, agent.case));
        for (side, lists) in [(Side::Deny, &agent.deny), (Side::Allow, &agent.allow)] {
            for (key, list) in lists.tools.iter().enumerate() {
                if list.role.is_some() || list.rules.is_empty() {
                    continue;
                }
                let at = |entry: usize| {
                    let (kind, entry) = (Kind::Tools, entry as u32);
                    RuleRef { side, kind, agent: index, key: key as u32, entry }
                };
                let here = servers.iter().filter(|server| applies(list, server));
                // The lists that apply together, on each class of servers.
                let mut sets: Vec<[Vec<usize>; 2]> = Vec::new();
                for server in here {
                    let set = [&agent.deny, &agent.allow].map(|side| {
                        let lists = side.tools.iter().enumerate();
                        lists.filter(|(_, list)| applies(list, server)).map(|(at, _)| at).collect()
                    });
                    if !sets.contains(&set) {
                        sets.push(set);
                    }
                }
                if sets.is_empty() {
                    if is_pattern(&list.key_written) {
                        let message = format!(
                            "agent `{}` may not use any server that `{}` matches, so these rules never apply",
                            agent.name, list.key_written
                        );
                        self.push(LintKind::NeverMatches, at(0), message, None);
                    }
                    continue;
                }
                for (entry, rule) in list.rules.iter().enumerate() {
                    if self.flagged.contains(&at(entry))
                        || self.hidden(list, rule, agent.case, at(entry))
                    {
                        continue;
                    }
                    let exact = !rule.selector.is_wildcard();
                    let before = |set: &[Vec<usize>; 2], denies_only: bool| {
                        let own = if side == Side::Deny { 0 } else { 1 };
                        let mut lists = Vec::new();
                        for (group, side) in [&agent.deny, &agent.allow].into_iter().enumerate() {
                            for other in &set[group] {
                                let entries = match other.cmp(&key) {
                                    _ if group < own => Entries::All,
                                    _ if group > own || denies_only => continue,
                                    Ordering::Less if exact => Entries::Exact,
                                    Ordering::Less => Entries::All,
                                    Ordering::Equal if exact => Entries::ExactTo(entry),
                                    Ordering::Equal => Entries::ExactAndWildcardsTo(entry),
                                    Ordering::Greater if exact => continue,
                                    Ordering::Greater => Entries::Exact,
                                };
                                lists.push((&*side.tools[*other], entries));
                            }
                        }
                        Before { lists, case: agent.case }
                    };
                    let text = rule.selector.written();
                    let denied = side == Side::Allow
                        && sets.iter().all(|set| before(set, true).cover(rule, self.work));
                    if denied {
                        let message = format!(
                            "`{text}` allows nothing: entries in {} cover it together, and deny wins",
                            list_name(Side::Deny, Kind::Tools)
                        );
                        self.push(LintKind::Shadowed, at(entry), message, None);
                    } else if sets.iter().all(|set| before(set, false).cover(rule, self.work)) {
                        let message = together(text);
                        self.push(LintKind::Shadowed, at(entry), message, None);
                    }
                }
            }
        }
    }

    /// Entries of an allowlist that the entries before them leave nothing for.
    pub(super) fn unreachable_in_allowlist(
        &mut self,
        list: &List,
        case: Case,
        at: &dyn Fn(u32) -> RuleRef,
    ) {
        for (entry, rule) in list.rules.iter().enumerate() {
            let address = at(entry as u32);
            let before = Before { lists: vec![(list, Entries::To(entry))], case };
            if !self.flagged.contains(&address) && before.cover(rule, self.work) {
                self.push(LintKind::Shadowed, address, together(rule.selector.written()), None);
            }
        }
    }

    /// Rules for a server whose `expose` leaves no tool that they match.
    fn hidden(&mut self, list: &List, rule: &Rule, case: Case, at: RuleRef) -> bool {
        let Some(exposure) = self.policy.exposure(&list.key_written) else { return false };
        let exact = !is_pattern(&list.key_written);
        let hidden = exact && !reach::is_exposed(rule, case, exposure, self.work);
        if hidden {
            let message = format!(
                "`{}` matches no tool that `expose` of the server `{}` exposes",
                rule.selector.written(),
                list.key_written
            );
            self.push(LintKind::NeverMatches, at, message, None);
        }
        hidden
    }
}

fn together(text: &str) -> String {
    format!("`{text}` is never reached: the entries before it cover everything that it matches")
}
