//! Three gateways behind nginx, with a Redis Cluster and PostgreSQL: each gateway is killed and restarted in turn under
//! load, a Redis node fails over, and PostgreSQL restarts. `REPLICAS_SECONDS` makes it longer.

use std::collections::{HashMap, HashSet};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolward_testkit::postgres::Postgres;

use super::harness::*;
use super::nginx::{Nginx, free_port};
use super::redis::groups::Cluster;
use super::upstream::{self, Executed};

const TOOLS: &[&str] = &["free", "limited", "counted", "ask"];
const KEY: &str = "the-secret-that-the-whole-fleet-shares";
/// Agents, each with a session and a thread.
const AGENTS: usize = 12;
/// Requests per second, of all agents together.
const RATE: f64 = 300.0;
/// The limit of `limited`, which a third of the requests exceeds.
const LIMIT: (f64, f64) = (50.0, 50.0);
/// Set once the Redis node has failed over: it may have lost a count that it had not replicated.
static COUNTING: AtomicBool = AtomicBool::new(false);
/// A key of the limits, to find the node that has them.
const LIMIT_KEY: &str = "{toolward}";

fn seconds() -> u64 {
    std::env::var("REPLICAS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

/// The quota of `counted`, which does not grow during the test and is used up by its end.
fn quota() -> usize {
    10 * seconds().max(5) as usize
}

/// The results of a client's calls.
#[derive(Default)]
struct Seen {
    /// Numbers of calls that were answered with a result.
    done: HashSet<(String, u64)>,
    /// Numbers of calls that were sent.
    sent: HashSet<(String, u64)>,
    refused: u64,
    /// Calls of `counted` that the limit refused.
    uncounted: usize,
    /// Requests without a response of a gateway: it was killed, or no gateway was running.
    lost: u64,
    /// Responses to a session that is not known any more.
    forgotten: u64,
    other: Vec<String>,
    /// In milliseconds.
    latencies: Vec<f64>,
}

impl Seen {
    fn add(&mut self, other: Seen) {
        self.done.extend(other.done);
        self.sent.extend(other.sent);
        self.refused += other.refused;
        self.uncounted += other.uncounted;
        self.lost += other.lost;
        self.forgotten += other.forgotten;
        self.other.extend(other.other);
        self.latencies.extend(other.latencies);
    }

    fn percentile(&mut self, part: f64) -> f64 {
        self.latencies.sort_by(f64::total_cmp);
        let at = (self.latencies.len() as f64 * part) as usize;
        self.latencies.get(at.min(self.latencies.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }
}

static NUMBER: AtomicU64 = AtomicU64::new(1);

/// Calls tools at a steady rate until `stop` is set. A lost call is not repeated.
fn client(session: &Session, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let pause = Duration::from_secs_f64(AGENTS as f64 / RATE);
    let mut next = Instant::now();
    while !stop.load(Ordering::Acquire) {
        next += pause;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let tool = if number.is_multiple_of(3) { "limited" } else { "free" };
        let params = json!({"name": format!("s__{tool}"), "arguments": {"n": number}});
        let body = request(json!(number), "tools/call", params);
        seen.sent.insert((tool.into(), number));
        let begun = Instant::now();
        let reply = post(session, &body);
        let Some((status, answer)) = reply else {
            seen.lost += 1;
            continue;
        };
        seen.latencies.push(begun.elapsed().as_secs_f64() * 1000.0);
        match status {
            200 if answer["result"]["content"][0]["text"] == number.to_string().as_str() => {
                seen.done.insert((tool.into(), number));
            }
            200 if error(&answer) == Some("limit_exceeded") && tool == "counted" => {
                seen.uncounted += 1;
            }
            200 => seen.refused += 1,
            404 => seen.forgotten += 1,
            502..=504 => seen.lost += 1,
            _ => seen.other.push(format!("{status} {answer}")),
        }
    }
    seen
}

/// One exchange; `None` if the connection was lost.
fn post(session: &Session, body: &Value) -> Option<(u16, Value)> {
    use std::io::{Read, Write};
    let body = body.to_string();
    let mut headers = vec![("Content-Type", "application/json"), ("Connection", "close")];
    headers.push(("Accept", "application/json, text/event-stream"));
    headers.extend(session.headers());
    let agent = &session.agent;
    let fields: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let token = agent.token.as_deref().unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {token}\r\n{fields}Content-Length: {}\r\n\r\n",
        agent.port,
        body.len()
    );
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", agent.port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).ok()?;
    let response = String::from_utf8_lossy(&response).into_owned();
    let status = response.split(' ').nth(1)?.parse().ok()?;
    let at = response.find("{\"")?;
    // A response can be an event, and chunked: the JSON is on one line either way.
    let line = response.get(at..)?.lines().next()?;
    Some((status, serde_json::from_str(line).ok()?))
}

/// The numbers of calls with an intent, in the audit logs of all gateways.
fn intents(gates: &[Gate]) -> HashMap<(String, u64), usize> {
    let mut found: HashMap<(String, u64), usize> = HashMap::new();
    for gate in gates {
        // An intent is written before its call is forwarded, so there is nothing to wait for.
        let text = std::fs::read_to_string(gate.file("audit/audit.jsonl")).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines().filter(|line| line.contains(r#""kind":"intent""#)) {
            let record: Value = serde_json::from_str(line).unwrap();
            let number = record["arguments"]["n"].as_u64();
            if let (Some(tool), Some(number)) = (record["tool"].as_str(), number) {
                *found.entry((tool.to_owned(), number)).or_default() += 1;
            }
        }
    }
    found
}

fn gateway(url: &str, redis: &str, postgres: &str) -> Gate {
    let tools =
        json!({"s": ["free", "limited", "counted", {"tool": "ask", "ask": {"hold": "200ms"}}]});
    let agents: serde_json::Map<String, Value> = (0..AGENTS)
        .map(|at| (format!("a{at}"), json!({"allow": {"servers": ["s"], "tools": tools}})))
        .collect();
    let (rate, burst) = LIMIT;
    let limits = json!({
        "store": redis, "timeout": "1s", "tools": {
            "s/limited": format!("{rate}/s burst {burst}"),
            "s/counted": format!("1/day burst {}", quota()),
        },
    });
    setup()
        .server("s", json!({"url": url}))
        .agents(Value::Object(agents))
        .env("SEAL", KEY)
        .set("listen", json!(format!("127.0.0.1:{}", free_port())))
        .set("state", json!({"dir": "state", "keys": ["${SEAL}"], "store": postgres}))
        .set("limits", limits)
        .set("audit", json!({"dir": "audit", "arguments": "full"}))
        .set("drain", json!({"delay": "500ms", "wait": "10s"}))
        .start()
}

#[test]
fn gateways_are_killed_in_turn_and_nothing_is_lost() {
    let mut postgres = Postgres::start();
    let database = postgres.create("toolward");
    let mut redis = Cluster::start();
    redis.add_replica(LIMIT_KEY);
    let (url, executed) = upstream::start(TOOLS);
    let mut gates: Vec<Gate> = (0..3).map(|_| gateway(&url, &redis.url(), &database)).collect();
    let nginx = Nginx::start(&gates.iter().map(|gate| gate.port).collect::<Vec<_>>());
    let sessions: Vec<Session> = (0..AGENTS)
        .map(|at| agent_at(nginx.port, &format!("token-of-agent-a{at}")).session())
        .collect();
    for session in &sessions {
        assert_eq!(session.list().len(), TOOLS.len());
    }

    let (stop, begun) = (AtomicBool::new(false), Instant::now());
    let mut quiet = measure(&sessions, Duration::from_secs(3));
    let mut seen = std::thread::scope(|scope| {
        let clients: Vec<_> =
            sessions.iter().map(|session| scope.spawn(|| client(session, &stop))).collect();
        disturb(&mut gates, &mut redis, &mut postgres, &sessions);
        stop.store(true, Ordering::Release);
        let mut seen = Seen::default();
        clients.into_iter().for_each(|client| seen.add(client.join().unwrap()));
        seen
    });
    let elapsed = begun.elapsed().as_secs_f64();
    use_up(&sessions[0], &mut seen);
    let (quiet_p99, p99) = (quiet.percentile(0.99), seen.percentile(0.99));
    seen.add(quiet);
    check(&seen, &executed, &gates, elapsed);
    eprintln!(
        "{} requests in {elapsed:.0} s: {} done, {} refused, {} lost; p99 {p99:.1} ms, quiet {quiet_p99:.1} ms",
        seen.sent.len(),
        seen.done.len(),
        seen.refused,
        seen.lost
    );
}

/// The reason of a refusal.
fn error(answer: &Value) -> Option<&str> {
    let listed = &answer["result"]["_meta"]["io.toolward/refusal"]["error"];
    listed.as_str().or(answer["error"]["data"]["error"].as_str())
}

/// Calls `counted` until its limit refuses a call.
fn use_up(session: &Session, seen: &mut Seen) {
    eventually("the quota is used up", || {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let answer = session.call("s__counted", json!({"n": number}));
        seen.sent.insert(("counted".into(), number));
        let is_over = error(&answer) == Some("limit_exceeded");
        match is_over {
            true => seen.uncounted += 1,
            false => drop(seen.done.insert(("counted".into(), number))),
        }
        is_over
    });
}

/// Measures how long after a store's return every gateway uses it again.
fn recovered(what: &str, gates: &[Gate], session: &Session, tool: &str, unavailable: &str) {
    let begun = Instant::now();
    for gate in gates {
        let agent = Agent { port: gate.port, ..session.agent.clone() };
        let session = Session { agent, ..session.clone() };
        eventually("the store is used again", || {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let answer = session.call(&format!("s__{tool}"), json!({"n": number}));
            error(&answer) != Some(unavailable)
        });
    }
    eprintln!("{what}: used again after {:.2} s", begun.elapsed().as_secs_f64());
}

/// The load without any disturbance.
fn measure(sessions: &[Session], time: Duration) -> Seen {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            sessions.iter().map(|session| scope.spawn(|| client(session, &stop))).collect();
        std::thread::sleep(time);
        stop.store(true, Ordering::Release);
        let mut seen = Seen::default();
        clients.into_iter().for_each(|client| seen.add(client.join().unwrap()));
        seen
    })
}

/// Kills and restarts gateways in turn; in the middle, a Redis node and PostgreSQL fail.
fn disturb(gates: &mut [Gate], redis: &mut Cluster, postgres: &mut Postgres, sessions: &[Session]) {
    let end = Instant::now() + Duration::from_secs(seconds());
    let mut round = 0;
    while Instant::now() < end || round < 3 {
        let at = round % gates.len();
        // Every second one is asked to end, and drains.
        if round % 2 == 1 {
            gates[at].signal("-TERM");
            gates[at].ended();
        }
        gates[at].restart();
        approved_elsewhere(gates, at, &sessions[0]);
        match round {
            0 => {
                redis.fail_over(LIMIT_KEY);
                recovered("limits", gates, &sessions[0], "limited", "limits_unavailable");
                COUNTING.store(true, Ordering::Relaxed);
            }
            1 => {
                postgres.stop();
                postgres.run();
                recovered("approvals", gates, &sessions[0], "ask", "approvals_unavailable");
            }
            _ => {}
        }
        round += 1;
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// A call waits at one gateway, is approved at the next, and made at the third.
fn approved_elsewhere(gates: &[Gate], at: usize, session: &Session) {
    let gate = |step: usize| &gates[(at + step) % gates.len()];
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let call = |gate: &Gate| {
        let agent = Agent { port: gate.port, ..session.agent.clone() };
        Session { agent, ..session.clone() }.call("s__ask", json!({"n": number}))
    };
    let is_done = |answer: &Value| {
        answer["result"]["content"][0]["text"].as_str() == Some(&number.to_string())
    };
    // The store may be restarting.
    let ticket = eventually("the call waits", || {
        assert!(!is_done(&call(gate(0))));
        let output = super::command(gate(1), &["pending", "--json"]);
        let tickets: Value = serde_json::from_slice(&output.stdout).ok()?;
        let wanted = format!(r#"{{"arguments":{{"n":{number}}}}}"#);
        let found =
            tickets.as_array()?.iter().find(|ticket| ticket["params"] == wanted.as_str())?;
        Some(found["id"].as_str()?.to_owned())
    });
    eventually("it is approved", || {
        super::command(gate(1), &["approve", &ticket]).status.success()
    });
    eventually("it is made", || is_done(&call(gate(2))));
    assert!(!is_done(&call(gate(0))), "an approval is used once");
    let output = super::command(gate(1), &["pending", "--json"]);
    let tickets: Value = serde_json::from_slice(&output.stdout).unwrap();
    for ticket in tickets.as_array().unwrap() {
        super::command(gate(1), &["deny", ticket["id"].as_str().unwrap()]);
    }
}

fn check(seen: &Seen, executed: &Executed, gates: &[Gate], elapsed: f64) {
    let executed = executed.all();
    assert_eq!(seen.forgotten, 0, "no session is lost");
    assert!(seen.other.is_empty(), "{:?}", seen.other.first());
    assert!(executed.values().all(|count| *count == 1), "no call is executed twice");
    for call in &seen.done {
        assert!(executed.contains_key(call), "{call:?} was answered and not executed");
    }
    let recorded = intents(gates);
    for call in executed.keys() {
        assert_eq!(recorded.get(call), Some(&1), "{call:?} is recorded once");
    }
    let (rate, burst) = LIMIT;
    let limited = executed.keys().filter(|(tool, _)| tool == "limited").count();
    assert!(
        limited as f64 <= burst + rate * elapsed + 1.0,
        "{limited} limited calls in {elapsed} s"
    );
    assert!(limited > 0 && seen.refused > 0, "the limit is reached");
    // The rest was lost with a gateway that was killed: it was counted, and not executed.
    let of_counted = |calls: &mut dyn Iterator<Item = &(String, u64)>| {
        calls.filter(|(tool, _)| tool == "counted").count()
    };
    let counted = of_counted(&mut executed.keys());
    let in_flight = of_counted(&mut seen.sent.iter()) - counted - seen.uncounted;
    eprintln!("a quota of {}: {counted} executed, {in_flight} in flight at a kill", quota());
    assert!(counted <= quota(), "the quota is never exceeded");
    assert!(counted + in_flight >= quota(), "it is short by calls in flight only");
    // Most requests are served while gateways come and go.
    assert!(
        seen.done.len() * 2 > seen.sent.len() - seen.refused as usize - seen.uncounted,
        "{} done",
        seen.done.len()
    );
    for gate in gates {
        let output = Command::new(env!("CARGO_BIN_EXE_toolward"))
            .args(["audit", "verify", "--dir"])
            .arg(gate.file("audit"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}
