//! More sessions than a server may have processes.

use serde_json::{Value, json};

use super::harness::*;

const SESSIONS: usize = 16;
const ROUNDS: usize = 4;
const MOST: usize = 4;

#[test]
fn sessions_beyond_the_limit_of_processes_wait_in_line() {
    let gate = setup()
        .stdio("s", "legacy", names(&["later", "t"]))
        .with("s", "max_children", json!(MOST))
        .set("list_timeout", json!("30s"))
        .agents(everyone())
        .start();
    let sessions: Vec<Session> =
        (0..SESSIONS).map(|at| gate.agent(if at % 2 == 0 { "a" } else { "b" }).session()).collect();
    let running: Vec<_> = sessions
        .into_iter()
        .enumerate()
        .map(|(at, mut session)| {
            std::thread::spawn(move || -> Vec<Value> {
                let call = |round: usize| {
                    let arguments = json!({"seconds": 0.2, "who": at * ROUNDS + round});
                    let params = json!({"name": "s__later", "arguments": arguments});
                    loop {
                        let reply =
                            session.post(&request(json!(round), "tools/call", params.clone()));
                        match reply.status {
                            // The session was idle for a moment, and its process was evicted for
                            // another session.
                            404 => session = session.agent.session(),
                            _ => return reply.json(),
                        }
                    }
                };
                (0..ROUNDS).map(call).collect()
            })
        })
        .collect();
    let mut most = 0;
    eventually("all calls are answered", || {
        most = most.max(gate.children().len());
        running.iter().all(|one| one.is_finished())
    });
    let answers: Vec<Value> = running.into_iter().flat_map(|one| one.join().unwrap()).collect();
    for answer in &answers {
        assert!(answer["result"].is_object(), "{answer}");
    }
    // Each arrived once.
    let mut arrived: Vec<u64> = gate
        .calls("s")
        .iter()
        .map(|call| call["params"]["arguments"]["who"].as_u64().unwrap())
        .collect();
    arrived.sort_unstable();
    let calls = arrived.len();
    arrived.dedup();
    assert_eq!((arrived.len(), calls), (SESSIONS * ROUNDS, SESSIONS * ROUNDS));
    // An evicted process may still be exiting when the next one starts.
    assert!(most <= 2 * MOST, "{most} processes at once");
    eventually("no process is left beyond the limit", || {
        (gate.children().len() <= MOST).then_some(())
    });
    let records = gate.records();
    let of = |kind: &str| records.iter().filter(|record| record["kind"] == kind).count();
    assert_eq!(of("intent"), of("outcome"));
}

#[test]
fn a_process_in_use_is_never_evicted() {
    let gate = setup()
        .stdio("s", "legacy", names(&["later", "t", "briefly"]))
        .with("s", "max_children", json!(1))
        .with("s", "timeout", json!({"briefly": "1s", "*": "30s"}))
        .set("list_timeout", json!("3s"))
        .agents(everyone())
        .start();
    let (first, second) = (gate.agent("a").session(), gate.agent("b").session());
    eventually("it lists", || (first.list().len() == 3).then_some(()));
    let params = json!({"name": "s__later", "arguments": {"seconds": 8}});
    let mut held = first.open(&request(json!("held"), "tools/call", params));
    eventually("the call arrives", || (gate.calls("s").len() == 1).then_some(()));
    // The call is refused while the process is in use, after at most the call's own timeout.
    let refused = second.call("s__briefly", json!({}));
    let words = refused["error"]["message"].as_str().unwrap_or_else(|| panic!("{refused}"));
    assert!(words.contains("max_children") && words.contains('1'), "{refused}");
    assert_eq!(refused["error"]["data"]["retryable"], true, "{refused}");
    let waited =
        second.open(&request(json!("waits"), "tools/call", json!({"name": "s__t"}))).reply();
    assert_eq!(text(&waited.json()), "did t", "it waits in line");
    assert_eq!(text(&held.reply().json()), "later", "the one before was not disturbed");
    // Negotiating the protocol version works within the same limit.
    assert_eq!(text(&gate.agent("b").call("s__t", json!({}))), "did t");
    eventually("one is left", || (gate.children().len() == 1).then_some(()));
}

#[test]
fn a_session_whose_process_was_evicted_has_ended() {
    let gate = setup()
        .stdio("s", "legacy", names(&["pid"]))
        .with("s", "max_children", json!(1))
        .agents(everyone())
        .start();
    let (first, second) = (gate.agent("a").session(), gate.agent("b").session());
    let pid = text(&first.call("s__pid", json!({}))).to_string();
    assert_ne!(text(&second.call("s__pid", json!({}))), pid);
    // The process's state of the session is lost: the session does not continue with another process.
    let reply = first.post(&request(json!(1), "tools/call", json!({"name": "s__pid"})));
    assert_eq!(reply.status, 404, "{reply:?}");
    let again = gate.agent("a").session();
    assert_ne!(text(&again.call("s__pid", json!({}))), pid);
}
