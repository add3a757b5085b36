//! Selects the calls that a limit or a hook applies to. In doubt it applies: a guard that is skipped
//! protects nothing.

use std::collections::HashSet;
use std::sync::Arc;

use hashbrown::HashMap;
use toolward_policy::fnmatch::is_pattern;
use toolward_policy::selector::{Glob, Selector, fold};
use toolward_policy::source::Case;
use toolward_policy::{Hints, Policy, Tool};
use toolward_wire::Arguments;

/// Tool names are compared case-insensitively here: a guard that applies too often does no harm.
const CASE: Case = Case::Insensitive;

/// The agent whose rules apply to callers without rules of their own.
const DEFAULT: &str = "default";

/// Agents, servers and tools; all three must match.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    pub agents: Agents,
    servers: Servers,
    /// `None`: all tools.
    tools: Option<Box<[Selector]>>,
    /// The tools are listed under a server, so `server.tool` is not one of their names.
    under_server: bool,
}

#[derive(Debug, Clone, Default)]
enum Servers {
    #[default]
    All,
    Named(Box<[Glob]>),
    One(Box<str>),
}

/// The agents of a selection.
#[derive(Debug, Clone, Default)]
pub enum Agents {
    #[default]
    All,
    Named {
        patterns: Box<[Glob]>,
        /// Agents with rules of their own. All other callers, named or unnamed, also match `default`.
        own: Arc<AgentNames>,
    },
    /// Exactly this agent; the name is not a pattern.
    One(Arc<str>),
    /// Agents that match the pattern, except those with this exact name.
    Like(Glob, Arc<AgentNames>),
    /// Every caller except these, including unnamed ones.
    Other(Arc<AgentNames>),
}

/// The agents of a file: by name, or by a pattern that covers agents without an entry of their own.
#[derive(Debug, Clone, Default)]
pub struct AgentNames {
    exact: HashSet<Arc<str>>,
    patterns: Vec<Glob>,
}

impl AgentNames {
    fn contains(&self, agent: &str) -> bool {
        self.exact.contains(agent) || self.patterns.iter().any(|glob| glob.matches(agent))
    }
}

impl<'a> FromIterator<&'a str> for AgentNames {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> AgentNames {
        let mut all = AgentNames::default();
        for name in names {
            match is_pattern(name) {
                true => all.patterns.push(Glob::new(name, Case::Sensitive)),
                false => drop(all.exact.insert(name.into())),
            }
        }
        all
    }
}

impl Agents {
    /// Agents by name or pattern; `own` are those that are never `default`.
    pub fn named<'a>(patterns: impl IntoIterator<Item = &'a str>, own: &Arc<AgentNames>) -> Agents {
        let patterns = patterns.into_iter().map(|one| Glob::new(one, Case::Sensitive)).collect();
        Agents::Named { patterns, own: own.clone() }
    }

    /// Every caller except these agents.
    pub fn except<'a>(names: impl IntoIterator<Item = &'a str>) -> Agents {
        Agents::Other(Arc::new(names.into_iter().collect()))
    }

    /// The agents that an entry of a file is about: the one of that name, or those that match a pattern and
    /// have no entry of their own among `all`.
    pub fn entry(name: &str, all: &Arc<AgentNames>) -> Agents {
        match is_pattern(name) {
            true => Agents::Like(Glob::new(name, Case::Sensitive), all.clone()),
            false => Agents::One(name.into()),
        }
    }

    pub(crate) fn include(&self, agent: Option<&str>) -> bool {
        match self {
            Agents::All => true,
            Agents::Named { patterns, own } => {
                let meant = |name: &str| patterns.iter().any(|glob| glob.matches(name));
                let is_default = || agent.is_none_or(|agent| !own.contains(agent));
                agent.is_some_and(meant) || (is_default() && meant(DEFAULT))
            }
            Agents::One(name) => agent == Some(name),
            Agents::Like(pattern, names) => {
                agent.is_some_and(|agent| pattern.matches(agent) && !names.exact.contains(agent))
            }
            Agents::Other(names) => agent.is_none_or(|agent| !names.contains(agent)),
        }
    }
}

/// Values by agent, so that finding those of one agent does not get slower with every other agent.
#[derive(Debug)]
pub struct ByAgent<T> {
    one: HashMap<Arc<str>, Vec<T>>,
    /// Those for several agents.
    several: Vec<(Agents, T)>,
}

impl<T> Default for ByAgent<T> {
    fn default() -> ByAgent<T> {
        ByAgent { one: HashMap::new(), several: Vec::new() }
    }
}

impl<T> ByAgent<T> {
    pub fn insert(&mut self, agents: Agents, value: T) {
        match agents {
            Agents::One(name) => self.one.entry(name).or_default().push(value),
            agents => self.several.push((agents, value)),
        }
    }

    /// The values for an agent, in no particular order.
    pub fn of<'a>(&'a self, agent: Option<&'a str>) -> impl Iterator<Item = &'a T> {
        let own = agent.and_then(|agent| self.one.get(agent)).into_iter().flatten();
        let several = self.several.iter().filter(move |(agents, _)| agents.include(agent));
        own.chain(several.map(|(_, value)| value))
    }
}

impl FromIterator<Agents> for ByAgent<()> {
    fn from_iter<I: IntoIterator<Item = Agents>>(agents: I) -> ByAgent<()> {
        let mut all = ByAgent::default();
        agents.into_iter().for_each(|agents| all.insert(agents, ()));
        all
    }
}

/// The subject that selectors match: a tool of a server, called by an agent.
#[derive(Debug, Clone, Copy)]
pub struct CallSubject<'a> {
    pub agent: Option<&'a str>,
    pub server: &'a str,
    pub tool: &'a str,
    pub hints: &'a Hints,
}

/// How much of a tool a selection covers.
#[derive(Debug, Clone)]
pub(super) enum Coverage {
    Always,
    /// Only calls with one of these actions.
    Actions(Box<[Glob]>),
}

impl Selection {
    pub fn of(agents: Agents) -> Selection {
        Selection { agents, ..Selection::default() }
    }

    /// Restricts it to these servers, by name or pattern.
    pub fn servers<'a>(mut self, patterns: impl IntoIterator<Item = &'a str>) -> Selection {
        let globs = patterns.into_iter().map(|pattern| Glob::new(pattern, Case::Sensitive));
        self.servers = Servers::Named(globs.collect());
        self
    }

    /// Restricts it to exactly this server; the name is not a pattern.
    pub fn server(mut self, name: &str) -> Selection {
        self.servers = Servers::One(name.into());
        self
    }

    /// Restricts it to these tools: names, patterns, actions, hints. As in any list that is not under a
    /// server, `server.tool` is a name too.
    pub fn tools<'a>(mut self, selectors: impl IntoIterator<Item = &'a str>) -> Selection {
        self.tools = Some(selectors.into_iter().map(|one| Selector::new(one, CASE)).collect());
        self
    }

    /// Restricts it to the tools that a selector matches without a server's name.
    pub fn tool(self, selector: &str) -> Selection {
        Selection { under_server: true, ..self.tools([selector]) }
    }

    /// Whether it covers all tools of all servers.
    pub(super) fn is_about_every_tool(&self) -> bool {
        matches!(self.servers, Servers::All) && self.tools.is_none()
    }

    /// Whether it covers any call of a tool by any of its agents.
    pub fn covers_any_call_of(&self, policy: &Policy, server: &str, tool: &Tool) -> bool {
        let anyone = Selection { agents: Agents::All, ..self.clone() };
        let hints = policy.hints(server, tool);
        anyone
            .covers(CallSubject { agent: None, server, tool: tool.name(), hints: &hints })
            .is_some()
    }

    /// Whether it covers an agent's use of a server, whatever it is.
    fn covers_server(&self, agent: Option<&str>, server: &str) -> bool {
        let included = match &self.servers {
            Servers::All => true,
            Servers::Named(globs) => globs.iter().any(|glob| glob.matches(server)),
            Servers::One(name) => **name == *server,
        };
        included && self.agents.include(agent)
    }

    /// Whether it covers the prompts and resources of a server, which no tool selector matches.
    pub(super) fn covers_other(&self, agent: Option<&str>, server: &str) -> bool {
        self.tools.is_none() && self.covers_server(agent, server)
    }

    /// How much of a tool the selection covers; `None` if nothing.
    pub(super) fn covers(&self, about: CallSubject<'_>) -> Option<Coverage> {
        if !self.covers_server(about.agent, about.server) {
            return None;
        }
        let Some(selectors) = &self.tools else { return Some(Coverage::Always) };
        let tool = fold(about.tool, CASE).into_owned();
        let mut names = vec![format!("{}.{tool}", fold(about.server, CASE)), tool];
        if self.under_server {
            names.remove(0);
        }
        let always = |selector: &Selector| {
            selector.carried_by(about.hints) || names.iter().any(|name| selector.names_tool(name))
        };
        if selectors.iter().any(always) {
            return Some(Coverage::Always);
        }
        let of_name = |name| selectors.iter().flat_map(move |one| one.actions_of(name, true));
        let actions: Box<[Glob]> =
            names.iter().flat_map(|name| of_name(name.as_str())).cloned().collect();
        (!actions.is_empty()).then_some(Coverage::Actions(actions))
    }
}

impl Coverage {
    /// Whether a call with these arguments is covered: its action matches, or is unknown.
    pub(super) fn call(&self, arguments: Option<Arguments<'_>>, keys: &[Box<str>]) -> bool {
        let Coverage::Actions(actions) = self else { return true };
        let Some(arguments) = arguments else { return true };
        let is_key = |name: &str| keys.iter().any(|key| key.eq_ignore_ascii_case(name));
        let mut stated = arguments.members().filter(|(name, _)| is_key(name)).peekable();
        if stated.peek().is_none() {
            return true;
        }
        stated.any(|(_, value)| match value.as_str() {
            Some(action) => {
                let action = fold(&action, CASE);
                actions.iter().any(|glob| glob.matches(&action))
            }
            None => true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolward_wire::Raw;

    fn about<'a>(agent: Option<&'a str>, server: &'a str, tool: &'a str) -> CallSubject<'a> {
        CallSubject { agent, server, tool, hints: Hints::none() }
    }

    fn named<'a, const N: usize>(patterns: [&'a str; 1], own: [&'a str; N]) -> Agents {
        Agents::named(patterns, &Arc::new(own.into_iter().collect()))
    }

    fn covers(selection: &Selection, agent: Option<&str>, server: &str, tool: &str) -> bool {
        selection.covers(about(agent, server, tool)).is_some()
    }

    #[test]
    fn agents_servers_and_tools_must_all_fit() {
        let all = Selection::default();
        assert!(covers(&all, None, "s", "t"));
        let some = Selection::of(named(["a*"], ["ab"])).servers(["s?"]).tools(["get_*", "s2.put"]);
        assert!(
            covers(&some, Some("ab"), "s1", "get_x") && covers(&some, Some("ab"), "s1", "GET_x")
        );
        assert!(covers(&some, Some("ab"), "s2", "put") && !covers(&some, Some("ab"), "s1", "put"));
        for (agent, server, tool) in
            [(Some("b"), "s1", "get_x"), (None, "s1", "get_x"), (Some("a"), "t1", "get_x")]
        {
            assert!(!covers(&some, agent, server, tool), "{agent:?} {server} {tool}");
        }
        let one = Selection::of(Agents::One("a*".into()));
        assert!(covers(&one, Some("a*"), "s", "t") && !covers(&one, Some("ab"), "s", "t"));
        // Under a server, a pattern matches only the tool.
        let narrow = Selection::default().servers(["files"]).tool("f*");
        assert!(covers(&narrow, None, "files", "find") && !covers(&narrow, None, "files", "read"));
        // A caller without rules of its own is `default` as well, whatever its name.
        let default = Selection::of(named(["default"], ["a"]));
        assert!(covers(&default, None, "s", "t") && covers(&default, Some("b"), "s", "t"));
        assert!(covers(&default, Some("default"), "s", "t"));
        assert!(!covers(&default, Some("a"), "s", "t"));
        let not_w = Selection::of(named(["[!w]*"], ["w"]));
        assert!(covers(&not_w, None, "s", "t") && !covers(&not_w, Some("w"), "s", "t"));
        // An entry by name takes precedence over a pattern, and both over `default`.
        let all: Arc<AgentNames> = Arc::new(["ci-*", "ci-main", "dev"].into_iter().collect());
        let like = Agents::entry("ci-*", &all);
        assert!(like.include(Some("ci-7")) && !like.include(Some("ci-main")));
        assert!(!like.include(Some("dev")) && !like.include(None));
        assert!(Agents::entry("ci-main", &all).include(Some("ci-main")));
        let others = Agents::Other(all);
        assert!(others.include(Some("x")) && others.include(None));
        assert!(!others.include(Some("ci-7")) && !others.include(Some("dev")));
        let other = Selection::of(Agents::except(["a"]));
        assert!(covers(&other, None, "s", "t") && covers(&other, Some("b"), "s", "t"));
        assert!(!covers(&other, Some("a"), "s", "t"));
    }

    #[test]
    fn an_unknown_action_matches() {
        let far = Selection::default().tools(["go.far"]);
        let keys: [Box<str>; 1] = ["action".into()];
        let covers = far.covers(about(None, "s", "go")).unwrap();
        let call = |json: &str| {
            let raw = Raw::scan(json.as_bytes(), 1 << 10).unwrap();
            covers.call(Some(Arguments::new(raw)), &keys)
        };
        for meant in [
            r#"{"action":"far"}"#,
            r#"{"action":"FAR"}"#,
            r#"{"ACTION":"far"}"#,
            r#"{"action":3}"#,
            r#"{}"#,
            r#"{"action":"near","Action":"far"}"#,
        ] {
            assert!(call(meant), "{meant}");
        }
        assert!(!call(r#"{"action":"near"}"#) && covers.call(None, &keys));
        assert!(far.covers(about(None, "s", "stay")).is_none());
    }

    #[test]
    fn values_are_found_by_agent() {
        let mut all = ByAgent::default();
        for number in 0..1000 {
            all.insert(Agents::One(format!("a{number}").into()), number);
        }
        all.insert(Agents::All, 1000);
        all.insert(Agents::except(["a1"]), 1001);
        let of = |agent| {
            let mut found: Vec<usize> = all.of(agent).copied().collect();
            found.sort_unstable();
            found
        };
        assert_eq!(of(Some("a1")), [1, 1000]);
        assert_eq!(of(Some("a7")), [7, 1000, 1001]);
        assert_eq!(of(Some("other")), [1000, 1001]);
        assert_eq!(of(None), [1000, 1001]);
    }
}
