//! Rows as a table: complete for files and pipes, fitted to the width of a terminal.

use anstyle::Style;
use serde_json::Value;
use toolward_config::sanitize;
use toolward_policy::Verdict;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::audit_log::clock::{Clock, Precision};
use crate::audit_log::row::{took, what};
use crate::render::{DIM, RED, paint, verdict};

/// In a file or pipe, a longer cell does not widen the column of later rows.
const MAX_COLUMN: usize = 44;
/// Spaces between two columns.
const GAP: usize = 2;
/// If the column WHAT would be narrower than this, other columns are left out.
const MIN_WHAT: usize = 20;

type TextCell = (String, Style);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Time,
    Agent,
    What,
    Verdict,
    Step,
    Outcome,
    Took,
    /// Verdict and outcome in one word.
    Result,
    Id,
}

use Column::{Agent, Id, Outcome, Result, Step, Time, Took, What};

/// The sets of columns, from the widest to the narrowest.
const SETS: [&[Column]; 4] = [
    &[Time, Agent, What, Column::Verdict, Step, Outcome, Took, Id],
    &[Time, Agent, What, Column::Verdict, Outcome, Took, Id],
    &[Time, Agent, What, Result, Took, Id],
    &[Time, Agent, What, Result, Id],
];

impl Column {
    fn head(self) -> &'static str {
        match self {
            Time => "TIME",
            Agent => "AGENT",
            What => "WHAT",
            Column::Verdict => "VERDICT",
            Step => "STEP",
            Outcome => "OUTCOME",
            Took => "TOOK",
            Result => "RESULT",
            Id => "ID",
        }
    }

    /// The width of a column: the minimum in a file or pipe, and the fixed width on a terminal.
    fn width(self) -> (usize, usize) {
        match self {
            Time => (0, 11),
            Agent => (8, 10),
            What => (24, 0),
            Column::Verdict => (7, 7),
            Step => (15, 16),
            Outcome => (10, 11),
            Took => (8, 8),
            Result => (0, 11),
            Id => (0, 0),
        }
    }
}

/// A table whose rows are printed one by one.
pub(crate) struct Columns {
    clock: Clock,
    /// In a file or pipe: the widths of the columns so far. Rows are printed before the last one is known.
    widths: [usize; 8],
}

impl Columns {
    pub(crate) fn new(utc: bool) -> Columns {
        let clock = Clock::new(utc);
        let mut widths = [0; 8];
        for (width, column) in widths.iter_mut().zip(SETS[0]) {
            *width = if *column == Time { clock.full_width() } else { column.width().0 };
        }
        Columns { clock, widths }
    }

    /// The names of the columns, above `first`.
    pub(crate) fn headline(&mut self, first: &Value, terminal: Option<usize>) -> String {
        let set = self.set(first, terminal);
        let cells = set.iter().map(|column| (column.head().to_string(), DIM)).collect();
        match terminal {
            Some(width) => fitted(set, cells, width, short_id(first).width()),
            None => self.grown(cells),
        }
    }

    pub(crate) fn row(&mut self, row: &Value, terminal: Option<usize>) -> String {
        let set = self.set(row, terminal);
        let precision = if terminal.is_some() { Precision::Short } else { Precision::Full };
        let time = || (self.clock.show(row["time"].as_str().unwrap_or("-"), precision), DIM);
        let cells: Vec<TextCell> = set
            .iter()
            .map(|column| match column {
                Time => time(),
                Id if terminal.is_some() => (short_id(row).into(), DIM),
                column => cell(*column, row),
            })
            .map(|(text, style)| (sanitize(&text).into_owned(), style))
            .collect();
        match terminal {
            Some(width) => fitted(set, cells, width, short_id(row).width()),
            None => self.grown(cells),
        }
    }

    fn set(&self, row: &Value, terminal: Option<usize>) -> &'static [Column] {
        let id = short_id(row).width();
        let fits = |set: &&&[Column]| terminal.is_none_or(|width| room(set, width, id) >= MIN_WHAT);
        SETS.iter().find(fits).unwrap_or(&SETS[SETS.len() - 1])
    }

    /// A line whose columns are as wide as the widest cell so far. Nothing is truncated, because scripts
    /// compare names.
    fn grown(&mut self, cells: Vec<TextCell>) -> String {
        let mut line = String::new();
        for ((text, style), width) in cells.into_iter().zip(&mut self.widths) {
            if *width > 0 {
                *width = (*width).max(text.width().min(MAX_COLUMN));
            }
            push(&mut line, &text, style, *width);
        }
        ended(line)
    }
}

/// The first part of an id, which is its time: enough for `toolward explain`.
fn short_id(row: &Value) -> &str {
    let id = row["id"].as_str().unwrap_or("-");
    id.split('-').next().filter(|part| part.len() >= 12).unwrap_or(id)
}

/// The remaining width for the column WHAT.
fn room(set: &[Column], width: usize, id: usize) -> usize {
    let fixed: usize = set.iter().map(|column| column.width().1).sum();
    width.saturating_sub(fixed + id + GAP * (set.len() - 1))
}

/// A line that is not wider than the terminal. An event that is not a call has no verdict and no outcome: its
/// text uses their space.
fn fitted(set: &[Column], cells: Vec<TextCell>, width: usize, id: usize) -> String {
    let (left, mut line) = (room(set, width, id), String::new());
    let empty = |column: &Column, cell: &TextCell| {
        !matches!(column, Time | Agent | What | Id) && cell.0 == "-"
    };
    let is_event = set
        .iter()
        .zip(&cells)
        .all(|(column, cell)| matches!(column, Time | Agent | What | Id) || empty(column, cell));
    let spare: usize = set
        .iter()
        .filter(|column| is_event && !matches!(column, Time | Agent | What | Id))
        .map(|column| column.width().1 + GAP)
        .sum();
    for (column, (text, style)) in set.iter().zip(cells) {
        match column {
            Id => line.push_str(&paint(style, text)),
            What => push(&mut line, &cut(&text, left + spare), style, left + spare),
            column if spare > 0 && !matches!(column, Time | Agent) => {}
            column => push(&mut line, &cut(&text, column.width().1), style, column.width().1),
        }
    }
    ended(line)
}

fn push(line: &mut String, text: &str, style: Style, width: usize) {
    line.push_str(&paint(style, text));
    line.push_str(&" ".repeat((width + GAP).saturating_sub(text.width()).max(GAP)));
}

fn ended(mut line: String) -> String {
    line.truncate(line.trim_end().len());
    line + "\n"
}

/// The text, cut to a number of columns.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.into();
    }
    let mut cut = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        cut.push(c);
    }
    if width > 0 {
        cut.push('…');
    }
    cut
}

fn cell(column: Column, row: &Value) -> TextCell {
    let plain = Style::new();
    let text = |name: &str| row[name].as_str().unwrap_or("-").to_string();
    match column {
        Time => (text("time"), DIM),
        Agent => (text("agent"), plain),
        What => (what(row), plain),
        Column::Verdict => (text("verdict"), decided(row)),
        Step => (text("step"), plain),
        Outcome => (outcome(row).into(), ended_as(outcome(row))),
        Took => (row["duration_us"].as_u64().map_or("-".into(), took), plain),
        Result => match row["verdict"].as_str() {
            Some("allow") | None => (outcome(row).into(), ended_as(outcome(row))),
            Some(verdict) => (verdict.into(), decided(row)),
        },
        Id => (text("id"), DIM),
    }
}

fn decided(row: &Value) -> Style {
    match row["verdict"].as_str() {
        Some("allow") => verdict(Verdict::Allow),
        Some("deny") => verdict(Verdict::Deny),
        Some("ask") => verdict(Verdict::Ask),
        _ => Style::new(),
    }
}

fn outcome(row: &Value) -> &str {
    match row["outcome"].as_str() {
        Some(outcome) => outcome,
        None if row["kind"] == "intent" => "open",
        None => "-",
    }
}

fn ended_as(outcome: &str) -> Style {
    match outcome {
        "ok" | "open" | "-" => Style::new(),
        _ => RED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rows() -> Vec<Value> {
        let id = "65fab2e81c3d0-9c1f00d2-1a";
        let long = "a-very-long-name-".repeat(8);
        vec![
            json!({"kind": "intent", "time": "2026-07-28T09:30:00.123456Z", "agent": "dev", "server": "files",
                   "tool": "read_file", "verdict": "allow", "step": "3-exact-allow", "outcome": "ok",
                   "duration_us": 1234, "id": id}),
            json!({"kind": "refusal", "time": "2026-07-28T09:30:00.123456Z", "agent": long, "server": long,
                   "tool": "日本語".repeat(20), "verdict": "deny", "step": "6-default-deny", "id": id}),
            json!({"kind": "turned-away", "time": "2026-07-28T09:30:00.123456Z", "source": "127.0.0.1",
                   "reason": "no token ".repeat(20), "count": 3, "id": format!("{id}0000")}),
        ]
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_id_is_cut() {
        for width in [80, 100, 120, 160, 240] {
            let mut columns = Columns::new(true);
            for row in rows() {
                for line in [columns.headline(&row, Some(width)), columns.row(&row, Some(width))] {
                    let line = anstream::adapter::strip_str(&line).to_string();
                    assert!(line.trim_end().width() <= width, "{width}: {line}");
                    let id = short_id(&row);
                    assert!(line.trim_end().ends_with(id) || line.starts_with("TIME"), "{line}");
                }
            }
        }
        let shown = Columns::new(true).row(&rows()[0], Some(80));
        let shown = anstream::adapter::strip_str(&shown).to_string();
        assert!(shown.contains("files/read_file") && shown.contains(" ok "), "{shown}");
    }

    #[test]
    fn nothing_is_cut_in_a_file_or_pipe() {
        let (rows, mut columns) = (rows(), Columns::new(true));
        let lines: Vec<String> = rows.iter().map(|row| columns.row(row, None)).collect();
        let lines = lines.iter().map(|line| anstream::adapter::strip_str(line).to_string());
        for (line, row) in lines.zip(&rows) {
            for name in ["agent", "server", "tool", "reason", "id"] {
                let text = row[name].as_str().unwrap_or_default().trim();
                assert!(line.contains(text), "{name}: {line}");
            }
        }
        // A long cell hardly widens its column.
        let after = anstream::adapter::strip_str(&columns.row(&rows[0], None)).to_string();
        assert!(after.width() < 200, "{after}");
    }

    #[test]
    fn columns_are_added_as_there_is_room() {
        let row = &rows()[0];
        let heads = |width| {
            let line = Columns::new(true).headline(row, width);
            anstream::adapter::strip_str(&line).to_string().split_whitespace().count()
        };
        assert_eq!([Some(80), Some(100), Some(120), None].map(heads), [5, 7, 8, 8]);
    }
}
