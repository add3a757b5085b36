//! A compiled policy: immutable and shared by reference.

use std::borrow::Cow;

use hashbrown::HashMap;

use crate::ask::Approvers;
use crate::call::{Call, Caller};
use crate::cell::{Cell, Listing};
use crate::condition::Reads;
use crate::decision::{Decision, Kind, Step, Verdict, strictest};
use crate::exposure::Exposure;
use crate::hints::{Annotations, Hints};
use crate::layer::{CompileError, CompileProblem, Layer, Rules, push_key};
use crate::selector::{Glob, fold};
use crate::source::{ActionKeysSource, Case, DEFAULT_ACTION_KEYS, Source};
use crate::stated_hints::StatedHints;
use crate::tool::{Tool, ToolSet};
use crate::view::{Asked, View, server_step};
use crate::wording::Wordings;

/// A compiled policy.
#[derive(Debug)]
pub struct Policy {
    servers: HashMap<Box<str>, Server>,
    /// The settings of a server without an entry.
    any_server: Server,
    pub(crate) layers: Vec<Layer>,
    /// The variables that conditions of any rule read. Computed once, because every call needs it.
    reads: Reads,
    pub(crate) wordings: Wordings,
    pub(crate) approvers: Approvers,
    /// Whether any entry asks. Computed once, because every call needs it.
    pub(crate) asks: bool,
}

/// The operator's settings for a server, compiled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) exposure: Option<Exposure>,
    pub(crate) prompt_exposure: Option<Exposure>,
    stated: StatedHints,
    trust_annotations: bool,
    action_keys: ActionKeys,
}

#[derive(Debug, PartialEq, Eq)]
enum ActionKeys {
    All(Vec<Box<str>>),
    ByTool { keys: Vec<(Glob, bool, Vec<Box<str>>)>, otherwise: Vec<Box<str>> },
}

/// The subject of a decision.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    /// A tool, with its hints: those of [`Policy::hints`], or more precise ones.
    Tool(&'a Tool, &'a Hints),
    Prompt(&'a str),
    /// A resource by its URI, before normalization.
    Resource(&'a str),
    /// A resource template by its `uriTemplate`.
    Template(&'a str),
    /// A server's request to the client: `sampling`, `elicitation.form`, `elicitation.url` or `roots`. Sampling with
    /// the context of servers is `sampling.thisServer` or `sampling.allServers` in addition.
    ClientRequest(&'a str),
}

/// A family of subjects that rules have lists for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    Tools,
    Prompts,
    Resources,
}

/// A subject by the name that rules match.
pub(crate) struct Named<'a> {
    kind: Kind,
    pub(crate) name: Cow<'a, str>,
    pub(crate) tool: Option<&'a Tool>,
    hints: &'a Hints,
}

impl Named<'_> {
    pub(crate) fn asked<'a>(
        &'a self,
        policy: &'a Policy,
        (agent, server): (Option<&'a str>, &'a str),
        action_keys: &[Box<str>],
    ) -> Asked<'a> {
        Asked {
            kind: self.kind,
            name: &self.name,
            hints: self.hints,
            declares_action: self.tool.is_some_and(|tool| tool.declares_action(action_keys)),
            approvers: &policy.approvers,
            agent,
            server,
        }
    }
}

impl Policy {
    /// Compiles what is enforced: shadow entries and layers count as not written.
    pub fn compile(source: Source) -> Result<Policy, Vec<CompileError>> {
        Policy::compile_as(source, false)
    }

    /// Compiles what is enforced, and the policy in which shadow entries and layers count too, if there are any.
    pub fn compile_with_shadow(
        source: Source,
    ) -> Result<(Policy, Option<Policy>), Vec<CompileError>> {
        let shadow = match source.has_shadow() {
            true => Some(Policy::compile_as(source.clone(), true)?),
            false => None,
        };
        Ok((Policy::compile(source)?, shadow))
    }

    fn compile_as(source: Source, shadow: bool) -> Result<Policy, Vec<CompileError>> {
        let mut errors = Vec::new();
        let mut servers = HashMap::new();
        let everywhere = source
            .expose_everywhere
            .as_ref()
            .and_then(|expose| exposure(expose, "plugins.middleware._global", &mut errors));
        for server in &source.servers {
            let mut path = String::from("servers");
            push_key(&mut path, &server.name);
            let own = server.expose.as_ref();
            let own = own.and_then(|e| exposure(e, &format!("{path}.expose"), &mut errors));
            let prompts = server.expose_prompts.as_ref();
            let prompts =
                prompts.and_then(|e| exposure(e, &format!("{path}.expose_prompts"), &mut errors));
            let compiled = Server {
                exposure: own.or_else(|| everywhere.clone()),
                prompt_exposure: prompts,
                stated: StatedHints::new(&server.hints),
                trust_annotations: server.trust_annotations,
                action_keys: ActionKeys::new(&server.action_keys),
            };
            servers.insert(server.name.as_str().into(), compiled);
        }
        let any_server = Server {
            exposure: everywhere,
            prompt_exposure: None,
            stated: StatedHints::default(),
            trust_annotations: true,
            action_keys: ActionKeys::new(&ActionKeysSource::default()),
        };
        let shadow_layers = source.shadow_layers.into_iter().filter(|_| shadow);
        let layers = source.layers.into_iter().chain(shadow_layers).enumerate();
        let layers: Vec<Layer> =
            layers.map(|(index, layer)| Layer::new(index, layer, shadow, &mut errors)).collect();
        let reads = layers.iter().map(Layer::reads).fold(Reads::default(), Reads::or);
        let wordings = Wordings::new(source.refusals);
        let approvers = Approvers::new(&source.approvers);
        let asks = layers.iter().any(Layer::asks);
        let policy = Policy { servers, any_server, layers, reads, wordings, approvers, asks };
        errors.extend(policy.display_names_in_rules());
        if errors.is_empty() { Ok(policy) } else { Err(errors) }
    }

    /// Decides a call to a tool.
    pub fn decide(
        &self,
        caller: Caller<'_>,
        server: &str,
        tool: &Tool,
        call: &Call<'_>,
    ) -> Decision {
        let hints = self.hints(server, tool);
        self.cell(caller.agent, server, Subject::Tool(tool, &hints)).decide(caller, call)
    }

    /// A tool's entry in a listing.
    pub fn list(&self, caller: Caller<'_>, server: &str, tool: &Tool) -> Listing {
        let hints = self.hints(server, tool);
        self.cell(caller.agent, server, Subject::Tool(tool, &hints)).list(caller)
    }

    /// The server step alone: whether the agent may use the server at all.
    pub fn decide_server(&self, agent: Option<&str>, server: &str) -> Decision {
        let answers = self.layers.iter().enumerate().filter_map(|(index, layer)| {
            let Rules::Agents(agents) = &layer.rules else {
                return None;
            };
            let answer = match agents.agent(agent) {
                None => crate::decision::Answer::new(Verdict::Deny, Step::UnknownAgent),
                Some(at) => {
                    let agent = &agents.agents[at as usize];
                    server_step(agent, at, &fold(server, agent.case))
                }
            };
            Some(answer.in_layer(index as u16))
        });
        strictest(answers).unwrap_or(Decision::outside(Verdict::Allow, Step::ServerAllow))
    }

    /// The cell of a subject for an agent, for deciding calls and listings.
    pub fn cell(&self, agent: Option<&str>, server: &str, subject: Subject<'_>) -> Cell {
        self.cell_in(&self.views(agent, server), (agent, server), subject)
    }

    /// The cells of all tools of a server for an agent.
    pub fn row(&self, agent: Option<&str>, server: &str, tools: &ToolSet) -> Row {
        let views = self.views(agent, server);
        let cell = |tool: &Tool| {
            let hints = self.hints(server, tool);
            self.cell_in(&views, (agent, server), Subject::Tool(tool, &hints))
        };
        Row { cells: tools.tools().iter().map(cell).collect(), tools: tools.clone() }
    }

    /// The cells of several subjects of a server for an agent.
    pub fn cells<'s>(
        &self,
        agent: Option<&str>,
        server: &str,
        subjects: impl IntoIterator<Item = Subject<'s>>,
    ) -> Vec<Cell> {
        let views = self.views(agent, server);
        let cell = |subject| self.cell_in(&views, (agent, server), subject);
        subjects.into_iter().map(cell).collect()
    }

    /// Whether an agent may see a resource template: no rule denies it as written, and some expansion of it could be
    /// allowed.
    pub fn shows_template(&self, caller: Caller<'_>, server: &str, template: &str) -> bool {
        let cell = self.cell(caller.agent, server, Subject::Template(template));
        let decision = cell.list(caller).decision;
        if decision.verdict != Verdict::Deny {
            return true;
        }
        let by_default = matches!(decision.step, Step::DefaultDeny | Step::AllowlistNone);
        let pattern = crate::uri::template_pattern(template);
        let mut views = self.views(caller.agent, server).into_iter();
        by_default && views.all(|view| view.may_allow_expansion(&pattern))
    }

    /// Whether the policy could allow an agent some tool, prompt or resource of a server, whatever its name.
    pub fn may_allow(&self, agent: Option<&str>, server: &str, family: Family) -> bool {
        let kind = match family {
            Family::Tools => Kind::Tools,
            Family::Prompts => Kind::Prompts,
            Family::Resources => Kind::Resources,
        };
        self.views(agent, server).iter().all(|view| view.may_allow(kind))
    }

    fn views(&self, agent: Option<&str>, server: &str) -> Vec<View<'_>> {
        self.layers.iter().map(|layer| View::new(layer, agent, server)).collect()
    }

    fn cell_in(
        &self,
        views: &[View<'_>],
        (agent, server): (Option<&str>, &str),
        subject: Subject<'_>,
    ) -> Cell {
        let named = match self.name(server, &subject) {
            Ok(named) => named,
            Err(decision) => return Cell::fixed(decision),
        };
        let action_keys = self.action_keys(server, &named.name);
        let asked = named.asked(self, (agent, server), action_keys);
        let layers = views.iter().map(|view| view.cell(&asked)).collect();
        Cell::new(layers, server, &asked, named.tool, action_keys)
    }

    /// Checks before any layer: exposure, unsafe URIs, a policy without layers.
    pub(crate) fn name<'a>(
        &self,
        server: &str,
        subject: &Subject<'a>,
    ) -> Result<Named<'a>, Decision> {
        let (kind, name, tool, hints) = match *subject {
            Subject::Tool(tool, hints) => {
                if self.exposure(server).is_some_and(|e| e.show(tool.name()).is_none()) {
                    return Err(Decision::outside(Verdict::Deny, Step::NotExposed));
                }
                (Kind::Tools, tool.name().into(), Some(tool), hints)
            }
            Subject::Prompt(name) => {
                if self.prompt_exposure(server).is_some_and(|e| e.show(name).is_none()) {
                    return Err(Decision::outside(Verdict::Deny, Step::NotExposed));
                }
                (Kind::Prompts, name.into(), None, Hints::none())
            }
            Subject::Template(name) => (Kind::Resources, name.into(), None, Hints::none()),
            Subject::ClientRequest(name) => {
                (Kind::ClientRequests, name.into(), None, Hints::none())
            }
            Subject::Resource(uri) => match crate::uri::normalise(uri) {
                Ok(uri) => (Kind::Resources, uri.into(), None, Hints::none()),
                Err(_) => return Err(Decision::outside(Verdict::Deny, Step::UnsafeUri)),
            },
        };
        if self.layers.is_empty() {
            return Err(Decision::outside(Verdict::Allow, Step::NoPolicy));
        }
        Ok(Named { kind, name, tool, hints })
    }

    /// A tool's final hints on a server: the operator's if set, otherwise the server's claims.
    pub fn hints(&self, server: &str, tool: &Tool) -> Hints {
        let server = self.server(server);
        server.stated.of(tool.name()).unwrap_or_else(|| {
            let claims =
                if server.trust_annotations { tool.annotations() } else { Annotations::default() };
            claims.hints()
        })
    }

    /// The arguments that select a tool's action.
    pub fn action_keys(&self, server: &str, tool: &str) -> &[Box<str>] {
        self.server(server).action_keys.of(tool)
    }

    /// Every argument that selects an action of some tool.
    pub(crate) fn all_action_keys(&self, server: &str) -> Vec<&str> {
        let keys: Vec<&Box<str>> = match &self.server(server).action_keys {
            ActionKeys::All(keys) => keys.iter().collect(),
            ActionKeys::ByTool { keys, otherwise } => {
                keys.iter().flat_map(|(_, _, keys)| keys).chain(otherwise).collect()
            }
        };
        keys.into_iter().map(|key| &**key).collect()
    }

    /// The tools of a server that exist for clients; `None`: all, under their own names.
    pub fn exposure(&self, server: &str) -> Option<&Exposure> {
        self.server(server).exposure.as_ref()
    }

    /// The prompts of a server that exist for clients; `None`: all, under their own names.
    pub fn prompt_exposure(&self, server: &str) -> Option<&Exposure> {
        self.server(server).prompt_exposure.as_ref()
    }

    /// The agents that some layer has rules for, in file order; patterns as they are written.
    pub fn agents(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        let mut seen = hashbrown::HashSet::new();
        for layer in &self.layers {
            if let Rules::Agents(agents) = &layer.rules {
                names.extend(agents.names().filter(|name| seen.insert(*name)));
            }
        }
        names
    }

    /// Whether some layer has rules for this agent, by its name or by a pattern.
    pub fn knows_agent(&self, agent: &str) -> bool {
        self.layers.iter().any(|layer| match &layer.rules {
            Rules::Agents(agents) => agents.has(agent),
            _ => false,
        })
    }

    /// The key under which some layer has rules for this agent: its name, or a pattern.
    pub fn agent_key(&self, agent: &str) -> Option<&str> {
        self.layers.iter().find_map(|layer| match &layer.rules {
            Rules::Agents(agents) => agents.key(agent),
            _ => None,
        })
    }

    /// Whether every layer with agents has rules for this agent, by its name or by a pattern. In other
    /// layers it gets the rules of `default`.
    pub fn has_rules_of(&self, agent: &str) -> bool {
        self.layers.iter().all(|layer| match &layer.rules {
            Rules::Agents(agents) => agents.has(agent),
            _ => true,
        })
    }

    /// Whether every layer with agents has rules that apply to this caller: its own, or those of `default`. If
    /// not, everything is denied.
    pub fn has_rules_for(&self, agent: Option<&str>) -> bool {
        self.layers.iter().all(|layer| match &layer.rules {
            Rules::Agents(agents) => agents.agent(agent).is_some(),
            _ => true,
        })
    }

    /// Whether only read-only tools may be used.
    pub fn is_read_only(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer.rules, Rules::ReadOnly))
    }

    /// Whether a condition of some rule reads arguments.
    pub fn reads_arguments(&self) -> bool {
        self.reads.args
    }

    /// Whether a condition of some rule reads the caller's claims.
    pub fn reads_claims(&self) -> bool {
        self.reads.claims
    }

    /// The kinds of layers, in order.
    pub fn layer_kinds(&self) -> impl Iterator<Item = &'static str> {
        self.layers.iter().map(|layer| match layer.rules {
            Rules::Agents(_) => "agents",
            Rules::Allowlist(_) => "allowlist",
            Rules::ReadOnly => "read-only",
        })
    }

    /// The names of the layers, in order.
    pub fn layer_names(&self) -> impl Iterator<Item = &str> {
        self.layers.iter().map(|layer| &*layer.name)
    }

    /// The names of servers with settings.
    pub(crate) fn server_names(&self) -> impl Iterator<Item = &str> {
        self.servers.keys().map(|name| &**name)
    }

    pub(crate) fn server(&self, name: &str) -> &Server {
        self.servers.get(name).unwrap_or(&self.any_server)
    }
}

impl Server {
    /// The exposure of tools or prompts. Resources have none.
    pub(crate) fn exposure_of(&self, kind: Kind) -> Option<&Exposure> {
        match kind {
            Kind::Tools => self.exposure.as_ref(),
            Kind::Prompts => self.prompt_exposure.as_ref(),
            _ => None,
        }
    }

    /// The patterns by which the settings distinguish tools.
    pub(crate) fn globs(&self) -> impl Iterator<Item = &Glob> {
        let action_keys = match &self.action_keys {
            ActionKeys::All(_) => [].iter(),
            ActionKeys::ByTool { keys, .. } => keys.iter(),
        };
        let exposed = self.exposure.iter().flat_map(Exposure::patterns);
        exposed.chain(self.stated.globs()).chain(action_keys.map(|(glob, _, _)| glob))
    }

    /// Whether the operator sets hints of some tools.
    pub(crate) fn states_hints(&self) -> bool {
        self.stated.globs().next().is_some()
    }
}

fn exposure(
    source: &crate::source::ExposeSource,
    path: &str,
    errors: &mut Vec<CompileError>,
) -> Option<Exposure> {
    match Exposure::new(source) {
        Ok(exposure) => Some(exposure),
        Err(error) => {
            errors.push(CompileError {
                layer: None,
                path: format!("{path}[{}]", error.entry),
                place: source.entries.get(error.entry).map(|e| e.place).unwrap_or_default(),
                problem: CompileProblem::Exposure(error.problem),
            });
            None
        }
    }
}

impl ActionKeys {
    fn new(source: &ActionKeysSource) -> ActionKeys {
        let boxed = |keys: &[String]| keys.iter().map(|key| key.as_str().into()).collect();
        match source {
            ActionKeysSource::All(keys) => ActionKeys::All(boxed(keys)),
            ActionKeysSource::ByTool(keys) => ActionKeys::ByTool {
                keys: keys
                    .iter()
                    .map(|(tool, keys)| {
                        let pattern = crate::fnmatch::is_pattern(tool);
                        (Glob::new(tool, Case::Sensitive), pattern, boxed(keys))
                    })
                    .collect(),
                otherwise: DEFAULT_ACTION_KEYS.iter().map(|key| Box::from(*key)).collect(),
            },
        }
    }

    /// An exact key takes precedence over patterns; among patterns, the first in file order wins.
    fn of(&self, tool: &str) -> &[Box<str>] {
        match self {
            ActionKeys::All(keys) => keys,
            ActionKeys::ByTool { keys, otherwise } => keys
                .iter()
                .find(|(glob, pattern, _)| !pattern && glob.equals(tool))
                .or_else(|| keys.iter().find(|(glob, _, _)| glob.matches(tool)))
                .map_or(otherwise, |(_, _, keys)| keys),
        }
    }
}

/// The cells of a server's tools for an agent: a call to a known tool is one lookup.
#[derive(Debug)]
pub struct Row {
    tools: ToolSet,
    cells: Box<[Cell]>,
}

impl Row {
    /// Decides a call. A tool that is not in the agent's listing is not callable, even with an
    /// action that its schema does not list. A name that the server does not have is denied and
    /// never cached.
    #[inline]
    pub fn decide(&self, caller: Caller<'_>, tool: &str, call: &Call<'_>) -> Decision {
        match self.cell(tool) {
            Some(cell) => cell.decide_listed(caller, call),
            None => Decision::outside(Verdict::Deny, Step::NoSuchTool),
        }
    }

    #[inline]
    pub fn cell(&self, tool: &str) -> Option<&Cell> {
        self.cells.get(self.tools.id(tool)? as usize)
    }

    /// Tools and their cells, in the server's own order.
    pub fn iter(&self) -> impl Iterator<Item = (&Tool, &Cell)> {
        self.tools.tools().iter().zip(&self.cells)
    }
}

/// A rule with a display name would silently cover nothing.
impl Policy {
    fn display_names_in_rules(&self) -> Vec<CompileError> {
        let mut errors = Vec::new();
        for (name, server) in &self.servers {
            let renames = [Kind::Tools, Kind::Prompts].into_iter().flat_map(|kind| {
                let renames = server.exposure_of(kind).into_iter().flat_map(Exposure::renames);
                renames.map(move |(display, original)| (kind, display, original))
            });
            for (kind, display, original) in renames {
                for (layer, rules) in self.layers.iter().enumerate() {
                    let mut reported = hashbrown::HashSet::new();
                    for (at, key) in rules.exact_rules(kind, name, display) {
                        let applies = |server: &str| {
                            key.is_none_or(|(key, case)| key.matches(&fold(server, case)))
                        };
                        if self.could_be_original(kind, display, applies) {
                            continue;
                        }
                        let (rule, path) = (rules.rule(at), rules.path(at));
                        // Agents share the rules of a role.
                        if !reported.insert(path.clone()) {
                            continue;
                        }
                        errors.push(CompileError {
                            layer: Some(layer),
                            path,
                            place: rule.map(|rule| rule.place).unwrap_or_default(),
                            problem: CompileProblem::DisplayName {
                                selector: rule.map_or(display, |r| r.selector.written()).into(),
                                server: name.to_string(),
                                original: original.into(),
                            },
                        });
                    }
                }
            }
        }
        errors
    }

    /// Whether a server to which a rule applies may have an entry with that original name.
    fn could_be_original(&self, kind: Kind, name: &str, applies: impl Fn(&str) -> bool) -> bool {
        self.servers.iter().filter(|(server, _)| applies(server)).any(|(_, server)| {
            server.exposure_of(kind).is_none_or(|exposure| exposure.show(name).is_some())
        })
    }

    /// Operator-defined hints that some server's settings use.
    pub(crate) fn stated_tags(&self) -> Vec<String> {
        let mut tags: Vec<String> =
            self.servers.values().flat_map(|server| server.stated.tags()).cloned().collect();
        tags.sort();
        tags.dedup();
        tags
    }
}
