//! Compiled layers: the same rules as in the source, with selectors parsed and indexed.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::condition::{Condition, ConditionError, Reads};
use crate::decision::{Kind, RuleRef, Side};
use crate::index::Index;
use crate::rate::Rate;
use crate::selector::{Glob, LONGEST_SELECTOR, MOST_DOTS, Selector, fold};
use crate::source::{self, Case, Place};

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
    by_name: HashMap<Box<str>, u32>,
    /// Whose rules hold for a caller that this layer does not know.
    fallback: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) name: Box<str>,
    pub(crate) case: Case,
    pub(crate) deny: Lists,
    pub(crate) allow: Lists,
    pub(crate) client_requests: Vec<Rule>,
}

/// `allow` or `deny` of an agent.
#[derive(Debug)]
pub(crate) struct Lists {
    pub(crate) servers: Vec<Rule>,
    pub(crate) tools: Vec<List>,
    pub(crate) prompts: Vec<List>,
    pub(crate) resources: Vec<List>,
}

/// The rules under one key.
#[derive(Debug)]
pub(crate) struct List {
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
    /// The entry `*`, which leaves a server's other offerings open too.
    pub(crate) everything: Option<u32>,
}

/// One compiled entry.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) selector: Selector,
    pub(crate) when: Option<Arc<Condition>>,
    pub(crate) ask: bool,
    pub(crate) limit: Option<Rate>,
    pub(crate) message: Option<Box<str>>,
    pub(crate) place: Place,
}

/// Why a policy does not compile, and where.
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
    SelectorTooLong,
    TooManyDots,
    /// A rule speaks of a tool by the name that clients see.
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
            Self::AskInDeny => write!(f, "`ask` makes no sense in a deny list"),
            Self::LimitInDeny => write!(f, "`limit` makes no sense in a deny list"),
            Self::SelectorTooLong => {
                write!(f, "a selector is longer than {LONGEST_SELECTOR} bytes")
            }
            Self::TooManyDots => write!(f, "a selector has more than {MOST_DOTS} dots"),
            Self::DisplayName { selector, server, .. } => write!(
                f,
                "`{selector}` is a display name on `{server}`: rules speak of original names"
            ),
        }
    }
}

impl Layer {
    pub(crate) fn new(
        index: usize,
        layer: source::LayerSource,
        errors: &mut Vec<CompileError>,
    ) -> Layer {
        let mut compiler = Compiler { layer: index, errors };
        let rules = match layer.rules {
            source::RulesSource::Agents(agents) => Rules::Agents(compiler.agents(agents)),
            source::RulesSource::Allowlist(list) => {
                Rules::Allowlist(compiler.allowlist(list).into())
            }
            source::RulesSource::ReadOnly => Rules::ReadOnly,
        };
        Layer { name: layer.name.into(), rules }
    }

    /// What conditions of this layer's tool rules read.
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
                lists.map(of_list).fold(Reads::default(), Reads::or)
            }
        }
    }

    /// The rule at an address of this layer.
    pub(crate) fn rule(&self, at: RuleRef) -> Option<&Rule> {
        let list = match &self.rules {
            Rules::Agents(layer) => {
                let agent = layer.agents.get(at.agent as usize)?;
                let side = if at.side == Side::Deny { &agent.deny } else { &agent.allow };
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

    /// Exact rules that speak of this tool, with the key of the list they stand under; without one
    /// in an allowlist, where `server.tool` counts too.
    pub(crate) fn exact_rules<'a>(
        &'a self,
        server: &str,
        tool: &str,
    ) -> Vec<(RuleRef, Option<(&'a Glob, Case)>)> {
        match &self.rules {
            Rules::ReadOnly => Vec::new(),
            Rules::Allowlist(list) => {
                let names = [tool.to_string(), format!("{server}.{tool}")];
                let names = names.map(|name| fold(&name, list.case).into_owned());
                let at = |entry| RuleRef {
                    side: Side::Allowlist,
                    kind: Kind::Tools,
                    agent: 0,
                    key: 0,
                    entry,
                };
                let found = names.iter().filter_map(|name| list.tools.exact(name));
                found.map(|entry| (at(entry), None)).collect()
            }
            Rules::Agents(layer) => {
                let mut found = Vec::new();
                for (at, agent) in layer.agents.iter().enumerate() {
                    let (server, tool) = (fold(server, agent.case), fold(tool, agent.case));
                    for (side, lists) in [(Side::Deny, &agent.deny), (Side::Allow, &agent.allow)] {
                        for (key, list) in lists.tools.iter().enumerate() {
                            if list.key.matches(&server)
                                && let Some(entry) = list.exact(&tool)
                            {
                                let (agent_at, key) = (at as u32, key as u32);
                                let kind = Kind::Tools;
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

    /// The path of a rule, as a person would write it: `agents.dev.deny.tools.db[0]`.
    pub(crate) fn path(&self, at: RuleRef) -> String {
        let entry = at.entry;
        match &self.rules {
            Rules::Agents(layer) => {
                let agent = layer.agents.get(at.agent as usize);
                let mut path = String::from("agents");
                push_key(&mut path, agent.map_or("", |agent| &agent.name));
                path.push_str(if at.side == Side::Deny { ".deny." } else { ".allow." });
                path.push_str(at.kind.as_str());
                let lists = agent.map(|agent| {
                    if at.side == Side::Deny {
                        agent.deny.of(at.kind)
                    } else {
                        agent.allow.of(at.kind)
                    }
                });
                if let Some(list) = lists.and_then(|lists| lists.get(at.key as usize)) {
                    push_key(&mut path, &list.key_written);
                }
                format!("{path}[{entry}]")
            }
            Rules::Allowlist(list) => match at.kind {
                Kind::Prompts => format!("allowed_prompts[{entry}]"),
                Kind::Resources => format!("allowed_resources[{entry}]"),
                _ => format!("{}[{entry}]", list.path),
            },
            Rules::ReadOnly => String::from("read_only"),
        }
    }
}

/// Appends a key of a mapping to a path; what is not a plain word is quoted.
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

impl AgentsLayer {
    /// Whose rules hold for this caller: its own, the `default` agent's where the file says so, or
    /// nobody's.
    pub(crate) fn agent(&self, name: Option<&str>) -> Option<u32> {
        name.and_then(|name| self.by_name.get(name).copied()).or(self.fallback)
    }

    /// Whether the layer has rules for this very name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.agents.iter().map(|agent| &*agent.name)
    }
}

impl Lists {
    pub(crate) fn of(&self, kind: Kind) -> &[List] {
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

/// Compiles the parts of one layer, and collects what is wrong with it.
struct Compiler<'e> {
    layer: usize,
    errors: &'e mut Vec<CompileError>,
}

impl Compiler<'_> {
    fn agents(&mut self, layer: source::AgentsSource) -> AgentsLayer {
        let mut agents = Vec::with_capacity(layer.agents.len());
        let mut by_name = HashMap::with_capacity(layer.agents.len());
        for (name, agent) in layer.agents {
            by_name.insert(name.as_str().into(), agents.len() as u32);
            let mut path = String::from("agents");
            push_key(&mut path, &name);
            let requests = agent.client_requests.unwrap_or_else(|| vec!["elicitation".into()]);
            let requests = requests.into_iter().map(source::Entry::from).collect();
            agents.push(Agent {
                case: agent.case,
                deny: self.lists(agent.deny, agent.case, &format!("{path}.deny"), true),
                allow: self.lists(agent.allow, agent.case, &format!("{path}.allow"), false),
                client_requests: self.rules(requests, Case::Sensitive, &path, false),
                name: name.into(),
            });
        }
        let fallback =
            if layer.deny_on_missing_agent { None } else { by_name.get("default").copied() };
        AgentsLayer { agents, by_name, fallback }
    }

    fn lists(&mut self, side: source::SideSource, case: Case, path: &str, deny: bool) -> Lists {
        let mut keyed = |lists: Vec<source::KeyedList>, kind: Kind| {
            let mut compiled = Vec::with_capacity(lists.len());
            for list in lists {
                let mut path = format!("{path}.{}", kind.as_str());
                push_key(&mut path, &list.key);
                let rules = self.rules(list.entries, case, &path, deny);
                let rules = normalised(rules, kind, case);
                compiled.push(List { key_place: list.place, ..List::new(&list.key, case, rules) });
            }
            compiled
        };
        Lists {
            tools: keyed(side.tools, Kind::Tools),
            prompts: keyed(side.prompts, Kind::Prompts),
            resources: keyed(side.resources, Kind::Resources),
            servers: self.rules(side.servers, case, &format!("{path}.servers"), deny),
        }
    }

    fn allowlist(&mut self, source: source::AllowlistSource) -> Allowlist {
        let mut list = |entries: Vec<source::Entry>, path: &str, kind: Kind| {
            for (index, entry) in entries.iter().enumerate() {
                if entry.selector.starts_with('!') {
                    let problem = CompileProblem::DenyInAllowlist(entry.selector.clone());
                    self.error(path, index, entry.place, problem);
                }
            }
            let rules = self.rules(entries, source.case, path, false);
            List::new("*", source.case, normalised(rules, kind, source.case))
        };
        let tools = list(source.tools, &source.path, Kind::Tools);
        let everything = tools
            .rules
            .iter()
            .position(|rule| rule.selector.written() == "*" && rule.when.is_none());
        Allowlist {
            prompts: source.prompts.map(|e| list(e, "allowed_prompts", Kind::Prompts)),
            resources: source.resources.map(|e| list(e, "allowed_resources", Kind::Resources)),
            everything: everything.map(|entry| entry as u32),
            path: source.path.into(),
            case: source.case,
            tools,
        }
    }

    fn rules(
        &mut self,
        entries: Vec<source::Entry>,
        case: Case,
        path: &str,
        deny: bool,
    ) -> Vec<Rule> {
        let mut rules = Vec::with_capacity(entries.len());
        for (index, entry) in entries.into_iter().enumerate() {
            if entry.selector.len() > LONGEST_SELECTOR {
                self.error(path, index, entry.place, CompileProblem::SelectorTooLong);
                continue;
            }
            if entry.selector.bytes().filter(|b| *b == b'.').count() > MOST_DOTS {
                self.error(path, index, entry.place, CompileProblem::TooManyDots);
                continue;
            }
            if deny && entry.ask {
                self.error(path, index, entry.place, CompileProblem::AskInDeny);
            }
            if deny && entry.limit.is_some() {
                self.error(path, index, entry.place, CompileProblem::LimitInDeny);
            }
            let when = match entry.when.as_deref().map(Condition::new).transpose() {
                Ok(when) => when.map(Arc::new),
                Err(error) => {
                    self.error(path, index, entry.place, CompileProblem::Condition(error));
                    None
                }
            };
            let selector = Selector::new(&entry.selector, case);
            let source::Entry { ask, limit, message, place, .. } = entry;
            let message = message.map(Into::into);
            rules.push(Rule { selector, when, ask, limit, message, place });
        }
        rules
    }

    fn error(&mut self, path: &str, index: usize, place: Place, problem: CompileProblem) {
        let path = format!("{path}[{index}]");
        self.errors.push(CompileError { layer: Some(self.layer), path, place, problem });
    }
}

/// URIs are compared after normalisation, so an exact selector of a URI is normalised too.
fn normalised(mut rules: Vec<Rule>, kind: Kind, case: Case) -> Vec<Rule> {
    if kind == Kind::Resources {
        for rule in &mut rules {
            if !rule.selector.is_wildcard()
                && let Ok(uri) = crate::uri::normalise(rule.selector.written())
            {
                rule.selector = Selector::new(&uri, case);
            }
        }
    }
    rules
}

impl List {
    /// An entry that is this very name, or an action of it.
    fn exact(&self, name: &str) -> Option<u32> {
        let exact = |rule: &Rule| {
            let whole = rule.selector.name_form().is_some_and(|form| form.whole.equals(name));
            !rule.selector.is_wildcard() && (whole || rule.selector.spells_action_of(name))
        };
        self.rules.iter().position(exact).map(|entry| entry as u32)
    }

    fn new(key: &str, case: Case, rules: Vec<Rule>) -> List {
        List {
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
