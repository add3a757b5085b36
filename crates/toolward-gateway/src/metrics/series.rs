//! Labeled metrics for `/metrics`: requests, calls, decisions and refusals, with durations.
//!
//! Each thread counts in maps of its own, and sums are computed when they are read. Label values are names from the
//! configuration and from servers' lists, never text that a caller sends, so that a scanner cannot create series. The
//! number of series is limited all the same: beyond [`MAX_SERIES`], names become [`OTHER`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hashbrown::{Equivalent, HashMap};

use super::per_thread::PerThread;
use crate::lock::LockUnpoisoned;
use crate::traces::Traces;

/// The value of a label whose name is not known, or not counted individually.
pub const OTHER: &str = "_OTHER";
/// The maximum number of series of each metric.
pub const MAX_SERIES: usize = 10_000;
/// Upper bounds of the buckets, in microseconds. OpenTelemetry's bounds for MCP begin at 10 ms, which is longer than
/// most calls.
pub const BOUNDS_MICROS: [u64; 18] = [
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
];

/// The metrics of a process. They survive reloads.
#[derive(Debug, Default)]
pub struct Series {
    /// Requests of clients: method, protocol version, error type; agent.
    pub requests: Family<Durations>,
    /// Calls of servers: method, error type; server, tool or prompt.
    pub calls: Family<Durations>,
    /// Decisions of the policy: verdict, step; agent, server; layer.
    pub decisions: Family<u64>,
    /// Refusals: reason.
    pub refusals: Family<u64>,
    /// Spans of requests and calls.
    pub traces: Traces,
}

impl Series {
    /// Begins to time a request.
    pub(crate) fn begin(
        &self,
        method: &'static str,
        version: &'static str,
        agent: Arc<str>,
    ) -> RequestTimer<'_> {
        RequestTimer {
            series: self,
            words: [method, version, "cancelled"],
            agent,
            begun: Instant::now(),
        }
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        self.refusals.count(Labels::new([reason, "", ""], ["", ""]));
    }
}

/// A request in flight. One that is dropped was cancelled.
#[must_use]
pub(crate) struct RequestTimer<'s> {
    series: &'s Series,
    words: [&'static str; 3],
    agent: Arc<str>,
    begun: Instant,
}

impl RequestTimer<'_> {
    /// Ends the request with an error type, which is empty if it succeeded; `None` if it was cancelled.
    pub(crate) fn end(mut self, error_type: Option<&'static str>) {
        if let (Some(error_type), [_, _, word]) = (error_type, &mut self.words) {
            *word = error_type;
        }
    }
}

impl Drop for RequestTimer<'_> {
    fn drop(&mut self) {
        let labels = Labels::new(self.words, [&self.agent, ""]);
        self.series.requests.observe(labels, self.begun.elapsed());
    }
}

/// The label values of one series: words of this program, names, and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels<Name> {
    pub words: [&'static str; 3],
    pub names: [Name; 2],
    pub number: Option<u16>,
}

impl<'n> Labels<&'n str> {
    pub fn new(words: [&'static str; 3], names: [&'n str; 2]) -> Labels<&'n str> {
        Labels { words, names, number: None }
    }

    fn owned(&self) -> Labels<Arc<str>> {
        Labels { words: self.words, names: self.names.map(Arc::from), number: self.number }
    }
}

impl Equivalent<Labels<Arc<str>>> for Labels<&str> {
    fn equivalent(&self, key: &Labels<Arc<str>>) -> bool {
        let [first, second] = &key.names;
        self.words == key.words && self.names == [&**first, &**second] && self.number == key.number
    }
}

/// A value that is counted per thread.
pub trait Summable: Default + Clone {
    fn add(&mut self, other: &Self);
}

impl Summable for u64 {
    fn add(&mut self, other: &u64) {
        *self += other;
    }
}

/// All series of one metric.
#[derive(Debug)]
pub struct Family<Value>(PerThread<Mutex<HashMap<Labels<Arc<str>>, Value>>>);

impl<Value> Default for Family<Value> {
    fn default() -> Self {
        Family(PerThread::default())
    }
}

impl<Value: Summable> Family<Value> {
    fn update(&self, labels: Labels<&str>, change: impl FnOnce(&mut Value)) {
        let Some(own) = self.0.own(Mutex::default) else { return };
        let mut own = own.locked();
        if let Some(value) = own.get_mut(&labels) {
            return change(value);
        }
        let labels = match own.len() < MAX_SERIES {
            true => labels,
            false => Labels { names: [OTHER; 2], number: None, ..labels },
        };
        change(own.entry(labels.owned()).or_default());
    }

    /// The sums of all threads, in the order of their labels.
    pub fn sums(&self) -> BTreeMap<Labels<Arc<str>>, Value> {
        let mut sums: BTreeMap<Labels<Arc<str>>, Value> = BTreeMap::new();
        for own in self.0.all() {
            for (labels, value) in own.locked().iter() {
                let full = sums.len() >= MAX_SERIES && !sums.contains_key(labels);
                let other = || Labels {
                    names: [OTHER.into(), OTHER.into()],
                    number: None,
                    ..labels.clone()
                };
                let labels = if full { other() } else { labels.clone() };
                sums.entry(labels).or_default().add(value);
            }
        }
        sums
    }
}

impl Family<u64> {
    pub(crate) fn count(&self, labels: Labels<&str>) {
        self.update(labels, |count| *count += 1);
    }
}

impl Family<Durations> {
    pub(crate) fn observe(&self, labels: Labels<&str>, took: Duration) {
        self.update(labels, |durations| durations.observe(took));
    }
}

/// A histogram of durations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Durations {
    pub sum_micros: u64,
    /// The number of durations in each bucket, not cumulative. The last one has no upper bound.
    pub buckets: [u64; BOUNDS_MICROS.len() + 1],
}

impl Durations {
    fn observe(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros = self.sum_micros.saturating_add(micros);
        let bucket = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        if let Some(count) = self.buckets.get_mut(bucket) {
            *count += 1;
        }
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl Summable for Durations {
    fn add(&mut self, other: &Durations) {
        self.sum_micros = self.sum_micros.saturating_add(other.sum_micros);
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_summed_by_labels() {
        let family = Family::<Durations>::default();
        let labels = |error| Labels::new(["tools/call", error, ""], ["files", "read"]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    family.observe(labels(""), Duration::from_micros(700));
                    family.observe(labels("tool_error"), Duration::from_secs(1000));
                });
            }
        });
        let sums = family.sums();
        assert_eq!(sums.len(), 2);
        let [fast, slow] =
            [labels(""), labels("tool_error")].map(|labels| sums[&labels.owned()].clone());
        assert_eq!((fast.count(), fast.sum_micros, fast.buckets[1]), (4, 2800, 4));
        assert_eq!((slow.count(), slow.buckets[BOUNDS_MICROS.len()]), (4, 4));
    }

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let mut durations = Durations::default();
        durations.observe(Duration::from_micros(500));
        durations.observe(Duration::from_micros(501));
        assert_eq!((durations.buckets[0], durations.buckets[1]), (1, 1));
    }

    #[test]
    fn the_number_of_series_is_limited() {
        let family = Family::<u64>::default();
        let names: Vec<String> =
            (0..MAX_SERIES + 500).map(|number| format!("tool-{number}")).collect();
        for name in &names {
            family.count(Labels::new(["allow", "", ""], ["agent", name]));
        }
        let sums = family.sums();
        // Series that are over the limit are counted as one.
        assert!(sums.len() <= MAX_SERIES + 1, "{}", sums.len());
        let other = Labels::new(["allow", "", ""], [OTHER, OTHER]).owned();
        assert!(sums[&other] >= 500);
        assert_eq!(sums.values().sum::<u64>(), names.len() as u64);
    }
}
