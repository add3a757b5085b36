//! Finds limits and hooks that can never apply: they reference servers, tools or agents that do not exist.
//!
//! Servers whose tools are unknown produce no findings.

use toolward_config::config::{Config, Hook, Rates};
use toolward_config::{Diagnostic, suggest};
use toolward_gateway::guard::Selection;
use toolward_gateway::upstream::built_in;
use toolward_policy::selector::Glob;
use toolward_policy::source::Case;
use toolward_policy::{Catalogue, Policy, ToolSet};

use super::key;

/// All limits and hooks that refer to nothing.
pub(crate) fn unused(config: &Config, policy: &Policy, catalogue: &Catalogue) -> Vec<Diagnostic> {
    let own = config.builtin.then_some(built_in::NAME);
    let servers = config.servers.iter().map(|server| server.name.as_str()).chain(own).collect();
    let known = SelectorContext { config, policy, catalogue, servers };
    let mut findings = Vec::new();
    findings.extend(known.rates("limits", None, &config.limits.rates));
    for server in &config.servers {
        let path = format!("servers{}", key(&server.name));
        findings.extend(known.rates(&format!("{path}.limits"), Some(&server.name), &server.limits));
        let timeouts = server.timeout.by_tool.iter().map(|(pattern, _)| ("timeout", pattern));
        let results = server.result_bytes.by_tool.iter();
        let results = results.map(|(pattern, _)| ("result_bytes", pattern));
        for (what, pattern) in timeouts.chain(results) {
            findings.extend(known.plain(&format!("{path}.{what}"), &server.name, pattern));
        }
    }
    for (name, rates) in config.agent_limits.iter().flat_map(|file| &file.agents) {
        findings.extend(known.rates(&format!("agents{}.limits", key(name)), None, rates));
    }
    for hook in super::enabled(config) {
        findings.extend(known.hook(hook));
    }
    findings
}

struct SelectorContext<'a> {
    config: &'a Config,
    policy: &'a Policy,
    catalogue: &'a Catalogue,
    servers: Vec<&'a str>,
}

/// A selector with the servers and tools it is compared with.
struct NamedSelector<'a> {
    /// Its location.
    path: String,
    selector: &'a str,
    servers: Vec<&'a str>,
}

impl<'a> SelectorContext<'a> {
    /// Limits by tool: those of a server, or with the server in the pattern.
    fn rates(&self, path: &str, of: Option<&'a str>, rates: &'a Rates) -> Vec<Diagnostic> {
        let finding = |pattern: &'a String| {
            let path = format!("{path}.tools{}", key(pattern));
            let (servers, selector) = match (of, pattern.split_once('/')) {
                (Some(server), Some((first, _))) if first == server => {
                    let help = "this key names only the tool: leave out the server";
                    return Some(never(&path, help));
                }
                (Some(server), _) => (vec![server], pattern.as_str()),
                (None, Some((server, tool))) => (self.matching(server), tool),
                (None, None) => return None,
            };
            let tools = |selection: Selection| selection.tool(selector);
            self.nothing(NamedSelector { path, selector, servers }, tools)
        };
        rates.tools.iter().filter_map(|(pattern, _)| finding(pattern)).collect()
    }

    /// A name or pattern of a tool, if no other selector is allowed.
    fn plain(&self, path: &str, server: &'a str, pattern: &'a str) -> Option<Diagnostic> {
        let path = format!("{path}{}", key(pattern));
        if pattern.starts_with("hint:") {
            return Some(never(&path, "this key is the name of a tool, or a pattern"));
        }
        let glob = Glob::new(pattern, Case::Sensitive);
        let tools = self.catalogue.tools(server)?;
        let names = || tools.tools().iter().map(|tool| tool.name());
        let found = names().any(|name| glob.matches(name));
        (!found).then(|| no_tool(&path, pattern, names()))
    }

    fn hook(&self, hook: &'a Hook) -> Vec<Diagnostic> {
        let path = format!("hook `{}`", hook.name);
        let mut findings = Vec::new();
        let agents: Vec<&str> = self.agents();
        for pattern in hook.agents.iter().flatten().filter(|_| !agents.is_empty()) {
            let glob = Glob::new(pattern, Case::Sensitive);
            if !agents.iter().any(|agent| glob.matches(agent)) {
                let message =
                    format!("the {path}: no agent is named {} ({NEVER})", quoted(pattern));
                let nearest = suggest::nearest(pattern, agents.iter().copied());
                findings.push(Diagnostic::warning(message).maybe_help(nearest.map(meant)));
            }
        }
        let given = hook.servers.as_deref();
        let mut servers: Vec<&str> = match given {
            None => self.servers.clone(),
            Some(given) => given.iter().flat_map(|pattern| self.matching(pattern)).collect(),
        };
        servers.dedup();
        for pattern in given.unwrap_or_default() {
            // The loader reports unknown server names.
            let is_pattern = pattern.contains(['*', '?', '[']);
            if is_pattern && !self.servers.is_empty() && self.matching(pattern).is_empty() {
                let message =
                    format!("the {path}: no server matches {} ({NEVER})", quoted(pattern));
                findings.push(Diagnostic::warning(message));
            }
        }
        for selector in hook.tools.iter().flatten() {
            let path = format!("the {path}: {}", quoted(selector));
            if let Some((first, tool)) = selector.split_once('/')
                && self.servers.contains(&first)
            {
                let help = format!("write {}, or `servers`", quoted(&format!("{first}.{tool}")));
                findings.push(never(&path, &help));
                continue;
            }
            let named = NamedSelector { path, selector, servers: servers.clone() };
            findings.extend(self.nothing(named, |selection| selection.tools([selector.as_str()])));
        }
        findings
    }

    /// The names of agents that callers can have.
    fn agents(&self) -> Vec<&str> {
        let own = self.config.agents.iter().map(|agent| agent.name.as_str());
        let ruled = self.policy.agents();
        // If no rule refers to agents, unnamed callers are accepted.
        let nameless = ruled.is_empty().then_some("default");
        let mut all: Vec<&str> = own.chain(ruled).collect();
        all.extend(nameless.filter(|_| !all.is_empty()));
        all
    }

    fn matching(&self, pattern: &str) -> Vec<&'a str> {
        let glob = Glob::new(pattern, Case::Sensitive);
        self.servers.iter().copied().filter(|server| glob.matches(server)).collect()
    }

    /// A finding if all lists are known and nothing in them matches.
    fn nothing(
        &self,
        NamedSelector { path, selector, servers }: NamedSelector<'_>,
        narrowed: impl Fn(Selection) -> Selection,
    ) -> Option<Diagnostic> {
        let lists: Vec<(&str, &ToolSet)> = servers
            .iter()
            .map(|server| Some((*server, self.catalogue.tools(server)?)))
            .collect::<Option<_>>()?;
        let selection = narrowed(Selection::default());
        let meant = |(server, tools): &(&str, &ToolSet)| {
            tools.tools().iter().any(|tool| selection.covers_any_call_of(self.policy, server, tool))
        };
        if lists.is_empty() || lists.iter().any(meant) {
            return None;
        }
        let names =
            lists.iter().flat_map(|(_, tools)| tools.tools().iter().map(|tool| tool.name()));
        Some(no_tool(&path, selector, names))
    }
}

const NEVER: &str = "never-matches";

fn never(path: &str, help: &str) -> Diagnostic {
    Diagnostic::warning(format!("{path} can match no tool ({NEVER})")).help(help)
}

fn no_tool<'n>(path: &str, selector: &str, names: impl Iterator<Item = &'n str>) -> Diagnostic {
    let message = format!("{path} matches no known tool (no-known-tool)");
    Diagnostic::warning(message).maybe_help(suggest::nearest(selector, names).map(meant))
}

fn quoted(word: &str) -> String {
    format!("`{word}`")
}

fn meant(nearest: &str) -> String {
    format!("did you mean `{nearest}`?")
}
