//! From flags to a compiled policy: loads files, compiles the policy, reads tool lists.

use std::io::Write;

use clap::ArgMatches;
use toolward_config::sanitize;
use toolward_config::{
    Diagnostic, Level, LoadFailure, LoadedConfig, Loader, Options, PolicyFile, PolicyFlag,
    ProcessEnv, suggest,
};
use toolward_gateway::upstream::built_in;
use toolward_policy::condition::{ConditionError, FUNCTIONS, VARIABLES};
use toolward_policy::source::{RulesSource, Source};
use toolward_policy::{Catalogue, CompileError, CompileProblem, Policy};

use crate::cli::{Format, PolicyArgs, ToolsArgs};
use crate::exit::Failure;
use crate::log;
use crate::reads::Reads;
use crate::server_settings::ServerSettings;
use crate::tool_lists;
use crate::version::version;

/// A loaded and compiled policy, with its tool lists.
pub(crate) struct Input {
    pub(crate) loaded: LoadedConfig,
    pub(crate) policy: Policy,
    /// The policy with its shadow entries and layers, if it has any.
    pub(crate) shadow: Option<Policy>,
    pub(crate) catalogue: Catalogue,
    /// How many entries the rule lists have.
    pub(crate) selectors: usize,
    /// Servers for which a file has an exposure.
    pub(crate) exposed: Vec<String>,
    /// The settings of servers that the policy is evaluated with.
    pub(crate) servers: ServerSettings,
    /// The policy version.
    pub(crate) version: String,
    /// Whether any layer has agents, so that the caller's identity matters.
    pub(crate) has_agents_layer: bool,
    /// The reason, if this is the deny-all policy of a configuration that could not be loaded.
    pub(crate) denying: Option<String>,
    /// How many entries each allowlist has.
    pub(crate) allowlists: Vec<usize>,
    /// The files that were read.
    pub(crate) reads: Reads,
}

impl Input {
    /// Loads everything, or returns the errors. Warnings are printed to standard error.
    pub(crate) fn load(
        policy: &PolicyArgs,
        tools: &ToolsArgs,
        matches: Option<&ArgMatches>,
    ) -> Result<Input, Failure> {
        let input = Input::load_silently(policy, tools, matches)?;
        input.report_warnings(policy)?;
        Ok(input)
    }

    /// The same, without printing warnings.
    pub(crate) fn load_silently(
        policy: &PolicyArgs,
        tools: &ToolsArgs,
        matches: Option<&ArgMatches>,
    ) -> Result<Input, Failure> {
        Input::try_load(policy, tools, matches)?.map_err(|diagnostics| invalid(&diagnostics))
    }

    /// Prints warnings to standard error, or logs them if that is a stream of JSON lines.
    pub(crate) fn report_warnings(&self, policy: &PolicyArgs) -> Result<(), Failure> {
        let nothing = (policy.search && self.is_empty()).then(nothing_found);
        for warning in nothing.iter().chain(&self.loaded.warnings) {
            if log::is_json() {
                let diagnostic = warning.render(false);
                tracing::warn!(target: "config", diagnostic, "{}", warning.message());
            } else {
                writeln!(anstream::stderr(), "{}", warning.render(true))?;
            }
        }
        Ok(())
    }

    /// The same, with findings as values.
    pub(crate) fn try_load(
        policy: &PolicyArgs,
        tools: &ToolsArgs,
        matches: Option<&ArgMatches>,
    ) -> Result<Result<Input, Vec<Diagnostic>>, Failure> {
        let lists = tool_lists::read(&tools.lists)?;
        let named: Vec<(String, String)> = lists
            .iter()
            .filter_map(|list| Some((list.file.clone()?, list.server.clone())))
            .collect();
        let mut input = Input::from(&options(policy, matches), lists, &Reads::default());
        if let Ok(input) = &mut input {
            let warnings = input.foreign_lists(&named);
            input.loaded.warnings.extend(warnings);
        }
        Ok(input)
    }

    /// Saved tool lists, as file and server, of servers that the configuration does not have.
    fn foreign_lists(&self, named: &[(String, String)]) -> Vec<Diagnostic> {
        let config = &self.loaded.config;
        let own = config.builtin.then_some(built_in::NAME);
        let servers = config.servers.iter().map(|server| server.name.as_str()).chain(own);
        let servers: Vec<&str> = servers.collect();
        if servers.is_empty() {
            return Vec::new();
        }
        let foreign = named.iter().filter(|(_, server)| !servers.contains(&server.as_str()));
        let warning = |(file, server): &(String, String)| {
            let message = format!(
                "{}: the tools of `{}`, which is not a server of the configuration",
                sanitize(file),
                sanitize(server)
            );
            let help = match suggest::nearest(server, servers.iter().copied()) {
                Some(nearest) => format!("did you mean `{nearest}`? Then write {nearest}={file}"),
                None => format!("servers are {}; write SERVER={file}", servers.join(", ")),
            };
            Diagnostic::warning(message).help(help)
        };
        foreign.map(warning).collect()
    }

    /// An agent that no rule names, if rules name agents: most likely a typo.
    pub(crate) fn unknown_agent(&self, name: &str) -> Option<UnknownAgent> {
        let configured = self.loaded.config.agents.iter().map(|agent| agent.name.as_str());
        let mut known: Vec<&str> = self.policy.agents().into_iter().chain(configured).collect();
        known.sort_unstable();
        known.dedup();
        if known.is_empty() || known.contains(&name) || self.policy.knows_agent(name) {
            return None;
        }
        let is_denied = !self.policy.has_rules_for(Some(name));
        let message = format!("no agent is named `{}`", sanitize(name));
        let help = match suggest::nearest(name, known.iter().copied()) {
            Some(nearest) => format!("did you mean `{}`?", sanitize(nearest)),
            None => format!("there are {}", sanitize(&known.join(", "))),
        };
        let rules = match (is_denied, self.has_agents_layer) {
            (true, _) => "the policy denies everything to unknown agents",
            (false, true) => "the rules of `default` apply",
            (false, false) => "no rule depends on the agent",
        };
        Some(UnknownAgent { message, help, rules, is_denied })
    }

    /// Loads the files given by the flags, and records what was read.
    pub(crate) fn from(
        options: &Options,
        lists: Vec<tool_lists::ToolList>,
        reads: &Reads,
    ) -> Result<Input, Vec<Diagnostic>> {
        let loader = Loader { files: reads.clone(), env: ProcessEnv };
        match loader.load(options) {
            Ok(loaded) => Input::compile(loaded, lists, reads.clone()),
            Err(LoadFailure { diagnostics, .. }) => Err(diagnostics),
        }
    }

    /// The input of a gateway that denies everything until its configuration can be loaded.
    pub(crate) fn denying(options: &Options, why: String) -> Result<Input, Vec<Diagnostic>> {
        let reads = Reads::default();
        let loader = Loader { files: reads.clone(), env: ProcessEnv };
        let mut config = match loader.load(options) {
            Ok(loaded) => loaded.config,
            Err(failed) => *failed.config,
        };
        // Secret files are watched too.
        drop(config.resolve_secrets(&ProcessEnv, &reads));
        let input = Input::compile(LoadedConfig::denying(config), Vec::new(), reads)?;
        Ok(Input { denying: Some(why), ..input })
    }

    /// The parts that reports need.
    pub(crate) fn checked(&self) -> CheckedPolicy<'_> {
        CheckedPolicy {
            loaded: &self.loaded,
            policy: &self.policy,
            catalogue: &self.catalogue,
            exposed: &self.exposed,
            selectors: self.selectors,
        }
    }

    /// Whether unnamed callers are rejected.
    pub(crate) fn needs_name(&self) -> bool {
        let config = &self.loaded.config;
        // If a file defines agents, the identity of the caller matters.
        let speaks_of_agents = self.has_agents_layer || !config.agents.is_empty();
        speaks_of_agents && config.deny_on_missing_agent
    }

    /// Whether a rule or hook reads the claims of a JWT.
    pub(crate) fn shows_claims(&self) -> bool {
        self.policy.reads_claims() || !self.loaded.config.hooks.is_empty()
    }

    /// Whether nothing at all was loaded: no file, no layer of flags or environment.
    pub(crate) fn is_empty(&self) -> bool {
        self.loaded.main_file().is_none() && self.policy.layer_names().next().is_none()
    }

    /// Compiles a loaded configuration.
    pub(crate) fn compile(
        mut loaded: LoadedConfig,
        lists: Vec<tool_lists::ToolList>,
        reads: Reads,
    ) -> Result<Input, Vec<Diagnostic>> {
        let source = std::mem::take(&mut loaded.source);
        // Errors in shadow layers name them after the others.
        let layers = source.layers.iter().chain(&source.shadow_layers);
        let layers: Vec<String> = layers.map(|layer| layer.name.clone()).collect();
        let opened = shadow_warnings(&loaded, &source);
        loaded.warnings.extend(opened);
        let mut catalogue = Catalogue::default();
        for server in &source.servers {
            catalogue.insert(&server.name, None);
        }
        if loaded.config.builtin {
            catalogue.insert(built_in::NAME, Some(built_in::tools()));
        }
        for list in lists {
            catalogue.insert(&list.server, Some(list.tools));
        }
        let exposing = source.servers.iter().filter(|server| server.expose.is_some());
        let exposed = exposing.map(|server| server.name.clone()).collect();
        let selectors = source.selectors();
        let servers = ServerSettings::of(&source);
        let version = version(&source, &loaded.config, &reads);
        let has_agents_layer =
            source.layers.iter().any(|layer| matches!(layer.rules, RulesSource::Agents(_)));
        let allowlists = source.layers.iter().filter_map(|layer| match &layer.rules {
            RulesSource::Allowlist(list) => Some(list.tools.len()),
            _ => None,
        });
        let allowlists = allowlists.collect();
        match Policy::compile_with_shadow(source) {
            Ok((policy, shadow)) => Ok(Input {
                denying: None,
                allowlists,
                reads,
                loaded,
                policy,
                shadow,
                catalogue,
                selectors,
                exposed,
                servers,
                version,
                has_agents_layer,
            }),
            Err(errors) => {
                Err(errors.iter().map(|error| diagnostic(&loaded, &layers, error)).collect())
            }
        }
    }
}

/// Warnings about shadow entries and layers that leave something open, because they count as not written.
fn shadow_warnings(loaded: &LoadedConfig, source: &Source) -> Vec<Diagnostic> {
    let opened = source.opened_by_shadow().into_iter().map(|list| {
        let file = source.layers.get(list.layer).map_or("", |layer| layer.name.as_str());
        let message = format!(
            "all entries for `{}` in `{}.allow.tools` are shadow entries: every tool is allowed there, unless another list applies",
            list.key, list.of
        );
        let help = "add the entries that are enforced meanwhile, for example `\"*\"`";
        loaded.diagnostic_at(Level::Warning, file, list.place, &message).help(help)
    });
    let only_shadow = source.layers.is_empty() && !source.shadow_layers.is_empty();
    let only_shadow = only_shadow.then(|| {
        let message = "all layers are shadow layers: there is no policy, and everything is allowed";
        Diagnostic::warning(message).help("add a layer that is enforced meanwhile")
    });
    opened.chain(only_shadow).collect()
}

/// An agent that no rule names.
pub(crate) struct UnknownAgent {
    pub(crate) message: String,
    pub(crate) help: String,
    /// Which rules apply to it.
    pub(crate) rules: &'static str,
    /// The policy denies everything to it.
    pub(crate) is_denied: bool,
}

impl UnknownAgent {
    /// A one-line note.
    pub(crate) fn note(&self) -> String {
        format!("{}: {} ({})", self.message, self.rules, self.help)
    }
}

/// A loaded and compiled policy, borrowed for reports.
#[derive(Clone, Copy)]
pub(crate) struct CheckedPolicy<'a> {
    pub(crate) loaded: &'a LoadedConfig,
    pub(crate) policy: &'a Policy,
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) exposed: &'a [String],
    pub(crate) selectors: usize,
}

/// The loader options of the flags.
pub(crate) fn options(args: &PolicyArgs, matches: Option<&ArgMatches>) -> Options {
    let place = |flag: &str, at: usize| {
        matches.and_then(|matches| matches.indices_of(flag)?.nth(at)).unwrap_or(usize::MAX)
    };
    let format = args.format.map(Format::native);
    let policies = args.policy.iter().enumerate().map(|(at, path)| {
        let file = PolicyFile { path: path.clone(), flag: PolicyFlag::Policy, format };
        (place("policy", at), file)
    });
    let allowlists = args.allowlist_config.iter().enumerate().map(|(at, path)| {
        let flag = PolicyFlag::AllowlistConfig;
        (place("allowlist_config", at), PolicyFile { path: path.clone(), flag, format: None })
    });
    // Layers are in the order of the command line, regardless of the flag.
    let mut files: Vec<(usize, PolicyFile)> = policies.chain(allowlists).collect();
    files.sort_by_key(|(place, _)| *place);
    Options {
        main: args.config.clone(),
        search: args.search,
        policies: files.into_iter().map(|(_, file)| file).collect(),
        read_only: args.read_only,
        whole_configurations: args.whole_configurations,
        ..Options::default()
    }
}

impl Format {
    pub(crate) fn native(self) -> toolward_config::Format {
        match self {
            Format::Policy => toolward_config::Format::Policy,
            Format::Allowlist => toolward_config::Format::Allowlist,
            Format::Agents => toolward_config::Format::Agents,
            Format::Plugin => toolward_config::Format::Plugin,
            Format::Toml => toolward_config::Format::Toml,
        }
    }
}

/// The warning if there is no configuration at all.
pub(crate) fn nothing_found() -> Diagnostic {
    let message = "no configuration was found, and no policy was given: everything is allowed";
    Diagnostic::warning(message).help(
        "looked at TOOLWARD_CONFIG, ./toolward.yaml and ~/.config/toolward/toolward.yaml; give a \
         file with -c or --policy",
    )
}

/// Diagnostics as the failure of a command.
pub(crate) fn invalid(diagnostics: &[Diagnostic]) -> Failure {
    let rendered: Vec<String> = diagnostics.iter().map(|finding| finding.render(true)).collect();
    let lines: Vec<String> = diagnostics.iter().map(Diagnostic::to_line).collect();
    Failure::invalid(rendered.join("\n\n")).briefly(lines.join("\n"))
}

/// A compile error with its location in the file.
fn diagnostic(loaded: &LoadedConfig, layers: &[String], error: &CompileError) -> Diagnostic {
    let file = error.layer.and_then(|layer| layers.get(layer)).map_or("", String::as_str);
    let message = error.problem.to_string();
    let at = |key: Option<&str>| match key {
        Some(key) => loaded.diagnostic_in(Level::Error, file, error.place, key, &message),
        None => loaded.diagnostic_at(Level::Error, file, error.place, &message),
    };
    let nearest = |word: &str, words: &[&str]| match suggest::nearest(word, words.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("there are {}", words.join(", ")),
    };
    match &error.problem {
        CompileProblem::Condition(problem) => {
            let help = match problem {
                ConditionError::Syntax { at, .. } => {
                    format!("the parser stopped at character {} of the condition", at + 1)
                }
                ConditionError::UnknownVariable(name) => nearest(name, &VARIABLES),
                ConditionError::UnknownFunction(name) => nearest(name, &FUNCTIONS),
                ConditionError::TooComplex => "split it into several entries".into(),
                ConditionError::NestedLoops => {
                    "its time would grow with the square of the arguments' size".into()
                }
                ConditionError::NotACondition(_) => {
                    "a condition is an expression such as `args.path.startsWith(\"/srv/\")`".into()
                }
            };
            at(Some("when")).help(help)
        }
        CompileProblem::DisplayName { original, .. } => {
            at(None).help(format!("write `{original}`"))
        }
        CompileProblem::DenyInAllowlist(_) => {
            at(None).help("to deny a tool, use an agents layer with `deny`")
        }
        _ => at(None),
    }
}
