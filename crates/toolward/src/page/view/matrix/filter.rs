//! Which lines and columns of the table are shown. Filters stand in the address, so that what is seen
//! can be linked.

use std::collections::BTreeSet;

use toolward_config::neutral::neutralise;

use super::table::{self, Table};
use crate::page::Query;
use crate::page::query::encoded;

/// The fields of the address that filter.
const FIELDS: [&str; 5] = ["server", "agent", "verdict", "hint", "q"];
const VERDICTS: [&str; 4] = ["allow", "depends", "ask", "deny"];

/// What is left in.
pub(super) struct Filter {
    servers: Vec<String>,
    /// The columns that are shown.
    pub(super) columns: Vec<usize>,
    verdicts: Vec<u8>,
    hints: Vec<String>,
    /// Words that a name has, in lower case.
    words: Vec<String>,
    by_agent: bool,
}

/// One thing that can be filtered by.
pub(super) struct Choice<'a> {
    pub(super) value: &'a str,
    pub(super) chosen: bool,
}

/// Where a line stands in the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    pub(super) group: usize,
    /// `None`: the headline of the server.
    pub(super) tool: Option<usize>,
}

impl Filter {
    pub(super) fn read(query: &Query, table: &Table) -> Filter {
        let all = |name: &'static str| query.all(name).filter(|value| !value.is_empty());
        // Callers without a name are asked for by an empty one.
        let agents: Vec<&str> = query.all("agent").collect();
        let wanted = |agent: &Option<String>| is_among(&agents, agent.as_deref().unwrap_or(""));
        let mut columns: Vec<usize> = (0..table.agents.len())
            .filter(|column| table.agents.get(*column).is_some_and(wanted))
            .collect();
        let by_agent = !columns.is_empty();
        if !by_agent {
            columns = (0..table.agents.len()).collect();
        }
        let verdict = |word: &str| VERDICTS.iter().position(|verdict| *verdict == word);
        let verdicts = all("verdict").filter_map(verdict).filter_map(|at| u8::try_from(at).ok());
        let text = query.get("q").unwrap_or_default().to_lowercase();
        Filter {
            servers: all("server").map(String::from).collect(),
            columns,
            verdicts: verdicts.collect(),
            hints: all("hint").map(String::from).collect(),
            words: text.split_whitespace().map(String::from).collect(),
            by_agent,
        }
    }

    /// Whether anything is left out.
    pub(super) fn is_some(&self) -> bool {
        let Filter { servers, verdicts, hints, words, by_agent, .. } = self;
        let any = !servers.is_empty() || !verdicts.is_empty();
        any || !hints.is_empty() || !words.is_empty() || *by_agent
    }

    /// The lines that are left. A server of which nothing is left is left out with its headline,
    /// unless nothing was asked of its tools.
    pub(super) fn lines(&self, table: &Table) -> Vec<At> {
        let mut lines = Vec::new();
        let of_tools =
            !self.verdicts.is_empty() || !self.hints.is_empty() || !self.words.is_empty();
        for (group, of) in table.groups.iter().enumerate() {
            if !self.servers.is_empty() && !self.servers.contains(&of.server) {
                continue;
            }
            let headline = lines.len();
            lines.push(At { group, tool: None });
            for (tool, line) in of.lines.iter().enumerate() {
                let hint = |wanted: &String| line.hints.contains(wanted);
                let word = |wanted: &String| line.searched.contains(wanted.as_str());
                let verdicts = of.verdicts(tool);
                let verdict = |column: &usize| {
                    verdicts.get(*column).is_some_and(|verdict| self.verdicts.contains(verdict))
                };
                if (self.verdicts.is_empty() || self.columns.iter().any(verdict))
                    && (self.hints.is_empty() || self.hints.iter().any(hint))
                    && self.words.iter().all(word)
                {
                    lines.push(At { group, tool: Some(tool) });
                }
            }
            if of_tools && lines.len() == headline + 1 {
                lines.pop();
            }
        }
        lines
    }
}

pub(super) fn servers<'a>(table: &'a Table, query: &Query) -> Vec<Choice<'a>> {
    choices(table.groups.iter().map(|group| group.server.as_str()), "server", query)
}

pub(super) fn agents<'a>(table: &'a Table, query: &Query) -> Vec<Choice<'a>> {
    choices(table.agents.iter().map(|agent| agent.as_deref().unwrap_or("")), "agent", query)
}

pub(super) fn verdicts<'a>(query: &Query) -> Vec<Choice<'a>> {
    choices(VERDICTS.into_iter(), "verdict", query)
}

/// The hints that some tool has.
pub(super) fn hints<'a>(table: &'a Table, query: &Query) -> Vec<Choice<'a>> {
    let lines = table.groups.iter().flat_map(|group| &group.lines);
    let hints: BTreeSet<&str> =
        lines.flat_map(|line| line.hints.iter().map(String::as_str)).collect();
    choices(hints.into_iter(), "hint", query)
}

fn choices<'a>(
    values: impl Iterator<Item = &'a str>,
    field: &str,
    query: &Query,
) -> Vec<Choice<'a>> {
    let chosen: Vec<&str> = query.all(field).collect();
    values.map(|value| Choice { value, chosen: is_among(&chosen, value) }).collect()
}

/// Whether a value was chosen. The form has it as it is shown, where that is something else.
fn is_among(chosen: &[&str], value: &str) -> bool {
    chosen.iter().any(|chosen| *chosen == value || *chosen == neutralise(value))
}

/// The filters as they stand in an address.
pub(super) fn address(query: &Query) -> String {
    let mut pairs = Vec::new();
    for field in FIELDS {
        pairs.extend(query.all(field).map(|value| format!("{field}={}", encoded(value))));
    }
    pairs.join("&")
}

// The order of the words is that of the bytes.
const _: () = assert!(table::ALLOW == 0 && table::DEPENDS == 1 && table::ASK == 2);
