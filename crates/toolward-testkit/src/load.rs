//! Load generator: sends a request, waits for the response, checks it, and repeats.

mod check;
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

/// The request that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Call,
    List,
    /// `prompts/get`
    Prompt,
    /// `resources/read`
    Read,
    /// `resources/list`, one page
    Resources,
}

/// The server to send requests to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Host and port.
    pub authority: String,
    pub path: String,
    pub token: Option<String>,
    /// The tool to call, the prompt to get, the URI to read, or the cursor of a page (`echo`: no cursor).
    pub tool: String,
}

impl Target {
    /// Parses a URL such as `http://127.0.0.1:8000/mcp`.
    pub fn parse(url: &str) -> io::Result<Target> {
        let odd =
            || io::Error::new(ErrorKind::InvalidInput, format!("`{url}` is not an http:// URL"));
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

/// The amount and kind of load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub kind: Kind,
    pub era: Era,
    pub connections: usize,
    pub until: Until,
    /// Whether every request has the same id, for a server that sends a fixed response.
    pub fixed_id: bool,
}

/// When the load ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// After this time, and a warm-up of a tenth of it (at most half a second).
    Time(Duration),
    /// After this many requests in total.
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

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Report {
    pub times: Histogram,
    /// The number of requests without a correct response. They are not in `times`.
    pub errors: u64,
    pub first_error: Option<String>,
    pub elapsed: Duration,
    /// CPU time of the load generator per request.
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
            "max_us": micros(self.times.max()),
            "own_cost_us": self.own_cost.map(micros),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantile = |share| micros(self.times.quantile(share));
        writeln!(f, "responses   {}", self.times.count())?;
        writeln!(f, "errors      {}", self.errors)?;
        if let Some(error) = &self.first_error {
            writeln!(f, "first error {error}")?;
        }
        writeln!(f, "per second  {:.0}", self.per_second())?;
        writeln!(f, "p50         {:.1} µs", quantile(0.5))?;
        writeln!(f, "p90         {:.1} µs", quantile(0.9))?;
        writeln!(f, "p99         {:.1} µs", quantile(0.99))?;
        writeln!(f, "max         {:.1} µs", micros(self.times.max()))?;
        match self.own_cost {
            Some(cost) => write!(f, "own CPU     {:.1} µs per request", micros(cost)),
            None => write!(f, "own CPU     unknown"),
        }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

/// The results of one connection.
#[derive(Debug, Default)]
struct Tally {
    /// The number of requests sent, including warm-up.
    sent: u32,
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
        self.sent += other.sent;
        self.times.merge(&other.times);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
    }

    fn report(self, clock: &Clock) -> Report {
        let spent = processor_time().zip(clock.spent).map(|(now, then)| now.saturating_sub(then));
        Report {
            own_cost: spent.and_then(|spent| spent.checked_div(self.sent)),
            elapsed: clock.warm.elapsed(),
            times: self.times,
            errors: self.errors,
            first_error: self.first_error,
        }
    }
}

/// Start and end of the measurement.
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

/// CPU time of this thread.
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
