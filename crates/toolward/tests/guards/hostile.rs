//! Misbehaving hooks: the call is refused in time, no process remains, and other calls continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::harness::*;
use super::support::*;

/// A gateway with a hook for `t` alone; it writes the ids of the processes it starts into `pids`.
fn hostile(script: &str, persistent: bool, timeout: &str) -> Gate {
    let setup = with_tools(&["t", "u"]);
    let path = program(&setup, "hook", &format!("#!/usr/bin/env bash\n{script}\n"));
    let mut hook = json!({
        "name": "h", "exec": [path], "persistent": persistent, "timeout": timeout, "tools": ["t"],
        "arguments": true, "env": {"PIDS": setup.path("pids")},
    });
    if persistent {
        hook["start_timeout"] = json!(timeout);
    }
    setup.set("hooks", json!([hook])).start()
}

/// The hook is called and its failure refuses the call, while calls without a hook pass.
fn refused_in_time(script: &str, persistent: bool) -> (Gate, String) {
    let gate = hostile(script, persistent, "1s");
    let (a, b) = (gate.agent("a"), gate.agent("b"));
    a.list();
    let done = Arc::new(AtomicBool::new(false));
    let over = done.clone();
    let other = std::thread::spawn(move || {
        let mut meanwhile = 0;
        eventually("the hook is over", || {
            assert!(passed(&b.call("s__u", json!({}))));
            meanwhile += usize::from(!over.load(Ordering::Relaxed));
            over.load(Ordering::Relaxed)
        });
        meanwhile
    });
    let reason = hook_failed_alone(&gate, &a);
    done.store(true, Ordering::Relaxed);
    let meanwhile = other.join().unwrap();
    // Only a hook that times out lasts long enough for other calls to be served meanwhile.
    assert!(meanwhile > 0 || !reason.contains("in time"), "{script}: others waited");
    (gate, reason)
}

/// Like [`hook_failed`], while other calls are forwarded.
fn hook_failed_alone(gate: &Gate, agent: &Agent) -> String {
    let answer = agent.call("s__t", json!({}));
    assert_eq!(error(&answer).0, -32603, "{answer}");
    assert_eq!(answer["error"]["data"]["error"], "hook_failed", "{answer}");
    refusals(gate).pop().unwrap()["reason"].as_str().unwrap().into()
}

fn no_children(gate: &Gate) {
    eventually("no process of the hook is left", || gate.children().is_empty().then_some(()));
}

#[test]
fn a_program_that_hangs_or_floods_is_ended_with_all_it_started() {
    for (script, why) in [
        ("echo $$ >> $PIDS; sleep 60 & echo $! >> $PIDS; wait", "in time"),
        ("trap '' TERM INT HUP; echo $$ >> $PIDS; while :; do sleep 1; done", "in time"),
        ("exec <&- >&- 2>&-; echo $$ >> $PIDS; sleep 60", "in time"),
        ("echo $$ >> $PIDS; cat > /dev/null; head -c 100000000 /dev/zero", "prints more"),
        ("echo $$ >> $PIDS; (echo $BASHPID >> $PIDS; yes) & yes; exit 0", "prints more"),
    ] {
        let (gate, reason) = refused_in_time(script, false);
        assert!(reason.contains(why), "{script}: {reason}");
        gone(&pids(&gate.file("pids")));
        no_children(&gate);
    }
}

#[test]
fn a_program_that_leaves_something_behind_is_not_waited_for() {
    // A child that keeps the output open ends with the program.
    let gate = hostile("echo $$ >> $PIDS; sleep 60 & echo $! >> $PIDS; exit 0", false, "5s");
    assert!(passed(&gate.agent("a").call("s__t", json!({}))));
    gone(&pids(&gate.file("pids")));
    // A child in a session of its own does not delay the call either.
    let gate = hostile("setsid sleep 10 & exit 1", false, "5s");
    assert_eq!(error(&gate.agent("a").call("s__t", json!({}))).0, -32602, "not a timeout");
    no_children(&gate);
}

#[test]
fn a_program_need_not_read_its_input() {
    for script in ["exit 0", "exec <&-; exit 0", "head -c 10 > /dev/null; exit 0"] {
        let gate = hostile(script, false, "10s");
        let large = "x".repeat(1_000_000);
        assert!(passed(&gate.agent("a").call("s__t", json!({"large": large}))), "{script}");
        no_children(&gate);
    }
}

#[test]
fn a_call_whose_client_leaves_ends_its_hook() {
    let gate = hostile("echo $$ >> $PIDS; sleep 60 & echo $! >> $PIDS; wait", false, "30s");
    let a = gate.agent("a");
    a.list();
    let connection = a.modern_open(json!(1), "tools/call", json!({"name": "s__t"}));
    eventually("the hook runs", || (pids(&gate.file("pids")).len() == 2).then_some(()));
    drop(connection);
    gone(&pids(&gate.file("pids")));
    no_children(&gate);
}

#[test]
fn processes_of_a_hook_end_with_the_gateway() {
    let mut gate = hostile("echo $$ >> $PIDS; sleep 60 & echo $! >> $PIDS; wait", false, "30s");
    let a = gate.agent("a");
    a.list();
    let _connection = a.modern_open(json!(1), "tools/call", json!({"name": "s__t"}));
    eventually("the hook runs", || (pids(&gate.file("pids")).len() == 2).then_some(()));
    gate.signal("-TERM");
    eventually("it is about to end", || {
        gate.said.lock().unwrap().contains("shutting down").then_some(())
    });
    // A second signal ends it without waiting.
    gate.signal("-TERM");
    gate.ended();
    gone(&pids(&gate.file("pids")));
}

#[test]
fn a_process_that_violates_the_protocol_refuses_waiting_calls() {
    // Only one line is read; the id in it is what a response needs.
    let read = "echo $$ >> $PIDS; read -r line; id=${line#*\\\"id\\\":}; id=${id%%,*}; ";
    let allow = "printf '{\"id\":%s,\"decision\":\"allow\"}\\n' \"$id\"; ";
    // Both in one write, so that they arrive together.
    let allow_twice = "python3 -c 'import os, sys; line = \"{\\\"id\\\":%s,\\\"decision\\\":\\\"allow\\\"}\\n\" \
                       % sys.argv[1]; os.write(1, (line * 2).encode())' $id; ";
    let cases = [
        (format!("{read} sleep 60"), "in time"),
        (format!("{read} sleep 60 & echo $! >> $PIDS; wait"), "in time"),
        (format!("{read} sleep 2; {allow} sleep 60"), "in time"),
        (format!("{read} exit 3"), "ended"),
        (format!("{read} kill -9 $$"), "ended"),
        (format!("{read} echo garbage; sleep 60"), "not an answer"),
        (format!("{read} echo '{{\"decision\":\"allow\"}}'; sleep 60"), "not an answer"),
        (format!("{read} head -c 100000000 /dev/zero; sleep 60"), "too much"),
        (
            format!("{read} echo '{{\"id\":99999,\"decision\":\"allow\"}}'; sleep 60"),
            "was not sent",
        ),
        (format!("{read} {allow_twice} sleep 60"), "twice"),
        (format!("{read} exec >&-; sleep 60"), "ended"),
        ("echo $$ >> $PIDS; exec <&-; sleep 60".into(), "the hook `h` failed"),
        // It starts with the gateway, so its responses may arrive before the request, or twice.
        ("echo $$ >> $PIDS; yes '{\"id\":1,\"decision\":\"allow\"}'".into(), "the hook `h` failed"),
    ];
    for (script, why) in cases {
        let (gate, reason) = refused_in_time(&script, true);
        assert!(reason.contains(why), "{script}: {reason}");
        gone(&pids(&gate.file("pids")));
        no_children(&gate);
    }
}

#[test]
fn a_process_that_answers_first_and_babbles_later_is_replaced() {
    let script = "echo $$ >> $PIDS; while read -r line; do id=${line#*\\\"id\\\":}; id=${id%%,*}; \
                  printf '{\"id\":%s,\"decision\":\"allow\"}\\n' \"$id\"; sleep 0.2; \
                  printf '{\"id\":%s,\"decision\":\"deny\"}\\n' \"$id\"; done";
    let gate = hostile(script, true, "5s");
    let a = gate.agent("a");
    for count in 1..=3 {
        // The first response counted; what follows ends the process, not the next call.
        assert!(passed(&a.call("s__t", json!({}))));
        eventually("it is ended", || gate.children().is_empty().then_some(()));
        assert_eq!(pids(&gate.file("pids")).len(), count);
    }
    eventually("it is logged", || {
        gate.said.lock().unwrap().contains("hook h: it answers").then_some(())
    });
}

#[test]
fn a_process_that_cannot_stay_is_not_started_without_end() {
    let gate = hostile("echo $$ >> $PIDS; exit 1", true, "2s");
    let a = gate.agent("a");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        assert_eq!(error(&a.call("s__t", json!({}))).0, -32603);
    }
    let starts = pids(&gate.file("pids")).len();
    assert!(starts <= 9, "{starts} starts");
    let lines = gate.said.lock().unwrap().matches("its process has ended").count();
    assert!((1..=6).contains(&lines), "{lines} lines");
}
