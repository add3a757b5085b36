//! Results as text.

use std::fmt;

use super::contest::{Measured, Sample};
use super::spread::Spread;

/// A column's name, and the measured value that it shows.
pub(super) type Column = (&'static str, fn(&Sample) -> f64);

/// The results of a section.
#[derive(Default)]
pub(super) struct Table {
    title: String,
    columns: Vec<&'static str>,
    rows: Vec<(String, Vec<String>)>,
    findings: Vec<String>,
    wrong: Vec<String>,
}

impl Table {
    pub(super) fn new(title: impl Into<String>, columns: &[&'static str]) -> Table {
        Table { title: title.into(), columns: columns.to_vec(), ..Table::default() }
    }

    /// A table with a row for each contender, and the errors of each.
    pub(super) fn of(title: impl Into<String>, measured: &[Measured], columns: &[Column]) -> Table {
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let mut table = Table::new(title, &names);
        for one in measured {
            let cells = columns.iter().map(|(_, value)| one.spread(value).to_string());
            table.row(one.name, cells);
            table.wrong.extend(one.wrong());
        }
        table
    }

    pub(super) fn row(&mut self, what: &str, cells: impl IntoIterator<Item = String>) {
        self.rows.push((what.into(), cells.into_iter().collect()));
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.findings.push(note.into());
    }

    /// Adds a result next to its target.
    pub(super) fn finding(&mut self, what: &str, found: Spread, target: &str, met: bool) {
        let verdict = if met { "met" } else { "MISSED" };
        self.findings.push(format!("{what}: {found}   target {target}: {verdict}"));
    }

    /// Adds a result whose target must be met.
    pub(super) fn required(&mut self, what: &str, found: Spread, target: &str, met: bool) {
        self.finding(what, found, target, met);
        if !met {
            self.wrong.push(format!("{what}: {found} instead of {target}"));
        }
    }

    /// Whether all measured responses were correct, and all required targets met.
    pub(super) fn is_right(&self) -> bool {
        self.wrong.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<34}", self.title)?;
        self.columns.iter().try_for_each(|column| write!(f, "{column:>26}"))?;
        writeln!(f)?;
        for (what, cells) in &self.rows {
            write!(f, "  {what:<32}")?;
            cells.iter().try_for_each(|cell| write!(f, "{cell:>26}"))?;
            writeln!(f)?;
        }
        self.findings.iter().try_for_each(|finding| writeln!(f, "  {finding}"))?;
        self.wrong.iter().try_for_each(|wrong| writeln!(f, "  WRONG: {wrong}"))
    }
}
