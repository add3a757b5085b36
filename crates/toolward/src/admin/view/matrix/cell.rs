//! Rows and cells as they are drawn, and their legend.

use toolward_gateway::guard::{InFront, ShownHook, ShownLimit};

use super::filter::{At, MatrixFilter};
use super::table::{self, Group, MatrixCell, MatrixTable, ToolLine};
use crate::discovery::Route;

/// A line as it is drawn.
pub(super) enum DrawnLine<'a> {
    Server(ServerLine<'a>),
    Tool {
        at: usize,
        group: &'a Group,
        line: &'a ToolLine,
        about: Option<String>,
        cells: Vec<Mark>,
    },
}

/// The row of a server.
pub(super) struct ServerLine<'a> {
    pub(super) at: usize,
    pub(super) group: &'a Group,
    /// How many of its tools match the filters.
    pub(super) left: usize,
    /// `None`: it cannot be collapsed now.
    pub(super) folded: Option<bool>,
    /// The URL that collapses or expands it.
    pub(super) toggle: String,
    /// How many of its tools each agent may call.
    pub(super) allowed: Vec<usize>,
}

/// A cell as it is drawn.
pub(super) struct Mark {
    /// The verdict.
    pub(super) word: &'static str,
    /// Further classes, for styles.
    pub(super) also: &'static str,
    /// A symbol, because color alone is not accessible.
    pub(super) sign: &'static str,
    /// The content of the cell in words.
    pub(super) label: String,
    pub(super) limit: Option<String>,
    pub(super) hook: Option<String>,
}

/// The entries of the legend.
#[derive(Debug, Default)]
pub(super) struct Legend {
    pub(super) allow: bool,
    pub(super) depends: bool,
    pub(super) ask: bool,
    pub(super) deny: bool,
    pub(super) limits: bool,
    pub(super) hooks: bool,
    /// Tools that are called through `execute_tool`.
    pub(super) through: bool,
    pub(super) changed: bool,
}

pub(super) fn drawn<'a>(
    table: &'a MatrixTable,
    filter: &MatrixFilter,
    (at, line): (usize, At),
    left: usize,
    address: &str,
) -> Option<DrawnLine<'a>> {
    let group = table.groups.get(line.group)?;
    let Some(tool) = line.tool else {
        let allowed = filter.columns.iter().map(|column| group.allowed.get(*column));
        return Some(DrawnLine::Server(ServerLine {
            at,
            group,
            left,
            folded: (filter.can_fold() && group.why.is_none())
                .then(|| filter.is_folded(&group.server)),
            toggle: filter.folds.toggled(&group.server).address(address),
            allowed: allowed.map(|count| count.copied().unwrap_or(0)).collect(),
        }));
    };
    let cells = group.cells(tool);
    let mark = |column: &usize| Some(Mark::of(group, *column, *cells.get(*column)?));
    let line = group.lines.get(tool)?;
    let marks = filter.columns.iter().filter_map(mark).collect();
    Some(DrawnLine::Tool { at, group, line, about: line.description(), cells: marks })
}

impl Mark {
    fn of(group: &Group, column: usize, cell: MatrixCell) -> Mark {
        let (word, sign) = sign(cell.verdict);
        let through = cell.verdict != table::DENY && group.route(column) == Route::Execute;
        let mut label = String::from(word);
        let (mut limit, mut hook) = (None, None);
        if through {
            label += ", through execute_tool";
        }
        if let Some(guards) = group.guards(cell) {
            (limit, hook) = (limits(guards), hooks(guards));
            label += &in_words(guards);
        }
        if let Some(before) = cell.before {
            let (was, _) = self::sign(before);
            label += &match was == word {
                true => String::from(", other limits or hooks since the reload"),
                false => format!(", {was} before the reload"),
            };
        }
        let also = match (through, cell.before.is_some()) {
            (true, true) => " via changed",
            (true, false) => " via",
            (false, true) => " changed",
            (false, false) => "",
        };
        Mark { word, also, sign, label, limit, hook }
    }
}

/// The verdict as a word and as a symbol.
pub(in crate::admin::view) fn sign(verdict: u8) -> (&'static str, &'static str) {
    match verdict {
        table::ALLOW => ("allow", "✓"),
        table::DEPENDS => ("depends", "≈"),
        table::ASK => ("ask", "?"),
        _ => ("deny", "–"),
    }
}

/// The limits of a cell, in short form. Limits on all tools are named in the column header, and are a mark
/// without text here.
fn limits(guards: &InFront) -> Option<String> {
    let own: Vec<&ShownLimit> = guards.limits.iter().filter(|one| !one.every_tool).collect();
    match &own[..] {
        [] => (!guards.limits.is_empty()).then(String::new),
        [one] => Some(one.rate.clone()),
        more => Some(format!("{} limits", more.len())),
    }
}

fn hooks(guards: &InFront) -> Option<String> {
    let own: Vec<&ShownHook> = guards.hooks.iter().filter(|one| !one.every_tool).collect();
    match &own[..] {
        [] => (!guards.hooks.is_empty()).then(String::new),
        [one] => Some(one.name.clone()),
        more => Some(format!("{} hooks", more.len())),
    }
}

fn in_words(guards: &InFront) -> String {
    let mut words = String::new();
    let some = |partial: bool| if partial { " for some calls" } else { "" };
    for limit in &guards.limits {
        words += &format!(", at most {}{} ({})", limit.rate, some(limit.partial), limit.name);
    }
    for hook in &guards.hooks {
        words += &format!(", hook {}{}", hook.name, some(hook.partial));
    }
    words
}

impl Legend {
    pub(super) fn of(table: &MatrixTable, columns: &[usize]) -> Legend {
        let mut legend = Legend::default();
        for group in &table.groups {
            for tool in 0..group.lines.len() {
                let cells = group.cells(tool);
                for column in columns {
                    if let Some(cell) = cells.get(*column) {
                        legend.add(group, *column, *cell);
                    }
                }
            }
        }
        legend
    }

    fn add(&mut self, group: &Group, column: usize, cell: MatrixCell) {
        match cell.verdict {
            table::ALLOW => self.allow = true,
            table::DEPENDS => self.depends = true,
            table::ASK => self.ask = true,
            _ => self.deny = true,
        }
        self.through |= cell.verdict != table::DENY && group.route(column) == Route::Execute;
        self.changed |= cell.before.is_some();
        if let Some(guards) = group.guards(cell) {
            self.limits |= !guards.limits.is_empty();
            self.hooks |= !guards.hooks.is_empty();
        }
    }
}
