//! Reads all records of a directory in the order of their ids, which is chronological. Streams are merged while
//! reading: only one line of each is held in memory.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

use toolward_config::sanitize;
use toolward_gateway::audit::line::time;
use toolward_gateway::audit::read::lines::{Line, Reader};
use toolward_gateway::audit::read::{Opening, Segment, StreamSnapshot, opening};

use super::progress::Progress;
use crate::exit::Failure;

/// How much earlier than its outcome a call may have begun, in microseconds.
pub(crate) const LONGEST_CALL: u64 = 3_600_000_000;
/// How far records may be out of order, in microseconds.
pub(crate) const DISORDER: u64 = 10_000_000;
/// Segments up to this size are read completely instead of searched.
const SHORT: u64 = 256 << 10;

/// Reads all records in order.
pub(crate) struct Scan {
    cursors: Vec<StreamCursor>,
    pub(crate) progress: Progress,
    /// The number of lines that are not records.
    pub(crate) unreadable: u64,
    /// The number of incomplete last lines.
    pub(crate) torn: u64,
}

/// One stream.
struct StreamCursor {
    found: StreamSnapshot,
    next_segment: usize,
    /// The offset at which the next segment is read.
    from: u64,
    reader: Option<Reader>,
    /// The current line, and its id.
    line: Vec<u8>,
    id: String,
}

impl Scan {
    /// All records, or those that can be relevant from a point in time on. `before`: how much earlier records
    /// may be relevant, in microseconds.
    pub(crate) fn new(
        found: Vec<StreamSnapshot>,
        since: Option<u64>,
        before: u64,
    ) -> Result<Scan, Failure> {
        let from = since.map(|since| id_at(since.saturating_sub(before)));
        let mut total = 0;
        let cursors = found.into_iter().map(|found| {
            let next_segment = from.as_deref().map_or(0, |from| first_segment(&found, from));
            let first = from.as_deref().zip(found.segments.get(next_segment));
            let from = first.map_or(0, |(from, segment)| line_at(segment, from));
            total += found.segments.iter().skip(next_segment).map(|one| one.bytes).sum::<u64>();
            total -= from;
            let (line, id) = (Vec::new(), String::new());
            StreamCursor { found, next_segment, from, reader: None, line, id }
        });
        let cursors = cursors.collect();
        let mut scan = Scan { cursors, progress: Progress::new(total), unreadable: 0, torn: 0 };
        for index in 0..scan.cursors.len() {
            scan.advance(index)?;
        }
        Ok(scan)
    }

    /// Visits every record until the end, or until the visitor stops.
    pub(crate) fn each(
        &mut self,
        mut take: impl FnMut(&[u8], Opening<'_>, &mut Progress) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        loop {
            let there = self.cursors.iter().enumerate().filter(|(_, cursor)| !cursor.id.is_empty());
            let first = there.min_by(|(_, one), (_, other)| one.id.cmp(&other.id));
            let Some((index, cursor)) = first else { return Ok(()) };
            if let Some(opening) = opening(&cursor.line)
                && take(&cursor.line, opening, &mut self.progress)?.is_break()
            {
                return Ok(());
            }
            self.advance(index)?;
        }
    }

    /// Advances to the next record of a stream.
    fn advance(&mut self, index: usize) -> Result<(), Failure> {
        let Some(cursor) = self.cursors.get_mut(index) else { return Ok(()) };
        loop {
            let Some(reader) = &mut cursor.reader else {
                let Some(segment) = cursor.found.segments.get(cursor.next_segment) else {
                    cursor.id.clear();
                    return Ok(());
                };
                cursor.next_segment += 1;
                let from = std::mem::take(&mut cursor.from);
                match segment.open() {
                    Ok(file) => cursor.reader = Some(Reader::from(file, from, segment.bytes)),
                    // The segment has expired in the meantime.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => {
                        let path = segment.path.display().to_string();
                        let path = sanitize(&path);
                        return Err(Failure::invalid(format!("error: {path}: {error}")));
                    }
                }
                continue;
            };
            match reader.next()? {
                Some(Line::Whole(line)) => match opening(line) {
                    Some(found) if !found.id.is_empty() => {
                        cursor.id.clear();
                        cursor.id.push_str(found.id);
                        cursor.line.clear();
                        cursor.line.extend_from_slice(line);
                        let read = reader.take_read();
                        if read > 0 {
                            self.progress.add(read);
                        }
                        return Ok(());
                    }
                    _ => self.unreadable += 1,
                },
                Some(Line::TooLong) => self.unreadable += 1,
                // It is being written, or the next gateway removes it.
                Some(Line::Torn(_)) => self.torn += 1,
                None => cursor.reader = None,
            }
        }
    }
}

/// The smallest id of a point in time.
pub(crate) fn id_at(micros: u64) -> String {
    format!("{micros:012x}")
}

/// A point in time as written in the `time` field of records.
pub(crate) fn time_at(micros: u64) -> String {
    time(micros)
}

/// The last segment that begins before an id: earlier segments are older.
pub(crate) fn first_segment(found: &StreamSnapshot, id: &str) -> usize {
    let mut index = found.segments.len().saturating_sub(1);
    while index > 0 {
        let first = found.segments.get(index).and_then(|segment| segment.first_id());
        if first.is_some_and(|first| *first < *id) {
            break;
        }
        index -= 1;
    }
    index
}

/// The offset of a line before which everything is older than an id. Found by binary search, so the size of
/// the segment does not matter.
fn line_at(segment: &Segment, id: &str) -> u64 {
    let Ok(file) = segment.open() else { return 0 };
    let (mut older, mut end) = (0, segment.bytes);
    while end - older > SHORT {
        let middle = older + (end - older) / 2;
        match next_in_order(&file, middle, end) {
            Some((at, found)) if *found < *id => older = at,
            _ => end = middle,
        }
    }
    older
}

/// The first record after an offset that is in chronological order: its offset and id. Outcomes may be
/// written later, if the log could not be written at the time.
fn next_in_order(file: &File, from: u64, end: u64) -> Option<(u64, String)> {
    let mut chunk = vec![0; 64 << 10];
    let mut at = from;
    while at < end {
        let read = file.read_at(&mut chunk, at).ok().filter(|read| *read > 0)?;
        let bytes = chunk.get(..read)?;
        let mut searched = 0;
        while let Some(stop) = memchr::memchr(b'\n', bytes.get(searched..)?) {
            searched += stop + 1;
            let line = bytes.get(searched..)?;
            match opening(line) {
                Some(found) if !matches!(found.kind, "outcome" | "turned-away") => {
                    let at = at + searched as u64;
                    return (at < end).then(|| (at, found.id.into()));
                }
                // The beginning of the line may be missing here.
                None if line.len() < 512 => break,
                _ => {}
            }
        }
        // The last line break is read again, together with the following bytes.
        let passed = if searched > 0 { searched - 1 } else { read };
        if passed == 0 {
            return None;
        }
        at += passed as u64;
    }
    None
}

/// Warns if lines were skipped.
pub(crate) fn left_out(unreadable: u64) -> Option<String> {
    let lines = match unreadable {
        0 => return None,
        1 => "1 line is not a record and was".into(),
        lines => format!("{lines} lines are not records and were"),
    };
    Some(format!("warning: {lines} left out; `toolward audit verify` lists them"))
}
