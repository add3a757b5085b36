//! Rate limits that are counted in memory.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::harness::*;
use super::support::*;

/// Makes calls until one is refused; returns how many passed, and the refusal.
fn until_refused(agent: &Agent, name: &str) -> (usize, Value) {
    for count in 0..50 {
        let answer = agent.call(name, json!({}));
        if !passed(&answer) {
            return (count, answer);
        }
    }
    panic!("{name} is never refused");
}

#[test]
fn every_kind_of_limit_counts_its_calls_and_is_described_in_the_refusal() {
    let gate = setup()
        .web("s", "modern", names(&["t", "u", "get_x", "get_y", "w"]))
        .web("r", "modern", names(&["t"]))
        .with("s", "limits", json!({"tools": {"w": "2/day"}}))
        .with("r", "limits", json!({"calls": "4/day"}))
        .set("limits", json!({"tools": {"s/get_*": "3/day", "s/s*": "1/day"}, "calls": "100/day"}))
        .agents(json!({
            "a": {"allow": {"servers": ["*"]}, "limits": {"tools": {"*/u": "1/day"}}},
            "b": {"allow": {"servers": ["*"]}},
        }))
        .start();
    let (a, b) = (gate.agent("a"), gate.agent("b"));
    // The agent gets the kind of limit; the audit log has the limit's location in the configuration.
    let check = |answer: &Value, words: &str, path: &str, rate: &str| {
        let data = limited(answer);
        assert_eq!((&data["limit"], &data["rate"]), (&json!(words), &json!(rate)));
        let text = text(answer);
        let line = format!(" at this rate: the limit of {rate} on {words} is used up.\n");
        assert!(text.contains(&line) && !text.contains(path), "{text}");
        let record = refusals(&gate).pop().unwrap();
        assert_eq!((&record["id"], &record["limit"]), (&data["decision_id"], &json!(path)));
    };
    // A tool pattern, for all agents and all matching tools together.
    assert!(passed(&a.call("s__get_x", json!({}))) && passed(&b.call("s__get_y", json!({}))));
    let (count, answer) = until_refused(&b, "s__get_x");
    assert_eq!(count, 1);
    let words = "calls that match `s/get_*` by all agents";
    check(&answer, words, r#"limits.tools["s/get_*"]"#, "3/day");
    // A server, and a tool of a server.
    assert!(passed(&a.call("r__t", json!({}))));
    let (count, answer) = until_refused(&b, "r__t");
    assert_eq!(count, 3);
    let words = "calls to the server `r` by all agents";
    check(&answer, words, "servers.r.limits.calls", "4/day");
    let (count, answer) = until_refused(&a, "s__w");
    assert_eq!(count, 2);
    check(&answer, "calls of this kind by all agents", "servers.s.limits.tools.w", "2/day");
    // An agent: the other one is not counted.
    let (count, answer) = until_refused(&a, "s__u");
    assert_eq!(count, 1);
    let words = "your calls that match `*/u`";
    check(&answer, words, r#"agents.a.limits.tools["*/u"]"#, "1/day");
    assert!(passed(&b.call("s__u", json!({}))) && passed(&b.call("s__u", json!({}))));
    // Everything else continues.
    assert!(passed(&a.call("s__t", json!({}))));
}

#[test]
fn a_refusal_has_the_limit_and_a_retry_time() {
    let gate = with_tools(&["t"]).set("limits", json!({"calls": "1/min"})).start();
    let a = gate.agent("a");
    assert!(passed(&a.call("s__t", json!({}))));
    let reply = a.modern_reply(
        json!("m"),
        "tools/call",
        json!({"name": "s__t", "arguments": {"action": "go"}}),
    );
    assert_eq!(reply.status, 200);
    let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    let answer = reply.json();
    let data = limited(&answer);
    assert_eq!((&data["error"], &data["tool"]), (&json!("limit_exceeded"), &json!("s__t")));
    assert_eq!(data["action"], "go");
    let wait = data["retry_after_ms"].as_u64().unwrap();
    assert!(wait > 50_000 && wait <= 60_000, "{data}");
    assert_eq!(seconds, wait.div_ceil(1000));
    assert_eq!(answer["result"]["resultType"], "complete");
    let text = text(&answer);
    let words = "s__t.go is not permitted at this rate: \
                 the limit of 1/min on all calls by all agents is used up.";
    assert!(text.starts_with(words), "{text}");
    assert!(text.contains("Try again in"), "{text}");
    let record = refusals(&gate).pop().unwrap();
    assert_eq!((&record["step"], &record["limit"]), (&json!("limit"), &json!("limits.calls")));
    assert_eq!((&record["listed"], &record["server"]), (&json!(true), &json!("s")));
    assert_eq!((&record["id"], &record["retry_after_ms"]), (&data["decision_id"], &json!(wait)));
    assert_eq!(gate.calls("s").len(), 1, "the refused call reached no server");
    // The same in a session.
    let answer = gate.agent("a").session().call("s__t", json!({}));
    assert_eq!(limited(&answer)["limit"], "all calls by all agents");
    assert!(answer["result"].get("resultType").is_none());
}

#[test]
fn an_entry_of_the_policy_lets_calls_pass_only_so_often() {
    let tools = json!({"s": [
        {"tool": "go.far", "limit": "2/day"},
        {"tool": "w", "when": "args.big == true", "limit": "1/day"},
        "*",
    ]});
    let gate = setup()
        .web("s", "modern", names(&["t", "go", "w"]))
        .agents(json!({"a": {"allow": {"servers": ["*"], "tools": tools}}}))
        .set("allowed_tools", json!([{"tool": "w", "limit": "3/day"}, "*"]))
        .start();
    let a = gate.agent("a");
    let call = |name: &str, arguments: Value| a.call(name, arguments);
    // Only the action that the entry names is counted.
    for _ in 0..2 {
        assert!(passed(&call("s__go", json!({"action": "far"}))));
    }
    let check = |answer: &Value, words: &str, path: &str| {
        assert_eq!(limited(answer)["limit"], words);
        assert!(!answer.to_string().contains(path), "{answer}");
        assert_eq!(refusals(&gate).pop().unwrap()["limit"], path);
    };
    let refused = call("s__go", json!({"action": "far"}));
    check(&refused, "your calls of this kind", "agents.a.allow.tools.s[0]");
    assert!(passed(&call("s__go", json!({"action": "near"}))));
    // Each layer counts the entry that allowed the call.
    assert!(passed(&call("s__w", json!({"big": true}))));
    let refused = call("s__w", json!({"big": true}));
    check(&refused, "your calls of this kind", "agents.a.allow.tools.s[1]");
    assert!(passed(&call("s__w", json!({}))) && passed(&call("s__w", json!({}))));
    let refused = call("s__w", json!({}));
    check(&refused, "calls of this kind by all agents", "allowed_tools[0]");
    assert!(passed(&call("s__t", json!({}))));
}

#[test]
fn agents_of_a_layer_have_limits_and_default_holds_for_those_it_does_not_name() {
    let setup = setup().web("s", "modern", names(&["t"])).agents(json!({
        "a": {}, "b": {}, "c": {},
    }));
    let layer = setup.path("team.yaml");
    let text = "agents:\n  a: {allow: {servers: ['*']}, limits: {calls: 1/day}}\n  \
                b: {allow: {servers: ['*']}}\n  \
                default: {allow: {servers: ['*']}, limits: {calls: 2/day}}\n\
                defaults: {deny_on_missing_agent: false}\n";
    std::fs::write(&layer, text).unwrap();
    let gate = setup.set("policies", json!(["team.yaml"])).start();
    let calls = |agent: &str| until_refused(&gate.agent(agent), "s__t");
    let (count, answer) = calls("a");
    assert_eq!((count, &limited(&answer)["limit"]), (1, &json!("your calls")));
    let (count, answer) = calls("c");
    let words = "calls by agents without rules of their own";
    assert_eq!((count, &limited(&answer)["limit"]), (2, &json!(words)));
    for _ in 0..5 {
        assert!(passed(&gate.agent("b").call("s__t", json!({}))));
    }
}

#[test]
fn all_limits_must_pass_and_a_refused_call_takes_nothing_of_any() {
    let gate = with_tools(&["t", "u"])
        .set("limits", json!({"calls": "5/day", "tools": {"s/u": "1/day"}}))
        .start();
    let a = gate.agent("a");
    assert!(passed(&a.call("s__u", json!({}))));
    for _ in 0..10 {
        let refused = limited(&a.call("s__u", json!({})));
        assert_eq!(refused["limit"], "calls of this kind by all agents");
    }
    let (count, answer) = until_refused(&a, "s__t");
    assert_eq!((count, &limited(&answer)["limit"]), (4, &json!("all calls by all agents")));
}

#[test]
fn units_are_returned_if_a_hook_refuses_the_call_or_its_client_disconnects() {
    let setup = with_tools(&["t", "u", "v"]);
    let hook = "#!/bin/sh\nread line\ncase $line in *'\"tool\":\"u\"'*) exit 1;; \
                *'\"tool\":\"v\"'*) touch \"$0.asked\"; sleep 30;; esac\nexit 0\n";
    let path = program(&setup, "hook", hook);
    let gate = setup
        .set("limits", json!({"calls": "3/day"}))
        .set("hooks", json!([{"name": "h", "exec": [path], "timeout": "60s"}]))
        .start();
    let a = gate.agent("a");
    for _ in 0..6 {
        assert_eq!(error(&a.call("s__u", json!({}))).0, -32602);
    }
    // A client that disconnects while its call waits for a hook.
    let connection = a.modern_open(json!(1), "tools/call", json!({"name": "s__v"}));
    eventually("the hook is asked", || gate.file("hook.asked").exists());
    drop(connection);
    let mut count = 0;
    eventually("the units of the call are returned", || {
        count += usize::from(passed(&a.call("s__t", json!({}))));
        count == 3
    });
    let answer = a.call("s__t", json!({}));
    assert_eq!(limited(&answer)["limit"], "all calls by all agents");
}

#[test]
fn listings_and_calls_are_limited_apart() {
    let gate = setup()
        .web("s", "modern", names(&["t"]))
        .agents(json!({
            "a": {"allow": {"servers": ["*"]}, "limits": {"lists": "2/min", "calls": "2/min"}},
            "b": {"allow": {"servers": ["*"]}},
        }))
        .start();
    let a = gate.agent("a");
    a.list();
    a.list();
    let reply = a.modern_reply(json!(1), "tools/list", json!({}));
    let answer = reply.json();
    assert_eq!(error(&answer).0, -32603, "{answer}");
    let data = &answer["error"]["data"];
    assert_eq!(data["error"], "limit_exceeded");
    assert_eq!(data["limit"], "your listings");
    let wait = data["retry_after_ms"].as_u64().unwrap();
    assert!(wait > 0 && wait <= 30_000, "{answer}");
    assert!(reply.header("retry-after").is_some());
    let record = refusals(&gate).pop().unwrap();
    assert_eq!((&record["step"], &record["method"]), (&json!("limit"), &json!("tools/list")));
    // Calls have their own limit, and so has the other agent.
    assert_eq!(until_refused(&a, "s__t").0, 2);
    for _ in 0..5 {
        gate.agent("b").list();
    }
}

#[test]
fn too_many_refused_calls_wait_and_their_answers_stay_the_same() {
    let gate = setup()
        .web("s", "modern", names(&["t", "hidden"]))
        .agents(json!({"a": {
            "allow": {"servers": ["*"], "tools": {"s": ["t"]}},
            "limits": {"refused": "20/min burst 2"},
        }}))
        .start();
    let a = gate.agent("a");
    a.list();
    let ask = |name: &str| {
        let begun = Instant::now();
        let mut answer = a.call(name, json!({}));
        answer["error"]["data"]["decision_id"] = json!("x");
        (answer, begun.elapsed())
    };
    let (first, _) = ask("s__hidden");
    ask("s__hidden");
    let (later, slow) = ask("s__hidden");
    assert_eq!(first, later, "only the time differs");
    // Lower bounds, which a busy machine cannot break: one unit refills every three seconds.
    assert!(slow > Duration::from_millis(200), "{slow:?}");
    // Nonexistent tools are delayed like hidden ones, and no other agent's calls are delayed.
    assert!(ask("s__nothing").1 > Duration::from_millis(200));
    assert!(passed(&a.call("s__t", json!({}))));
}

/// Eight clients at once; returns how many of the calls passed.
fn eight_clients(agents: &[Agent], each: usize) -> usize {
    let clients: Vec<_> = (0..8)
        .map(|at| {
            let agent = agents[at % agents.len()].clone();
            std::thread::spawn(move || {
                (0..each).filter(|_| passed(&agent.call("s__t", json!({})))).count()
            })
        })
        .collect();
    clients.into_iter().map(|client| client.join().unwrap()).sum()
}

#[test]
fn eight_clients_get_exactly_the_limit() {
    for rate in ["100/min", "100/day"] {
        let gate = with_tools(&["t"]).set("limits", json!({"calls": rate})).start();
        let agents = [gate.agent("a"), gate.agent("b")];
        agents[0].list();
        let begun = Instant::now();
        let count = eight_clients(&agents, 20);
        // One more refills every 600 ms, if the machine is slow.
        let more = if rate == "100/min" { begun.elapsed().as_millis() as usize / 600 } else { 0 };
        assert!((100..=100 + more).contains(&count), "{rate}: {count} in {:?}", begun.elapsed());
        assert_eq!(gate.calls("s").len(), count);
        assert_eq!(refusals(&gate).len(), 160 - count);
    }
}
