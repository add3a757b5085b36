//! A client that asks, waits for the answer, checks it, and asks again.

mod answer;
mod http;
mod request;
mod stdio;

use std::fmt;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::histogram::Histogram;

pub use http::{once, run};
pub use stdio::run_stdio;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Era {
    Modern,
    Legacy,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Call,
    List,
}

/// Where the load goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Host and port.
    pub authority: String,
    pub path: String,
    pub token: Option<String>,
    /// The tool that is called.
    pub tool: String,
}

impl Target {
    /// A target by its address, e.g. `http://127.0.0.1:8000/mcp`.
    pub fn parse(url: &str) -> io::Result<Target> {
        let odd = || io::Error::new(ErrorKind::InvalidInput, format!("`{url}` is no http:// URL"));
        let rest = url.strip_prefix("http://").ok_or_else(odd)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if !authority.contains(':') {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("`{url}` has no port")));
        }
        let path = if path.is_empty() { "/" } else { path };
        Ok(Target {
            authority: authority.into(),
            path: path.into(),
            token: None,
            tool: "echo".into(),
        })
    }
}

/// How much is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub kind: Kind,
    pub era: Era,
    pub connections: usize,
    pub until: Until,
    /// Every request has the same id, for answers that come from a file.
    pub fixed_id: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Measured for so long; the first tenth more, at most half a second, warms up.
    Time(Duration),
    /// This many requests in all.
    Requests(u64),
}

impl Until {
    fn warm_up(self) -> Duration {
        match self {
            Until::Time(time) => (time / 10).min(Duration::from_millis(500)),
            Until::Requests(_) => Duration::ZERO,
        }
    }
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Report {
    pub times: Histogram,
    /// Requests without a right answer; they are not among the times.
    pub errors: u64,
    pub first_error: Option<String>,
    pub elapsed: Duration,
    /// What the load itself cost its processor, a request.
    pub own_cost: Option<Duration>,
}

impl Report {
    pub fn per_second(&self) -> f64 {
        self.times.count() as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    pub fn to_json(&self) -> Value {
        let quantile = |share| micros(self.times.quantile(share));
        json!({
            "count": self.times.count(),
            "errors": self.errors,
            "first_error": self.first_error,
            "seconds": self.elapsed.as_secs_f64(),
            "per_second": self.per_second(),
            "p50_us": quantile(0.5),
            "p90_us": quantile(0.9),
            "p99_us": quantile(0.99),
            "max_us": micros(self.times.longest()),
            "own_cost_us": self.own_cost.map(micros),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantile = |share| micros(self.times.quantile(share));
        writeln!(f, "answers     {}", self.times.count())?;
        writeln!(f, "errors      {}", self.errors)?;
        if let Some(error) = &self.first_error {
            writeln!(f, "the first   {error}")?;
        }
        writeln!(f, "per second  {:.0}", self.per_second())?;
        writeln!(f, "p50         {:.1} µs", quantile(0.5))?;
        writeln!(f, "p90         {:.1} µs", quantile(0.9))?;
        writeln!(f, "p99         {:.1} µs", quantile(0.99))?;
        writeln!(f, "longest     {:.1} µs", micros(self.times.longest()))?;
        match self.own_cost {
            Some(cost) => write!(f, "own cost    {:.1} µs a request", micros(cost)),
            None => write!(f, "own cost    not known"),
        }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

/// Counts what comes back on one connection.
#[derive(Debug, Default)]
struct Tally {
    /// All requests, also those that warm up.
    asked: u32,
    times: Histogram,
    errors: u64,
    first_error: Option<String>,
}

impl Tally {
    fn wrong(&mut self, why: impl fmt::Display) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| why.to_string());
    }

    fn merge(&mut self, other: Tally) {
        self.asked += other.asked;
        self.times.merge(&other.times);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
    }

    fn report(self, clock: &Clock) -> Report {
        let spent = processor_time().zip(clock.spent).map(|(now, then)| now.saturating_sub(then));
        Report {
            own_cost: spent.and_then(|spent| spent.checked_div(self.asked)),
            elapsed: clock.warm.elapsed(),
            times: self.times,
            errors: self.errors,
            first_error: self.first_error,
        }
    }
}

/// When measuring begins and ends.
#[derive(Debug, Clone, Copy)]
struct Clock {
    warm: Instant,
    end: Option<Instant>,
    spent: Option<Duration>,
}

impl Clock {
    fn start(until: Until) -> Clock {
        let warm = Instant::now() + until.warm_up();
        let end = match until {
            Until::Time(time) => Some(warm + time),
            Until::Requests(_) => None,
        };
        Clock { warm, end, spent: processor_time() }
    }
}

/// How long this thread has run on a processor.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_plain_url_with_a_port() {
        let target = Target::parse("http://127.0.0.1:80/mcp/x").unwrap();
        assert_eq!((&*target.authority, &*target.path), ("127.0.0.1:80", "/mcp/x"));
        assert_eq!(Target::parse("http://localhost:1").unwrap().path, "/");
        for odd in ["https://a:1/", "a:1", "http://a/"] {
            assert!(Target::parse(odd).is_err(), "{odd}");
        }
    }
}
