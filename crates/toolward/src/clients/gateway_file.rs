//! The gateway's own configuration, extended by the servers and agents of clients.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolward_config::splice::{Edit, FileFormat, SourceText};
use toolward_config::{Diagnostic, Disk, Files, Level, Loader, Options, ProcessEnv};

use crate::clients::replace_file;

/// The existing configuration, and additions to it.
#[derive(Debug)]
pub(crate) struct GatewayFile {
    pub(crate) path: PathBuf,
    /// Where a new configuration keeps state and audit log.
    state: PathBuf,
    /// `None`: the file is created.
    before: Option<(Vec<u8>, SourceText)>,
    /// Its servers, with those that are added.
    servers: Vec<(String, Value)>,
    /// Its agents, with those that are added; `None`: it has no agents, and gets none.
    agents: Option<Vec<String>>,
    new_servers: Vec<(String, Value)>,
    new_agents: Vec<String>,
}

/// The bytes of the file before and after.
#[derive(Debug)]
pub(crate) struct Change {
    /// `None`: the file is created.
    pub(crate) before: Option<Vec<u8>>,
    pub(crate) after: Vec<u8>,
}

/// A name that servers cannot have.
const RESERVED: &str = "toolward";

/// The keys that decide which server it is.
const CONNECTING: [&str; 8] =
    ["command", "args", "env", "inherit_env", "cwd", "url", "headers", "transport"];

/// The keys that can deny something to all agents.
const RESTRICTING: [&str; 8] = [
    "allowed_tools",
    "allowed_prompts",
    "allowed_resources",
    "policies",
    "read_only",
    "hooks",
    "limits",
    "pins",
];

impl GatewayFile {
    pub(crate) fn load(path: &Path, home: &Path) -> Result<GatewayFile, String> {
        let before = match path.symlink_metadata() {
            Err(_) => None,
            Ok(_) => {
                let bytes = replace_file::read(path).map_err(|why| why.to_string())?;
                let format = match path.extension().and_then(|ending| ending.to_str()) {
                    Some("json") => FileFormat::Jsonc,
                    Some("toml") => FileFormat::Toml,
                    _ => FileFormat::Yaml,
                };
                let text = SourceText::decode(&bytes, format).map_err(|why| why.to_string())?;
                Some((bytes, text))
            }
        };
        let tree = match &before {
            None => json!({"agents": {}}),
            Some((_, text)) => text.tree().map_err(|why| why.to_string())?.to_json(),
        };
        let servers = tree["servers"].as_object().or(tree["mcpServers"].as_object());
        let servers = servers.into_iter().flatten();
        let servers = servers.map(|(name, server)| (name.clone(), server.clone())).collect();
        let agents = tree["agents"].as_object().map(|agents| agents.keys().cloned().collect());
        let (new_servers, new_agents) = Default::default();
        let (path, state) = (path.into(), home.join(".local/state/toolward"));
        Ok(GatewayFile { path, state, before, servers, agents, new_servers, new_agents })
    }

    pub(crate) fn is_new(&self) -> bool {
        self.before.is_none()
    }

    /// The servers of the configuration.
    pub(crate) fn has_server(&self, name: &str) -> bool {
        self.servers.iter().any(|(known, _)| known == name)
    }

    /// The name of a server with this definition: an existing one, or a new one that resembles `wanted`.
    pub(crate) fn server_name(&self, wanted: &str, definition: &Value) -> String {
        let base = legal(wanted);
        // Settings for the policy may have been added to it.
        let is_same =
            |known: &Value| CONNECTING.iter().all(|key| known.get(key) == definition.get(key));
        let same = |(name, known): &&(String, Value)| is_same(known) && name.starts_with(&base);
        if let Some((name, _)) = self.servers.iter().find(same) {
            return name.clone();
        }
        let names = (2..).map(|number| format!("{base}-{number}"));
        let mut names = std::iter::once(base.clone()).chain(names);
        names.find(|name| !self.has_server(name)).unwrap_or(base)
    }

    /// Whether the rules of an agent are those that `init` writes, which allow everything.
    pub(crate) fn observes(&self, agent: &str) -> bool {
        self.tree().is_some_and(|tree| tree["agents"][agent] == allow_all() && !restricts(&tree))
    }

    /// Whether nothing is denied to an agent, in the configuration with its additions.
    pub(crate) fn denies_nothing(&self, agent: &str) -> bool {
        let is_new = self.new_agents.iter().any(|new| new == agent) || !self.has_agents();
        match self.tree() {
            None => self.is_new(),
            Some(tree) if is_new => !restricts(&tree),
            Some(_) => self.observes(agent),
        }
    }

    fn tree(&self) -> Option<Value> {
        self.before.as_ref().and_then(|(_, text)| Some(text.tree().ok()?.to_json()))
    }

    /// Whether the configuration distinguishes agents.
    pub(crate) fn has_agents(&self) -> bool {
        self.agents.is_some()
    }

    /// Adds a server, and the agent that uses it, unless they exist.
    pub(crate) fn add(&mut self, name: &str, definition: &Value, agent: &str) {
        if !self.has_server(name) {
            self.servers.push((name.into(), definition.clone()));
            self.new_servers.push((name.into(), definition.clone()));
        }
        if let Some(agents) = &mut self.agents
            && !agents.iter().any(|known| known == agent)
        {
            agents.push(agent.into());
            self.new_agents.push(agent.into());
        }
    }

    /// The change, if anything is added. The result is loaded to be sure that it is valid.
    pub(crate) fn changed(&self) -> Result<Option<Change>, String> {
        if self.new_servers.is_empty() && self.new_agents.is_empty() {
            return Ok(None);
        }
        let after = match &self.before {
            None => self.rendered().into_bytes(),
            Some((_, text)) => self.extended(text)?.encode(),
        };
        self.validate(&after)?;
        let before = self.before.as_ref().map(|(bytes, _)| bytes.clone());
        Ok(Some(Change { before, after }))
    }

    fn extended(&self, text: &SourceText) -> Result<SourceText, String> {
        let tree = text.tree().map_err(|why| why.to_string())?;
        let table = if tree.get("mcpServers").is_some() { "mcpServers" } else { "servers" };
        let servers = self.new_servers.iter().map(|(name, definition)| {
            Edit::Set(vec![table.into(), name.clone()], definition.clone())
        });
        let agents = self
            .new_agents
            .iter()
            .map(|name| Edit::Set(vec!["agents".into(), name.clone()], allow_all()));
        let edits: Vec<Edit> = servers.chain(agents).collect();
        text.edit(&[], &edits).map_err(|why| why.to_string())
    }

    /// A new file, with comments about the next steps.
    fn rendered(&self) -> String {
        let mut text = String::from(HEADER);
        let path = |path: &Path| Value::from(path.to_string_lossy()).to_string();
        let _ = writeln!(text, "state: {}", path(&self.state));
        let _ = writeln!(text, "audit: {{ dir: {} }}\n", path(&self.state.join("audit")));
        text.push_str("servers:\n");
        for (name, definition) in &self.new_servers {
            let _ = writeln!(text, "  {}:", key(name));
            for (field, value) in definition.as_object().into_iter().flatten() {
                let _ = writeln!(text, "    {field}: {value}");
            }
        }
        text.push_str("\nagents:\n");
        for name in &self.new_agents {
            let _ = writeln!(text, "  {}: {{ allow: {{ servers: [\"*\"] }} }}", key(name));
        }
        text
    }

    /// Whether the configuration is valid as it is.
    pub(crate) fn validate_now(&self) -> Result<(), String> {
        self.before.as_ref().map_or(Ok(()), |(bytes, _)| self.validate(bytes))
    }

    fn validate(&self, after: &[u8]) -> Result<(), String> {
        load(&self.path, after).map_err(|found| {
            found.iter().map(|one| one.render(false)).collect::<Vec<_>>().join("\n")
        })
    }
}

/// Whether a configuration can have this server. The reason does not name a place in it, because the user's text is
/// in a client's file.
pub(crate) fn check_server(definition: &Value) -> Result<(), String> {
    let alone = json!({"servers": {"server": definition}}).to_string();
    load(Path::new("server.json"), alone.as_bytes()).map_err(|found| {
        let errors = found.iter().filter(|one| one.level == Level::Error);
        errors.map(|one| one.message()).collect::<Vec<_>>().join("; ")
    })
}

fn load(path: &Path, content: &[u8]) -> Result<(), Vec<Diagnostic>> {
    let options = Options { main: Some(path.into()), ..Options::default() };
    let loader = Loader { files: Overlay { path, content }, env: ProcessEnv };
    loader.load(&options).map(|_| ()).map_err(|failed| failed.diagnostics)
}

const HEADER: &str = "\
# Written by `toolward init`. `toolward uninit` restores your clients' files.
#
# This policy denies nothing: agents may use every tool, and every call is in the audit log.
#   toolward tail              shows calls as they happen
#   toolward ls --as AGENT     shows what an agent may do
#   toolward doctor            shows what is protected
#   toolward learn --as AGENT  proposes rules for the tools that an agent has used
#
# To make an agent read-only, replace its line with this one:
#   AGENT: { allow: { servers: [\"*\"], tools: { \"*\": [\"hint:read-only\"] } } }
#
# `inherit_env: true` passes on the environment that the client gives to a server, as before: `env` and headers stay
# in the client's file. `hints_from: builtin` uses reviewed hints (read-only, destructive, …) for the tools of a well-known
# server, instead of those that it sends.

";

/// Whether a configuration may deny something to all agents.
fn restricts(tree: &Value) -> bool {
    RESTRICTING.iter().any(|key| tree.get(key).is_some())
}

/// The rules of a new agent.
fn allow_all() -> Value {
    json!({"allow": {"servers": ["*"]}})
}

fn key(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    match begins
        && name.chars().all(is_plain)
        && !words.contains(&name.to_ascii_lowercase().as_str())
    {
        true => name.into(),
        false => Value::from(name).to_string(),
    }
}

/// A name that a server may have.
fn legal(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let mut legal: String = name.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    while legal.contains("__") {
        legal = legal.replace("__", "_");
    }
    match legal.trim_matches(['-', '_', '.']) {
        "" => "server".into(),
        RESERVED => format!("{RESERVED}-server"),
        legal => legal.into(),
    }
}

/// The disk with one file replaced.
#[derive(Debug)]
struct Overlay<'a> {
    path: &'a Path,
    content: &'a [u8],
}

impl Files for Overlay<'_> {
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        match path == self.path {
            true => Ok(self.content.to_vec()),
            false => Disk.read(path),
        }
    }
}
