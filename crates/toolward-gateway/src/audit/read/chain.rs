//! Verification that all records of a stream are present, in order and unchanged.
//!
//! A record contains the hash of the previous one, and the head the hash of the last one. If they
//! do not match, verification continues after that record, so that all problems are found.

use std::io::{ErrorKind, Result};

use super::diagnose::{At, Break, diagnose};
use super::lines::{Line, Reader};
use super::{HeadState, Segment, StreamSnapshot, opening};
use crate::audit::line::{Hash, NOTHING, hash, previous};
use crate::audit::segment::{Head, Stream};

pub use super::diagnose::{Finding, Place, Problem};

/// The maximum number of findings in a report; more are only counted.
pub(crate) const MAX_FINDINGS: usize = 100;

/// The result of verifying a stream.
#[derive(Debug, Default)]
pub struct Report {
    pub segments: usize,
    pub records: u64,
    /// When the first and the last record were written.
    pub first: Option<String>,
    pub last: Option<String>,
    /// In the order of the log.
    pub findings: Vec<Finding>,
    /// The number of findings beyond the maximum.
    pub more: u64,
    /// Incomplete lines that a gateway removed.
    pub repairs: u64,
    /// Segments up to this one were deleted because they expired.
    pub removed_up_to: Option<u64>,
    pub torn: Option<Torn>,
    /// A gateway is writing to it.
    pub is_written: bool,
    /// Records that are not in the head because the gateway was killed.
    pub killed: u64,
}

/// An incomplete last line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    pub file: String,
    pub line: u64,
    pub bytes: u64,
}

impl Report {
    pub fn is_whole(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Verifies a whole stream. `progress` is called with the number of bytes read.
pub fn verify(stream: &Stream, progress: &mut dyn FnMut(u64)) -> Result<Report> {
    let mut tries = 0;
    loop {
        let found = StreamSnapshot::look(stream)?;
        tries += 1;
        match Walk::over(&found, progress) {
            // A segment expired while others were read.
            Err(error) if error.kind() == ErrorKind::NotFound && tries < 4 => {}
            other => return other,
        }
    }
}

/// If a gateway is killed, the records of this many microseconds may be missing from the head.
const MOMENT: u64 = 1_000_000;

/// When a record was created, in microseconds, from its id.
fn time_of(id: &str) -> Option<u64> {
    u64::from_str_radix(id.split('-').next()?, 16).ok()
}

/// A pass over a stream.
struct Walk<'f> {
    found: &'f StreamSnapshot,
    report: Report,
    breaks: Vec<Break>,
    /// The hash that the next record must have as `prev`; `None` if the previous record was deleted
    /// legitimately.
    expected: Option<Hash>,
    /// The number of the current segment.
    number: u64,
    /// The latest record.
    at: At,
    place: Place,
    /// It is a `stop` record.
    is_stop: bool,
    /// Lines since then that are not records.
    strange: Vec<(At, Place)>,
    /// Missing segments.
    holes: Vec<(u64, u64, At)>,
    end: End,
}

/// The state of the position that the head names.
#[derive(Default)]
struct End {
    /// The number of records after the one in the head; `None` if that was not found.
    since: Option<u64>,
    /// The first of them.
    beyond: Option<(At, Place)>,
    seen: At,
    /// When the head's record was written, in microseconds; `None` if its gateway shut down by
    /// itself, with a complete head.
    time: Option<u64>,
    /// Another record that ends at that position.
    other: Option<(At, Place)>,
    /// The length of the segment that the head names.
    whole: Option<u64>,
}

impl Walk<'_> {
    fn over(found: &StreamSnapshot, progress: &mut dyn FnMut(u64)) -> Result<Report> {
        let mut walk = Walk {
            found,
            report: Report::default(),
            breaks: Vec::new(),
            expected: Some(NOTHING),
            number: 0,
            at: At::default(),
            place: Place::default(),
            is_stop: false,
            strange: Vec::new(),
            holes: Vec::new(),
            end: End::default(),
        };
        // An empty head: all records come after it.
        if found.known == HeadState::To(Head::NOTHING) {
            walk.end.since = Some(0);
        }
        for (index, segment) in found.segments.iter().enumerate() {
            walk.segment(index, segment, progress)?;
        }
        walk.finish()
    }

    fn segment(
        &mut self,
        index: usize,
        segment: &Segment,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut reader = Reader::new(segment.open()?, segment.bytes);
        let (mut lines, mut whole) = (0, 0);
        while let Some(line) = reader.next()? {
            lines += 1;
            let at = At { segment: index, line: lines };
            match line {
                Line::Whole(line) => {
                    if at.line == 1 {
                        self.first(at, line, segment);
                    }
                    self.line(at, line);
                }
                Line::TooLong => self.strange(at, None),
                Line::Torn(rest) => {
                    self.torn(at, segment, rest.len() as u64);
                    break;
                }
            }
            whole = reader.offset();
            if let HeadState::To(head) = self.found.known
                && head.segment == self.number
                && self.at == at
            {
                self.at_head(whole, &head);
            }
            let read = reader.take_read();
            if read > 0 {
                progress(read);
            }
        }
        progress(reader.take_read());
        if lines > 0 {
            self.report.segments += 1;
        } else if !segment.is_live() {
            let at = At { segment: index, line: 0 };
            self.add(at, self.place_of(at, None), Problem::Empty);
        }
        if matches!(self.found.known, HeadState::To(head) if head.segment == self.number) {
            self.end.whole = Some(whole);
        }
        Ok(())
    }

    /// The first record of a segment has the segment's number.
    fn first(&mut self, at: At, line: &[u8], segment: &Segment) {
        let says = opening(line).filter(|opening| opening.kind == "segment").and_then(|_| {
            let record: serde_json::Value = serde_json::from_slice(line).ok()?;
            record["segment"].as_u64()
        });
        let number = segment.number.or(says).unwrap_or(self.number + 1);
        if number > self.number + 1 {
            self.holes.push((self.number + 1, number - 1, at));
            self.expected = None;
        }
        let problem = match says {
            None => Some(Problem::NoFirst),
            Some(says) if says != number || number <= self.number => {
                Some(Problem::OtherSegment { number: says })
            }
            Some(_) => None,
        };
        self.number = number;
        if let Some(problem) = problem {
            self.add(at, self.place_of(at, Some(line)), problem);
        }
    }

    fn line(&mut self, at: At, line: &[u8]) {
        let (Some(opening), Some(carries)) = (opening(line), previous(line)) else {
            return self.strange(at, Some(line));
        };
        let own = hash(line);
        let fits = self.expected.is_none_or(|expected| expected == carries);
        if !self.strange.is_empty() {
            let inserted = fits && self.expected.is_some();
            for (at, place) in std::mem::take(&mut self.strange) {
                self.add(at, place, Problem::NotARecord { inserted });
            }
        } else if !fits {
            self.link(at, line, own, carries);
        }
        self.expected = Some(own);
        if self.report.records == 0 {
            self.report.first = Some(opening.time.into());
        }
        if self.at.segment != at.segment || self.place.file.is_empty() {
            self.place.file = self.file(at);
        }
        self.at = at;
        self.place.line = at.line;
        self.place.id.clear();
        self.place.id.push_str(opening.id);
        self.place.time.clear();
        self.place.time.push_str(opening.time);
        let stopped = std::mem::replace(&mut self.is_stop, opening.kind == "stop");
        self.report.records += 1;
        if let Some(since) = &mut self.end.since {
            *since += 1;
            // A gateway that continues after a shutdown first records that the log has more than
            // the head.
            if stopped && !matches!(opening.kind, "taken-over" | "repair" | "segment") {
                self.end.time = None;
            }
            self.end.beyond.get_or_insert_with(|| (at, self.place.clone()));
        }
        match opening.kind {
            "repair" => self.report.repairs += 1,
            "gap" | "retention" => self.own_record(at, opening.kind == "gap", line),
            _ => {}
        }
    }

    /// Handles a gateway's own record of missing records.
    fn own_record(&mut self, at: At, is_gap: bool, line: &[u8]) {
        let record: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
        if is_gap {
            let number = |name: &str| record[name].as_u64().unwrap_or(0);
            let (segment, bytes) = (number("segment_before"), number("bytes_before"));
            let problem = match record["segment_before"].is_null() {
                true => Problem::BeganWithoutHead,
                false => Problem::Gap { segment, bytes },
            };
            self.add(at, self.place.clone(), problem);
        } else {
            let upto = record["removed_up_to"].as_u64();
            self.report.removed_up_to = self.report.removed_up_to.max(upto);
        }
    }

    fn strange(&mut self, at: At, line: Option<&[u8]>) {
        if self.breaks.len() + self.report.findings.len() + self.strange.len() < MAX_FINDINGS {
            self.strange.push((at, self.place_of(at, line)));
        } else {
            self.report.more += 1;
        }
    }

    fn torn(&mut self, at: At, segment: &Segment, bytes: u64) {
        if segment.is_live() {
            self.report.torn = Some(Torn { file: self.file(at), line: at.line, bytes });
        } else {
            self.add(at, self.place_of(at, None), Problem::TornInside);
        }
    }

    /// Handles a record that does not contain the hash of the previous one.
    fn link(&mut self, at: At, line: &[u8], own: Hash, carries: Hash) {
        if self.breaks.len() + self.report.findings.len() >= MAX_FINDINGS {
            self.report.more += 1;
            return;
        }
        let before = (self.report.records > 0).then(|| self.place.clone());
        let place = self.place_of(at, Some(line));
        self.breaks.push(Break { at, place, own, carries, before });
    }

    fn add(&mut self, at: At, place: Place, problem: Problem) {
        match self.breaks.len() + self.report.findings.len() < MAX_FINDINGS {
            true => self.report.findings.push(Finding { at, place, problem }),
            false => self.report.more += 1,
        }
    }

    fn file(&self, at: At) -> String {
        let path = self.found.segments.get(at.segment).map(|segment| &segment.path);
        let name = path.and_then(|path| path.file_name()).unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn place_of(&self, at: At, line: Option<&[u8]>) -> Place {
        Place::new(self.file(at), at.line, line.and_then(opening))
    }

    /// Compares the current record with the head.
    fn at_head(&mut self, whole: u64, head: &Head) {
        if self.expected == Some(head.hash) {
            let time = time_of(&self.place.id).filter(|_| !self.is_stop);
            self.end = End { since: Some(0), seen: self.at, time, ..End::default() };
        } else if whole == head.bytes {
            self.end.other = Some((self.at, self.place.clone()));
        }
    }

    fn finish(mut self) -> Result<Report> {
        for (at, place) in std::mem::take(&mut self.strange) {
            self.add(at, place, Problem::NotARecord { inserted: false });
        }
        for (from, to, at) in std::mem::take(&mut self.holes) {
            let from = from.max(self.report.removed_up_to.map_or(0, |upto| upto + 1));
            if from <= to {
                self.add(at, self.place_of(at, None), Problem::Missing { from, to });
            }
        }
        self.report.last = Some(self.place.time.clone()).filter(|time| !time.is_empty());
        self.ends();
        let breaks = diagnose(self.found, self.breaks)?;
        let findings = &mut self.report.findings;
        for finding in breaks {
            // A finding at the same position, which is less or more specific than this one.
            let known = findings.iter_mut().find(|known| {
                known.at == finding.at
                    && matches!(
                        known.problem,
                        Problem::NoFirst | Problem::OtherSegment { .. } | Problem::Beyond { .. }
                    )
            });
            match known {
                Some(known) if finding.is_certain() => *known = finding,
                Some(_) => {}
                None => findings.push(finding),
            }
        }
        // Records out of order at the end were not added.
        let seen = self.end.seen;
        let moved = |one: &Finding| one.at >= seen && matches!(one.problem, Problem::Moved { .. });
        if findings.iter().any(moved) {
            findings.retain(|finding| !matches!(finding.problem, Problem::Beyond { .. }));
        }
        findings.sort_by_key(|finding| finding.at);
        Ok(self.report)
    }

    /// Checks whether the chain ends where the head does.
    fn ends(&mut self) {
        let stream = &self.found.stream;
        let head = match self.found.known {
            HeadState::To(head) => head,
            _ if self.report.records == 0 => return,
            known => {
                let problem = Problem::NoHead { unreadable: known == HeadState::Unreadable };
                let name = format!("{}.head", stream.name());
                return self.add(self.at, Place::new(name, 0, None), problem);
            }
        };
        let is_ahead = head.segment > self.number
            || (head.segment == self.number && self.end.whole.is_none_or(|end| end < head.bytes));
        match (self.end.since, self.end.beyond.take()) {
            (Some(records), Some((at, place))) => {
                self.report.is_written =
                    stream.is_written() || HeadState::read(stream) != self.found.known;
                // The head is written a moment later if records come fast.
                let last = time_of(&self.place.id);
                let span = last.zip(self.end.time).map(|(last, head)| last.abs_diff(head));
                match span {
                    _ if self.report.is_written => {}
                    Some(span) if span <= MOMENT => self.report.killed = records,
                    _ => self.add(at, place, Problem::Beyond { records }),
                }
            }
            (Some(_), None) => {}
            (None, _) if is_ahead => {
                let mut place = self.place.clone();
                if place.file.is_empty() {
                    place.file = format!("{}.jsonl", stream.name());
                }
                let Head { segment, bytes, .. } = head;
                self.add(self.at, place, Problem::Ahead { segment, bytes });
            }
            // The head could not be updated any more, and its segment has expired.
            (None, _) if Some(head.segment) <= self.report.removed_up_to => {}
            (None, _) => {
                let (at, place) = self.end.other.take().unwrap_or((self.at, self.place.clone()));
                self.add(at, place, Problem::Differs);
            }
        }
        if self.report.torn.is_some() {
            self.report.is_written = stream.is_written();
        }
    }
}
