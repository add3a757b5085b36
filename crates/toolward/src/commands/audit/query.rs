//! `toolward audit query`: one row a call, refusal, list or other event.

use std::collections::{HashMap, VecDeque};
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;

use serde_json::Value;

use super::filter::{Filter, Match, Matcher};
use super::folder::{folder, look, separator};
use super::latest::latest;
use super::out::RowsOut;
use super::row::{joined, told};
use super::scan::{DISORDER, LONGEST_CALL, Scan, left_out, time_at};
use crate::cli::QueryArgs;
use crate::exit::{self, Failure};

pub(super) fn run(args: QueryArgs) -> Result<u8, Failure> {
    let filter = Filter::new(args.filter)?.separated_by(separator(&args.record));
    let found = look(&folder(&args.record)?)?;
    let mut out = RowsOut::new(args.output.json);
    let unreadable = match args.last {
        Some(rows) => {
            let latest = latest(&found, &filter, rows, u64::MAX)?;
            for row in &latest.rows {
                out.row(row)?;
            }
            latest.unreadable
        }
        None => {
            // What came of a call is shown with the call, unless that is not asked for.
            let before = if filter.wants("intent") { DISORDER } else { LONGEST_CALL };
            let scan = Scan::new(found, filter.since_micros, before)?;
            forwards(scan, filter, args.limit, &mut out)?
        }
    };
    out.out.flush()?;
    let mut stderr = anstream::stderr();
    if out.rows == 0 && !args.output.json {
        writeln!(stderr, "nothing was recorded that fits")?;
    }
    Ok(match left_out(unreadable) {
        Some(warning) => {
            writeln!(stderr, "{warning}")?;
            exit::NO
        }
        None => exit::OK,
    })
}

/// Shows rows while records are read; gives how many lines could not be.
fn forwards(
    mut scan: Scan,
    filter: Filter,
    limit: Option<usize>,
    out: &mut RowsOut,
) -> Result<u64, Failure> {
    let limit = limit.unwrap_or(usize::MAX);
    let watched = std::io::stdout().is_terminal();
    // What is a little out of order, and what came of calls in time, may still come.
    let soon = filter.until_micros.map(|until| time_at(until.saturating_add(DISORDER)));
    let late = filter.until_micros.map(|until| time_at(until.saturating_add(LONGEST_CALL)));
    let mut matcher = Matcher::new(filter);
    let mut rows = Rows::default();
    if limit > 0 {
        scan.each(|line, opening, progress| {
            let is_after =
                |end: &Option<String>| end.as_deref().is_some_and(|end| end < opening.time);
            if is_after(&late) || (is_after(&soon) && !matcher.has_open()) {
                return Ok(ControlFlow::Break(()));
            }
            if let Some(found) = matcher.take(line, opening) {
                rows.take(found, &matcher.filter);
            }
            if let Some(call) = matcher.give_up() {
                rows.end(call, None, &matcher.filter);
            }
            for row in rows.ready() {
                if watched {
                    progress.end();
                }
                out.row(&row)?;
                if out.rows >= limit {
                    return Ok(ControlFlow::Break(()));
                }
            }
            out.out.flush_if_due()?;
            Ok(ControlFlow::Continue(()))
        })?;
    }
    scan.progress.end();
    for call in matcher.unended() {
        rows.end(call, None, &matcher.filter);
    }
    rows.all_ready();
    for row in rows.ready().take(limit.saturating_sub(out.rows)) {
        out.row(&row)?;
    }
    Ok(scan.unreadable)
}

/// So many rows wait for a call that began before them.
const MOST_WAITING: usize = 4096;

/// Rows in the order in which calls began.
#[derive(Default)]
struct Rows {
    queue: VecDeque<Slot>,
    /// How many slots have left the queue.
    gone: usize,
    /// Which slot a call that is under way has.
    waiting: HashMap<String, usize>,
}

enum Slot {
    Row(Value),
    Waiting,
    Nothing,
}

impl Rows {
    fn take(&mut self, found: Match, filter: &Filter) {
        let Match { record, intent } = found;
        match (record["kind"].as_str(), intent) {
            (Some("intent"), _) => {
                if let Some(id) = record["id"].as_str() {
                    self.waiting.insert(id.into(), self.gone + self.queue.len());
                    self.queue.push_back(Slot::Waiting);
                }
            }
            (_, Some(intent)) => self.end(intent, Some(record), filter),
            (_, None) if filter.in_time(record["time"].as_str().unwrap_or_default()) => {
                self.queue.push_back(Slot::Row(joined(record, None)));
            }
            _ => {}
        }
    }

    /// A call has ended, or is not waited for any longer.
    fn end(&mut self, intent: Value, outcome: Option<Value>, filter: &Filter) {
        let slot = intent["id"].as_str().and_then(|id| self.waiting.remove(id));
        let time = |record: &Value| filter.in_time(record["time"].as_str().unwrap_or_default());
        let row = match outcome {
            outcome if filter.wants("intent") && time(&intent) => {
                Slot::Row(joined(intent, outcome.as_ref()))
            }
            Some(outcome)
                if !filter.wants("intent") && filter.wants("outcome") && time(&outcome) =>
            {
                Slot::Row(joined(told(outcome, &intent), None))
            }
            _ => Slot::Nothing,
        };
        let in_queue = slot.and_then(|slot| self.queue.get_mut(slot.checked_sub(self.gone)?));
        match in_queue {
            Some(slot) => *slot = row,
            // It was waited for too long to be in order.
            None => self.queue.push_back(row),
        }
    }

    /// Nothing is waited for any longer.
    fn all_ready(&mut self) {
        for slot in &mut self.queue {
            if matches!(slot, Slot::Waiting) {
                *slot = Slot::Nothing;
            }
        }
    }

    /// Rows that nothing stands before.
    fn ready(&mut self) -> impl Iterator<Item = Value> {
        std::iter::from_fn(|| {
            loop {
                let is_waiting = matches!(self.queue.front()?, Slot::Waiting);
                if is_waiting && self.queue.len() <= MOST_WAITING {
                    return None;
                }
                self.gone += 1;
                if let Some(Slot::Row(row)) = self.queue.pop_front() {
                    return Some(row);
                }
            }
        })
    }
}
