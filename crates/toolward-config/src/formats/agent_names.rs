//! Names of agents and roles: patterns, and references from agents to roles.

use std::collections::{HashMap, HashSet};

use toolward_policy::common_name;

use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::suggest::nearest;
use crate::diagnostics::text::Span;
use crate::formats::expose::is_pattern;
use crate::read::node::Node;
use crate::read::reader::Reader;

/// Keys that identify one agent, and so cannot belong to a pattern.
const CREDENTIALS: [&str; 4] = ["tokens", "claims", "uid", "certificates"];

/// Checks agents whose names are patterns: no name may match two of them, and a credential identifies one
/// agent.
pub(crate) fn check_patterns(reader: &mut Reader<'_>, root: &Node<'_>) {
    let mut patterns: Vec<(&str, Span)> = Vec::new();
    for (key, node) in root.get("agents").into_iter().flat_map(Node::entries) {
        if !is_pattern(&key.name) {
            continue;
        }
        for credential in CREDENTIALS {
            if let Some((at, _)) = node.as_map().and_then(|map| map.entry(credential)) {
                let message = format!(
                    "{} is a pattern, and {} identifies a single agent",
                    quoted(&key.name),
                    quoted(&at.name)
                );
                let help = "give it to an agent by name; `identity.jwt.agent_claim` names agents \
                            that a pattern covers";
                reader.error(at.span, message, help);
            }
        }
        let overlap = patterns
            .iter()
            .find_map(|(other, span)| Some((*other, *span, common_name(other, &key.name)?)));
        if let Some((other, span, name)) = overlap {
            let message = format!(
                "an agent named {} would match both {} and {}",
                quoted(&name),
                quoted(other),
                quoted(&key.name)
            );
            let diagnostic = Diagnostic::error(message)
                .related(reader.mark(span), "the other pattern")
                .help("make the patterns distinct, or write out the names that both match");
            reader.report(key.span, diagnostic);
        }
        patterns.push((&key.name, key.span));
    }
}

/// Checks that agents have roles that exist, once each, and that each role is used.
pub(crate) fn check_roles(reader: &mut Reader<'_>, root: &Node<'_>) {
    let roles = root.get("roles").into_iter().flat_map(Node::entries);
    let roles: HashMap<&str, Span> = roles.map(|(key, _)| (&*key.name, key.span)).collect();
    let mut used: HashSet<&str> = HashSet::new();
    for (agent, node) in root.get("agents").into_iter().flat_map(Node::entries) {
        let mut own: HashSet<&str> = HashSet::new();
        for item in node.get("roles").map(Node::items).unwrap_or_default() {
            let Some(name) = item.as_str() else { continue };
            if !roles.contains_key(name) {
                let message = format!("this file has no role named {}", quoted(name));
                let help = match nearest(name, roles.keys().copied()) {
                    Some(near) => format!("did you mean {}?", quoted(near)),
                    None => "define it under `roles` of this file".into(),
                };
                reader.error(item.span, message, &help);
            } else if !own.insert(name) {
                let message =
                    format!("{} has the role {} twice", quoted(&agent.name), quoted(name));
                reader.error(item.span, message, "remove one");
            }
            used.insert(name);
        }
    }
    let mut unused: Vec<_> = roles.iter().filter(|(name, _)| !used.contains(*name)).collect();
    unused.sort_by_key(|(_, span)| span.start);
    for (name, span) in unused {
        let message = format!("no agent of this file has the role {}", quoted(name));
        reader.warning(*span, message, "add it to `roles` of an agent, or remove it");
    }
}
