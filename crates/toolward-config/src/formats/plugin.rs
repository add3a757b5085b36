//! Plugin files of another system: `tool_manager` lists become exposures.
//!
//! Any other enabled plugin is an error, because its restrictions would not be enforced.

use toolward_policy::source::ExposeSource;

use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::Span;
use crate::formats::expose::{ExposeList, exposure};
use crate::keys::check::check;
use crate::keys::{PLUGIN_FILE, TOOL_MANAGER};
use crate::read::node::{Node, Value};
use crate::read::reader::Reader;

/// The supported plugin.
const HANDLER: &str = "tool_manager";

/// The name that matches every server.
const EVERY_SERVER: &str = "_global";

/// One exposure of the file.
pub(crate) struct PluginExposure {
    /// `None`: for every server.
    pub(crate) server: Option<String>,
    pub(crate) expose: ExposeSource,
    pub(crate) at: Span,
}

pub(crate) fn exposures(reader: &mut Reader<'_>, root: &Node<'_>) -> Vec<PluginExposure> {
    check(reader, root, &PLUGIN_FILE, "", true);
    for key in ["proxy", "logging"] {
        if let Some((key, _)) = root.as_map().and_then(|map| map.entry(key)) {
            let message = format!("{} is ignored", quoted(&key.name));
            reader.warning(key.span, message, "only `plugins` of such a file is loaded as policy");
        }
    }
    let mut exposed = Vec::new();
    let sections = root.get("plugins").into_iter().flat_map(Node::entries);
    for (section, servers) in sections {
        for (server, entries) in servers.entries() {
            for entry in entries.items() {
                let known = section.name == "middleware";
                let Some(expose) = plugin(reader, entry, known) else {
                    continue;
                };
                let server = (server.name != EVERY_SERVER).then(|| server.name.to_string());
                exposed.push(PluginExposure { server, expose, at: entry.span });
            }
        }
    }
    if exposed.is_empty() && !reader.findings.has_errors() {
        let help = "add an enabled entry with `handler: tool_manager`";
        reader.warning(root.span, "the file restricts nothing", help);
    }
    exposed
}

/// The exposure of one entry, unless it is disabled or unsupported.
fn plugin(reader: &mut Reader<'_>, entry: &Node<'_>, known_section: bool) -> Option<ExposeSource> {
    let handler = entry.get("handler")?;
    let name = handler.as_str()?;
    let known = known_section && name == HANDLER;
    let config = entry.get("config");
    let nothing = Node::new(entry.span, Value::Map(Default::default()));
    if known {
        check(reader, config.unwrap_or(&nothing), &TOOL_MANAGER, "config", true);
    }
    if !enabled(reader, entry, config) {
        let message = format!("the plugin {} is disabled and skipped", quoted(name));
        reader.warning(handler.span, message, "remove `enabled: false` to use it");
        return None;
    }
    if !known {
        let message = format!("the plugin {} is not supported", quoted(name));
        let help = match name == HANDLER {
            true => "`tool_manager` belongs under `plugins.middleware`",
            false => {
                "only `tool_manager` is; disable the plugin with `enabled: false`, or remove it"
            }
        };
        reader.error(handler.span, message, help);
        return None;
    }
    config?.get("tools").map(|tools| exposure(reader, tools, &ExposeList::FOREIGN_TOOLS))
}

/// `enabled` is accepted on the entry and in its `config`; the two must not conflict.
fn enabled(reader: &mut Reader<'_>, entry: &Node<'_>, config: Option<&Node<'_>>) -> bool {
    let inner = config.and_then(|config| config.get("enabled"));
    let outer = entry.get("enabled");
    match (outer.and_then(Node::as_bool), inner.and_then(Node::as_bool)) {
        (Some(one), Some(other)) if one != other => {
            let at = inner.map_or(entry.span, |node| node.span);
            reader.error(
                at,
                "`enabled` is set twice, with different values",
                "keep one of the two",
            );
            true
        }
        (one, other) => one.or(other).unwrap_or(true),
    }
}
