//! The current policy's decisions on recorded calls, and the rules behind them.

use toolward_config::LoadedConfig;
use toolward_policy::explain::{Outcome, Query};
use toolward_policy::fnmatch::{Pattern, is_pattern};
use toolward_policy::recorded::{RecordedAction, RecordedCall};
use toolward_policy::source::{
    AgentSource, AgentsSource, Case, Entry, KeyedList, LayerSource, RulesSource, SideSource,
};
use toolward_policy::{Call, Caller, Decision, Family, Hints, Step, Subject, Tool, Verdict};

use super::seen::Target;
use crate::load::Input;

/// The current policy, from the view of one agent.
pub(super) struct CurrentPolicy<'a> {
    pub(super) input: &'a Input,
    pub(super) agent: &'a str,
    /// The agent's rules in each layer with agents, with its roles' in front.
    pub(super) rules: Vec<(&'a str, AgentSource)>,
    /// The policy has several layers, or one without agents.
    pub(super) has_other_layers: bool,
}

/// How the current policy decides about a target.
#[derive(Debug, Clone)]
pub(super) enum Standing {
    /// It allows it, by entries with these options.
    Granted(Vec<Entry>),
    /// No rule allows it.
    Ungranted,
    /// A rule denies it.
    Denied(Decision),
}

impl<'a> CurrentPolicy<'a> {
    pub(super) fn new(input: &'a Input, loaded: &'a LoadedConfig, agent: &'a str) -> Self {
        let of_layer = |layer: &'a LayerSource| match &layer.rules {
            RulesSource::Agents(agents) => Some((layer.name.as_str(), own_rules(agents, agent)?)),
            _ => None,
        };
        let layers = &loaded.source.layers;
        let rules: Vec<_> = layers.iter().filter_map(of_layer).collect();
        let has_other_layers = layers.len() > 1 || rules.len() < layers.len();
        CurrentPolicy { input, agent, rules, has_other_layers }
    }

    /// The tool as its server describes it, or by its name alone.
    pub(super) fn tool(&self, server: &str, name: &str) -> (Tool, bool) {
        let catalogue = &self.input.catalogue;
        match catalogue.tools(server).and_then(|_| catalogue.tool(server, name)) {
            Some(tool) => (tool, true),
            None => (Tool::named(name), false),
        }
    }

    /// The hints of a tool, if its definition is known.
    pub(super) fn hints(&self, server: &str, name: &str) -> Option<Hints> {
        let (tool, known) = self.tool(server, name);
        known.then(|| self.input.policy.hints(server, &tool))
    }

    /// The decision on a target whose arguments are not known.
    pub(super) fn decision(&self, target: &Target) -> Decision {
        let (policy, agent) = (&self.input.policy, Some(self.agent));
        let what = (target.family, target.name.as_str());
        let subject = policy.recorded_subject(agent, &target.server, what, &self.input.catalogue);
        let action = match &target.action {
            Some(action) => RecordedAction::Is(action),
            None => RecordedAction::Unknown,
        };
        subject.decide(&RecordedCall { agent, action, arguments: None }).0
    }

    pub(super) fn standing(&self, target: &Target) -> Standing {
        let decision = self.decision(target);
        match (decision.verdict, decision.step) {
            (Verdict::Deny, Step::DefaultDeny | Step::ServerNotAllowed | Step::UnknownAgent) => {
                Standing::Ungranted
            }
            (Verdict::Deny, _) => Standing::Denied(decision),
            _ => Standing::Granted(self.options(target)),
        }
    }

    /// The allow entries that cover a target, for their conditions and options. Empty if none has any.
    fn options(&self, target: &Target) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for (entry, _) in self.covering(target) {
            let known = |one: &Entry| {
                (&one.when, &one.scope, &one.ask, one.limit)
                    == (&entry.when, &entry.scope, &entry.ask, entry.limit)
            };
            if !entries.iter().any(known) {
                entries.push(entry);
            }
        }
        let has_options = |entry: &Entry| {
            let conditional = entry.when.is_some() || entry.scope.is_some();
            conditional || entry.ask.is_some() || entry.limit.is_some()
        };
        match entries.iter().any(has_options) {
            true => entries,
            false => Vec::new(),
        }
    }

    /// The allow entries that cover a target, with the index of their layer in `rules`.
    pub(super) fn covering(&self, target: &Target) -> Vec<(Entry, usize)> {
        let policy = &self.input.policy;
        let (tool, _) = self.tool(&target.server, &target.name);
        let hints = policy.hints(&target.server, &tool);
        let subject = match target.family {
            Family::Tools => Subject::Tool(&tool, &hints),
            Family::Prompts => Subject::Prompt(&target.name),
            Family::Resources => Subject::Resource(&target.name),
        };
        let caller = Caller::named(self.agent);
        let query = match &target.action {
            Some(action) => Query::Call(Call { action: Some(action), arguments: None }),
            None => Query::List,
        };
        let explanation = policy.explain(caller, &target.server, subject, query);
        let mut found = Vec::new();
        for layer in &explanation.layers {
            let steps = layer.steps.iter();
            let steps =
                steps.filter(|one| matches!(one.step, Step::ExactAllow | Step::WildcardAllow));
            for tried in steps.flat_map(|step| &step.tried) {
                if matches!(tried.outcome, Outcome::OtherAction | Outcome::ConditionFalse) {
                    continue;
                }
                let Some(rule) = policy.rule_at(layer.layer, tried.rule) else { continue };
                let of_layer = |(_, (name, _)): &(usize, &(&str, AgentSource))| *name == rule.layer;
                let Some((at, (_, own))) = self.rules.iter().enumerate().find(of_layer) else {
                    continue;
                };
                let lists = of_family(&own.allow, target.family).iter();
                let mut entries = lists.flat_map(|list| &list.entries);
                let same = |one: &&Entry| one.place == rule.place && one.selector == rule.selector;
                found.extend(entries.find(same).map(|entry| (entry.clone(), at)));
            }
        }
        found
    }

    /// Whether a target is allowed only because of its hints.
    pub(super) fn is_allowed_by_hints(&self, target: &Target) -> bool {
        let entries = self.covering(target);
        let is_hint = |(entry, _): &(Entry, usize)| entry.selector.starts_with("hint:");
        !entries.is_empty() && entries.iter().all(is_hint)
    }

    /// Everything that rules deny to the agent, in all layers.
    pub(super) fn denied(&self) -> SideSource {
        let mut all = SideSource::default();
        for (_, rules) in &self.rules {
            append(&mut all, &rules.deny);
        }
        all
    }

    /// Whether the agent's names are case-insensitive in the layer that decides about it.
    pub(super) fn case(&self) -> Case {
        self.rules.first().map_or(Case::Sensitive, |(_, rules)| rules.case)
    }

    pub(super) fn client_requests(&self) -> Option<&[String]> {
        self.rules.first().and_then(|(_, rules)| rules.client_requests.as_deref())
    }
}

/// The lists of a side for a family.
pub(super) fn of_family(side: &SideSource, family: Family) -> &[KeyedList] {
    match family {
        Family::Tools => &side.tools,
        Family::Prompts => &side.prompts,
        Family::Resources => &side.resources,
    }
}

/// The rules for an agent in a layer, with those of its roles in front; its name, a pattern or `default`.
fn own_rules(layer: &AgentsSource, agent: &str) -> Option<AgentSource> {
    let named = |name: &str| layer.agents.iter().find(|(known, _)| known == name);
    let by_pattern = || {
        let matches = |known: &str| is_pattern(known) && Pattern::new(known).matches(agent);
        layer.agents.iter().find(|(known, _)| layer.patterns && matches(known))
    };
    let otherwise = || named("default").filter(|_| !layer.deny_on_missing_agent);
    let (_, own) = named(agent).or_else(by_pattern).or_else(otherwise)?;
    let mut all = AgentSource { case: own.case, ..AgentSource::default() };
    let roles = own.roles.iter();
    for (_, role) in roles.filter_map(|name| layer.roles.iter().find(|(known, _)| known == name)) {
        append(&mut all.allow, &role.allow);
        append(&mut all.deny, &role.deny);
        add_requests(&mut all.client_requests, role.client_requests.as_deref());
    }
    append(&mut all.allow, &own.allow);
    append(&mut all.deny, &own.deny);
    add_requests(&mut all.client_requests, own.client_requests.as_deref());
    Some(all)
}

fn append(to: &mut SideSource, from: &SideSource) {
    to.servers.extend(from.servers.iter().cloned());
    to.tools.extend(from.tools.iter().cloned());
    to.prompts.extend(from.prompts.iter().cloned());
    to.resources.extend(from.resources.iter().cloned());
}

fn add_requests(to: &mut Option<Vec<String>>, from: Option<&[String]>) {
    if let Some(from) = from {
        to.get_or_insert_default().extend(from.iter().cloned());
    }
}
