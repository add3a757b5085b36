//! Prompts and resources: what the gateway adds to a request, compared with a call of a tool; and the pages of a list of
//! 10,000 resources, compared with nginx.

use serde_json::Value;
use toolward_testkit::echo::others::uri;
use toolward_testkit::load::{Kind, Target, once};

use super::contest::{Contender, Measured, contest};
use super::http::missing;
use super::spread::Spread;
use super::table::Table;
use super::toolward::{Rules, Setup, TOKEN, target};
use super::{Bench, Result, nginx};

const RESOURCES: usize = 10_000;
/// The size of an entry, as with tools.
const ENTRY_BYTES: usize = 250;
/// A request may add this much more than a call: the spread between equal builds.
const NOISE: f64 = 1.10;

pub(super) fn latency(bench: &Bench) -> Result<Table> {
    served(bench)?;
    let (_echo, server) = bench.echo_with(&["--resources", "100", "--resource-bytes", "250"])?;
    let setup = Setup::new(bench, &[("echo".into(), &server)], Rules::Kinds)?;
    let toolward = setup.start(bench)?;
    let (one, page) = (uri(7), "echo".to_string());
    let kinds = [("call", &page), ("prompt", &page), ("read", &one)];
    let mut contenders = Vec::new();
    let names = [
        ("a tool, directly", "a tool, through toolward"),
        ("a prompt, directly", "a prompt, through toolward"),
        ("a resource, directly", "a resource, through toolward"),
    ];
    for ((kind, name), (direct, through)) in kinds.iter().zip(names) {
        let load = ["--kind", kind, "--tool", name];
        contenders.push(Contender::http(direct, &server, &load));
        // URIs do not change.
        let exposed = if *kind == "read" { (*name).clone() } else { format!("echo__{name}") };
        let load = ["--kind", kind, "--tool", &exposed, "--token", TOKEN];
        contenders.push(Contender::http(through, &toolward.url, &load));
    }
    let measured = contest(bench, &contenders)?;
    let mut table = Table::of(
        "prompts and resources, 1 connection",
        &measured,
        &[
            ("p50, µs", |one| one.p50),
            ("p99, µs", |one| one.p99),
            ("requests per second", |one| one.per_second),
        ],
    );
    if let [tool, called, prompt, got, resource, read] = &measured[..] {
        let calls = added(tool, called);
        for (what, direct, through) in [("a prompt", prompt, got), ("a resource", resource, read)] {
            let own = added(direct, through);
            let ratio = Spread::of(own.iter().zip(&calls).map(|(own, call)| own / call));
            let what = format!("added to {what} / added to a call");
            table.finding(&what, ratio, "at most 1, within 10 %", ratio.median <= NOISE);
        }
    }
    missing(bench, &mut table);
    Ok(table)
}

/// The time that the gateway adds to the median of a request, round by round.
fn added(direct: &Measured, through: &Measured) -> Vec<f64> {
    let rounds = direct.samples.iter().zip(&through.samples);
    rounds.map(|(direct, through)| through.p50 - direct.p50).collect()
}

pub(super) fn pages(bench: &Bench) -> Result<Table> {
    served(bench)?;
    let (count, bytes) = (RESOURCES.to_string(), ENTRY_BYTES.to_string());
    let (_echo, server) = bench.echo_with(&["--resources", &count, "--resource-bytes", &bytes])?;
    let setup = Setup::new(bench, &[("echo".into(), &server)], Rules::Kinds)?;
    let toolward = setup.start(bench)?;
    let pages = all_pages(&target(&toolward.url)?)?;
    let [(_, first), .., (cursor, last)] = &pages[..] else {
        return Err("the list has fewer than two pages".into());
    };
    let mut contenders = Vec::new();
    let load = ["--kind", "resources", "--fixed-id"];
    let nginx = match &bench.nginx {
        Ok(program) => {
            let file = |bytes: &[u8]| nginx::file(bench, program, bytes);
            Some((file(first)?, file(last)?))
        }
        Err(_) => None,
    };
    if let Some((first, last)) = &nginx {
        contenders.push(Contender::http("first page as a file, by nginx", &first.url, &load));
        contenders.push(Contender::http("last page as a file, by nginx", &last.url, &load));
    }
    let load = [&load[..], &["--token", TOKEN]].concat();
    contenders.push(Contender::http("first page, by toolward", &toolward.url, &load));
    let load = [&load[..], &["--tool", cursor]].concat();
    contenders.push(Contender::http("last page, by toolward", &toolward.url, &load));
    let measured = contest(bench, &contenders)?;
    let total: usize = pages.iter().map(|(_, page)| page.len()).sum();
    let mut table = Table::of(
        format!("10,000 resources, {total} bytes"),
        &measured,
        &[
            ("p50, µs", |one| one.p50),
            ("p99, µs", |one| one.p99),
            ("pages per second", |one| one.per_second),
        ],
    );
    table.note(format!("{} pages, the first of {} bytes", pages.len(), first.len()));
    if let [first_file, last_file, first, last] = &measured[..] {
        for (what, file, own) in [("first", first_file, first), ("last", last_file, last)] {
            let rounds = file.samples.iter().zip(&own.samples);
            let ratio = Spread::of(rounds.map(|(file, own)| own.p50 / file.p50));
            let what = format!("the {what} page by toolward / by nginx");
            table.finding(&what, ratio, "at most 1.5", ratio.median <= 1.5);
        }
    }
    missing(bench, &mut table);
    Ok(table)
}

/// All pages of the list, each with the cursor that leads to it.
fn all_pages(target: &Target) -> Result<Vec<(String, Vec<u8>)>> {
    let (mut pages, mut cursor, mut found) = (Vec::new(), target.tool.clone(), 0);
    loop {
        let target = Target { tool: cursor.clone(), ..target.clone() };
        let page = once(&target, Kind::Resources).map_err(|error| format!("a page: {error}"))?;
        let read: Value = serde_json::from_slice(&page).map_err(|error| error.to_string())?;
        let result = &read["result"];
        found += result["resources"].as_array().map_or(0, Vec::len);
        pages.push((cursor, page));
        match result["nextCursor"].as_str() {
            Some(next) => cursor = next.into(),
            None if found == RESOURCES => return Ok(pages),
            None => return Err(format!("the list has {found} resources")),
        }
    }
}

fn served(bench: &Bench) -> Result<()> {
    match &bench.no_serve {
        Some(why) => Err(format!("toolward cannot serve: {why}")),
        None => Ok(()),
    }
}
