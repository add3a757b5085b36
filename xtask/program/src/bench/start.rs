//! The time from the start of the gateway to its first response, and its idle memory.

use std::time::{Duration, Instant};

use super::spread::Spread;
use super::table::Table;
use super::toolward::{Rules, Setup};
use super::{Bench, Result, http};

const STARTS: usize = 10;

pub(super) fn run(bench: &Bench) -> Result<Table> {
    let mut table = Table::new("start of toolward", &[""]);
    if bench.no_serve.is_some() {
        http::missing(bench, &mut table);
        return Ok(table);
    }
    let (_echo, url) = bench.echo(1, 0)?;
    let mut times = Vec::new();
    let mut sizes = Vec::new();
    for _ in 0..STARTS {
        let setup = Setup::new(bench, &[("echo".into(), &url)], Rules::Mixed)?;
        let begun = Instant::now();
        let toolward = setup.start(bench)?;
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
        std::thread::sleep(Duration::from_millis(300));
        sizes.push(toolward.process.resident()? / 1024.0);
    }
    let (time, size) = (Spread::of(times), Spread::of(sizes));
    table.finding("to the first list, ms", time, "below 30", time.median < 30.0);
    table.finding("idle memory, MB", size, "below 15", size.median < 15.0);
    Ok(table)
}
