//! Compiled layers: the same rules as in the source, with selectors parsed and indexed.

mod compile;

use std::sync::Arc;

use hashbrown::HashMap;

use self::compile::Compiler;
use crate::condition::{Condition, ConditionError, Reads};
use crate::decision::{Kind, RuleRef, Side};
use crate::fnmatch::Pattern;
use crate::index::Index;
use crate::rate::Rate;
use crate::selector::{Glob, LONGEST_SELECTOR, MOST_DOTS, Selector, fold};
use crate::source::{self, Ask, Case, Place};

/// The requests of a server that reach the client of an agent without `client_requests`, and beside an allowlist.
pub(crate) const DEFAULT_CLIENT_REQUESTS: [&str; 2] = ["elicitation", "roots"];

/// One policy source, compiled.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) name: Box<str>,
    pub(crate) rules: Rules,
}

#[derive(Debug)]
pub(crate) enum Rules {
    Agents(AgentsLayer),
    Allowlist(Box<Allowlist>),
    ReadOnly,
}

#[derive(Debug)]
pub(crate) struct AgentsLayer {
    pub(crate) agents: Vec<Agent>,
    /// Agents by their names as written, patterns included.
    by_name: HashMap<Box<str>, u32>,
    /// Names that are patterns. No name matches two of them.
    patterns: Vec<(Pattern, u32)>,
    /// The agent whose rules apply to a caller without rules in this layer.
    fallback: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) name: Box<str>,
    pub(crate) case: Case,
    pub(crate) deny: Lists,
    pub(crate) allow: Lists,
    pub(crate) client_requests: Vec<Rule>,
    /// The roles that the first of `client_requests` come from.
    requests_from: Origins,
}

/// `allow` or `deny` of an agent: the lists of its roles, then its own. Agents share the lists of a role.
#[derive(Debug, Default, Clone)]
pub(crate) struct Lists {
    pub(crate) servers: Vec<Rule>,
    /// The roles that the first of `servers` come from.
    servers_from: Origins,
    pub(crate) tools: Vec<Arc<List>>,
    pub(crate) prompts: Vec<Arc<List>>,
    pub(crate) resources: Vec<Arc<List>>,
}

/// The roles that a list of entries begins with, and how many entries each of them has.
type Origins = Vec<(Arc<str>, u32)>;

/// The rules under one key.
#[derive(Debug)]
pub(crate) struct List {
    /// The role that the list belongs to; `None` for an agent's own.
    pub(crate) role: Option<Arc<str>>,
    pub(crate) key: Glob,
    pub(crate) key_written: Box<str>,
    pub(crate) key_place: Place,
    pub(crate) rules: Vec<Rule>,
    pub(crate) index: Index,
    /// A condition of this list reads `action`.
    pub(crate) reads_action: bool,
}

#[derive(Debug)]
pub(crate) struct Allowlist {
    pub(crate) path: Box<str>,
    pub(crate) case: Case,
    pub(crate) tools: List,
    pub(crate) prompts: Option<List>,
    pub(crate) resources: Option<List>,
    /// The entry `*`, which also covers the server's resources and prompts.
    pub(crate) everything: Option<u32>,
}

/// One compiled entry.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) selector: Selector,
    pub(crate) when: Option<Arc<Condition>>,
    pub(crate) ask: Option<Arc<Ask>>,
    pub(crate) limit: Option<Rate>,
    pub(crate) message: Option<Box<str>>,
    /// Its index in the list as written, which may have shadow entries too.
    pub(crate) written: u32,
    pub(crate) place: Place,
}

/// Why a policy does not compile, with the location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// Index of the layer, or `None` for a server's exposure.
    pub layer: Option<usize>,
    /// The rule's path, as in a decision.
    pub path: String,
    pub place: Place,
    pub problem: CompileProblem,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompileProblem {
    Condition(ConditionError),
    Exposure(crate::exposure::ExposureProblem),
    /// An allowlist entry that starts with `!`.
    DenyInAllowlist(String),
    AskInDeny,
    LimitInDeny,
    ScopeInDeny,
    InvalidScope,
    SelectorTooLong,
    TooManyDots,
    UnknownRole(String),
    /// Two patterns of agents match the same name.
    OverlappingAgents {
        pattern: String,
        name: String,
    },
    /// A rule uses the display name of a tool or prompt.
    DisplayName {
        selector: String,
        server: String,
        original: String,
    },
}

impl std::fmt::Display for CompileProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Condition(error) => error.fmt(f),
            Self::Exposure(problem) => problem.fmt(f),
            Self::DenyInAllowlist(entry) => {
                write!(f, "`{entry}` looks like a deny rule, but an allowlist only allows")
            }
            Self::AskInDeny => write!(f, "`ask` is not allowed in a deny list"),
            Self::LimitInDeny => write!(f, "`limit` is not allowed in a deny list"),
            Self::ScopeInDeny => write!(f, "`scope` is not allowed in a deny list"),
            Self::InvalidScope => {
                write!(f, "`scope` is not a list of OAuth scopes with spaces between them")
            }
            Self::SelectorTooLong => {
                write!(f, "a selector is longer than {LONGEST_SELECTOR} bytes")
            }
            Self::TooManyDots => write!(f, "a selector has more than {MOST_DOTS} dots"),
            Self::UnknownRole(role) => write!(f, "there is no role named `{role}`"),
            Self::OverlappingAgents { pattern, name } => {
                write!(f, "the agent `{name}` would match this pattern and `{pattern}`")
            }
            Self::DisplayName { selector, server, .. } => write!(
                f,
                "`{selector}` is a display name on `{server}`: rules match original names"
            ),
        }
    }
}

impl Layer {
    pub(crate) fn new(
        index: usize,
        layer: source::LayerSource,
        shadow: bool,
        errors: &mut Vec<CompileError>,
    ) -> Layer {
        let mut compiler = Compiler { layer: index, shadow, errors };
        let rules = match layer.rules {
            source::RulesSource::Agents(agents) => Rules::Agents(compiler.agents(agents)),
            source::RulesSource::Allowlist(list) => {
                Rules::Allowlist(compiler.allowlist(list).into())
            }
            source::RulesSource::ReadOnly => Rules::ReadOnly,
        };
        Layer { name: layer.name.into(), rules }
    }

    /// The variables that conditions of this layer's tool rules read.
    pub(crate) fn reads(&self) -> Reads {
        let of_list = |list: &List| {
            let conditions = list.rules.iter().filter_map(|rule| rule.when.as_ref());
            conditions.map(|when| when.reads()).fold(Reads::default(), Reads::or)
        };
        match &self.rules {
            Rules::ReadOnly => Reads::default(),
            Rules::Allowlist(list) => of_list(&list.tools),
            Rules::Agents(layer) => {
                let sides = layer.agents.iter().flat_map(|agent| [&agent.deny, &agent.allow]);
                let lists = sides.flat_map(|side| &side.tools);
                lists.map(|list| of_list(list)).fold(Reads::default(), Reads::or)
            }
        }
    }

    /// Whether any entry asks.
    pub(crate) fn asks(&self) -> bool {
        !self.asking().is_empty()
    }

    /// The addresses of all entries that ask.
    pub(crate) fn asking(&self) -> Vec<RuleRef> {
        let of_list = |list: &List, at: &dyn Fn(u32) -> RuleRef| -> Vec<RuleRef> {
            let asking = list.rules.iter().enumerate().filter(|(_, rule)| rule.ask.is_some());
            asking.map(|(entry, _)| at(entry as u32)).collect()
        };
        let kinds = [Kind::Tools, Kind::Prompts, Kind::Resources];
        let mut found = Vec::new();
        match &self.rules {
            Rules::ReadOnly => {}
            Rules::Allowlist(list) => {
                for kind in kinds {
                    let at = |entry| RuleRef { kind, ..RuleRef::in_allowlist(entry) };
                    found.extend(list.of(kind).into_iter().flat_map(|list| of_list(list, &at)));
                }
            }
            Rules::Agents(layer) => {
                for (index, agent) in layer.agents.iter().enumerate() {
                    for kind in kinds {
                        for (key, list) in agent.allow.of(kind).iter().enumerate() {
                            let at = |entry| RuleRef {
                                kind,
                                ..RuleRef::allowed_tool(index as u32, key as u32, entry)
                            };
                            found.extend(of_list(list, &at));
                        }
                    }
                }
            }
        }
        found
    }

    /// The rule at an address of this layer.
    pub(crate) fn rule(&self, at: RuleRef) -> Option<&Rule> {
        let list = match &self.rules {
            Rules::Agents(layer) => {
                let agent = layer.agents.get(at.agent as usize)?;
                let side = agent.side(at.side);
                match at.kind {
                    Kind::Servers => return side.servers.get(at.entry as usize),
                    Kind::ClientRequests => return agent.client_requests.get(at.entry as usize),
                    kind => side.of(kind).get(at.key as usize)?,
                }
            }
            Rules::Allowlist(allowlist) => allowlist.of(at.kind)?,
            Rules::ReadOnly => return None,
        };
        list.rules.get(at.entry as usize)
    }

    /// Exact rules for this tool or prompt, with the key of their list. Rules of an allowlist have no
    /// key, and `server.tool` counts there too.
    pub(crate) fn exact_rules<'a>(
        &'a self,
        kind: Kind,
        server: &str,
        tool: &str,
    ) -> Vec<(RuleRef, Option<(&'a Glob, Case)>)> {
        match &self.rules {
            Rules::ReadOnly => Vec::new(),
            Rules::Allowlist(list) => {
                let names = [tool.to_string(), format!("{server}.{tool}")];
                let names = names.map(|name| fold(&name, list.case).into_owned());
                let at = |entry| RuleRef { side: Side::Allowlist, kind, agent: 0, key: 0, entry };
                let found = list.of(kind).into_iter();
                let found =
                    found.flat_map(|of| names.iter().filter_map(|name| of.exact(kind, name)));
                found.map(|entry| (at(entry), None)).collect()
            }
            Rules::Agents(layer) => {
                let mut found = Vec::new();
                for (at, agent) in layer.agents.iter().enumerate() {
                    let (server, tool) = (fold(server, agent.case), fold(tool, agent.case));
                    for (side, lists) in [(Side::Deny, &agent.deny), (Side::Allow, &agent.allow)] {
                        for (key, list) in lists.of(kind).iter().enumerate() {
                            if list.key.matches(&server)
                                && let Some(entry) = list.exact(kind, &tool)
                            {
                                let (agent_at, key) = (at as u32, key as u32);
                                let rule = RuleRef { side, kind, agent: agent_at, key, entry };
                                found.push((rule, Some((&list.key, agent.case))));
                            }
                        }
                    }
                }
                found
            }
        }
    }

    /// The role that a rule belongs to.
    pub(crate) fn role(&self, at: RuleRef) -> Option<&str> {
        match &self.rules {
            Rules::Agents(layer) => layer.agents.get(at.agent as usize)?.origin(at),
            _ => None,
        }
    }

    /// The path of a rule as a person would write it: `agents.dev.deny.tools.db[0]`.
    pub(crate) fn path(&self, at: RuleRef) -> String {
        let entry = self.rule(at).map_or(at.entry, |rule| rule.written);
        match &self.rules {
            Rules::Agents(layer) => match layer.agents.get(at.agent as usize) {
                Some(agent) => agent.path(at, entry),
                None => String::from("agents"),
            },
            Rules::Allowlist(list) => match at.kind {
                Kind::Prompts => format!("allowed_prompts[{entry}]"),
                Kind::Resources => format!("allowed_resources[{entry}]"),
                _ => format!("{}[{entry}]", list.path),
            },
            Rules::ReadOnly => String::from("read_only"),
        }
    }
}

/// Appends a mapping key to a path; a key that is not a plain word is quoted.
pub(crate) fn push_key(path: &mut String, key: &str) {
    let plain =
        !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if plain {
        path.push('.');
        path.push_str(key);
    } else {
        path.push('[');
        path.push_str(&serde_json::Value::from(key).to_string());
        path.push(']');
    }
}

impl Agent {
    fn side(&self, side: Side) -> &Lists {
        if side == Side::Deny { &self.deny } else { &self.allow }
    }

    /// The role that a rule comes from.
    pub(crate) fn origin(&self, at: RuleRef) -> Option<&str> {
        let lists = self.side(at.side);
        match at.kind {
            Kind::Servers => origin(&lists.servers_from, at.entry).0,
            Kind::ClientRequests => origin(&self.requests_from, at.entry).0,
            kind => lists.of(kind).get(at.key as usize).and_then(|list| list.role.as_deref()),
        }
    }

    /// `agents.dev.deny.tools.db[0]`, or `roles.reader.allow.tools.db[0]`.
    fn path(&self, at: RuleRef, entry: u32) -> String {
        let role = self.origin(at);
        let entry = match at.kind {
            // They are numbered through all roles.
            Kind::ClientRequests => origin(&self.requests_from, at.entry).1,
            _ => entry,
        };
        let mut path = String::from(if role.is_some() { "roles" } else { "agents" });
        push_key(&mut path, role.unwrap_or(&self.name));
        path.push_str(if at.side == Side::Deny { ".deny." } else { ".allow." });
        path.push_str(at.kind.as_str());
        if let Some(list) = self.side(at.side).of(at.kind).get(at.key as usize) {
            push_key(&mut path, &list.key_written);
        }
        format!("{path}[{entry}]")
    }
}

/// The role that an entry comes from, and its index there.
fn origin(origins: &Origins, entry: u32) -> (Option<&str>, u32) {
    let mut rest = entry;
    for (role, entries) in origins {
        match rest.checked_sub(*entries) {
            None => return (Some(role), rest),
            Some(after) => rest = after,
        }
    }
    (None, rest)
}

impl AgentsLayer {
    /// The agent whose rules apply to this caller: its own, those of a pattern that matches its name,
    /// those of `default` if the file permits it, or none.
    pub(crate) fn agent(&self, name: Option<&str>) -> Option<u32> {
        name.and_then(|name| self.named(name)).or(self.fallback)
    }

    fn named(&self, name: &str) -> Option<u32> {
        let by_pattern = || self.patterns.iter().find(|(pattern, _)| pattern.matches(name));
        self.by_name.get(name).copied().or_else(|| by_pattern().map(|(_, at)| *at))
    }

    /// Whether the layer has rules for this name: exactly, or by a pattern.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.named(name).is_some()
    }

    /// The key of the rules for this name: the name itself, or the pattern that matches it.
    pub(crate) fn key(&self, name: &str) -> Option<&str> {
        Some(&*self.agents.get(self.named(name)? as usize)?.name)
    }

    /// Agents whose names are patterns.
    pub(crate) fn pattern_names(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().filter_map(|(_, at)| Some(&*self.agents.get(*at as usize)?.name))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.agents.iter().map(|agent| &*agent.name)
    }
}

impl Lists {
    /// Adds the lists of a role, or the agent's own after those of its roles.
    fn append(&mut self, role: Option<&Arc<str>>, lists: Lists) {
        if let Some(role) = role {
            self.servers_from.push((role.clone(), lists.servers.len() as u32));
        }
        self.servers.extend(lists.servers);
        self.tools.extend(lists.tools);
        self.prompts.extend(lists.prompts);
        self.resources.extend(lists.resources);
    }

    pub(crate) fn of(&self, kind: Kind) -> &[Arc<List>] {
        match kind {
            Kind::Tools => &self.tools,
            Kind::Prompts => &self.prompts,
            Kind::Resources => &self.resources,
            Kind::Servers | Kind::ClientRequests => &[],
        }
    }
}

impl Allowlist {
    pub(crate) fn of(&self, kind: Kind) -> Option<&List> {
        match kind {
            Kind::Prompts => self.prompts.as_ref(),
            Kind::Resources => self.resources.as_ref(),
            _ => Some(&self.tools),
        }
    }
}

impl List {
    /// An entry that is exactly this name, or an action of the tool.
    fn exact(&self, kind: Kind, name: &str) -> Option<u32> {
        let exact = |rule: &Rule| {
            let whole = rule.selector.name_form().is_some_and(|form| form.whole.equals(name));
            let action = kind == Kind::Tools && rule.selector.spells_action_of(name);
            !rule.selector.is_wildcard() && (whole || action)
        };
        self.rules.iter().position(exact).map(|entry| entry as u32)
    }

    fn new(key: &str, case: Case, rules: Vec<Rule>) -> List {
        List {
            role: None,
            key: Glob::new(key, case),
            key_written: key.into(),
            key_place: Place::default(),
            index: Index::new(rules.iter().map(|rule| &rule.selector)),
            reads_action: rules
                .iter()
                .any(|rule| rule.when.as_ref().is_some_and(|when| when.reads().action)),
            rules,
        }
    }
}
