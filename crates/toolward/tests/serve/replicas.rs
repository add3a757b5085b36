//! Several gateways in front of the same servers: keys that they share, and how one of them leaves.

use std::net::TcpStream;

use serde_json::{Value, json};

use super::harness::*;
use super::reload::replace;

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
fn rotate(gate: &mut Gate, names: &[&str]) {
    let before = reloads(gate);
    gate.setup.config["state"] = keys(names);
    replace(&gate.file("toolward.yaml"), &gate.setup.config.to_string());
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
    let mut gates = fleet(2, keys(&["one"]));
    let mut sessions = vec![gates[0].agent("a").session(), gates[1].agent("a").session()];
    // The new key is known everywhere before it seals, and the old one until its sessions have ended.
    for order in [&["one", "two"][..], &["two", "one"]] {
        for at_gate in 0..gates.len() {
            rotate(&mut gates[at_gate], order);
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
    rotate(&mut gates[0], &["two"]);
    let list = request(json!(1), "tools/list", json!({}));
    assert_eq!(at(&newest, &gates[0]).post(&list).status, 200);
    assert_eq!(at(&sessions[2], &gates[0]).post(&list).status, 404);
}

#[test]
fn a_key_that_can_be_guessed_is_rejected_and_the_old_ones_stay() {
    let mut gates = fleet(1, keys(&["one"]));
    let gate = &mut gates[0];
    let session = gate.agent("a").session();
    std::fs::write(gate.file("short"), "short-secret").unwrap();
    gate.setup.config["state"] = keys(&["short"]);
    replace(&gate.file("toolward.yaml"), &gate.setup.config.to_string());
    eventually("the reload is rejected", || {
        gate.said.lock().unwrap().contains("shorter than 32 characters").then_some(())
    });
    assert!(!gate.said.lock().unwrap().contains("short-secret"));
    assert_eq!(text(&session.call("s__t", json!({}))), "did t");
}

fn ready(gate: &Gate) -> (u16, String) {
    let reply = gate.nobody().at("/readyz").send("GET", &[], "");
    (reply.status, String::from_utf8_lossy(&reply.body).into_owned())
}

#[test]
fn a_draining_gateway_is_not_ready_and_still_serves_until_the_delay_is_over() {
    let setup = setup().stdio("s", "legacy", names(&["t", "later"])).agents(everyone());
    let mut gate = setup.set("drain", json!({"delay": "3s"})).start();
    let session = gate.agent("a").session();
    session.list();
    assert_eq!(ready(&gate), (200, "ready".into()));
    gate.signal("-TERM");
    let said = eventually("it drains", || Some(ready(&gate)).filter(|(status, _)| *status == 503));
    assert_eq!(said.1, "draining");
    // New connections, new sessions and calls are still served.
    assert_eq!(text(&gate.agent("b").session().call("s__t", json!({}))), "did t");
    let mut feed = session.listen(None);
    let params = json!({"name": "s__later", "arguments": {"seconds": 5}});
    let mut later = session.open(&request(json!("later"), "tools/call", params));
    assert_eq!(feed.event(), None, "a feed ends after the delay");
    eventually("new connections are refused", || {
        TcpStream::connect(("127.0.0.1", gate.port)).is_err().then_some(())
    });
    assert_eq!(text(&later.reply().json()), "later", "a call in flight is finished");
    assert_eq!(gate.ended(), 0);
}

/// The outcomes of all calls in the audit log.
fn outcomes(gate: &Gate) -> Vec<String> {
    let records = gate.records();
    let outcomes = records.iter().filter(|record| record["kind"] == "outcome");
    outcomes.map(|record| record["outcome"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn calls_that_outlast_the_wait_are_aborted_and_recorded() {
    for era in ["legacy", "modern"] {
        let setup = setup().stdio("s", era, names(&["hang"])).agents(everyone());
        let mut gate = setup.set("drain", json!({"wait": "500ms"})).start();
        let _held = hanging(&gate, era);
        gate.signal("-TERM");
        assert_eq!(gate.ended(), 0);
        assert_eq!(outcomes(&gate), ["aborted"], "{era}");
    }
}

#[test]
fn a_second_signal_ends_at_once_and_still_records_outcomes() {
    for delay in ["0s", "1h"] {
        let setup = setup().stdio("s", "legacy", names(&["hang"])).agents(everyone());
        let mut gate = setup.set("drain", json!({"delay": delay, "wait": "1h"})).start();
        let _held = hanging(&gate, "legacy");
        gate.signal("-TERM");
        eventually("the first signal is handled", || {
            gate.said.lock().unwrap().contains("shutting down").then_some(())
        });
        gate.signal("-TERM");
        assert_eq!(gate.ended(), 1);
        assert_eq!(outcomes(&gate), ["aborted"], "{delay}");
    }
}

/// A call that never gets a response.
fn hanging(gate: &Gate, era: &str) -> super::wire::Connection {
    let params = json!({"name": "s__hang"});
    let held = match era {
        "legacy" => {
            let session = gate.agent("a").session();
            session.list();
            session.open(&request(json!("held"), "tools/call", params))
        }
        _ => gate.agent("a").modern_open(json!("held"), "tools/call", params),
    };
    eventually("the call arrives", || (gate.calls("s").len() == 1).then_some(()));
    held
}
