//! Compiles a layer of a policy source, and collects its errors.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{
    Agent, AgentsLayer, Allowlist, CompileError, CompileProblem, DEFAULT_CLIENT_REQUESTS, List,
    Lists, Rule, push_key,
};
use crate::automaton::common_name;
use crate::condition::Condition;
use crate::decision::Kind;
use crate::fnmatch::{Pattern, is_pattern};
use crate::scope::RequiredScopes;
use crate::selector::{LONGEST_SELECTOR, MOST_DOTS, Selector};
use crate::source::{self, Case, Place};

/// Compiles one layer and collects its errors.
pub(super) struct Compiler<'e> {
    pub(super) layer: usize,
    /// Shadow entries count like others.
    pub(super) shadow: bool,
    pub(super) errors: &'e mut Vec<CompileError>,
}

impl Compiler<'_> {
    pub(super) fn agents(&mut self, layer: source::AgentsSource) -> AgentsLayer {
        let mut agents = Vec::with_capacity(layer.agents.len());
        let mut by_name = HashMap::with_capacity(layer.agents.len());
        let mut patterns: Vec<(Pattern, u32)> = Vec::new();
        let mut roles = Roles { sources: &layer.roles, compiled: HashMap::new() };
        // A role without agents is checked too.
        (0..layer.roles.len()).for_each(|role| drop(roles.get(self, role, Case::Sensitive)));
        for (name, agent) in layer.agents {
            let at = agents.len() as u32;
            let mut path = String::from("agents");
            push_key(&mut path, &name);
            if layer.patterns && is_pattern(&name) {
                let pattern = Pattern::new(&name);
                let others = patterns.iter().filter_map(|(_, at)| agents.get(*at as usize));
                let overlap = others.into_iter().find_map(|other: &Agent| {
                    Some((other.name.to_string(), common_name(&other.name, &name)?))
                });
                if let Some((pattern, name)) = overlap {
                    let problem = CompileProblem::OverlappingAgents { pattern, name };
                    self.error_at(path.clone(), Place::default(), problem);
                }
                patterns.push((pattern, at));
            }
            by_name.insert(name.as_str().into(), at);
            agents.push(self.agent(name, agent, &path, &mut roles));
        }
        let fallback =
            if layer.deny_on_missing_agent { None } else { by_name.get("default").copied() };
        AgentsLayer { agents, by_name, patterns, fallback }
    }

    fn agent(
        &mut self,
        name: String,
        source: source::AgentSource,
        path: &str,
        roles: &mut Roles<'_>,
    ) -> Agent {
        let case = source.case;
        let (mut deny, mut allow) = (Lists::default(), Lists::default());
        let mut requests: Option<Vec<String>> = None;
        let mut requests_from = Vec::new();
        for role in &source.roles {
            let Some(at) = roles.sources.iter().position(|(known, _)| known == role) else {
                let problem = CompileProblem::UnknownRole(role.clone());
                self.error_at(format!("{path}.roles"), Place::default(), problem);
                continue;
            };
            let compiled = roles.get(self, at, case);
            deny.append(Some(&compiled.name), compiled.deny.clone());
            allow.append(Some(&compiled.name), compiled.allow.clone());
            if let Some(own) = &roles.sources[at].1.client_requests {
                requests_from.push((compiled.name.clone(), own.len() as u32));
                requests.get_or_insert_default().extend_from_slice(own);
            }
        }
        deny.append(None, self.lists(source.deny, case, &format!("{path}.deny"), true, None));
        allow.append(None, self.lists(source.allow, case, &format!("{path}.allow"), false, None));
        if let Some(own) = source.client_requests {
            requests.get_or_insert_default().extend(own);
        }
        let requests = requests.unwrap_or_else(|| {
            DEFAULT_CLIENT_REQUESTS.iter().map(|name| String::from(*name)).collect()
        });
        let requests = requests.into_iter().map(source::Entry::from).collect();
        let client_requests = self.rules(requests, Case::Sensitive, path, false);
        Agent { case, deny, allow, client_requests, requests_from, name: name.into() }
    }

    fn lists(
        &mut self,
        side: source::SideSource,
        case: Case,
        path: &str,
        deny: bool,
        role: Option<&Arc<str>>,
    ) -> Lists {
        let mut keyed = |lists: Vec<source::KeyedList>, kind: Kind| {
            let mut compiled = Vec::with_capacity(lists.len());
            for list in lists {
                let mut path = format!("{path}.{}", kind.as_str());
                push_key(&mut path, &list.key);
                let rules = self.rules(list.entries, case, &path, deny);
                let rules = normalised(rules, kind, case);
                let (role, key_place) = (role.cloned(), list.place);
                compiled.push(Arc::new(List {
                    role,
                    key_place,
                    ..List::new(&list.key, case, rules)
                }));
            }
            compiled
        };
        Lists {
            tools: keyed(side.tools, Kind::Tools),
            prompts: keyed(side.prompts, Kind::Prompts),
            resources: keyed(side.resources, Kind::Resources),
            servers: self.rules(side.servers, case, &format!("{path}.servers"), deny),
            servers_from: Vec::new(),
        }
    }

    pub(super) fn allowlist(&mut self, source: source::AllowlistSource) -> Allowlist {
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
            if deny && entry.ask.is_some() {
                self.error(path, index, entry.place, CompileProblem::AskInDeny);
            }
            if deny && entry.limit.is_some() {
                self.error(path, index, entry.place, CompileProblem::LimitInDeny);
            }
            if deny && entry.scope.is_some() {
                self.error(path, index, entry.place, CompileProblem::ScopeInDeny);
            }
            let scopes = entry.scope.as_deref().map(RequiredScopes::parse);
            if let Some(None) = scopes {
                self.error(path, index, entry.place, CompileProblem::InvalidScope);
            }
            let when = match Condition::of_entry(entry.when.as_deref(), scopes.flatten()) {
                Ok(when) => when.map(Arc::new),
                Err(error) => {
                    self.error(path, index, entry.place, CompileProblem::Condition(error));
                    None
                }
            };
            let selector = Selector::new(&entry.selector, case);
            let source::Entry { ask, limit, message, place, shadow, .. } = entry;
            let (message, ask, written) =
                (message.map(Into::into), ask.map(Arc::new), index as u32);
            // The entry is compiled even if it is not used, for its errors.
            if self.shadow || !shadow {
                rules.push(Rule { selector, when, ask, limit, message, written, place });
            }
        }
        rules
    }

    fn error(&mut self, path: &str, index: usize, place: Place, problem: CompileProblem) {
        self.error_at(format!("{path}[{index}]"), place, problem);
    }

    fn error_at(&mut self, path: String, place: Place, problem: CompileProblem) {
        self.errors.push(CompileError { layer: Some(self.layer), path, place, problem });
    }
}

/// The roles of a layer, compiled once for each case that their agents have.
struct Roles<'s> {
    sources: &'s [(String, source::RoleSource)],
    compiled: HashMap<(usize, bool), Arc<Role>>,
}

struct Role {
    name: Arc<str>,
    deny: Lists,
    allow: Lists,
}

impl Roles<'_> {
    fn get(&mut self, compiler: &mut Compiler<'_>, role: usize, case: Case) -> Arc<Role> {
        let key = (role, case == Case::Insensitive);
        if let Some(known) = self.compiled.get(&key) {
            return known.clone();
        }
        let (name, source) = &self.sources[role];
        let mut path = String::from("roles");
        push_key(&mut path, name);
        let name: Arc<str> = name.as_str().into();
        let mut lists = |side: &source::SideSource, key: &str, deny| {
            compiler.lists(side.clone(), case, &format!("{path}.{key}"), deny, Some(&name))
        };
        let deny = lists(&source.deny, "deny", true);
        let allow = lists(&source.allow, "allow", false);
        let compiled = Arc::new(Role { name, deny, allow });
        self.compiled.insert(key, compiled.clone());
        compiled
    }
}

/// URIs are compared after normalization, so an exact selector of a URI is normalized too.
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
