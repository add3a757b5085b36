//! The cost of the audit log: compared with a build that records nothing, in the same rounds.

use super::contest::{Contender, Measured, contest};
use super::http::missing;
use super::spread::Spread;
use super::table::Table;
use super::toolward::{Rules, Setup, TOKEN, Toolward};
use super::{Bench, Result, build};

pub(super) fn run(bench: &Bench) -> Result<Table> {
    if let Some(why) = &bench.no_serve {
        return Err(format!("toolward cannot serve: {why}"));
    }
    let unrecorded = build::program("toolward", "toolward-unrecorded", "unrecorded")?;
    let (_echo, server) = bench.echo(1, 0)?;
    let setup = || Setup::new(bench, &[("echo".into(), &server)], Rules::Mixed);
    let without = setup()?.start_program(&unrecorded)?;
    let process = setup()?.start(bench)?;
    let disk = setup()?.on_disk()?.start(bench)?;

    let call = ["--token", TOKEN, "--tool", "echo__echo"];
    let load = |name, gate: &Toolward, connections| {
        Contender::http(name, &gate.url, &[&["--connections", connections], &call[..]].concat())
    };
    // Measured separately, so that pending disk writes of one do not delay the next.
    let mut measured = Vec::new();
    for contenders in [
        &[
            load("1 connection, no record", &without, "1"),
            load("1 connection, in the kernel", &process, "1"),
        ][..],
        &[
            load("16 connections, no record", &without, "16"),
            load("16 connections, in the kernel", &process, "16"),
        ],
        &[load("64 connections, on the disk", &disk, "64")],
    ] {
        measured.extend(contest(bench, contenders)?);
    }
    let mut table = Table::of(
        "the audit log, calls over HTTP",
        &measured,
        &[
            ("p50, µs", |one| one.p50),
            ("p99, µs", |one| one.p99),
            ("calls per second", |one| one.per_second),
        ],
    );
    if let [without, process, many_without, many, disk] = &measured[..] {
        let added = rounds(without, process, |without, with| with.0 - without.0);
        table.finding("the audit log adds, µs", added, "at most 15", added.median <= 15.0);
        let lost = rounds(many_without, many, |without, with| 100.0 * (1.0 - with.1 / without.1));
        table.finding("throughput that it takes, %", lost, "at most 15", lost.median <= 15.0);
        let durable = disk.spread(|one| one.per_second);
        let met = durable.median >= 5_000.0;
        table.finding("calls per second with `durability: disk`", durable, "at least 5000", met);
    }
    missing(bench, &mut table);
    Ok(table)
}

/// Compares two contenders round by round, by p50 and calls per second.
fn rounds(
    without: &Measured,
    with: &Measured,
    compare: impl Fn((f64, f64), (f64, f64)) -> f64,
) -> Spread {
    let rounds = without.samples.iter().zip(&with.samples);
    let numbers = rounds.map(|(without, with)| {
        compare((without.p50, without.per_second), (with.p50, with.per_second))
    });
    Spread::of(numbers)
}
