//! What a policy says, before it is compiled: the words of a policy file as plain data.
//!
//! Loaders build these values, [`Policy::compile`](crate::Policy::compile) consumes them. Nothing
//! here decides; order is file order, and places (`line`, `column`, both from 1) are carried along
//! so that every decision can name the rule that made it.

use crate::rate::Rate;

/// A whole policy: the servers it knows something about, and the layers a call must pass.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// Servers in the order of the configuration. A server that is not named here has no exposure,
    /// no stated hints and the default action keys.
    pub servers: Vec<ServerSource>,
    /// An exposure that holds for every server (`_global` of a plugin file).
    pub expose_everywhere: Option<ExposeSource>,
    /// Policy sources, in the order in which they are asked.
    pub layers: Vec<LayerSource>,
    /// What refusals tell agents.
    pub refusals: RefusalsSource,
}

/// What refusals tell agents, beside the engine's reason.
#[derive(Debug, Clone, Default)]
pub struct RefusalsSource {
    pub everyone: Wording,
    /// By agent. Several files may have the same one.
    pub agents: Vec<(String, Wording)>,
}

/// `explain_to_agent` and `message` of a file or an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wording {
    pub explain_to_agent: Option<bool>,
    pub message: Option<String>,
}

impl Source {
    /// How many entries all rule lists have.
    pub fn selectors(&self) -> usize {
        let keyed =
            |lists: &[KeyedList]| lists.iter().map(|list| list.entries.len()).sum::<usize>();
        let side = |side: &SideSource| {
            side.servers.len() + keyed(&side.tools) + keyed(&side.prompts) + keyed(&side.resources)
        };
        let in_layer = |layer: &LayerSource| match &layer.rules {
            RulesSource::ReadOnly => 1,
            RulesSource::Allowlist(list) => {
                let others = [&list.prompts, &list.resources].into_iter().flatten();
                list.tools.len() + others.map(Vec::len).sum::<usize>()
            }
            RulesSource::Agents(agents) => {
                agents.agents.iter().map(|(_, agent)| side(&agent.allow) + side(&agent.deny)).sum()
            }
        };
        self.layers.iter().map(in_layer).sum()
    }
}

/// What the operator says about one server.
#[derive(Debug, Clone)]
pub struct ServerSource {
    pub name: String,
    /// `None`: everything the server offers is exposed. An empty list exposes nothing.
    pub expose: Option<ExposeSource>,
    /// Tool name or pattern, and the hints stated for it.
    pub hints: Vec<(String, Vec<String>)>,
    pub trust_annotations: bool,
    pub action_keys: ActionKeysSource,
}

impl ServerSource {
    /// A server about which nothing is said but its name.
    pub fn new(name: impl Into<String>) -> Self {
        ServerSource {
            name: name.into(),
            expose: None,
            hints: Vec::new(),
            trust_annotations: true,
            action_keys: ActionKeysSource::default(),
        }
    }
}

/// Which arguments of a server's tools select an action.
#[derive(Debug, Clone)]
pub enum ActionKeysSource {
    /// The same keys for all tools.
    All(Vec<String>),
    /// By tool name or pattern, first match in file order; tools that match none have the default.
    ByTool(Vec<(String, Vec<String>)>),
}

impl Default for ActionKeysSource {
    fn default() -> Self {
        ActionKeysSource::All(DEFAULT_ACTION_KEYS.iter().map(|k| k.to_string()).collect())
    }
}

/// The action keys of a tool for which the configuration names none.
pub const DEFAULT_ACTION_KEYS: [&str; 2] = ["what", "action"];

/// An implicit allowlist of a server's tools, with renames.
#[derive(Debug, Clone, Default)]
pub struct ExposeSource {
    pub entries: Vec<ExposeEntry>,
    /// `true`: `tool` is a name to the letter even where it contains `*` (another system's file).
    pub literal: bool,
}

/// One exposed tool, or a pattern of tools.
#[derive(Debug, Clone, Default)]
pub struct ExposeEntry {
    pub tool: String,
    pub display_name: Option<String>,
    pub display_description: Option<String>,
    pub place: Place,
}

/// One policy source.
#[derive(Debug, Clone)]
pub struct LayerSource {
    /// What a person calls this source: a file name, or the name of a variable or flag.
    pub name: String,
    pub rules: RulesSource,
}

#[derive(Debug, Clone)]
pub enum RulesSource {
    Agents(AgentsSource),
    Allowlist(AllowlistSource),
    /// Only tools that carry `hint:read-only`.
    ReadOnly,
}

/// A layer of per-agent rules.
#[derive(Debug, Clone)]
pub struct AgentsSource {
    /// Agents in file order; names are unique.
    pub agents: Vec<(String, AgentSource)>,
    pub deny_on_missing_agent: bool,
}

/// The rules of one agent.
#[derive(Debug, Clone, Default)]
pub struct AgentSource {
    pub case: Case,
    pub allow: SideSource,
    pub deny: SideSource,
    /// `allow.client_requests`; `None` is the default, elicitation alone.
    pub client_requests: Option<Vec<String>>,
}

/// `allow` or `deny` of an agent.
#[derive(Debug, Clone, Default)]
pub struct SideSource {
    pub servers: Vec<Entry>,
    pub tools: Vec<KeyedList>,
    pub prompts: Vec<KeyedList>,
    pub resources: Vec<KeyedList>,
}

/// The selectors under one key of `tools`, `prompts` or `resources`.
#[derive(Debug, Clone, Default)]
pub struct KeyedList {
    /// A server's name or a pattern.
    pub key: String,
    pub entries: Vec<Entry>,
    /// Where the key stands.
    pub place: Place,
}

/// A layer that holds for all agents.
#[derive(Debug, Clone)]
pub struct AllowlistSource {
    /// Where the list stands, as a rule's path begins: `allowed_tools`, `chat.tools`.
    pub path: String,
    pub case: Case,
    pub tools: Vec<Entry>,
    pub prompts: Option<Vec<Entry>>,
    pub resources: Option<Vec<Entry>>,
}

/// One entry of a rule list.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    pub selector: String,
    /// A CEL expression; the entry is skipped where it is false.
    pub when: Option<String>,
    /// A person must approve (allow entries only).
    pub ask: bool,
    /// How often the entry lets calls pass (allow entries only).
    pub limit: Option<Rate>,
    /// How to get permission; added to refusals of listed tools.
    pub message: Option<String>,
    pub place: Place,
}

impl Entry {
    /// A plain selector that came from no file.
    pub fn new(selector: impl Into<String>) -> Self {
        Entry { selector: selector.into(), ..Entry::default() }
    }
}

impl<S: Into<String>> From<S> for Entry {
    fn from(selector: S) -> Self {
        Entry::new(selector)
    }
}

/// Whether a list's names are compared to the letter or after ASCII folding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Case {
    #[default]
    Sensitive,
    Insensitive,
}

/// A line and column of the layer's file, both from 1; zero where there is no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    pub line: u32,
    pub column: u32,
}
