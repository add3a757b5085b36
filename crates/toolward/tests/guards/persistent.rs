//! Persistent hooks: one process for all calls.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::harness::*;
use super::support::*;

/// A process whose response depends on the tool: `t` passes, `u` does not, `lazy` is slow.
const HOOK: &str = r#"#!/usr/bin/env python3
import json, os, sys, threading, time
open(os.environ["PIDS"], "a").write(f"{os.getpid()}\n")
lock = threading.Lock()
def answer(request):
    reply = {"id": request["id"], "decision": "allow"}
    if request["tool"] == "u":
        reply.update(decision="deny", code=-32600, message="not u", data={"agent": request["agent"]})
    while request["tool"] == "lazy" and not os.path.exists(os.environ["PIDS"] + ".go"):
        time.sleep(0.01)
    if request["tool"] == "hang":
        time.sleep(60)
    if request["tool"] == "crash":
        os._exit(9)
    if request["tool"] == "perhaps":
        reply["decision"] = "perhaps"
    with lock:
        print(json.dumps(reply), flush=True)
for line in sys.stdin:
    threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
"#;

fn persistent(tools: &[&str], timeout: &str) -> Setup {
    let setup = with_tools(tools);
    let path = program(&setup, "hook", HOOK);
    let hook = json!({
        "name": "h", "exec": [path], "persistent": true, "timeout": timeout, "arguments": true,
        "env": {"PIDS": setup.path("pids")},
    });
    setup.set("hooks", json!([hook]))
}

#[test]
fn one_process_answers_all_calls_each_by_its_id() {
    let gate = persistent(&["t", "u", "lazy"], "10s").start();
    let agents = [gate.agent("a"), gate.agent("b")];
    assert!(passed(&agents[0].call("s__t", json!({}))));
    let clients: Vec<_> = (0..8)
        .map(|at| {
            let agent = agents[at % 2].clone();
            let name = ["a", "b"][at % 2];
            std::thread::spawn(move || {
                for _ in 0..10 {
                    assert!(passed(&agent.call("s__t", json!({"text": "a\nb"}))));
                    let answer = agent.call("s__u", json!({}));
                    assert_eq!(error(&answer), (-32600, "not u".into()));
                    assert_eq!(answer["error"]["data"], json!({"agent": name}));
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    // One process is enough, unless this machine is slow.
    assert!(pids(&gate.file("pids")).len() <= 8, "{:?}", pids(&gate.file("pids")));
    // A slow response does not delay other calls.
    let slow = {
        let a = agents[0].clone();
        std::thread::spawn(move || a.call("s__lazy", json!({})))
    };
    for _ in 0..10 {
        assert!(passed(&agents[1].call("s__t", json!({}))));
    }
    assert!(!slow.is_finished());
    std::fs::write(gate.file("pids.go"), "").unwrap();
    assert!(passed(&slow.join().unwrap()));
}

#[test]
fn a_process_that_dies_refuses_what_waits_and_is_started_again() {
    let gate = persistent(&["t", "crash", "perhaps"], "10s").start();
    let a = gate.agent("a");
    assert!(passed(&a.call("s__t", json!({}))));
    let answer = a.call("s__crash", json!({}));
    assert_eq!(error(&answer).0, -32603, "{answer}");
    let reason = refusals(&gate).pop().unwrap()["reason"].to_string();
    assert!(reason.contains("ended"), "it is refused at once, not at the timeout: {reason}");
    assert!(passed(&a.call("s__t", json!({}))), "a new process answers");
    let pids = pids(&gate.file("pids"));
    assert_eq!(pids.len(), 2);
    assert!(!alive(pids[0]) && alive(pids[1]));
    // A response without a decision refuses its call, and the process continues.
    assert_eq!(error(&a.call("s__perhaps", json!({}))).0, -32603);
    assert!(passed(&a.call("s__t", json!({}))) && alive(pids[1]));
}

#[test]
fn a_call_that_hangs_is_refused_in_time_and_others_continue() {
    let gate = persistent(&["t", "hang"], "2s").start();
    let a = gate.agent("a");
    assert!(passed(&a.call("s__t", json!({}))));
    let hanging = {
        let a = a.clone();
        std::thread::spawn(move || a.call("s__hang", json!({})))
    };
    let mut meanwhile = 0;
    eventually("the call that hangs is refused", || {
        assert!(passed(&gate.agent("b").call("s__t", json!({}))));
        meanwhile += usize::from(!hanging.is_finished());
        hanging.is_finished()
    });
    assert!(meanwhile > 0, "the other agent waited for the call that hangs");
    let answer = hanging.join().unwrap();
    assert_eq!(error(&answer).0, -32603, "{answer}");
    let pids = pids(&gate.file("pids"));
    assert!((2..=4).contains(&pids.len()), "{pids:?}");
    gone(&pids[..1]);
}

#[test]
fn the_process_ends_with_the_gateway() {
    let mut gate = persistent(&["t"], "10s").start();
    assert!(passed(&gate.agent("a").call("s__t", json!({}))));
    let pids = pids(&gate.file("pids"));
    assert!(alive(pids[0]));
    gate.signal("-TERM");
    assert_eq!(gate.ended(), 0);
    gone(&pids);
}

/// A process that delays reading the first request.
fn slow_start(seconds: f64, more: Value) -> Setup {
    let setup = with_tools(&["t"]);
    let text = HOOK.replacen("lock = ", &format!("time.sleep({seconds})\nlock = "), 1);
    let path = program(&setup, "hook", &text);
    let mut hook = json!({
        "name": "h", "exec": [path], "persistent": true, "env": {"PIDS": setup.path("pids")},
    });
    merge(&mut hook, more);
    setup.set("hooks", json!([hook]))
}

#[test]
fn a_process_may_take_longer_to_start_than_to_answer() {
    let gate = slow_start(2.0, json!({"timeout": "500ms"})).start();
    // It is started with the gateway, before the first call.
    eventually("it has started", || (pids(&gate.file("pids")).len() == 1).then_some(()));
    let clients: Vec<_> = (0..3)
        .map(|at| {
            let agent = gate.agent(["a", "b"][at % 2]);
            std::thread::spawn(move || agent.call("s__t", json!({})))
        })
        .collect();
    for client in clients {
        let answer = client.join().unwrap();
        assert!(passed(&answer), "{answer}");
    }
    assert!(pids(&gate.file("pids")).len() <= 2, "each agent starts at most one meanwhile");
    assert!(passed(&gate.agent("a").call("s__t", json!({}))));
}

#[test]
fn a_process_that_does_not_start_in_time_is_ended_and_refuses() {
    let gate = slow_start(60.0, json!({"timeout": "200ms", "start_timeout": "1s"})).start();
    let answer = gate.agent("a").call("s__t", json!({}));
    assert_eq!(error(&answer).0, -32603, "{answer}");
    let first = eventually("it has started", || pids(&gate.file("pids")).first().copied());
    gone(&[first]);
}

/// All processes but the first start only once a file exists. `lazy` is answered once another one
/// exists.
const LATE_PROCESSES: &str = r#"#!/usr/bin/env bash
echo $$ >> "$PIDS"
[ "$(wc -l < "$PIDS")" -eq 1 ] || until [ -e "$PIDS.start" ]; do sleep 0.02; done
while read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case $line in
    *'"tool":"lazy"'*) : > "$PIDS.busy"; until [ -e "$PIDS.go" ]; do sleep 0.02; done ;;
    *'"tool":"hang"'*) sleep 60 ;;
  esac
  printf '{"id":%s,"decision":"allow"}\n' "$id"
done
"#;

fn late_processes(timeout: &str) -> Gate {
    let setup = with_tools(&["t", "lazy", "hang"]);
    let path = program(&setup, "hook", LATE_PROCESSES);
    let hook = json!({
        "name": "h", "exec": [path], "persistent": true, "timeout": timeout,
        "env": {"PIDS": setup.path("pids")},
    });
    let gate = setup.set("hooks", json!([hook])).start();
    assert!(passed(&gate.agent("a").call("s__t", json!({}))));
    gate
}

#[test]
fn a_call_waits_for_a_process_that_starts_beside_one_that_is_busy() {
    let gate = late_processes("4s");
    let call = |agent: &str, tool: &'static str| {
        let agent = gate.agent(agent);
        std::thread::spawn(move || agent.call(tool, json!({})))
    };
    let slow = call("a", "s__lazy");
    eventually("the only process is busy", || gate.file("pids.busy").exists().then_some(()));
    let waiting = call("b", "s__t");
    eventually("another one starts", || (pids(&gate.file("pids")).len() == 2).then_some(()));
    // The first one stays, so that the hook is known to work.
    std::fs::write(gate.file("pids.go"), "").unwrap();
    assert!(passed(&slow.join().unwrap()));
    std::thread::sleep(Duration::from_secs(5));
    assert!(!waiting.is_finished(), "it waits for longer than its timeout");
    std::fs::write(gate.file("pids.start"), "").unwrap();
    let answer = waiting.join().unwrap();
    assert!(passed(&answer), "{answer}");
}

#[test]
fn a_call_that_hangs_a_fresh_process_has_no_more_than_its_timeout() {
    let gate = late_processes("1s");
    std::fs::write(gate.file("pids.start"), "").unwrap();
    for _ in 0..2 {
        // The second time, the process is a new one.
        let begun = Instant::now();
        assert_eq!(error(&gate.agent("a").call("s__hang", json!({}))).0, -32603);
        assert!(begun.elapsed() < Duration::from_secs(15), "not the start timeout");
    }
}

#[test]
fn a_reload_starts_the_new_process_before_it_is_asked() {
    let gate = slow_start(0.0, json!({"timeout": "5s"})).start();
    eventually("it has started", || (pids(&gate.file("pids")).len() == 1).then_some(()));
    let first = pids(&gate.file("pids"));
    let file = gate.file("toolward.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let changed = gate.file("new");
    std::fs::write(&changed, text.replace("\"5s\"", "\"6s\"")).unwrap();
    std::fs::rename(&changed, &file).unwrap();
    eventually("another one has started", || (pids(&gate.file("pids")).len() == 2).then_some(()));
    gone(&first);
}
