//! What an agent can call, as its refusals list it.
//!
//! Made once for a listing. It holds nothing but what the agent's listing has, so that no refusal can
//! name a hidden tool, whatever name was sent.

use std::cell::OnceCell;

use hashbrown::{HashMap, HashSet};

use crate::call::Caller;
use crate::decision::Verdict;
use crate::hints::Hints;
use crate::layer::{Allowlist, List, Rule, Rules};
use crate::policy::{Policy, Row};
use crate::selector::{Selector, fold};
use crate::source::Case;
use crate::view::server_step;

/// The tools of one server that the agent may use.
pub struct Offer<'a> {
    pub server: &'a str,
    /// What clients write before the names of this server's tools: `files__`, or nothing.
    pub prefix: String,
    pub row: &'a Row,
    /// The name that clients use for each tool of the row; `None` if the listing does not have it.
    pub names: Vec<Option<Box<str>>>,
}

/// What an agent can call, in the policy's words and by callable names.
#[derive(Debug, Default)]
pub struct Allowed {
    selectors: Vec<String>,
    /// By layer: the exact entries of an allowlist as the agent may read them; `None` for wildcards
    /// and for entries that name no listed tool.
    pub(crate) exact: HashMap<u16, Vec<Option<String>>>,
    pub(crate) tools: Vec<Callable>,
    /// Servers, and what stands before the names of their tools.
    pub(crate) servers: Vec<(Box<str>, Box<str>)>,
    /// Whether refusals give reasons.
    pub(crate) explain: bool,
    /// What every refusal of this agent ends with.
    pub(crate) message: Option<Box<str>>,
}

/// A listed tool.
#[derive(Debug)]
pub(crate) struct Callable {
    /// The name that clients use.
    pub(crate) name: Box<str>,
    /// The server, by its place.
    server: usize,
    original: Box<str>,
    /// The name at the server's own address, if it is renamed.
    renamed: Option<Box<str>>,
    /// Kept only where an allowlist has a `hint:` entry.
    hints: Option<Hints>,
    /// The actions that are allowed, where not all are.
    pub(crate) actions: Option<Box<[Box<str>]>>,
}

impl Allowed {
    /// `data.allowed_tools`: the policy's own selectors, without exact names that are not listed.
    pub fn selectors(&self) -> &[String] {
        &self.selectors
    }

    /// The ways to read a name as a tool of one of the agent's servers.
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

/// Whether a selector covers a call by the name that was sent. Patterns are read widely: what a
/// reader could take for the refused call is not listed as allowed.
pub(crate) fn covers_name(
    selector: &Selector,
    case: Case,
    server: Option<&str>,
    tool: &str,
    action: Option<&str>,
) -> bool {
    let name = fold(tool, case).into_owned();
    let qualified = server.map(|server| format!("{}.{name}", fold(server, case)));
    let action = action.map(|action| fold(action, case));
    [Some(name), qualified].iter().flatten().any(|name| {
        let mut actions = selector.actions_of(name, true);
        selector.names_tool(name)
            || action.as_deref().is_some_and(|action| actions.any(|glob| glob.matches(action)))
    })
}

impl Callable {
    /// A selector that spells this tool, or an action of it, with the name that clients see.
    fn shown_in(&self, written: &str) -> Option<String> {
        let rest = strip_folded(written, &self.original)?;
        let shown = self.renamed.as_ref().unwrap_or(&self.original);
        (rest.is_empty() || rest.starts_with('.')).then(|| format!("{shown}{rest}"))
    }
}

fn strip_folded<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

impl Policy {
    /// What an agent can call, given the servers it may use and its listing.
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
        let mut allowed = Allowed {
            selectors: Vec::new(),
            exact: HashMap::new(),
            tools,
            servers: servers.collect(),
            explain,
            message: message.map(Into::into),
        };
        allowed.exact = self.exact_entries(&allowed);
        allowed.selectors = self.selectors(caller, offers, &allowed);
        allowed
    }

    fn exact_entries(&self, allowed: &Allowed) -> HashMap<u16, Vec<Option<String>>> {
        let spelled = Spelled::new(&allowed.tools);
        let layers = self.layers.iter().enumerate().filter_map(|(layer, of)| match &of.rules {
            Rules::Allowlist(list) => Some((layer as u16, exact_entries(list, allowed, &spelled))),
            _ => None,
        });
        layers.collect()
    }

    /// What the agent may use in the policy's words: allowlist entries as written,
    /// `server/selector` for each allow entry, `server/*` for an implicit grant.
    fn selectors(
        &self,
        caller: Caller<'_>,
        offers: &[Offer<'_>],
        allowed: &Allowed,
    ) -> Vec<String> {
        if self.layers.is_empty() {
            return offers.iter().map(|offer| format!("{}/*", offer.server)).collect();
        }
        let spelled = Spelled::new(&allowed.tools);
        let mut named = Vec::new();
        for (layer, of) in self.layers.iter().enumerate() {
            match &of.rules {
                Rules::ReadOnly => named.push("hint:read-only".into()),
                Rules::Allowlist(list) => {
                    let exact = allowed.exact.get(&(layer as u16)).into_iter().flatten();
                    named.extend(list.tools.rules.iter().zip(exact).filter_map(|(rule, exact)| {
                        let wildcard = rule.selector.is_wildcard();
                        exact.clone().or_else(|| wildcard.then(|| rule.selector.written().into()))
                    }));
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
                            .filter(|list| !list.rules.is_empty() && list.key.matches(&server))
                            .collect();
                        if lists.is_empty() {
                            named.push(format!("{}/*", offer.server));
                        }
                        for rule in lists.iter().flat_map(|list| &list.rules) {
                            let entry = match rule.selector.is_wildcard() {
                                true => Some(rule.selector.written().to_string()),
                                false => spelled.of(rule.selector.written(), Some(place)),
                            };
                            named.extend(entry.map(|entry| format!("{}/{entry}", offer.server)));
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

fn exact_entries(
    list: &Allowlist,
    allowed: &Allowed,
    spelled: &Spelled<'_>,
) -> Vec<Option<String>> {
    let entry = |rule: &Rule| {
        let written = rule.selector.written();
        if rule.selector.is_wildcard() {
            return None;
        }
        let qualified = || {
            allowed.servers.iter().enumerate().find_map(|(place, (server, _))| {
                let prefix = format!("{server}.");
                let rest = strip_folded(written, &prefix)?;
                Some(format!("{prefix}{}", spelled.of(rest, Some(place))?))
            })
        };
        spelled.of(written, None).or_else(qualified)
    };
    list.tools.rules.iter().map(entry).collect()
}

/// Listed tools by their original names, folded. The map is made for the first exact selector: most
/// policies have none.
struct Spelled<'a> {
    tools: &'a [Callable],
    by_name: OnceCell<HashMap<String, Vec<&'a Callable>>>,
}

impl<'a> Spelled<'a> {
    fn new(tools: &'a [Callable]) -> Spelled<'a> {
        Spelled { tools, by_name: OnceCell::new() }
    }

    fn by_name(&self) -> &HashMap<String, Vec<&'a Callable>> {
        self.by_name.get_or_init(|| {
            let mut by_name: HashMap<String, Vec<&Callable>> = HashMap::new();
            by_name.reserve(self.tools.len());
            for tool in self.tools {
                by_name.entry(tool.original.to_ascii_lowercase()).or_default().push(tool);
            }
            by_name
        })
    }

    /// An exact selector with the name that clients see, if it spells a listed tool or an action of
    /// one, on this server or on any.
    fn of(&self, written: &str, server: Option<usize>) -> Option<String> {
        let folded = written.to_ascii_lowercase();
        // The longest reading first.
        let dots = folded.rmatch_indices('.').map(|(dot, _)| dot);
        [folded.len()].into_iter().chain(dots).find_map(|end| {
            let tools = self.by_name().get(folded.get(..end)?)?;
            let here = |tool: &&&Callable| server.is_none_or(|server| tool.server == server);
            tools.iter().find(here)?.shown_in(written)
        })
    }
}
