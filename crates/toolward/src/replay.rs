//! Replays the audit log against a policy: which past calls and listings it would decide differently.
//!
//! Records are streamed. A subject (an agent, a server and a name) is decided once, and again only for calls whose action
//! or arguments matter. Only counts are kept, so memory depends on the number of distinct subjects and not on the length of
//! the log.
//!
//! | module | purpose |
//! |---|---|
//! | [`record`] | a record as a past call or listing |
//! | [`subjects`] | decided subjects |
//! | [`listings`] | names that listings would gain and lose |
//! | [`report`] | the result |
//! | [`candidate`] | the policy to compare with |

pub(crate) mod candidate;
mod listings;
pub(crate) mod record;
pub(crate) mod report;
mod subjects;

use std::ops::ControlFlow;

use serde_json::Value;
use toolward_gateway::audit::read::StreamSnapshot;
use toolward_policy::{Catalogue, Policy};

use self::listings::Listings;
use self::record::{NotCompared, Past};
use self::report::{Report, Skipped};
use self::subjects::Subjects;
use crate::audit_log::scan::{DISORDER, Scan, time_at};
use crate::exit::Failure;

/// The period of records, in microseconds since 1970.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Period {
    pub(crate) since: Option<u64>,
    pub(crate) until: Option<u64>,
    /// Stop after this many records.
    pub(crate) max_records: Option<u64>,
}

/// The policy that past calls are decided by, and what is known about tools.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) catalogue: &'a Catalogue,
    /// The policy under which clients saw the names in listings, for renamed tools.
    pub(crate) naming: Option<&'a Policy>,
    /// The separator between server and tool in these names.
    pub(crate) separator: &'a str,
}

/// Visits the records of a period, oldest first. Returns what was not visited.
pub(crate) fn each_record(
    found: Vec<StreamSnapshot>,
    period: Period,
    mut take: impl FnMut(&Value) -> Result<ControlFlow<()>, Failure>,
) -> Result<Skipped, Failure> {
    let (since, until) = (period.since.map(time_at), period.until.map(time_at));
    // Records may be slightly out of order.
    let end = period.until.map(|until| time_at(until.saturating_add(DISORDER)));
    let mut scan = Scan::new(found, period.since, DISORDER)?;
    let (mut records, mut malformed, mut cut) = (0, 0, false);
    scan.each(|line, opening, _| {
        if end.as_deref().is_some_and(|end| end < opening.time) {
            return Ok(ControlFlow::Break(()));
        }
        let early = since.as_deref().is_some_and(|since| opening.time < since);
        let late = until.as_deref().is_some_and(|until| until < opening.time);
        if early || late {
            return Ok(ControlFlow::Continue(()));
        }
        if period.max_records.is_some_and(|max| records >= max) {
            cut = true;
            return Ok(ControlFlow::Break(()));
        }
        records += 1;
        // Half of all records are outcomes.
        if opening.kind == "outcome" {
            return Ok(ControlFlow::Continue(()));
        }
        match serde_json::from_slice::<Value>(line) {
            Ok(record) => take(&record),
            Err(_) => {
                malformed += 1;
                Ok(ControlFlow::Continue(()))
            }
        }
    })?;
    scan.progress.end();
    let unreadable = scan.unreadable + malformed;
    Ok(Skipped { records, cut, unreadable, torn: scan.torn, ..Skipped::default() })
}

/// Replays the records of a period, of all agents or of one.
pub(crate) fn replay(
    found: Vec<StreamSnapshot>,
    period: Period,
    rules: Rules<'_>,
    agent: Option<&str>,
) -> Result<Report, Failure> {
    let mut subjects = Subjects::new(rules);
    let mut listings = Listings::new(rules);
    let mut not_compared = Skipped::default();
    let is_wanted = |of: Option<&str>| agent.is_none() || of == agent;
    let skipped = each_record(found, period, |record| {
        match Past::of(record) {
            Past::Call(call) if is_wanted(call.agent) => {
                let text = |name: &str| record[name].as_str().unwrap_or_default();
                subjects.add(&call, text("time"), text("id"));
            }
            Past::Listing(listing) if is_wanted(listing.agent) => listings.add(&listing),
            Past::NotCompared(why) if is_wanted(record["agent"].as_str()) => not_compared.add(why),
            // A record of another version may be about any agent.
            Past::NotCompared(NotCompared::OtherVersion) => {
                not_compared.add(NotCompared::OtherVersion);
            }
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let skipped = Skipped {
        records: skipped.records,
        cut: skipped.cut,
        unreadable: skipped.unreadable,
        torn: skipped.torn,
        ..not_compared
    };
    Ok(Report::new(subjects, listings, skipped))
}
