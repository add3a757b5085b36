//! A proposed policy for one agent.

use std::collections::BTreeMap;

use toolward_config::escape_pattern;
use toolward_policy::Family;
use toolward_policy::fnmatch::fnmatch;
use toolward_policy::source::{Case, Entry, KeyedList, SideSource};

use super::current::{CurrentPolicy, Standing};
use super::seen::{SeenCalls, Target, Uses};

/// The longest selector that a policy may contain.
const MAX_SELECTOR_BYTES: usize = 2048;
/// Hints for which a person should look at a line.
const ATTENTION: [&str; 2] = ["destructive", "open-world"];

/// A policy for one agent, line by line.
#[derive(Default)]
pub(super) struct Proposal {
    pub(super) case: Case,
    pub(super) servers: Vec<Line>,
    pub(super) lists: BTreeMap<(Family, String), Vec<Line>>,
    pub(super) client_requests: Option<Vec<String>>,
    pub(super) deny: SideSource,
    /// Entries of `deny` that keep unused parts of used servers closed.
    pub(super) closed: Vec<(Family, String)>,
    /// Current grants that no call needed.
    pub(super) unused: Vec<UnusedGrant>,
    /// Calls that are not covered, and why.
    pub(super) uncovered: Vec<Uncovered>,
    /// Targets that the current policy denies by a rule.
    pub(super) denied: Vec<Target>,
}

/// One entry, and the calls that it covers.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) entry: Entry,
    pub(super) uses: Uses,
    /// The targets of these calls.
    pub(super) targets: Vec<Target>,
    /// Hints that a person should look at; `None`: the tool's hints are not known.
    pub(super) attention: Option<Vec<String>>,
    /// The line allows calls that the current policy refuses.
    pub(super) is_new: bool,
}

/// A grant that no call needed.
#[derive(Debug)]
pub(super) struct UnusedGrant {
    /// `tools.tracker`, or `servers`.
    pub(super) list: String,
    pub(super) written: String,
    pub(super) location: String,
}

/// Recorded calls that the proposal does not cover.
#[derive(Debug)]
pub(super) struct Uncovered {
    pub(super) target: Target,
    pub(super) calls: u64,
    pub(super) why: String,
}

impl Line {
    pub(super) fn new(entry: Entry) -> Line {
        Line {
            entry,
            uses: Uses::default(),
            targets: Vec::new(),
            attention: Some(Vec::new()),
            is_new: false,
        }
    }

    /// Adds the calls of a target.
    pub(super) fn cover(&mut self, target: &Target, uses: &Uses, attention: Option<Vec<String>>) {
        self.uses.add(uses);
        self.targets.push(target.clone());
        self.attention = match (self.attention.take(), attention) {
            (Some(mut known), Some(more)) => {
                known.extend(more);
                known.sort();
                known.dedup();
                Some(known)
            }
            _ => None,
        };
    }

    /// Whether it has no condition or option.
    pub(super) fn is_plain(&self) -> bool {
        let Entry { when, scope, ask, limit, .. } = &self.entry;
        when.is_none() && scope.is_none() && ask.is_none() && limit.is_none()
    }
}

/// The hints of a target that need attention; `None` if its hints are not known.
pub(super) fn attention(current: &CurrentPolicy<'_>, target: &Target) -> Option<Vec<String>> {
    if target.family != Family::Tools {
        return Some(Vec::new());
    }
    let hints = current.hints(&target.server, &target.name)?;
    let marked = ATTENTION.iter().filter(|hint| hints.contains(hint));
    Some(marked.map(|hint| hint.to_string()).collect())
}

impl Proposal {
    /// The narrowest policy for these calls: exact names, with the conditions and options of current rules.
    pub(super) fn exact(current: &CurrentPolicy<'_>, seen: &SeenCalls, refused: bool) -> Proposal {
        let mut proposal = Proposal::with_denials(current);
        for (target, uses) in &seen.uses {
            let standing = current.standing(target);
            let is_new = matches!(standing, Standing::Ungranted);
            let uncovered = |why: &str| Uncovered {
                target: target.clone(),
                calls: uses.made + uses.refused,
                why: why.into(),
            };
            let options = match standing {
                Standing::Granted(_) if uses.made == 0 => {
                    // Its arguments were refused then; the conditions stay.
                    proposal.uncovered.push(uncovered("only refused calls"));
                    continue;
                }
                Standing::Granted(options) => options,
                Standing::Ungranted if refused => Vec::new(),
                Standing::Ungranted => {
                    proposal.uncovered.push(uncovered("no rule allows it; --refused covers it"));
                    continue;
                }
                Standing::Denied(decision) => {
                    let rule = current.input.policy.rule(&decision);
                    let by = rule.map_or_else(
                        || decision.step.as_str().to_string(),
                        |rule| format!("`{}` {}", rule.written(), rule.location()),
                    );
                    proposal.uncovered.push(uncovered(&format!("denied by {by}")));
                    proposal.denied.push(target.clone());
                    continue;
                }
            };
            let Some(selector) = selector(target) else {
                proposal.uncovered.push(uncovered("no selector can name it"));
                continue;
            };
            let plain = [Entry::default()];
            let options = if options.is_empty() { &plain[..] } else { &options };
            for entry in options {
                let entry = Entry {
                    selector: selector.clone(),
                    place: Default::default(),
                    ..entry.clone()
                };
                let mut line = Line { is_new, ..Line::new(entry) };
                line.cover(target, uses, attention(current, target));
                proposal.add(target, line);
            }
            proposal.add_server(target, uses, Entry::new(escape_pattern(&target.server)));
        }
        proposal.drop_covered_actions();
        proposal.close_unused();
        proposal
    }

    /// A policy that allows nothing, and denies what the current one denies.
    pub(super) fn with_denials(current: &CurrentPolicy<'_>) -> Proposal {
        Proposal {
            case: current.case(),
            client_requests: current.client_requests().map(<[String]>::to_vec),
            deny: current.denied(),
            ..Proposal::default()
        }
    }

    fn add(&mut self, target: &Target, line: Line) {
        let key = (target.family, escape_pattern(&target.server));
        self.lists.entry(key).or_default().push(line);
    }

    pub(super) fn add_server(&mut self, target: &Target, uses: &Uses, entry: Entry) {
        let same = |line: &&mut Line| line.entry.selector == entry.selector;
        match self.servers.iter_mut().find(same) {
            Some(line) => line.cover(target, uses, Some(Vec::new())),
            None => {
                let mut line = Line::new(entry);
                line.cover(target, uses, Some(Vec::new()));
                self.servers.push(line);
            }
        }
    }

    /// A bare name covers all actions, so lines for single ones are not needed next to it.
    fn drop_covered_actions(&mut self) {
        for lines in self.lists.values_mut() {
            let bare: Vec<String> = lines
                .iter()
                .filter(|line| line.is_plain())
                .filter_map(|line| line.targets.first())
                .filter(|target| target.action.is_none())
                .map(|target| target.name.clone())
                .collect();
            let is_covered = |line: &Line| {
                let target = line.targets.first();
                target.is_some_and(|one| one.action.is_some() && bare.contains(&one.name))
            };
            let (covered, kept) = std::mem::take(lines).into_iter().partition(is_covered);
            *lines = kept;
            for line in &covered {
                let Line { targets, uses, attention, .. }: &Line = line;
                let Some(target) = targets.first() else { continue };
                let is_bare = |one: &&mut Line| {
                    let first = one.targets.first();
                    one.is_plain() && first.is_some_and(|first| first.name == target.name)
                };
                if let Some(bare) = lines.iter_mut().find(is_bare) {
                    bare.cover(target, uses, attention.clone());
                }
            }
        }
    }

    /// Denies what was not used of the servers that are allowed: a server without a list of tools would grant all of
    /// them.
    pub(super) fn close_unused(&mut self) {
        for line in &self.servers {
            let Some(server) = line.targets.first().map(|target| &target.server) else { continue };
            let has_list = |family: Family| {
                let mut lists = self.lists.iter().filter(|((of, _), _)| *of == family);
                lists.any(|((_, key), lines)| !lines.is_empty() && fnmatch(key, server))
            };
            // An implicit grant that was used stays.
            let is_used = |family: Family| line.targets.iter().any(|one| one.family == family);
            let narrowed = has_list(Family::Tools);
            for family in [Family::Tools, Family::Prompts, Family::Resources] {
                let implied = family != Family::Tools && narrowed;
                if !implied && !has_list(family) && !is_used(family) {
                    self.closed.push((family, escape_pattern(server)));
                }
            }
        }
    }

    /// Everything that is denied: by the current policy, and of servers that are only partly used.
    pub(super) fn all_denials(&self) -> SideSource {
        let mut all = self.deny.clone();
        for (family, server) in &self.closed {
            let lists = match family {
                Family::Tools => &mut all.tools,
                Family::Prompts => &mut all.prompts,
                Family::Resources => &mut all.resources,
            };
            let entries = vec![Entry::new("*")];
            lists.push(KeyedList { key: server.clone(), entries, ..KeyedList::default() });
        }
        all
    }
}

/// The selector for exactly one target; `None` if no selector can express it.
fn selector(target: &Target) -> Option<String> {
    let mut selector = escape_pattern(&target.name);
    if let Some(action) = &target.action {
        selector = format!("{selector}.{}", escape_pattern(action));
    }
    let is_whole = target.family != Family::Resources || !target.name.contains("[redacted]");
    let is_hint = selector.starts_with("hint:");
    (selector.len() <= MAX_SELECTOR_BYTES && !is_hint && is_whole).then_some(selector)
}
