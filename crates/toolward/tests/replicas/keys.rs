//! Keys that several gateways share, and their rotation.

use serde_json::{Value, json};

use super::change;
use super::harness::*;

const ONE: &str = "the-first-secret-that-all-gateways-know";
const TWO: &str = "the-second-secret-that-all-gateways-know";

/// Gateways in front of one server, with the same keys.
fn fleet(count: usize, state: Value) -> Vec<Gate> {
    let mut gates: Vec<Gate> = Vec::new();
    for _ in 0..count {
        let setup = match gates.first() {
            None => setup().web("s", "both", names(&["t", "later", "hang"])),
            Some(first) => setup().server("s", json!({"url": first.setup.url("s")})),
        };
        let setup = setup.agents(everyone()).set("state", state.clone());
        for (name, secret) in [("one", ONE), ("two", TWO)] {
            std::fs::write(setup.path(name), secret).unwrap();
        }
        gates.push(setup.start());
    }
    gates
}

fn keys(names: &[&str]) -> Value {
    let keys: Vec<String> = names.iter().map(|name| format!("${{file:{name}}}")).collect();
    json!({"dir": "state", "keys": keys})
}

/// The same session at another gateway.
fn at(session: &Session, gate: &Gate) -> Session {
    Session { agent: gate.agent("a"), ..session.clone() }
}

/// Changes the keys of a running gateway.
fn rotate(gate: &Gate, names: &[&str]) {
    let before = reloads(gate);
    change(gate, |config| config["state"] = keys(names));
    eventually("the keys are reloaded", || (reloads(gate) > before).then_some(()));
}

fn reloads(gate: &Gate) -> usize {
    gate.said.lock().unwrap().matches("configuration reloaded").count()
}

#[test]
fn a_session_is_valid_at_every_gateway_with_the_same_keys_and_at_no_other() {
    let gates = fleet(2, keys(&["one"]));
    let session = gates[0].agent("a").session();
    for gate in gates.iter().chain(&gates) {
        assert_eq!(at(&session, gate).list(), ["s__t", "s__later", "s__hang"]);
        assert_eq!(text(&at(&session, gate).call("s__t", json!({}))), "did t");
        let stolen = Session { agent: gate.agent("b"), ..session.clone() };
        assert_eq!(stolen.post(&request(json!(1), "tools/list", json!({}))).status, 404);
    }
    let list = request(json!(1), "tools/list", json!({}));
    for other in [keys(&["two"]), json!("state")] {
        let gate = fleet(1, other).remove(0);
        assert_eq!(at(&session, &gate).post(&list).status, 404);
    }
}

#[test]
fn rotating_keys_by_reloads_loses_no_session() {
    let gates = fleet(2, keys(&["one"]));
    let mut sessions = vec![gates[0].agent("a").session(), gates[1].agent("a").session()];
    // The new key is known everywhere before it seals, and the old one until its sessions have ended.
    for order in [&["one", "two"][..], &["two", "one"]] {
        for at_gate in 0..gates.len() {
            rotate(&gates[at_gate], order);
            sessions.push(gates[at_gate].agent("a").session());
            for (session, gate) in
                sessions.iter().flat_map(|one| gates.iter().map(move |gate| (one, gate)))
            {
                assert_eq!(text(&at(session, gate).call("s__t", json!({}))), "did t", "{order:?}");
            }
        }
    }
    // Without the old key, only its sessions are gone.
    let newest = gates[1].agent("a").session();
    rotate(&gates[0], &["two"]);
    let list = request(json!(1), "tools/list", json!({}));
    assert_eq!(at(&newest, &gates[0]).post(&list).status, 200);
    assert_eq!(at(&sessions[2], &gates[0]).post(&list).status, 404);
}

#[test]
fn a_key_that_can_be_guessed_is_rejected_and_the_old_ones_stay() {
    let gates = fleet(1, keys(&["one"]));
    let gate = &gates[0];
    let session = gate.agent("a").session();
    std::fs::write(gate.file("short"), "short-secret").unwrap();
    change(gate, |config| config["state"] = keys(&["short"]));
    eventually("the reload is rejected", || {
        gate.said.lock().unwrap().contains("shorter than 32 characters").then_some(())
    });
    assert!(!gate.said.lock().unwrap().contains("short-secret"));
    assert_eq!(text(&session.call("s__t", json!({}))), "did t");
}
