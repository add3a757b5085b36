//! Calls whose client disconnects while limits or hooks are checked: nothing is forwarded, and there is
//! one audit record.

use std::net::TcpListener;

use serde_json::{Value, json};

use super::harness::*;
use super::support::*;

/// A hook that reports when it is called, and never responds.
fn silent() -> Setup {
    let setup = with_tools(&["t"]);
    let path = program(&setup, "hook", "#!/bin/sh\necho $$ >> \"$PIDS\"\nexec sleep 60\n");
    let pids = setup.path("pids");
    let hook = json!({"name": "h", "exec": [path], "timeout": "30s", "env": {"PIDS": pids}});
    setup.set("hooks", json!([hook]))
}

/// The only record of a call of `t` whose client has disconnected.
fn one_record(records: impl Fn() -> Vec<Value>) {
    let about = || -> Vec<Value> {
        records().into_iter().filter(|record| record["exposed_name"] == "s__t").collect()
    };
    eventually("it is recorded", || (!about().is_empty()).then_some(()));
    always("there is one record", std::time::Duration::from_millis(200), || about().len() == 1);
    let records = about();
    let record = &records[0];
    for (key, value) in [
        ("kind", "refusal"),
        ("outcome", "aborted"),
        ("step", "left"),
        ("verdict", "deny"),
        ("server", "s"),
        ("tool", "t"),
        ("agent", "a"),
    ] {
        assert_eq!(record[key], value, "{record}");
    }
}

fn asked(path: &std::path::Path) {
    eventually("the hook is asked", || (!pids(path).is_empty()).then_some(()));
}

fn cancelled(id: Value) -> Value {
    let params = json!({"requestId": id});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
}

#[test]
fn a_client_that_closes_its_connection_leaves_one_record() {
    let gate = silent().start();
    let a = gate.agent("a");
    a.list();
    let connection = a.modern_open(json!(1), "tools/call", json!({"name": "s__t"}));
    asked(&gate.file("pids"));
    drop(connection);
    one_record(|| gate.records());
    assert!(gate.calls("s").is_empty());
}

#[test]
fn a_call_that_is_cancelled_leaves_one_record() {
    let gate = silent().start();
    let session = gate.agent("a").session();
    session.list();
    let call = request(json!(9), "tools/call", json!({"name": "s__t", "arguments": {}}));
    let connection = session.open(&call);
    asked(&gate.file("pids"));
    assert_eq!(session.post(&cancelled(json!(9))).status, 202);
    one_record(|| gate.records());
    drop(connection);
    assert!(gate.calls("s").is_empty());
}

#[test]
fn on_standard_streams_too() {
    for leaves in [false, true] {
        let mut lines = silent().standard(&["--agent", "a"]).ready();
        let call = request(json!(9), "tools/call", json!({"name": "s__t", "arguments": {}}));
        lines.send(&call.to_string());
        asked(&lines.setup.path("pids"));
        if leaves {
            lines.child.stdin = None;
        } else {
            lines.send(&cancelled(json!(9)).to_string());
        }
        let audit = lines.setup.path("audit");
        one_record(|| super::audit_log::decisions(&audit));
    }
}

#[test]
fn a_client_that_does_not_wait_for_a_store_leaves_one_record() {
    // A listener that accepts connections and never responds.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = format!("redis://{}", listener.local_addr().unwrap());
    let (came, comes) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let held: Vec<_> =
            listener.incoming().flatten().inspect(|_| came.send(()).unwrap()).collect();
        drop(held);
    });
    let limits = json!({"store": store, "timeout": "20s", "calls": "5/s"});
    let gate = with_tools(&["t"]).set("limits", limits).start();
    let a = gate.agent("a");
    a.list();
    let connection = a.modern_open(json!(1), "tools/call", json!({"name": "s__t"}));
    comes.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
    drop(connection);
    one_record(|| gate.records());
}
