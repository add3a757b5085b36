//! Calls of one server: how many, how long they took in the last minutes, and how many failed.
//!
//! Each thread has a ring of spans of time; a span has a histogram of durations whose steps grow by a
//! quarter of an octave, so that what is read from it is wrong by an eighth at most, and never beyond
//! the shortest and the longest. Of the first calls of a span the durations themselves are kept: where
//! there were few, what is read is right.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::per_thread::PerThread;

/// How long a span is, and how many are kept.
pub const SPAN: Duration = Duration::from_secs(10);
pub const SPANS: usize = 30;
/// Durations below this many microseconds are not told apart; steps in an octave; octaves.
const SHORTEST: u64 = 32;
const STEPS: usize = 4;
const OCTAVES: usize = 21;
const HEIGHTS: usize = OCTAVES * STEPS + 1;
/// Of so many calls of a span and thread the durations are kept.
const FIRST: usize = 8;

/// What spans are counted from.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The calls of a server.
#[derive(Debug, Default)]
pub struct Calls(PerThread<OfThread>);

#[derive(Debug)]
struct OfThread {
    calls: AtomicU64,
    errors: AtomicU64,
    /// Those that began on this thread less those that ended, which may have been on another.
    under_way: AtomicUsize,
    ring: Box<[Slice]>,
}

/// One span of time.
#[derive(Debug)]
struct Slice {
    /// Which one, from 1; zero: none yet.
    number: AtomicU64,
    errors: AtomicU32,
    /// In microseconds.
    shortest: AtomicU64,
    longest: AtomicU64,
    calls: AtomicU32,
    first: [AtomicU64; FIRST],
    heights: [AtomicU32; HEIGHTS],
}

impl OfThread {
    fn new() -> OfThread {
        let slice = |_| Slice {
            number: AtomicU64::new(0),
            errors: AtomicU32::new(0),
            shortest: AtomicU64::new(u64::MAX),
            longest: AtomicU64::new(0),
            calls: AtomicU32::new(0),
            first: std::array::from_fn(|_| AtomicU64::new(0)),
            heights: std::array::from_fn(|_| AtomicU32::new(0)),
        };
        OfThread {
            calls: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            under_way: AtomicUsize::new(0),
            ring: (0..SPANS).map(slice).collect(),
        }
    }

    fn add(&self, span: u64, took: Duration, failed: bool) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.errors.fetch_add(u64::from(failed), Ordering::Relaxed);
        let Some(slice) = self.ring.get(place(span)) else { return };
        let before = slice.number.load(Ordering::Relaxed);
        // Whoever is first in a span takes the place of one that is over.
        if before != span {
            let now =
                slice.number.compare_exchange(before, span, Ordering::Relaxed, Ordering::Relaxed);
            if now.is_ok() {
                slice.errors.store(0, Ordering::Relaxed);
                slice.shortest.store(u64::MAX, Ordering::Relaxed);
                slice.longest.store(0, Ordering::Relaxed);
                slice.calls.store(0, Ordering::Relaxed);
                slice.heights.iter().for_each(|height| height.store(0, Ordering::Relaxed));
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
        if let Some(height) = slice.heights.get(height(took)) {
            height.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn place(span: u64) -> usize {
    usize::try_from(span % SPANS as u64).unwrap_or(0)
}

/// Which span a point in time is in, from 1.
fn span_of(at: Instant) -> u64 {
    at.saturating_duration_since(*BEGUN).as_secs() / SPAN.as_secs() + 1
}

fn in_micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// Which step of the histogram a duration is in.
fn height(took: Duration) -> usize {
    let micros = in_micros(took);
    if micros < SHORTEST {
        return 0;
    }
    let octave = micros.ilog2() - SHORTEST.ilog2();
    // The two bits behind the first one say which quarter.
    let quarter = (micros >> (micros.ilog2() - 2)) & 3;
    let height = octave as usize * STEPS + usize::try_from(quarter).unwrap_or(0) + 1;
    height.min(HEIGHTS - 1)
}

/// The middle of a step, in microseconds.
fn middle(height: usize) -> u64 {
    let Some(height) = height.checked_sub(1) else { return SHORTEST / 2 };
    let (octave, quarter) = (height / STEPS, (height % STEPS) as u64);
    let begin = (SHORTEST << octave) / STEPS as u64;
    begin * (STEPS as u64 + quarter) + begin / 2
}

impl Calls {
    /// A call begins. It has ended when what is given is.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        let of = self.0.own(OfThread::new);
        if let Some(of) = of {
            of.under_way.fetch_add(1, Ordering::Relaxed);
        }
        UnderWay { calls: self, begun_on: of }
    }

    fn ended(&self, at: Instant, took: Duration, failed: bool) {
        if let Some(of) = self.0.own(OfThread::new) {
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

    /// The last minutes, span by span: the one that runs now is the last.
    pub fn recent(&self) -> Vec<Span> {
        self.recent_at(span_of(Instant::now()))
    }

    fn recent_at(&self, now: u64) -> Vec<Span> {
        let first = (now + 1).saturating_sub(SPANS as u64);
        let mut spans = Vec::with_capacity(SPANS);
        for number in first..=now {
            let mut span = Span::default();
            let slices = self.0.all().filter_map(|of| of.ring.get(place(number)));
            for slice in slices.filter(|s| number > 0 && s.number.load(Ordering::Relaxed) == number)
            {
                span.errors += u64::from(slice.errors.load(Ordering::Relaxed));
                span.reach(
                    slice.shortest.load(Ordering::Relaxed),
                    slice.longest.load(Ordering::Relaxed),
                );
                let calls = usize::try_from(slice.calls.load(Ordering::Relaxed)).unwrap_or(FIRST);
                let first = slice.first.iter().take(calls);
                span.first.extend(first.map(|micros| micros.load(Ordering::Relaxed)));
                for (sum, height) in span.heights.0.iter_mut().zip(&slice.heights) {
                    *sum += u64::from(height.load(Ordering::Relaxed));
                }
            }
            spans.push(span);
        }
        spans
    }
}

/// A call that has begun.
#[derive(Debug)]
pub(crate) struct UnderWay<'c> {
    calls: &'c Calls,
    begun_on: Option<&'c OfThread>,
}

impl UnderWay<'_> {
    /// It has come to an end.
    pub(crate) fn end(self, at: Instant, took: Duration, failed: bool) {
        self.calls.ended(at, took, failed);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(of) = self.begun_on {
            of.under_way.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What happened in a span of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    pub errors: u64,
    /// The shortest and the longest, in microseconds, where there are calls.
    reach: Option<(u64, u64)>,
    /// The durations of the first calls, in microseconds.
    first: Vec<u64>,
    heights: Heights,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Heights([u64; HEIGHTS]);

impl Default for Heights {
    fn default() -> Self {
        Heights([0; HEIGHTS])
    }
}

impl Span {
    /// Several spans as one.
    pub fn sum<'s>(spans: impl IntoIterator<Item = &'s Span>) -> Span {
        let mut all = Span::default();
        for span in spans {
            all.errors += span.errors;
            if let Some((shortest, longest)) = span.reach {
                all.reach(shortest, longest);
            }
            all.first.extend(&span.first);
            for (sum, height) in all.heights.0.iter_mut().zip(&span.heights.0) {
                *sum += height;
            }
        }
        all
    }

    fn reach(&mut self, shortest: u64, longest: u64) {
        let (least, most) = self.reach.unwrap_or((u64::MAX, 0));
        self.reach = Some((least.min(shortest), most.max(longest)));
    }

    pub fn calls(&self) -> u64 {
        self.heights.0.iter().sum()
    }

    /// How long so many per cent of the calls took at most, in microseconds.
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let calls = self.calls();
        let wanted = (calls * percent).div_ceil(100).max(1);
        // Where every duration is known, none is guessed.
        if calls == self.first.len() as u64 {
            let mut all = self.first.clone();
            all.sort_unstable();
            return usize::try_from(wanted).ok().and_then(|at| all.get(at - 1)).copied();
        }
        let (shortest, longest) = self.reach.unwrap_or((0, u64::MAX));
        // Of the last one it is known too.
        if calls > 0 && wanted == calls {
            return Some(longest);
        }
        let mut seen = 0;
        for (height, count) in self.heights.0.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                // Calls that are being counted may have set only one of the two.
                return Some(middle(height).min(longest).max(shortest.min(longest)));
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
            let read = middle(height(Duration::from_micros(micros)));
            assert!(read.abs_diff(micros) * 8 <= micros, "{micros}: {read}");
        }
        assert_eq!(height(Duration::ZERO), 0);
        assert_eq!(height(Duration::from_micros(SHORTEST)), 1);
        assert_eq!(height(Duration::MAX), HEIGHTS - 1);
        let mut last = 0;
        for micros in SHORTEST..100_000 {
            let now = height(Duration::from_micros(micros));
            assert!(now == last || now == last + 1, "{micros}");
            last = now;
        }
    }

    #[test]
    fn percentiles_are_those_of_the_calls() {
        let of = OfThread::new();
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
        let of = OfThread::new();
        for micros in [778, 3_002_000, 1001] {
            of.add(1, Duration::from_micros(micros), false);
        }
        // As many as are not kept one by one, in the next span.
        for _ in 0..=FIRST {
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
        // A span that takes the place of another begins anew.
        calls.0.0[0].get().unwrap().add(1 + SPANS as u64, Duration::from_micros(50), false);
        let now = calls.recent_at(1 + SPANS as u64);
        assert_eq!(read(now.last().unwrap()), [50; 4]);
    }

    #[test]
    fn what_is_over_leaves_the_ring() {
        let of = OfThread::new();
        of.add(1, Duration::from_millis(1), false);
        of.add(2, Duration::from_millis(1), true);
        of.add(2, Duration::from_millis(1), false);
        // It takes the place of the first.
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
    fn calls_under_way_are_those_that_have_not_ended() {
        let calls = Calls::default();
        let (one, other) = (calls.begin(), calls.begin());
        assert_eq!((calls.under_way(), calls.total()), (2, 0));
        one.end(Instant::now(), Duration::from_millis(3), false);
        drop(other);
        // One that was given up has not ended.
        assert_eq!((calls.under_way(), calls.total(), calls.errors()), (0, 1, 0));
        assert_eq!(Span::sum(&calls.recent()).calls(), 1);
    }
}
