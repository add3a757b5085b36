//! The latest rows, read backward from the end of the log, so that the size of the log does not matter.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;
use toolward_gateway::audit::read::lines::Backwards;
use toolward_gateway::audit::read::{StreamSnapshot, opening};

use super::filter::{Filter, intent_of};
use super::row::{joined, told};
use super::scan::{LONGEST_CALL, time_at};
use crate::exit::Failure;

/// The maximum number of outcomes kept until their calls are found.
const MAX_OUTCOMES: usize = 65_536;

/// The latest rows.
pub(crate) struct Latest {
    pub(crate) rows: VecDeque<Value>,
    /// The number of lines that are not records.
    pub(crate) unreadable: u64,
}

/// One stream, read from its end.
struct BackwardCursor<'f> {
    found: &'f StreamSnapshot,
    /// Segments that have not been read.
    segments: usize,
    lines: Option<Backwards>,
    line: Vec<u8>,
    id: String,
    /// How many bytes of this stream may still be read.
    budget: u64,
    /// The offset in the current segment before which nothing is read.
    floor: u64,
}

impl BackwardCursor<'_> {
    /// Moves to the previous record; returns the number of invalid lines.
    fn advance(&mut self) -> Result<u64, Failure> {
        let mut unreadable = 0;
        loop {
            let Some(lines) = &mut self.lines else {
                let segment = self.segments.checked_sub(1);
                let Some(segment) = segment.and_then(|index| self.found.segments.get(index)) else {
                    self.id.clear();
                    return Ok(unreadable);
                };
                self.segments -= 1;
                // A segment that cannot be opened has expired in the meantime.
                if let Ok(file) = segment.open() {
                    self.floor = segment.bytes.saturating_sub(self.budget);
                    self.budget = self.budget.saturating_sub(segment.bytes);
                    self.lines = Some(Backwards::new(file, segment.bytes));
                }
                continue;
            };
            if self.floor > 0 && lines.left() < self.floor {
                (self.segments, self.lines) = (0, None);
                continue;
            }
            let Some(line) = lines.line()? else {
                self.lines = None;
                continue;
            };
            match opening(&line) {
                Some(found) if !found.id.is_empty() => {
                    self.id = found.id.into();
                    self.line = line;
                    return Ok(unreadable);
                }
                _ => unreadable += 1,
            }
        }
    }
}

/// At most `rows` rows, in order. Reads about `bytes` of each stream.
pub(crate) fn latest(
    found: &[StreamSnapshot],
    filter: &Filter,
    rows: usize,
    bytes: u64,
) -> Result<Latest, Failure> {
    let mut latest = Latest { rows: VecDeque::new(), unreadable: 0 };
    let mut cursors: Vec<BackwardCursor<'_>> = found
        .iter()
        .map(|found| BackwardCursor {
            found,
            segments: found.segments.len(),
            lines: None,
            line: Vec::new(),
            id: String::new(),
            budget: bytes,
            floor: 0,
        })
        .collect();
    for cursor in &mut cursors {
        latest.unreadable += cursor.advance()?;
    }
    let oldest = filter.since_micros.map(|since| time_at(since.saturating_sub(LONGEST_CALL)));
    let mut ended = Outcomes::default();
    while latest.rows.len() < rows {
        let there = cursors.iter_mut().filter(|cursor| !cursor.id.is_empty());
        let Some(cursor) = there.max_by(|one, other| one.id.cmp(&other.id)) else { break };
        let Some(opening) = opening(&cursor.line) else { break };
        if oldest.as_deref().is_some_and(|oldest| opening.time < oldest) {
            break;
        }
        let line = &cursor.line;
        let row = match opening.kind {
            "outcome" => {
                ended.add(line, opening.time);
                None
            }
            "intent" => {
                let outcome = ended.take(opening.id);
                row_of_call(filter, line, opening.time, outcome)
            }
            kind if filter.wants(kind) && filter.in_time(opening.time) => {
                filter.read(line).map(|record| joined(record, None))
            }
            _ => None,
        };
        if let Some(row) = row {
            latest.rows.push_front(row);
        }
        latest.unreadable += cursor.advance()?;
    }
    Ok(latest)
}

fn row_of_call(
    filter: &Filter,
    line: &[u8],
    time: &str,
    outcome: Option<(Vec<u8>, String)>,
) -> Option<Value> {
    let is_call = filter.wants("intent") && filter.in_time(time);
    let is_outcome = !filter.wants("intent")
        && filter.wants("outcome")
        && outcome.as_ref().is_some_and(|(_, time)| filter.in_time(time));
    if !is_call && !is_outcome {
        return None;
    }
    let intent = filter.read(line)?;
    let outcome: Option<Value> =
        outcome.and_then(|(outcome, _)| serde_json::from_slice(&outcome).ok());
    match (is_call, outcome) {
        (true, outcome) => Some(joined(intent, outcome.as_ref())),
        (false, outcome) => Some(joined(told(outcome?, &intent), None)),
    }
}

/// Outcomes whose calls follow, because the log is read backward.
#[derive(Default)]
struct Outcomes {
    lines: HashMap<String, (Vec<u8>, String)>,
    order: VecDeque<String>,
}

impl Outcomes {
    fn add(&mut self, line: &[u8], time: &str) {
        let Some(intent) = intent_of(line) else { return };
        self.lines.insert(intent.into(), (line.into(), time.into()));
        self.order.push_back(intent.into());
        while self.order.len() > MAX_OUTCOMES {
            if let Some(oldest) = self.order.pop_front() {
                self.lines.remove(&oldest);
            }
        }
    }

    fn take(&mut self, intent: &str) -> Option<(Vec<u8>, String)> {
        self.lines.remove(intent)
    }
}
