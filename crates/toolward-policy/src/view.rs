//! One layer for one agent on one server: which lists apply, and their result for a subject.
//!
//! This is the compiled path. Everything that depends only on agent and server is computed once.
//! For each subject, the indexes return the entries that can matter, in the order of the contract,
//! cut after the first one that always matches.

use std::borrow::Cow;
use std::sync::Arc;

use crate::ask::Approvers;
use crate::automaton::common_name;
use crate::condition::Condition;
use crate::decision::{Answer, Kind, RuleRef, Side, Step, Verdict};
use crate::hints::Hints;
use crate::layer::{Agent, Allowlist, DEFAULT_CLIENT_REQUESTS, Layer, List, Rule, Rules};
use crate::selector::{Glob, fold};
use crate::source::Case;

/// The subject of a question, as layers see it.
pub(crate) struct Asked<'a> {
    pub(crate) kind: Kind,
    pub(crate) name: &'a str,
    pub(crate) hints: &'a Hints,
    /// The tool's schema has one of its action keys.
    pub(crate) declares_action: bool,
    pub(crate) approvers: &'a Approvers,
    pub(crate) agent: Option<&'a str>,
    pub(crate) server: &'a str,
}

impl Asked<'_> {
    /// The verdict of an entry that matches. An entry that asks when no one could approve denies.
    pub(crate) fn verdict(&self, side: Side, rule: &Rule) -> Verdict {
        let subject = (self.server, self.name);
        match (side, &rule.ask) {
            (Side::Deny, _) => Verdict::Deny,
            (_, None) => Verdict::Allow,
            (_, Some(ask)) if self.approvers.can_answer(ask, self.agent, subject) => Verdict::Ask,
            (_, Some(_)) => Verdict::Deny,
        }
    }
}

/// A layer for (agent, server).
pub(crate) enum View<'p> {
    /// The tool does not matter: unknown agent, or a server it may not use.
    Settled(Answer),
    Agent(AgentView<'p>),
    Allowlist(&'p Allowlist, String),
    ReadOnly,
}

pub(crate) struct AgentView<'p> {
    index: u32,
    agent: &'p Agent,
    server: String,
}

/// A layer's result for one subject.
#[derive(Debug, Clone)]
pub(crate) enum LayerCell {
    Fixed(Answer),
    Program(Program),
}

/// The entries of a layer that can decide about a subject, in order.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// A selector names an action of the tool.
    pub(crate) names_action: bool,
    /// The call's action is determined, and an ambiguous one is denied.
    pub(crate) looks_for_action: bool,
    /// A deny rule depends on the action, so a call without one is ambiguous.
    pub(crate) missing_action_denies: bool,
    /// How the candidates compare the action.
    pub(crate) case: Case,
    pub(crate) candidates: Box<[Candidate]>,
    /// The answer if no candidate matches.
    pub(crate) end: Answer,
}

/// An entry that matches, or may match.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) answer: Answer,
    /// Matches regardless of the action; otherwise only these actions.
    pub(crate) by_name: bool,
    pub(crate) actions: Box<[Glob]>,
    pub(crate) when: Option<Arc<Condition>>,
}

impl<'p> View<'p> {
    pub(crate) fn new(layer: &'p Layer, agent: Option<&str>, server: &str) -> View<'p> {
        match &layer.rules {
            Rules::ReadOnly => View::ReadOnly,
            Rules::Allowlist(list) => View::Allowlist(list, fold(server, list.case).into_owned()),
            Rules::Agents(agents) => {
                let Some(index) = agents.agent(agent) else {
                    return View::Settled(Answer::new(Verdict::Deny, Step::UnknownAgent));
                };
                let agent = &agents.agents[index as usize];
                let server = fold(server, agent.case).into_owned();
                let answer = server_step(agent, index, &server);
                if answer.verdict == Verdict::Deny {
                    return View::Settled(answer);
                }
                View::Agent(AgentView { index, agent, server })
            }
        }
    }

    pub(crate) fn cell(&self, asked: &Asked<'_>) -> LayerCell {
        match self {
            View::Settled(answer) => LayerCell::Fixed(*answer),
            View::ReadOnly => LayerCell::Fixed(read_only(asked)),
            View::Allowlist(list, server) => allowlist_cell(list, server, asked),
            View::Agent(view) => view.cell(asked),
        }
    }
}

impl View<'_> {
    /// Whether some subject of a kind could be allowed.
    pub(crate) fn may_allow(&self, kind: Kind) -> bool {
        match self {
            View::Settled(answer) => answer.verdict != Verdict::Deny,
            View::ReadOnly => true,
            View::Allowlist(list, _) => match list.of(kind) {
                Some(list) => !list.rules.is_empty(),
                None => list.everything.is_some(),
            },
            View::Agent(AgentView { agent, server, .. }) => {
                let here = |list: &&Arc<List>| list.key.matches(server);
                let all = |rule: &Rule| rule.selector.written() == "*" && rule.when.is_none();
                let mut denied = agent.deny.of(kind).iter().filter(here);
                let mut allowed = agent.allow.of(kind).iter().filter(here);
                !denied.any(|list| list.rules.iter().any(all))
                    && (allowed.any(|list| !list.rules.is_empty())
                        || kind == Kind::Tools
                        || !narrows_tools(agent, server))
            }
        }
    }
}

impl View<'_> {
    /// Whether some expansion of a resource template could be allowed. `pattern` is the template with `*` for its
    /// expressions.
    pub(crate) fn may_allow_expansion(&self, pattern: &str) -> bool {
        let overlaps = |rules: &[Rule], case: Case| {
            let pattern = fold(pattern, case);
            rules
                .iter()
                .any(|rule| common_name(&fold(rule.selector.written(), case), &pattern).is_some())
        };
        match self {
            View::Settled(answer) => answer.verdict != Verdict::Deny,
            View::ReadOnly => true,
            View::Allowlist(list, _) => match list.of(Kind::Resources) {
                Some(rules) => overlaps(&rules.rules, list.case),
                None => list.everything.is_some(),
            },
            View::Agent(AgentView { agent, server, .. }) => {
                let here = |list: &&Arc<List>| list.key.matches(server) && !list.rules.is_empty();
                let mut lists = agent.allow.of(Kind::Resources).iter().filter(here).peekable();
                match lists.peek() {
                    Some(_) => lists.any(|list| overlaps(&list.rules, agent.case)),
                    None => !narrows_tools(agent, server),
                }
            }
        }
    }
}

/// The server step of an agent: `deny.servers`, then `allow.servers`, otherwise deny.
pub(crate) fn server_step(agent: &Agent, index: u32, server: &str) -> Answer {
    let find = |rules: &[Rule]| rules.iter().position(|rule| rule.selector.matches_server(server));
    let at = |side, entry: usize| RuleRef {
        side,
        kind: Kind::Servers,
        agent: index,
        key: 0,
        entry: entry as u32,
    };
    if let Some(entry) = find(&agent.deny.servers) {
        return Answer::by(Verdict::Deny, Step::ServerDeny, at(Side::Deny, entry));
    }
    match find(&agent.allow.servers) {
        Some(entry) => Answer::by(Verdict::Allow, Step::ServerAllow, at(Side::Allow, entry)),
        None => Answer::new(Verdict::Deny, Step::ServerNotAllowed),
    }
}

pub(crate) fn read_only(asked: &Asked<'_>) -> Answer {
    // Reading a resource or a prompt changes nothing; only tools can write.
    let reads = asked.kind != Kind::Tools || asked.hints.contains("read-only");
    Answer::new(if reads { Verdict::Allow } else { Verdict::Deny }, Step::ReadOnlyMode)
}

impl AgentView<'_> {
    fn cell(&self, asked: &Asked<'_>) -> LayerCell {
        if asked.kind == Kind::ClientRequests {
            return LayerCell::Fixed(client_request(self.agent, self.index, asked.name));
        }
        let name = fold(asked.name, self.agent.case);
        let mut gathered = Gathered::new(asked, self.agent.case, vec![name]);
        let mut implicit = true;
        for (side, lists) in [(Side::Deny, &self.agent.deny), (Side::Allow, &self.agent.allow)] {
            for (key, list) in lists.of(asked.kind).iter().enumerate() {
                if list.key.matches(&self.server) {
                    implicit &= side == Side::Deny || list.rules.is_empty();
                    gathered.add(list, side, self.index, key as u32);
                }
            }
        }
        if asked.kind != Kind::Tools {
            implicit &= !narrows_tools(self.agent, &self.server);
        }
        let end = if implicit {
            Answer::new(Verdict::Allow, Step::ImplicitGrant)
        } else {
            Answer::new(Verdict::Deny, Step::DefaultDeny)
        };
        gathered.finish(end)
    }
}

/// Whether a non-empty `allow.tools` list applies to the server.
pub(crate) fn narrows_tools(agent: &Agent, server: &str) -> bool {
    agent.allow.tools.iter().any(|list| !list.rules.is_empty() && list.key.matches(server))
}

/// Decides about a server's request to the client. `elicitation` covers `elicitation.form` and `elicitation.url`.
/// Context of other servers in a sampling request is covered by its own name alone.
pub(crate) fn client_request(agent: &Agent, index: u32, name: &str) -> Answer {
    let is_context = name.starts_with("sampling.");
    let family = name.split_once('.').map_or(name, |(family, _)| family);
    let matches = |rule: &Rule| match is_context {
        true => !rule.selector.is_wildcard() && rule.selector.names_tool(name),
        false => rule.selector.names_tool(name) || rule.selector.names_tool(family),
    };
    let Some(entry) = agent.client_requests.iter().position(matches) else {
        return Answer::new(Verdict::Deny, Step::DefaultDeny);
    };
    let at = RuleRef {
        side: Side::Allow,
        kind: Kind::ClientRequests,
        agent: index,
        key: 0,
        entry: entry as u32,
    };
    let wildcard = agent.client_requests[entry].selector.is_wildcard();
    let step = if wildcard { Step::WildcardAllow } else { Step::ExactAllow };
    Answer::by(Verdict::Allow, step, at)
}

fn allowlist_cell(allowlist: &Allowlist, server: &str, asked: &Asked<'_>) -> LayerCell {
    let none = Answer::new(Verdict::Deny, Step::AllowlistNone);
    if asked.kind == Kind::ClientRequests {
        return LayerCell::Fixed(allowlist_client_request(asked.name));
    }
    let Some(list) = allowlist.of(asked.kind) else {
        return LayerCell::Fixed(allowlist_others(allowlist).unwrap_or(none));
    };
    let name = fold(asked.name, allowlist.case);
    let qualified = Cow::Owned(format!("{server}.{name}"));
    let mut gathered = Gathered::new(asked, allowlist.case, vec![name, qualified]);
    gathered.add(list, Side::Allowlist, 0, 0);
    gathered.finish(none)
}

/// Prompts and resources with an allowlist that does not cover them: allowed only with `*`.
pub(crate) fn allowlist_others(allowlist: &Allowlist) -> Option<Answer> {
    let entry = allowlist.everything?;
    let at = RuleRef { side: Side::Allowlist, kind: Kind::Tools, agent: 0, key: 0, entry };
    Some(Answer::by(Verdict::Allow, Step::AllowlistMatch, at))
}

/// An allowlist does not cover a server's requests to the client: the default applies.
pub(crate) fn allowlist_client_request(name: &str) -> Answer {
    let family = match name.split_once('.') {
        Some(("elicitation", _)) => "elicitation",
        _ => name,
    };
    match DEFAULT_CLIENT_REQUESTS.contains(&family) {
        true => Answer::new(Verdict::Allow, Step::ImplicitGrant),
        false => Answer::new(Verdict::Deny, Step::AllowlistNone),
    }
}

/// Entries that apply to a subject, while they are being collected.
struct Gathered<'a, 'p> {
    asked: &'a Asked<'a>,
    case: Case,
    /// The subject's name, and also `server.name` in a list without a server key; folded.
    names: Vec<Cow<'a, str>>,
    hits: Vec<Hit<'p>>,
    found: Vec<u32>,
    looks_for_action: bool,
    names_action: bool,
    missing_action_denies: bool,
}

struct Hit<'p> {
    rule: &'p Rule,
    at: RuleRef,
    by_name: bool,
    actions: Vec<Glob>,
}

impl<'a, 'p> Gathered<'a, 'p> {
    fn new(asked: &'a Asked<'a>, case: Case, names: Vec<Cow<'a, str>>) -> Self {
        Gathered {
            asked,
            case,
            names,
            hits: Vec::new(),
            found: Vec::new(),
            looks_for_action: false,
            names_action: false,
            missing_action_denies: false,
        }
    }

    fn add(&mut self, list: &'p List, side: Side, agent: u32, key: u32) {
        let at = |entry| RuleRef { side, kind: self.asked.kind, agent, key, entry };
        let tool = self.asked.kind == Kind::Tools;
        self.looks_for_action |= tool && list.reads_action;

        self.found.clear();
        for name in &self.names {
            list.index.by_name(name, &mut self.found);
        }
        let carried =
            |&&entry: &&u32| list.rules[entry as usize].selector.carried_by(self.asked.hints);
        self.found.extend(list.index.hints().iter().filter(carried));
        let first = self.hits.len();
        for &entry in &self.found {
            let rule = &list.rules[entry as usize];
            self.hits.push(Hit { rule, at: at(entry), by_name: true, actions: Vec::new() });
        }
        if !tool {
            return;
        }

        self.found.clear();
        for name in &self.names {
            list.index.by_action(name, &mut self.found);
        }
        self.found.sort_unstable();
        self.found.dedup();
        let by_pattern = side == Side::Deny || self.asked.declares_action;
        for &entry in &self.found {
            let rule = &list.rules[entry as usize];
            let actions: Vec<Glob> = self
                .names
                .iter()
                .flat_map(|name| rule.selector.actions_of(name, by_pattern).cloned())
                .collect();
            if actions.is_empty() {
                continue;
            }
            self.looks_for_action = true;
            self.names_action = true;
            if side == Side::Deny {
                let spelled = self.names.iter().any(|name| rule.selector.spells_action_of(name));
                self.missing_action_denies |= spelled || self.asked.declares_action;
            }
            if !self.hits[first..].iter().any(|hit| hit.at.entry == entry) {
                self.hits.push(Hit { rule, at: at(entry), by_name: false, actions });
            }
        }
    }

    fn finish(mut self, end: Answer) -> LayerCell {
        let order =
            |hit: &Hit<'_>| (step_of(hit.at.side, hit.rule) as u8, hit.at.key, hit.at.entry);
        self.hits.sort_by_key(order);
        self.hits.dedup_by_key(|hit| hit.at);
        let mut candidates = Vec::new();
        for hit in self.hits {
            let step = step_of(hit.at.side, hit.rule);
            let verdict = self.asked.verdict(hit.at.side, hit.rule);
            let limited = hit.rule.limit.is_some();
            let answer = Answer { limited, ..Answer::by(verdict, step, hit.at) };
            let always = hit.by_name && hit.rule.when.is_none();
            if always && candidates.is_empty() && !self.looks_for_action {
                return LayerCell::Fixed(answer);
            }
            candidates.push(Candidate {
                answer,
                by_name: hit.by_name,
                actions: hit.actions.into(),
                when: hit.rule.when.clone(),
            });
            if always {
                break;
            }
        }
        if candidates.is_empty() && !self.looks_for_action {
            return LayerCell::Fixed(end);
        }
        LayerCell::Program(Program {
            names_action: self.names_action,
            looks_for_action: self.looks_for_action,
            missing_action_denies: self.missing_action_denies,
            case: self.case,
            candidates: candidates.into(),
            end,
        })
    }
}

/// The step in which an entry is evaluated.
pub(crate) fn step_of(side: Side, rule: &Rule) -> Step {
    match (side, rule.selector.is_wildcard()) {
        (Side::Allowlist, _) => Step::AllowlistMatch,
        (Side::Deny, false) => Step::ExactDeny,
        (Side::Deny, true) => Step::WildcardDeny,
        (Side::Allow, false) => Step::ExactAllow,
        (Side::Allow, true) => Step::WildcardAllow,
    }
}
