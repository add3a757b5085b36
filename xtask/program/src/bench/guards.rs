//! The cost that guards add to a call over HTTP: none, limits in memory, limits in Redis, a persistent
//! hook.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use super::contest::{Contender, Measured, contest};
use super::http::missing;
use super::spread::Spread;
use super::table::Table;
use super::toolward::{Rules, Setup, TOKEN, Toolward};
use super::{Bench, Result};
use crate::process::{Process, free_port};

/// Limits of every kind that apply to the call and are never used up.
const LIMITS: &str = "  calls: 1000000000/s\n  tools: { \"echo/ec*\": 1000000000/s }\n";

pub(super) fn run(bench: &Bench) -> Result<Table> {
    if let Some(why) = &bench.no_serve {
        return Err(format!("toolward cannot serve: {why}"));
    }
    let (_echo, server) = bench.echo(1, 0)?;
    let gate = |more: String| -> Result<Toolward> {
        Setup::new(bench, &[("echo".into(), &server)], Rules::Mixed)?.and(&more)?.start(bench)
    };
    let plain = gate(String::new())?;
    let limits = gate(format!("limits:\n{LIMITS}"))?;
    let testkit = bench.testkit.display();
    let hook = gate(format!(
        "hooks:\n  - {{ name: yes, exec: [\"{testkit}\", hook], persistent: true }}\n"
    ))?;
    let store = Store::start(bench);
    let in_store = match &store {
        Ok(store) => Some(gate(format!(
            "limits:\n  store: redis://127.0.0.1:{}\n  timeout: 1s\n{LIMITS}",
            store.port
        ))?),
        Err(_) => None,
    };

    let load = ["--connections", "1", "--token", TOKEN, "--tool", "echo__echo"];
    let mut contenders = vec![
        Contender::http("no guard", &plain.url, &load),
        Contender::http("limits in memory", &limits.url, &load),
        Contender::http("a persistent hook", &hook.url, &load),
    ];
    if let Some(gate) = &in_store {
        contenders.push(Contender::http("limits in Redis", &gate.url, &load));
    }
    let measured = contest(bench, &contenders)?;
    let mut table = Table::of(
        "guards, calls over HTTP, 1 connection",
        &measured,
        &[
            ("p50, µs", |one| one.p50),
            ("p99, µs", |one| one.p99),
            ("calls per second", |one| one.per_second),
        ],
    );
    if let [plain, limits, hook, rest @ ..] = &measured[..] {
        let spread = added(plain, limits);
        table.finding("limits in memory add, µs", spread, "at most 5", spread.median <= 5.0);
        let spread = added(plain, hook);
        table.finding("a persistent hook adds, µs", spread, "at most 300", spread.median <= 300.0);
        if let ([in_store], Ok(store)) = (rest, &store) {
            table.note(format!("limits in Redis add, µs: {}", added(plain, in_store)));
            table.note(format!("one round trip to it (PING), µs: {}", store.round_trip()?));
            let calls: f64 = in_store.samples.iter().map(|sample| sample.count).sum();
            let trips = Spread::of([store.scripts()? / calls]);
            // The warm-up runs scripts too, and is not counted as calls.
            let met = trips.median <= 1.1;
            table.finding("round trips to Redis a call", trips, "at most 1", met);
        }
    }
    if let Err(why) = &store {
        table.note(format!("Redis skipped: {why}"));
    }
    missing(bench, &mut table);
    Ok(table)
}

/// The additional time of one contender over another, in the same round.
fn added(plain: &Measured, guarded: &Measured) -> Spread {
    let rounds = plain.samples.iter().zip(&guarded.samples);
    Spread::of(rounds.map(|(plain, guarded)| guarded.p50 - plain.p50))
}

/// A Redis server for the measurement.
struct Store {
    port: u16,
    _process: Process,
}

impl Store {
    fn start(bench: &Bench) -> Result<Store> {
        let (port, folder) = (free_port()?, bench.subfolder("redis")?);
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.current_dir(&folder);
        let mut process = Process::start("redis-server", &mut command, &folder)?;
        process.wait_for(Duration::from_millis(10), || {
            let connected = TcpStream::connect(("127.0.0.1", port));
            connected.map(drop).map_err(|error| error.to_string())
        })?;
        Ok(Store { port, _process: process })
    }

    fn connect(&self) -> Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(("127.0.0.1", self.port));
        let stream = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        stream.map(BufReader::new).map_err(|error| format!("redis: {error}"))
    }

    /// The time of a `PING`.
    fn round_trip(&self) -> Result<Spread> {
        let mut stream = self.connect()?;
        let mut times = Vec::new();
        for _ in 0..2_000 {
            let begun = std::time::Instant::now();
            let asked = stream.get_mut().write_all(b"PING\r\n");
            let mut line = String::new();
            asked.and_then(|()| stream.read_line(&mut line)).map_err(|error| error.to_string())?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        // The middle half, because other sections show medians of rounds.
        Ok(Spread::of(times.get(500..1_500).unwrap_or_default().iter().copied()))
    }

    /// The number of scripts that it has run.
    fn scripts(&self) -> Result<f64> {
        let wrong = |error: std::io::Error| format!("redis: {error}");
        let mut stream = self.connect()?;
        stream.get_mut().write_all(b"INFO commandstats\r\n").map_err(wrong)?;
        let mut line = String::new();
        stream.read_line(&mut line).map_err(wrong)?;
        let length: u64 = line.trim_start_matches('$').trim().parse().unwrap_or(0);
        let mut text = String::new();
        stream.take(length).read_to_string(&mut text).map_err(wrong)?;
        let calls = |verb: &str| {
            let rest = text.split(&format!("cmdstat_{verb}:calls=")).nth(1)?;
            rest.split(',').next()?.parse::<f64>().ok()
        };
        Ok(calls("evalsha").unwrap_or(0.0) + calls("eval").unwrap_or(0.0))
    }
}
