//! Calls of one server: number, durations in the last minutes, and failures.
//!
//! Each thread has a ring of time spans. A span has a histogram of durations with four buckets per
//! octave, so that a percentile is off by at most an eighth, and never outside the shortest and
//! longest duration. The exact durations of the first calls of a span are kept, so that percentiles
//! of few calls are exact.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::per_thread::PerThread;

/// The length of a span, and the number of spans kept.
pub(crate) const SPAN: Duration = Duration::from_secs(10);
pub const SPANS: usize = 30;
/// Durations below this many microseconds share one bucket; buckets per octave; octaves.
const MIN_MICROS: u64 = 32;
const BUCKETS_PER_OCTAVE: usize = 4;
const OCTAVES: usize = 21;
const BUCKETS: usize = OCTAVES * BUCKETS_PER_OCTAVE + 1;
/// The number of calls per span and thread whose durations are kept.
const MAX_EXACT: usize = 8;

/// The start of the first span.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The calls of a server.
#[derive(Debug, Default)]
pub struct Calls(PerThread<ThreadCalls>);

#[derive(Debug)]
struct ThreadCalls {
    calls: AtomicU64,
    errors: AtomicU64,
    /// Calls that began on this thread minus calls that ended, which may have been on another one.
    under_way: AtomicUsize,
    ring: Box<[SpanSlot]>,
}

/// One span of time.
#[derive(Debug)]
struct SpanSlot {
    /// The number of the span, from 1; 0 if unused.
    number: AtomicU64,
    errors: AtomicU32,
    /// In microseconds.
    shortest: AtomicU64,
    longest: AtomicU64,
    calls: AtomicU32,
    first: [AtomicU64; MAX_EXACT],
    buckets: [AtomicU32; BUCKETS],
}

impl ThreadCalls {
    fn new() -> ThreadCalls {
        let slice = |_| SpanSlot {
            number: AtomicU64::new(0),
            errors: AtomicU32::new(0),
            shortest: AtomicU64::new(u64::MAX),
            longest: AtomicU64::new(0),
            calls: AtomicU32::new(0),
            first: std::array::from_fn(|_| AtomicU64::new(0)),
            buckets: std::array::from_fn(|_| AtomicU32::new(0)),
        };
        ThreadCalls {
            calls: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            under_way: AtomicUsize::new(0),
            ring: (0..SPANS).map(slice).collect(),
        }
    }

    fn add(&self, span: u64, took: Duration, failed: bool) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.errors.fetch_add(u64::from(failed), Ordering::Relaxed);
        let Some(slice) = self.ring.get(ring_index(span)) else { return };
        let before = slice.number.load(Ordering::Relaxed);
        // The first call of a span reuses the slot of an expired one.
        if before != span {
            let now =
                slice.number.compare_exchange(before, span, Ordering::Relaxed, Ordering::Relaxed);
            if now.is_ok() {
                slice.errors.store(0, Ordering::Relaxed);
                slice.shortest.store(u64::MAX, Ordering::Relaxed);
                slice.longest.store(0, Ordering::Relaxed);
                slice.calls.store(0, Ordering::Relaxed);
                slice.buckets.iter().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
            }
        }
        slice.errors.fetch_add(u32::from(failed), Ordering::Relaxed);
        let micros = in_micros(took);
        slice.shortest.fetch_min(micros, Ordering::Relaxed);
        slice.longest.fetch_max(micros, Ordering::Relaxed);
        let before = slice.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(kept) = usize::try_from(before).ok().and_then(|at| slice.first.get(at)) {
            kept.store(micros, Ordering::Relaxed);
        }
        if let Some(bucket) = slice.buckets.get(bucket(took)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn ring_index(span: u64) -> usize {
    usize::try_from(span % SPANS as u64).unwrap_or(0)
}

/// The span of a point in time, from 1.
fn span_of(at: Instant) -> u64 {
    at.saturating_duration_since(*START).as_secs() / SPAN.as_secs() + 1
}

fn in_micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// The bucket of a duration.
fn bucket(took: Duration) -> usize {
    let micros = in_micros(took);
    if micros < MIN_MICROS {
        return 0;
    }
    let octave = micros.ilog2() - MIN_MICROS.ilog2();
    // The two bits after the first one are the quarter.
    let quarter = (micros >> (micros.ilog2() - 2)) & 3;
    let bucket = octave as usize * BUCKETS_PER_OCTAVE + usize::try_from(quarter).unwrap_or(0) + 1;
    bucket.min(BUCKETS - 1)
}

/// The middle of a bucket, in microseconds.
fn middle(bucket: usize) -> u64 {
    let Some(bucket) = bucket.checked_sub(1) else { return MIN_MICROS / 2 };
    let (octave, quarter) = (bucket / BUCKETS_PER_OCTAVE, (bucket % BUCKETS_PER_OCTAVE) as u64);
    let begin = (MIN_MICROS << octave) / BUCKETS_PER_OCTAVE as u64;
    begin * (BUCKETS_PER_OCTAVE as u64 + quarter) + begin / 2
}

impl Calls {
    /// Counts a call as in flight until the result is dropped.
    pub(crate) fn begin(&self) -> InFlightCall<'_> {
        let of = self.0.own(ThreadCalls::new);
        if let Some(of) = of {
            of.under_way.fetch_add(1, Ordering::Relaxed);
        }
        InFlightCall { calls: self, begun_on: of }
    }

    fn ended(&self, at: Instant, took: Duration, failed: bool) {
        if let Some(of) = self.0.own(ThreadCalls::new) {
            of.add(span_of(at), took, failed);
        }
    }

    pub fn total(&self) -> u64 {
        self.0.all().map(|of| of.calls.load(Ordering::Relaxed)).sum()
    }

    pub fn errors(&self) -> u64 {
        self.0.all().map(|of| of.errors.load(Ordering::Relaxed)).sum()
    }

    pub fn under_way(&self) -> usize {
        self.0.all().map(|of| of.under_way.load(Ordering::Relaxed)).sum()
    }

    /// The last minutes, span by span, ending with the current one.
    pub fn recent(&self) -> Vec<Span> {
        self.recent_at(span_of(Instant::now()))
    }

    fn recent_at(&self, now: u64) -> Vec<Span> {
        let first = (now + 1).saturating_sub(SPANS as u64);
        let mut spans = Vec::with_capacity(SPANS);
        for number in first..=now {
            let mut span = Span::default();
            let slices = self.0.all().filter_map(|of| of.ring.get(ring_index(number)));
            for slice in slices.filter(|s| number > 0 && s.number.load(Ordering::Relaxed) == number)
            {
                span.errors += u64::from(slice.errors.load(Ordering::Relaxed));
                span.reach(
                    slice.shortest.load(Ordering::Relaxed),
                    slice.longest.load(Ordering::Relaxed),
                );
                let calls =
                    usize::try_from(slice.calls.load(Ordering::Relaxed)).unwrap_or(MAX_EXACT);
                let first = slice.first.iter().take(calls);
                span.first.extend(first.map(|micros| micros.load(Ordering::Relaxed)));
                for (sum, bucket) in span.buckets.0.iter_mut().zip(&slice.buckets) {
                    *sum += u64::from(bucket.load(Ordering::Relaxed));
                }
            }
            spans.push(span);
        }
        spans
    }
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct InFlightCall<'c> {
    calls: &'c Calls,
    begun_on: Option<&'c ThreadCalls>,
}

impl InFlightCall<'_> {
    /// Counts the end of the call.
    pub(crate) fn end(self, at: Instant, took: Duration, failed: bool) {
        self.calls.ended(at, took, failed);
    }
}

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        if let Some(of) = self.begun_on {
            of.under_way.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The calls of a time span.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    pub errors: u64,
    /// The shortest and longest duration in microseconds, if there are calls.
    reach: Option<(u64, u64)>,
    /// The durations of the first calls, in microseconds.
    first: Vec<u64>,
    buckets: Buckets,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Buckets([u64; BUCKETS]);

impl Default for Buckets {
    fn default() -> Self {
        Buckets([0; BUCKETS])
    }
}

impl Span {
    /// Merges several spans.
    pub fn sum<'s>(spans: impl IntoIterator<Item = &'s Span>) -> Span {
        let mut all = Span::default();
        for span in spans {
            all.errors += span.errors;
            if let Some((shortest, longest)) = span.reach {
                all.reach(shortest, longest);
            }
            all.first.extend(&span.first);
            for (sum, bucket) in all.buckets.0.iter_mut().zip(&span.buckets.0) {
                *sum += bucket;
            }
        }
        all
    }

    fn reach(&mut self, shortest: u64, longest: u64) {
        let (least, most) = self.reach.unwrap_or((u64::MAX, 0));
        self.reach = Some((least.min(shortest), most.max(longest)));
    }

    pub fn calls(&self) -> u64 {
        self.buckets.0.iter().sum()
    }

    /// The duration in microseconds that `percent` of the calls did not exceed.
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let calls = self.calls();
        let wanted = (calls * percent).div_ceil(100).max(1);
        // If every duration is known, the result is exact.
        if calls == self.first.len() as u64 {
            let mut all = self.first.clone();
            all.sort_unstable();
            return usize::try_from(wanted).ok().and_then(|at| all.get(at - 1)).copied();
        }
        let (shortest, longest) = self.reach.unwrap_or((0, u64::MAX));
        // The longest duration is exact, too.
        if calls > 0 && wanted == calls {
            return Some(longest);
        }
        let mut seen = 0;
        for (bucket, count) in self.buckets.0.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                // A concurrent update may have set only one of the two.
                return Some(middle(bucket).min(longest).max(shortest.min(longest)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_read_back_within_an_eighth() {
        for micros in [40, 99, 500, 1000, 12_345, 999_999, 30_000_000] {
            let read = middle(bucket(Duration::from_micros(micros)));
            assert!(read.abs_diff(micros) * 8 <= micros, "{micros}: {read}");
        }
        assert_eq!(bucket(Duration::ZERO), 0);
        assert_eq!(bucket(Duration::from_micros(MIN_MICROS)), 1);
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
        let mut last = 0;
        for micros in MIN_MICROS..100_000 {
            let now = bucket(Duration::from_micros(micros));
            assert!(now == last || now == last + 1, "{micros}");
            last = now;
        }
    }

    #[test]
    fn percentiles_are_those_of_the_calls() {
        let of = ThreadCalls::new();
        for _ in 0..94 {
            of.add(1, Duration::from_millis(1), false);
        }
        for _ in 0..6 {
            of.add(1, Duration::from_millis(100), true);
        }
        let calls = Calls::default();
        assert!(calls.0.0[0].set(of).is_ok());
        let spans = calls.recent_at(1);
        let span = spans.last().unwrap();
        assert_eq!((span.calls(), span.errors), (100, 6));
        let near = |read: Option<u64>, micros: u64| read.unwrap().abs_diff(micros) * 8 <= micros;
        assert!(near(span.percentile(50), 1000) && near(span.percentile(94), 1000));
        assert!(near(span.percentile(95), 100_000) && near(span.percentile(100), 100_000));
        assert_eq!(Span::default().percentile(50), None);
    }

    #[test]
    fn of_few_calls_and_at_the_ends_the_figures_are_right() {
        let of = ThreadCalls::new();
        for micros in [778, 3_002_000, 1001] {
            of.add(1, Duration::from_micros(micros), false);
        }
        // More than are kept individually, in the next span.
        for _ in 0..=MAX_EXACT {
            of.add(2, Duration::from_micros(3_002_000), false);
        }
        let calls = Calls::default();
        assert!(calls.0.0[0].set(of).is_ok());
        let spans = calls.recent_at(2);
        let read = |span: &Span| [0, 50, 95, 100].map(|percent| span.percentile(percent).unwrap());
        let few = spans.iter().rev().nth(1).unwrap();
        assert_eq!(read(few), [778, 1001, 3_002_000, 3_002_000]);
        assert_eq!(read(spans.last().unwrap()), [3_002_000; 4]);
        let all = Span::sum(&spans);
        assert_eq!(all.reach, Some((778, 3_002_000)));
        assert!(all.percentile(0).unwrap() >= 778);
        assert_eq!(all.percentile(100), Some(3_002_000));
        // A span that replaces another starts from zero.
        calls.0.0[0].get().unwrap().add(1 + SPANS as u64, Duration::from_micros(50), false);
        let now = calls.recent_at(1 + SPANS as u64);
        assert_eq!(read(now.last().unwrap()), [50; 4]);
    }

    #[test]
    fn expired_spans_leave_the_ring() {
        let of = ThreadCalls::new();
        of.add(1, Duration::from_millis(1), false);
        of.add(2, Duration::from_millis(1), true);
        of.add(2, Duration::from_millis(1), false);
        // It replaces the first one.
        of.add(1 + SPANS as u64, Duration::from_millis(1), false);
        let calls = Calls::default();
        assert!(calls.0.0[0].set(of).is_ok());
        let counts = |now: u64| calls.recent_at(now).iter().map(Span::calls).collect::<Vec<_>>();
        let now = counts(1 + SPANS as u64);
        assert_eq!((now.len(), now.first(), now.last()), (SPANS, Some(&2), Some(&1)));
        assert_eq!(counts(1 + 3 * SPANS as u64).iter().sum::<u64>(), 0);
        assert_eq!((calls.total(), calls.errors()), (4, 1));
        let all = calls.recent_at(2 + SPANS as u64);
        assert_eq!(Span::sum(&all).calls(), 1);
    }

    #[test]
    fn calls_in_flight_are_those_that_have_not_ended() {
        let calls = Calls::default();
        let (one, other) = (calls.begin(), calls.begin());
        assert_eq!((calls.under_way(), calls.total()), (2, 0));
        one.end(Instant::now(), Duration::from_millis(3), false);
        drop(other);
        // A dropped call does not count as completed.
        assert_eq!((calls.under_way(), calls.total(), calls.errors()), (0, 1, 0));
        assert_eq!(Span::sum(&calls.recent()).calls(), 1);
    }
}
