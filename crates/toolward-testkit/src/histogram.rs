//! Latency histogram with logarithmic buckets, each less than 1% wide.

use std::time::Duration;

/// Each power of two is divided into 2^PRECISION_BITS buckets.
const PRECISION_BITS: u32 = 7;

#[derive(Debug, Clone, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Histogram {
    pub fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = bucket(nanos);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.max = self.max.max(nanos);
    }

    pub fn merge(&mut self, other: &Histogram) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.total
    }

    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// The time that `share` of all times do not exceed. Zero if the histogram is empty.
    pub fn quantile(&self, share: f64) -> Duration {
        // Subtract an epsilon, because shares such as 0.07 are not exact.
        let rank = ((share * self.total as f64 - 1e-6).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(midpoint(bucket).min(self.max));
            }
        }
        Duration::ZERO
    }
}

fn bucket(nanos: u64) -> usize {
    // Each short time has its own bucket.
    let shift = nanos.checked_ilog2().unwrap_or(0).saturating_sub(PRECISION_BITS);
    ((shift as usize) << PRECISION_BITS) + (nanos >> shift) as usize
}

/// The midpoint of a bucket.
fn midpoint(bucket: usize) -> u64 {
    let shift = (bucket >> PRECISION_BITS).saturating_sub(1);
    let low = (bucket as u64 - ((shift as u64) << PRECISION_BITS)) << shift;
    low + ((1 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        for value in values {
            histogram.record(Duration::from_nanos(value));
        }
        histogram
    }

    #[test]
    fn every_time_is_accurate_within_one_percent() {
        let mut value = 1u64;
        while value < 1 << 50 {
            for value in [value - 1, value, value + 1] {
                let found = midpoint(bucket(value));
                assert!(found.abs_diff(value) as f64 <= value as f64 * 0.01, "{value}: {found}");
            }
            value = value * 5 / 4 + 1;
        }
    }

    #[test]
    fn buckets_are_contiguous() {
        for value in 0..100_000 {
            assert!(bucket(value + 1) - bucket(value) <= 1, "{value}");
        }
        assert!(bucket(u64::MAX) < 65 << PRECISION_BITS);
    }

    #[test]
    fn quantiles_match_the_sorted_times() {
        let histogram = nanos(1..=100);
        for percent in 1..=100 {
            let found = histogram.quantile(f64::from(percent) / 100.0).as_nanos();
            assert_eq!(found, percent as u128);
        }
        assert_eq!(histogram.quantile(0.0).as_nanos(), 1);
        assert_eq!(nanos([7]).quantile(0.5).as_nanos(), 7);
    }

    #[test]
    fn an_empty_histogram_is_zero() {
        let empty = Histogram::default();
        assert_eq!((empty.quantile(0.5), empty.max()), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn no_quantile_exceeds_the_maximum() {
        let histogram = nanos([1_000_003]);
        assert_eq!(histogram.quantile(0.99), histogram.max());
    }

    #[test]
    fn merging_equals_recording_everything() {
        let mut merged = nanos(1..500);
        merged.merge(&nanos(500..10_000));
        let whole = nanos(1..10_000);
        assert_eq!(merged.count(), whole.count());
        for share in [0.1, 0.5, 0.9, 0.99, 1.0] {
            assert_eq!(merged.quantile(share), whole.quantile(share));
        }
    }
}
