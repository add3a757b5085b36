//! Replaces exact names by hints and patterns.

use std::collections::BTreeMap;

use toolward_config::escape_pattern;
use toolward_policy::Family;
use toolward_policy::source::Entry;

use super::current::CurrentPolicy;
use super::proposal::{Line, Proposal};
use super::seen::Target;

/// The minimum number of tools that a hint or a pattern replaces.
const MIN_BY_HINT: usize = 2;
const MIN_BY_PATTERN: usize = 3;

impl Proposal {
    /// The servers whose lines could be generalized.
    pub(super) fn generalizable(&self) -> Vec<String> {
        let tools = self.lists.keys().filter(|(family, _)| *family == Family::Tools);
        tools.map(|(_, server)| server.clone()).collect()
    }

    /// Generalizes the lines of a server: tools that only read by their hint, others by a common prefix. Returns the
    /// lines as they were, if any changed.
    pub(super) fn generalize(
        &mut self,
        current: &CurrentPolicy<'_>,
        server: &str,
    ) -> Option<Vec<Line>> {
        let lines = self.lists.get_mut(&(Family::Tools, server.to_string()))?;
        let before = lines.clone();
        let rest = by_hint(current, std::mem::take(lines));
        *lines = by_prefix(current, rest);
        (lines.len() != before.len()).then_some(before)
    }

    /// Puts back the lines of a server.
    pub(super) fn restore(&mut self, server: &str, lines: Vec<Line>) {
        self.lists.insert((Family::Tools, server.to_string()), lines);
    }
}

/// Whether a line is the name of one tool and nothing else.
fn single(line: &Line) -> Option<&Target> {
    match line.targets.as_slice() {
        [target] if line.is_plain() && !line.is_new && target.action.is_none() => Some(target),
        _ => None,
    }
}

fn by_hint(current: &CurrentPolicy<'_>, lines: Vec<Line>) -> Vec<Line> {
    let hints = |line: &Line| {
        let target = single(line)?;
        current.hints(&target.server, &target.name).filter(|hints| hints.contains("read-only"))
    };
    let (reading, mut others): (Vec<Line>, Vec<Line>) =
        lines.into_iter().partition(|line| hints(line).is_some());
    if reading.len() < MIN_BY_HINT {
        return restored(reading, others);
    }
    let closed = reading.iter().filter_map(hints).all(|hints| hints.contains("closed-world"));
    let selector = if closed { "hint:read-only+closed-world" } else { "hint:read-only" };
    others.insert(0, joined(selector.into(), reading));
    others
}

fn by_prefix(current: &CurrentPolicy<'_>, lines: Vec<Line>) -> Vec<Line> {
    let mut groups: BTreeMap<String, Vec<Line>> = BTreeMap::new();
    let mut others = Vec::new();
    for line in lines {
        let harmless = |target: &&Target| {
            let hints = current.hints(&target.server, &target.name);
            hints.is_some_and(|hints| !hints.contains("destructive"))
        };
        match single(&line).filter(harmless).and_then(|target| prefix(&target.name)) {
            Some(prefix) => groups.entry(prefix.into()).or_default().push(line),
            None => others.push(line),
        }
    }
    for (prefix, group) in groups {
        let server = group.first().and_then(single).map(|target| target.server.clone());
        let covers_more =
            server.is_some_and(|server| covers_destructive(current, &server, &prefix));
        match group.len() >= MIN_BY_PATTERN && !covers_more {
            true => others.push(joined(format!("{}*", escape_pattern(&prefix)), group)),
            false => others.extend(group),
        }
    }
    others.sort_by(|one, other| one.targets.first().cmp(&other.targets.first()));
    others
}

/// The verb of a name, with its separator: `create_` of `create_issue`.
fn prefix(name: &str) -> Option<&str> {
    let end = name.find(['_', '-'])?;
    name.get(..=end).filter(|prefix| prefix.len() > 1)
}

/// Whether a known tool with this prefix is destructive.
fn covers_destructive(current: &CurrentPolicy<'_>, server: &str, prefix: &str) -> bool {
    let tools = current.input.catalogue.tools(server).map(|tools| tools.tools());
    tools.into_iter().flatten().any(|tool| {
        tool.name().starts_with(prefix)
            && current.input.policy.hints(server, tool).contains("destructive")
    })
}

fn joined(selector: String, lines: Vec<Line>) -> Line {
    let mut line = Line::new(Entry::new(selector));
    for one in lines {
        for target in &one.targets {
            line.cover(target, &one.uses, one.attention.clone());
        }
    }
    line
}

/// All lines in their order.
fn restored(mut some: Vec<Line>, others: Vec<Line>) -> Vec<Line> {
    some.extend(others);
    some.sort_by(|one, other| one.targets.first().cmp(&other.targets.first()));
    some
}
