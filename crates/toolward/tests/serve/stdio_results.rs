//! Large results of stdio and HTTP+SSE servers: reading from the server pauses while memory for results
//! is exhausted.

use std::time::Duration;

use serde_json::{Value, json};

use super::harness::*;
use super::memory::resident;
use super::wire::Connection;

const MB: usize = 1 << 20;

/// A gateway with 32 MiB for results, 8 MiB per agent, and a stdio server of this kind.
fn gateway(era: &str, id_last: bool) -> Gate {
    let setup = setup().stdio("s", era, names(&["t", "large"])).agents(everyone());
    let setup = match id_last {
        true => setup.with("s", "env", json!({"ID_LAST": "1"})),
        false => setup,
    };
    let setup = setup.with("s", "timeout", json!("5s")).with("s", "max_timeout", json!("60s"));
    let gate = setup.set("limits_of", json!({"buffered_bytes": "32 MiB"})).start();
    works(&gate, "a");
    works(&gate, "b");
    gate
}

fn works(gate: &Gate, name: &str) {
    assert_eq!(text(&gate.agent(name).call("s__t", json!({}))), "did t");
}

fn large(bytes: usize) -> Value {
    json!({"name": "s__large", "arguments": {"bytes": bytes}})
}

/// Every kind of process: shared by all agents (modern) or not, with the id before the result or after
/// it.
const KINDS: [(&str, bool); 4] =
    [("modern", false), ("modern", true), ("legacy", false), ("legacy", true)];

fn forwarded(gate: &Gate) -> usize {
    gate.calls("s").iter().filter(|call| call["params"]["name"] == "large").count()
}

/// Calls of agent `a` that have been forwarded, and whose results no client reads yet. The results are
/// delayed, so that all calls are admitted before the first result uses the agent's memory.
fn unread(gate: &Gate, count: usize) -> Vec<Connection> {
    let params = json!({"name": "s__large", "arguments": {"bytes": 10 * MB, "seconds": 2}});
    let open = |at| gate.agent("a").modern_open(json!(at), "tools/call", params.clone());
    let calls: Vec<Connection> = (0..count).map(open).collect();
    eventually("all are forwarded", || (forwarded(gate) == count).then_some(()));
    calls
}

#[test]
fn concurrent_results_wait_for_room() {
    for (era, id_last) in KINDS {
        let gate = gateway(era, id_last);
        let call = |at: usize| {
            let agent = gate.agent("a");
            std::thread::spawn(move || {
                let reply = agent.modern_reply(json!(at), "tools/call", large(6 * MB));
                (reply.body.len(), String::from_utf8_lossy(&reply.body[..200]).into_owned())
            })
        };
        let running: Vec<_> = (0..8).map(call).collect();
        for one in running {
            let (bytes, start) = one.join().unwrap();
            assert!(bytes > 6 * MB, "{era}, id last {id_last}: {start}");
        }
        assert_eq!(forwarded(&gate), 8);
    }
}

fn sse_gateway() -> Gate {
    let setup = setup().web_with("s", "legacy", names(&["t", "large"]), &[("SSE", "1")]);
    let setup = setup.with("s", "transport", json!("sse")).with("s", "max_timeout", json!("60s"));
    let limits = json!({"buffered_bytes": "32 MiB"});
    let gate = setup.agents(everyone()).set("limits_of", limits).start();
    works(&gate, "a");
    gate
}

#[test]
fn concurrent_results_of_an_sse_server_wait_for_room() {
    let gate = sse_gateway();
    let call = |at: usize| {
        let agent = gate.agent("a");
        std::thread::spawn(move || {
            let reply = agent.modern_reply(json!(at), "tools/call", large(6 * MB));
            (reply.body.len(), String::from_utf8_lossy(&reply.body[..200]).into_owned())
        })
    };
    let running: Vec<_> = (0..8).map(call).collect();
    for one in running {
        let (bytes, start) = one.join().unwrap();
        assert!(bytes > 6 * MB, "{start}");
    }
    assert_eq!(forwarded(&gate), 8);
    works(&gate, "b");
}

#[test]
fn results_of_an_sse_server_that_nobody_reads_are_held_within_the_budget() {
    let gate = sse_gateway();
    let before = resident(&gate, "VmRSS");
    // 80 MiB of results; the share of the agent is 8 MiB, and one result may exceed it.
    let calls = unread(&gate, 8);
    let is_done = |record: &Value| {
        record["kind"] == "outcome" && record["bytes_out"].as_u64() > Some(MB as u64)
    };
    eventually("a result has taken the room", || gate.records().iter().any(is_done).then_some(()));
    always("the other results are not read", Duration::from_secs(2), || {
        resident(&gate, "VmRSS").saturating_sub(before) < 48 * MB
    });
    drop(calls);
    works(&gate, "b");
}

#[test]
fn results_wait_until_the_client_reads() {
    for (era, id_last) in KINDS {
        let gate = gateway(era, id_last);
        let mut calls = unread(&gate, 4);
        // Longer than the idle timeout, which is suspended while results wait.
        std::thread::sleep(Duration::from_secs(8));
        let running: Vec<_> = calls
            .drain(..)
            .map(|mut call| std::thread::spawn(move || call.reply().body.len()))
            .collect();
        for one in running {
            assert!(one.join().unwrap() > 10 * MB, "{era}, id last {id_last}");
        }
        works(&gate, "a");
    }
}

#[test]
fn an_agent_that_reads_nothing_does_not_block_another_one() {
    for (era, id_last) in KINDS {
        let gate = gateway(era, id_last);
        let calls = unread(&gate, 6);
        let is_done = |record: &Value| {
            record["kind"] == "outcome" && record["bytes_out"].as_u64() > Some(MB as u64)
        };
        eventually("a result has taken the room", || {
            gate.records().iter().any(is_done).then_some(())
        });
        for _ in 0..5 {
            works(&gate, "b");
        }
        let large = gate.agent("b").modern_reply(json!(1), "tools/call", large(6 * MB));
        assert!(large.body.len() > 6 * MB, "{era}, id last {id_last}");
        drop(calls);
    }
}

#[test]
fn a_large_result_beside_another_agents_calls_arrives() {
    for id_last in [false, true] {
        let gate = gateway("modern", id_last);
        let calls = unread(&gate, 3);
        // Another agent waits for the same process.
        let other = {
            let agent = gate.agent("b");
            std::thread::spawn(move || text(&agent.call("s__t", json!({}))).to_string())
        };
        let running: Vec<_> = calls
            .into_iter()
            .map(|mut call| std::thread::spawn(move || call.reply().body.len()))
            .collect();
        for one in running {
            assert!(one.join().unwrap() > 10 * MB, "id last {id_last}");
        }
        assert_eq!(other.join().unwrap(), "did t");
    }
}

/// `toolward stdio` with 8 MiB for results, and a client with a session.
fn standard() -> Lines {
    let setup = setup().stdio("s", "legacy", names(&["t", "large", "hang"])).agents(everyone());
    let setup = setup.set("limits_of", json!({"buffered_bytes": "8 MiB"}));
    setup.standard(&["--agent", "a"]).ready()
}

#[test]
fn a_request_on_stdio_is_refused_while_there_is_no_room_for_it() {
    let mut lines = standard();
    let long = |id: &str, tool: &str| {
        let arguments = json!({"long": "x".repeat(5 * MB)});
        request(json!(id), "tools/call", json!({"name": tool, "arguments": arguments}))
    };
    lines.send(&long("held", "s__hang").to_string());
    eventually("it is forwarded", || lines.log("s").contains("hang").then_some(()));
    let refused = lines.ask(&long("refused", "s__t"));
    let data = &refused["error"]["data"];
    assert_eq!((&data["error"], &data["retryable"]), (&json!("overloaded"), &json!(true)));
    let short = request(json!("short"), "tools/call", json!({"name": "s__t", "arguments": {}}));
    assert_eq!(text(&lines.ask(&short)), "did t");
    // The first call gets its response in the end, and frees its memory.
    lines.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "held"}})
            .to_string(),
    );
    eventually("there is room again", || {
        let answer = lines.ask(&long("again", "s__t"));
        answer["result"].is_object().then_some(())
    });
}

#[test]
fn results_on_stdio_are_held_within_the_budget_until_they_are_written() {
    let mut lines = standard();
    let params = json!({"name": "s__large", "arguments": {"bytes": 6 * MB, "seconds": 2}});
    for id in 0..6 {
        lines.send(&request(json!(id), "tools/call", params.clone()).to_string());
    }
    // Nothing is read for a while: at most two results are held, and the server waits with the others.
    std::thread::sleep(Duration::from_secs(5));
    let pid = lines.child.id();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: usize = resident.trim().trim_end_matches(" kB").parse().unwrap();
    let mut seen: Vec<i64> = (0..6)
        .map(|_| {
            let answer = lines.next();
            assert_eq!(text(&answer).len(), 6 * MB);
            answer["id"].as_i64().unwrap()
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    assert!(kilobytes < 70 << 10, "{} MiB", kilobytes >> 10);
}
