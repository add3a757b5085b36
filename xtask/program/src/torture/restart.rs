//! Restarts the gateway by handover under load. No connection may be refused, and no request
//! interrupted.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use toolward_testkit::echo::{self, Server};

use super::client::Client;
use super::{Gateway, Plan, Result, free_port};

const CLIENTS: u32 = 8;
const TOKEN: &str = "torture-40b7e2f91c";
/// The time that an old gateway has to complete its requests.
const GRACE: Duration = Duration::from_secs(15);

pub(super) fn run(plan: &Plan) -> Result<()> {
    let wrong = |error: std::io::Error| error.to_string();
    let server = Server::new(&echo::tools(3, 200)).map_err(wrong)?;
    let server = echo::http::start(server).map_err(wrong)?;
    let folder = tempfile::tempdir().map_err(wrong)?;
    let (config, port) = (folder.path().join("toolward.yaml"), free_port()?);
    let mut text = format!("listen: 127.0.0.1:{port}\nadmin: off\nstate: state\n");
    text.push_str("audit: {dir: audit}\n");
    let _ = writeln!(text, "servers: {{echo: {{url: \"{}\"}}}}", server.url());
    text.push_str("agents:\n  a:\n    tokens: [\"${file:token}\"]\n    allow: {servers: [echo]}\n");
    std::fs::write(folder.path().join("token"), TOKEN).map_err(wrong)?;
    std::fs::write(&config, text).map_err(wrong)?;

    let (mut gateway, _) = Gateway::start(plan, &config, port)?;
    let (ended, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let failures = Arc::new(Mutex::new(Vec::<String>::new()));
    let pause = Duration::from_secs(1) * CLIENTS / plan.rate.max(1);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (ended, asked, failures) = (ended.clone(), asked.clone(), failures.clone());
            std::thread::spawn(move || {
                let mut client = Client::new(port, TOKEN);
                let mut next = Instant::now();
                for count in 0_u64.. {
                    if ended.load(Ordering::Acquire) {
                        return;
                    }
                    // Half of them reuse their connections, half reconnect each time.
                    if number % 2 == 0 {
                        client.disconnect();
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                    let outcome = client.call(&format!("h{number}-{count}"));
                    if !matches!(outcome, Ok(true)) {
                        let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                        failures.push(format!("{outcome:?}"));
                    }
                    next += pause;
                    std::thread::sleep(next.saturating_duration_since(Instant::now()));
                }
            })
        })
        .collect();
    for time in 0..plan.times {
        std::thread::sleep(Duration::from_millis(300));
        let (next, _) = Gateway::start_with(plan, &config, port, &["--take-over"])?;
        let mut old = std::mem::replace(&mut gateway, next);
        old.ended(GRACE)?;
        if (time + 1) % 5 == 0 {
            eprintln!("{} of {} restarts", time + 1, plan.times);
        }
    }
    std::thread::sleep(Duration::from_millis(300));
    ended.store(true, Ordering::Release);
    for client in clients {
        let _ = client.join();
    }
    gateway.end()?;
    let failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
    println!("restarts     {}", plan.times);
    println!("asked        {}, failed: {}", asked.load(Ordering::Relaxed), failures.len());
    match failures.first() {
        None => Ok(()),
        Some(first) => Err(format!("something was lost: {first}")),
    }
}
