//! Calls over HTTP: directly, through nginx, through the gateway.

use super::contest::{Contender, Measured, contest};
use super::spread::Spread;
use super::table::{Column, Table};
use super::toolward::{Rules, Setup, TOKEN, Toolward};
use super::{Bench, Result, nginx};

pub(super) fn latency(bench: &Bench) -> Result<Table> {
    let measured = measure(bench, "1")?;
    let mut table = Table::of(
        "calls over HTTP, 1 connection",
        &measured,
        &[("p50, µs", |one| one.p50), ("p99, µs", |one| one.p99), PER_SECOND],
    );
    if let [direct, nginx, toolward] = &measured[..] {
        let rounds = direct.samples.iter().zip(&nginx.samples).zip(&toolward.samples);
        let ratio = rounds.map(|((direct, nginx), toolward)| {
            (toolward.p50 - direct.p50) / (nginx.p50 - direct.p50)
        });
        let ratio = Spread::of(ratio);
        let met = ratio.median <= 2.5;
        table.finding("added by toolward / added by nginx", ratio, "at most 2.5", met);
    }
    missing(bench, &mut table);
    Ok(table)
}

pub(super) fn throughput(bench: &Bench) -> Result<Table> {
    let measured = measure(bench, "16")?;
    let mut table = Table::of(
        "calls over HTTP, 16 connections",
        &measured,
        &[
            PER_SECOND,
            ("p50, µs", |one| one.p50),
            ("p99, µs", |one| one.p99),
            ("load's own cost, µs", |one| one.own_cost),
        ],
    );
    if let [_, nginx, toolward] = &measured[..] {
        let rounds = nginx.samples.iter().zip(&toolward.samples);
        let ratio = Spread::of(rounds.map(|(nginx, own)| own.per_second / nginx.per_second));
        let met = ratio.median >= 0.6;
        table.finding("throughput of toolward / of nginx", ratio, "at least 0.60", met);
    }
    missing(bench, &mut table);
    Ok(table)
}

const PER_SECOND: Column = ("calls per second", |one| one.per_second);

/// Measures a direct connection, nginx and toolward, as far as they are available, in this order.
fn measure(bench: &Bench, connections: &str) -> Result<Vec<Measured>> {
    let (_echo, direct) = bench.echo(1, 0)?;
    let load = ["--connections", connections];
    let mut contenders = vec![Contender::http("directly", &direct, &load)];
    let nginx = match &bench.nginx {
        Ok(program) => Some(nginx::proxy(bench, program, &direct)?),
        Err(_) => None,
    };
    if let Some(nginx) = &nginx {
        contenders.push(Contender::http("through nginx", &nginx.url, &load));
    }
    let toolward = serve(bench, &direct)?;
    if let Some(toolward) = &toolward {
        let load = [&load[..], &["--token", TOKEN, "--tool", "echo__echo"]].concat();
        contenders.push(Contender::http("through toolward", &toolward.url, &load));
    }
    contest(bench, &contenders)
}

/// The gateway in front of one server, if it can serve.
fn serve(bench: &Bench, server: &str) -> Result<Option<Toolward>> {
    if bench.no_serve.is_some() {
        return Ok(None);
    }
    Setup::new(bench, &[("echo".into(), server)], Rules::Mixed)?.start(bench).map(Some)
}

/// Adds a note about contenders that are skipped.
pub(super) fn missing(bench: &Bench, table: &mut Table) {
    if let Err(why) = &bench.nginx {
        table.note(format!("nginx skipped: {why}"));
    }
    if let Some(why) = &bench.no_serve {
        table.note(format!("toolward skipped: {why}"));
    }
}
