//! A policy before compilation: the content of a policy file as plain data.
//!
//! Loaders build these values; [`Policy::compile`](crate::Policy::compile) consumes them. Nothing
//! here decides. Order is file order, and locations (`line`, `column`, both from 1) are kept so
//! that every decision can name the rule that made it.

use std::time::Duration;

use crate::rate::Rate;

/// A whole policy: settings of servers, and the layers that a call must pass.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// Servers in configuration order. A server that is not in this list has no exposure, no
    /// operator-defined hints and the default action keys.
    pub servers: Vec<ServerSource>,
    /// An exposure that applies to every server (`_global` of a plugin file).
    pub expose_everywhere: Option<ExposeSource>,
    /// Policy sources, in evaluation order.
    pub layers: Vec<LayerSource>,
    /// Layers that are evaluated and recorded, and not enforced.
    pub shadow_layers: Vec<LayerSource>,
    /// The texts that refusals include.
    pub refusals: RefusalsSource,
    /// The approvers of calls.
    pub approvers: ApproversSource,
}

/// The texts that refusals include in addition to the engine's reason.
#[derive(Debug, Clone, Default)]
pub struct RefusalsSource {
    pub everyone: Wording,
    /// Per agent. Several files may have settings for the same one.
    pub agents: Vec<(String, Wording)>,
}

/// `explain_to_agent` and `message` of a file or an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wording {
    pub explain_to_agent: Option<bool>,
    pub message: Option<String>,
}

impl Source {
    /// The number of entries in all rule lists.
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
            RulesSource::Agents(layer) => {
                let agents = layer.agents.iter().map(|(_, agent)| (&agent.allow, &agent.deny));
                let roles = layer.roles.iter().map(|(_, role)| (&role.allow, &role.deny));
                agents.chain(roles).map(|(allow, deny)| side(allow) + side(deny)).sum()
            }
        };
        self.layers.iter().map(in_layer).sum()
    }
}

/// A list of allowed tools that counts as not written, because all its entries are shadow entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedList {
    /// The index of its layer.
    pub layer: usize,
    /// `agents.NAME` or `roles.NAME`.
    pub of: String,
    /// The server's name or pattern.
    pub key: String,
    /// The location of its first entry.
    pub place: Place,
}

impl Source {
    /// Whether an entry or a layer is only evaluated and recorded.
    pub fn has_shadow(&self) -> bool {
        !self.shadow_layers.is_empty() || self.layers.iter().any(LayerSource::has_shadow)
    }

    /// Lists of allowed tools that would restrict a server, and count as not written: all tools of the server are
    /// allowed instead.
    pub fn opened_by_shadow(&self) -> Vec<OpenedList> {
        let mut opened = Vec::new();
        for (layer, source) in self.layers.iter().enumerate() {
            let RulesSource::Agents(agents) = &source.rules else { continue };
            let own = agents.agents.iter().map(|(name, one)| ("agents", name, &one.allow));
            let roles = agents.roles.iter().map(|(name, one)| ("roles", name, &one.allow));
            for (section, name, allow) in own.chain(roles) {
                let shadowed = allow.tools.iter().filter(|list| {
                    !list.entries.is_empty() && list.entries.iter().all(|entry| entry.shadow)
                });
                opened.extend(shadowed.map(|list| OpenedList {
                    layer,
                    of: format!("{section}.{name}"),
                    key: list.key.clone(),
                    place: list.entries.first().map_or(list.place, |entry| entry.place),
                }));
            }
        }
        opened
    }
}

impl LayerSource {
    fn has_shadow(&self) -> bool {
        let any = |entries: &[Entry]| entries.iter().any(|entry| entry.shadow);
        let side = |side: &SideSource| {
            let lists = [&side.tools, &side.prompts, &side.resources].into_iter().flatten();
            any(&side.servers) || lists.into_iter().any(|list| any(&list.entries))
        };
        match &self.rules {
            RulesSource::ReadOnly => false,
            RulesSource::Allowlist(list) => {
                let others = [&list.prompts, &list.resources].into_iter().flatten();
                any(&list.tools) || others.into_iter().any(|entries| any(entries))
            }
            RulesSource::Agents(layer) => {
                let agents = layer.agents.iter().map(|(_, agent)| (&agent.allow, &agent.deny));
                let roles = layer.roles.iter().map(|(_, role)| (&role.allow, &role.deny));
                agents.chain(roles).any(|(allow, deny)| side(allow) || side(deny))
            }
        }
    }
}

/// The operator's settings for one server.
#[derive(Debug, Clone)]
pub struct ServerSource {
    pub name: String,
    /// `None`: every tool of the server is exposed. An empty list exposes nothing.
    pub expose: Option<ExposeSource>,
    /// The same for its prompts.
    pub expose_prompts: Option<ExposeSource>,
    /// Tool name or pattern, and its hints.
    pub hints: Vec<(String, Vec<String>)>,
    pub trust_annotations: bool,
    pub action_keys: ActionKeysSource,
}

impl ServerSource {
    /// A server without settings.
    pub fn new(name: impl Into<String>) -> Self {
        ServerSource {
            name: name.into(),
            expose: None,
            expose_prompts: None,
            hints: Vec::new(),
            trust_annotations: true,
            action_keys: ActionKeysSource::default(),
        }
    }
}

/// The arguments that select an action of a server's tools.
#[derive(Debug, Clone)]
pub enum ActionKeysSource {
    /// The same keys for all tools.
    All(Vec<String>),
    /// By tool name or pattern, first match in file order; other tools have the default.
    ByTool(Vec<(String, Vec<String>)>),
}

impl Default for ActionKeysSource {
    fn default() -> Self {
        ActionKeysSource::All(DEFAULT_ACTION_KEYS.iter().map(|k| k.to_string()).collect())
    }
}

/// The action keys of a tool without configured ones.
pub const DEFAULT_ACTION_KEYS: [&str; 2] = ["what", "action"];

/// An implicit allowlist of a server's tools or prompts, with renames.
#[derive(Debug, Clone, Default)]
pub struct ExposeSource {
    pub entries: Vec<ExposeEntry>,
    /// `true`: `name` is a literal name even if it contains `*` (for files of other systems).
    pub literal: bool,
}

/// One exposed tool or prompt, or a pattern.
#[derive(Debug, Clone, Default)]
pub struct ExposeEntry {
    pub name: String,
    pub display_name: Option<String>,
    pub display_description: Option<String>,
    pub place: Place,
}

/// One policy source.
#[derive(Debug, Clone)]
pub struct LayerSource {
    /// A name for people: of a file, a variable or a flag.
    pub name: String,
    pub rules: RulesSource,
}

#[derive(Debug, Clone)]
pub enum RulesSource {
    Agents(AgentsSource),
    Allowlist(AllowlistSource),
    /// Only tools with `hint:read-only`.
    ReadOnly,
}

/// A layer of per-agent rules.
#[derive(Debug, Clone)]
pub struct AgentsSource {
    /// Agents in file order; names are unique.
    pub agents: Vec<(String, AgentSource)>,
    /// Lists that several agents share; names are unique.
    pub roles: Vec<(String, RoleSource)>,
    /// Whether an agent's name with `*`, `?` or `[` is a pattern of names. An exact name takes precedence,
    /// and no name may match two patterns.
    pub patterns: bool,
    pub deny_on_missing_agent: bool,
}

/// No agents: everything is denied.
impl Default for AgentsSource {
    fn default() -> Self {
        AgentsSource {
            agents: Vec::new(),
            roles: Vec::new(),
            patterns: false,
            deny_on_missing_agent: true,
        }
    }
}

/// Lists that agents share, as if each had them in front of its own.
#[derive(Debug, Clone, Default)]
pub struct RoleSource {
    pub allow: SideSource,
    pub deny: SideSource,
    /// `allow.client_requests`.
    pub client_requests: Option<Vec<String>>,
}

/// The rules of one agent.
#[derive(Debug, Clone, Default)]
pub struct AgentSource {
    pub case: Case,
    /// The roles whose lists precede the agent's own, in order.
    pub roles: Vec<String>,
    pub allow: SideSource,
    pub deny: SideSource,
    /// `allow.client_requests`; if neither the agent nor a role has it, elicitation and roots are allowed.
    pub client_requests: Option<Vec<String>>,
}

/// `allow` or `deny` of an agent or a role.
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
    /// The location of the key.
    pub place: Place,
}

/// A layer that applies to all agents.
#[derive(Debug, Clone)]
pub struct AllowlistSource {
    /// The path of the list, with which the paths of its rules begin: `allowed_tools`,
    /// `chat.tools`.
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
    /// A CEL expression; the entry is skipped if it is false.
    pub when: Option<String>,
    /// OAuth scopes that the caller's token must have, separated by spaces (allow entries only).
    pub scope: Option<String>,
    /// A person must approve (allow entries only).
    pub ask: Option<Ask>,
    /// The rate limit of the calls that the entry allows (allow entries only).
    pub limit: Option<Rate>,
    /// How to get permission; added to refusals of listed tools.
    pub message: Option<String>,
    /// It is evaluated and recorded, and otherwise counts as not written.
    pub shadow: bool,
    pub place: Place,
}

/// The options of an entry whose calls a person must approve.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Ask {
    /// How long a call is kept open; `None`: the default.
    pub hold: Option<Duration>,
    /// How long a person may take; `None`: the default.
    pub ttl: Option<Duration>,
    /// The admins that can approve; empty: anyone who can approve calls of the tool.
    pub approvers: Vec<String>,
}

/// The approvers of calls.
#[derive(Debug, Clone, Default)]
pub struct ApproversSource {
    /// `None`: there are no admins, and the user who runs the gateway approves.
    pub admins: Option<Vec<AdminSource>>,
    /// Names or patterns of agents whose clients show requests for approval to a person.
    pub trusted_ui: Vec<String>,
}

/// An admin, and the `SERVER/NAME` patterns that they may approve.
#[derive(Debug, Clone, Default)]
pub struct AdminSource {
    pub name: String,
    pub approve: Vec<String>,
}

impl Entry {
    /// A plain selector without a file.
    pub fn new(selector: impl Into<String>) -> Self {
        Entry { selector: selector.into(), ..Entry::default() }
    }
}

impl<S: Into<String>> From<S> for Entry {
    fn from(selector: S) -> Self {
        Entry::new(selector)
    }
}

/// Whether names are compared exactly or after ASCII folding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Case {
    #[default]
    Sensitive,
    Insensitive,
}

/// A line and column in the layer's file, both from 1; zero if there is no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    pub line: u32,
    pub column: u32,
}
