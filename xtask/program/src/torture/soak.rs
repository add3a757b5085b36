//! `cargo xtask torture soak`: well-behaved and hostile clients at the same time, for long.
//!
//! Memory must stay flat, no well-behaved call may fail, and hostile clients must not slow down the
//! well-behaved ones. Hostile clients also use up CPU time, which the gateway cannot prevent. So calls
//! are timed three times: alone, while the same clients attack another gateway on this machine, and
//! while they attack this one. Only the difference between the last two is caused by the gateway.

mod hostile;

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use toolward_testkit::echo::{self, Server};
use toolward_testkit::histogram::Histogram;

use super::client::Client;
use super::{Gateway, Plan, Result, free_port};

const GOOD: &str = "soak-well-behaved-71c2";
const BAD: &str = "soak-hostile-9d04e";
const CLIENTS: u32 = 4;
/// How much the highest resident memory may grow from the second quarter of the run to the last.
const MAX_GROWTH: f64 = 1.10;
/// How much longer the slowest percent of calls may take if this gateway is attacked and not another.
const MAX_SLOWDOWN: f64 = 2.0;

const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);
const SAMPLES_PER_MINUTE: usize = 240;

/// The results of well-behaved clients.
#[derive(Default)]
struct CallResults {
    times: Histogram,
    failed: u64,
    first: Option<String>,
}

pub(super) fn run(plan: &Plan) -> Result<()> {
    let wrong = |error: std::io::Error| error.to_string();
    let echo = echo::http::start(Server::new(&echo::tools(3, 200)).map_err(wrong)?);
    let echo = echo.map_err(wrong)?;
    let folder = tempfile::tempdir().map_err(wrong)?;
    let heavy = HeavyServer::start(folder.path())?;
    let servers = format!(
        "{{echo: {{url: \"{}\"}}, heavy: {{url: \"{}\", max_timeout: 20s}}}}",
        echo.url(),
        heavy.url
    );
    let (config, port) = configure(&folder.path().join("measured"), &servers).map_err(wrong)?;
    let (gateway, _) = Gateway::start(plan, &config, port)?;
    let pid = gateway.0.id();

    let whole = Duration::from_secs(60 * plan.times as u64);
    let part = (whole / 10).max(Duration::from_secs(20));
    let attacked = whole.saturating_sub(2 * part).max(part);
    let phase = |name: &str, time: Duration| eprintln!("soak: {name} for {} s", time.as_secs());
    phase("calls alone", part);
    let alone = well_behaved(plan, port, part);
    phase("calls while another gateway is attacked", part);
    let elsewhere = {
        let (config, other) = configure(&folder.path().join("other"), &servers).map_err(wrong)?;
        let (attacked, _) = Gateway::start(plan, &config, other)?;
        let (ended, attacks) = (Arc::default(), Arc::default());
        let attackers = hostile::start(other, BAD, &ended, &attacks);
        let seen = well_behaved(plan, port, part);
        ended.store(true, Ordering::Release);
        for attacker in attackers {
            let _ = attacker.join();
        }
        attacked.end()?;
        seen
    };
    let (ended, attacks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let attackers = hostile::start(port, BAD, &ended, &attacks);
    let sampler = {
        let ended = ended.clone();
        std::thread::spawn(move || {
            let mut samples = Vec::new();
            while !ended.load(Ordering::Acquire) {
                samples.push(resident(pid));
                if samples.len() % SAMPLES_PER_MINUTE == 0 {
                    let (minute, now) = (samples.len() / SAMPLES_PER_MINUTE, resident(pid) >> 20);
                    eprintln!("soak: minute {minute}, {now} MiB resident");
                }
                std::thread::sleep(SAMPLE_INTERVAL);
            }
            samples
        })
    };
    phase("calls while this gateway is attacked", attacked);
    let beside = well_behaved(plan, port, attacked);
    ended.store(true, Ordering::Release);
    let samples = sampler.join().unwrap_or_default();
    for attacker in attackers {
        let _ = attacker.join();
    }
    let judged = judge([&alone, &elsewhere, &beside], &samples, attacks.load(Ordering::Relaxed));
    gateway.end()?;
    judged
}

/// Writes a configuration with both agents to a directory of its own; its file and port.
fn configure(folder: &Path, servers: &str) -> std::io::Result<(PathBuf, u16)> {
    std::fs::create_dir(folder)?;
    let port = free_port().map_err(std::io::Error::other)?;
    let mut text = format!("listen: 127.0.0.1:{port}\nadmin: off\nstate: state\n");
    text.push_str("audit: {dir: audit, rotate: {size: 16MiB}}\n");
    text.push_str("limits_of: {buffered_bytes: 128 MiB, streams: 400}\n");
    let _ = writeln!(text, "servers: {servers}\nagents:");
    for (agent, token, servers) in [("good", GOOD, "echo"), ("bad", BAD, "heavy")] {
        std::fs::write(folder.join(agent), token)?;
        let _ = write!(text, "  {agent}:\n    tokens: [\"${{file:{agent}}}\"]\n");
        let _ = writeln!(text, "    allow: {{servers: [{servers}]}}");
    }
    let config = folder.join("toolward.yaml");
    std::fs::write(&config, text)?;
    Ok((config, port))
}

fn judge(seen: [&CallResults; 3], samples: &[u64], attacks: u64) -> Result<()> {
    let [alone, elsewhere, beside] = seen;
    let most = |part: std::ops::Range<usize>| {
        let part = samples.get(part).unwrap_or_default();
        part.iter().copied().max().unwrap_or(0)
    };
    let quarter = samples.len() / 4;
    let (early, late) = (most(quarter..2 * quarter), most(3 * quarter..samples.len()));
    println!("attacks      {attacks} on the measured gateway");
    for (name, seen) in [("alone", alone), ("elsewhere", elsewhere), ("attacked", beside)] {
        let quantile = |part| format!("{:.2} ms", seen.times.quantile(part).as_secs_f64() * 1e3);
        println!(
            "{name:12} {} calls, {} failed, p50 {}, p99 {}",
            seen.times.count(),
            seen.failed,
            quantile(0.5),
            quantile(0.99)
        );
    }
    let (before, after) = (elsewhere.times.quantile(0.99), beside.times.quantile(0.99));
    println!(
        "memory       {} MiB in the second quarter, {} MiB in the last, at most",
        early >> 20,
        late >> 20
    );
    if let Some(why) = seen.iter().find_map(|seen| seen.first.as_ref()) {
        return Err(format!("a well-behaved call failed: {why}"));
    }
    if beside.times.count() == 0 || attacks == 0 {
        return Err("nothing was asked".into());
    }
    if late as f64 > early as f64 * MAX_GROWTH {
        return Err("memory grows".into());
    }
    if after > before.mul_f64(MAX_SLOWDOWN) {
        return Err("hostile clients slow the well-behaved ones down".into());
    }
    Ok(())
}

/// Calls at regular intervals for some time.
fn well_behaved(plan: &Plan, port: u16, time: Duration) -> CallResults {
    let pause = Duration::from_secs(1) * CLIENTS / plan.rate.max(1);
    let until = Instant::now() + time;
    let one = move |number: u32| {
        let (mut client, mut seen) = (Client::new(port, GOOD), CallResults::default());
        let mut next = Instant::now() + pause * number / CLIENTS;
        for count in 0_u64.. {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            if Instant::now() >= until {
                break;
            }
            let begun = Instant::now();
            match client.call(&format!("g{number}-{count}")) {
                Ok(true) => seen.times.record(begun.elapsed()),
                other => {
                    seen.failed += 1;
                    seen.first.get_or_insert(format!("{other:?}"));
                }
            }
            next = (next + pause).max(Instant::now());
        }
        seen
    };
    let clients: Vec<_> =
        (0..CLIENTS).map(|number| std::thread::spawn(move || one(number))).collect();
    let mut all = CallResults::default();
    for client in clients {
        let Ok(seen) = client.join() else { continue };
        all.times.merge(&seen.times);
        all.failed += seen.failed;
        all.first = all.first.or(seen.first);
    }
    all
}

/// The resident memory of a process, in bytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10
}

/// The scripted server of the tests, with tools whose results are large, late or many.
struct HeavyServer {
    child: Child,
    url: String,
}

impl HeavyServer {
    fn start(folder: &Path) -> Result<HeavyServer> {
        let wrong = |error: std::io::Error| format!("the scripted server: {error}");
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../crates/toolward/tests/program/both.py");
        let names = ["t", "large", "flood", "hang"];
        let tools =
            names.map(|name| serde_json::json!({"name": name, "inputSchema": {"type": "object"}}));
        let list = folder.join("heavy.json");
        std::fs::write(&list, serde_json::json!(tools).to_string()).map_err(wrong)?;
        let mut child = Command::new("nice")
            .args(["-n", "19", "python3"])
            .arg(script)
            .args(["http", "legacy", "/dev/null"])
            .arg(list)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(wrong)?;
        let mut port = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut port).map_err(wrong)?;
        }
        Ok(HeavyServer { child, url: format!("http://127.0.0.1:{}/mcp", port.trim()) })
    }
}

impl Drop for HeavyServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
