//! Tickets and grants that gateways share.

use serde_json::{Value, json};
use toolward_testkit::postgres::Postgres;

use super::harness::*;
use super::redis::Server as Redis;
use super::{change, command};

const KEY: &str = "the-secret-that-all-gateways-have-here";

/// Gateways in front of one server, of which a person has to approve `drop`.
fn fleet(count: usize, store: &str) -> Vec<Gate> {
    let mut gates: Vec<Gate> = Vec::new();
    for _ in 0..count {
        let setup = match gates.first() {
            None => setup().web("hub", "both", names(&["drop"])),
            Some(first) => setup().server("hub", json!({"url": first.setup.url("hub")})),
        };
        let tools = json!({"hub": [{"tool": "drop", "ask": {"hold": "1s"}}]});
        let rules = json!({"allow": {"servers": ["hub"], "tools": tools}});
        let setup = setup
            .agents(json!({"a": rules, "b": rules}))
            .env("SEAL", KEY)
            .set("state", json!({"dir": "state", "keys": ["${SEAL}"]}))
            .set("approvals", json!({"store": store}));
        gates.push(setup.start());
    }
    gates
}

fn call(gate: &Gate, number: u32) -> Value {
    call_as(&gate.agent("a"), number)
}

fn call_as(agent: &Agent, number: u32) -> Value {
    agent.session().call("hub__drop", json!({"n": number}))
}

fn is_done(answer: &Value) -> bool {
    answer["result"]["content"][0]["text"] == "did drop"
}

/// The tickets that a gateway shows.
fn pending(gate: &Gate) -> Vec<Value> {
    let output = command(gate, &["pending", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    found.as_array().cloned().unwrap_or_default()
}

fn approve(gate: &Gate, ticket: &Value, arguments: &[&str]) {
    let id = ticket["id"].as_str().unwrap();
    let output = command(gate, &[&["approve", id], arguments].concat());
    assert!(output.status.success(), "{output:?}");
}

/// Asks at one gateway, approves at another, and calls at a third.
fn one_approval_is_one_call(store: &str) {
    let gates = fleet(3, store);
    let first = call(&gates[0], 1);
    assert!(!is_done(&first), "{first}");
    for gate in &gates {
        assert_eq!(pending(gate).len(), 1, "every gateway shows the call that waits");
    }
    let ticket = pending(&gates[1]).remove(0);
    assert_eq!(ticket["params"], r#"{"arguments":{"n":1}}"#, "the other gateway can read it");
    approve(&gates[1], &ticket, &[]);
    // All at once: one of them redeems the grant.
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let agents = gates.iter().map(|gate| gate.agent("a"));
        let calls: Vec<_> = agents.map(|agent| scope.spawn(move || call_as(&agent, 1))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|answer| is_done(answer)).count(), 1, "{answers:?}");
    assert_eq!(gates[0].calls("hub").len(), 1);
    // A call that waits at one gateway continues when it is approved at another.
    for ticket in pending(&gates[2]) {
        assert!(command(&gates[2], &["deny", ticket["id"].as_str().unwrap()]).status.success());
    }
    let waiting = std::thread::scope(|scope| {
        let agent = gates[0].agent("a");
        let call = scope.spawn(move || {
            agent.modern("tools/call", json!({"name": "hub__drop", "arguments": {"n": 2}}))
        });
        let ticket = eventually("the call waits", || pending(&gates[2]).pop());
        approve(&gates[2], &ticket, &["--scope", "tool", "--for", "1h"]);
        call.join().unwrap()
    });
    // The client of the test does not repeat a call by itself.
    let is_later = waiting["result"]["resultType"].is_string() && !is_done(&waiting);
    assert!(is_done(&waiting) || is_later, "{waiting}");
    for gate in &gates {
        assert!(is_done(&call(gate, 3)), "the grant covers calls at every gateway");
    }
    let grants = command(&gates[0], &["grants", "--json"]);
    let grants: Value = serde_json::from_slice(&grants.stdout).unwrap();
    let grant = grants[0]["id"].as_str().unwrap_or_else(|| panic!("{grants}")).to_owned();
    assert!(command(&gates[1], &["revoke", &grant]).status.success());
    for gate in &gates {
        assert!(!is_done(&call(gate, 4)), "a revoked grant covers nothing anywhere");
    }
}

#[test]
fn an_approval_in_postgresql_is_redeemed_once_by_all_gateways_together() {
    let postgres = Postgres::start();
    one_approval_is_one_call(&postgres.create("toolward"));
    assert_eq!(postgres.query("toolward", "select version from toolward_migrations"), "1");
    let stored = postgres.query("toolward", "select record from toolward_approval_records");
    assert!(stored.contains("hub") && !stored.contains("did drop"), "{stored}");
}

#[test]
fn an_approval_in_redis_is_redeemed_once_by_all_gateways_together() {
    let redis = Redis::start();
    one_approval_is_one_call(&redis.url());
}

#[test]
fn without_the_store_calls_are_refused_and_work_again_afterwards() {
    let mut postgres = Postgres::start();
    let gates = fleet(2, &postgres.create("toolward"));
    call(&gates[0], 1);
    let ticket = pending(&gates[1]).remove(0);
    approve(&gates[1], &ticket, &["--scope", "tool", "--for", "1h"]);
    assert!(is_done(&call(&gates[0], 2)));
    postgres.stop();
    let refused = call(&gates[0], 3);
    assert!(!is_done(&refused), "a grant that cannot be verified permits nothing: {refused}");
    assert_eq!(gates[0].calls("hub").len(), 1);
    postgres.run();
    eventually("the store is used again", || is_done(&call(&gates[0], 4)));
    assert_eq!(gates[0].calls("hub").len(), 2);
}

/// While a change of the rules is rolled out, gateways with the old and with the new ones share a store.
#[test]
fn a_gateway_with_other_rules_leaves_the_tickets_and_grants_of_the_others() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    for store in [postgres.create("toolward"), redis.url()] {
        let mut gates = fleet(2, &store);
        call(&gates[0], 1);
        approve(&gates[0], &pending(&gates[0]).remove(0), &["--scope", "tool", "--for", "1h"]);
        assert!(is_done(&call(&gates[1], 1)));
        let another = gates[0].agent("b");
        assert!(!is_done(&call_as(&another, 2)), "another agent has to ask");
        let waiting = pending(&gates[0]).remove(0);

        // The second gateway has other rules: once by a restart, and once by a reload.
        for agent in ["a", "b"] {
            let rules = &mut gates[1].setup.config["agents"][agent]["allow"];
            rules["tools"]["hub"][0]["tool"] = json!("d*");
        }
        gates[1].restart();
        assert!(!is_done(&call(&gates[1], 3)), "a grant for another rule covers nothing");
        let reloads = || gates[1].said.lock().unwrap().matches("configuration reloaded").count();
        let before = reloads();
        change(&gates[1], |config| {
            config["agents"].as_object_mut().unwrap().remove("b");
        });
        eventually("the rules are reloaded", || reloads() > before);

        assert!(is_done(&call(&gates[0], 4)), "the grant still covers calls where the rule is");
        approve(&gates[0], &waiting, &[]);
        assert!(is_done(&call_as(&another, 2)), "the ticket was still there");
    }
}

#[test]
fn gateways_with_other_keys_cannot_use_the_store() {
    let redis = Redis::start();
    let first = fleet(1, &redis.url()).remove(0);
    let other = setup()
        .server("hub", json!({"url": first.setup.url("hub")}))
        .agents(everyone())
        .env("SEAL", "another-secret-that-nobody-else-has-here")
        .set("state", json!({"dir": "state", "keys": ["${SEAL}"]}))
        .set("approvals", json!({"store": redis.url()}));
    let (code, said) = other.fails();
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("other `state.keys`"), "{said}");
    let none = setup().agents(everyone()).set("approvals", json!({"store": redis.url()}));
    let (code, said) = none.fails();
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("need the same keys"), "{said}");
    let cluster = setup()
        .server("hub", json!({"url": first.setup.url("hub")}))
        .agents(everyone())
        .env("SEAL", KEY)
        .set("state", json!({"dir": "state", "keys": ["${SEAL}"]}))
        .set("approvals", json!({"store": "redis-cluster://127.0.0.1:1"}));
    let (code, said) = cluster.fails();
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("single Redis server"), "{said}");
}
