//! How a gateway leaves: it drains, and a second signal ends it at once.

use std::net::TcpStream;

use serde_json::json;

use super::harness::*;

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
