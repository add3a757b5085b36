//! Resolves `state` and `drain`.

use std::path::PathBuf;

use crate::config::{Config, Drain, Secret, SharedState};
use crate::io::Directories;
use crate::keys::value_syntax;
use crate::read::node::Node;
use crate::read::reader::Reader;
use crate::resolve::values::duration;

/// More keys are never necessary: a rotation needs two.
const MAX_KEYS: usize = 8;

/// `state`: the directory, and what gateways share.
pub(crate) fn state(
    reader: &mut Reader<'_>,
    root: &Node<'_>,
    directories: &Directories<'_>,
) -> (Option<PathBuf>, SharedState) {
    let Some(node) = root.get("state") else { return Default::default() };
    if let Some(written) = node.as_str() {
        return (Some(directories.path(written)), SharedState::default());
    }
    let directory = node.get("dir").and_then(Node::as_str).map(|path| directories.path(path));
    let written = node.get("keys").map(Node::items).unwrap_or_default();
    if let Some(keys) = node.get("keys")
        && (written.is_empty() || written.len() > MAX_KEYS)
    {
        let message = format!("`keys` must have 1 to {MAX_KEYS} entries");
        reader.error(keys.span, message, "the first one seals, all of them open");
    }
    let keys = written.iter().filter_map(|node| Secret::read(reader, node, directories)).collect();
    let store = node.get("store").and_then(|node| Secret::read(reader, node, directories));
    (directory, SharedState { keys, store })
}

/// Reports a store whose content only one gateway could read.
pub(crate) fn check_store(reader: &mut Reader<'_>, root: &Node<'_>, config: &Config) {
    let stores = ["approvals", "state"].map(|key| root.get(key).and_then(|node| node.get("store")));
    let Some(store) = stores.into_iter().flatten().next() else { return };
    if config.shared.keys.is_empty() {
        let message = "gateways that share a store need the same keys";
        reader.error(
            store.span,
            message,
            "add `state.keys`, with the same secrets at every gateway",
        );
    }
}

/// `drain` of the main file.
pub(crate) fn drain(root: &Node<'_>) -> Drain {
    let otherwise = Drain::default();
    let Some(node) = root.get("drain") else { return otherwise };
    let delay = node.get("delay").and_then(Node::as_str);
    Drain {
        delay: delay.and_then(|text| value_syntax::duration(text).ok()),
        wait: duration(node, "wait", otherwise.wait),
    }
}
