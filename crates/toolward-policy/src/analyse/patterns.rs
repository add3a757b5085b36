//! The patterns by which policies distinguish the tools, prompts or resources of a server for an agent.

use std::sync::Arc;

use hashbrown::HashSet;

use super::applied::Applied;
use super::conditions::Reading;
use super::language::Language;
use super::search::{Asked, Search};
use crate::automaton::{Automaton, Group, Space, State};
use crate::decision::{Kind, Verdict};
use crate::layer::{Layer, List, Rule, Rules};
use crate::policy::Policy;
use crate::selector::{Glob, Selector, fold};
use crate::source::Case;
use crate::view::{narrows_tools, server_step};

/// The rules of a layer that apply to an agent on a server.
pub(super) fn for_each_rule<'p>(
    layer: &'p Layer,
    kind: Kind,
    asked: &Asked<'_>,
    mut visit: impl FnMut(Applied<'p>),
) {
    match &layer.rules {
        Rules::ReadOnly => {}
        Rules::Allowlist(allowlist) => {
            for rule in allowlist.of(kind).into_iter().flat_map(|list| &list.rules) {
                visit(Applied { rule, case: allowlist.case, qualified: true, deny: false });
            }
        }
        Rules::Agents(agents) => {
            let Some(at) = agents.agent(asked.agent) else { return };
            let agent = &agents.agents[at as usize];
            let server = fold(asked.server, agent.case);
            if server_step(agent, at, &server).verdict == Verdict::Deny {
                return;
            }
            let applies = |list: &&Arc<List>| list.key.matches(&server);
            for (side, deny) in [(&agent.deny, true), (&agent.allow, false)] {
                for list in side.of(kind).iter().filter(applies) {
                    for rule in &list.rules {
                        visit(Applied { rule, case: agent.case, qualified: false, deny });
                    }
                }
            }
        }
    }
}

/// The properties of all rules together that matter for every name.
#[derive(Default)]
pub(super) struct Overview {
    /// Tags that some rule reads.
    pub(super) tags: Vec<Box<str>>,
    pub(super) reads_hints: bool,
    pub(super) looks_for_action: bool,
    /// For each policy: hints that it denies whatever the name.
    pub(super) denied_tags: Vec<Vec<Box<[Box<str>]>>>,
    /// No pattern distinguishes upper and lower case.
    pub(super) folds_all: bool,
}

impl Overview {
    pub(super) fn new(search: &Search<'_>, kind: Kind, asked: &Asked<'_>) -> Overview {
        let mut overview = Overview { folds_all: true, ..Overview::default() };
        let mut tags: HashSet<&[Box<str>]> = HashSet::new();
        for policy in search.policies {
            let mut denied_tags = Vec::new();
            for layer in &policy.layers {
                if matches!(layer.rules, Rules::ReadOnly) {
                    overview.tags.push("read-only".into());
                }
                for_each_rule(layer, kind, asked, |Applied { rule, case, deny, .. }| {
                    if let Some(own) = rule.selector.tags() {
                        tags.insert(own);
                        if deny && rule.when.is_none() {
                            denied_tags.push(own.into());
                        }
                    }
                    if let Some(when) = &rule.when {
                        overview.reads_hints |= when.source().contains("hints");
                        overview.looks_for_action |= when.reads().action;
                        overview.folds_all &= !when.source().contains("tool");
                    }
                    let splits = rule.selector.name_form().is_some_and(|f| !f.splits.is_empty());
                    overview.looks_for_action |= splits && kind == Kind::Tools;
                    overview.folds_all &= case == Case::Insensitive && rule.ask.is_none();
                });
            }
            overview.denied_tags.push(denied_tags);
            let server = policy.server(asked.server);
            overview.folds_all &= server.globs().next().is_none()
                && server.exposure.is_none()
                && server.prompt_exposure.is_none();
        }
        overview.tags.extend(tags.into_iter().flatten().cloned());
        let only = asked.only.and_then(Selector::name_form).filter(|_| kind == Kind::Tools);
        overview.looks_for_action |= only.is_some_and(|form| !form.splits.is_empty());
        // A selector that a question is about is case-sensitive.
        overview.folds_all &= asked.only.is_none();
        overview
    }
}

/// The patterns that distinguish the subjects of one kind.
#[derive(Default)]
pub(super) struct Patterns {
    pub(super) names: Automaton,
    pub(super) actions: Automaton,
    /// For each policy: patterns whose match means that it denies.
    pub(super) denying: Vec<Vec<u32>>,
}

impl Patterns {
    /// Collects the patterns that may match a name of the language.
    pub(super) fn new(
        search: &Search<'_>,
        kind: Kind,
        asked: &Asked<'_>,
        language: &Language<'_>,
    ) -> Patterns {
        let mut patterns = Patterns::default();
        let mut conditions: HashSet<&str> = HashSet::new();
        for policy in search.policies {
            let mut denying = Vec::new();
            let mut asks = false;
            for layer in &policy.layers {
                for_each_rule(layer, kind, asked, |applied| {
                    let Applied { rule, case, qualified, deny } = applied;
                    let server = qualified.then_some(asked.server);
                    if !meets(rule, language, server) {
                        return;
                    }
                    if let Some(when) = &rule.when
                        && conditions.insert(when.source())
                    {
                        patterns.condition(&search.reading(when), kind, search.policies, asked);
                    }
                    asks |= rule.ask.is_some();
                    let whole = patterns.rule(rule, case, kind, space(qualified));
                    if deny && rule.when.is_none() {
                        denying.extend(whole);
                    }
                });
            }
            denying.sort_unstable();
            patterns.denying.push(denying);
            patterns.settings(policy, kind, asked);
            if asks {
                patterns.approvals(policy);
            }
        }
        patterns
    }

    fn rule(&mut self, rule: &Rule, case: Case, kind: Kind, space: Space) -> Vec<u32> {
        let Some(form) = rule.selector.name_form() else { return Vec::new() };
        let mut whole = Vec::new();
        self.names.space = space;
        for glob in [Some(&form.whole), form.every_action.as_ref()].into_iter().flatten() {
            whole.extend(self.names.glob(glob, case));
        }
        if kind == Kind::Tools {
            for split in &form.splits {
                self.names.glob(&split.tool, case);
                self.actions.glob(&split.action, case);
            }
        }
        self.names.space = Space::Names;
        whole
    }

    /// The constants that a condition compares names and actions with.
    fn condition(
        &mut self,
        reading: &Reading,
        kind: Kind,
        policies: &[&Policy],
        asked: &Asked<'_>,
    ) {
        reading.of_name("tool").add_to(&mut self.names);
        if kind != Kind::Tools {
            return;
        }
        reading.of_name("action").add_to(&mut self.actions);
        for policy in policies {
            // Action keys by tool are not told apart here: more classes do no harm.
            for key in policy.all_action_keys(asked.server) {
                if let Some(constants) = reading.of_argument(key) {
                    constants.add_to(&mut self.actions);
                }
            }
        }
    }

    /// The patterns of the operator's settings for the server.
    fn settings(&mut self, policy: &Policy, kind: Kind, asked: &Asked<'_>) {
        let server = policy.server(asked.server);
        if kind == Kind::Tools {
            for glob in server.globs() {
                self.names.glob(glob, Case::Sensitive);
            }
        }
        let exposure = server.exposure_of(kind);
        if let Some(exposure) = exposure {
            for glob in exposure.patterns() {
                self.names.glob(glob, Case::Sensitive);
            }
            for name in exposure.names() {
                self.names.literal(name, Case::Sensitive);
            }
        }
    }

    /// The patterns of `SERVER/NAME` that admins may approve: an entry that asks denies if no one can answer.
    fn approvals(&mut self, policy: &Policy) {
        self.names.space = Space::Approvals;
        for glob in policy.approvers.globs() {
            self.names.glob(glob, Case::Sensitive);
        }
        self.names.space = Space::Names;
    }

    /// The state before the first character of a name. Entries of allowlists have read `SERVER.` as well, and
    /// patterns of approvals only `SERVER/`.
    pub(super) fn start(&self, server: &str) -> State {
        let names = &self.names;
        let plain = names.start_of(|number| names.space_of(number) != Space::Approvals);
        let qualified = names.read(Space::Qualified, &format!("{server}."));
        let approvals = names.read(Space::Approvals, &format!("{server}/"));
        names.join(&names.join(&plain, &qualified), &approvals)
    }

    /// The patterns on names of an entry: one of them matches every subject that the entry can decide about.
    pub(super) fn of_rule(&self, applied: &Applied<'_>, kind: Kind) -> Vec<u32> {
        let Applied { rule, case, qualified, .. } = *applied;
        let mut names = self.whole(rule, case, qualified);
        if let Some(form) = rule.selector.name_form().filter(|_| kind == Kind::Tools) {
            let globs = form.splits.iter().map(|split| &split.tool);
            names.extend(globs.flat_map(|glob| self.names.find(glob, case, space(qualified))));
        }
        names
    }

    /// The patterns of a rule that match a subject whatever its action, if they were added.
    pub(super) fn whole(&self, rule: &Rule, case: Case, qualified: bool) -> Vec<u32> {
        let Some(form) = rule.selector.name_form() else { return Vec::new() };
        let globs = [Some(&form.whole), form.every_action.as_ref()].into_iter().flatten();
        globs.flat_map(|glob| self.names.find(glob, case, space(qualified))).collect()
    }

    /// Adds the patterns on names of a selector that a question asks about.
    pub(super) fn only(&mut self, selector: &Selector) -> Group {
        let everything = [Glob::new("*", Case::Sensitive)];
        let mut numbers = Group::new();
        for glob in name_globs(selector).unwrap_or(everything.iter().collect()) {
            numbers.extend(self.names.glob(glob, Case::Sensitive));
        }
        for split in selector.name_form().into_iter().flat_map(|form| &form.splits) {
            self.actions.glob(&split.action, Case::Sensitive);
        }
        numbers
    }
}

/// The rules one of which must match a subject for it to be allowed: of the first layer that allows neither by hints
/// nor implicitly.
pub(super) fn granting<'p>(
    policy: &'p Policy,
    kind: Kind,
    asked: &Asked<'_>,
) -> Option<Vec<Applied<'p>>> {
    policy.layers.iter().find_map(|layer| {
        match &layer.rules {
            Rules::ReadOnly => return None,
            Rules::Allowlist(list) => drop(list.of(kind)?),
            Rules::Agents(agents) => {
                let agent = &agents.agents[agents.agent(asked.agent)? as usize];
                let server = fold(asked.server, agent.case);
                let mut lists = agent.allow.of(kind).iter();
                let listed = lists.any(|list| list.key.matches(&server) && !list.rules.is_empty());
                let implicit = kind == Kind::Tools || !narrows_tools(agent, &server);
                if !listed && implicit {
                    return None;
                }
            }
        }
        let mut rules = Vec::new();
        for_each_rule(layer, kind, asked, |applied| {
            if !applied.deny {
                rules.push(applied);
            }
        });
        let by_name = |applied: &Applied<'_>| applied.rule.selector.tags().is_none();
        rules.iter().all(by_name).then_some(rules)
    })
}

/// Whether a rule may match a name of the language, or an action of a tool of that name.
fn meets(rule: &Rule, language: &Language<'_>, server: Option<&str>) -> bool {
    match name_globs(&rule.selector) {
        None => true,
        Some(globs) => globs.into_iter().any(|glob| language.meets(glob, server)),
    }
}

fn space(qualified: bool) -> Space {
    if qualified { Space::Qualified } else { Space::Names }
}

/// All patterns on names of a selector; `None` for hints.
pub(super) fn name_globs(selector: &Selector) -> Option<Vec<&Glob>> {
    let form = selector.name_form()?;
    let whole = [Some(&form.whole), form.every_action.as_ref()].into_iter().flatten();
    Some(whole.chain(form.splits.iter().map(|split| &split.tool)).collect())
}

pub(super) fn sorted(numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
