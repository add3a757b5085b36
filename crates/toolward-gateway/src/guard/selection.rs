//! Which calls a limit or a hook is about. Where that cannot be told, it is: a guard that is not
//! asked guards nothing.

use std::collections::HashSet;
use std::sync::Arc;

use hashbrown::HashMap;
use toolward_policy::selector::{Glob, Selector, fold};
use toolward_policy::source::Case;
use toolward_policy::{Hints, Policy, Tool};
use toolward_wire::Arguments;

/// Tool names are compared without case here: a guard that stands too often does no harm.
const CASE: Case = Case::Insensitive;

/// The agent whose rules hold for callers that have none of their own.
const DEFAULT: &str = "default";

/// Agents, servers and tools; all three must fit.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    pub agents: Agents,
    servers: Servers,
    /// `None`: all tools.
    tools: Option<Box<[Selector]>>,
    /// The tools stand under a server: `server.tool` is no name of theirs.
    under_server: bool,
}

#[derive(Debug, Clone, Default)]
enum Servers {
    #[default]
    All,
    Named(Box<[Glob]>),
    One(Box<str>),
}

/// Whose calls.
#[derive(Debug, Clone, Default)]
pub enum Agents {
    #[default]
    All,
    Named {
        patterns: Box<[Glob]>,
        /// Agents that have rules of their own. Everybody else is `default` too, with or without a
        /// name.
        own: Arc<HashSet<Arc<str>>>,
    },
    /// This agent alone, whatever its name looks like.
    One(Arc<str>),
    /// Everybody but these, also those without a name.
    Other(Arc<HashSet<Arc<str>>>),
}

impl Agents {
    /// Agents by name or pattern; `own` are those that are never `default`.
    pub fn named<'a>(
        patterns: impl IntoIterator<Item = &'a str>,
        own: &Arc<HashSet<Arc<str>>>,
    ) -> Agents {
        let patterns = patterns.into_iter().map(|one| Glob::new(one, Case::Sensitive)).collect();
        Agents::Named { patterns, own: own.clone() }
    }

    /// Every caller except these agents.
    pub fn except<'a>(names: impl IntoIterator<Item = &'a str>) -> Agents {
        Agents::Other(Arc::new(names.into_iter().map(Into::into).collect()))
    }

    pub fn include(&self, agent: Option<&str>) -> bool {
        match self {
            Agents::All => true,
            Agents::Named { patterns, own } => {
                let meant = |name: &str| patterns.iter().any(|glob| glob.matches(name));
                let is_default = || agent.is_none_or(|agent| !own.contains(agent));
                agent.is_some_and(meant) || (is_default() && meant(DEFAULT))
            }
            Agents::One(name) => agent == Some(name),
            Agents::Other(names) => agent.is_none_or(|agent| !names.contains(agent)),
        }
    }
}

/// Values by the agents they are about, so that finding those of one agent does not cost more with
/// every other agent.
#[derive(Debug)]
pub struct ByAgent<T> {
    one: HashMap<Arc<str>, Vec<T>>,
    /// Those about several agents.
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

    /// The values that are about an agent, in no particular order.
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

/// A tool as selectors see it.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    pub agent: Option<&'a str>,
    pub server: &'a str,
    pub tool: &'a str,
    pub hints: &'a Hints,
}

/// How a selection speaks of a tool.
#[derive(Debug, Clone)]
pub(super) enum Covers {
    Always,
    /// Only of calls with one of these actions.
    Actions(Box<[Glob]>),
}

impl Selection {
    pub fn of(agents: Agents) -> Selection {
        Selection { agents, ..Selection::default() }
    }

    /// Only of these servers, by name or pattern.
    pub fn servers<'a>(mut self, patterns: impl IntoIterator<Item = &'a str>) -> Selection {
        let globs = patterns.into_iter().map(|pattern| Glob::new(pattern, Case::Sensitive));
        self.servers = Servers::Named(globs.collect());
        self
    }

    /// Only of this server, whatever its name looks like.
    pub fn server(mut self, name: &str) -> Selection {
        self.servers = Servers::One(name.into());
        self
    }

    /// Only of these tools: names, patterns, actions, hints. As in any list that stands under no
    /// server, `server.tool` is a name too.
    pub fn tools<'a>(mut self, selectors: impl IntoIterator<Item = &'a str>) -> Selection {
        self.tools = Some(selectors.into_iter().map(|one| Selector::new(one, CASE)).collect());
        self
    }

    /// Only of the tools that a selector names by themselves.
    pub fn tool(self, selector: &str) -> Selection {
        Selection { under_server: true, ..self.tools([selector]) }
    }

    /// Whether it is about all tools of all servers.
    pub(super) fn is_about_every_tool(&self) -> bool {
        matches!(self.servers, Servers::All) && self.tools.is_none()
    }

    /// Whether some call of a tool is meant, by whoever the selection is about.
    pub fn speaks_of(&self, policy: &Policy, server: &str, tool: &Tool) -> bool {
        let anyone = Selection { agents: Agents::All, ..self.clone() };
        let hints = policy.hints(server, tool);
        anyone.covers(About { agent: None, server, tool: tool.name(), hints: &hints }).is_some()
    }

    /// How the selection speaks of a tool; `None` where it does not.
    pub(super) fn covers(&self, about: About<'_>) -> Option<Covers> {
        let server = match &self.servers {
            Servers::All => true,
            Servers::Named(globs) => globs.iter().any(|glob| glob.matches(about.server)),
            Servers::One(name) => **name == *about.server,
        };
        if !server || !self.agents.include(about.agent) {
            return None;
        }
        let Some(selectors) = &self.tools else { return Some(Covers::Always) };
        let tool = fold(about.tool, CASE).into_owned();
        let mut names = vec![format!("{}.{tool}", fold(about.server, CASE)), tool];
        if self.under_server {
            names.remove(0);
        }
        let always = |selector: &Selector| {
            selector.carried_by(about.hints) || names.iter().any(|name| selector.names_tool(name))
        };
        if selectors.iter().any(always) {
            return Some(Covers::Always);
        }
        let of_name = |name| selectors.iter().flat_map(move |one| one.actions_of(name, true));
        let actions: Box<[Glob]> =
            names.iter().flat_map(|name| of_name(name.as_str())).cloned().collect();
        (!actions.is_empty()).then_some(Covers::Actions(actions))
    }
}

impl Covers {
    /// Whether a call with these arguments is meant: its action is, or it cannot be told.
    pub(super) fn call(&self, arguments: Option<Arguments<'_>>, keys: &[Box<str>]) -> bool {
        let Covers::Actions(actions) = self else { return true };
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

    fn about<'a>(agent: Option<&'a str>, server: &'a str, tool: &'a str) -> About<'a> {
        About { agent, server, tool, hints: Hints::none() }
    }

    fn named<'a, const N: usize>(patterns: [&'a str; 1], own: [&'a str; N]) -> Agents {
        Agents::named(patterns, &Arc::new(own.into_iter().map(Into::into).collect()))
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
        // Under a server, a pattern speaks of the tool alone.
        let narrow = Selection::default().servers(["files"]).tool("f*");
        assert!(covers(&narrow, None, "files", "find") && !covers(&narrow, None, "files", "read"));
        // Whoever has no rules of its own is `default` as well, under whatever name it comes.
        let default = Selection::of(named(["default"], ["a"]));
        assert!(covers(&default, None, "s", "t") && covers(&default, Some("b"), "s", "t"));
        assert!(covers(&default, Some("default"), "s", "t"));
        assert!(!covers(&default, Some("a"), "s", "t"));
        let not_w = Selection::of(named(["[!w]*"], ["w"]));
        assert!(covers(&not_w, None, "s", "t") && !covers(&not_w, Some("w"), "s", "t"));
        let other = Selection::of(Agents::except(["a"]));
        assert!(covers(&other, None, "s", "t") && covers(&other, Some("b"), "s", "t"));
        assert!(!covers(&other, Some("a"), "s", "t"));
    }

    #[test]
    fn an_action_that_cannot_be_told_is_meant() {
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
