//! Typed values of a validated tree, with a default if the key is missing or was reported.

use std::time::Duration;

use crate::formats::rules::strings;
use crate::keys::value_syntax;
use crate::read::node::Node;

pub(super) fn text(node: &Node<'_>, key: &str) -> Option<String> {
    node.get(key).and_then(Node::as_str).map(str::to_owned)
}

pub(super) fn list(node: &Node<'_>, key: &str) -> Vec<String> {
    node.get(key).map(strings).unwrap_or_default()
}

pub(super) fn flag(node: &Node<'_>, key: &str, otherwise: bool) -> bool {
    node.get(key).and_then(Node::as_bool).unwrap_or(otherwise)
}

pub(super) fn duration(node: &Node<'_>, key: &str, otherwise: Duration) -> Duration {
    node.get(key)
        .and_then(Node::as_str)
        .and_then(|text| value_syntax::duration(text).ok())
        .unwrap_or(otherwise)
}

pub(super) fn size(node: &Node<'_>, key: &str, otherwise: u64) -> u64 {
    let read = |node: &Node<'_>| match node.as_int() {
        Some(bytes) => u64::try_from(bytes).ok(),
        None => value_syntax::size(node.as_str()?).ok(),
    };
    node.get(key).and_then(read).unwrap_or(otherwise)
}

/// A value, or the values of a list.
pub(super) fn one_or_many<'n, 't>(node: &'n Node<'t>) -> impl Iterator<Item = &'n Node<'t>> {
    let one = node.items().is_empty().then_some(node);
    one.into_iter().chain(node.items())
}
