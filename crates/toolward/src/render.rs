//! Terminal output: colors, tables and counts. Colors are dropped if the output is not a terminal; text from
//! servers and agents has already been sanitized.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use toolward_policy::Verdict;
use unicode_width::UnicodeWidthStr;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const RED: Style = AnsiColor::Red.on_default().bold();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
const BLUE: Style = AnsiColor::Cyan.on_default();

/// Text in a style.
pub(crate) fn paint(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

pub(crate) fn verdict(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Allow => GREEN,
        Verdict::Depends => YELLOW,
        Verdict::Ask => BLUE,
        Verdict::Deny => RED,
    }
}

/// Rows of aligned columns, with a headline.
pub(crate) struct Table {
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    pub(crate) fn new(headline: &[&str]) -> Table {
        let headline = headline.iter().map(|name| (name.to_string(), DIM)).collect();
        Table { rows: vec![headline] }
    }

    pub(crate) fn row(&mut self, cells: Vec<(String, Style)>) {
        self.rows.push(cells);
    }

    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|(text, _)| text.width()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            for (column, (text, style)) in row.iter().enumerate() {
                let last = column + 1 == row.len();
                let padding = if last { 0 } else { widths[column] - text.width() + 2 };
                let _ = write!(out, "{}{:padding$}", paint(*style, text), "");
            }
            while out.ends_with(' ') {
                out.pop();
            }
            out.push('\n');
        }
        out
    }
}

/// How wide lines may be: `COLUMNS`, or the terminal's width. `None`: output goes to a file or a pipe.
pub(crate) fn terminal_width() -> Option<usize> {
    let stated = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let measured = || {
        let stdout = std::io::stdout();
        let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
        Some(usize::from(size.ws_col))
    };
    stated.or_else(measured).filter(|columns| *columns > 0)
}

/// "1 tool", "2 tools".
pub(crate) fn count(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}
