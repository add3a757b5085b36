//! What a server exposes, with the rules that keep renames unambiguous.

use std::collections::HashMap;

use toolward_policy::source::{ExposeEntry, ExposeSource};

use crate::diagnostic::Diagnostic;
use crate::neutral::quoted;
use crate::node::Node;
use crate::page::Page;
use crate::text::Span;

/// An `expose` list, or the `tools` of another system's plugin (`literal`: names, no patterns).
pub(crate) fn exposure(page: &mut Page<'_>, list: &Node<'_>, literal: bool) -> ExposeSource {
    let mut entries = Vec::new();
    let mut renames = Vec::new();
    let mut tools: HashMap<String, Span> = HashMap::new();
    for item in list.items() {
        let tool = item.get("tool").unwrap_or(item);
        let Some(name) = tool.as_str() else { continue };
        if !literal && name.starts_with("hint:") {
            let message = format!("{} is taken as a name: `expose` knows no hints", quoted(name));
            page.warning(tool.span, message, "use names and patterns here, and hints in rules");
        }
        if let Some(first) = tools.insert(name.to_owned(), tool.span) {
            let message = format!("the tool {} is exposed twice", quoted(name));
            let first = page.mark(first);
            page.report(
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
            place: page.place(item.span),
        });
    }
    check_renames(page, &renames, &tools, literal);
    ExposeSource { entries, literal }
}

fn check_renames(
    page: &mut Page<'_>,
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
            page.error(*span, message, "name each tool that is renamed in an entry of its own");
        } else if tool == display {
            let message = format!("the tool {shown} is renamed to itself");
            page.error(*span, message, "leave `display_name` out");
        } else if let Some(other) = tools.get(display) {
            let message =
                format!("{} is renamed to {shown}, which is another entry's tool", quoted(tool));
            let other = page.mark(*other);
            page.report(
                *span,
                Diagnostic::error(message)
                    .related(other, "this tool has the name")
                    .help("choose a display name that no tool of the list has"),
            );
        }
        if let Some(first) = seen.insert(display, *span) {
            let first = page.mark(first);
            page.report(
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
