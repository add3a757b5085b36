//! The agents, servers, tools and rules of all benchmarks, the same in every run.
//!
//! Every agent may use every server. An agent's first rule is an allow rule for all servers, so no
//! server is granted implicitly, and other engines can express the same with permits and denies alone.

use toolward_policy::source::{
    AgentSource, AgentsSource, Entry, KeyedList, LayerSource, RulesSource, SideSource, Source,
};
use toolward_policy::{Tool, ToolSet};

const SERVERS: usize = 10;
const TOOLS_PER_SERVER: usize = 100;

const VERBS: [&str; 25] = [
    "get", "list", "search", "create", "update", "delete", "read", "write", "merge", "close",
    "open", "run", "stop", "send", "fetch", "export", "import", "drop", "grant", "revoke", "query",
    "sync", "copy", "move", "tag",
];
const NOUNS: [&str; 40] = [
    "issue", "pull", "branch", "commit", "file", "folder", "table", "row", "index", "user",
    "group", "role", "token", "page", "comment", "label", "release", "job", "build", "artifact",
    "image", "volume", "node", "pod", "secret", "event", "alert", "metric", "trace", "message",
    "channel", "thread", "invoice", "order", "product", "ticket", "contact", "calendar",
    "document", "sheet",
];
const DETAILS: [&str; 20] = [
    "all", "batch", "by_id", "by_name", "history", "status", "draft", "archive", "summary", "raw",
    "remote", "local", "shared", "private", "recent", "old", "full", "brief", "async", "now",
];

pub struct World {
    pub agents: Vec<String>,
    pub servers: Vec<String>,
    /// Names of each server's tools.
    pub tools: Vec<Vec<String>>,
    pub rules: Vec<Rule>,
}

/// One selector of one agent.
pub struct Rule {
    pub agent: usize,
    pub deny: bool,
    /// The server key of the rule; `None` for `*`.
    pub server: Option<usize>,
    pub shape: Shape,
}

#[derive(Clone)]
pub enum Shape {
    Name(String),
    Prefix(String),
    Suffix(String),
    Everything,
}

/// A call to a known tool. The name is a separate copy, as if it had just been parsed.
pub struct Request {
    pub agent: usize,
    pub server: usize,
    pub tool: Box<str>,
}

impl Shape {
    pub fn selector(&self) -> String {
        match self {
            Shape::Name(text) => text.clone(),
            Shape::Prefix(text) => format!("{text}*"),
            Shape::Suffix(text) => format!("*{text}"),
            Shape::Everything => "*".into(),
        }
    }
}

impl World {
    /// Ten rules belong to two agents and are written out below; more are spread over fifty agents.
    pub fn new(rules: usize) -> World {
        let mut random = Random::new(7);
        let servers: Vec<String> = (0..SERVERS).map(|n| format!("server-{n}")).collect();
        let tools: Vec<Vec<String>> = servers.iter().map(|_| tools(&mut random)).collect();
        let agents = if rules <= 10 { 2 } else { 50 };
        let rules = match rules {
            10 => ten_rules(&tools),
            count => {
                (0..count).map(|n| rule(n / agents, n % agents, &tools, &mut random)).collect()
            }
        };
        let agents = (0..agents).map(|n| format!("agent-{n:02}")).collect();
        World { agents, servers, tools, rules }
    }

    pub fn source(&self) -> Source {
        let mut agents: Vec<(String, AgentSource)> = self
            .agents
            .iter()
            .map(|name| {
                let allow = SideSource { servers: vec!["*".into()], ..SideSource::default() };
                (name.clone(), AgentSource { allow, ..AgentSource::default() })
            })
            .collect();
        for rule in &self.rules {
            let agent = &mut agents[rule.agent].1;
            let side = if rule.deny { &mut agent.deny } else { &mut agent.allow };
            let key = self.key(rule);
            let list = match side.tools.iter_mut().position(|list| list.key == key) {
                Some(at) => &mut side.tools[at],
                None => {
                    side.tools.push(KeyedList { key: key.into(), ..KeyedList::default() });
                    let last = side.tools.len() - 1;
                    &mut side.tools[last]
                }
            };
            list.entries.push(Entry::new(rule.shape.selector()));
        }
        let rules = RulesSource::Agents(AgentsSource { agents, ..AgentsSource::default() });
        Source {
            layers: vec![LayerSource { name: "policy.yaml".into(), rules }],
            ..Source::default()
        }
    }

    /// The same policy as a file.
    pub fn yaml(&self) -> String {
        let Some(RulesSource::Agents(agents)) = self.source().layers.pop().map(|l| l.rules) else {
            return String::new();
        };
        let mut text = String::from("agents:\n");
        for (name, agent) in &agents.agents {
            text += &format!("  {name}:\n    allow:\n      servers: [\"*\"]\n");
            for (side, heading) in [(&agent.allow, ""), (&agent.deny, "    deny:\n")] {
                if side.tools.is_empty() {
                    continue;
                }
                text += &format!("{heading}      tools:\n");
                for list in &side.tools {
                    text += &format!("        \"{}\":\n", list.key);
                    for entry in &list.entries {
                        text += &format!("          - \"{}\"\n", entry.selector);
                    }
                }
            }
        }
        text
    }

    fn key(&self, rule: &Rule) -> &str {
        rule.server.map_or("*", |server| &self.servers[server])
    }

    pub fn tool_sets(&self) -> Vec<ToolSet> {
        let set =
            |names: &Vec<String>| ToolSet::new(names.iter().map(|n| Tool::named(n)).collect());
        self.tools.iter().map(set).collect()
    }

    /// Calls drawn evenly from all agents, servers and tools.
    pub fn requests(&self, count: usize) -> Vec<Request> {
        let mut random = Random::new(11);
        let request = |_| {
            let server = random.below(self.servers.len());
            Request {
                agent: random.below(self.agents.len()),
                server,
                tool: self.tools[server][random.below(TOOLS_PER_SERVER)].as_str().into(),
            }
        };
        (0..count).map(request).collect()
    }
}

fn name(random: &mut Random) -> [&'static str; 3] {
    [random.pick(&VERBS), random.pick(&NOUNS), random.pick(&DETAILS)]
}

fn tools(random: &mut Random) -> Vec<String> {
    let mut names = std::collections::BTreeSet::new();
    while names.len() < TOOLS_PER_SERVER {
        names.insert(name(random).join("_"));
    }
    names.into_iter().collect()
}

fn rule(n: usize, agent: usize, tools: &[Vec<String>], random: &mut Random) -> Rule {
    if n == 0 {
        return Rule { agent, deny: false, server: None, shape: Shape::Prefix("get_".into()) };
    }
    let server = random.below(SERVERS);
    let [verb, noun, detail] = name(random);
    let shape = match random.below(400) {
        0 => Shape::Everything,
        // Half of the names are existing tools, so that rules match.
        1..120 => Shape::Name(random.pick(&tools[server])),
        120..240 => Shape::Name(format!("{verb}_{noun}_{detail}")),
        240..244 => Shape::Prefix(format!("{verb}_")),
        244..320 => Shape::Prefix(format!("{verb}_{noun}_")),
        320..324 => Shape::Suffix(format!("_{detail}")),
        _ => Shape::Suffix(format!("_{noun}_{detail}")),
    };
    let everywhere = random.below(5) == 0 && !matches!(shape, Shape::Everything);
    let deny = random.below(10) < 3;
    Rule { agent, deny, server: (!everywhere).then_some(server), shape }
}

fn ten_rules(tools: &[Vec<String>]) -> Vec<Rule> {
    let name = |server: usize, tool: usize| Shape::Name(tools[server][tool].clone());
    let prefix = |text: &str| Shape::Prefix(text.into());
    let suffix = |text: &str| Shape::Suffix(text.into());
    let rule = |agent, deny, server, shape| Rule { agent, deny, server, shape };
    vec![
        rule(0, false, None, prefix("get_")),
        rule(0, false, None, suffix("_summary")),
        rule(0, false, Some(3), Shape::Everything),
        rule(0, true, Some(3), prefix("delete_")),
        rule(0, true, None, name(0, 40)),
        rule(1, false, None, Shape::Everything),
        rule(1, true, None, prefix("drop_")),
        rule(1, true, None, suffix("_private")),
        rule(1, true, Some(7), name(7, 3)),
        rule(1, true, Some(8), Shape::Everything),
    ]
}

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}
