//! The cost of an open admin UI: a gateway without viewers, compared with one that has three viewers of
//! Live and one of Servers, in the same rounds.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::contest::{Contender, Measured, Sample, contest};
use super::http::missing;
use super::spread::Spread;
use super::table::Table;
use super::toolward::{PageAt, Rules, Setup, TOKEN, Toolward};
use super::{Bench, Result};

/// The number of viewers of Live.
const WATCHERS: usize = 3;
/// The polling interval of the Servers view.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

pub(super) fn run(bench: &Bench) -> Result<Table> {
    if let Some(why) = &bench.no_serve {
        return Err(format!("toolward cannot serve: {why}"));
    }
    let (_echo, server) = bench.echo(1, 0)?;
    let gate = || -> Result<(Toolward, PageAt)> {
        let setup = Setup::new(bench, &[("echo".into(), &server)], Rules::Mixed)?;
        let (setup, port) = setup.with_page()?;
        let gate = setup.start(bench)?;
        Ok((gate, setup.page(port)?))
    };
    let (alone, _) = gate()?;
    let (seen, page) = gate()?;
    let watched = Viewers::begin(&page)?;

    let call = ["--token", TOKEN, "--tool", "echo__echo"];
    let load = |name, gate: &Toolward, connections| {
        Contender::http(name, &gate.url, &[&["--connections", connections], &call[..]].concat())
    };
    let contenders = [
        load("1 connection, no viewer", &alone, "1"),
        load("1 connection, 4 look", &seen, "1"),
        load("16 connections, no viewer", &alone, "16"),
        load("16 connections, 4 look", &seen, "16"),
    ];
    let measured = contest(bench, &contenders)?;
    let mut table = Table::of(
        "an open admin UI, calls over HTTP",
        &measured,
        &[
            ("p50, µs", |one| one.p50),
            ("p99, µs", |one| one.p99),
            ("calls per second", |one| one.per_second),
        ],
    );
    if let [alone, seen, many_alone, many_seen] = &measured[..] {
        let added = rounds(alone, seen, |alone, seen| seen.p50 - alone.p50);
        let apart = apart(alone, |one| one.p50);
        let target = format!("within the spread of rounds, {apart:.1}");
        table.finding("p50 that it adds, µs", added, &target, added.median <= apart);
        let lost = rounds(many_alone, many_seen, |alone, seen| {
            100.0 * (1.0 - seen.per_second / alone.per_second)
        });
        let most = many_alone.spread(|one| one.per_second).median;
        let apart = 100.0 * self::apart(many_alone, |one| one.per_second) / most;
        let target = format!("within the spread of rounds, {apart:.1}");
        table.finding("throughput that it takes, %", lost, &target, lost.median <= apart);
    }
    let (rows, views) = watched.end();
    // If the viewers got nothing, the measurement is void.
    if rows == 0 || views == 0 {
        return Err(format!("the watchers were shown {rows} rows and {views} views of servers"));
    }
    table.note(format!("the watchers were shown {rows} rows and {views} views of servers"));
    missing(bench, &mut table);
    Ok(table)
}

/// Compares two contenders round by round.
fn rounds(alone: &Measured, seen: &Measured, compare: impl Fn(&Sample, &Sample) -> f64) -> Spread {
    let rounds = alone.samples.iter().zip(&seen.samples);
    Spread::of(rounds.map(|(alone, seen)| compare(alone, seen)))
}

/// The spread of one contender's rounds.
fn apart(measured: &Measured, value: impl Fn(&Sample) -> f64) -> f64 {
    let values = measured.samples.iter().map(value);
    let (least, most) = values
        .fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
    most - least
}

/// Viewers, until they are stopped.
struct Viewers {
    streams: Vec<TcpStream>,
    threads: Vec<std::thread::JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    rows: Arc<AtomicU64>,
    views: Arc<AtomicU64>,
}

impl Viewers {
    fn begin(page: &PageAt) -> Result<Viewers> {
        let mut watched = Viewers {
            streams: Vec::new(),
            threads: Vec::new(),
            stop: Arc::default(),
            rows: Arc::default(),
            views: Arc::default(),
        };
        for _ in 0..WATCHERS {
            let stream = page.ask("live/events").map_err(|error| format!("live: {error}"))?;
            let own = stream.try_clone().map_err(|error| format!("live: {error}"))?;
            watched.streams.push(own);
            let rows = watched.rows.clone();
            watched.threads.push(std::thread::spawn(move || {
                let lines = BufReader::new(stream).lines().map_while(std::result::Result::ok);
                for line in lines {
                    let shown = line.matches(" data-id=").count();
                    rows.fetch_add(u64::try_from(shown).unwrap_or(0), Ordering::Relaxed);
                }
            }));
        }
        let (page, stop, views) = (page.clone(), watched.stop.clone(), watched.views.clone());
        watched.threads.push(std::thread::spawn(move || {
            let mut next = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                if Instant::now() >= next {
                    next += POLL_INTERVAL;
                    views.fetch_add(u64::from(page.shows("servers/now")), Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }));
        Ok(watched)
    }

    /// Stops the viewers; returns the number of rows and of Servers views that they got.
    fn end(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        for stream in &self.streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads {
            let _ = thread.join();
        }
        (self.rows.load(Ordering::Relaxed), self.views.load(Ordering::Relaxed))
    }
}

impl PageAt {
    /// Whether a view responds.
    fn shows(&self, view: &str) -> bool {
        let Ok(mut stream) = self.ask(view) else { return false };
        let mut answer = String::new();
        let _ = stream.set_read_timeout(Some(POLL_INTERVAL));
        let _ = stream.read_to_string(&mut answer);
        answer.starts_with("HTTP/1.1 200 ")
    }

    /// Requests a view without reading the response.
    fn ask(&self, view: &str) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let connection = if view.ends_with("/events") { "keep-alive" } else { "close" };
        let request = format!(
            "GET {}{view} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\n\
             HX-Request: true\r\nConnection: {connection}\r\n\r\n",
            self.path, self.port, self.token
        );
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    }
}
