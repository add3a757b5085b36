//! A long list (1,000 tools of ten servers, about 1 MB), and memory over many calls.

use serde_json::json;
use toolward_testkit::echo;
use toolward_testkit::load::{Kind, once};

use super::contest::{Contender, contest, measure};
use super::http::missing;
use super::spread::Spread;
use super::table::Table;
use super::toolward::{Rules, Setup, TOKEN, Toolward, target};
use super::{Bench, Result, nginx};
use crate::process::Process;

const SERVERS: usize = 10;
const TOOLS: usize = 100;
const TOOL_BYTES: usize = 1000;

pub(super) fn run(bench: &Bench) -> Result<Table> {
    let mut servers: Vec<(Process, String)> = Vec::new();
    for _ in 0..SERVERS {
        servers.push(bench.echo(TOOLS, TOOL_BYTES)?);
    }
    let urls: Vec<(String, &str)> =
        servers.iter().enumerate().map(|(at, (_, url))| (format!("s{at}"), &**url)).collect();
    let setup = Setup::new(bench, &urls, Rules::All)?;
    let toolward = match bench.no_serve {
        None => Some(setup.start(bench)?),
        Some(_) => None,
    };
    let bytes = match &toolward {
        Some(toolward) => {
            once(&target(&toolward.url)?, Kind::List).map_err(|error| format!("list: {error}"))?
        }
        None => without_gateway().into_bytes(),
    };
    let load = ["--kind", "list", "--fixed-id"];
    let mut contenders = Vec::new();
    let nginx = match &bench.nginx {
        Ok(program) => Some(nginx::file(bench, program, &bytes)?),
        Err(_) => None,
    };
    if let Some(nginx) = &nginx {
        contenders.push(Contender::http("a file, through nginx", &nginx.url, &load));
    }
    if let Some(toolward) = &toolward {
        let load = [&load[..], &["--token", TOKEN]].concat();
        contenders.push(Contender::http("a list, through toolward", &toolward.url, &load));
    }
    let measured = contest(bench, &contenders)?;
    let mut table = Table::of(
        format!("1,000 tools, {} bytes", bytes.len()),
        &measured,
        &[
            ("p50, µs", |one| one.p50),
            ("p99, µs", |one| one.p99),
            ("lists per second", |one| one.per_second),
        ],
    );
    if let [nginx, toolward] = &measured[..] {
        let rounds = nginx.samples.iter().zip(&toolward.samples);
        let ratio = Spread::of(rounds.map(|(nginx, own)| own.p50 / nginx.p50));
        let met = ratio.median <= 1.5;
        table.finding("a list by toolward / a file by nginx", ratio, "at most 1.5", met);
    }
    if toolward.is_some() {
        // A new process, so that memory used by lists does not hide the growth by calls.
        drop(toolward);
        memory(bench, &setup.start(bench)?, &mut table)?;
    }
    missing(bench, &mut table);
    Ok(table)
}

/// Memory after 1,000 calls and after 100,000.
fn memory(bench: &Bench, toolward: &Toolward, table: &mut Table) -> Result<()> {
    let load = ["--token", TOKEN, "--tool", "s0__echo", "--connections", "16"];
    let calls = Contender::http("calls", &toolward.url, &load);
    let mut sizes = Vec::new();
    for count in ["1000", "99000"] {
        let sample = measure(bench, &calls, &["--requests".into(), count.into()])?;
        if let Some(error) = sample.first_error.filter(|_| sample.errors > 0) {
            return Err(format!("{} calls failed, the first: {error}", sample.errors));
        }
        sizes.push(toolward.process.resident()? / 1024.0);
    }
    if let [few, many] = sizes[..] {
        table.note(format!("resident after 1,000 calls: {few:.1} MB, after 100,000: {many:.1} MB"));
        let grown = Spread::of([many / few]);
        table.finding("memory, after / before", grown, "at most 1.05", grown.median <= 1.05);
    }
    Ok(())
}

/// The same list, if there is no gateway to fetch it from.
fn without_gateway() -> String {
    let list: serde_json::Value =
        serde_json::from_str(&echo::tools(SERVERS * TOOLS, TOOL_BYTES)).unwrap_or_default();
    json!({"jsonrpc": "2.0", "id": 1_000_000_000, "result": {"tools": list}}).to_string()
}
