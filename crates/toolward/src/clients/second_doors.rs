//! Servers that a client gets from other sources than its configuration file, and that bypass the gateway.

use std::path::{Path, PathBuf};

use serde_json::Value;
use toolward_config::splice::{FileFormat, SourceText};

use crate::clients::locate::Machine;
use crate::clients::table::{Base, Platform};

/// Servers of a client that its configuration file does not list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecondDoor {
    pub(crate) client: &'static str,
    pub(crate) file: PathBuf,
    pub(crate) what: &'static str,
    pub(crate) help: &'static str,
}

/// The directories that are searched for plugins are not deeper than this.
const MAX_DEPTH: usize = 6;

/// All second doors of the wanted clients. `clients` is empty for all.
pub(crate) fn second_doors(machine: &Machine, clients: &[String]) -> Vec<SecondDoor> {
    let mut doors = Vec::new();
    for settings in ["Code/User/settings.json", "Code - Insiders/User/settings.json"] {
        let Some(file) = machine.base(Base::Settings).map(|base| base.join(settings)) else {
            continue;
        };
        if discovers(&file) {
            doors.push(SecondDoor {
                client: "vscode",
                file,
                what: "`chat.mcp.discovery.enabled` imports servers of other clients",
                help: "turn it off, or wrap those clients too",
            });
        }
    }
    let mut plugins = Vec::new();
    search(&machine.home.join(".claude/plugins/cache"), ".mcp.json", MAX_DEPTH, &mut plugins);
    doors.extend(plugins.into_iter().map(|file| SecondDoor {
        client: "claude-code",
        file,
        what: "a plugin has its own servers",
        help: "disable the plugin, or add its servers to your own configuration",
    }));
    let more = std::fs::read_dir(machine.home.join(".continue/mcpServers")).into_iter().flatten();
    doors.extend(more.flatten().map(|entry| SecondDoor {
        client: "continue",
        file: entry.path(),
        what: "Continue also reads this file",
        help: "move its servers into config.yaml, and run `toolward init`",
    }));
    if machine.platform != Platform::Linux
        && let Some(base) = machine.base(Base::Settings)
    {
        let extensions =
            std::fs::read_dir(base.join("Claude/Claude Extensions")).into_iter().flatten();
        doors.extend(extensions.flatten().map(|entry| SecondDoor {
            client: "claude-desktop",
            file: entry.path(),
            what: "an extension is a server of its own",
            help: "remove the extension, and add the server to the configuration file",
        }));
    }
    doors.retain(|door| clients.is_empty() || clients.iter().any(|id| id == door.client));
    doors
}

/// Whether VS Code imports the servers of other clients.
fn discovers(settings: &Path) -> bool {
    let Ok(bytes) = std::fs::read(settings) else { return false };
    let Ok(text) = SourceText::decode(&bytes, FileFormat::Jsonc) else { return false };
    let value = text.tree().map(|tree| tree.to_json()).unwrap_or_default();
    match &value["chat.mcp.discovery.enabled"] {
        Value::Bool(enabled) => *enabled,
        Value::Object(sources) => sources.values().any(|source| *source == true),
        _ => false,
    }
}

/// Files of this name below a directory. Links are not followed.
fn search(directory: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(directory).into_iter().flatten().flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_file() && entry.file_name() == name {
            found.push(entry.path());
        } else if kind.is_dir() && depth > 0 {
            search(&entry.path(), name, depth - 1, found);
        }
    }
}
