//! The tools an agent can call, as listed in its refusals.
//!
//! Built once per listing, and only from what the agent's listing contains. So no refusal can name
//! a hidden tool, regardless of the name that was sent.

use hashbrown::{HashMap, HashSet};

use crate::call::Caller;
use crate::decision::Verdict;
use crate::layer::{List, Rule, Rules};
use crate::policy::{Policy, Row};
use crate::selector::fold;
use crate::source::Case;
use crate::spelling::{Callable, Readable, Spelling, covers_name};
use crate::view::server_step;

/// The tools of one server that the agent may use.
pub struct Offer<'a> {
    pub server: &'a str,
    /// The prefix of this server's tool names on the client side: `files__`, or empty.
    pub prefix: String,
    pub row: &'a Row,
    /// The client-side name of each tool in the row; `None` if the tool is not listed.
    pub names: Vec<Option<Box<str>>>,
}

/// The calls an agent can make, as policy selectors and as callable names.
#[derive(Debug, Default)]
pub struct Allowed {
    selectors: Vec<String>,
    /// Per layer: the entries of an allowlist in the form the agent may read.
    pub(crate) entries: HashMap<u16, Vec<Readable>>,
    pub(crate) tools: Vec<Callable>,
    /// Servers, and the prefix of their tool names.
    pub(crate) servers: Vec<(Box<str>, Box<str>)>,
    /// Whether refusals give reasons.
    pub(crate) explain: bool,
    /// The text that is appended to every refusal of this agent.
    pub(crate) message: Option<Box<str>>,
}

impl Allowed {
    /// `data.allowed_tools`: the policy's own selectors, without those that spell a name that is not listed.
    pub fn selectors(&self) -> &[String] {
        &self.selectors
    }

    /// The ways to parse a name as a tool of one of the agent's servers.
    pub(crate) fn readings<'n>(&self, sent: &'n str) -> Vec<(Option<&str>, &'n str)> {
        let mut readings = vec![(None, sent)];
        for (server, prefix) in &self.servers {
            if let Some(rest) = sent.strip_prefix(&**prefix) {
                readings.push((Some(&**server), rest));
            }
        }
        readings
    }

    /// Whether an allowlist's entry covers a listed tool.
    pub(crate) fn covers(&self, rule: &Rule, case: Case, tool: &Callable) -> bool {
        let server = self.servers.get(tool.server).map_or("", |(server, _)| server);
        let by_hints = tool.hints.as_ref().is_some_and(|hints| rule.selector.carried_by(hints));
        by_hints || covers_name(&rule.selector, case, Some(server), &tool.original, None)
    }
}

impl Policy {
    /// The calls an agent can make, given the servers it may use and its listing.
    pub fn allowed(&self, caller: Caller<'_>, offers: &[Offer<'_>]) -> Allowed {
        let (explain, message) = self.wording(caller.agent);
        let with_hints = self.layers.iter().any(|layer| match &layer.rules {
            Rules::Allowlist(list) => {
                list.tools.rules.iter().any(|rule| rule.selector.tags().is_some())
            }
            _ => false,
        });
        let mut tools = Vec::new();
        for (server, offer) in offers.iter().enumerate() {
            let exposure = self.exposure(offer.server);
            for ((tool, cell), name) in offer.row.iter().zip(&offer.names) {
                let Some(name) = name else { continue };
                let shown = exposure.and_then(|exposure| exposure.show(tool.name()));
                let actions = cell.list(caller).actions.or_else(|| cell.allowed_actions(caller));
                tools.push(Callable {
                    name: name.clone(),
                    server,
                    original: tool.name().into(),
                    renamed: shown.map(|shown| shown.name).filter(|name| **name != *tool.name()),
                    hints: with_hints.then(|| self.hints(offer.server, tool)),
                    actions: actions.map(|all| all.into_iter().map(Into::into).collect()),
                });
            }
        }
        let servers =
            offers.iter().map(|offer| (offer.server.into(), offer.prefix.as_str().into()));
        let servers: Vec<(Box<str>, Box<str>)> = servers.collect();
        let (entries, selectors) = {
            let spelling = Spelling::new(&tools, &servers);
            let entries = self.readable_entries(&spelling);
            let selectors = self.selectors(caller, offers, &entries, &spelling);
            (entries, selectors)
        };
        let message = message.map(Into::into);
        Allowed { selectors, entries, tools, servers, explain, message }
    }

    /// The entries of all allowlists, by layer.
    fn readable_entries(&self, spelling: &Spelling<'_>) -> HashMap<u16, Vec<Readable>> {
        let layers = self.layers.iter().enumerate().filter_map(|(layer, of)| match &of.rules {
            Rules::Allowlist(list) => {
                let entry = |rule: &Rule| spelling.anywhere(&rule.selector, list.case);
                Some((layer as u16, list.tools.rules.iter().map(entry).collect()))
            }
            _ => None,
        });
        layers.collect()
    }

    /// The policy's selectors for this agent: allowlist entries as written, `server/selector` for
    /// each allow entry, `server/*` for an implicit grant.
    fn selectors(
        &self,
        caller: Caller<'_>,
        offers: &[Offer<'_>],
        entries: &HashMap<u16, Vec<Readable>>,
        spelling: &Spelling<'_>,
    ) -> Vec<String> {
        if self.layers.is_empty() {
            return offers.iter().map(|offer| format!("{}/*", offer.server)).collect();
        }
        let mut named: Vec<String> = Vec::new();
        for (layer, of) in self.layers.iter().enumerate() {
            match &of.rules {
                Rules::ReadOnly => named.push("hint:read-only".into()),
                Rules::Allowlist(_) => {
                    let entries = entries.get(&(layer as u16)).into_iter().flatten();
                    named.extend(entries.filter_map(Readable::text).map(String::from));
                }
                Rules::Agents(agents) => {
                    let Some(at) = agents.agent(caller.agent) else {
                        return Vec::new();
                    };
                    let agent = &agents.agents[at as usize];
                    for (place, offer) in offers.iter().enumerate() {
                        let server = fold(offer.server, agent.case);
                        if server_step(agent, at, &server).verdict == Verdict::Deny {
                            continue;
                        }
                        let lists: Vec<&List> = agent
                            .allow
                            .tools
                            .iter()
                            .map(|list| &**list)
                            .filter(|list| !list.rules.is_empty() && list.key.matches(&server))
                            .collect();
                        if lists.is_empty() {
                            named.push(format!("{}/*", offer.server));
                        }
                        for rule in lists.iter().flat_map(|list| &list.rules) {
                            let entry = spelling.on_server(&rule.selector, agent.case, place);
                            let entry = entry.text().map(|text| format!("{}/{text}", offer.server));
                            named.extend(entry);
                        }
                    }
                }
            }
        }
        let mut seen = HashSet::new();
        named.retain(|entry| seen.insert(entry.clone()));
        named
    }
}
