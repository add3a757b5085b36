//! Every way in which policies can treat the tools, prompts and resources of a server for an agent.
//!
//! For each class of names, the engine itself decides about one name, with every set of hints, every way to
//! name an action and all arguments that conditions distinguish. So there is no second meaning of a policy
//! here: only the classes are computed.

use std::ops::ControlFlow;

use hashbrown::HashSet;

use super::applied::Applied;
use super::focus::{Focus, Focused};
use super::language::{Language, after_server, may_follow, only_name};
use super::patterns::{Overview, Patterns, granting, name_globs, sorted};
use super::search::{Asked, Search, Visit, WhyUndecided};
use super::ways::Ways;
use crate::automaton::{Group, State, Wanted, shortest_match};
use crate::decision::Kind;
use crate::hints::Annotations;
use crate::policy::{Policy, Subject};
use crate::selector::{Glob, Selector};
use crate::source::Case;
use crate::tool::Tool;

/// Why a search failed, and whether nothing that it looked for could be wider.
pub(super) type Failed = (WhyUndecided, bool);

/// URIs that are not changed by normalization, or at least many of them.
const URIS: &str = "[a-z]*:?*";

impl Search<'_> {
    /// Visits the points of one kind of an agent on a server.
    pub(super) fn subjects(
        &self,
        kind: Kind,
        asked: &Asked<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Failed> {
        if matches!(asked.focus, Focus::Nothing) {
            return Ok(ControlFlow::Continue(()));
        }
        if kind == Kind::ClientRequests {
            return Ok(self.client_requests(asked, visit));
        }
        let overview = Overview::new(self, kind, asked);
        let claims = self.annotations(kind, &overview, asked);
        if claims.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let looks = Looks { search: self, overview, kind, asked, uris: false };
        if kind == Kind::Resources {
            // A name that is no URI belongs to a template at most: an example that can be read comes first.
            let uris = Looks { uris: true, ..looks };
            let found = uris.all(&claims, visit);
            if matches!(found, Ok(ControlFlow::Break(()))) && asked.stops {
                return found;
            }
            return Looks { uris: false, ..uris }.all(&claims, visit);
        }
        looks.all(&claims, visit)
    }

    /// Claims of a server that lead to every set of hints that rules distinguish.
    fn annotations(&self, kind: Kind, overview: &Overview, asked: &Asked<'_>) -> Vec<Annotations> {
        if kind != Kind::Tools {
            return vec![Annotations::default()];
        }
        let mut seen: Vec<Vec<bool>> = Vec::new();
        let mut found = Vec::new();
        let asked_tags = asked.only.and_then(Selector::tags).unwrap_or_default();
        for (read_only, destructive) in [(None, None), (Some(true), None), (None, Some(false))] {
            for idempotent in [None, Some(true)] {
                for open_world in [None, Some(false)] {
                    let claims = Annotations { read_only, destructive, idempotent, open_world };
                    let hints = claims.hints();
                    let denies = |tags: &Vec<Box<[Box<str>]>>| {
                        tags.iter().any(|tags| tags.iter().all(|tag| hints.contains(tag)))
                    };
                    let trusted = self.policies.iter().all(|policy| {
                        policy.hints(asked.server, &Tool::named("").with_annotations(claims))
                            == hints
                    });
                    let certain = !self.states_hints(asked) && trusted && asked.skips_denied;
                    if certain && overview.denied_tags.iter().all(denies) {
                        continue;
                    }
                    // A question about hints is about tools that have them.
                    let is_asked = asked_tags.iter().all(|tag| hints.contains(tag));
                    if certain && !is_asked {
                        continue;
                    }
                    let tags = overview.tags.iter().chain(asked_tags);
                    let carried: Vec<bool> = match overview.reads_hints {
                        true => {
                            crate::hints::BUILT_IN.iter().map(|tag| hints.contains(tag)).collect()
                        }
                        false => tags.map(|tag| hints.contains(tag)).collect(),
                    };
                    if !seen.contains(&carried) {
                        seen.push(carried);
                        found.push(claims);
                    }
                }
            }
        }
        found
    }

    /// Hints that the operator sets depend on the name, so they do not tell names apart beforehand.
    fn states_hints(&self, asked: &Asked<'_>) -> bool {
        self.policies.iter().any(|policy| policy.server(asked.server).states_hints())
    }
}

/// The scope of one search.
struct Looks<'a> {
    search: &'a Search<'a>,
    overview: Overview,
    kind: Kind,
    asked: &'a Asked<'a>,
    /// Only names that are URIs.
    uris: bool,
}

/// The classes of names that one part of a search has to visit.
struct Classes<'a> {
    patterns: Patterns,
    /// The state before the first character.
    start: State,
    /// A name must match one pattern of each.
    groups: Vec<Group>,
    /// Actions, one of each class.
    texts: Vec<String>,
    claims: &'a [Annotations],
    wider: Option<bool>,
}

impl Looks<'_> {
    fn all(
        &self,
        claims: &[Annotations],
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Failed> {
        let Focus::Entries(entries) = &self.asked.focus else {
            let classes = self.classes(Language::default(), None, claims, None);
            let found = classes.and_then(|classes| self.names(&classes, visit));
            return found.map_err(|why| (why, false));
        };
        let stated = self.search.states_hints(self.asked);
        let mut failed: Vec<Failed> = Vec::new();
        for entry in entries {
            let answered = self.asked.answered.filter(|_| self.kind == Kind::Tools);
            if answered
                .is_some_and(|known| known.borrow().contains(&std::ptr::from_ref(entry.rule)))
            {
                continue;
            }
            // Claims with which an entry on hints matches whatever the name is.
            let by_hints = |claims: &Annotations| {
                let hints = claims.hints();
                let carried = |tags: &[Box<str>]| tags.iter().all(|tag| hints.contains(tag));
                entry.rule.selector.tags().is_some_and(|tags| stated || carried(tags))
            };
            let found = match entry.rule.selector.tags() {
                None => self.entry(entry, claims, visit),
                Some(_) => {
                    let claims: Vec<Annotations> =
                        claims.iter().copied().filter(by_hints).collect();
                    self.entry(entry, &claims, visit)
                }
            };
            match found {
                Ok(ControlFlow::Break(())) if self.asked.stops => {
                    return Ok(ControlFlow::Break(()));
                }
                Ok(ControlFlow::Break(())) => {
                    if let Some(answered) = answered {
                        answered.borrow_mut().insert(std::ptr::from_ref(entry.rule));
                    }
                }
                Ok(ControlFlow::Continue(())) => {}
                Err(why) => failed.push((why, entry.wider == Some(false))),
            }
        }
        // Reports first what may be wider.
        failed.sort_by_key(|(_, narrower_only)| *narrower_only);
        match failed.into_iter().next() {
            Some(failed) => Err(failed),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    /// Searches the names that an entry matches: first those that no other rule decides alike, then, if these
    /// do not answer the question, all of them.
    fn entry(
        &self,
        entry: &Focused<'_>,
        claims: &[Annotations],
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, WhyUndecided> {
        if claims.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let own = entry.applied();
        if let Some(names) = self.only_names(&own) {
            return self.visit_each(&names, claims, entry.wider, visit);
        }
        let mut language = Language::default();
        self.narrow(&mut language, &own);
        // An entry that matches nothing of what the question is about is not searched.
        let asked = self.asked.only.and_then(name_globs);
        if asked.is_some_and(|globs| !globs.into_iter().any(|glob| language.meets(glob, None))) {
            return Ok(ControlFlow::Continue(()));
        }
        // The shortest name that the entry matches is nearly always an answer.
        if let Some(name) = self.shortest(&own)
            && self.visit_each(&[name], claims, entry.wider, visit)?.is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
        // A deny matters only for names that the policy without it allows. One allowing pattern at a time keeps
        // the search small.
        let lenient = match entry.wider.filter(|_| entry.deny && self.asked.skips_denied) {
            Some(true) => self.search.policies.last(),
            Some(false) => self.search.policies.first(),
            None => None,
        };
        let granting = lenient.and_then(|policy| granting(policy, self.kind, self.asked));
        let mut classes = self.classes(language, Some(&own), claims, entry.wider)?;
        let avoid = self.avoided(&classes, entry);
        let Some(granting) = granting else {
            return self.seek(&classes, &avoid, visit);
        };
        let mut numbers: HashSet<u32> = HashSet::new();
        for rule in &granting {
            let found = classes.patterns.of_rule(rule, self.kind);
            match self.only_names(rule).filter(|_| !found.is_empty()) {
                Some(names) => {
                    if self.visit_each(&names, claims, entry.wider, visit)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                None => numbers.extend(found),
            }
        }
        for number in sorted(numbers.into_iter()) {
            if avoid.contains(&number) {
                continue;
            }
            classes.groups.push([number].into_iter().collect());
            let found = self.seek(&classes, &avoid, visit)?;
            classes.groups.pop();
            if found.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The shortest name that an entry matches, unless `SERVER.NAME` may match with a shorter one.
    fn shortest(&self, applied: &Applied<'_>) -> Option<String> {
        let server = self.asked.server;
        let globs = name_globs(&applied.rule.selector)?;
        let after = |glob: &&Glob| applied.qualified && may_follow(glob, server);
        if self.asked.only.is_some() || globs.iter().any(after) {
            return None;
        }
        globs.iter().map(|glob| shortest_match(glob.text())).min_by_key(String::len)
    }

    /// Patterns with which a name is decided alike by all policies, whatever the entry does.
    fn avoided(&self, classes: &Classes<'_>, entry: &Focused<'_>) -> Group {
        let patterns = &classes.patterns;
        let mut avoid = Group::new();
        if self.asked.skips_denied
            && let Some((first, others)) = patterns.denying.split_first()
        {
            let denied = |number: &&u32| others.iter().all(|own| own.binary_search(number).is_ok());
            avoid.extend(first.iter().filter(denied));
        }
        for rule in entry.same.iter() {
            avoid.extend(patterns.whole(rule, entry.case, entry.qualified));
        }
        // The entry itself is not avoided because another one has the same pattern.
        avoid.retain(|number| !classes.groups.iter().any(|group| group.contains(number)));
        avoid
    }

    /// The names that a rule can match, if they are few: it has no wildcard.
    fn only_names(&self, applied: &Applied<'_>) -> Option<Vec<String>> {
        let Applied { rule, case, qualified, .. } = *applied;
        let mut names = Vec::new();
        for glob in name_globs(&rule.selector)? {
            let name = only_name(glob, case, self.overview.folds_all)?;
            let after = after_server(name, case, self.asked.server).filter(|_| qualified);
            names.extend([Some(name), after].into_iter().flatten().map(String::from));
        }
        names.sort();
        names.dedup();
        Some(names)
    }

    fn narrow<'r>(&self, language: &mut Language<'r>, applied: &Applied<'r>) {
        if let Some(globs) = name_globs(&applied.rule.selector) {
            language.narrow(globs.into_iter(), applied.qualified.then_some(self.asked.server));
        }
    }

    /// The classes of the names of a language that an entry matches.
    fn classes<'s, 'a>(
        &'s self,
        mut language: Language<'s>,
        entry: Option<&Applied<'_>>,
        claims: &'a [Annotations],
        wider: Option<bool>,
    ) -> Result<Classes<'a>, WhyUndecided> {
        if let Some(globs) = self.asked.only.and_then(name_globs) {
            language.narrow(globs.into_iter(), None);
        }
        let mut patterns = Patterns::new(self.search, self.kind, self.asked, &language);
        let mut groups: Vec<Group> = Vec::new();
        if let Some(entry) = entry.filter(|entry| entry.rule.selector.tags().is_none()) {
            groups.push(patterns.of_rule(entry, self.kind).into_iter().collect());
        }
        groups.extend(self.asked.only.map(|only| patterns.only(only)));
        if self.uris {
            groups.push(patterns.only(&Selector::new(URIS, Case::Sensitive)));
        }
        let texts = match self.kind == Kind::Tools && self.overview.looks_for_action {
            true => patterns.actions.combinations(self.search.left())?,
            false => Vec::new(),
        };
        let start = patterns.start(self.asked.server);
        Ok(Classes { patterns, start, groups, texts, claims, wider })
    }

    fn ways<'a>(
        &'a self,
        texts: &'a [String],
        claims: &'a [Annotations],
        wider: Option<bool>,
    ) -> Ways<'a, 'a> {
        let Looks { search, kind, asked, .. } = *self;
        Ways { search, kind, asked, texts, claims, wider }
    }

    /// Visits the points of some names.
    fn visit_each(
        &self,
        names: &[String],
        claims: &[Annotations],
        wider: Option<bool>,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, WhyUndecided> {
        for name in names.iter().filter(|name| self.is_asked(name)) {
            let texts = match self.looks_for_action(name) {
                true => {
                    let own = [Glob::new(name, Case::Sensitive)];
                    let mut language = Language::default();
                    language.narrow(own.iter(), None);
                    self.classes(language, None, claims, wider)?.texts
                }
                false => Vec::new(),
            };
            if self.ways(&texts, claims, wider).visit(name, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Whether the action of a call may matter for a tool of this name.
    fn looks_for_action(&self, name: &str) -> bool {
        if self.kind != Kind::Tools || !self.overview.looks_for_action {
            return false;
        }
        let Asked { agent, server, only, .. } = *self.asked;
        let tool = Tool::named(name).with_declared_action();
        let hints = Annotations::default().hints();
        let looks = |policy: &&Policy| {
            let cell = policy.cell(agent, server, Subject::Tool(&tool, &hints));
            cell.action_keys().is_some()
        };
        only.is_some() || self.search.policies.iter().any(looks)
    }

    /// Whether a name belongs to the search: it is not empty, and a URI if these are looked for.
    fn is_asked(&self, name: &str) -> bool {
        let is_uri = || crate::uri::normalise(name).is_ok_and(|uri| uri == name);
        !name.is_empty() && (!self.uris || is_uri())
    }

    /// Searches names that match one pattern of each group.
    fn seek(
        &self,
        classes: &Classes<'_>,
        avoid: &Group,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, WhyUndecided> {
        let (mut found, mut failed) = (false, None);
        let wanted = Wanted { groups: &classes.groups, avoid };
        let ways = self.ways(&classes.texts, classes.claims, classes.wider);
        let names = &classes.patterns.names;
        let left = self.search.left();
        let sought = names.seek(&classes.start, left, &wanted, |name| {
            found = true;
            if !self.is_asked(&name) {
                return ControlFlow::Continue(());
            }
            match ways.visit(&name, visit) {
                Ok(flow) => flow,
                Err(why) => {
                    failed = Some(why);
                    ControlFlow::Break(())
                }
            }
        });
        let answered = self.search.spent(sought, left)?;
        match (failed, answered, found) {
            (Some(why), _, _) => Err(why),
            (None, Some(()), _) => Ok(ControlFlow::Break(())),
            (None, None, false) => Ok(ControlFlow::Continue(())),
            (None, None, true) => self.names(classes, visit),
        }
    }

    /// Visits one name of each class.
    fn names(
        &self,
        classes: &Classes<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, WhyUndecided> {
        let (patterns, names) = (&classes.patterns, &classes.patterns.names);
        let groups = &classes.groups;
        let possible = |state: &State| groups.iter().all(|group| names.is_alive(state, group));
        let denied = |numbers: &dyn Fn() -> Vec<u32>| {
            self.asked.skips_denied && {
                let numbers = numbers();
                let denies =
                    |own: &Vec<u32>| numbers.iter().any(|one| own.binary_search(one).is_ok());
                patterns.denying.iter().all(denies)
            }
        };
        let ways = self.ways(&classes.texts, classes.claims, classes.wider);
        let mut seen: HashSet<Box<[u32]>> = HashSet::new();
        let mut failed = None;
        let keep = |state: &State| possible(state) && !denied(&|| sorted(names.settled(state)));
        let found = self.search.explore(names, classes.start.clone(), keep, |state, text| {
            let matched = sorted(names.matched(state));
            let has = |group: &Group| matched.iter().any(|number| group.contains(number));
            let is_asked = groups.iter().all(has);
            if !is_asked || denied(&|| matched.clone()) || seen.contains(&*matched) {
                return ControlFlow::Continue(());
            }
            let name = text();
            if !self.is_asked(&name) {
                return ControlFlow::Continue(());
            }
            seen.insert(matched.into());
            match ways.visit(&name, visit) {
                Ok(flow) => flow,
                Err(why) => {
                    failed = Some(why);
                    ControlFlow::Break(())
                }
            }
        })?;
        match (failed, found) {
            (Some(why), _) => Err(why),
            (None, Some(())) => Ok(ControlFlow::Break(())),
            (None, None) => Ok(ControlFlow::Continue(())),
        }
    }
}
