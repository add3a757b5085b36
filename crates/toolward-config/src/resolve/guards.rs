//! Resolves `limits` and `hooks`.

use std::collections::HashMap;
use std::time::Duration;

use crate::config::guards::{
    AgentLimits, HOOK_START_TIMEOUT, HOOK_TIMEOUT, Hook, HookKind, Limits, OnStoreError, Rates,
    Store,
};
use crate::config::secret::Secret;
use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::{Mark, Span};
use crate::formats::expose::is_pattern;
use crate::formats::hint_names::check_selector;
use crate::formats::rules::strings;
use crate::io::{Directories, program};
use crate::keys::value_syntax::rate;
use crate::read::node::{Node, Value};
use crate::read::reader::Reader;
use crate::resolve::process::variables;
use crate::resolve::values::{duration, flag, list};

/// `limits` of the main file.
pub(crate) fn limits(
    reader: &mut Reader<'_>,
    root: &Node<'_>,
    directories: &Directories<'_>,
) -> Limits {
    let Some(node) = root.get("limits") else { return Limits::default() };
    Limits {
        store: node
            .get("store")
            .and_then(|node| store(reader, node, directories))
            .unwrap_or_default(),
        on_store_error: match node.get("on_store_error").and_then(Node::as_str) {
            Some("memory") => OnStoreError::Memory,
            _ => OnStoreError::Deny,
        },
        timeout: optional_duration(node, "timeout"),
        connect_timeout: optional_duration(node, "connect_timeout"),
        rates: rates(reader, node, true),
    }
}

fn optional_duration(node: &Node<'_>, key: &str) -> Option<Duration> {
    node.get(key).map(|_| duration(node, key, Duration::ZERO))
}

/// URL schemes of a limit store.
const STORE_SCHEMES: [&str; 6] = [
    "redis://",
    "rediss://",
    "redis-sentinel://",
    "rediss-sentinel://",
    "redis-cluster://",
    "rediss-cluster://",
];

fn store(reader: &mut Reader<'_>, node: &Node<'_>, directories: &Directories<'_>) -> Option<Store> {
    let written = node.as_str()?;
    if written == "memory" {
        return Some(Store::Memory);
    }
    let is_redis = STORE_SCHEMES.iter().any(|scheme| written.starts_with(scheme));
    if !is_redis && !written.starts_with("${") {
        let diagnostic = Diagnostic::error("this is not a store for limits").hide_marked();
        let help = "write `memory`, or `redis://HOST:PORT/DB`, or a reference to such a URL";
        reader.report(node.span, diagnostic.help(help));
        return None;
    }
    let authority = written.split("://").nth(1).unwrap_or_default();
    let credentials = authority.split(['/', '?']).next().unwrap_or_default().rsplit_once('@');
    let of_sentinels = written.split_once("sentinel_password=").map(|(_, rest)| rest);
    let passwords = credentials.map(|(credentials, _)| credentials).into_iter().chain(of_sentinels);
    if passwords.into_iter().any(|password| !password.contains("${")) {
        let message = "a password must not be in the file in plain text";
        let help = "write a reference, e.g. `redis://:${REDIS_PASSWORD}@HOST:PORT/DB`";
        reader.report(node.span, Diagnostic::error(message).help(help).hide_marked());
    }
    Secret::read(reader, node, directories).map(Store::Redis)
}

/// The rates of a `limits` mapping; `qualified`: tool patterns are written `SERVER/TOOL`.
pub(crate) fn rates(reader: &mut Reader<'_>, node: &Node<'_>, qualified: bool) -> Rates {
    let read = |node: &Node<'_>| rate(node.as_str()?).ok();
    let mut tools = Vec::new();
    for (key, value) in node.get("tools").into_iter().flat_map(Node::entries) {
        let tool = match (qualified, key.name.split_once('/')) {
            (true, Some((server, tool))) if !server.is_empty() && !tool.is_empty() => tool,
            (true, _) => {
                let message = format!("{} does not name a server", quoted(&key.name));
                reader.error(key.span, message, "write `SERVER/TOOL`; each may be a pattern");
                continue;
            }
            (false, _) => &key.name,
        };
        check_selector(reader, tool, key.span);
        tools.extend(read(value).map(|rate| (key.name.to_string(), rate)));
    }
    let one = |key: &str| node.get(key).and_then(read);
    Rates { calls: one("calls"), lists: one("lists"), refused: one("refused"), tools }
}

/// The limits of a file's agents, if any agent has limits.
pub(crate) fn agent_limits(reader: &mut Reader<'_>, root: &Node<'_>) -> Option<AgentLimits> {
    let agents: Vec<(String, Rates)> = root
        .get("agents")
        .into_iter()
        .flat_map(Node::entries)
        .map(|(key, node)| {
            let limits = node.get("limits").map(|node| rates(reader, node, true));
            (key.name.to_string(), limits.unwrap_or_default())
        })
        .collect();
    let some = agents.iter().any(|(_, rates)| !rates.is_empty());
    some.then(|| AgentLimits { file: reader.text.name().to_owned(), agents })
}

/// `hooks` of the main file. A hook that cannot run as configured is an error, because a hook that
/// never runs refuses nothing.
pub(crate) fn hooks(
    reader: &mut Reader<'_>,
    root: &Node<'_>,
    directories: &Directories<'_>,
) -> Vec<Hook> {
    let mut hooks = Vec::new();
    let mut names: HashMap<String, Mark> = HashMap::new();
    for node in root.get("hooks").map(Node::items).unwrap_or_default() {
        let Some(name) = node.get("name").filter(|name| name.as_str().is_some()) else { continue };
        let mark = reader.mark(name.span);
        if let Some(first) = names.insert(name.as_str().unwrap_or_default().into(), mark) {
            let message = format!("two hooks are named {}", quoted(name.as_str().unwrap_or("")));
            let diagnostic = Diagnostic::error(message).related(first, "first defined here");
            reader.report(name.span, diagnostic.help("the audit log identifies hooks by name"));
        }
        hooks.extend(hook(reader, node, directories));
    }
    hooks
}

fn hook(reader: &mut Reader<'_>, node: &Node<'_>, directories: &Directories<'_>) -> Option<Hook> {
    let name = node.get("name")?.as_str()?.to_owned();
    let priority = node.get("priority").and_then(Node::as_int);
    Some(Hook {
        kind: kind(reader, node, directories, &name)?,
        name,
        priority: priority.and_then(|priority| u8::try_from(priority).ok()).unwrap_or(50),
        critical: flag(node, "critical", true),
        timeout: duration(node, "timeout", HOOK_TIMEOUT),
        start_timeout: duration(node, "start_timeout", HOOK_START_TIMEOUT),
        enabled: flag(node, "enabled", true),
        arguments: flag(node, "arguments", false),
        env: variables(reader, node, directories),
        pass_env: list(node, "pass_env"),
        agents: selectors(reader, node, "agents"),
        servers: selectors(reader, node, "servers"),
        tools: selectors(reader, node, "tools"),
    })
}

fn kind(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    directories: &Directories<'_>,
    name: &str,
) -> Option<HookKind> {
    let map = node.as_map()?;
    let kinds = ["exec", "policy_sh", "http"].map(|key| map.entry(key));
    let mut given = kinds.into_iter().flatten();
    let (Some((key, value)), None) = (given.next(), given.next()) else {
        let message = format!("the hook {} must have exactly one kind", quoted(name));
        let help = "set exactly one of `exec`, `policy_sh` and `http`";
        reader.error(node.span, message, help);
        return None;
    };
    match key.name.as_ref() {
        "exec" => {
            let words = strings(value);
            let Some((command, args)) =
                words.split_first().filter(|(command, _)| !command.is_empty())
            else {
                reader.error(key.span, "`exec` is empty", "write `exec: [PROGRAM, …]`");
                return None;
            };
            for word in value.items().iter().filter(|word| holds_reference(word)) {
                let help = "set it in `env`: the program reads it from its environment";
                reader.warning(word.span, "references are not replaced in `exec`", help);
            }
            let program = program(command, directories.base);
            let persistent = flag(node, "persistent", false);
            if !persistent {
                let why = "a process per call has no separate start: set `persistent: true`";
                reader.reject_keys(node, &["start_timeout"], why);
            }
            Some(HookKind::Exec { program, args: args.to_vec(), persistent })
        }
        "policy_sh" => {
            let why = "a `policy_sh` always shares one process, gets the tool but not the arguments, \
                       and has the gateway's environment";
            reader.reject_keys(node, &["persistent", "arguments", "pass_env"], why);
            Some(HookKind::PolicySh(directories.path(value.as_str()?)))
        }
        _ => {
            let why = "an HTTP hook is not a process of the gateway";
            reader.reject_keys(node, &["persistent", "start_timeout", "env", "pass_env"], why);
            Secret::read(reader, value, directories).map(HookKind::Http)
        }
    }
}

fn holds_reference(node: &Node<'_>) -> bool {
    node.as_str().is_some_and(|text| text.contains("${"))
}

/// Selectors of a hook. An empty list is an error, because the hook would never run.
fn selectors(reader: &mut Reader<'_>, node: &Node<'_>, key: &str) -> Option<Vec<String>> {
    let list = node.get(key)?;
    if matches!(&list.value, Value::Seq(items) if items.is_empty()) {
        let message = format!("{} is empty: the hook would never run", quoted(key));
        reader.error(
            list.span,
            message,
            "leave the key out for all, or set `enabled: false` for \
            none",
        );
    }
    if key == "tools" {
        for item in list.items() {
            check_selector(reader, item.as_str().unwrap_or_default(), item.span);
        }
    }
    Some(strings(list))
}

/// Warns about limits and hooks that reference an unknown server: they would never apply.
pub(crate) fn check_servers(reader: &mut Reader<'_>, root: &Node<'_>, servers: &[&str]) {
    let mut check = |server: &str, span: Span| {
        let named = !server.is_empty() && !is_pattern(server);
        if named && !servers.is_empty() && !servers.contains(&server) {
            let message = format!("there is no server named {}", quoted(server));
            reader.warning(span, message, "it applies to no call");
        }
    };
    let agents = root.get("agents").into_iter().flat_map(Node::entries).map(|(_, agent)| agent);
    for owner in agents.chain([root]) {
        let tools = owner.get("limits").and_then(|limits| limits.get("tools"));
        for (key, _) in tools.into_iter().flat_map(Node::entries) {
            if let Some((server, _)) = key.name.split_once('/') {
                check(server, key.span);
            }
        }
    }
    for hook in root.get("hooks").map(Node::items).unwrap_or_default() {
        for server in hook.get("servers").map(Node::items).unwrap_or_default() {
            check(server.as_str().unwrap_or_default(), server.span);
        }
    }
}
