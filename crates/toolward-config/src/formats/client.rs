//! Configuration files of MCP clients, read as servers.
//!
//! The formats are similar, but key names differ: VS Code has `servers` and `inputs`, Windsurf
//! `serverUrl`, Cline `timeout` in seconds. A client's tree is rewritten into native keys before it
//! is checked, so the rest of the crate sees one form. Keys that only matter to the client are
//! dropped. Keys that restrict tools are reported, because nothing enforces them here.

mod names;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::suggest::nearest;
use crate::diagnostics::text::Span;
use crate::formats::client::names::ServerNames;
use crate::keys::server_keys;
use crate::keys::value_syntax::{CLIENT_DEFAULT, is_variable};
use crate::read::node::{Key, Map, Node, Value};
use crate::read::reader::Reader;

/// Names of files that clients read.
const FILE_NAMES: [&str; 8] = [
    ".mcp.json",
    "mcp.json",
    "mcp_config.json",
    "mcp-config.json",
    "claude_desktop_config.json",
    ".claude.json",
    "cline_mcp_settings.json",
    "mcp_settings.json",
];
/// Directories in which clients keep the file of a project.
const PROJECT_DIRECTORIES: [&str; 8] =
    [".vscode", ".cursor", ".kiro", ".windsurf", ".roo", ".warp", ".junie", ".github"];
/// Keys of an entry by which a client restricts tools.
const RESTRICTIONS: [&str; 5] =
    ["disabledTools", "excludeTools", "includeTools", "tools", "enabledTools"];
/// Larger numbers cannot be seconds: some clients write milliseconds.
const MAX_SECONDS: i64 = 3600;

/// Whether a file is a client's, by its name.
pub(crate) fn is_client_file(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| FILE_NAMES.contains(&name))
}

/// Whether a file is a client's by its content: `servers` with the `inputs` of VS Code, which the project's
/// own files do not have.
pub(crate) fn is_client_content(root: &Node<'_>) -> bool {
    root.get("servers").is_some() && root.get("inputs").is_some()
}

/// The directory that paths of a client's file are relative to: the project's, if it is a project's file.
pub(crate) fn base(path: &Path) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new(""));
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match PROJECT_DIRECTORIES.contains(&name) {
        true => folder.parent().unwrap_or(Path::new("")).to_owned(),
        false => folder.to_owned(),
    }
}

/// A client's file rewritten into native keys: its servers, and native keys that were added to it.
pub(crate) fn file<'t>(reader: &mut Reader<'_>, root: Node<'t>, base: &Path) -> Node<'t> {
    let Value::Map(map) = root.value else { return root };
    let mut entries = Vec::new();
    for (key, node) in map.into_entries() {
        match key.name.as_ref() {
            "servers" | "mcpServers" => {
                let key = Key { name: Cow::Borrowed("mcpServers"), ..key };
                entries.push((key, servers(reader, node, base, true)));
            }
            // Values for which VS Code prompts the user; only using one is an error.
            "inputs" => {}
            name if is_native(name) => entries.push((key, node)),
            _ => {}
        }
    }
    Node::new(root.span, Value::Map(Map::of(entries)))
}

/// `mcpServers` of a native file, in which unknown keys are still an error.
pub(crate) fn table<'t>(reader: &mut Reader<'_>, root: Node<'t>, base: &Path) -> Node<'t> {
    let Value::Map(map) = root.value else { return root };
    let entries = map.into_entries().into_iter().map(|(key, node)| match key.name.as_ref() {
        "mcpServers" => (key, servers(reader, node, base, false)),
        _ => (key, node),
    });
    Node::new(root.span, Value::Map(Map::of(entries.collect())))
}

/// Whether a key is native or a typo of a native key: dropping it could drop a policy.
fn is_native(name: &str) -> bool {
    let known = || crate::keys::top_keys();
    known().any(|key| key == name) || nearest(name, known()).is_some()
}

fn servers<'t>(reader: &mut Reader<'_>, node: Node<'t>, base: &Path, tolerant: bool) -> Node<'t> {
    let Value::Map(map) = node.value else { return node };
    let mut names = ServerNames::of(&map);
    let mut entries = Vec::new();
    for (key, entry) in map.into_entries() {
        let key = names.legal(reader, key);
        entries.push((key, server(reader, entry, base, tolerant)));
    }
    Node::new(node.span, Value::Map(Map::of(entries)))
}

fn server<'t>(reader: &mut Reader<'_>, node: Node<'t>, base: &Path, tolerant: bool) -> Node<'t> {
    let Value::Map(map) = node.value else { return node };
    let mut entries = Vec::new();
    for (key, value) in map.into_entries() {
        match (key.name.as_ref(), value) {
            // Cline nests keys that other clients write side by side.
            ("transport", Node { value: Value::Map(nested), .. }) => {
                entries.extend(nested.into_entries());
            }
            (_, value) => entries.push((key, value)),
        }
    }
    let has_url = entries.iter().any(|(key, _)| key.name == "url");
    let mut kept = Vec::new();
    for (key, value) in entries {
        let value = substituted(value, base);
        match (key.name.as_ref(), &value.value) {
            ("serverUrl" | "httpUrl", _) if !has_url => {
                kept.push((Key { name: Cow::Borrowed("url"), ..key }, value));
            }
            ("timeout", Value::Int(number)) => kept.push((key, seconds(*number, value.span))),
            ("type", Value::Str(kind)) => {
                if let Some(kind) = transport(kind) {
                    kept.push((key, Node::new(value.span, Value::Str(kind.into()))));
                }
            }
            ("env", Value::Map(_)) => kept.push((key, variables(value))),
            // The client logs in interactively; a gateway has its own settings for that.
            ("oauth", _) if value.get("token_url").is_none() => {
                let message = "`oauth` of a client is not used";
                let help = "add `login: {}` to the server, and log in with `toolward login`";
                reader.warning(key.span, message, help);
            }
            (name, _) if is_restriction(name) && is_everything(&value) => {}
            (name, _) if is_restriction(name) => {
                let message = format!("{} of the client is not enforced here", quoted(name));
                reader.warning(key.span, message, "deny the tools in `agents`, or list `expose`");
            }
            (name, _) if !tolerant || is_server_key(name) => kept.push((key, value)),
            // All other keys belong to the client, unless they are typos of native keys.
            (name, _) if nearest(name, server_keys()).is_some() => kept.push((key, value)),
            _ => {}
        }
    }
    one_line(&mut kept);
    Node::new(node.span, Value::Map(Map::of(kept)))
}

fn is_server_key(name: &str) -> bool {
    server_keys().any(|key| key == name)
}

fn is_restriction(name: &str) -> bool {
    RESTRICTIONS.contains(&name) && !is_server_key(name)
}

/// `["*"]`, or an empty list: no restriction.
fn is_everything(node: &Node<'_>) -> bool {
    node.items().iter().all(|item| item.as_str() == Some("*"))
}

fn seconds<'t>(number: i64, span: Span) -> Node<'t> {
    let unit = if number > MAX_SECONDS { "ms" } else { "s" };
    Node::new(span, Value::Str(format!("{number}{unit}").into()))
}

/// The `type` of a server as in `.mcp.json`; `None` if its keys imply it.
fn transport(kind: &str) -> Option<String> {
    Some(match kind {
        "local" => "stdio".into(),
        "streamableHttp" | "streamable_http" => "streamable-http".into(),
        "remote" => return None,
        other => other.into(),
    })
}

/// Clients write numbers and booleans as they are; `null` unsets a variable.
fn variables(node: Node<'_>) -> Node<'_> {
    let Value::Map(map) = node.value else { return node };
    let mut entries = Vec::new();
    for (key, value) in map.into_entries() {
        let written = match &value.value {
            Value::Null => continue,
            Value::Bool(flag) => flag.to_string(),
            Value::Int(number) => number.to_string(),
            Value::UInt(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            _ => {
                entries.push((key, value));
                continue;
            }
        };
        entries.push((key, Node::new(value.span, Value::Str(written.into()))));
    }
    Node::new(node.span, Value::Map(Map::of(entries)))
}

/// Some clients write the whole command line as `command`. A path may contain spaces, a bare name
/// may not.
fn one_line(entries: &mut Vec<(Key<'_>, Node<'_>)>) {
    if entries.iter().any(|(key, _)| key.name == "args") {
        return;
    }
    let command = entries.iter().position(|(key, _)| key.name == "command");
    let Some((key, node)) = command.and_then(|at| entries.get(at)) else { return };
    let (span, key_span) = (node.span, key.span);
    let words: Vec<String> =
        node.as_str().unwrap_or_default().split_whitespace().map(String::from).collect();
    let Some((first, rest)) = words.split_first() else { return };
    if rest.is_empty() || first.contains(['/', '\\']) {
        return;
    }
    let text = |word: &String| Node::new(span, Value::Str(Cow::Owned(word.clone())));
    let args = Node::new(span, Value::Seq(rest.iter().map(text).collect()));
    let command = text(first);
    for (key, node) in entries.iter_mut().filter(|(key, _)| key.name == "command") {
        key.span = key_span;
        *node = command.clone();
    }
    entries.push((Key { span: key_span, name: Cow::Borrowed("args") }, args));
}

/// Replaces editor variables for directories.
fn substituted<'t>(node: Node<'t>, base: &Path) -> Node<'t> {
    let Node { span, value } = node;
    let value = match value {
        Value::Str(text) if text.contains("${") => {
            // For a file without a directory, `parent` is the empty path.
            let base = if base.as_os_str().is_empty() { Path::new(".") } else { base };
            let workspace = std::path::absolute(base).unwrap_or_else(|_| base.to_owned());
            let workspace = workspace.to_string_lossy();
            let name = Path::new(&*workspace).file_name().unwrap_or_default().to_string_lossy();
            let text = text
                .replace("${workspaceFolderBasename}", &name)
                .replace("${workspaceFolder}", &workspace)
                .replace("${userHome}", "${HOME}")
                .replace("${pathSeparator}", "/")
                .replace("${/}", "/");
            Value::Str(with_defaults(&text).into())
        }
        Value::Seq(items) => {
            Value::Seq(items.into_iter().map(|item| substituted(item, base)).collect())
        }
        Value::Map(map) => {
            let entries = map.into_entries().into_iter();
            Value::Map(Map::of(entries.map(|(key, node)| (key, substituted(node, base))).collect()))
        }
        other => other,
    };
    Node::new(span, value)
}

/// `${NAME:-VALUE}` of Claude Code, marked as such: native files do not support it.
fn with_defaults(text: &str) -> String {
    let mut marked = String::new();
    let mut rest = text;
    while let Some((before, reference)) = rest.split_once("${") {
        marked.push_str(before);
        marked.push_str("${");
        rest = match reference.split_once(":-") {
            Some((name, after)) if is_variable(name) => {
                marked.push_str(name);
                marked.push(CLIENT_DEFAULT);
                after
            }
            _ => reference,
        };
    }
    marked.push_str(rest);
    marked
}
