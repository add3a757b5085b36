//! Where a search has to look: the entries without which two policies, or a question, cannot differ.

use std::rc::Rc;

use hashbrown::HashMap;

use super::applied::Applied;
use crate::decision::{Kind, Verdict};
use crate::layer::{Agent, Allowlist, Layer, List, Rule, Rules};
use crate::policy::Policy;
use crate::selector::fold;
use crate::source::{Ask, Case};
use crate::view::{narrows_tools, server_step};

/// The subjects of an agent on a server that matter.
pub(super) enum Focus<'p> {
    Nothing,
    Everything,
    /// Only subjects that one of these entries matches.
    Entries(Vec<Focused<'p>>),
}

/// An entry, and how it is compared.
#[derive(Clone)]
pub(super) struct Focused<'p> {
    pub(super) rule: &'p Rule,
    pub(super) case: Case,
    /// It also matches `SERVER.NAME`.
    pub(super) qualified: bool,
    pub(super) deny: bool,
    /// Entries of the list without this one, with which the subject is decided alike, with or without it.
    pub(super) same: Rc<[&'p Rule]>,
    /// Whether the change of the entry can only make the policy wider, or only narrower; `None`: both.
    pub(super) wider: Option<bool>,
}

impl<'p> Focused<'p> {
    pub(super) fn applied(&self) -> Applied<'p> {
        let Focused { rule, case, qualified, deny, .. } = *self;
        Applied { rule, case, qualified, deny }
    }
}

/// Subjects for which two policies can differ. A subject that matches no changed entry meets the same entries
/// in the same order in both; that is enough unless something else changed, which is looked at as a whole.
pub(super) fn changed<'p>(
    old: &'p Policy,
    new: &'p Policy,
    agent: Option<&str>,
    server: &str,
    kind: Kind,
) -> Focus<'p> {
    if old.layers.len() != new.layers.len()
        || old.approvers != new.approvers
        || (kind == Kind::Tools && old.server(server) != new.server(server))
        || old.server(server).exposure_of(kind) != new.server(server).exposure_of(kind)
    {
        return Focus::Everything;
    }
    let mut changed = Vec::new();
    for (one, other) in old.layers.iter().zip(&new.layers) {
        match in_layer(one, other, agent, server, kind) {
            Layered::Denied => return Focus::Nothing,
            Layered::Different => return Focus::Everything,
            Layered::Entries(entries) => changed.extend(entries),
        }
    }
    match changed.is_empty() {
        true => Focus::Nothing,
        false => Focus::Entries(changed),
    }
}

enum Layered<'p> {
    /// Both deny everything here.
    Denied,
    Different,
    Entries(Vec<Focused<'p>>),
}

fn in_layer<'p>(
    old: &'p Layer,
    new: &'p Layer,
    agent: Option<&str>,
    server: &str,
    kind: Kind,
) -> Layered<'p> {
    match (&old.rules, &new.rules) {
        (Rules::ReadOnly, Rules::ReadOnly) => Layered::Entries(Vec::new()),
        (Rules::Allowlist(one), Rules::Allowlist(other)) => in_allowlist(one, other, kind),
        (Rules::Agents(one), Rules::Agents(other)) => {
            let (one_at, other_at) = match (one.agent(agent), other.agent(agent)) {
                (None, None) => return Layered::Denied,
                (Some(one), Some(other)) => (one, other),
                _ => return Layered::Different,
            };
            let (one, other) = (&one.agents[one_at as usize], &other.agents[other_at as usize]);
            let steps = [(one, one_at), (other, other_at)]
                .map(|(agent, at)| server_step(agent, at, &fold(server, agent.case)).verdict);
            match steps {
                [Verdict::Deny, Verdict::Deny] => Layered::Denied,
                [one_step, other_step] if one_step != other_step => Layered::Different,
                _ => of_agent(one, other, server, kind),
            }
        }
        _ => Layered::Different,
    }
}

fn of_agent<'p>(one: &'p Agent, other: &'p Agent, server: &str, kind: Kind) -> Layered<'p> {
    let server = fold(server, one.case);
    let grants = |agent: &Agent| {
        let lists = agent.allow.of(kind).iter();
        let mut lists = lists.filter(|list| list.key.matches(&server));
        (lists.any(|list| !list.rules.is_empty()), narrows_tools(agent, &server))
    };
    if one.case != other.case || grants(one) != grants(other) {
        return Layered::Different;
    }
    let applied = |lists: &'p [std::sync::Arc<List>]| -> Vec<&'p Rule> {
        let lists = lists.iter().filter(|list| list.key.matches(&server));
        lists.flat_map(|list| &list.rules).collect()
    };
    let mut changed = Vec::new();
    for (one_side, other_side, is_deny) in
        [(&one.deny, &other.deny, true), (&one.allow, &other.allow, false)]
    {
        let (before, after) = (applied(one_side.of(kind)), applied(other_side.of(kind)));
        let how = Compared { case: one.case, qualified: false, kind, deny: is_deny };
        let Some(entries) = entries(&before, &after, how) else {
            return Layered::Different;
        };
        changed.extend(entries);
    }
    Layered::Entries(changed)
}

fn in_allowlist<'p>(one: &'p Allowlist, other: &'p Allowlist, kind: Kind) -> Layered<'p> {
    if one.case != other.case || one.everything.is_some() != other.everything.is_some() {
        return Layered::Different;
    }
    let rules = |list: Option<&'p List>| list.map(|list| list.rules.iter().collect::<Vec<_>>());
    match (rules(one.of(kind)), rules(other.of(kind))) {
        (None, None) => Layered::Entries(Vec::new()),
        (Some(before), Some(after)) => {
            let how = Compared { case: one.case, qualified: true, kind, deny: false };
            entries(&before, &after, how).map_or(Layered::Different, Layered::Entries)
        }
        _ => Layered::Different,
    }
}

/// How two lists are compared.
struct Compared {
    case: Case,
    qualified: bool,
    kind: Kind,
    deny: bool,
}

/// The entries that only one of two lists has. `None` if more than the subjects that they match may be
/// decided differently.
fn entries<'p>(before: &[&'p Rule], after: &[&'p Rule], how: Compared) -> Option<Vec<Focused<'p>>> {
    let same = before.len() == after.len()
        && before.iter().zip(after).all(|(one, other)| key(one) == key(other));
    if same {
        return Some(Vec::new());
    }
    // An entry whose condition reads `action` makes every call's action looked for.
    let reads_action = |rules: &[&Rule]| {
        rules.iter().any(|rule| rule.when.as_ref().is_some_and(|when| when.reads().action))
    };
    if how.kind == Kind::Tools && reads_action(before) != reads_action(after) {
        return None;
    }
    let asks = before.iter().chain(after).any(|rule| rule.ask.is_some());
    let changed = match asks {
        // The first matching entry decides.
        true => moved(before, after),
        false => added_and_removed(before, after, how.deny),
    };
    // An entry that names an action of a tool also decides whether the action of the tool's calls is looked for, so
    // it may do both, and the other entries do not settle it.
    let acts = |rule: &Rule| {
        let form = rule.selector.name_form().filter(|_| how.kind == Kind::Tools);
        form.is_some_and(|form| !form.splits.is_empty())
    };
    let always = |rules: &[&'p Rule]| -> Rc<[&'p Rule]> {
        rules.iter().copied().filter(|rule| rule.when.is_none()).collect()
    };
    let (before, after, none) = (always(before), always(after), Rc::default());
    let Compared { case, qualified, deny, .. } = how;
    let focused = |(rule, wider): (&'p Rule, Option<bool>)| {
        // An allow that was added, or a deny that was removed, makes the policy wider.
        let (wider, same) = match wider.filter(|_| !acts(rule)) {
            None => (None, &none),
            Some(wider) if wider != deny => (Some(wider), &before),
            Some(wider) => (Some(wider), &after),
        };
        Focused { rule, case, qualified, deny, same: same.clone(), wider }
    };
    Some(changed.into_iter().map(focused).collect())
}

/// Entries with the direction in which each of them changes the policy.
type Changed<'p> = Vec<(&'p Rule, Option<bool>)>;

/// The entries that only one of two lists has.
fn added_and_removed<'p>(before: &[&'p Rule], after: &[&'p Rule], deny: bool) -> Changed<'p> {
    let mut counts: HashMap<_, (usize, usize, &'p Rule)> = HashMap::new();
    for rule in before {
        counts.entry(key(rule)).or_insert((0, 0, *rule)).0 += 1;
    }
    for rule in after {
        counts.entry(key(rule)).or_insert((0, 0, *rule)).1 += 1;
    }
    // An entry that is written twice has the same effect as one. More allows and fewer denies make a policy wider.
    let only_one = counts.into_values().filter(|(before, after, _)| *before == 0 || *after == 0);
    let mut changed: Changed<'p> =
        only_one.map(|(_, after, rule)| (rule, Some((after > 0) != deny))).collect();
    // The order of a hash map is not the same in every run.
    let order = |rule: &Rule| (rule.place.line, rule.place.column);
    changed.sort_by_key(|(rule, _)| (order(rule), rule.selector.written()));
    changed
}

/// The entries that are added, removed or moved. A subject that matches none of them meets the same entries in the
/// same order.
fn moved<'p>(before: &[&'p Rule], after: &[&'p Rule]) -> Changed<'p> {
    // Entries that are written once in both, by their places: the longest part of them that is in order stays.
    let mut places: HashMap<_, (Vec<usize>, Vec<usize>)> = HashMap::new();
    for (at, rule) in before.iter().enumerate() {
        places.entry(key(rule)).or_default().0.push(at);
    }
    for (at, rule) in after.iter().enumerate() {
        places.entry(key(rule)).or_default().1.push(at);
    }
    let mut once: Vec<(usize, usize)> = places
        .into_values()
        .filter_map(|places| match (&*places.0, &*places.1) {
            ([one], [other]) => Some((*one, *other)),
            _ => None,
        })
        .collect();
    once.sort_unstable();
    let kept = longest_in_order(&once);
    let (mut stays_before, mut stays_after) = (vec![false; before.len()], vec![false; after.len()]);
    for (one, other) in kept {
        stays_before[one] = true;
        stays_after[other] = true;
    }
    let gone = before.iter().zip(stays_before).filter(|(_, stays)| !stays);
    let new = after.iter().zip(stays_after).filter(|(_, stays)| !stays);
    gone.chain(new).map(|(rule, _)| (*rule, None)).collect()
}

/// The longest part of pairs, sorted by their first number, in which the second ones increase too.
fn longest_in_order(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // For each length, the pair that ends a part of that length with the smallest number; and the pair before each.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = vec![None; pairs.len()];
    for (at, (_, place)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].1 < *place);
        before[at] = length.checked_sub(1).map(|shorter| ends[shorter]);
        match ends.get_mut(length) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut kept = Vec::new();
    let mut next = ends.last().copied();
    while let Some(at) = next {
        kept.push(pairs[at]);
        next = before[at];
    }
    kept
}

/// The effect of an entry: equal keys have equal effects.
fn key(rule: &Rule) -> (&str, Option<&str>, Option<&Ask>) {
    (rule.selector.written(), rule.when.as_ref().map(|when| when.source()), rule.ask.as_deref())
}

/// Subjects that a policy can allow: those that an allowing entry of some layer matches.
pub(super) fn granted<'p>(
    policy: &'p Policy,
    agent: Option<&str>,
    server: &str,
    kind: Kind,
) -> Focus<'p> {
    let mut fewest: Option<Vec<Focused<'p>>> = None;
    for layer in &policy.layers {
        let entries: Vec<Focused<'p>> = match &layer.rules {
            Rules::ReadOnly => continue,
            Rules::Allowlist(list) => match list.of(kind) {
                Some(rules) => focused(rules.rules.iter(), list.case, true),
                None if list.everything.is_some() => continue,
                None => return Focus::Nothing,
            },
            Rules::Agents(layer) => {
                let Some(at) = layer.agent(agent) else { return Focus::Nothing };
                let agent = &layer.agents[at as usize];
                let server = fold(server, agent.case);
                if server_step(agent, at, &server).verdict == Verdict::Deny {
                    return Focus::Nothing;
                }
                let lists = agent.allow.of(kind).iter().filter(|list| list.key.matches(&server));
                let rules = lists.flat_map(|list| &list.rules);
                let entries = focused(rules, agent.case, false);
                let implicit =
                    entries.is_empty() && (kind == Kind::Tools || !narrows_tools(agent, &server));
                if implicit {
                    continue;
                }
                entries
            }
        };
        if entries.is_empty() {
            return Focus::Nothing;
        }
        if fewest.as_ref().is_none_or(|known| entries.len() < known.len()) {
            fewest = Some(entries);
        }
    }
    fewest.map_or(Focus::Everything, Focus::Entries)
}

fn focused<'p>(
    rules: impl Iterator<Item = &'p Rule>,
    case: Case,
    qualified: bool,
) -> Vec<Focused<'p>> {
    let same: Rc<[&'p Rule]> = Rc::default();
    let entry = |rule| {
        let same = same.clone();
        Focused { rule, case, qualified, deny: false, same, wider: None }
    };
    rules.map(entry).collect()
}
