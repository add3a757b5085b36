//! Every way in which policies can treat the tools, prompts and resources of a server for an agent.
//!
//! For each class of names, the engine itself decides about one name, with every set of hints, every way to
//! name an action and all arguments that conditions distinguish. So there is no second meaning of a policy
//! here: only the classes are computed.

use std::ops::ControlFlow;
use std::sync::Arc;

use hashbrown::HashSet;

use super::focus::{Focus, Focused};
use super::names::add_rule;
use super::search::{Asked, PointRef, Search, Visit, WhyUndecided};
use super::ways::Ways;
use crate::automaton::{Automaton, Group, State, Wanted};
use crate::call::{Call, Caller};
use crate::decision::{Decision, Kind, Verdict};
use crate::hints::Annotations;
use crate::layer::{Layer, List, Rule, Rules};
use crate::policy::{Policy, Subject};
use crate::selector::{Selector, fold};
use crate::source::Case;
use crate::tool::Tool;
use crate::view::{narrows_tools, server_step};

/// The requests that servers can send to a client.
const CLIENT_REQUESTS: [&str; 6] = [
    "elicitation.form",
    "elicitation.url",
    "roots",
    "sampling",
    "sampling.thisServer",
    "sampling.allServers",
];

/// Why a search failed, and whether nothing that it looked for could be wider.
pub(super) type Failed = (WhyUndecided, bool);

/// The patterns that distinguish the subjects of one kind.
#[derive(Default)]
struct Patterns {
    names: Automaton,
    /// Patterns of allowlists, which also match `SERVER.NAME`.
    qualified: HashSet<u32>,
    actions: Automaton,
    /// Tags that some rule reads.
    tags: Vec<Box<str>>,
    reads_hints: bool,
    looks_for_action: bool,
    /// For each policy: patterns whose match means that it denies.
    denying: Vec<Vec<u32>>,
    /// For each policy: hints that it denies whatever the name.
    denied_tags: Vec<Vec<Box<[Box<str>]>>>,
}

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
        let mut patterns = self.patterns(kind, asked);
        let only: Option<Group> = asked.only.map(|s| patterns.only(s).into_iter().collect());
        let texts = match kind == Kind::Tools && patterns.looks_for_action {
            true => {
                let found = patterns.actions.combinations(self.left());
                found.map_err(|why| (why.into(), false))?
            }
            false => Vec::new(),
        };
        let annotations = self.annotations(kind, &patterns, asked);
        // Hints that the operator sets depend on the name, so they do not tell names apart beforehand.
        let stated = self.policies.iter().any(|policy| policy.server(asked.server).states_hints());
        let granting = self.policies.iter().map(|policy| granting(policy, kind, &patterns, asked));
        let granting = granting.map(|found| found.filter(|_| asked.skips_denied)).collect();
        let start = patterns.start(asked.server);
        let looks =
            Looks { patterns: &patterns, only, granting, start, texts: &texts, kind, asked };
        let Focus::Entries(entries) = &asked.focus else {
            return self.everything(&looks, &annotations, visit).map_err(|why| (why, false));
        };
        let mut failed: Vec<Failed> = Vec::new();
        for entry in entries {
            let focus = patterns.of_entry(entry);
            // Claims with which an entry on hints matches whatever the name is.
            let by_hints = |claims: &Annotations| {
                let hints = claims.hints();
                let carried = |tags: &[Box<str>]| tags.iter().all(|tag| hints.contains(tag));
                focus.tags.as_deref().is_some_and(|tags| stated || carried(tags))
            };
            let (everywhere, named): (Vec<Annotations>, Vec<Annotations>) =
                annotations.iter().partition(|claims| by_hints(claims));
            for (claims, names) in [(named, Some(&*focus.names)), (everywhere, None)] {
                if claims.is_empty() || names.is_some_and(<[u32]>::is_empty) {
                    continue;
                }
                match self.entry(&looks, entry, names, &claims, visit) {
                    Ok(ControlFlow::Break(())) if asked.stops => {
                        return Ok(ControlFlow::Break(()));
                    }
                    Ok(_) => {}
                    Err(why) => failed.push((why, entry.wider == Some(false))),
                }
            }
        }
        // Reports first what may be wider.
        failed.sort_by_key(|(_, narrower_only)| *narrower_only);
        match failed.into_iter().next() {
            Some(failed) => Err(failed),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    /// Searches all names.
    fn everything(
        &self,
        looks: &Looks<'_>,
        claims: &[Annotations],
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, WhyUndecided> {
        let groups: Vec<Group> = looks.only.iter().cloned().collect();
        let ways = looks.ways(self, claims, None);
        self.names(looks, &groups, &ways, visit)
    }

    /// Searches the names that an entry matches: first those that no other rule decides alike, then, if these
    /// do not answer the question, all of them.
    fn entry(
        &self,
        looks: &Looks<'_>,
        entry: &Focused<'_>,
        names: Option<&[u32]>,
        claims: &[Annotations],
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, WhyUndecided> {
        let patterns = looks.patterns;
        let own: Option<Group> = names.map(|names| names.iter().copied().collect());
        let groups: Vec<Group> = own.into_iter().chain(looks.only.clone()).collect();
        let ways = looks.ways(self, claims, entry.wider);
        let mut avoid = Group::new();
        if looks.asked.skips_denied
            && let Some((first, others)) = patterns.denying.split_first()
        {
            let denied = |number: &&u32| others.iter().all(|own| own.binary_search(number).is_ok());
            avoid.extend(first.iter().filter(denied));
        }
        for rule in entry.same.iter() {
            avoid.extend(patterns.known(rule, entry.case, entry.qualified));
        }
        // The entry itself is not avoided because another one has the same pattern.
        avoid.retain(|number| !groups.iter().any(|group| group.contains(number)));
        // A deny matters only for names that the policy without it allows. One allowing pattern at a time keeps
        // the search small.
        let granting = match entry.wider.filter(|_| entry.deny) {
            Some(true) => looks.granting.last(),
            Some(false) => looks.granting.first(),
            None => None,
        };
        match granting.and_then(Option::as_ref) {
            None => self.seek(looks, &groups, &avoid, &ways, visit),
            Some(granting) => {
                for number in granting.iter().filter(|number| !avoid.contains(*number)) {
                    let group: Group = [*number].into_iter().collect();
                    let groups: Vec<Group> = groups.iter().cloned().chain([group]).collect();
                    if self.seek(looks, &groups, &avoid, &ways, visit)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Ok(ControlFlow::Continue(()))
            }
        }
    }

    /// Searches names that match one pattern of each group.
    fn seek(
        &self,
        looks: &Looks<'_>,
        groups: &[Group],
        avoid: &Group,
        ways: &Ways<'_, '_>,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, WhyUndecided> {
        let (mut found, mut failed) = (false, None);
        let wanted = Wanted { groups, avoid };
        let (answered, used) =
            looks.patterns.names.seek(&looks.start, self.left(), &wanted, |name| {
                found = true;
                match ways.visit(&name, visit) {
                    Ok(flow) => flow,
                    Err(why) => {
                        failed = Some(why);
                        ControlFlow::Break(())
                    }
                }
            })?;
        self.spend(used)?;
        match (failed, answered, found) {
            (Some(why), _, _) => Err(why),
            (None, Some(()), _) => Ok(ControlFlow::Break(())),
            (None, None, false) => Ok(ControlFlow::Continue(())),
            (None, None, true) => self.names(looks, groups, ways, visit),
        }
    }

    /// Visits one name of each class.
    fn names(
        &self,
        looks: &Looks<'_>,
        groups: &[Group],
        ways: &Ways<'_, '_>,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, WhyUndecided> {
        let (patterns, names) = (looks.patterns, &looks.patterns.names);
        let start = looks.start.clone();
        let possible = |state: &State| {
            groups.iter().all(|group| names.alive(state).any(|number| group.contains(&number)))
        };
        let denied = |numbers: &dyn Fn() -> Vec<u32>| {
            looks.asked.skips_denied && {
                let numbers = numbers();
                let denies =
                    |own: &Vec<u32>| own.iter().any(|one| numbers.binary_search(one).is_ok());
                patterns.denying.iter().all(denies)
            }
        };
        let mut seen: HashSet<Box<[u32]>> = HashSet::new();
        let mut failed = None;
        let keep = |state: &State| possible(state) && !denied(&|| sorted(names.settled(state)));
        let found = self.explore(names, start, keep, |state, text| {
            let matched = sorted(names.matched(state));
            let has = |group: &Group| matched.iter().any(|number| group.contains(number));
            let is_asked = groups.iter().all(has);
            if !is_asked || denied(&|| matched.clone()) || seen.contains(&*matched) {
                return ControlFlow::Continue(());
            }
            let name = text();
            if name.is_empty() {
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

    fn client_requests(&self, asked: &Asked<'_>, visit: &mut Visit<'_>) -> ControlFlow<()> {
        for name in CLIENT_REQUESTS {
            let caller = Caller { agent: asked.agent, claims: None };
            let decide = |policy: &&Policy| {
                let cell = policy.cell(asked.agent, asked.server, Subject::ClientRequest(name));
                cell.decide(caller, &Call::default())
            };
            let decisions: Vec<Decision> = self.policies.iter().map(decide).collect();
            let point = PointRef {
                agent: asked.agent,
                server: asked.server,
                kind: Kind::ClientRequests,
                name,
                claims: Annotations::default(),
                declared: &[],
                arguments: None,
                wider: None,
            };
            visit(&point, &decisions, &[])?;
        }
        ControlFlow::Continue(())
    }

    /// Collects the patterns by which the policies distinguish subjects.
    fn patterns(&self, kind: Kind, asked: &Asked<'_>) -> Patterns {
        let mut patterns = Patterns::default();
        for policy in self.policies {
            let mut denying = Vec::new();
            let mut denied_tags = Vec::new();
            for layer in &policy.layers {
                patterns.layer(layer, kind, asked, &mut denying, &mut denied_tags);
            }
            denying.sort_unstable();
            patterns.denying.push(denying);
            patterns.denied_tags.push(denied_tags);
            if kind == Kind::Tools {
                let server = policy.server(asked.server);
                for glob in server.globs() {
                    patterns.names.glob(glob, Case::Sensitive);
                }
                for name in server.exposure.iter().flat_map(|exposure| exposure.names()) {
                    patterns.names.literal(name, Case::Sensitive);
                }
            }
            let prompts = policy.server(asked.server).prompt_exposure.as_ref();
            if let Some(exposure) = prompts.filter(|_| kind == Kind::Prompts) {
                for glob in exposure.patterns() {
                    patterns.names.glob(glob, Case::Sensitive);
                }
                for name in exposure.names() {
                    patterns.names.literal(name, Case::Sensitive);
                }
            }
        }
        for reading in self.readings().filter(|_| kind == Kind::Tools) {
            reading.of_name("tool").add_to(&mut patterns.names);
            reading.of_name("action").add_to(&mut patterns.actions);
            for policy in self.policies {
                // Action keys by tool are not told apart here: more classes do no harm.
                for key in policy.all_action_keys(asked.server) {
                    if let Some(constants) = reading.of_argument(key) {
                        constants.add_to(&mut patterns.actions);
                    }
                }
            }
        }
        patterns
    }

    /// Claims of a server that lead to every set of hints that rules distinguish.
    fn annotations(&self, kind: Kind, patterns: &Patterns, asked: &Asked<'_>) -> Vec<Annotations> {
        if kind != Kind::Tools {
            return vec![Annotations::default()];
        }
        let mut seen: Vec<Vec<bool>> = Vec::new();
        let mut found = Vec::new();
        let stated = self.policies.iter().any(|policy| policy.server(asked.server).states_hints());
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
                    let certain = !stated && trusted && asked.skips_denied;
                    if certain && patterns.denied_tags.iter().all(denies) {
                        continue;
                    }
                    let tags = patterns.tags.iter().chain(asked_tags);
                    let carried: Vec<bool> = match patterns.reads_hints {
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
}

/// The patterns or the hints of one entry.
struct EntryPatterns {
    names: Vec<u32>,
    tags: Option<Box<[Box<str>]>>,
}

/// What one search looks at.
struct Looks<'a> {
    patterns: &'a Patterns,
    /// Patterns of the selector that the question is about.
    only: Option<Group>,
    /// For each policy: patterns one of which a name must match to be allowed, in a layer in which only entries
    /// on names allow.
    granting: Vec<Option<Vec<u32>>>,
    /// The state before the first character.
    start: State,
    /// Actions, one of each class.
    texts: &'a [String],
    kind: Kind,
    asked: &'a Asked<'a>,
}

impl<'a> Looks<'a> {
    fn ways<'s>(
        &self,
        search: &'s Search<'s>,
        claims: &'a [Annotations],
        wider: Option<bool>,
    ) -> Ways<'s, 'a> {
        let Looks { texts, kind, asked, .. } = *self;
        Ways { search, kind, asked, texts, claims, wider }
    }
}

impl Patterns {
    fn layer(
        &mut self,
        layer: &Layer,
        kind: Kind,
        asked: &Asked<'_>,
        denying: &mut Vec<u32>,
        denied_tags: &mut Vec<Box<[Box<str>]>>,
    ) {
        match &layer.rules {
            Rules::ReadOnly => self.tags.push("read-only".into()),
            Rules::Allowlist(allowlist) => {
                let Some(list) = allowlist.of(kind) else { return };
                self.names.apart = true;
                for rule in &list.rules {
                    let before = self.names.len() as u32;
                    self.rule(rule, allowlist.case, kind);
                    self.qualified.extend(before..self.names.len() as u32);
                }
                self.names.apart = false;
            }
            Rules::Agents(agents) => {
                let Some(at) = agents.agent(asked.agent) else { return };
                let agent = &agents.agents[at as usize];
                let server = fold(asked.server, agent.case);
                if server_step(agent, at, &server).verdict == Verdict::Deny {
                    return;
                }
                let applies = |list: &&Arc<List>| list.key.matches(&server);
                for rule in agent.deny.of(kind).iter().filter(applies).flat_map(|list| &list.rules)
                {
                    let whole = self.rule(rule, agent.case, kind);
                    if rule.when.is_none() {
                        denying.extend(whole);
                        denied_tags.extend(rule.selector.tags().map(Box::from));
                    }
                }
                for rule in agent.allow.of(kind).iter().filter(applies).flat_map(|list| &list.rules)
                {
                    self.rule(rule, agent.case, kind);
                }
            }
        }
    }

    fn rule(&mut self, rule: &Rule, case: Case, kind: Kind) -> Vec<u32> {
        if let Some(tags) = rule.selector.tags() {
            self.tags.extend(tags.iter().cloned());
        }
        if let Some(when) = &rule.when {
            self.reads_hints |= when.source().contains("hints");
            self.looks_for_action |= when.reads().action;
        }
        if let Some(form) = rule.selector.name_form().filter(|_| kind == Kind::Tools) {
            self.looks_for_action |= !form.splits.is_empty();
            for split in &form.splits {
                self.actions.glob(&split.action, case);
            }
        }
        add_rule(&mut self.names, rule, case, |_| true)
    }

    /// The state before the first character of a name. Entries of allowlists have read `SERVER.` as well.
    fn start(&self, server: &str) -> State {
        let in_allowlist = self.names.start_of(|number| self.qualified.contains(&number));
        let after_server = self.names.read(in_allowlist, &format!("{server}."));
        self.names.join(&self.names.start(), &after_server)
    }

    fn of_entry(&self, entry: &Focused<'_>) -> EntryPatterns {
        let Some(form) = entry.rule.selector.name_form() else {
            return EntryPatterns {
                names: Vec::new(),
                tags: entry.rule.selector.tags().map(Box::from),
            };
        };
        let mut names = self.known(entry.rule, entry.case, entry.qualified);
        for split in &form.splits {
            names.extend(self.names.find(&split.tool, entry.case, entry.qualified));
        }
        EntryPatterns { names, tags: None }
    }

    /// The patterns of a rule that match a subject whatever its action; they were added with its layer.
    fn known(&self, rule: &Rule, case: Case, qualified: bool) -> Vec<u32> {
        let Some(form) = rule.selector.name_form() else { return Vec::new() };
        let globs = [Some(&form.whole), form.every_action.as_ref()].into_iter().flatten();
        globs.flat_map(|glob| self.names.find(glob, case, qualified)).collect()
    }

    /// The patterns on names of a selector that a question asks about; empty for hints.
    fn only(&mut self, selector: &Selector) -> Vec<u32> {
        let Some(form) = selector.name_form() else {
            return self
                .names
                .glob(&crate::selector::Glob::new("*", Case::Sensitive), Case::Sensitive)
                .to_vec();
        };
        let mut numbers = Vec::new();
        for glob in [Some(&form.whole), form.every_action.as_ref()].into_iter().flatten() {
            numbers.extend(self.names.glob(glob, Case::Sensitive));
        }
        for split in &form.splits {
            numbers.extend(self.names.glob(&split.tool, Case::Sensitive));
            self.actions.glob(&split.action, Case::Sensitive);
        }
        numbers
    }
}

/// The patterns one of which a subject must match to be allowed: of the first layer that allows neither by hints
/// nor implicitly.
fn granting(
    policy: &Policy,
    kind: Kind,
    patterns: &Patterns,
    asked: &Asked<'_>,
) -> Option<Vec<u32>> {
    policy.layers.iter().find_map(|layer| granting_in(layer, kind, patterns, asked))
}

fn granting_in(
    layer: &Layer,
    kind: Kind,
    patterns: &Patterns,
    asked: &Asked<'_>,
) -> Option<Vec<u32>> {
    let of_rule = |rule: &Rule, case: Case, qualified: bool| -> Option<Vec<u32>> {
        let form = rule.selector.name_form()?;
        let mut numbers = patterns.known(rule, case, qualified);
        for split in &form.splits {
            numbers.extend(patterns.names.find(&split.tool, case, qualified));
        }
        Some(numbers)
    };
    let numbers: Vec<Vec<u32>> = match &layer.rules {
        Rules::ReadOnly => return None,
        Rules::Allowlist(list) => {
            let rules = list.of(kind)?.rules.iter();
            rules.map(|rule| of_rule(rule, list.case, true)).collect::<Option<_>>()?
        }
        Rules::Agents(agents) => {
            let at = agents.agent(asked.agent)?;
            let agent = &agents.agents[at as usize];
            let server = fold(asked.server, agent.case);
            let lists = agent.allow.of(kind).iter().filter(|list| list.key.matches(&server));
            let rules: Vec<&Rule> = lists.flat_map(|list| &list.rules).collect();
            if rules.is_empty() && (kind == Kind::Tools || !narrows_tools(agent, &server)) {
                return None;
            }
            rules.iter().map(|rule| of_rule(rule, agent.case, false)).collect::<Option<_>>()?
        }
    };
    Some(sorted(numbers.into_iter().flatten()))
}

fn sorted(numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
