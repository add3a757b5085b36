//! `expose` lists: the tools a server offers, with checks that keep renames unambiguous.

use std::collections::HashMap;

use toolward_policy::source::{ExposeEntry, ExposeSource};

use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::Span;
use crate::read::node::Node;
use crate::read::reader::Reader;

/// An `expose` list, or the `tools` of another system's plugin (`literal`: names, no patterns).
pub(crate) fn exposure(reader: &mut Reader<'_>, list: &Node<'_>, literal: bool) -> ExposeSource {
    let mut entries = Vec::new();
    let mut renames = Vec::new();
    let mut tools: HashMap<String, Span> = HashMap::new();
    for item in list.items() {
        let tool = item.get("tool").unwrap_or(item);
        let Some(name) = tool.as_str() else { continue };
        if !literal && name.starts_with("hint:") {
            let message = format!("{} is taken as a name: `expose` knows no hints", quoted(name));
            reader.warning(tool.span, message, "use names and patterns here, and hints in rules");
        }
        if let Some(first) = tools.insert(name.to_owned(), tool.span) {
            let message = format!("the tool {} is exposed twice", quoted(name));
            let first = reader.mark(first);
            reader.report(
                tool.span,
                Diagnostic::error(message)
                    .label("given again here")
                    .related(first, "given first here")
                    .help("keep one entry for each tool"),
            );
        }
        let display = item.get("display_name");
        if let Some((node, display)) = display.and_then(|node| Some((node, node.as_str()?))) {
            renames.push((node.span, name.to_owned(), display.to_owned()));
        }
        entries.push(ExposeEntry {
            tool: name.to_owned(),
            display_name: display.and_then(Node::as_str).map(str::to_owned),
            display_description: item
                .get("display_description")
                .and_then(Node::as_str)
                .map(str::to_owned),
            place: reader.place(item.span),
        });
    }
    check_renames(reader, &renames, &tools, literal);
    ExposeSource { entries, literal }
}

fn check_renames(
    reader: &mut Reader<'_>,
    renames: &[(Span, String, String)],
    tools: &HashMap<String, Span>,
    literal: bool,
) {
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for (span, tool, display) in renames {
        // An empty name was reported by the shape check.
        if tool.is_empty() || display.is_empty() {
            continue;
        }
        let shown = quoted(display);
        if !literal && is_pattern(tool) {
            let message = format!("the pattern {} cannot have a display name", quoted(tool));
            reader.error(*span, message, "name each tool that is renamed in an entry of its own");
        } else if tool == display {
            let message = format!("the tool {shown} is renamed to itself");
            reader.error(*span, message, "leave `display_name` out");
        } else if let Some(other) = tools.get(display) {
            let message =
                format!("{} is renamed to {shown}, which is another entry's tool", quoted(tool));
            let other = reader.mark(*other);
            reader.report(
                *span,
                Diagnostic::error(message)
                    .related(other, "this tool has the name")
                    .help("choose a display name that no tool of the list has"),
            );
        }
        if let Some(first) = seen.insert(display, *span) {
            let first = reader.mark(first);
            reader.report(
                *span,
                Diagnostic::error(format!("the display name {shown} is given twice"))
                    .label("given again here")
                    .related(first, "given first here")
                    .help("clients could not tell the two tools apart"),
            );
        }
    }
}

pub(crate) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}
