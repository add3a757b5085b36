//! One policy query, for `can-i` and `explain`.

use std::io::Write;

use clap::ArgMatches;
use serde_json::{Map, Value};
use toolward_config::config::Config;
use toolward_config::sanitize;
use toolward_config::suggest;
use toolward_gateway::audit::redact::Redact;
use toolward_gateway::view::names::Naming;
use toolward_policy::scope::claims_with;
use toolward_policy::{Hints, Tool, ToolSet, Verdict};

use crate::arguments::ArgumentsText;
use crate::cli::{Kind, QuestionArgs};
use crate::discovery::Route;
use crate::exit::Failure;
use crate::fetch_tools;
use crate::guards::discovery;
use crate::load::Input;
use crate::pins::quarantine::Quarantine;
use crate::prepared;
use crate::query::PolicyQuery;
use crate::render::{DIM, paint};

/// A query, with the data that is needed to answer it.
pub(crate) struct Question {
    pub(crate) input: Input,
    agent: Option<String>,
    server: String,
    name: String,
    arguments: Option<ArgumentsText>,
    /// The claims of the caller's token: its scopes.
    claims: Option<Map<String, Value>>,
    kind: Kind,
    list: bool,
    /// `None`: the server's list is known and lacks the tool.
    tool: Option<Tool>,
    hints: Hints,
    naming: Option<Naming>,
    redact: Redact,
    /// Why agents cannot use the tool, regardless of the policy.
    quarantined: Option<String>,
    /// No tool lists were given.
    asks_servers: bool,
}

impl Question {
    pub(crate) fn new(args: QuestionArgs, matches: Option<&ArgMatches>) -> Result<Self, Failure> {
        let (server, name) = match args.subject.split_once('/') {
            Some((server, name)) if !server.is_empty() && !name.is_empty() => (server, name),
            _ => {
                return Err(Failure::usage(format!(
                    "error: `{}` does not name a server and a {}",
                    sanitize(&args.subject),
                    match args.kind {
                        Kind::Tool => "tool: write SERVER/TOOL",
                        Kind::Prompt => "prompt: write SERVER/PROMPT",
                        Kind::Resource | Kind::Template => "resource: write SERVER/URI",
                    }
                )));
            }
        };
        // A listing shows templates too.
        let kind = match args.kind {
            Kind::Resource if args.list && name.contains('{') => Kind::Template,
            kind => kind,
        };
        let arguments = args.arguments.as_deref().map(arguments).transpose()?;
        let mut input = Input::load(&args.policy, &args.tools, matches)?;
        if args.tools.lists.is_empty() && kind == Kind::Tool {
            fetch_tools::ask(&mut input, Some(server))?;
        }
        let configured: Vec<&str> =
            input.loaded.config.servers.iter().map(|known| known.name.as_str()).collect();
        if !configured.is_empty() && !input.catalogue.has_server(server) {
            let help = match suggest::nearest(server, configured.iter().copied()) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!("there are {}", configured.join(", ")),
            };
            let server = sanitize(server);
            return Err(Failure::usage(format!(
                "error: there is no server named `{server}`\n  help: {help}"
            )));
        }
        let exposure = match kind {
            Kind::Tool => input.policy.exposure(server),
            Kind::Prompt => input.policy.prompt_exposure(server),
            Kind::Resource | Kind::Template => None,
        };
        if let Some(original) = exposure.and_then(|exposure| exposure.renamed_from(name)) {
            let (name, original) = (sanitize(name), sanitize(original));
            return Err(Failure::usage(format!(
                "error: `{name}` is the display name of `{original}`; rules use original names\n  \
                 help: ask about `{server}/{original}`"
            )));
        }
        let tool = match kind {
            Kind::Tool => input.catalogue.tool(server, name),
            _ => Some(Tool::named(name)),
        };
        let hints = match (&tool, kind) {
            (Some(tool), Kind::Tool) => input.policy.hints(server, tool),
            _ => Hints::default(),
        };
        let is_known = input.catalogue.tools(server).is_some();
        let pinned = tool.as_ref().filter(|_| kind == Kind::Tool && is_known);
        let quarantined =
            pinned.and_then(|tool| Quarantine::new(&input.loaded, &input.reads).of(server, tool));
        Ok(Question {
            quarantined,
            naming: naming(&input.loaded.config),
            redact: Redact::new(&input.loaded.config.audit.redact),
            asks_servers: args.tools.lists.is_empty() && kind == Kind::Tool,
            agent: args.agent,
            server: server.into(),
            name: name.into(),
            arguments,
            claims: args.scope.as_deref().map(claims_with),
            kind,
            list: args.list,
            tool,
            hints,
            input,
        })
    }

    /// The query itself.
    pub(crate) fn asked(&self) -> PolicyQuery<'_> {
        PolicyQuery {
            policy: &self.input.policy,
            agent: self.agent.as_deref(),
            server: &self.server,
            name: &self.name,
            arguments: self.arguments.as_ref(),
            claims: self.claims.as_ref(),
            kind: self.kind,
            list: self.list,
            tool: self.tool.as_ref(),
            list_unknown: self.kind == Kind::Tool
                && self.input.catalogue.tools(&self.server).is_none(),
            hints: &self.hints,
            offered: self.offered(),
            naming: self.naming.as_ref(),
            redact: &self.redact,
            route: self.route(self.agent.as_deref()),
            quarantined: self.quarantined.clone(),
        }
    }

    /// The same query for another agent.
    pub(crate) fn asked_as<'a>(&'a self, agent: Option<&'a str>) -> PolicyQuery<'a> {
        PolicyQuery { agent, route: self.route(agent), ..self.asked() }
    }

    /// Warns on standard error that no agent has this name, which is most likely a typo.
    pub(crate) fn warn_of_unknown_agent(&self) -> Result<(), Failure> {
        let unknown = self.agent.as_deref().and_then(|name| self.input.unknown_agent(name));
        if let Some(unknown) = unknown {
            writeln!(anstream::stderr(), "{}", paint(DIM, format!("note: {}", unknown.note())))?;
        }
        Ok(())
    }

    fn route(&self, agent: Option<&str>) -> Route {
        let discovery = discovery(&self.input.loaded.config);
        match self.kind {
            Kind::Tool => discovery.route(&self.input.policy, agent, &self.server),
            _ => discovery.route_to_others(agent),
        }
    }

    /// The known lists of the servers that the agent may use.
    fn offered(&self) -> Vec<(&str, &ToolSet)> {
        let (policy, agent) = (&self.input.policy, self.agent.as_deref());
        let usable = |server: &str| policy.decide_server(agent, server).verdict != Verdict::Deny;
        self.input.catalogue.lists().filter(|(server, _)| usable(server)).collect()
    }

    /// Fetches the tool lists of the other servers that the agent may use, because a refusal names their
    /// tools.
    pub(crate) fn complete(&mut self) -> Result<(), Failure> {
        match self.asks_servers {
            true => fetch_tools::ask_unknown(&mut self.input, self.agent.as_deref(), &self.server),
            false => Ok(()),
        }
    }
}

/// The naming of tools at `/mcp` of this configuration. A policy without servers is for one server, whose
/// tools keep their names.
fn naming(config: &Config) -> Option<Naming> {
    (!config.servers.is_empty()).then(|| prepared::naming(config))
}

fn arguments(text: &str) -> Result<ArgumentsText, Failure> {
    ArgumentsText::parse(text)
        .map_err(|why| Failure::usage(format!("error: the arguments are not a JSON object: {why}")))
}
