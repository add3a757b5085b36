//! Who sees what: all tools by all agents, by the verdict of the listing.
//!
//! Lines come in chunks, as they are needed: a page holds the chunks that are near what is looked at.

mod filter;
mod table;

use std::sync::Arc;

use askama::Template;

use self::filter::{At, Choice, Filter};
use self::table::{Group, Line, Table};
use crate::page::query::encoded;
use crate::page::{Layout, Page, Query, Shown};

pub(crate) use self::table::Kept;

/// So many lines come together.
const CHUNK: usize = 64;
/// So many chunks come with the page.
const FIRST: usize = 2;
/// More columns than this are narrow, with their names upright.
const MOST_WIDE: usize = 8;

#[derive(Template)]
#[template(path = "matrix.html")]
struct Whole<'a> {
    layout: Layout,
    part: Part<'a>,
}

#[derive(Template)]
#[template(path = "matrix_part.html")]
struct Fragment<'a> {
    part: Part<'a>,
}

/// The table with its filters.
struct Part<'a> {
    servers: Vec<Choice<'a>>,
    agents: Vec<Choice<'a>>,
    verdicts: Vec<Choice<'a>>,
    hints: Vec<Choice<'a>>,
    text: &'a str,
    filtered: bool,
    columns: Vec<Column<'a>>,
    wide: bool,
    chunks: Vec<Chunk<'a>>,
    /// Tools that are shown, and that there are.
    tools: usize,
    of: usize,
    lines: usize,
    /// The filters, for whoever asks for further lines.
    filter: String,
}

struct Column<'a> {
    agent: Option<&'a str>,
    /// As it stands in an address.
    address: String,
    /// How many tools it sees.
    sees: usize,
}

struct Chunk<'a> {
    from: usize,
    count: usize,
    /// None where they come later.
    lines: Vec<Drawn<'a>>,
}

#[derive(Template)]
#[template(path = "matrix_rows.html")]
struct Rows<'a> {
    lines: Vec<Drawn<'a>>,
}

/// A line as it is drawn.
enum Drawn<'a> {
    Server { at: usize, group: &'a Group },
    Tool { at: usize, group: &'a Group, line: &'a Line, cells: Vec<(&'static str, &'static str)> },
}

pub(crate) async fn show(page: &Arc<Page>, query: &Query) -> Shown {
    if !query.rest.is_empty() {
        return Shown::Missing;
    }
    let layout = match query.fragment {
        true => None,
        false => Some(Layout::new(page, "matrix", "Who sees what").await),
    };
    let lists = page.lists.ask(page.gateway()).await;
    let table = page.matrix.table(&page.reloader, &lists);
    let filter = Filter::read(query, &table);
    let part = part(&table, &filter, query);
    match layout {
        Some(layout) => Shown::of(&Whole { layout, part }),
        None => Shown::of(&Fragment { part }),
    }
}

/// Further lines.
pub(crate) async fn rows(page: &Arc<Page>, query: &Query) -> Shown {
    let Some(from) = query.get("from").and_then(|from| from.parse::<usize>().ok()) else {
        return Shown::Wrong("`from` is the number of a line.".into());
    };
    let lists = page.lists.now(page.gateway());
    let table = page.matrix.table(&page.reloader, &lists);
    let filter = Filter::read(query, &table);
    let lines = filter.lines(&table);
    let lines = lines.iter().enumerate().skip(from).take(CHUNK);
    let lines = lines.filter_map(|(at, line)| drawn(&table, &filter, at, *line));
    Shown::of(&Rows { lines: lines.collect() })
}

fn part<'a>(table: &'a Table, filter: &Filter, query: &'a Query) -> Part<'a> {
    let lines = filter.lines(table);
    let column = |column: &usize| {
        let agent = table.agents.get(*column).and_then(Option::as_deref);
        let address = agent.map(encoded).unwrap_or_default();
        Column { agent, address, sees: table.sees(*column) }
    };
    let columns: Vec<Column<'a>> = filter.columns.iter().map(column).collect();
    let chunk = |from: usize| {
        let count = CHUNK.min(lines.len() - from);
        let numbered = lines.iter().enumerate().skip(from).take(count);
        let first = from < FIRST * CHUNK;
        let drawn =
            numbered.filter(|_| first).filter_map(|(at, line)| drawn(table, filter, at, *line));
        Chunk { from, count, lines: drawn.collect() }
    };
    Part {
        servers: filter::servers(table, query),
        agents: filter::agents(table, query),
        verdicts: filter::verdicts(query),
        hints: filter::hints(table, query),
        text: query.get("q").unwrap_or_default(),
        filtered: filter.is_some(),
        wide: columns.len() <= MOST_WIDE,
        columns,
        chunks: (0..lines.len()).step_by(CHUNK).map(chunk).collect(),
        tools: lines.iter().filter(|line| line.tool.is_some()).count(),
        of: table.tools(),
        lines: lines.len(),
        filter: filter::address(query),
    }
}

fn drawn<'a>(table: &'a Table, filter: &Filter, at: usize, line: At) -> Option<Drawn<'a>> {
    let group = table.groups.get(line.group)?;
    let Some(tool) = line.tool else { return Some(Drawn::Server { at, group }) };
    let verdicts = group.verdicts(tool);
    let cell = |column: &usize| sign(verdicts.get(*column).copied());
    let cells = filter.columns.iter().map(cell).collect();
    Some(Drawn::Tool { at, group, line: group.lines.get(tool)?, cells })
}

/// The word of a cell and its sign: colours alone tell nothing to many people.
fn sign(verdict: Option<u8>) -> (&'static str, &'static str) {
    match verdict {
        Some(table::ALLOW) => ("allow", "✓"),
        Some(table::DEPENDS) => ("depends", "≈"),
        Some(table::ASK) => ("ask", "?"),
        _ => ("deny", "–"),
    }
}
