//! Servers that a client gets from other sources than its configuration file, and that bypass the gateway.

use std::path::{Path, PathBuf};

use serde_json::Value;
use toolward_config::sanitize;
use toolward_config::splice::{FileFormat, SourceText};

use crate::clients::entry::Entry;
use crate::clients::locate::Machine;
use crate::clients::table::{Base, Platform, client};

/// Servers of a client that its configuration file does not list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecondDoor {
    pub(crate) client: &'static str,
    pub(crate) file: PathBuf,
    pub(crate) what: String,
    pub(crate) help: &'static str,
}

/// The directories that are searched for plugins are not deeper than this.
const MAX_DEPTH: usize = 6;
/// Projects of Claude Code whose files are looked at.
const MAX_PROJECTS: usize = 1000;
const SERVERS: &str = "mcpServers";

/// All second doors of the wanted clients. `clients` is empty for all.
pub(crate) fn second_doors(machine: &Machine, clients: &[String]) -> Vec<SecondDoor> {
    let mut doors = Vec::new();
    vscode(machine, &mut doors);
    claude_code(machine, &mut doors);
    claude_desktop(machine, &mut doors);
    continue_files(machine, &mut doors);
    let home = |path: &str| machine.home.join(path);
    let extensions = entries(&home(".gemini/extensions")).into_iter();
    let extensions = extensions.map(|directory| directory.join("gemini-extension.json"));
    let help = "disable the extension, or add its servers to settings.json";
    doors.extend(extensions.filter_map(|file| of_file("gemini-cli", file, "an extension", help)));
    let system = PathBuf::from("/etc/gemini-cli/settings.json");
    let help = "ask the administrator of this machine";
    doors.extend(of_file("gemini-cli", system, "the system's configuration", help));
    let help = "add its servers to settings/mcp.json, and run `toolward init`";
    let agents = entries(&home(".kiro/agents")).into_iter();
    doors.extend(agents.filter_map(|file| of_file("kiro", file, "an agent", help)));
    doors.retain(|door| clients.is_empty() || clients.iter().any(|id| id == door.client));
    doors
}

fn vscode(machine: &Machine, doors: &mut Vec<SecondDoor>) {
    let Some(base) = machine.base(Base::Settings) else { return };
    for settings in ["Code/User/settings.json", "Code - Insiders/User/settings.json"] {
        let file = base.join(settings);
        let Some(value) = read(&file) else { continue };
        if discovers(&value["chat.mcp.discovery.enabled"]) {
            doors.push(SecondDoor {
                client: "vscode",
                file: file.clone(),
                what: "`chat.mcp.discovery.enabled` imports servers of other clients".into(),
                help: "turn it off, or wrap those clients too",
            });
        }
        let old =
            if value["mcp"].is_object() { &value["mcp"]["servers"] } else { &value["mcp.servers"] };
        let names = direct(old, "vscode");
        let help = "move them to mcp.json (VS Code offers it), and run `toolward init`";
        doors.extend(door("vscode", file, "`settings.json`", &names, help));
    }
}

/// Whether VS Code imports the servers of other clients.
fn discovers(setting: &Value) -> bool {
    match setting {
        Value::Bool(enabled) => *enabled,
        Value::Object(sources) => sources.values().any(|source| *source == true),
        _ => false,
    }
}

fn claude_code(machine: &Machine, doors: &mut Vec<SecondDoor>) {
    let client = "claude-code";
    let mut plugins = Vec::new();
    search(&machine.home.join(".claude/plugins/cache"), ".mcp.json", MAX_DEPTH, &mut plugins);
    let help = "disable the plugin, or add its servers to your own configuration";
    doors.extend(plugins.into_iter().filter_map(|file| {
        let value = read(&file)?;
        // Both forms occur: with and without `mcpServers`.
        let servers = if value[SERVERS].is_object() { &value[SERVERS] } else { &value };
        door(client, file, "a plugin", &direct(servers, client), help)
    }));
    let managed = match machine.platform {
        Platform::MacOs => "/Library/Application Support/ClaudeCode/managed-mcp.json",
        _ => "/etc/claude-code/managed-mcp.json",
    };
    let help = "ask the administrator of this machine; your own servers may be ignored";
    doors.extend(of_file(client, managed.into(), "a managed configuration", help));
    // Files of projects that Claude Code knows. The one of `--project` is surveyed.
    let own = machine.base(Base::Variable("CLAUDE_CONFIG_DIR", ""));
    let Some(value) = own.and_then(|own| read(&own.join(".claude.json"))) else { return };
    let projects = value["projects"].as_object().into_iter().flatten().take(MAX_PROJECTS);
    let projects = projects.map(|(directory, _)| PathBuf::from(directory));
    let others = projects.filter(|directory| Some(directory) != machine.project.as_ref());
    let help =
        "run `toolward init --client claude-code --project DIR` with the project's directory";
    let files = others.map(|directory| directory.join(".mcp.json"));
    doors.extend(files.filter_map(|file| of_file(client, file, "a project", help)));
}

fn claude_desktop(machine: &Machine, doors: &mut Vec<SecondDoor>) {
    let Some(base) = machine.base(Base::Settings).filter(|_| machine.platform != Platform::Linux)
    else {
        return;
    };
    doors.extend(entries(&base.join("Claude/Claude Extensions")).into_iter().map(|file| {
        SecondDoor {
            client: "claude-desktop",
            file,
            what: "an extension is a server of its own".into(),
            help: "remove the extension, and add the server to the configuration file",
        }
    }));
}

fn continue_files(machine: &Machine, doors: &mut Vec<SecondDoor>) {
    let bases = [Some(machine.home.clone()), machine.project.clone()];
    let mut files: Vec<PathBuf> = bases
        .iter()
        .flatten()
        .flat_map(|base| entries(&base.join(".continue/mcpServers")))
        .collect();
    files.dedup();
    doors.extend(files.into_iter().map(|file| SecondDoor {
        client: "continue",
        file,
        what: "Continue also reads this file".into(),
        help: "move its servers into config.yaml, and run `toolward init`",
    }));
}

/// A door for the servers of a file with `mcpServers` that are not wrapped.
fn of_file(id: &'static str, file: PathBuf, owner: &str, help: &'static str) -> Option<SecondDoor> {
    let names = direct(&read(&file)?[SERVERS], id);
    door(id, file, owner, &names, help)
}

fn door(
    client: &'static str,
    file: PathBuf,
    owner: &str,
    names: &[String],
    help: &'static str,
) -> Option<SecondDoor> {
    let what = format!("{owner} has servers that are not wrapped: {}", names.join(", "));
    (!names.is_empty()).then_some(SecondDoor { client, file, what, help })
}

/// The names of servers that are not wrapped.
fn direct(servers: &Value, id: &str) -> Vec<String> {
    let Some(client) = client(id) else { return Vec::new() };
    let servers = servers.as_object().into_iter().flatten();
    let is_direct = |entry: &Value| {
        entry.is_object() && !matches!(Entry::read(entry, client.fields), Entry::Wrapped { .. })
    };
    let names = servers.filter(|(_, entry)| is_direct(entry)).map(|(name, _)| name);
    names.map(|name| sanitize(name).into_owned()).collect()
}

fn read(file: &Path) -> Option<Value> {
    let bytes = std::fs::read(file).ok()?;
    let text = SourceText::decode(&bytes, FileFormat::Jsonc).ok()?;
    Some(text.tree().ok()?.to_json())
}

/// The paths in a directory, sorted.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Files of this name below a directory. Links are not followed.
fn search(directory: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) {
    for path in entries(directory) {
        let Ok(kind) = path.symlink_metadata() else { continue };
        if kind.is_file() && path.file_name().is_some_and(|own| own == name) {
            found.push(path);
        } else if kind.is_dir() && depth > 0 {
            search(&path, name, depth - 1, found);
        }
    }
}
