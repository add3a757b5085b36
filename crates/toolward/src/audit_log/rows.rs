//! Rows in the order in which calls began, each call joined with its outcome.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;

use serde_json::Value;

use super::filter::{Filter, Match, Matcher};
use super::progress::Progress;
use super::row::{joined, told};
use super::scan::{DISORDER, LONGEST_CALL, Scan, time_at};
use crate::exit::Failure;

/// The maximum number of rows that wait for an earlier call.
const MAX_WAITING: usize = 4096;

/// Passes every matching row to `take`, oldest first, while records are read; returns the number of invalid
/// lines. `take` also gets the progress line, which it ends before it prints.
pub(crate) fn each(
    mut scan: Scan,
    filter: Filter,
    mut take: impl FnMut(Value, &mut Progress) -> Result<ControlFlow<()>, Failure>,
    mut idle: impl FnMut() -> Result<(), Failure>,
) -> Result<u64, Failure> {
    // Records that are slightly out of order, and outcomes of calls in the range, may still follow.
    let soon = filter.until_micros.map(|until| time_at(until.saturating_add(DISORDER)));
    let late = filter.until_micros.map(|until| time_at(until.saturating_add(LONGEST_CALL)));
    let mut matcher = Matcher::new(filter);
    let mut rows = PendingRows::default();
    let mut ended = false;
    scan.each(|line, opening, progress| {
        let is_after = |end: &Option<String>| end.as_deref().is_some_and(|end| end < opening.time);
        if is_after(&late) || (is_after(&soon) && !matcher.has_open()) {
            return Ok(ControlFlow::Break(()));
        }
        if let Some(found) = matcher.take(line, opening) {
            rows.take(found, &matcher.filter);
        }
        if let Some(call) = matcher.give_up() {
            rows.end(call, None, &matcher.filter);
        }
        while let Some(row) = rows.next() {
            if take(row, progress)?.is_break() {
                ended = true;
                return Ok(ControlFlow::Break(()));
            }
        }
        idle()?;
        Ok(ControlFlow::Continue(()))
    })?;
    scan.progress.end();
    if !ended {
        for call in matcher.unended() {
            rows.end(call, None, &matcher.filter);
        }
        rows.all_ready();
        while let Some(row) = rows.next() {
            if take(row, &mut scan.progress)?.is_break() {
                break;
            }
        }
    }
    Ok(scan.unreadable)
}

#[derive(Default)]
struct PendingRows {
    queue: VecDeque<Slot>,
    /// How many slots have left the queue.
    gone: usize,
    /// The slot of each call in flight.
    waiting: HashMap<String, usize>,
}

enum Slot {
    Row(Value),
    Waiting,
    Nothing,
}

impl PendingRows {
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

    /// A call has ended, or is no longer waited for.
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
            // It took too long to stay in order.
            None => self.queue.push_back(row),
        }
    }

    /// Stops waiting for outcomes.
    fn all_ready(&mut self) {
        for slot in &mut self.queue {
            if matches!(slot, Slot::Waiting) {
                *slot = Slot::Nothing;
            }
        }
    }

    /// The next row, unless an earlier call is still in flight.
    fn next(&mut self) -> Option<Value> {
        loop {
            let is_waiting = matches!(self.queue.front()?, Slot::Waiting);
            if is_waiting && self.queue.len() <= MAX_WAITING {
                return None;
            }
            self.gone += 1;
            if let Some(Slot::Row(row)) = self.queue.pop_front() {
                return Some(row);
            }
        }
    }
}
