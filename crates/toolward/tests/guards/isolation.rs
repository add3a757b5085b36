//! An agent that makes a hook hang, crash or violate the protocol does not affect other agents.

use std::time::{Duration, Instant};

use serde_json::json;

use super::harness::*;
use super::support::*;

/// A process that reads one call after the other; its behavior depends on the tool.
const ONE_BY_ONE: &str = r#"#!/usr/bin/env bash
echo $$ >> "$PIDS"
while read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  tool=${line#*\"tool\":\"}; tool=${tool%%\"*}
  allow="{\"id\":$id,\"decision\":\"allow\"}"$'\n'
  deny="{\"id\":$id,\"decision\":\"deny\"}"$'\n'
  case $tool in
    hang) sleep 60 ;;
    crash) exit 9 ;;
    calm) sleep 0.02 ;;
    steady) sleep 0.6 ;;
    again) { sleep 0.2; printf %s "$deny"; } & ;;
    twice) allow=$allow$deny ;;
    unasked) allow=$allow${deny/:$id,/:99999,} ;;
    half) allow=$allow'{"id":1,"deci' ;;
    both) allow="{\"id\":$id,\"decision\":\"allow\",\"result\":false}"$'\n' ;;
    more) allow="{\"id\":$id,\"decision\":\"allow\",\"allow\":false}"$'\n' ;;
    flood) yes | head -c 100000000 >&2 ;;
  esac
  case $tool in
    # Bash writes line by line; these are to come at once.
    twice|unasked|half) printf %s "$allow" > "$PIDS.all"; cat "$PIDS.all" ;;
    *) printf %s "$allow" ;;
  esac
done
"#;

const TOOLS: &[&str] = &[
    "steady", "again", "t", "hang", "crash", "calm", "twice", "unasked", "half", "both", "more",
    "flood",
];

fn crowded(timeout: &str) -> Gate {
    let setup = with_tools(TOOLS);
    let path = program(&setup, "hook", ONE_BY_ONE);
    let hook = json!({
        "name": "h", "exec": [path], "persistent": true, "timeout": timeout,
        "env": {"PIDS": setup.path("pids")},
    });
    setup.set("hooks", json!([hook])).start()
}

/// `b` makes calls for a while, and none is refused.
fn undisturbed(gate: &Gate, time: Duration) {
    let b = gate.agent("b");
    always("calls of another agent pass", time, || passed(&b.call("s__t", json!({}))));
}

#[test]
fn calls_that_hang_a_process_do_not_refuse_others() {
    let gate = crowded("3s");
    let (a, b) = (gate.agent("a"), gate.agent("b"));
    assert!(passed(&b.call("s__t", json!({}))));
    let hanging: Vec<_> = (0..10)
        .map(|_| {
            let a = a.clone();
            std::thread::spawn(move || error(&a.call("s__hang", json!({}))))
        })
        .collect();
    undisturbed(&gate, Duration::from_secs(4));
    for one in hanging {
        assert_eq!(one.join().unwrap().0, -32603);
    }
    // Four processes for the agent that makes them hang, and others for everyone else.
    let all = pids(&gate.file("pids"));
    assert!((5..=12).contains(&all.len()), "{all:?}");
    gone(&all[..1]);
    eventually("the hanging processes are ended", || (gate.children().len() <= 4).then_some(()));
}

#[test]
fn calls_that_crash_a_process_do_not_refuse_others() {
    let gate = crowded("2s");
    let a = gate.agent("a");
    assert!(passed(&a.call("s__t", json!({}))));
    let crashing = std::thread::spawn(move || {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            assert_eq!(error(&a.call("s__crash", json!({}))).0, -32603);
        }
    });
    undisturbed(&gate, Duration::from_secs(3));
    crashing.join().unwrap();
    let failures = gate.said.lock().unwrap().matches("its process has ended").count();
    assert!(failures <= 6, "{failures} lines");
}

#[test]
fn many_quick_calls_share_one_process() {
    let gate = crowded("5s");
    assert!(passed(&gate.agent("a").call("s__t", json!({}))));
    let clients: Vec<_> = (0..6)
        .map(|at| {
            let agent = gate.agent(["a", "b"][at % 2]);
            std::thread::spawn(move || {
                for _ in 0..10 {
                    assert!(passed(&agent.call("s__calm", json!({}))));
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    // If six calls wait for one that takes 20 ms, more processes are started, but never more than
    // eight.
    assert!((1..=8).contains(&pids(&gate.file("pids")).len()));
}

#[test]
fn extra_output_with_a_response_is_checked() {
    let gate = crowded("2s");
    let (a, b) = (gate.agent("a"), gate.agent("b"));
    for (tool, why) in [
        ("twice", "twice"),
        ("unasked", "was not sent"),
        ("half", "prints more after its answer"),
        ("both", "its answer is invalid"),
        ("more", "must not have the member `allow`"),
        ("flood", "too much"),
    ] {
        let calls = gate.calls("s").len();
        let answer = a.call(&format!("s__{tool}"), json!({}));
        assert_eq!(error(&answer).0, -32603, "{tool}: {answer}");
        let reason = refusals(&gate).pop().unwrap()["reason"].to_string();
        assert!(reason.contains(why), "{tool}: {reason}");
        assert_eq!(gate.calls("s").len(), calls, "{tool}: nothing is forwarded");
        assert!(passed(&b.call("s__t", json!({}))), "{tool}");
    }
}

#[test]
fn a_second_response_to_a_finished_call_refuses_no_call() {
    let gate = crowded("5s");
    let (a, b) = (gate.agent("a"), gate.agent("b"));
    assert!(passed(&b.call("s__t", json!({}))));
    // The first response counted; the second arrives while the process handles another call.
    assert!(passed(&a.call("s__again", json!({}))));
    assert!(passed(&b.call("s__steady", json!({}))));
    let pids = pids(&gate.file("pids"));
    assert_eq!(pids.len(), 2, "it was replaced");
    gone(&pids[..1]);
    eventually("it is logged", || {
        gate.said.lock().unwrap().contains("hook h: it answers twice").then_some(())
    });
}

#[test]
fn a_program_that_complains_without_end_is_refused_and_ended() {
    let script = "#!/bin/sh\necho $$ >> $PIDS\nyes complaint | head -c 100000000 >&2\nexit 0\n";
    let setup = with_tools(&["t"]);
    let path = program(&setup, "hook", script);
    let hook = json!({"name": "h", "exec": [path], "env": {"PIDS": setup.path("pids")}});
    let gate = setup.set("hooks", json!([hook])).start();
    let reason = hook_failed(&gate, &gate.agent("a"));
    assert!(reason.contains("prints more"), "{reason}");
    gone(&pids(&gate.file("pids")));
}
