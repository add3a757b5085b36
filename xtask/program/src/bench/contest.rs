//! Contenders, measured in turns.

use std::ffi::OsString;
use std::time::Duration;

use serde_json::Value;

use super::spread::Spread;
use super::{Bench, Result};
use crate::process::Process;

/// A contender, and how it is measured.
pub(super) struct Contender {
    pub(super) name: &'static str,
    /// For `testkit`.
    pub(super) arguments: Vec<OsString>,
}

impl Contender {
    pub(super) fn new<A: Into<OsString>>(
        name: &'static str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Contender {
        Contender { name, arguments: arguments.into_iter().map(Into::into).collect() }
    }

    /// A load over HTTP.
    pub(super) fn http(name: &'static str, url: &str, more: &[&str]) -> Contender {
        Contender::new(name, ["load", "--url", url].iter().chain(more))
    }
}

/// One measurement of one contender.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) per_second: f64,
    /// The number of responses.
    pub(super) count: f64,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    pub(super) own_cost: f64,
}

/// The measurements of one contender, one per round.
pub(super) struct Measured {
    pub(super) name: &'static str,
    pub(super) samples: Vec<Sample>,
}

impl Measured {
    pub(super) fn spread(&self, value: impl Fn(&Sample) -> f64) -> Spread {
        Spread::of(self.samples.iter().map(value))
    }

    /// The first wrong response, if there was one.
    pub(super) fn wrong(&self) -> Option<String> {
        let errors: u64 = self.samples.iter().map(|sample| sample.errors).sum();
        let first = self.samples.iter().find_map(|sample| sample.first_error.clone());
        let first = first.unwrap_or_default();
        (errors > 0).then(|| format!("{}: {errors} wrong answers, the first: {first}", self.name))
    }
}

/// Measures all contenders in each round, in rotating order.
pub(super) fn contest(bench: &Bench, contenders: &[Contender]) -> Result<Vec<Measured>> {
    let mut measured: Vec<Measured> = contenders
        .iter()
        .map(|contender| Measured { name: contender.name, samples: Vec::new() })
        .collect();
    for round in 0..bench.rounds {
        for turn in 0..contenders.len() {
            let at = (round + turn) % contenders.len();
            let more = ["--duration".into(), bench.seconds.to_string().into()];
            measured[at].samples.push(measure(bench, &contenders[at], &more)?);
        }
    }
    Ok(measured)
}

/// Measures once. `more` are arguments before the command that `testkit` starts.
pub(super) fn measure(bench: &Bench, contender: &Contender, more: &[OsString]) -> Result<Sample> {
    let end = contender.arguments.iter().position(|word| word == "--");
    let (own, command) = contender.arguments.split_at(end.unwrap_or(contender.arguments.len()));
    let mut testkit = bench.testkit(&[]);
    testkit.args(own).arg("--json").args(more).args(command);
    let timeout = Duration::from_secs(300);
    let process = Process::start_to_read("testkit", &mut testkit, &bench.subfolder("load")?)?;
    let printed = process.output(timeout).map_err(|why| format!("{}: {why}", contender.name))?;
    let report: Value = serde_json::from_str(&printed)
        .map_err(|error| format!("{}: testkit printed something else: {error}", contender.name))?;
    let number = |name: &str| report[name].as_f64().unwrap_or(f64::NAN);
    Ok(Sample {
        p50: number("p50_us"),
        p99: number("p99_us"),
        per_second: number("per_second"),
        count: number("count"),
        errors: report["errors"].as_u64().unwrap_or(u64::MAX),
        first_error: report["first_error"].as_str().map(Into::into),
        own_cost: number("own_cost_us"),
    })
}
