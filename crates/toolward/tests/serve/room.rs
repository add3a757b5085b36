//! More sessions than a server may have processes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::harness::*;

const SESSIONS: usize = 16;
const ROUNDS: usize = 4;
const MOST: usize = 4;

#[test]
fn sessions_beyond_the_limit_of_processes_wait_or_hear_of_it() {
    let gate = setup()
        .stdio("s", "legacy", names(&["later", "t"]))
        .with("s", "max_children", json!(MOST))
        .set("list_timeout", json!("30s"))
        .agents(everyone())
        .start();
    let sessions: Vec<Session> =
        (0..SESSIONS).map(|at| gate.agent(if at % 2 == 0 { "a" } else { "b" }).session()).collect();
    let begun = Instant::now();
    let running: Vec<_> = sessions
        .into_iter()
        .enumerate()
        .map(|(at, session)| {
            std::thread::spawn(move || -> Vec<Value> {
                let call = |round: usize| {
                    let arguments = json!({"seconds": 0.2, "who": at * ROUNDS + round});
                    session.call("s__later", arguments)
                };
                (0..ROUNDS).map(call).collect()
            })
        })
        .collect();
    let mut most = 0;
    while !running.iter().all(|one| one.is_finished()) {
        most = most.max(gate.children().len());
        std::thread::sleep(Duration::from_millis(20));
        assert!(begun.elapsed() < Duration::from_secs(60), "a call hangs");
    }
    let answers: Vec<Value> = running.into_iter().flat_map(|one| one.join().unwrap()).collect();
    let (good, bad): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer["result"].is_object());
    for answer in &bad {
        let data = &answer["error"]["data"];
        assert_eq!(data["error"], "server_unavailable", "{answer}");
        assert_eq!(data["retryable"], true, "{answer}");
        let words = answer["error"]["message"].as_str().unwrap();
        assert!(words.contains("max_children") && words.contains('4'), "{answer}");
    }
    assert!(good.len() >= SESSIONS, "{} of {}", good.len(), answers.len());
    // What was answered arrived once, and what was refused never.
    let mut arrived: Vec<u64> = gate
        .calls("s")
        .iter()
        .map(|call| call["params"]["arguments"]["who"].as_u64().unwrap())
        .collect();
    arrived.sort_unstable();
    let calls = arrived.len();
    arrived.dedup();
    assert_eq!((arrived.len(), calls), (good.len(), good.len()));
    // One that makes room may still be ending when the next begins.
    assert!(most <= 2 * MOST, "{most} processes at once");
    eventually("no process is left beyond the limit", || {
        (gate.children().len() <= MOST).then_some(())
    });
    let records = gate.records();
    let of = |kind: &str| records.iter().filter(|record| record["kind"] == kind).count();
    assert_eq!(of("intent"), of("outcome"));
}

#[test]
fn a_process_in_use_never_makes_room() {
    let gate = setup()
        .stdio("s", "legacy", names(&["later", "t"]))
        .with("s", "max_children", json!(1))
        .agents(everyone())
        .start();
    let (first, second) = (gate.agent("a").session(), gate.agent("b").session());
    first.list();
    let params = json!({"name": "s__later", "arguments": {"seconds": 6}});
    let mut held = first.open(&request(json!("held"), "tools/call", params));
    eventually("the call arrives", || (gate.calls("s").len() == 1).then_some(()));
    let begun = Instant::now();
    let refused = second.call("s__t", json!({}));
    let words = refused["error"]["message"].as_str().unwrap_or_else(|| panic!("{refused}"));
    assert!(words.contains("max_children") && words.contains('1'), "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(text(&held.reply().json()), "later");
    assert_eq!(text(&second.call("s__t", json!({}))), "did t", "then there is room");
    // Finding out in which era it speaks fits into the same room.
    assert_eq!(text(&gate.agent("b").call("s__t", json!({}))), "did t");
    eventually("one is left", || (gate.children().len() == 1).then_some(()));
}
