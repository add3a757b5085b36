//! Replaces the policy repeatedly under load. No request may fail, no stream may end, and every
//! decision must match the policy version in its record.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use toolward_testkit::echo::{self, Server};

use super::client::Client;
use super::{Gateway, Plan, Result, free_port};

const CLIENTS: u32 = 6;
const STREAMS: usize = 100;
const EVERY: Duration = Duration::from_millis(100);
const STAYS: &str = "torture-stays-7c20";
const GOES: &str = "torture-goes-11d8";

/// The totals of all clients.
#[derive(Default)]
struct Counts {
    asked: AtomicU64,
    failed: AtomicU64,
    first: Mutex<Option<String>>,
}

impl Counts {
    fn failed(&self, why: String) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}

pub(super) fn run(plan: &Plan) -> Result<()> {
    let wrong = |error: std::io::Error| error.to_string();
    let server =
        echo::http::start(Server::new(&echo::tools(3, 200)).map_err(wrong)?).map_err(wrong)?;
    let folder = tempfile::tempdir().map_err(wrong)?;
    let (config, port) = (folder.path().join("toolward.yaml"), free_port()?);
    let mut text = format!("listen: 127.0.0.1:{port}\nadmin: off\nstate: state\n");
    text.push_str("audit: {dir: audit}\npolicies: [policy.yaml]\n");
    let _ = writeln!(text, "servers: {{echo: {{url: \"{}\"}}}}", server.url());
    text.push_str("agents:\n");
    for (agent, token) in [("stays", STAYS), ("goes", GOES)] {
        std::fs::write(folder.path().join(agent), token).map_err(wrong)?;
        let _ = write!(text, "  {agent}:\n    tokens: [\"${{file:{agent}}}\"]\n");
        text.push_str("    allow: {servers: [echo]}\n");
    }
    std::fs::write(&config, &text).map_err(wrong)?;
    let policy = folder.path().join("policy.yaml");
    put(&policy, false)?;
    let (gateway, _) = Gateway::start(plan, &config, port)?;
    let other = echo::tools(3, 200);
    let names: Value = serde_json::from_str(&other).map_err(|error| error.to_string())?;
    let flips = names[1]["name"].as_str().unwrap_or_default().to_string();
    let flips = format!("echo__{flips}");

    let mut streams = Vec::new();
    for number in 0..STREAMS {
        streams.push(stream(port, if number < 10 { GOES } else { STAYS }).map_err(wrong)?);
    }
    let (ended, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
    let pause = Duration::from_secs(1) * (CLIENTS + 1) / plan.rate.max(1);
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (ended, counts) = (ended.clone(), counts.clone());
            std::thread::spawn(move || ask_on(number, port, pause, &ended, &counts))
        })
        .collect();
    let standard = StdioClient::start(plan, &config)?;
    let (over, counted) = (ended.clone(), counts.clone());
    clients.push(std::thread::spawn(move || standard.ask_on(pause, &over, &counted)));

    let mut prober = Client::new(port, STAYS);
    let mut times = Vec::new();
    let mut next = Instant::now();
    for time in 0..plan.times {
        let open = time % 2 == 0;
        put(&policy, open)?;
        let begun = Instant::now();
        loop {
            let listed = prober.list().map_err(wrong)?;
            if listed.contains(&flips) == open {
                break;
            }
            if begun.elapsed() > Duration::from_secs(10) {
                return Err(format!("reload {time} was never activated"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        times.push(begun.elapsed());
        if (time + 1) % 100 == 0 {
            eprintln!("{} of {} reloads", time + 1, plan.times);
        }
        next += EVERY;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    ended.store(true, Ordering::Release);
    for client in clients {
        let _ = client.join();
    }
    let cut = streams.iter().filter(|stream| is_closed(stream)).count();

    // A removed agent is revoked, and its streams end. The comment at the end is needed because a
    // shorter file would be rejected as truncated.
    let without = text.split("  goes:").next().unwrap_or_default();
    replace(&config, &format!("{without}# `goes` is gone.\n"))?;
    let begun = Instant::now();
    while streams.iter().take(10).any(|stream| !is_closed(stream)) {
        if begun.elapsed() > Duration::from_secs(10) {
            return Err("the streams of a removed agent stay open".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let revoked = begun.elapsed();
    let others = streams.iter().skip(10).filter(|stream| is_closed(stream)).count();
    gateway.end()?;

    let strange = contradictions(&folder.path().join("audit"), &flips)?;
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    let (asked, failed) =
        (counts.asked.load(Ordering::Relaxed), counts.failed.load(Ordering::Relaxed));
    println!("reloads      {}", plan.times);
    println!("active       p50 {:.1?}, p99 {:.1?}, at most {:.1?}", at(50), at(99), at(100 - 1));
    println!("asked        {asked}, failed: {failed}");
    println!("streams      {STREAMS}, cut: {}", cut + others);
    println!("revoked      its streams ended within {revoked:.1?}");
    println!("decisions    against the policy they name: {strange}");
    match failed as usize + cut + others + strange {
        0 => Ok(()),
        _ => {
            let first = counts.first.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Err(format!("something was lost: {}", first.unwrap_or_default()))
        }
    }
}

/// One of two policies: the second tool is allowed or not.
fn put(policy: &Path, open: bool) -> Result<()> {
    let list = if open { "\"*\"" } else { "echo" };
    replace(policy, &format!("allowed_tools: [{list}]\n"))
}

fn replace(path: &Path, text: &str) -> Result<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).map_err(|error| error.to_string())?;
    std::fs::rename(beside, path).map_err(|error| error.to_string())
}

/// Lists and calls in turns, at regular intervals.
fn ask_on(number: u32, port: u16, pause: Duration, ended: &AtomicBool, counts: &Counts) {
    let mut client = Client::new(port, STAYS);
    let mut next = Instant::now();
    for count in 0_u64.. {
        if ended.load(Ordering::Acquire) {
            return;
        }
        counts.asked.fetch_add(1, Ordering::Relaxed);
        let outcome = match count % 3 {
            0 => client.list().map(|list| list.contains("echo__echo")),
            _ => client.call(&format!("r{number}-{count}")),
        };
        match outcome {
            Ok(true) => {}
            Ok(false) => counts.failed("a request was refused".into()),
            Err(error) => counts.failed(error.to_string()),
        }
        next += pause;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// A client over stdio.
struct StdioClient {
    child: Child,
    to: ChildStdin,
    from: std::io::BufReader<ChildStdout>,
}

impl StdioClient {
    fn start(plan: &Plan, config: &Path) -> Result<StdioClient> {
        let mut command = Command::new(&plan.toolward);
        command.args(["stdio", "--agent", "stays", "-c"]).arg(config);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the gateway has no standard streams".into());
        };
        Ok(StdioClient { child, to, from: std::io::BufReader::new(from) })
    }

    fn ask_on(mut self, pause: Duration, ended: &AtomicBool, counts: &Counts) {
        use std::io::BufRead;
        let mut next = Instant::now();
        for count in 0_u64.. {
            if ended.load(Ordering::Acquire) {
                break;
            }
            counts.asked.fetch_add(1, Ordering::Relaxed);
            let (body, wanted) = match count % 3 {
                0 => (super::client::body("tools/list", &count.to_string(), None), "echo__echo"),
                _ => {
                    let call = Some(("echo__echo", "x"));
                    (super::client::body("tools/call", &count.to_string(), call), "\"result\"")
                }
            };
            let mut line = String::new();
            let asked = writeln!(self.to, "{body}").and_then(|()| self.to.flush());
            match asked.and_then(|()| self.from.read_line(&mut line)) {
                Ok(_) if line.contains(wanted) => {}
                Ok(_) => counts.failed(format!("over standard streams: {line:.200}")),
                Err(error) => counts.failed(error.to_string()),
            }
            next += pause;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        drop(self.to);
        let _ = self.child.wait();
    }
}

/// Opens a session and its stream.
fn stream(port: u16, token: &str) -> std::io::Result<TcpStream> {
    let head = format!(
        "Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nAccept: application/json, \
         text/event-stream\r\n"
    );
    let hello = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\
                 \"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\
                 \"torture\",\"version\":\"1\"}}}";
    let mut first = TcpStream::connect(("127.0.0.1", port))?;
    write!(
        first,
        "POST /mcp HTTP/1.1\r\n{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{hello}",
        hello.len()
    )?;
    let answer = read_head(&mut first)?;
    let id = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_string())
    });
    let id = id.ok_or_else(|| std::io::Error::other(format!("no session: {answer}")))?;
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(stream, "GET /mcp HTTP/1.1\r\n{head}Mcp-Session-Id: {id}\r\n\r\n")?;
    let answer = read_head(&mut stream)?;
    if !answer.starts_with("HTTP/1.1 200") {
        return Err(std::io::Error::other(answer));
    }
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn read_head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.extend_from_slice(&byte);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Whether the other side has closed; pending data is read.
fn is_closed(mut stream: &TcpStream) -> bool {
    let mut room = [0; 4096];
    loop {
        match stream.read(&mut room) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

/// Listings that contradict their policy version, in all streams of the audit log.
fn contradictions(folder: &Path, flips: &str) -> Result<usize> {
    // The first listing with names shows which policy version lists the tool.
    let mut shows: HashMap<String, bool> = HashMap::new();
    let mut views: HashMap<String, bool> = HashMap::new();
    let mut strange = 0;
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        for record in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            if record["kind"] != "list" || record["servers"]["echo"]["outcome"].is_string() {
                continue;
            }
            let view = record["view"].as_str().unwrap_or_default().to_string();
            if let Some(names) = record["names"]["echo"]["shown"].as_array() {
                views.insert(view.clone(), names.iter().any(|name| name == flips));
            }
            let Some(shown) = views.get(&view) else { continue };
            let version = record["policy"].as_str().unwrap_or_default().to_string();
            strange += usize::from(shows.entry(version).or_insert(*shown) != shown);
        }
    }
    Ok(strange + usize::from(shows.len() != 2))
}
