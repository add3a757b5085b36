//! Diagnosis of a broken chain.

use std::fmt;
use std::io::Result;

use hashbrown::HashMap;

use super::lines::{Line, Reader};
use super::{Opening, StreamSnapshot, opening};
use crate::audit::line::{Hash, NOTHING, hash};

/// A position in a stream: the index of the segment, and the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct At {
    pub(super) segment: usize,
    pub(super) line: u64,
}

/// The location of a record, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The file's name.
    pub file: String,
    /// 0: the file as a whole.
    pub line: u64,
    /// Empty if the line is not a record.
    pub id: String,
    pub time: String,
}

impl Place {
    pub(super) fn new(file: String, line: u64, opening: Option<Opening<'_>>) -> Place {
        let (id, time) = opening.map_or(("", ""), |opening| (opening.id, opening.time));
        Place { file, line, id: id.into(), time: time.into() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.id.is_empty() {
            write!(f, " ({}, {})", self.id, self.time)?;
        }
        Ok(())
    }
}

/// A problem and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub(super) at: At,
    pub place: Place,
    pub problem: Problem,
}

impl Finding {
    /// Whether the cause is known, not only that something is wrong.
    pub(super) fn is_certain(&self) -> bool {
        !matches!(self.problem, Problem::Link { .. } | Problem::Inserted { .. })
    }
}

/// A problem of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// It does not continue the previous record.
    Link {
        before: Option<Place>,
    },
    /// It is the same line as another one.
    Repeated {
        of: Place,
    },
    /// The records around it continue each other. Without `after`: it is before the first record.
    Inserted {
        after: Option<Place>,
        next: Place,
    },
    /// It continues a record other than the one before it.
    Moved {
        after: Option<Place>,
    },
    /// The line is not a record.
    NotARecord {
        inserted: bool,
    },
    /// Segments are missing, and no record documents their expiry.
    Missing {
        from: u64,
        to: u64,
    },
    /// A segment does not begin with a `segment` record.
    NoFirst,
    /// A file contains another segment than its name indicates.
    OtherSegment {
        number: u64,
    },
    /// A closed segment is empty.
    Empty,
    /// The last line of a closed segment is incomplete.
    TornInside,
    NoHead {
        unreadable: bool,
    },
    /// The head includes more records.
    Ahead {
        segment: u64,
        bytes: u64,
    },
    /// The head has another record at this position.
    Differs,
    /// The head does not include these records, and no gateway is writing.
    Beyond {
        records: u64,
    },
    /// A gateway found that records were missing.
    Gap {
        segment: u64,
        bytes: u64,
    },
    /// A gateway found records and no head.
    BeganWithoutHead,
}

impl Problem {
    /// The kind of tampering, in one word.
    pub fn word(&self) -> &'static str {
        match self {
            Problem::Link { .. } | Problem::Differs | Problem::TornInside => "changed",
            Problem::NotARecord { inserted: false } => "changed",
            Problem::NotARecord { inserted: true } => "inserted",
            Problem::Repeated { .. } | Problem::Inserted { .. } | Problem::Beyond { .. } => {
                "inserted"
            }
            Problem::Moved { .. } | Problem::OtherSegment { .. } => "reordered",
            Problem::Missing { .. } | Problem::NoFirst | Problem::Empty => "removed",
            Problem::Ahead { .. } | Problem::Gap { .. } => "removed",
            Problem::NoHead { .. } | Problem::BeganWithoutHead => "no-head",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Link { before: Some(before) } => write!(
                f,
                "it does not continue the previous record, {before}: one of the two was changed, \
                 or records between them were removed"
            ),
            Problem::Link { before: None } => {
                f.write_str("it is not the first record: those before it were removed")
            }
            Problem::Repeated { of } => write!(f, "it repeats {of}"),
            Problem::Inserted { after: Some(after), next } => write!(
                f,
                "it was inserted, as was everything between {after} and {next}: the latter \
                 continues the former"
            ),
            Problem::Inserted { after: None, next } => {
                write!(f, "it was inserted, as was everything before {next}, the first record")
            }
            Problem::Moved { after: Some(after) } => write!(f, "it belongs after {after}"),
            Problem::Moved { after: None } => f.write_str("it belongs at the beginning"),
            Problem::NotARecord { inserted: true } => f.write_str(
                "the line is not a record: it was inserted, because the records around it are consecutive",
            ),
            Problem::NotARecord { inserted: false } => {
                f.write_str("the line is not a record: a record was changed, or it was inserted")
            }
            Problem::Missing { from, to } if from == to => {
                write!(f, "segment {from} is missing, and no record documents its expiry")
            }
            Problem::Missing { from, to } => write!(
                f,
                "segments {from} to {to} are missing, and no record documents their expiry"
            ),
            Problem::NoFirst => f.write_str(
                "the segment does not begin with its first record, which was removed or changed",
            ),
            Problem::OtherSegment { number } => {
                write!(f, "the file has the wrong name: it contains segment {number}")
            }
            Problem::Empty => f.write_str("the segment has no records"),
            Problem::TornInside => f.write_str("the last line of a closed segment is incomplete"),
            Problem::NoHead { unreadable } => write!(
                f,
                "the head {}: removal of records at the end cannot be detected",
                if *unreadable { "cannot be read" } else { "is missing" }
            ),
            Problem::Ahead { segment, bytes } => write!(
                f,
                "records after it were removed: the head includes records up to byte {bytes} of \
                 segment {segment}"
            ),
            Problem::Differs => f.write_str(
                "it differs from the head: it was changed, or the last records were \
                 removed and others written",
            ),
            Problem::Beyond { records } => write!(
                f,
                "the head does not include {}: inserted, or written by a gateway that was killed \
                 at that moment",
                match records {
                    1 => "it".into(),
                    records => format!("the last {records} records"),
                }
            ),
            Problem::BeganWithoutHead => f.write_str(
                "the gateway started with records and without a head: removal of earlier records \
                 cannot be detected",
            ),
            Problem::Gap { segment, bytes } => write!(
                f,
                "records before it were removed: the gateway had written up to byte {bytes} of \
                 segment {segment}, and found less"
            ),
        }
    }
}

/// A record that does not continue the one before it.
pub(super) struct Break {
    pub(super) at: At,
    pub(super) place: Place,
    /// Its own hash, and its `prev` hash.
    pub(super) own: Hash,
    pub(super) carries: Hash,
    pub(super) before: Option<Place>,
}

/// The locations of hashes.
type Spots = HashMap<Hash, Vec<(At, Place)>>;

/// Determines what happened at each break, by searching for the records that they refer to.
pub(super) fn diagnose(found: &StreamSnapshot, breaks: Vec<Break>) -> Result<Vec<Finding>> {
    if breaks.is_empty() {
        return Ok(Vec::new());
    }
    let mut spots: Spots = HashMap::new();
    for one in &breaks {
        spots.entry(one.own).or_default();
        spots.entry(one.carries).or_default();
    }
    locate(found, &mut spots)?;
    // The `prev` hash of the very first record is all zeros.
    spots.entry(NOTHING).or_default().push((At::default(), Place::default()));
    let sorts: Vec<Sort> = breaks.iter().map(|one| Sort::of(one, &spots)).collect();
    let mut said = vec![None; breaks.len()];
    for (index, (one, sort)) in breaks.iter().zip(&sorts).enumerate() {
        // Earlier breaks, after the position that this one continues.
        let since = |at: &At| {
            let at = *at;
            breaks.iter().enumerate().take(index).filter(move |(_, other)| other.at > at)
        };
        let place = |place: &Place| Some(place.clone()).filter(|place| place.line > 0);
        said[index] = match sort {
            Sort::Repeats(of) => Some((one.place.clone(), Problem::Repeated { of: of.clone() })),
            Sort::Follows { at, place: after, later: false } => {
                let others: Vec<usize> = since(at).map(|(index, _)| index).collect();
                let is = |fits: fn(&Problem) -> bool| {
                    others.iter().any(|other| said[*other].as_ref().is_some_and(|(_, p)| fits(p)))
                };
                if is(|problem| matches!(problem, Problem::Moved { .. })) {
                    Some((one.place.clone(), Problem::Moved { after: place(after) }))
                } else if is(|problem| matches!(problem, Problem::Repeated { .. })) {
                    None
                } else {
                    others.into_iter().for_each(|other| said[other] = None);
                    let inserted = one.before.clone().unwrap_or_else(|| one.place.clone());
                    let problem =
                        Problem::Inserted { after: place(after), next: one.place.clone() };
                    Some((inserted, problem))
                }
            }
            Sort::Follows { place: after, .. } => {
                Some((one.place.clone(), Problem::Moved { after: place(after) }))
            }
            Sort::Unknown => {
                Some((one.place.clone(), Problem::Link { before: one.before.clone() }))
            }
        };
    }
    let named = breaks.iter().zip(said).filter_map(|(one, said)| {
        let (place, problem) = said?;
        Some(Finding { at: one.at, place, problem })
    });
    Ok(named.collect())
}

/// How a record that does not fit relates to the others.
enum Sort {
    Repeats(Place),
    /// It continues a record elsewhere.
    Follows {
        at: At,
        place: Place,
        later: bool,
    },
    Unknown,
}

impl Sort {
    fn of(one: &Break, spots: &Spots) -> Sort {
        let seen = |hash: &Hash| spots.get(hash).map(Vec::as_slice).unwrap_or_default();
        if let Some((_, first)) = seen(&one.own).first().filter(|(at, _)| *at < one.at) {
            return Sort::Repeats(first.clone());
        }
        let before = seen(&one.carries).iter().rfind(|(at, _)| *at < one.at);
        let after = seen(&one.carries).iter().find(|(at, _)| *at > one.at);
        match (before, after) {
            (Some((at, place)), _) => Sort::Follows { at: *at, place: place.clone(), later: false },
            (None, Some((at, place))) => {
                Sort::Follows { at: *at, place: place.clone(), later: true }
            }
            (None, None) => Sort::Unknown,
        }
    }
}

/// Finds lines by their hashes.
fn locate(found: &StreamSnapshot, spots: &mut Spots) -> Result<()> {
    /// The maximum number of locations to keep per line.
    const MAX_LOCATIONS: usize = 1000;
    for (index, segment) in found.segments.iter().enumerate() {
        let mut reader = Reader::new(segment.open()?, segment.bytes);
        let mut lines = 0;
        while let Some(line) = reader.next()? {
            lines += 1;
            let Line::Whole(line) = line else { continue };
            if let Some(spots) = spots.get_mut(&hash(line))
                && spots.len() < MAX_LOCATIONS
            {
                let file = segment.path.file_name().unwrap_or_default().to_string_lossy();
                let place = Place::new(file.into_owned(), lines, opening(line));
                spots.push((At { segment: index, line: lines }, place));
            }
        }
    }
    Ok(())
}
