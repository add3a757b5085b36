//! The size limit of results: a larger result is replaced by an error, and no part of it passes.

use serde_json::{Value, json};

use super::harness::*;
use super::support::*;

const MIB: usize = 1 << 20;

/// Checks that a result did not pass; returns the error message.
fn too_large(answer: &Value, most: usize) -> Value {
    assert_eq!(answer["result"]["isError"], true, "{answer:.300}");
    let data = &answer["result"]["_meta"]["io.toolward/refusal"];
    assert_eq!(data["error"], "result_too_large", "{answer}");
    assert_eq!((&data["limit_bytes"], &data["retryable"]), (&json!(most), &json!(false)));
    let text = text(answer);
    assert!(text.contains(&format!("the limit is {most}")), "{text}");
    assert!(!answer.to_string().contains("xxxx"), "nothing of it passes");
    data.clone()
}

fn large(caller: &impl Caller, server: &str, bytes: usize) -> Value {
    caller.call(&format!("{server}__large"), json!({ "bytes": bytes }))
}

fn passed(answer: &Value, bytes: usize) {
    assert_eq!(text(answer).len(), bytes, "{answer:.200}");
    assert!(answer["result"].get("isError").is_none());
}

fn peak_memory(gate: &Gate) -> usize {
    let path = format!("/proc/{}/status", gate.child.as_ref().unwrap().id());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn a_result_over_the_cap_does_not_pass_on_any_carrier() {
    let gate = setup()
        .set("builtin", json!(true))
        .stdio("child", "legacy", names(&["large"]))
        .stdio("last", "legacy", names(&["large", "later"]))
        .with("last", "env", json!({"ID_LAST": "1"}))
        .web("old", "legacy", names(&["large"]))
        .web("new", "modern", names(&["large"]))
        .with("child", "result_bytes", json!("1 MiB"))
        .with("last", "result_bytes", json!("1 MiB"))
        .with("old", "result_bytes", json!(MIB))
        .with("new", "result_bytes", json!({"large": "1MiB", "*": 1}))
        .agents(everyone())
        .start();
    let a = gate.agent("a");
    let session = a.session();
    for server in ["child", "last", "old", "new"] {
        passed(&large(&a, server, MIB - 1000), MIB - 1000);
        passed(&large(&session, server, MIB - 1000), MIB - 1000);
        let data = too_large(&large(&a, server, 3 * MIB), MIB);
        let size = data["result_bytes"].as_u64().unwrap() as usize;
        assert!((3 * MIB..3 * MIB + 500).contains(&size), "{server}: {size}");
        assert_eq!(data["tool"], format!("{server}__large"));
        too_large(&large(&session, server, MIB), MIB);
        // The same through the built-in tools.
        let data = too_large(&execute(&a, server, "large", json!({"bytes": 2 * MIB})), MIB);
        assert_eq!(data["tool"], format!("{server}/large"));
        // With progress, over HTTP, it arrives in an event stream.
        let params = json!({"name": format!("{server}__large"), "arguments": {"bytes": 2 * MIB}, "_meta": {"progressToken": 1}});
        let reply = a.modern_reply(json!("m"), "tools/call", params);
        let messages = reply.messages();
        assert_eq!(messages.len(), 2, "{server}");
        too_large(&messages[1], MIB);
        passed(&large(&a, server, 10), 10);
    }
    let outcomes = records(&gate, "outcome");
    let too_large = outcomes.iter().filter(|outcome| outcome["outcome"] == "too-large").count();
    assert_eq!((outcomes.len(), too_large), (4 * 7, 4 * 4));
}

#[test]
fn answers_without_end_are_not_read_to_their_end() {
    let gate = setup()
        .web("s", "modern", names(&["endless", "endless_events"]))
        .with("s", "result_bytes", json!("2 MiB"))
        .agents(everyone())
        .start();
    let a = gate.agent("a");
    for name in ["s__endless", "s__endless_events"] {
        let data = too_large(&a.call(name, json!({})), 2 * MIB);
        assert!(data.get("result_bytes").is_none(), "the full size is not known");
        assert!(text(&a.call(name, json!({}))).contains("more than 2097152 bytes"));
    }
    let stopped = eventually("the server is cut off", || {
        let log = gate.log("s");
        let stopped: Vec<u64> = log
            .iter()
            .filter(|one| one["event"] == "stopped")
            .map(|one| one["sent"].as_u64().unwrap())
            .collect();
        (stopped.len() == 4).then_some(stopped)
    });
    assert!(stopped.iter().all(|sent| *sent < 64 << 20), "{stopped:?}");
    assert!(peak_memory(&gate) < 80 * MIB, "{}", peak_memory(&gate));
}

#[test]
fn a_child_with_too_much_output_fills_no_memory_and_other_calls_continue() {
    for last in [false, true] {
        let mut setup = setup().stdio("s", "legacy", names(&["large", "later", "t"])).with(
            "s",
            "result_bytes",
            json!({"large": "1 MiB", "*": "2 MiB"}),
        );
        if last {
            setup = setup.with("s", "env", json!({"ID_LAST": "1"}));
        }
        let gate = setup.agents(everyone()).start();
        let session = gate.agent("a").session();
        session.list();
        let beside = session.clone();
        let call = json!({"name": "s__later", "arguments": {"seconds": 1.0}});
        let later = std::thread::spawn(move || {
            beside.post(&request(json!("beside"), "tools/call", call)).json()
        });
        eventually("the other call arrives", || (gate.calls("s").len() == 1).then_some(()));
        let answer = session.call("s__large", json!({"bytes": 150 * MIB}));
        let data = too_large(&answer, MIB);
        assert!(data["result_bytes"].as_u64().unwrap() as usize > 150 * MIB);
        assert_eq!(text(&later.join().unwrap()), "later");
        assert_eq!(text(&session.call("s__t", json!({}))), "did t");
        assert!(peak_memory(&gate) < 80 * MIB, "{}", peak_memory(&gate));
    }
}

#[test]
fn without_a_limit_the_bound_of_all_responses_applies_and_is_reported_at_once() {
    let gate = setup()
        .set("limits_of", json!({"response_bytes": "3 MiB"}))
        .stdio("child", "legacy", names(&["large"]))
        .web("new", "modern", names(&["large"]))
        .agents(everyone())
        .start();
    let a = gate.agent("a");
    for server in ["child", "new"] {
        passed(&large(&a, server, 2 * MIB), 2 * MIB);
        too_large(&large(&a, server, 5 * MIB), 3 * MIB);
    }
}

#[test]
fn notifications_beside_a_result_do_not_count() {
    let gate = setup()
        .web("old", "legacy", names(&["aside", "large"]))
        .web("new", "modern", names(&["aside", "large"]))
        .with("old", "result_bytes", json!(400))
        .with("new", "result_bytes", json!(400))
        .agents(everyone())
        .start();
    let a = gate.agent("a");
    let call = |name: String, bytes: usize| {
        let meta = json!({"progressToken": 1});
        let params = json!({"name": name, "arguments": {"bytes": bytes}, "_meta": meta});
        a.modern_reply(json!("m"), "tools/call", params).messages()
    };
    for server in ["old", "new"] {
        let messages = call(format!("{server}__aside"), 100_000);
        assert_eq!(messages.len(), 2, "{server}");
        assert_eq!(messages[0]["params"]["message"].as_str().unwrap().len(), 100_000);
        assert_eq!(text(&messages[1]), "aside", "{server}");
        // A result in such a stream still counts.
        too_large(&call(format!("{server}__large"), 500)[1], 400);
    }
}

#[test]
fn a_cap_is_for_results_and_not_for_lists() {
    let described = |name: &str| tool(name, &"long ".repeat(1000), "x");
    let tools: Vec<Value> = (0..100).map(|n| described(&format!("t{n}"))).collect();
    let gate = setup()
        .stdio("child", "legacy", json!(tools))
        .web("new", "modern", json!(tools))
        .with("child", "result_bytes", json!(200))
        .with("new", "result_bytes", json!(200))
        .agents(everyone())
        .start();
    assert_eq!(gate.agent("a").list().len(), 200);
    assert_eq!(text(&gate.agent("a").call("child__t1", json!({}))), "did t1");
}
