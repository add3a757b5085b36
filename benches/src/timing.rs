//! Samples of the time of a loop. The median is reported; the minimum is the time on an undisturbed
//! machine.

use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
pub struct Time {
    pub median_ns: f64,
    pub min_ns: f64,
    pub samples: usize,
}

/// The maximum number of samples, and the time after which no new one begins (at least three are
/// taken).
#[derive(Clone, Copy)]
pub struct Effort {
    pub samples: usize,
    pub budget: Duration,
}

/// Times `work`, which returns its number of operations; the result is the time per operation. The
/// first run only warms up.
pub fn time(effort: Effort, mut work: impl FnMut() -> usize) -> Time {
    let begin = Instant::now();
    work();
    let mut times = Vec::with_capacity(effort.samples);
    while times.len() < 3 || (times.len() < effort.samples && begin.elapsed() < effort.budget) {
        let start = Instant::now();
        let operations = work();
        times.push(start.elapsed().as_nanos() as f64 / operations as f64);
    }
    Time::of(&mut times)
}

impl Time {
    pub fn of(times: &mut [f64]) -> Time {
        times.sort_by(f64::total_cmp);
        Time { median_ns: times[times.len() / 2], min_ns: times[0], samples: times.len() }
    }
}

/// A time for people, with three digits.
pub fn readable(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let digits = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {unit}")
}
