//! Two agents with many slow calls do not block a third one, for every kind of hook.

use std::time::{Duration, Instant};

use serde_json::json;

use super::harness::*;
use super::http::Service;
use super::support::*;

/// Agents whose calls are slow.
const SLOW: [&str; 2] = ["a", "b"];

fn three_agents(tools: &[&str]) -> Setup {
    let all = json!({"allow": {"servers": ["*"]}});
    let agents = json!({"a": all, "b": all, "c": all});
    setup().web("s", "modern", names(tools)).agents(agents)
}

/// Starts calls of the slow agents and leaves them waiting.
fn open_slow_calls(gate: &Gate, count: usize) -> Vec<super::wire::Connection> {
    SLOW.iter().for_each(|name| drop(gate.agent(name).list()));
    let call = |at: usize| {
        let agent = gate.agent(SLOW[at % SLOW.len()]);
        agent.modern_open(json!(at), "tools/call", json!({"name": "s__slow"}))
    };
    (0..count * SLOW.len()).map(call).collect()
}

fn third_agent_passes(gate: &Gate) {
    let c = gate.agent("c");
    for _ in 0..20 {
        let answer = c.call("s__t", json!({}));
        assert!(passed(&answer), "{answer}");
    }
}

/// The number of slow calls of each agent in a hook that writes their names into a file.
fn held(gate: &Gate) -> [usize; 2] {
    let text = std::fs::read_to_string(gate.file("held")).unwrap_or_default();
    SLOW.map(|name| text.lines().filter(|line| *line == name).count())
}

#[test]
fn two_agents_with_slow_calls_leave_a_persistent_hook_to_a_third() {
    let script = r#"#!/usr/bin/env bash
while read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  agent=${line#*\"agent\":\"}; agent=${agent%%\"*}
  case $line in *'"tool":"slow"'*) echo "$agent" >> "$HELD"; sleep 60 ;; esac
  printf '{"id":%s,"decision":"allow"}\n' "$id"
done
"#;
    let setup = three_agents(&["t", "slow"]);
    let path = program(&setup, "hook", script);
    let hook = json!({
        "name": "h", "exec": [path], "persistent": true, "timeout": "20s",
        "env": {"HELD": setup.path("held")},
    });
    let gate = setup.set("hooks", json!([hook])).start();
    assert!(passed(&gate.agent("c").call("s__t", json!({}))));
    let connections = open_slow_calls(&gate, 20);
    eventually("both hold processes", || {
        let [a, b] = held(&gate);
        (a > 0 && b > 0 && a + b >= 6).then_some(())
    });
    third_agent_passes(&gate);
    assert_eq!(held(&gate).iter().sum::<usize>(), 6, "two processes are kept for others");
    drop(connections);
}

/// A hook that handles at most two calls per process at once, in any order.
const TWO_THREADS: &str = r#"#!/usr/bin/env python3
import json, os, sys, threading, time
lock, room = threading.Lock(), threading.Semaphore(2)
def answer(request):
    with room:
        if request["tool"] == "slow":
            time.sleep(60)
        with lock:
            print(json.dumps({"id": request["id"], "decision": "allow"}), flush=True)
for line in sys.stdin:
    threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
"#;

#[test]
fn a_process_that_answers_several_calls_at_once_is_left_to_a_third_agent_too() {
    let setup = three_agents(&["t", "slow"]);
    let path = program(&setup, "hook", TWO_THREADS);
    let hook = json!({"name": "h", "exec": [path], "persistent": true, "timeout": "4s"});
    let gate = setup.set("hooks", json!([hook])).start();
    let (a, c) = (gate.agent("a"), gate.agent("c"));
    assert!(passed(&c.call("s__t", json!({}))));
    // An agent that uses its share discovers that a process can handle another call meanwhile.
    let open = |at| a.modern_open(json!(at), "tools/call", json!({"name": "s__slow"}));
    let first: Vec<_> = (0..4).map(open).collect();
    assert!(passed(&a.call("s__t", json!({}))));
    drop(first);
    let begun = Instant::now();
    let connections = open_slow_calls(&gate, 40);
    while begun.elapsed() < Duration::from_secs(5) {
        let answer = c.call("s__t", json!({}));
        assert!(passed(&answer), "{answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(connections);
}

#[test]
fn two_agents_with_slow_calls_leave_a_policy_sh_to_a_third() {
    let text = "mcp_tools_policy_check() {\n  [ \"$1\" = slow ] || return 0\n  \
                echo x >> \"$HELD\"\n  sleep 60\n}\n";
    let setup = three_agents(&["t", "slow"]);
    std::fs::write(setup.path("policy.sh"), text).unwrap();
    let file = setup.path("held");
    let hook = json!({
        "name": "h", "policy_sh": "./policy.sh", "timeout": "20s", "env": {"HELD": file},
    });
    let gate = setup.set("hooks", json!([hook])).start();
    let count = || std::fs::read_to_string(&file).unwrap_or_default().lines().count();
    assert!(passed(&gate.agent("c").call("s__t", json!({}))));
    let connections = open_slow_calls(&gate, 20);
    eventually("both have their share", || (count() == 32).then_some(()));
    third_agent_passes(&gate);
    assert_eq!(count(), 32, "no more than their share");
    drop(connections);
}

#[test]
fn two_agents_with_slow_calls_leave_a_service_to_a_third() {
    let service = Service::start();
    service.says("200 OK", r#"{"decision":"allow"}"#);
    service.hangs_on("slow");
    let hook = json!({"name": "h", "http": service.url("/"), "timeout": "20s"});
    let gate = three_agents(&["t", "slow"]).set("hooks", json!([hook])).start();
    let connections = open_slow_calls(&gate, 80);
    let of = |name: &str| {
        let asked = service.asked.lock().unwrap();
        asked.iter().filter(|(_, body)| body["agent"] == name && body["tool"] == "slow").count()
    };
    eventually("both have their share", || (of("a") >= 64 && of("b") >= 64).then_some(()));
    third_agent_passes(&gate);
    assert_eq!((of("a"), of("b")), (64, 64), "no more than their share");
    drop(connections);
}
