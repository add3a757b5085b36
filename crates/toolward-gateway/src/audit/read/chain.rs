//! Whether all records of a stream are there, in order, as they were written.
//!
//! A record carries the hash of the one before it, and the head the hash of the last one. Where that
//! does not fit, reading goes on behind the place, so that all of them are named.

use std::io::{ErrorKind, Result};

use super::diagnose::{At, Break, diagnose};
use super::lines::{Line, Reader};
use super::{Found, Known, Segment, opening};
use crate::audit::line::{Hash, NOTHING, hash, previous};
use crate::audit::segment::{Head, Stream};

pub use super::diagnose::{Finding, Place, Problem};

/// So many places are named; more are counted.
pub const MOST_FINDINGS: usize = 100;

/// What a look at a stream gave.
#[derive(Debug, Default)]
pub struct Report {
    pub segments: usize,
    pub records: u64,
    /// When the first and the last record were written.
    pub first: Option<String>,
    pub last: Option<String>,
    /// In the order of the record.
    pub findings: Vec<Finding>,
    /// Findings beyond those that are named.
    pub more: u64,
    /// Torn lines that a gateway took off.
    pub repairs: u64,
    /// Segments up to this one were removed because their time was over.
    pub removed_up_to: Option<u64>,
    pub torn: Option<Torn>,
    /// A gateway writes to it.
    pub is_written: bool,
    /// Records that the head does not know, of the moment in which a gateway was killed.
    pub killed: u64,
}

/// A last line that was not written to its end.
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

/// Reads a whole stream. `progress` hears how many bytes were read.
pub fn verify(stream: &Stream, progress: &mut dyn FnMut(u64)) -> Result<Report> {
    let mut tries = 0;
    loop {
        let found = Found::look(stream)?;
        tries += 1;
        match Walk::over(&found, progress) {
            // A segment's time was over while others were read.
            Err(error) if error.kind() == ErrorKind::NotFound && tries < 4 => {}
            other => return other,
        }
    }
}

/// What a gateway writes within this time, in microseconds, its head may not know when it is killed.
const MOMENT: u64 = 1_000_000;

/// When a record was made, in microseconds, by its id.
fn time_of(id: &str) -> Option<u64> {
    u64::from_str_radix(id.split('-').next()?, 16).ok()
}

/// The way through a stream.
struct Walk<'f> {
    found: &'f Found,
    report: Report,
    breaks: Vec<Break>,
    /// What the next record has to carry; `None` where the one before is gone for a reason.
    expected: Option<Hash>,
    /// The segment at hand, by its number.
    number: u64,
    /// The record read last.
    at: At,
    place: Place,
    /// It says that its gateway ended.
    is_stop: bool,
    /// Lines since then that are no records.
    strange: Vec<(At, Place)>,
    /// Segments that are not there.
    holes: Vec<(u64, u64, At)>,
    end: End,
}

/// What is known of the place that the head names.
#[derive(Default)]
struct End {
    /// Records since the one that the head knows; `None` where it was not seen.
    since: Option<u64>,
    /// The first of them.
    beyond: Option<(At, Place)>,
    seen: At,
    /// When the one that it knows was written, in microseconds; `None` where its gateway ended by
    /// itself, and with a head that knows everything.
    time: Option<u64>,
    /// Another record that ends there.
    other: Option<(At, Place)>,
    /// How long the segment is that the head names.
    whole: Option<u64>,
}

impl Walk<'_> {
    fn over(found: &Found, progress: &mut dyn FnMut(u64)) -> Result<Report> {
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
        // A head of which nothing was known yet: everything came after it.
        if found.known == Known::To(Head::NOTHING) {
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
            if let Known::To(head) = self.found.known
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
        if matches!(self.found.known, Known::To(head) if head.segment == self.number) {
            self.end.whole = Some(whole);
        }
        Ok(())
    }

    /// What a segment begins with says which one it is.
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
                Some(Problem::OtherSegment { says })
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
            // Whoever goes on after an end says first that it found more than the head knew.
            if stopped && !matches!(opening.kind, "taken-over" | "repair" | "segment") {
                self.end.time = None;
            }
            self.end.beyond.get_or_insert_with(|| (at, self.place.clone()));
        }
        match opening.kind {
            "repair" => self.report.repairs += 1,
            "gap" | "retention" => self.own_words(at, opening.kind == "gap", line),
            _ => {}
        }
    }

    /// What a gateway itself says about missing records.
    fn own_words(&mut self, at: At, is_gap: bool, line: &[u8]) {
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
        if self.breaks.len() + self.report.findings.len() + self.strange.len() < MOST_FINDINGS {
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

    /// The record at hand does not carry the hash of the one before it.
    fn link(&mut self, at: At, line: &[u8], own: Hash, carries: Hash) {
        if self.breaks.len() + self.report.findings.len() >= MOST_FINDINGS {
            self.report.more += 1;
            return;
        }
        let before = (self.report.records > 0).then(|| self.place.clone());
        let place = self.place_of(at, Some(line));
        self.breaks.push(Break { at, place, own, carries, before });
    }

    fn add(&mut self, at: At, place: Place, problem: Problem) {
        match self.breaks.len() + self.report.findings.len() < MOST_FINDINGS {
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

    /// Compares the record at hand with what the head says of this segment.
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
            // What is said of the place already, and says less or more than this.
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
        // What is out of order at the end is no addition.
        let seen = self.end.seen;
        let moved = |one: &Finding| one.at >= seen && matches!(one.problem, Problem::Moved { .. });
        if findings.iter().any(moved) {
            findings.retain(|finding| !matches!(finding.problem, Problem::Beyond { .. }));
        }
        findings.sort_by_key(|finding| finding.at);
        Ok(self.report)
    }

    /// Whether the chain ends where the head says.
    fn ends(&mut self) {
        let stream = &self.found.stream;
        let head = match self.found.known {
            Known::To(head) => head,
            _ if self.report.records == 0 => return,
            known => {
                let problem = Problem::NoHead { unreadable: known == Known::Unreadable };
                let name = format!("{}.head", stream.name());
                return self.add(self.at, Place::new(name, 0, None), problem);
            }
        };
        let is_ahead = head.segment > self.number
            || (head.segment == self.number && self.end.whole.is_none_or(|end| end < head.bytes));
        match (self.end.since, self.end.beyond.take()) {
            (Some(records), Some((at, place))) => {
                self.report.is_written =
                    stream.is_written() || Known::read(stream) != self.found.known;
                // The head is written a moment after records that come fast.
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
            // A head that could not be written any more, and whose segment's time is over.
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
