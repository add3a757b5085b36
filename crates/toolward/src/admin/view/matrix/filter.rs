//! Which rows and columns are shown. Filters are part of the URL, so that a filtered matrix can be linked.

use std::collections::BTreeSet;

use toolward_config::sanitize;
use toolward_wire::list::ListKind;

use super::folds::Folds;
use super::group::Group;
use super::table::MatrixTable;
use super::verdict::{self, MatrixCell};
use crate::admin::Query;
use crate::admin::query::encoded;
use crate::admin::view::words::{kind_of, singular};

/// The query parameters of filters.
const FIELDS: [&str; 7] = ["server", "kind", "agent", "verdict", "hint", "q", "changed"];
const VERDICTS: [&str; 5] = ["allow", "depends", "ask", "deny", "quarantined"];

/// The rows and columns that are shown.
pub(super) struct MatrixFilter {
    servers: Vec<String>,
    kinds: Vec<ListKind>,
    /// The columns that are shown.
    pub(super) columns: Vec<usize>,
    verdicts: Vec<u8>,
    hints: Vec<String>,
    /// Words that a name must contain, in lower case.
    words: Vec<String>,
    by_agent: bool,
    /// Only entries with a cell that the last reload changed.
    pub(super) changed: bool,
    pub(super) folds: Folds,
}

/// One value that can be filtered by.
pub(super) struct Choice<'a> {
    pub(super) value: &'a str,
    pub(super) chosen: bool,
}

/// The position of a row in the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    pub(super) group: usize,
    /// `None`: the row of the group itself.
    pub(super) entry: Option<usize>,
}

/// The rows that are shown.
pub(super) struct Lines {
    pub(super) lines: Vec<At>,
    /// How many entries of each group match the filters, also if it is collapsed; `None`: the whole group is left
    /// out.
    pub(super) by_group: Vec<Option<usize>>,
}

impl Lines {
    /// How many entries of a kind match the filters.
    pub(super) fn of_kind(&self, table: &MatrixTable, kind: ListKind) -> usize {
        let groups = table.groups.iter().zip(&self.by_group);
        groups.filter(|(group, _)| group.kind == kind).filter_map(|(_, left)| *left).sum()
    }

    /// How many entries of a group match the filters.
    pub(super) fn left(&self, group: usize) -> usize {
        self.by_group.get(group).copied().flatten().unwrap_or(0)
    }
}

impl MatrixFilter {
    pub(super) fn read(query: &Query, table: &MatrixTable) -> MatrixFilter {
        let all = |name: &'static str| query.all(name).filter(|value| !value.is_empty());
        // An empty name selects unnamed callers.
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
        MatrixFilter {
            servers: all("server").map(String::from).collect(),
            kinds: all("kind").filter_map(kind_of).collect(),
            columns,
            verdicts: verdicts.collect(),
            hints: all("hint").map(String::from).collect(),
            words: text.split_whitespace().map(String::from).collect(),
            by_agent,
            changed: query.word("changed").is_some(),
            folds: Folds::read(query),
        }
    }

    /// Whether the filter excludes anything.
    pub(super) fn is_some(&self) -> bool {
        let MatrixFilter { servers, kinds, by_agent, .. } = self;
        !servers.is_empty() || !kinds.is_empty() || *by_agent || self.is_about_entries()
    }

    /// Whether a group without matching entries is left out too.
    fn is_about_entries(&self) -> bool {
        let MatrixFilter { verdicts, hints, words, changed, .. } = self;
        !verdicts.is_empty() || !hints.is_empty() || !words.is_empty() || *changed
    }

    /// A search shows its matches also in collapsed groups.
    pub(super) fn can_fold(&self) -> bool {
        self.words.is_empty()
    }

    pub(super) fn is_folded(&self, group: &Group) -> bool {
        self.can_fold() && self.folds.contains(&group.fold)
    }

    fn takes_group(&self, group: &Group) -> bool {
        (self.servers.is_empty() || self.servers.contains(&group.server))
            && (self.kinds.is_empty() || self.kinds.contains(&group.kind))
    }

    /// The rows that match. A group without matching entries is left out, unless the filters do not concern
    /// entries.
    pub(super) fn lines(&self, table: &MatrixTable) -> Lines {
        let (mut lines, mut by_group) = (Vec::new(), Vec::new());
        for (group, of) in table.groups.iter().enumerate() {
            if !self.takes_group(of) {
                by_group.push(None);
                continue;
            }
            let wanted = (0..of.lines.len()).filter(|entry| self.takes(of, *entry));
            let wanted: Vec<usize> = wanted.collect();
            if self.is_about_entries() && wanted.is_empty() {
                by_group.push(None);
                continue;
            }
            by_group.push(Some(wanted.len()));
            lines.push(At { group, entry: None });
            if !self.is_folded(of) {
                lines.extend(wanted.into_iter().map(|entry| At { group, entry: Some(entry) }));
            }
        }
        Lines { lines, by_group }
    }

    fn takes(&self, group: &Group, entry: usize) -> bool {
        let Some(line) = group.lines.get(entry) else { return false };
        let cells = group.cells(entry);
        let cell = |column: &usize| cells.get(*column);
        let any =
            |wanted: &dyn Fn(&MatrixCell) -> bool| self.columns.iter().filter_map(cell).any(wanted);
        let hint = |wanted: &String| line.hints.contains(wanted);
        let word = |wanted: &String| line.searched.contains(wanted.as_str());
        (self.verdicts.is_empty() || any(&|cell| self.verdicts.contains(&cell.verdict)))
            && (!self.changed || any(&|cell| cell.before.is_some()))
            && (self.hints.is_empty() || self.hints.iter().any(hint))
            && self.words.iter().all(word)
    }
}

pub(super) fn servers<'a>(table: &'a MatrixTable, query: &Query) -> Vec<Choice<'a>> {
    let mut servers: Vec<&str> = table.groups.iter().map(|group| group.server.as_str()).collect();
    // The groups of a server follow each other.
    servers.dedup();
    choices(servers.into_iter(), "server", query)
}

/// The kinds that occur in the table.
pub(super) fn kinds<'a>(table: &MatrixTable, query: &Query) -> Vec<Choice<'a>> {
    let there = |kind: &ListKind| table.groups.iter().any(|group| group.kind == *kind);
    choices(ListKind::ALL.into_iter().filter(there).map(singular), "kind", query)
}

pub(super) fn agents<'a>(table: &'a MatrixTable, query: &Query) -> Vec<Choice<'a>> {
    choices(table.agents.iter().map(|agent| agent.as_deref().unwrap_or("")), "agent", query)
}

/// The verdicts that occur in the table, and whether they are chosen.
pub(super) fn verdicts<'a>(table: &MatrixTable, query: &Query) -> Vec<Choice<'a>> {
    let mut there = [false; VERDICTS.len()];
    for group in &table.groups {
        for cell in (0..group.lines.len()).flat_map(|entry| group.cells(entry)) {
            if let Some(there) = there.get_mut(usize::from(cell.verdict)) {
                *there = true;
            }
        }
    }
    let choices = choices(VERDICTS.into_iter(), "verdict", query).into_iter().zip(there);
    choices.filter(|(choice, there)| *there || choice.chosen).map(|(choice, _)| choice).collect()
}

/// The hints that occur in the table.
pub(super) fn hints<'a>(table: &'a MatrixTable, query: &Query) -> Vec<Choice<'a>> {
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

/// Whether a value was chosen. The form contains the sanitized value if it differs.
fn is_among(chosen: &[&str], value: &str) -> bool {
    chosen.iter().any(|chosen| *chosen == value || *chosen == sanitize(value))
}

/// The filters as a query string, without collapsed groups.
pub(super) fn address(query: &Query) -> String {
    address_without(query, "")
}

/// The same without one of the fields.
pub(super) fn address_without(query: &Query, left_out: &str) -> String {
    let mut pairs = Vec::new();
    for field in FIELDS.into_iter().filter(|field| *field != left_out) {
        let values = query.all(field).filter(|value| field == "agent" || !value.is_empty());
        pairs.extend(values.map(|value| format!("{field}={}", encoded(value))));
    }
    pairs.join("&")
}

// The order of the words is that of the bytes.
const _: () = assert!(verdict::ALLOW == 0 && verdict::DEPENDS == 1 && verdict::ASK == 2);
