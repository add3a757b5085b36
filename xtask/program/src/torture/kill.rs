//! Kills the gateway repeatedly under load. Every call that was carried out or answered must have a
//! record, and the chain must be intact.

use std::collections::HashSet;
use std::fmt::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use toolward_testkit::echo::{self, Server};
use toolward_testkit::json;

use super::client::Client;
use super::{Gateway, Plan, Result, free_port, record};

const CLIENTS: u32 = 8;
const TOKEN: &str = "torture-5b1e9c04d2";

type Ids = Arc<Mutex<HashSet<String>>>;

fn add(ids: &Ids, id: String) {
    ids.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
}

pub(super) fn run(plan: &Plan) -> Result<()> {
    let wrong = |error: std::io::Error| error.to_string();
    let (carried_out, answered) = (Ids::default(), Ids::default());
    let mut server = Server::new(&echo::tools(3, 200)).map_err(wrong)?;
    let heard = carried_out.clone();
    server.on_call = Some(Box::new(move |params| {
        let arguments = json::member(params, "arguments").unwrap_or_default();
        let id = json::string(arguments, "text").unwrap_or_default();
        add(&heard, String::from_utf8_lossy(id).into_owned());
    }));
    let server = echo::http::start(server).map_err(wrong)?;
    let folder = tempfile::tempdir().map_err(wrong)?;
    let (config, port) = (folder.path().join("toolward.yaml"), free_port()?);
    let mut text = format!("listen: 127.0.0.1:{port}\nadmin: off\nstate: state\n");
    let _ = writeln!(text, "audit: {{dir: audit, rotate: {{size: 1MiB}}}}");
    let _ = writeln!(text, "servers: {{echo: {{url: \"{}\"}}}}", server.url());
    let _ = write!(
        text,
        "agents:\n  a:\n    tokens: [\"${{file:token}}\"]\n    allow: {{servers: [echo]}}\n"
    );
    std::fs::write(folder.path().join("token"), TOKEN).map_err(wrong)?;
    std::fs::write(&config, text).map_err(wrong)?;

    let (mut gateway, _) = Gateway::start(plan, &config, port)?;
    let ended = Arc::new(AtomicBool::new(false));
    let pause = Duration::from_secs(1) * CLIENTS / plan.rate.max(1);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (ended, answered) = (ended.clone(), answered.clone());
            std::thread::spawn(move || call_on(number, port, pause, &ended, &answered))
        })
        .collect();
    let mut slowest = Duration::ZERO;
    for time in 0..plan.times {
        // Not always at the same point of the work.
        std::thread::sleep(Duration::from_micros(20_000 + (time as u64 * 7919) % 80_000));
        gateway.kill();
        let started;
        (gateway, started) = Gateway::start(plan, &config, port)?;
        slowest = slowest.max(started);
        if (time + 1) % 50 == 0 {
            eprintln!("{} of {} kills", time + 1, plan.times);
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    ended.store(true, Ordering::Release);
    for client in clients {
        let _ = client.join();
    }
    gateway.end()?;

    let audit = folder.path().join("audit");
    let found = record::read(&audit)?;
    let without = |ids: &Ids| {
        let ids = ids.lock().unwrap_or_else(PoisonError::into_inner);
        (ids.len(), ids.iter().filter(|id| !found.intents.contains(*id)).count())
    };
    let (carried_out, unrecorded) = without(&carried_out);
    let (answered, unknown) = without(&answered);
    println!("kills        {}", plan.times);
    println!("carried out  {carried_out}, without a record: {unrecorded}");
    println!("answered     {answered}, without a record: {unknown}");
    println!("records      {} in {} bytes, the chain holds", found.records, found.bytes);
    println!("repairs      {}", found.repairs);
    println!("start        {:.1} ms at most", slowest.as_secs_f64() * 1e3);
    let verified =
        Command::new(&plan.toolward).args(["audit", "verify", "--dir"]).arg(&audit).output();
    let verified = verified.map_err(wrong)?;
    if !verified.status.success() {
        return Err(format!("audit verify: {}", String::from_utf8_lossy(&verified.stdout)));
    }
    match unrecorded + unknown {
        0 if answered > 0 && found.repairs <= plan.times => Ok(()),
        0 => Err("nothing was answered, or more was repaired than torn".into()),
        missing => Err(format!("{missing} calls have no record")),
    }
}

/// Calls at regular intervals, and ignores failures.
fn call_on(number: u32, port: u16, pause: Duration, ended: &AtomicBool, answered: &Ids) {
    let mut client = Client::new(port, TOKEN);
    let mut next = Instant::now();
    for count in 0_u64.. {
        if ended.load(Ordering::Acquire) {
            return;
        }
        let id = format!("c{number}-{count}");
        if client.call(&id).is_ok_and(|carried_out| carried_out) {
            add(answered, id);
        }
        next += pause;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}
