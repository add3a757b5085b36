//! `toolward tail`: calls, refusals and lists as they come.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use toolward_gateway::audit::read::follow::Follower;
use toolward_gateway::audit::read::{opening, streams};

use super::audit::filter::{Filter, Match, Matcher};
use super::audit::folder::{folder, look};
use super::audit::latest::latest;
use super::audit::out::RowsOut;
use super::audit::row::{joined, told};
use crate::cli::TailArgs;
use crate::exit::{self, Failure};

/// How often files are looked at.
const EVERY: Duration = Duration::from_millis(100);
/// A call that takes longer is shown before it has ended.
const LONG: Duration = Duration::from_secs(1);
/// How far back the first rows are looked for, in each stream.
const BACK: u64 = 64 << 20;

pub(crate) fn run(args: TailArgs) -> Result<u8, Failure> {
    let filter = Filter::new(args.filter)?;
    let folder = folder(&args.record)?;
    let found = look(&folder)?;
    let mut out = RowsOut::new(args.output.json);
    let latest = latest(&found, &filter, args.lines, BACK)?.rows;
    let mut matcher = Matcher::new(filter);
    for row in &latest {
        out.row(row)?;
        if row["kind"] == "intent" && row.get("outcome").is_none() {
            matcher.expect(row);
        }
    }
    out.out.flush()?;
    if args.no_follow {
        return Ok(exit::OK);
    }
    let followers = found.iter().map(Follower::after).collect::<Result<Vec<_>, _>>()?;
    follow(&folder, followers, matcher, &mut out)
}

/// Shows what comes, until the process is ended or nobody reads any more.
fn follow(
    folder: &Path,
    mut followers: Vec<Follower>,
    matcher: Matcher,
    out: &mut RowsOut,
) -> Result<u8, Failure> {
    let mut live = Live { matcher, long: VecDeque::new(), ends: HashMap::new() };
    loop {
        // Another process writes a stream of its own.
        for stream in streams(folder).unwrap_or_default() {
            if followers.iter().all(|follower| *follower.stream() != stream) {
                followers.push(Follower::from_beginning(&stream));
            }
        }
        let mut rows = Vec::new();
        for follower in &mut followers {
            follower.poll(&mut |line| rows.extend(live.row(line)))?;
        }
        rows.extend(live.under_way());
        rows.sort_by(|one, other| one["id"].as_str().cmp(&other["id"].as_str()));
        for row in &rows {
            out.row(row)?;
        }
        out.out.flush()?;
        std::thread::sleep(EVERY);
    }
}

/// Calls that are under way.
struct Live {
    matcher: Matcher,
    /// Those that have not been shown, by when they came.
    long: VecDeque<(Instant, String)>,
    ends: HashMap<String, Value>,
}

impl Live {
    /// The row that a line completes.
    fn row(&mut self, line: &[u8]) -> Option<Value> {
        let Match { record, intent } = self.matcher.take(line, opening(line)?)?;
        let filter = &self.matcher.filter;
        let in_time = |record: &Value| filter.in_time(record["time"].as_str().unwrap_or_default());
        let row = match (record["kind"].as_str(), intent) {
            (Some("intent"), _) => {
                if filter.wants("intent") && in_time(&record) {
                    let id = record["id"].as_str()?.to_string();
                    self.long.push_back((Instant::now(), id.clone()));
                    self.ends.insert(id, record);
                }
                None
            }
            (_, Some(intent)) => {
                self.ends.remove(intent["id"].as_str().unwrap_or_default());
                match filter.wants("intent") && in_time(&intent) {
                    true => Some(joined(intent, Some(&record))),
                    false if !filter.wants("intent") && filter.wants("outcome") => {
                        Some(joined(told(record, &intent), None))
                    }
                    false => None,
                }
            }
            (_, None) => in_time(&record).then(|| joined(record, None)),
        };
        // Too many are under way to be shown twice.
        if let Some(given_up) = self.matcher.give_up() {
            self.ends.remove(given_up["id"].as_str().unwrap_or_default());
        }
        row
    }

    /// Calls that have been under way for long, once each.
    fn under_way(&mut self) -> Vec<Value> {
        let mut rows = Vec::new();
        while let Some((_, id)) = self.long.pop_front_if(|(since, _)| since.elapsed() >= LONG) {
            rows.extend(self.ends.remove(&id).map(|record| joined(record, None)));
        }
        rows
    }
}
