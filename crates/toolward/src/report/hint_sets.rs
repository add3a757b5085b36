//! Servers whose tools have no annotations, although there is a reviewed set of hints for them.

use toolward_config::{Diagnostic, sanitize};
use toolward_policy::{Annotations, Policy, ToolSet};

use crate::load::CheckedPolicy;

/// A warning for each such server, if hints matter to the policy.
pub(crate) fn findings(input: &CheckedPolicy<'_>) -> Vec<Diagnostic> {
    if !reads_hints(input.policy) {
        return Vec::new();
    }
    let servers = input.loaded.config.servers.iter();
    let unset = servers.filter(|server| server.hints.set.is_none() && !server.hints.is_stated);
    let findings = unset.filter_map(|server| {
        let set = server.hints.available?;
        let is_annotated = match input.catalogue.tools(&server.name) {
            Some(tools) => has_annotations(tools),
            // The version that was reviewed is the best guess.
            None => set.is_annotated,
        };
        if is_annotated {
            return None;
        }
        let name = sanitize(&server.name);
        let message = format!(
            "the tools of `{name}` have no annotations, so all of them count as destructive"
        );
        let help =
            "add `hints_from: builtin` to the server: there is a reviewed set of hints for it";
        Some(Diagnostic::warning(message).help(help).at_mark(server.mark.clone()))
    });
    findings.collect()
}

/// Whether a rule selects tools by their hints, or only read-only tools may be used.
fn reads_hints(policy: &Policy) -> bool {
    let rules = policy.rules();
    let mut rules = rules.iter().filter_map(|(layer, rule)| policy.rule_at(*layer, *rule));
    policy.is_read_only() || rules.any(|rule| rule.selector.starts_with("hint:"))
}

fn has_annotations(tools: &ToolSet) -> bool {
    tools.tools().iter().any(|tool| tool.annotations() != Annotations::default())
}
