//! Follows the audit log: new records as rows, for `toolward tail` and the admin UI.
//!
//! A call is one row together with its outcome, or without it if the call takes long.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use toolward_gateway::audit::read::follow::Follower;
use toolward_gateway::audit::read::{StreamSnapshot, opening, streams};

use super::filter::{Match, Matcher};
use super::row::{joined, told};
use crate::exit::Failure;

/// Follows all streams of a directory.
pub(crate) struct RowFollower {
    folder: PathBuf,
    streams: Vec<Follower>,
    live: Live,
}

/// New rows since the last poll.
#[derive(Default)]
pub(crate) struct NewRows {
    /// In the order of their ids.
    pub(crate) rows: Vec<Value>,
    /// Records that were skipped because there were too many.
    pub(crate) skipped: Option<SkippedRecords>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SkippedRecords {
    /// Approximate number; `None` if unknown.
    pub(crate) records: Option<u64>,
}

impl RowFollower {
    /// Follows the streams from a snapshot on. A call that takes longer than `long` is returned before it has
    /// ended, and again at its end.
    pub(crate) fn after(
        folder: PathBuf,
        found: &[StreamSnapshot],
        matcher: Matcher,
        long: Duration,
    ) -> Result<RowFollower, Failure> {
        let streams = found.iter().map(|found| Ok(Follower::after(found)?));
        let streams = streams.collect::<Result<Vec<_>, Failure>>()?;
        let live = Live { matcher, long, waiting: VecDeque::new(), calls: HashMap::new() };
        Ok(RowFollower { folder, streams, live })
    }

    /// Returns new rows. If a stream has more than `most` new bytes, all but the end is skipped.
    pub(crate) fn poll(&mut self, most: Option<u64>) -> Result<NewRows, Failure> {
        // Another process may have started a new stream.
        for stream in streams(&self.folder).unwrap_or_default() {
            if self.streams.iter().all(|known| *known.stream() != stream) {
                self.streams.push(Follower::from_beginning(&stream));
            }
        }
        let mut arrived = NewRows::default();
        for follower in &mut self.streams {
            if let Some(most) = most.filter(|most| follower.behind() > *most) {
                let so_far = arrived.skipped.map_or(Some(0), |skipped| skipped.records);
                let records = so_far.zip(follower.skip(most / 2)?).map(|(one, other)| one + other);
                arrived.skipped = Some(SkippedRecords { records });
                self.live.forget();
            }
            let (rows, live) = (&mut arrived.rows, &mut self.live);
            follower.poll(&mut |line| rows.extend(live.row(line)))?;
        }
        arrived.rows.extend(self.live.under_way());
        arrived.rows.sort_by(|one, other| one["id"].as_str().cmp(&other["id"].as_str()));
        Ok(arrived)
    }
}

/// Calls in flight.
struct Live {
    matcher: Matcher,
    long: Duration,
    /// Calls that have not been shown, by the time of their arrival.
    waiting: VecDeque<(Instant, String)>,
    calls: HashMap<String, Value>,
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
                    self.waiting.push_back((Instant::now(), id.clone()));
                    self.calls.insert(id, record);
                }
                None
            }
            (_, Some(intent)) => {
                self.calls.remove(intent["id"].as_str().unwrap_or_default());
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
        // There are too many calls in flight to show them twice.
        if let Some(given_up) = self.matcher.give_up() {
            self.calls.remove(given_up["id"].as_str().unwrap_or_default());
        }
        row
    }

    /// Forgets all calls in flight: their outcomes may have been skipped.
    fn forget(&mut self) {
        drop(self.matcher.unended());
        self.waiting.clear();
        self.calls.clear();
    }

    /// Calls in flight for long, each returned once.
    fn under_way(&mut self) -> Vec<Value> {
        let (mut rows, long) = (Vec::new(), self.long);
        while let Some((_, id)) = self.waiting.pop_front_if(|(since, _)| since.elapsed() >= long) {
            rows.extend(self.calls.remove(&id).map(|record| joined(record, None)));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit_log::filter::Filter;
    use crate::cli::FilterArgs;

    fn line(number: u64) -> String {
        format!(
            "{{\"id\":\"{number:012x}-0000000a-{number:x}\",\"time\":\"t\",\"kind\":\"refusal\",\
             \"agent\":\"a\"}}\n"
        )
    }

    #[test]
    fn when_too_much_comes_the_end_is_shown_and_the_rest_counted() {
        use std::io::Write;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        std::fs::write(&path, line(1)).unwrap();
        let found: Vec<StreamSnapshot> = streams(folder.path())
            .unwrap()
            .iter()
            .map(|s| StreamSnapshot::look(s).unwrap())
            .collect();
        let matcher = Matcher::new(Filter::new(FilterArgs::default()).unwrap());
        let folder_path = folder.path().to_path_buf();
        let mut arriving =
            RowFollower::after(folder_path, &found, matcher, Duration::from_secs(1)).unwrap();
        let mut file = std::fs::File::options().append(true).open(&path).unwrap();
        file.write_all(line(2).as_bytes()).unwrap();
        let arrived = arriving.poll(Some(1000)).unwrap();
        assert_eq!((arrived.rows.len(), arrived.skipped), (1, None));
        let many: String = (3..=1000).map(line).collect();
        file.write_all(many.as_bytes()).unwrap();
        let arrived = arriving.poll(Some(1000)).unwrap();
        let rows = arrived.rows.len() as u64;
        assert!((2..=10).contains(&rows), "{rows}");
        assert_eq!(arrived.skipped, Some(SkippedRecords { records: Some(998 - rows) }));
        let last = arrived.rows.last().unwrap()["id"].as_str().unwrap();
        assert!(last.ends_with("-3e8"), "{last}");
        let arrived = arriving.poll(Some(1000)).unwrap();
        assert_eq!((arrived.rows.len(), arrived.skipped), (0, None));
    }
}
