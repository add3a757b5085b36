//! Differences of two versions of an entry, for people, with values that may be secrets masked.

use toolward_config::node::Node;
use toolward_config::splice::{SourceText, Step};
use toolward_gateway::audit::redact::Redact;

/// Keys whose values are masked, whatever they are.
const MASKED: [&str; 7] =
    ["env", "envs", "environment", "headers", "http_headers", "oauth", "requestInit"];

/// The entry's text with values masked.
pub(crate) fn masked(text: &SourceText, path: &[Step]) -> String {
    let redact = Redact::default();
    let is_secret = |at: &[String], node: &Node<'_>| {
        let in_masked = at.iter().any(|key| MASKED.contains(&key.as_str()));
        let shown =
            |text: &str| text.contains('?') && text.contains("://") || redact.text(text) != text;
        in_masked
            || is_argument(at) && node.as_str().is_some_and(looks_private)
            || node.as_str().is_some_and(shown)
    };
    text.masked_entry(path, &is_secret).unwrap_or_default()
}

/// Whether a value is an argument of the original command.
fn is_argument(at: &[String]) -> bool {
    matches!(at, [list, _] if list == "args" || list == "command")
}

/// Whether an argument is long and without structure, like a key: a command line has no names that would
/// identify secrets.
fn looks_private(argument: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '=' | '+');
    argument.len() >= 20
        && argument.chars().all(is_word)
        && argument.chars().any(|c| c.is_ascii_digit())
        && !argument.starts_with("--")
}

/// The lines that differ, marked `-` and `+`, with the lines around them.
pub(crate) fn lines(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let rest = old.len().min(new.len()) - same;
    let tail = old.iter().rev().zip(new.iter().rev()).take(rest);
    let tail = tail.take_while(|(old, new)| old == new).count();
    let marked = |sign: &str, lines: &[&str]| -> Vec<String> {
        lines.iter().map(|line| format!("{sign} {line}")).collect()
    };
    let part = |lines: &[&str], sign: &str| {
        marked(sign, lines.get(same..lines.len() - tail).unwrap_or_default())
    };
    [
        marked(" ", old.get(..same).unwrap_or_default()),
        part(&old, "-"),
        part(&new, "+"),
        marked(" ", old.get(old.len() - tail..).unwrap_or_default()),
    ]
    .concat()
}
