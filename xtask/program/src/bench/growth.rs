//! Costs that must not grow with the size of a configuration: calls with few and many rules, calls with
//! one and many agents, startup with many agents, and many clients that connect at once.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::contest::{Contender, Measured, contest};
use super::http::missing;
use super::spread::Spread;
use super::table::Table;
use super::toolward::{Rules, Setup, TOKEN};
use super::{Bench, Result};

const RULES: [usize; 2] = [10, 100_000];
const AGENTS: usize = 10_000;
const FEWER_AGENTS: usize = 1_000;
const CLIENTS: usize = 500;

pub(super) fn run(bench: &Bench) -> Result<Table> {
    if let Some(why) = &bench.no_serve {
        return Err(format!("toolward cannot serve: {why}"));
    }
    let (_echo, server) = bench.echo(1, 0)?;
    let setup = |rules, agents| -> Result<Setup> {
        Setup::new(bench, &[("echo".into(), &server)], rules)?.and(&other_agents(agents))
    };
    let started = |setup: Setup| -> Result<_> {
        let begun = Instant::now();
        let toolward = setup.start(bench)?;
        Ok((toolward, begun.elapsed().as_secs_f64() * 1000.0))
    };
    let (few_rules, _) = started(setup(Rules::Names(RULES[0]), 0)?)?;
    let (many_rules, start_of_rules) = started(setup(Rules::Names(RULES[1]), 0)?)?;
    let (one_agent, _) = started(setup(Rules::Mixed, 0)?)?;
    let (_, start_of_fewer) = started(setup(Rules::Mixed, FEWER_AGENTS)?)?;
    let (many_agents, start_of_agents) = started(setup(Rules::Mixed, AGENTS)?)?;

    let load = ["--connections", "16", "--token", TOKEN, "--tool", "echo__echo"];
    let contenders = [
        Contender::http("10 rules", &few_rules.url, &load),
        Contender::http("100,000 rules", &many_rules.url, &load),
        Contender::http("1 agent", &one_agent.url, &load),
        Contender::http("10,000 agents", &many_agents.url, &load),
    ];
    let measured = contest(bench, &contenders)?;
    let mut table = Table::of(
        "growth, calls over HTTP, 16 connections",
        &measured,
        &[
            ("calls per second", |one| one.per_second),
            ("p50, µs", |one| one.p50),
            ("p99, µs", |one| one.p99),
        ],
    );
    if let [few_rules, many_rules, one_agent, many_agents] = &measured[..] {
        let ratio = ratio(many_rules, few_rules);
        table.finding("calls, 100,000 rules / 10", ratio, "at least 0.90", ratio.median >= 0.9);
        let ratio = self::ratio(many_agents, one_agent);
        table.finding("calls, 10,000 agents / 1", ratio, "at least 0.90", ratio.median >= 0.9);
    }
    let start = Spread::of([start_of_agents]);
    table.note(format!("start with 100,000 rules, ms: {start_of_rules:.0}"));
    table.note(format!("start with 1,000 agents, ms: {start_of_fewer:.0}"));
    table.finding("start with 10,000 agents, ms", start, "at most 1000", start.median <= 1000.0);
    let connects = connects(&one_agent.url)?;
    let met = connects <= 500.0;
    let connects = Spread::of([connects]);
    table.finding("500 connects at once, p90, ms", connects, "at most 500", met);
    missing(bench, &mut table);
    Ok(table)
}

fn ratio(many: &Measured, few: &Measured) -> Spread {
    let rounds = many.samples.iter().zip(&few.samples);
    Spread::of(rounds.map(|(many, few)| many.per_second / few.per_second))
}

/// Additional agents, each with the token `token-of-agent-NUMBER`, as the continuation of `agents`.
pub(super) fn other_agents(agents: usize) -> String {
    let mut text = String::new();
    for number in 1..agents {
        let hash = Sha256::digest(format!("token-of-agent-{number}"));
        let hash = hash.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let _ = write!(
            text,
            "  agent-{number:05}:\n    tokens: [\"sha256:{hash}\"]\n    allow: {{ servers: [echo] }}\n"
        );
    }
    text
}

/// The p90 of the connection time of clients that connect at the same time, in milliseconds.
fn connects(url: &str) -> Result<f64> {
    let address = url.strip_prefix("http://").and_then(|rest| rest.split('/').next());
    let address: Option<SocketAddr> = address.and_then(|address| address.parse().ok());
    let address = address.ok_or_else(|| format!("`{url}` has no address"))?;
    let ready = Arc::new(Barrier::new(CLIENTS));
    let client = |_| {
        let ready = ready.clone();
        std::thread::spawn(move || {
            ready.wait();
            let begun = Instant::now();
            let connected = TcpStream::connect_timeout(&address, Duration::from_secs(30));
            (begun.elapsed().as_secs_f64() * 1000.0, connected)
        })
    };
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    let mut times = Vec::new();
    // All stay connected until the last one is.
    let mut open = Vec::new();
    for client in clients {
        let (time, connected) = client.join().map_err(|_| "a client failed")?;
        open.push(connected.map_err(|error| format!("a client cannot connect: {error}"))?);
        times.push(time);
    }
    times.sort_by(f64::total_cmp);
    times.get(CLIENTS * 9 / 10).copied().ok_or_else(|| "no client connected".into())
}
