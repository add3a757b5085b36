//! Updates of resources: the time from a call that changes a resource to the notification of its subscriber, with 1,000
//! subscriptions on one session.

use std::io::Read;
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::json;
use toolward_testkit::echo::others::uri;

use super::http::missing;
use super::spread::Spread;
use super::table::Table;
use super::toolward::{Rules, Setup, TOKEN};
use super::wire::{Endpoint, Wire};
use super::{Bench, Result};

const SUBSCRIPTIONS: usize = 1_000;
const UPDATES: usize = 200;
const TARGET_MS: f64 = 50.0;
const UPDATE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn run(bench: &Bench) -> Result<Table> {
    if let Some(why) = &bench.no_serve {
        return Err(format!("toolward cannot serve: {why}"));
    }
    let (program, count) = (bench.testkit.display(), SUBSCRIPTIONS);
    let server = format!(
        "command: \"{program}\", args: [echo-stdio, --resources, \"{count}\", --legacy], share: true"
    );
    let setup = Setup::of(bench, &[("echo".into(), server)], Rules::Kinds)?;
    let toolward = setup.start(bench)?;
    let endpoint = Endpoint::new(&toolward.url, TOKEN);
    let mut table =
        Table::new("updates, 1,000 subscriptions", &["p50, ms", "p99, ms", "longest, ms"]);

    let session = endpoint.clone().begin_session()?;
    let mut wire = session.open()?;
    for number in 0..SUBSCRIPTIONS {
        wire.ask("resources/subscribe", json!({ "uri": uri(number) }))?;
    }
    let arrivals = follow(session.events()?);
    report(&mut table, "a legacy session", times(&mut wire, &arrivals, Wire::ask)?);

    let uris: Vec<String> = (0..SUBSCRIPTIONS).map(uri).collect();
    let filter = json!({ "notifications": { "resourceSubscriptions": uris } });
    let arrivals = follow(endpoint.stream("subscriptions/listen", filter)?);
    acknowledged(&arrivals)?;
    let mut wire = endpoint.open()?;
    report(&mut table, "a modern stream", times(&mut wire, &arrivals, Wire::ask_modern)?);
    missing(bench, &mut table);
    Ok(table)
}

/// An event, and when it arrived.
type Arrival = (Instant, String);

/// Passes on the events of a stream, until it ends.
fn follow(stream: TcpStream) -> Receiver<Arrival> {
    let (sender, arrivals) = channel();
    std::thread::spawn(move || read(stream, &sender));
    arrivals
}

fn read(mut stream: TcpStream, arrivals: &Sender<Arrival>) {
    let (mut bytes, mut piece) = (Vec::new(), [0; 64 << 10]);
    while let Ok(read) = stream.read(&mut piece)
        && read > 0
    {
        let now = Instant::now();
        bytes.extend_from_slice(&piece[..read]);
        // The framing of chunks is between events.
        while let Some(end) = bytes.windows(2).position(|end| end == b"\n\n") {
            let event: Vec<u8> = bytes.drain(..end + 2).collect();
            let event = String::from_utf8_lossy(&event).into_owned();
            if event.contains("data: ") && arrivals.send((now, event)).is_err() {
                return;
            }
        }
    }
}

/// Waits until a stream acknowledges all subscriptions.
fn acknowledged(arrivals: &Receiver<Arrival>) -> Result<()> {
    let first = arrivals.recv_timeout(UPDATE_TIMEOUT);
    let (_, event) = first.map_err(|_| "the subscriptions are not acknowledged")?;
    let accepted = event.matches("bench://docs/").count();
    match accepted == SUBSCRIPTIONS {
        true => Ok(()),
        false => Err(format!("{accepted} of {SUBSCRIPTIONS} subscriptions are accepted: {event}")),
    }
}

type Ask = fn(&mut Wire, &str, serde_json::Value) -> Result<serde_json::Value>;

/// Changes resources one after the other; how long each update takes, in milliseconds.
fn times(wire: &mut Wire, arrivals: &Receiver<Arrival>, ask: Ask) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(UPDATES);
    for update in 0..UPDATES {
        let changed = uri(update * SUBSCRIPTIONS / UPDATES);
        let begun = Instant::now();
        let call = json!({"name": "echo__touch", "arguments": {"uri": changed}});
        ask(wire, "tools/call", call)?;
        loop {
            let next = arrivals.recv_timeout(UPDATE_TIMEOUT);
            let (at, event) = next.map_err(|_| format!("no update of {changed}"))?;
            if event.contains("notifications/resources/updated") {
                if !event.contains(&changed) {
                    return Err(format!("an update of another resource than {changed}: {event}"));
                }
                times.push((at - begun).as_secs_f64() * 1000.0);
                break;
            }
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

fn report(table: &mut Table, what: &str, times: Vec<f64>) {
    let at = |share: f64| {
        let index = (times.len() as f64 * share) as usize;
        times.get(index.min(times.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    };
    table.row(what, [at(0.5), at(0.99), at(1.0)].map(|time| format!("{time:.2}")));
    let longest = Spread::of([at(1.0)]);
    let what = format!("{what}, the longest of {UPDATES}, ms");
    table.finding(&what, longest, "at most 50", longest.median <= TARGET_MS);
}
