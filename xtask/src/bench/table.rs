//! What was measured, for people.

use std::fmt;

use super::contest::{Measured, Sample};

/// The middle of several measurements, and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let half = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(at(half.wrapping_sub(1)), at(half)),
            _ => at(half),
        };
        Spread { median, least: at(0), most: at(values.len().wrapping_sub(1)) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.median.abs() {
            size if size < 10.0 => 2,
            size if size < 1000.0 => 1,
            _ => 0,
        };
        let Spread { median, least, most } = self;
        write!(f, "{median:.digits$} ({least:.digits$}–{most:.digits$})")
    }
}

/// A column's name, and which of the measured values stands in it.
pub(super) type Column = (&'static str, fn(&Sample) -> f64);

/// What a section has found.
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

    /// A table with a row for each contender, and what was wrong with any of them.
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

    /// What a section is about, beside what is asked for.
    pub(super) fn finding(&mut self, what: &str, found: Spread, target: &str, met: bool) {
        let verdict = if met { "met" } else { "MISSED" };
        self.findings.push(format!("{what}: {found}   target {target}: {verdict}"));
    }

    /// Whether everything that was measured was answered rightly.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let spread = Spread::of([3.0, 1.0, 2.0]);
        assert_eq!(spread, Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(Spread::of([1.0, 2.0]).median, 1.5);
        assert!(Spread::of([]).median.is_nan());
    }

    #[test]
    fn larger_numbers_have_fewer_digits() {
        assert_eq!(Spread::of([2.345]).to_string(), "2.35 (2.35–2.35)");
        assert_eq!(Spread::of([123.45, 125.45, 127.0]).to_string(), "125.5 (123.5–127.0)");
        assert_eq!(Spread::of([78_123.4]).to_string(), "78123 (78123–78123)");
    }
}
