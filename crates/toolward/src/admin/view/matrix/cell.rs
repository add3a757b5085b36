//! Rows and cells as they are drawn, and their legend.

use toolward_gateway::guard::{InFront, ShownHook, ShownLimit};

use toolward_wire::list::ListKind;

use super::filter::{At, MatrixFilter};
use super::group::{EntryLine, Group};
use super::table::MatrixTable;
use super::verdict::{self, MatrixCell};
use crate::admin::view::words::{plural, singular};
use crate::discovery::Route;

/// A line as it is drawn.
pub(super) enum DrawnLine<'a> {
    Group(GroupLine<'a>),
    Entry {
        at: usize,
        group: &'a Group,
        /// `None`: a tool.
        kind: Option<&'static str>,
        line: &'a EntryLine,
        about: Option<String>,
        cells: Vec<Mark>,
    },
}

/// The row of a group: the tools of a server, or its entries of another kind.
pub(super) struct GroupLine<'a> {
    pub(super) at: usize,
    pub(super) group: &'a Group,
    /// The word for its entries.
    pub(super) noun: &'static str,
    /// How the entries are used, as a verb.
    pub(super) verb: &'static str,
    /// How many of its entries match the filters.
    pub(super) left: usize,
    /// `None`: it cannot be collapsed now.
    pub(super) folded: Option<bool>,
    /// The URL that collapses or expands it.
    pub(super) toggle: String,
    /// How many of its entries each agent may use.
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
    pub(super) quarantined: bool,
    pub(super) limits: bool,
    pub(super) hooks: bool,
    /// Tools that are called through `execute_tool`.
    pub(super) through: bool,
    /// Resources that belong to another server.
    pub(super) elsewhere: bool,
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
    let Some(entry) = line.entry else {
        return Some(DrawnLine::Group(GroupLine {
            at,
            group,
            noun: if group.lines.len() == 1 { singular(group.kind) } else { plural(group.kind) },
            verb: if group.kind == ListKind::Tools { "call" } else { "use" },
            left,
            folded: (filter.can_fold() && group.why.is_none()).then(|| filter.is_folded(group)),
            toggle: filter.folds.toggled(&group.fold).address(address),
            allowed: table.allowed(line.group, &filter.columns),
        }));
    };
    let cells = group.cells(entry);
    let mark = |column: &usize| {
        let owner = table.owner(line.group, entry, *column);
        Some(Mark::of(group, *column, *cells.get(*column)?, owner))
    };
    let marks = filter.columns.iter().filter_map(mark).collect();
    let kind = (group.kind != ListKind::Tools).then(|| singular(group.kind));
    let line = group.lines.get(entry)?;
    Some(DrawnLine::Entry { at, group, kind, line, about: line.description(), cells: marks })
}

impl Mark {
    fn of(group: &Group, column: usize, cell: MatrixCell, owner: Option<&str>) -> Mark {
        let (word, sign) = sign(cell.verdict);
        let through = !verdict::is_closed(cell.verdict) && group.route(column) == Route::Execute;
        let mut label = String::from(word);
        let (mut limit, mut hook) = (None, None);
        if cell.verdict == verdict::QUARANTINED {
            label += ": its definition is not the approved one";
        }
        if through {
            label += ", through execute_tool";
        }
        if let Some(owner) = owner {
            label += &format!(", but hidden: it belongs to {owner}, which lists it too");
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
        let also = match (through, owner.is_some(), cell.before.is_some()) {
            (true, _, true) => " via changed",
            (true, _, false) => " via",
            (false, true, true) => " elsewhere changed",
            (false, true, false) => " elsewhere",
            (false, false, true) => " changed",
            (false, false, false) => "",
        };
        Mark { word, also, sign, label, limit, hook }
    }
}

/// The verdict as a word and as a symbol.
pub(in crate::admin::view) fn sign(verdict: u8) -> (&'static str, &'static str) {
    match verdict {
        verdict::ALLOW => ("allow", "✓"),
        verdict::DEPENDS => ("depends", "≈"),
        verdict::ASK => ("ask", "?"),
        verdict::QUARANTINED => ("quarantined", "⊘"),
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
        for (at, group) in table.groups.iter().enumerate() {
            for entry in 0..group.lines.len() {
                let cells = group.cells(entry);
                for column in columns {
                    if let Some(cell) = cells.get(*column) {
                        legend.add(group, *column, *cell);
                    }
                }
            }
            legend.elsewhere |= columns.iter().any(|column| table.owners.hidden(at, *column) > 0);
        }
        legend
    }

    fn add(&mut self, group: &Group, column: usize, cell: MatrixCell) {
        match cell.verdict {
            verdict::ALLOW => self.allow = true,
            verdict::DEPENDS => self.depends = true,
            verdict::ASK => self.ask = true,
            verdict::QUARANTINED => self.quarantined = true,
            _ => self.deny = true,
        }
        self.through |= !verdict::is_closed(cell.verdict) && group.route(column) == Route::Execute;
        self.changed |= cell.before.is_some();
        if let Some(guards) = group.guards(cell) {
            self.limits |= !guards.limits.is_empty();
            self.hooks |= !guards.hooks.is_empty();
        }
    }
}
