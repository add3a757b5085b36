//! All records of a folder in the order of their ids, which is that of time. Each stream is read as
//! it goes: nothing is held but one line of each.

use std::ops::ControlFlow;

use toolward_config::neutral::neutralise;
use toolward_gateway::audit::line::time;
use toolward_gateway::audit::read::lines::{Line, Reader};
use toolward_gateway::audit::read::{Found, Opening, opening};

use super::progress::Progress;
use crate::exit::Failure;

/// Calls are looked for this much earlier than what came of them, in microseconds.
pub(crate) const LONGEST_CALL: u64 = 3_600_000_000;

/// Reads on and on, in order.
pub(crate) struct Scan {
    cursors: Vec<Cursor>,
    pub(crate) progress: Progress,
    /// Lines that are no records.
    pub(crate) unreadable: u64,
}

/// One stream.
struct Cursor {
    found: Found,
    next_segment: usize,
    reader: Option<Reader>,
    /// The line at hand, and its id.
    line: Vec<u8>,
    id: String,
}

impl Scan {
    /// All records, or those that can matter where nothing before a point in time does.
    pub(crate) fn new(found: Vec<Found>, since: Option<u64>) -> Result<Scan, Failure> {
        let from = since.map(|since| id_at(since.saturating_sub(LONGEST_CALL)));
        let mut total = 0;
        let cursors = found.into_iter().map(|found| {
            let next_segment = from.as_deref().map_or(0, |from| first_segment(&found, from));
            total += found.segments.iter().skip(next_segment).map(|one| one.bytes).sum::<u64>();
            let (line, id) = (Vec::new(), String::new());
            Cursor { found, next_segment, reader: None, line, id }
        });
        let cursors = cursors.collect();
        let mut scan = Scan { cursors, progress: Progress::new(total), unreadable: 0 };
        for index in 0..scan.cursors.len() {
            scan.advance(index)?;
        }
        Ok(scan)
    }

    /// Gives every record, until there is none or no more are wanted.
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

    /// Goes to the next record of a stream.
    fn advance(&mut self, index: usize) -> Result<(), Failure> {
        let Some(cursor) = self.cursors.get_mut(index) else { return Ok(()) };
        loop {
            let Some(reader) = &mut cursor.reader else {
                let Some(segment) = cursor.found.segments.get(cursor.next_segment) else {
                    cursor.id.clear();
                    return Ok(());
                };
                cursor.next_segment += 1;
                match segment.open() {
                    Ok(file) => cursor.reader = Some(Reader::new(file, segment.bytes)),
                    // Its time is over since.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => {
                        let path = segment.path.display().to_string();
                        let path = neutralise(&path);
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
                // It is being written, or the next gateway takes it off.
                Some(Line::Torn(_)) => {}
                None => cursor.reader = None,
            }
        }
    }
}

/// The smallest id of a point in time.
pub(crate) fn id_at(micros: u64) -> String {
    format!("{micros:012x}")
}

/// The text under which a record of a point in time has its `time`.
pub(crate) fn time_at(micros: u64) -> String {
    time(micros)
}

/// The last segment that begins before an id: what comes before it is older.
pub(crate) fn first_segment(found: &Found, id: &str) -> usize {
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

/// Says that lines were left out, where that is so.
pub(crate) fn left_out(unreadable: u64) -> Option<String> {
    let lines = match unreadable {
        0 => return None,
        1 => "1 line is no record and was".into(),
        lines => format!("{lines} lines are no records and were"),
    };
    Some(format!("warning: {lines} left out; `toolward audit verify` names the places"))
}
