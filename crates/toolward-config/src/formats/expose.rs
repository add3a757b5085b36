//! `expose` and `expose_prompts`: what a server offers, with checks that keep renames unambiguous.

use std::collections::HashMap;

use toolward_policy::source::{ExposeEntry, ExposeSource};

use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::Span;
use crate::read::node::Node;
use crate::read::reader::Reader;

/// A kind of list.
pub(crate) struct ExposeList {
    key: &'static str,
    /// The kind of an entry, and the key of its name.
    noun: &'static str,
    /// Entries are names, even if they contain `*`.
    literal: bool,
}

impl ExposeList {
    pub(crate) const TOOLS: Self = ExposeList { key: "expose", noun: "tool", literal: false };
    pub(crate) const PROMPTS: Self =
        ExposeList { key: "expose_prompts", noun: "prompt", literal: false };
    /// The `tools` of a foreign plugin file.
    pub(crate) const FOREIGN_TOOLS: Self = ExposeList { key: "tools", noun: "tool", literal: true };
}

/// Reads a list.
pub(crate) fn exposure(
    reader: &mut Reader<'_>,
    list: &Node<'_>,
    kind: &ExposeList,
) -> ExposeSource {
    let &ExposeList { key, noun, literal } = kind;
    let mut entries = Vec::new();
    let mut renames = Vec::new();
    let mut originals: HashMap<String, Span> = HashMap::new();
    for item in list.items() {
        let original = item.get(noun).unwrap_or(item);
        let Some(name) = original.as_str() else { continue };
        if !literal && name.starts_with("hint:") {
            let message =
                format!("{} is treated as a name: `{key}` does not support hints", quoted(name));
            let help = "use names and patterns here, and hints in rules";
            reader.warning(original.span, message, help);
        }
        if let Some(first) = originals.insert(name.to_owned(), original.span) {
            let message = format!("the {noun} {} is exposed twice", quoted(name));
            let first = reader.mark(first);
            reader.report(
                original.span,
                Diagnostic::error(message)
                    .label("exposed again here")
                    .related(first, "first exposed here")
                    .help(format!("keep one entry per {noun}")),
            );
        }
        let display = item.get("display_name");
        if let Some((node, display)) = display.and_then(|node| Some((node, node.as_str()?))) {
            renames.push((node.span, name.to_owned(), display.to_owned()));
        }
        entries.push(ExposeEntry {
            name: name.to_owned(),
            display_name: display.and_then(Node::as_str).map(str::to_owned),
            display_description: item
                .get("display_description")
                .and_then(Node::as_str)
                .map(str::to_owned),
            place: reader.place(item.span),
        });
    }
    check_renames(reader, &renames, &originals, kind);
    ExposeSource { entries, literal }
}

fn check_renames(
    reader: &mut Reader<'_>,
    renames: &[(Span, String, String)],
    originals: &HashMap<String, Span>,
    &ExposeList { noun, literal, .. }: &ExposeList,
) {
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for (span, original, display) in renames {
        // An empty name was reported by the shape check.
        if original.is_empty() || display.is_empty() {
            continue;
        }
        let shown = quoted(display);
        if !literal && is_pattern(original) {
            let message = format!("the pattern {} cannot have a display name", quoted(original));
            let help = format!("write a separate entry for each renamed {noun}");
            reader.error(*span, message, &help);
        } else if original == display {
            let message = format!("the {noun} {shown} is renamed to itself");
            reader.error(*span, message, "remove `display_name`");
        } else if let Some(other) = originals.get(display) {
            let message = format!(
                "{} is renamed to {shown}, which is another entry's {noun}",
                quoted(original)
            );
            let other = reader.mark(*other);
            reader.report(
                *span,
                Diagnostic::error(message)
                    .related(other, format!("a {noun} already has this name"))
                    .help(format!("choose a display name that no {noun} of the list has")),
            );
        }
        if let Some(first) = seen.insert(display, *span) {
            let first = reader.mark(first);
            reader.report(
                *span,
                Diagnostic::error(format!("the display name {shown} is used twice"))
                    .label("used again here")
                    .related(first, "first used here")
                    .help(format!("clients could not distinguish the two {noun}s")),
            );
        }
    }
}

pub(crate) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}
