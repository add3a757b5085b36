//! A compiled policy: immutable, shared by reference, asked by everything.

use std::borrow::Cow;

use hashbrown::HashMap;

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
    /// What holds for a server about which nothing is said.
    any_server: Server,
    pub(crate) layers: Vec<Layer>,
    /// What conditions of any rule read, computed once: every call asks.
    reads: Reads,
    pub(crate) wordings: Wordings,
}

/// What the operator says about a server, compiled.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) exposure: Option<Exposure>,
    stated: StatedHints,
    trust_annotations: bool,
    action_keys: ActionKeys,
}

#[derive(Debug)]
enum ActionKeys {
    All(Vec<Box<str>>),
    ByTool { keys: Vec<(Glob, bool, Vec<Box<str>>)>, otherwise: Vec<Box<str>> },
}

/// What a decision is about.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    /// A tool, with the hints that [`Policy::hints`] or somebody who knows better gives it.
    Tool(&'a Tool, &'a Hints),
    Prompt(&'a str),
    /// A resource by its URI, not yet normalised.
    Resource(&'a str),
    /// A resource template by its `uriTemplate`.
    Template(&'a str),
    /// A server's request to the client: `sampling`, `elicitation` or `roots`.
    ClientRequest(&'a str),
}

/// A subject by the name under which rules speak of it.
pub(crate) struct Named<'a> {
    kind: Kind,
    pub(crate) name: Cow<'a, str>,
    pub(crate) tool: Option<&'a Tool>,
    hints: &'a Hints,
}

impl Named<'_> {
    pub(crate) fn asked(&self, action_keys: &[Box<str>]) -> Asked<'_> {
        Asked {
            kind: self.kind,
            name: &self.name,
            hints: self.hints,
            declares_action: self.tool.is_some_and(|tool| tool.declares_action(action_keys)),
        }
    }
}

impl Policy {
    pub fn compile(source: Source) -> Result<Policy, Vec<CompileError>> {
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
            let compiled = Server {
                exposure: own.or_else(|| everywhere.clone()),
                stated: StatedHints::new(&server.hints),
                trust_annotations: server.trust_annotations,
                action_keys: ActionKeys::new(&server.action_keys),
            };
            servers.insert(server.name.as_str().into(), compiled);
        }
        let any_server = Server {
            exposure: everywhere,
            stated: StatedHints::default(),
            trust_annotations: true,
            action_keys: ActionKeys::new(&ActionKeysSource::default()),
        };
        let layers = source.layers.into_iter().enumerate();
        let layers: Vec<Layer> =
            layers.map(|(index, layer)| Layer::new(index, layer, &mut errors)).collect();
        let reads = layers.iter().map(Layer::reads).fold(Reads::default(), Reads::or);
        let wordings = Wordings::new(source.refusals);
        let policy = Policy { servers, any_server, layers, reads, wordings };
        errors.extend(policy.display_names_in_rules());
        if errors.is_empty() { Ok(policy) } else { Err(errors) }
    }

    /// The decision about a call of a tool.
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

    /// What a listing shows of a tool.
    pub fn list(&self, caller: Caller<'_>, server: &str, tool: &Tool) -> Listing {
        let hints = self.hints(server, tool);
        self.cell(caller.agent, server, Subject::Tool(tool, &hints)).list(caller)
    }

    /// The server step alone: may the agent use the server at all?
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

    /// The verdict of a subject for an agent, ready to be asked about calls and listings.
    pub fn cell(&self, agent: Option<&str>, server: &str, subject: Subject<'_>) -> Cell {
        self.cell_in(&self.views(agent, server), server, subject)
    }

    /// The verdicts of all tools of a server for an agent.
    pub fn row(&self, agent: Option<&str>, server: &str, tools: &ToolSet) -> Row {
        let views = self.views(agent, server);
        let cell = |tool: &Tool| {
            let hints = self.hints(server, tool);
            self.cell_in(&views, server, Subject::Tool(tool, &hints))
        };
        Row { cells: tools.tools().iter().map(cell).collect(), tools: tools.clone() }
    }

    fn views(&self, agent: Option<&str>, server: &str) -> Vec<View<'_>> {
        self.layers.iter().map(|layer| View::new(layer, agent, server)).collect()
    }

    fn cell_in(&self, views: &[View<'_>], server: &str, subject: Subject<'_>) -> Cell {
        let named = match self.name(server, &subject) {
            Ok(named) => named,
            Err(decision) => return Cell::fixed(decision),
        };
        let action_keys = self.action_keys(server, &named.name);
        let asked = named.asked(action_keys);
        let layers = views.iter().map(|view| view.cell(&asked)).collect();
        Cell::new(layers, server, &asked, named.tool, action_keys)
    }

    /// What comes before any layer: exposure, a URI that cannot be trusted, no layer at all.
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
            Subject::Prompt(name) => (Kind::Prompts, name.into(), None, Hints::none()),
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

    /// A tool's final hints on a server: what the operator states, else what the server claims.
    pub fn hints(&self, server: &str, tool: &Tool) -> Hints {
        let server = self.server(server);
        server.stated.of(tool.name()).unwrap_or_else(|| {
            let claims =
                if server.trust_annotations { tool.annotations() } else { Annotations::default() };
            claims.hints()
        })
    }

    /// The arguments that select what a tool does.
    pub fn action_keys(&self, server: &str, tool: &str) -> &[Box<str>] {
        self.server(server).action_keys.of(tool)
    }

    /// Which tools of a server exist for clients; `None`: all, under their own names.
    pub fn exposure(&self, server: &str) -> Option<&Exposure> {
        self.server(server).exposure.as_ref()
    }

    /// The agents that some layer has rules for, in file order.
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

    /// Whether every layer that speaks of agents names this one. In the others it is `default`.
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

    /// Whether only what is read-only may be used.
    pub fn is_read_only(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer.rules, Rules::ReadOnly))
    }

    /// Whether a condition of some rule reads arguments.
    pub fn reads_arguments(&self) -> bool {
        self.reads.args
    }

    /// Whether a condition of some rule reads the claims of whoever calls.
    pub fn reads_claims(&self) -> bool {
        self.reads.claims
    }

    /// What kinds of layers there are, in order.
    pub fn layer_kinds(&self) -> impl Iterator<Item = &'static str> {
        self.layers.iter().map(|layer| match layer.rules {
            Rules::Agents(_) => "agents",
            Rules::Allowlist(_) => "allowlist",
            Rules::ReadOnly => "read-only",
        })
    }

    /// What the layers are called, in order.
    pub fn layer_names(&self) -> impl Iterator<Item = &str> {
        self.layers.iter().map(|layer| &*layer.name)
    }

    pub(crate) fn server(&self, name: &str) -> &Server {
        self.servers.get(name).unwrap_or(&self.any_server)
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

    /// An exact key beats pattern keys; among patterns the first in file order holds.
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

/// The verdicts of a server's tools for an agent: a call to a known tool is one look-up.
#[derive(Debug)]
pub struct Row {
    tools: ToolSet,
    cells: Box<[Cell]>,
}

impl Row {
    /// The decision about a call: a tool that the agent's listing does not show is not callable,
    /// even with an action that its schema does not name. A name that the server does not have is
    /// denied, and never remembered.
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

/// Rules that speak of a tool by the name that clients see would silently cover nothing.
impl Policy {
    fn display_names_in_rules(&self) -> Vec<CompileError> {
        let mut errors = Vec::new();
        for (name, server) in &self.servers {
            let Some(exposure) = &server.exposure else { continue };
            for (display, original) in exposure.renames() {
                for (layer, rules) in self.layers.iter().enumerate() {
                    for (at, key) in rules.exact_rules(name, display) {
                        let applies = |server: &str| {
                            key.is_none_or(|(key, case)| key.matches(&fold(server, case)))
                        };
                        if self.could_be_original(display, applies) {
                            continue;
                        }
                        let rule = rules.rule(at);
                        errors.push(CompileError {
                            layer: Some(layer),
                            path: rules.path(at),
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

    /// Whether a server to which a rule applies may have a tool of that original name.
    fn could_be_original(&self, name: &str, applies: impl Fn(&str) -> bool) -> bool {
        self.servers.iter().filter(|(server, _)| applies(server)).any(|(_, server)| {
            server.exposure.as_ref().is_none_or(|exposure| exposure.show(name).is_some())
        })
    }

    /// Hints of the operator's own that some server states.
    pub(crate) fn stated_tags(&self) -> Vec<String> {
        let mut tags: Vec<String> =
            self.servers.values().flat_map(|server| server.stated.tags()).cloned().collect();
        tags.sort();
        tags.dedup();
        tags
    }
}
