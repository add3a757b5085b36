//! Memory that one agent makes the gateway hold is bounded, and never blocks another agent.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::harness::*;
use super::wire::Connection;

const MB: usize = 1 << 20;

/// A line of the gateway's `/proc` status, in bytes: `VmRSS` is resident now, `VmHWM` its maximum so
/// far.
pub fn resident(gate: &Gate, line: &str) -> usize {
    let pid = gate.child.as_ref().unwrap().id();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let found = status.lines().find_map(|one| one.strip_prefix(line)).unwrap();
    let kilobytes: usize =
        found.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").parse().unwrap();
    kilobytes << 10
}

/// The peak growth of resident memory so far.
fn grown(gate: &Gate, before: usize) -> usize {
    resident(gate, "VmHWM").saturating_sub(before)
}

fn buffered(setup: Setup, size: &str) -> Setup {
    setup.set("limits_of", json!({"buffered_bytes": size}))
}

fn call(name: &str, arguments: Value) -> Value {
    json!({"name": name, "arguments": arguments, "_meta": {"progressToken": 1}})
}

fn works(gate: &Gate, name: &str) {
    assert_eq!(text(&gate.agent(name).call("s__t", json!({}))), "did t");
}

#[test]
fn a_session_does_not_keep_long_client_information() {
    let gate = setup().stdio("s", "legacy", names(&["t"])).agents(everyone()).start();
    let agent = gate.agent("a");
    agent.session();
    let before = resident(&gate, "VmRSS");
    for member in ["capabilities", "clientInfo"] {
        for _ in 0..12 {
            let mut begin = initialize(LEGACY);
            begin["params"][member]["long"] = json!("x".repeat(3 * MB));
            let reply = agent.post(&[], &begin);
            assert_eq!(reply.code(), -32602, "{}", reply.status);
            assert!(reply.json()["error"]["message"].as_str().unwrap().contains(member));
            assert_eq!(reply.header("mcp-session-id"), None);
        }
    }
    assert!(grown(&gate, before) < 40 * MB, "{} MB", grown(&gate, before) / MB);
    // As much as any real client sends is kept.
    let mut begin = initialize(LEGACY);
    begin["params"]["capabilities"]["experimental"] = json!({"x": "x".repeat(10_000)});
    assert_eq!(agent.post(&[], &begin).code(), 0);
}

#[test]
fn announced_bodies_that_never_arrive_lock_no_one_out() {
    let gate = setup().stdio("s", "legacy", names(&["t"])).agents(everyone()).start();
    works(&gate, "b");
    let announced: Vec<Connection> = (0..140)
        .map(|_| {
            let whole = gate.agent("a").request("POST", &[], &"x".repeat(4 * MB - 1));
            let end = whole.find("\r\n\r\n").unwrap() + 5;
            let mut connection = gate.connect();
            connection.send(&whole.as_bytes()[..end]);
            connection
        })
        .collect();
    for _ in 0..5 {
        works(&gate, "b");
        works(&gate, "a");
    }
    drop(announced);
}

#[test]
fn an_agent_that_sends_too_much_keeps_no_other_out() {
    let setup = setup().stdio("s", "legacy", names(&["t"])).agents(everyone());
    let gate = buffered(setup, "32 MiB").start();
    works(&gate, "b");
    // Each of these is almost complete, and stays that way.
    let mut pending: Vec<Connection> = (0..20)
        .map(|_| {
            let whole = gate.agent("a").request("POST", &[], &"x".repeat(4 * MB - 1));
            let mut connection = gate.connect();
            connection.send(&whole.as_bytes()[..whole.len() - 1]);
            connection
        })
        .collect();
    eventually("some are refused", || {
        let answered = pending.iter_mut().map(|one| !one.is_silent(Duration::from_millis(5)));
        (answered.filter(|answered| *answered).count() >= 15).then_some(())
    });
    works(&gate, "b");
}

#[test]
fn calls_whose_client_left_stay_within_the_share() {
    let tools = names(&["t", "hang"]);
    let setup = setup().stdio("s", "legacy", tools).agents(everyone());
    let gate = buffered(setup, "32 MiB").start();
    works(&gate, "b");
    let session = gate.agent("a").session();
    let hang = |at: usize, bytes: usize| {
        let arguments = json!({"long": "x".repeat(bytes)});
        request(json!(at), "tools/call", json!({"name": "s__hang", "arguments": arguments}))
    };
    let before = resident(&gate, "VmRSS");
    for at in 0..12 {
        let mut connection = session.open(&hang(at, 3 * MB));
        // The client disconnects without a response, unless it is refused at once.
        connection.is_silent(Duration::from_millis(100));
    }
    let arrived = gate.calls("s").len();
    assert!((2..4).contains(&arrived), "{arrived} calls of 3 MiB in a share of 8 MiB");
    assert!(grown(&gate, before) < 50 * MB, "{} MB", grown(&gate, before) / MB);
    works(&gate, "b");
}

#[test]
fn calls_in_flight_are_bounded_for_each_agent() {
    let setup = setup().stdio("s", "legacy", names(&["t", "hang"])).agents(everyone());
    // The agent's share is 512 KiB. Each call reserves 16 KiB for its request and 32 KiB for its result.
    let gate = buffered(setup, "2 MiB").start();
    works(&gate, "b");
    let session = gate.agent("a").session();
    let mut open: Vec<Connection> = (0..24)
        .map(|at| {
            let params = json!({"name": "s__hang", "arguments": {}});
            session.open(&request(json!(at), "tools/call", params))
        })
        .collect();
    let refused = eventually("some are refused", || {
        let answered = |one: &mut Connection| !one.is_silent(Duration::from_millis(5));
        let refused: Vec<usize> = (0..24).filter(|at| answered(&mut open[*at])).collect();
        (refused.len() >= 8).then(|| open[refused[0]].reply())
    });
    assert_eq!(refused.status, 200);
    assert_eq!(refused.header("retry-after"), Some("1"));
    let data = &refused.json()["error"]["data"];
    assert_eq!((&data["error"], &data["retryable"]), (&json!("overloaded"), &json!(true)));
    works(&gate, "b");
    let hangs = gate.calls("s").iter().filter(|call| call["params"]["name"] == "hang").count();
    assert!((8..=10).contains(&hangs), "refused calls are not forwarded: {hangs}");
    let records = gate.records();
    let intents = records.iter().filter(|one| one["kind"] == "intent" && one["tool"] == "hang");
    assert_eq!(intents.count(), hangs);
}

#[test]
fn an_unread_stream_is_bounded_in_bytes() {
    for (era, kind) in [("modern", "http"), ("legacy", "stdio")] {
        let tools = names(&["t", "flood"]);
        let gate = match kind {
            "http" => setup().web("s", era, tools),
            _ => setup().stdio("s", era, tools),
        };
        let gate = gate.agents(everyone()).start();
        works(&gate, "b");
        let before = resident(&gate, "VmRSS");
        let flood = call("s__flood", json!({"count": 100, "bytes": 2 * MB}));
        let unread = gate.agent("a").modern_open(json!(1), "tools/call", flood.clone());
        let session = gate.agent("a").session();
        let unread_too = session.open(&request(json!(1), "tools/call", flood));
        always(
            &format!("{kind}: two streams take less than 80 MB"),
            Duration::from_secs(4),
            || {
                works(&gate, "b");
                grown(&gate, before) < 80 * MB
            },
        );
        drop((unread, unread_too));
    }
}

#[test]
fn a_finished_stream_keeps_no_large_answer() {
    let gate = setup().web("s", "legacy", names(&["t", "large"])).agents(everyone()).start();
    let session = gate.agent("a").session();
    assert_eq!(text(&session.call("s__t", json!({}))), "did t");
    let before = resident(&gate, "VmRSS");
    for at in 0..24 {
        let large = call("s__large", json!({"bytes": 8 * MB}));
        let reply = session.post(&request(json!(at), "tools/call", large));
        assert_eq!(reply.header("content-type"), Some("text/event-stream"));
        assert!(reply.body.len() > 8 * MB);
    }
    let now = resident(&gate, "VmRSS").saturating_sub(before);
    assert!(now < 60 * MB, "{} MB after everything was read", now / MB);
}

#[test]
fn connections_without_a_credential_lock_no_one_out() {
    let setup = setup().stdio("s", "legacy", names(&["t"])).agents(everyone());
    let gate = setup.set("limits_of", json!({"streams": 40})).start();
    works(&gate, "b");
    let begun = Instant::now();
    let mut silent: Vec<TcpStream> = Vec::new();
    for _ in 0..4 {
        silent.extend((0..50).map(|_| TcpStream::connect(("127.0.0.1", gate.port)).unwrap()));
        works(&gate, "b");
    }
    // Each round would take ten seconds if it waited for the previous round's connections to time out.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    // The remaining ones close by themselves.
    let last = silent.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(last.read(&mut [0]).unwrap(), 0);
}

#[test]
fn an_authenticated_agent_with_idle_connections_locks_no_one_out() {
    let setup = setup().stdio("s", "legacy", names(&["t"])).agents(everyone());
    let gate = setup.set("limits_of", json!({"streams": 40})).start();
    works(&gate, "b");
    let idle: Vec<Connection> = (0..60)
        .filter_map(|_| {
            let mut connection = gate.connect();
            let list = request(json!(1), "tools/list", json!({})).to_string();
            connection.send(gate.agent("a").request("POST", &[], &list).as_bytes());
            connection.try_reply().map(|_| connection)
        })
        .collect();
    assert!(idle.len() >= 40);
    works(&gate, "b");
}

#[test]
fn results_wait_for_room_instead_of_being_lost() {
    let setup = setup().web("s", "modern", names(&["t", "large"])).agents(everyone());
    let gate = buffered(setup, "32 MiB").start();
    works(&gate, "a");
    let before = resident(&gate, "VmRSS");
    let running: Vec<_> = (0..32)
        .map(|_| {
            let agent = gate.agent("a");
            std::thread::spawn(move || {
                let params = json!({"name": "s__large", "arguments": {"bytes": 4 * MB}});
                let reply = agent.modern_reply(json!("m"), "tools/call", params);
                (reply.status, reply.body.len())
            })
        })
        .collect();
    for one in running {
        let (status, bytes) = one.join().unwrap();
        assert_eq!((status, bytes > 4 * MB), (200, true), "{bytes}");
    }
    assert!(grown(&gate, before) < 80 * MB, "{} MB", grown(&gate, before) / MB);
    assert_eq!(gate.calls("s").iter().filter(|call| call["params"]["name"] == "large").count(), 32);
}

#[test]
fn an_undeliverable_result_is_an_error_with_the_reason() {
    for kind in ["http", "stdio"] {
        let tools = names(&["t", "large"]);
        let servers = match kind {
            "http" => setup().web("s", "modern", tools),
            _ => setup().stdio("s", "legacy", tools),
        };
        let servers = servers.with("s", "max_timeout", json!("6s")).agents(everyone());
        let gate = buffered(servers, "32 MiB").start();
        works(&gate, "a");
        // Both are forwarded. The first result may exceed the share, and is not read; the second waits.
        let large = |seconds: u32| {
            let arguments = json!({"bytes": 10 * MB, "seconds": seconds});
            json!({"name": "s__large", "arguments": arguments})
        };
        let mut late = gate.agent("a").modern_open(json!(2), "tools/call", large(2));
        eventually("it is forwarded", || (gate.calls("s").len() == 2).then_some(()));
        let unread = gate.agent("a").modern_open(json!(1), "tools/call", large(0));
        let outcomes = |name: &str| {
            let records = gate.records();
            records.iter().filter(|one| one["kind"] == "outcome" && one["outcome"] == name).count()
        };
        let reply = late.reply();
        assert_eq!(reply.status, 200, "{kind}");
        let error = reply.json()["error"].clone();
        let data = &error["data"];
        assert_eq!(data["error"], "result_undeliverable", "{kind}: {error}");
        assert_eq!((&data["retryable"], &data["carried_out"]), (&json!(false), &json!(true)));
        assert!(error["message"].as_str().unwrap().contains("was carried out"), "{error}");
        eventually("it is recorded", || (outcomes("undeliverable") == 1).then_some(()));
        works(&gate, "b");
        drop(unread);
    }
}

#[test]
fn a_large_result_costs_little_more_than_its_size() {
    for (kind, streamed) in [("http", false), ("http", true), ("stdio", false), ("stdio", true)] {
        let tools = names(&["t", "large"]);
        let gate = match kind {
            "http" => setup().web("s", "legacy", tools),
            _ => setup().stdio("s", "legacy", tools),
        };
        let gate = gate.agents(everyone()).start();
        works(&gate, "a");
        let before = resident(&gate, "VmRSS");
        let mut params = call("s__large", json!({"bytes": 20 * MB}));
        if !streamed {
            params["_meta"].as_object_mut().unwrap().remove("progressToken");
        }
        let reply = gate.agent("a").modern_reply(json!(1), "tools/call", params);
        assert!(reply.body.len() > 20 * MB);
        let grown = grown(&gate, before);
        assert!(grown < 50 * MB, "{kind}, streamed {streamed}: {} MB for 20", grown / MB);
    }
}

#[test]
fn connections_to_servers_keep_no_large_buffers() {
    let gate = setup().web("s", "modern", names(&["t", "large"])).agents(everyone()).start();
    works(&gate, "a");
    let before = resident(&gate, "VmRSS");
    let running: Vec<_> = (0..12)
        .map(|_| {
            let agent = gate.agent("a");
            std::thread::spawn(move || {
                let params = json!({"name": "s__large", "arguments": {"bytes": 6 * MB}});
                agent.modern_reply(json!("m"), "tools/call", params).body.len()
            })
        })
        .collect();
    for one in running {
        assert!(one.join().unwrap() > 6 * MB);
    }
    let kept = || resident(&gate, "VmRSS").saturating_sub(before);
    eventually("at most 40 MB are kept", || kept() <= 40 * MB);
}
