//! Hints that the operator sets in the configuration, by tool name or pattern.

use crate::hints::Hints;
use crate::selector::Glob;
use crate::source::Case;

/// Hints that the operator sets for a server's tools; they replace the server's claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StatedHints {
    by_tool: Vec<(Glob, bool, Vec<String>)>,
}

impl StatedHints {
    pub(crate) fn new(stated: &[(String, Vec<String>)]) -> StatedHints {
        let by_tool = stated
            .iter()
            .map(|(tool, tags)| {
                let exact = !crate::fnmatch::is_pattern(tool);
                (Glob::new(tool, Case::Sensitive), exact, tags.clone())
            })
            .collect();
        StatedHints { by_tool }
    }

    pub(crate) fn globs(&self) -> impl Iterator<Item = &Glob> {
        self.by_tool.iter().map(|(glob, _, _)| glob)
    }

    pub(crate) fn tags(&self) -> impl Iterator<Item = &String> {
        self.by_tool.iter().flat_map(|(_, _, tags)| tags)
    }

    /// The hints set for this tool: an exact key takes precedence over patterns; several patterns
    /// are merged.
    pub(crate) fn of(&self, tool: &str) -> Option<Hints> {
        let exact = self.by_tool.iter().find(|(key, exact, _)| *exact && key.equals(tool));
        if let Some((_, _, tags)) = exact {
            return Some(complete(tags));
        }
        let mut stated = self.by_tool.iter().filter(|(key, _, _)| key.matches(tool)).peekable();
        stated.peek()?;
        Some(complete(&stated.flat_map(|(_, _, tags)| tags.iter().cloned()).collect::<Vec<_>>()))
    }
}

/// Adds defaults for unset hints. If settings contradict each other, the stricter one wins.
fn complete(stated: &[String]) -> Hints {
    let says = |tag: &str| stated.iter().any(|own| own == tag);
    let mut tags: Vec<&str> = stated
        .iter()
        .map(String::as_str)
        .filter(|tag| {
            !matches!(
                *tag,
                "read-only" | "destructive" | "non-destructive" | "open-world" | "closed-world"
            )
        })
        .collect();
    if says("destructive") || !(says("read-only") || says("non-destructive")) {
        tags.push("destructive");
    } else if says("read-only") {
        tags.push("read-only");
    }
    let closed = says("closed-world") && !says("open-world");
    tags.push(if closed { "closed-world" } else { "open-world" });
    Hints::new(tags)
}
