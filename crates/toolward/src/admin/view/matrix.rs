//! The matrix: all tools, prompts and resources by all agents, with the verdict of the listing.
//!
//! Rows are loaded in chunks as they scroll into view.

mod cache;
mod cell;
mod filter;
mod folds;
mod group;
mod owners;
pub(super) mod table;
mod verdict;

use std::sync::Arc;

use askama::Template;
use toolward_wire::list::ListKind;

use self::cell::{DrawnLine, Legend, drawn};
use self::filter::{Choice, Lines, MatrixFilter};
use self::folds::Folds;
use self::table::MatrixTable;
use crate::admin::query::encoded;
use crate::admin::view::moment;
use crate::admin::view::words::{plural, singular};
use crate::admin::{AdminUi, Layout, Query, ViewResponse};

pub(crate) use self::cache::MatrixCache;

/// Rows per chunk.
const CHUNK: usize = 64;
/// Chunks included in the initial page.
const FIRST_CHUNKS: usize = 2;
/// With more columns than this, columns are narrow and their names vertical.
const MAX_WIDE_COLUMNS: usize = 8;

#[derive(Template)]
#[template(path = "matrix.html")]
struct MatrixPage<'a> {
    layout: Layout,
    part: MatrixPart<'a>,
}

#[derive(Template)]
#[template(path = "matrix_part.html")]
struct Fragment<'a> {
    part: MatrixPart<'a>,
}

/// The table with its filters.
struct MatrixPart<'a> {
    servers: Vec<Choice<'a>>,
    kinds: Vec<Choice<'a>>,
    agents: Vec<Choice<'a>>,
    verdicts: Vec<Choice<'a>>,
    hints: Vec<Choice<'a>>,
    text: &'a str,
    filtered: bool,
    columns: Vec<MatrixColumn<'a>>,
    wide: bool,
    chunks: Vec<Chunk<'a>>,
    counts: Vec<KindCount>,
    /// The number of tools.
    tools: usize,
    /// There are prompts or resources too.
    has_others: bool,
    lines: usize,
    /// The filters and collapsed groups, to request further rows.
    filter: String,
    /// Collapsed groups, as hidden form fields.
    folds: Vec<(String, String)>,
    /// Collapses or expands all groups.
    fold_all: Option<FoldAll>,
    legend: Legend,
    reload: Option<Reload>,
}

/// How many entries of a kind match the filters, and how many there are.
struct KindCount {
    left: usize,
    of: usize,
    noun: &'static str,
}

struct MatrixColumn<'a> {
    agent: Option<&'a str>,
    /// The URL-encoded name.
    address: String,
    /// How many tools are in its list.
    listed: usize,
    /// How many it calls through `execute_tool`, if it uses progressive discovery.
    through: Option<usize>,
    /// The last reload added it.
    added: bool,
    /// Limits and hooks that apply to all of its tools.
    limits: Vec<&'a str>,
    hooks: Vec<&'a str>,
}

struct FoldAll {
    address: String,
    collapse: bool,
}

/// The changes of the last reload.
struct Reload {
    time: String,
    /// Without the date and the seconds.
    clock: String,
    cells: usize,
    /// Only changed rows are shown.
    only: bool,
    /// The URL that shows only changed rows, or all.
    address: String,
}

struct Chunk<'a> {
    from: usize,
    count: usize,
    /// Empty if they are loaded later.
    lines: Vec<DrawnLine<'a>>,
}

#[derive(Template)]
#[template(path = "matrix_rows.html")]
struct MatrixRows<'a> {
    lines: Vec<DrawnLine<'a>>,
}

pub(crate) async fn show(page: &Arc<AdminUi>, query: &Query) -> ViewResponse {
    if !query.rest.is_empty() {
        return ViewResponse::Missing;
    }
    let layout = match query.fragment {
        true => None,
        false => Some(Layout::new(page, "matrix", "Who sees what").await),
    };
    let lists = page.lists.ask(page.gateway()).await;
    let table = page.matrix.table(&page.reloader, &lists);
    let filter = MatrixFilter::read(query, &table);
    let part = part(&table, &filter, query);
    match layout {
        Some(layout) => ViewResponse::of(&MatrixPage { layout, part }),
        None => ViewResponse::of(&Fragment { part }),
    }
}

/// Further rows.
pub(crate) async fn rows(page: &Arc<AdminUi>, query: &Query) -> ViewResponse {
    let Some(from) = query.get("from").and_then(|from| from.parse::<usize>().ok()) else {
        return ViewResponse::Wrong("`from` must be the number of a row.".into());
    };
    let lists = page.lists.now(page.gateway());
    let table = page.matrix.table(&page.reloader, &lists);
    let filter = MatrixFilter::read(query, &table);
    let address = filter::address(query);
    let lines = filter.lines(&table);
    let numbered = lines.lines.iter().enumerate().skip(from).take(CHUNK);
    let drawn = numbered.filter_map(|(at, line)| {
        drawn(&table, &filter, (at, *line), lines.left(line.group), &address)
    });
    ViewResponse::of(&MatrixRows { lines: drawn.collect() })
}

fn part<'a>(table: &'a MatrixTable, filter: &MatrixFilter, query: &'a Query) -> MatrixPart<'a> {
    let shown = filter.lines(table);
    let Lines { lines, .. } = &shown;
    let address = filter::address(query);
    let columns: Vec<MatrixColumn<'a>> =
        filter.columns.iter().map(|column| MatrixColumn::new(table, *column)).collect();
    let chunk = |from: usize| {
        let count = CHUNK.min(lines.len() - from);
        let numbered = lines.iter().enumerate().skip(from).take(count);
        let first = from < FIRST_CHUNKS * CHUNK;
        let drawn = numbered.filter(|_| first).filter_map(|(at, line)| {
            drawn(table, filter, (at, *line), shown.left(line.group), &address)
        });
        Chunk { from, count, lines: drawn.collect() }
    };
    let field = |(field, name): (&str, &str)| (field.to_string(), name.to_string());
    MatrixPart {
        servers: filter::servers(table, query),
        kinds: filter::kinds(table, query),
        agents: filter::agents(table, query),
        verdicts: filter::verdicts(table, query),
        hints: filter::hints(table, query),
        text: query.get("q").unwrap_or_default(),
        filtered: filter.is_some(),
        wide: columns.len() <= MAX_WIDE_COLUMNS,
        columns,
        chunks: (0..lines.len()).step_by(CHUNK).map(chunk).collect(),
        counts: KindCount::all(table, &shown),
        tools: table.entries(ListKind::Tools),
        has_others: table.has_others(),
        lines: lines.len(),
        filter: filter.folds.address(&address),
        folds: filter.folds.fields().into_iter().map(field).collect(),
        fold_all: fold_all(table, filter, &address),
        legend: Legend::of(table, &filter.columns),
        reload: reload(table, filter, query),
    }
}

impl KindCount {
    /// Tools, and the other kinds that there are.
    fn all(table: &MatrixTable, shown: &Lines) -> Vec<KindCount> {
        let count = |kind: ListKind| {
            let of = table.entries(kind);
            let noun = if of == 1 { singular(kind) } else { plural(kind) };
            KindCount { left: shown.of_kind(table, kind), of, noun }
        };
        let all = ListKind::ALL.into_iter().map(|kind| (kind, count(kind)));
        let there = all.filter(|(kind, count)| *kind == ListKind::Tools || count.of > 0);
        there.map(|(_, count)| count).collect()
    }
}

impl<'a> MatrixColumn<'a> {
    fn new(table: &'a MatrixTable, column: usize) -> MatrixColumn<'a> {
        let agent = table.agents.get(column).and_then(Option::as_deref);
        let (limits, hooks) = table.over_every_tool(column);
        MatrixColumn {
            agent,
            limits,
            hooks,
            address: agent.map(encoded).unwrap_or_default(),
            listed: table.listed(column),
            through: table.through(column),
            added: table.added.get(column).is_some_and(|added| *added),
        }
    }
}

fn fold_all(table: &MatrixTable, filter: &MatrixFilter, address: &str) -> Option<FoldAll> {
    if table.groups.len() < 2 || !filter.can_fold() {
        return None;
    }
    let collapse = table.groups.iter().any(|group| !filter.is_folded(group));
    let address = Folds::everything(collapse).address(address);
    Some(FoldAll { address, collapse })
}

fn reload(table: &MatrixTable, filter: &MatrixFilter, query: &Query) -> Option<Reload> {
    let (at, cells) = (table.reloaded?, table.changed());
    let others = filter::address_without(query, "changed");
    let others = filter.folds.address(&others);
    let more = if others.is_empty() { String::new() } else { format!("&{others}") };
    let address = if filter.changed { others } else { format!("changed=1{more}") };
    let any = cells > 0 || filter.changed;
    let time = moment(at);
    let clock = format!("{} UTC", time.get(11..16).unwrap_or_default());
    any.then_some(Reload { clock, time, cells, only: filter.changed, address })
}
