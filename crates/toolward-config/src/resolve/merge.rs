//! Merges files into one configuration and one policy source.
//!
//! Each file contributes layers and exposures, in load order. Two files may not define the exposure of the same
//! server.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolward_policy::source::{
    ExposeSource, LayerSource, RulesSource, ServerSource, SideSource, Source,
};
use toolward_policy::testing::PolicyTest;

use crate::config::{AgentLimits, BundleSource, Config, Hook};
use crate::diagnostics::diagnostic::{Diagnostic, Findings};
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::{Mark, Span, Text};
use crate::formats::agent_names;
use crate::formats::client;
use crate::formats::policy_tests;
use crate::formats::rules;
use crate::formats::{Format, plugin, toml_list};
use crate::io::Directories;
use crate::keys::check::check;
use crate::keys::secret_spans;
use crate::keys::{AGENTS, ALLOWLIST, CONFIGURATION, is_main_key};
use crate::read::node::{Map, Node, Value};
use crate::read::reader::Reader;
use crate::read::syntax::Syntax;
use crate::resolve::approvals;
use crate::resolve::builtin;
use crate::resolve::bundle_source;
use crate::resolve::guards;
use crate::resolve::loaded::{LoadFailure, LoadedConfig};
use crate::resolve::main_file;
use crate::resolve::resources;
use crate::resolve::servers;

/// How a policy file is loaded.
#[derive(Clone, Copy)]
pub(crate) struct LayerOptions {
    pub(crate) role: Role,
    pub(crate) format: Option<Format>,
    /// `--allowlist-config`.
    pub(crate) allowlist: bool,
    pub(crate) reload: bool,
}

/// The kinds of files that are accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A policy layer alone.
    Layer,
    /// A policy layer, or a whole configuration of which only the policy is read.
    Either,
}

/// Files that the main file references.
#[derive(Default)]
pub(crate) struct ReferencedFiles {
    pub(crate) policies: Vec<ReferencedPolicy>,
    pub(crate) servers_from: Vec<(String, Mark)>,
}

/// Where a policy comes from that the main file references.
pub(crate) enum PolicySource {
    File(String, Mark),
    Bundle(BundleSource),
}

/// A policy that the main file references.
pub(crate) struct ReferencedPolicy {
    pub(crate) source: PolicySource,
    /// It is evaluated and recorded, and not enforced.
    pub(crate) shadow: bool,
}

/// Help for an empty main file.
const EMPTY_MAIN: &str = "add `servers`, or pass another file with `-c`";

#[derive(Default)]
pub(crate) struct Assembly {
    pub(crate) config: Config,
    source: Source,
    tests: Vec<PolicyTest>,
    findings: Findings,
    files: Vec<PathBuf>,
    texts: Vec<(Arc<Text>, Syntax)>,
    policy_scripts: Vec<(PathBuf, Arc<[u8]>)>,
    /// The first of them is the main file.
    has_main: bool,
    /// The policy is part of a request: agents have the names that the request uses.
    inline: bool,
    agent_limits: Vec<AgentLimits>,
    /// Files of the policy that are programs.
    scripts: Vec<Hook>,
    /// Servers of whole configurations, which have one description each.
    described: HashSet<String>,
    /// Where each exposure is defined, by server; `None`: for every server.
    exposures: Vec<(Option<String>, Mark)>,
}

impl Assembly {
    /// For a policy that is part of a request.
    pub(crate) fn inline() -> Assembly {
        Assembly { inline: true, ..Assembly::default() }
    }

    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        self.findings.push(diagnostic);
    }

    pub(crate) fn watch(&mut self, path: &Path) {
        if !self.files.iter().any(|known| known == path) {
            self.files.push(path.to_owned());
        }
    }

    /// Keeps a text for later diagnostics.
    pub(crate) fn know(&mut self, text: &Arc<Text>, syntax: Syntax) {
        self.texts.push((Arc::clone(text), syntax));
    }

    /// Keeps the content of a `policy_sh` file, to compare it with the next one.
    pub(crate) fn know_script(&mut self, path: &Path, bytes: Vec<u8>) {
        self.policy_scripts.push((path.to_owned(), bytes.into()));
    }

    pub(crate) fn push_layer(&mut self, name: &str, rules: RulesSource) {
        self.source.layers.push(LayerSource { name: name.to_owned(), rules });
    }

    /// A policy file that is a program becomes a hook.
    pub(crate) fn script(&mut self, hook: Hook) {
        self.scripts.push(hook);
    }

    pub(crate) fn finish(mut self) -> Result<LoadedConfig, LoadFailure> {
        self.config.agent_limits = self.agent_limits;
        self.config.hooks.append(&mut self.scripts);
        for diagnostic in resources::check_owners(&self.config.servers) {
            self.findings.push(diagnostic);
        }
        let failed = self.findings.has_errors();
        let diagnostics = self.findings.into_list();
        match failed {
            true => {
                let config = Box::new(self.config);
                Err(LoadFailure { diagnostics, files: self.files, config })
            }
            false => Ok(LoadedConfig {
                config: self.config,
                denying_files: denying_files(&self.source),
                source: self.source,
                tests: self.tests,
                warnings: diagnostics,
                files: self.files,
                texts: self.texts,
                scripts: self.policy_scripts,
                has_main: self.has_main,
                exposures: self.exposures,
            }),
        }
    }

    /// The main file: the gateway's values and the first layers. Returns the `policies` that it
    /// lists.
    pub(crate) fn main(
        &mut self,
        text: &Arc<Text>,
        syntax: Syntax,
        directories: &Directories<'_>,
        is_client: bool,
    ) -> ReferencedFiles {
        self.has_main = true;
        let Some(root) = self.parse(text, syntax) else {
            return ReferencedFiles::default();
        };
        if matches!(root.value, Value::Null) {
            self.empty(text, EMPTY_MAIN);
            return ReferencedFiles::default();
        }
        if let Some(format) = foreign(&root, syntax) {
            let message =
                format!("{} is a policy file ({format}), not a configuration", quoted(text.name()));
            let help = "pass it with `--policy`, or list it in `policies`";
            self.report(Diagnostic::error(message).at(text, root.span).help(help));
            return ReferencedFiles::default();
        }
        let mut reader = Reader::new(text, &mut self.findings);
        let root = match is_client {
            true => client::file(&mut reader, root, directories.base),
            false => client::table(&mut reader, root, directories.base),
        };
        self.whole(text, &root);
        let mut reader = Reader::new(text, &mut self.findings);
        self.config = main_file::config(&mut reader, &root, directories);
        if self.config.builtin {
            self.source.servers.push(builtin::source());
        }
        let named = |node: &Node<'_>| {
            let mark = Mark { text: Arc::clone(text), span: node.span };
            Some((node.as_str()?.to_owned(), mark))
        };
        let files = |key: &str| {
            let list = root.get(key).map(Node::items).unwrap_or_default();
            list.iter().filter_map(named).collect()
        };
        let policies = root.get("policies").map(Node::items).unwrap_or_default();
        let policies = policies.iter().filter_map(|node| {
            let shadow = node.get("shadow").and_then(Node::as_bool).unwrap_or(false);
            let source = match bundle_source::read(&mut reader, node) {
                Some(bundle) => PolicySource::Bundle(bundle),
                None => {
                    let (path, mark) = named(node.get("file").unwrap_or(node))?;
                    PolicySource::File(path, mark)
                }
            };
            Some(ReferencedPolicy { source, shadow })
        });
        let policies: Vec<ReferencedPolicy> = policies.collect();
        let bundles = policies.iter().filter_map(|policy| match &policy.source {
            PolicySource::Bundle(bundle) => Some(bundle.clone()),
            PolicySource::File(..) => None,
        });
        self.config.bundles = bundles.collect();
        ReferencedFiles { policies, servers_from: files("servers_from") }
    }

    /// The layers of a policy file that is evaluated and recorded, and not enforced. Its tests and rate limits are not
    /// used.
    pub(crate) fn add_shadow(&mut self, shadow: Assembly) {
        self.source.shadow_layers.extend(shadow.source.layers);
        shadow.findings.into_list().into_iter().for_each(|one| self.findings.push(one));
        shadow.files.iter().for_each(|file| self.watch(file));
        self.texts.extend(shadow.texts);
    }

    /// The servers of a client's file, in addition to those of the main file.
    pub(crate) fn servers_from(
        &mut self,
        text: &Arc<Text>,
        syntax: Syntax,
        directories: &Directories<'_>,
    ) {
        let Some(root) = self.parse(text, syntax) else { return };
        let mut reader = Reader::new(text, &mut self.findings);
        let root = client::file(&mut reader, root, directories.base);
        let Some(table) = root.as_map().and_then(|map| map.entry("mcpServers")) else {
            let help = "a client's file has `mcpServers`, or `servers` as VS Code writes it";
            reader.error(root.span, "the file has no servers", help);
            return;
        };
        // Only its servers are used: policies belong in native files.
        let table = Map::of(vec![(table.0.clone(), table.1.clone())]);
        let root = Node::new(root.span, Value::Map(table));
        check(&mut reader, &root, &CONFIGURATION, "", true);
        servers::check_list(&mut reader, &root);
        let found = main_file::servers_of(&mut reader, &root, directories, &self.config.separator);
        let sources: Vec<_> = servers::listed(&root)
            .map(|(key, node)| servers::source(&mut reader, key, node))
            .collect();
        self.config.servers.extend(found);
        for mut server in sources {
            let expose = server.expose.take();
            let name = server.name.clone();
            self.add_server(server, text);
            if let Some(expose) = expose {
                let mark = Mark { text: Arc::clone(text), span: root.span };
                self.expose(Some(name), expose, mark);
            }
        }
    }

    /// A policy file: layers in any format that loads.
    pub(crate) fn layer(&mut self, text: &Arc<Text>, syntax: Syntax, given: LayerOptions) {
        let blank = text.content().trim().is_empty();
        let root = if blank { None } else { self.parse(text, syntax) };
        match root {
            Some(root) if !is_empty(&root, syntax) => self.policy(text, &root, syntax, given),
            None if !blank => {}
            _ => self.empty_layer(text, given),
        }
    }

    /// An allowlist file that is empty at start allows everything; any other empty file is an error.
    fn empty_layer(&mut self, text: &Arc<Text>, given: LayerOptions) {
        let may_be_empty = given.allowlist || given.format == Some(Format::Allowlist);
        if may_be_empty && !given.reload {
            let message =
                format!("the allowlist {} is empty: it allows every tool", quoted(text.name()));
            let help = "write `allowed_tools: []` to allow nothing";
            self.report(Diagnostic::warning(message).at(text, Span::default()).help(help));
        } else {
            let help =
                "write `allowed_tools: []` to allow nothing, `allowed_tools: [\"*\"]` to allow all";
            self.empty(text, help);
        }
    }

    /// The policy of a tree, in any format.
    pub(crate) fn policy(
        &mut self,
        text: &Arc<Text>,
        root: &Node<'_>,
        syntax: Syntax,
        given: LayerOptions,
    ) {
        let told = foreign(root, syntax);
        let format = given.format.or(told);
        let other = ["agents", "plugins", "servers", "mcpServers"];
        let is_other =
            root.get("allowed_tools").is_none() && other.iter().any(|key| root.get(key).is_some());
        if given.allowlist && (is_other || matches!(format, Some(Format::Agents | Format::Plugin)))
        {
            let message = format!("{} is not an allowlist", quoted(text.name()));
            self.report(
                Diagnostic::error(message).at(text, root.span).help("pass it with `--policy`"),
            );
            return;
        }
        match format {
            Some(Format::Plugin) => self.plugins(text, root),
            Some(Format::Toml) => {
                let list = toml_list::allowlist(&mut Reader::new(text, &mut self.findings), root);
                if let Some(list) = list {
                    self.push_layer(text.name(), RulesSource::Allowlist(list));
                }
            }
            Some(Format::Allowlist) => self.native(text, root, Format::Allowlist),
            Some(Format::Agents) => self.native(text, root, Format::Agents),
            None if given.allowlist => self.native(text, root, Format::Allowlist),
            None if given.role == Role::Either && is_whole(root) => {
                self.whole_without_files(text, root)
            }
            None | Some(Format::Policy) => self.native(text, root, Format::Policy),
        }
    }

    /// A layer in the native format, or in a foreign format that is a subset of it.
    fn native(&mut self, text: &Arc<Text>, root: &Node<'_>, format: Format) {
        let mut reader = Reader::new(text, &mut self.findings);
        if let Value::Seq(_) = root.value {
            let help = "put the list under `allowed_tools:`";
            reader.error(root.span, "the file must be a mapping, not a list", help);
            return;
        }
        let shape = match format {
            Format::Allowlist => &ALLOWLIST,
            Format::Agents => &AGENTS,
            _ => &CONFIGURATION,
        };
        check(&mut reader, root, shape, "", false);
        let Some(map) = root.as_map() else { return };
        // `{}` and `defaults` alone are rules too: without any agent.
        let only_defaults = (map.is_empty() || map.get("defaults").is_some())
            && map.iter().all(|(key, _)| key.name == "defaults" || is_wording(&key.name));
        let has_agents =
            format != Format::Allowlist && (map.get("agents").is_some() || only_defaults);
        // An inline policy has the names that its requests use, to the letter.
        let patterns = !self.inline;
        if patterns {
            agent_names::check_patterns(&mut reader, root);
        }
        agent_names::check_roles(&mut reader, root);
        let agents = has_agents.then(|| rules::agents(&mut reader, root, patterns));
        let allowlist = rules::allowlist(&mut reader, root);
        if agents.is_none() && allowlist.is_none() && !reader.findings.has_errors() {
            let (message, help) = match format {
                Format::Allowlist => ("the file has no `allowed_tools`", "add the list"),
                _ => ("the file contains no policy", "add `agents` or `allowed_tools`"),
            };
            reader.error(root.span, message, help);
        }
        self.tests.extend(policy_tests::read(&mut reader, root));
        self.agent_limits.extend(guards::agent_limits(&mut reader, root));
        self.refusals(root);
        let (agents, allowlist) =
            (agents.map(RulesSource::Agents), allowlist.map(RulesSource::Allowlist));
        self.push_rules(text, agents, allowlist);
    }

    /// The policy part of a whole configuration: servers, agents with rules, the allowlist.
    fn whole(&mut self, text: &Arc<Text>, root: &Node<'_>) {
        let mut reader = Reader::new(text, &mut self.findings);
        check(&mut reader, root, &CONFIGURATION, "", true);
        servers::check_list(&mut reader, root);
        let servers: Vec<_> = servers::listed(root)
            .map(|(key, node)| {
                let at = node.as_map().and_then(|map| map.entry("expose")).map(|(key, _)| key.span);
                (servers::source(&mut reader, key, node), at)
            })
            .collect();
        // A file with only `defaults` is a layer with agents too: with none.
        let nothing_else = root.as_map().is_some_and(|map| {
            let speaks =
                map.is_empty() || map.get("defaults").is_some() || map.get("agents").is_some();
            speaks
                && map.iter().all(|(key, node)| {
                    let no_agents = key.name == "agents" && node.entries().next().is_none();
                    key.name == "defaults" || no_agents || is_wording(&key.name)
                })
        });
        let patterns = !self.inline;
        if patterns {
            agent_names::check_patterns(&mut reader, root);
        }
        agent_names::check_roles(&mut reader, root);
        let has_agents = nothing_else || rules::has_rules(root);
        let agents = has_agents.then(|| rules::agents(&mut reader, root, patterns));
        let allowlist = rules::allowlist(&mut reader, root);
        self.tests.extend(policy_tests::read(&mut reader, root));
        self.agent_limits.extend(guards::agent_limits(&mut reader, root));
        self.refusals(root);
        self.source.approvers = approvals::approvers(root);
        for (mut server, at) in servers {
            let expose = server.expose.take();
            let name = server.name.clone();
            self.add_server(server, text);
            if let (Some(expose), Some(span)) = (expose, at) {
                self.expose(Some(name), expose, Mark { text: Arc::clone(text), span });
            }
        }
        self.push_rules(
            text,
            agents.map(RulesSource::Agents),
            allowlist.map(RulesSource::Allowlist),
        );
    }

    /// Merges the wording of refusals. The first file with a message wins.
    fn refusals(&mut self, root: &Node<'_>) {
        self.source.refusals.everyone.add(rules::wording(root));
        self.source.refusals.agents.extend(rules::wordings(root));
    }

    /// A whole configuration without a directory: it cannot reference other files.
    fn whole_without_files(&mut self, text: &Arc<Text>, root: &Node<'_>) {
        self.whole(text, root);
        if let Some((key, _)) = root.as_map().and_then(|map| map.entry("policies")) {
            let message = "`policies` is not allowed in an inline policy";
            let mut reader = Reader::new(text, &mut self.findings);
            reader.error(key.span, message, "pass the files with `--policy`");
        }
        if root.get("read_only").and_then(Node::as_bool) == Some(true) {
            self.config.read_only = true;
        }
    }

    fn push_rules(
        &mut self,
        text: &Text,
        agents: Option<RulesSource>,
        allowlist: Option<RulesSource>,
    ) {
        for rules in agents.into_iter().chain(allowlist) {
            self.push_layer(text.name(), rules);
        }
    }

    /// Adds a server, or completes one that a plugin file has exposed before.
    fn add_server(&mut self, server: ServerSource, text: &Text) {
        if !self.described.insert(server.name.clone()) {
            let message = format!(
                "the server {} of {} is also described in another file",
                quoted(&server.name),
                quoted(text.name())
            );
            self.report(Diagnostic::error(message).help("describe each server in one file"));
            return;
        }
        match self.source.servers.iter_mut().find(|known| known.name == server.name) {
            Some(known) => *known = ServerSource { expose: known.expose.take(), ..server },
            None => self.source.servers.push(server),
        }
    }

    fn plugins(&mut self, text: &Arc<Text>, root: &Node<'_>) {
        let exposed = plugin::exposures(&mut Reader::new(text, &mut self.findings), root);
        for plugin::PluginExposure { server, expose, at } in exposed {
            self.expose(server, expose, Mark { text: Arc::clone(text), span: at });
        }
    }

    /// Takes an exposure, unless the server (or every server) already has one.
    fn expose(&mut self, server: Option<String>, expose: ExposeSource, mark: Mark) {
        let earlier = self.exposures.iter().find(|(other, _)| match (other, &server) {
            (Some(other), Some(server)) => other == server,
            _ => true,
        });
        if let Some((other, first)) = earlier {
            let message = match server.as_ref().or(other.as_ref()) {
                Some(server) => {
                    format!("the exposure of the server {} is defined twice", quoted(server))
                }
                None => "the exposure of all servers is defined twice".to_owned(),
            };
            let diagnostic = Diagnostic::error(message)
                .at_mark(mark)
                .related(first.clone(), "first defined here")
                .help("keep one exposure per server; `_global` applies to all of them");
            self.report(diagnostic);
            return;
        }
        self.exposures.push((server.clone(), mark));
        match server {
            None => self.source.expose_everywhere = Some(expose),
            Some(name) => match self.source.servers.iter_mut().find(|known| known.name == name) {
                Some(known) => known.expose = Some(expose),
                None => {
                    let mut known = ServerSource::new(name);
                    known.expose = Some(expose);
                    self.source.servers.push(known);
                }
            },
        }
    }

    fn parse<'t>(&mut self, text: &'t Arc<Text>, syntax: Syntax) -> Option<Node<'t>> {
        self.know(text, syntax);
        match secret_spans::parse(text, syntax) {
            Ok(root) => Some(root),
            Err(findings) => {
                findings.into_iter().for_each(|finding| self.findings.push(finding));
                None
            }
        }
    }

    fn empty(&mut self, text: &Arc<Text>, help: &str) {
        let message = format!("the file {} is empty", quoted(text.name()));
        self.report(Diagnostic::error(message).at(text, Span::default()).help(help));
    }
}

/// The files whose agents have `deny` rules.
fn denying_files(source: &Source) -> Vec<String> {
    let denies = |layer: &&LayerSource| match &layer.rules {
        RulesSource::Agents(layer) => {
            let agents = layer.agents.iter().map(|(_, agent)| &agent.deny);
            let roles = layer.roles.iter().map(|(_, role)| &role.deny);
            agents.chain(roles).any(denies_something)
        }
        _ => false,
    };
    source.layers.iter().filter(denies).map(|layer| layer.name.clone()).collect()
}

fn denies_something(deny: &SideSource) -> bool {
    let mut lists = deny.tools.iter().chain(&deny.prompts).chain(&deny.resources);
    !deny.servers.is_empty() || lists.any(|list| !list.entries.is_empty())
}

/// Whether a file contains only blank lines and comments.
fn is_empty(root: &Node<'_>, syntax: Syntax) -> bool {
    match &root.value {
        Value::Null => root.span.start == root.span.end,
        Value::Map(map) => syntax == Syntax::Toml && map.is_empty(),
        _ => false,
    }
}

/// Detects a foreign format by content.
fn foreign(root: &Node<'_>, syntax: Syntax) -> Option<Format> {
    if syntax == Syntax::Toml {
        Some(Format::Toml)
    } else if root.get("plugins").is_some() {
        Some(Format::Plugin)
    } else {
        None
    }
}

/// Whether a key only affects the wording of refusals, so that it does not make a file a policy.
fn is_wording(key: &str) -> bool {
    matches!(key, "message" | "explain_to_agent")
}

/// Whether a file is a whole configuration, and not a policy layer alone.
pub fn is_configuration(path: &Path, content: &str) -> bool {
    let syntax = Syntax::of_file(path, content);
    syntax.parse(content).is_ok_and(|root| foreign(&root, syntax).is_none() && is_whole(&root))
}

/// Whether a tree is a whole configuration, because it has a key that only the main file may have.
fn is_whole(root: &Node<'_>) -> bool {
    root.entries().any(|(key, _)| is_main_key(&key.name))
}
