//! Traces over OTLP, decoded by the official Python classes.

use serde_json::{Value, json};

use super::harness::{Gate, MODERN, eventually, everyone, modern_body, names, setup};
use super::otlp::Receiver;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn gate(telemetry: Value) -> Gate {
    setup().agents(everyone()).set("telemetry", telemetry).web("s", "modern", names(&["a"])).start()
}

/// Calls a tool in a trace context; returns the response.
fn call(gate: &Gate, name: &str, parent: Option<&str>) -> Value {
    let mut body = modern_body(json!(7), "tools/call", json!({"name": name, "arguments": {}}));
    if let Some(parent) = parent {
        body["params"]["_meta"]["traceparent"] = json!(parent);
    }
    let headers =
        [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", name)];
    gate.agent("a").post(&headers, &body).json()
}

#[test]
fn a_call_has_a_span_towards_each_side_in_the_trace_of_its_client() {
    let Some(receiver) = Receiver::start() else { return };
    let gate = gate(json!({"otlp": receiver.url()}));
    // Without a context, and without `sample`, nothing is traced.
    assert!(call(&gate, "s__a", None)["result"].is_object());
    assert!(call(&gate, "s__a", Some(PARENT))["result"].is_object());
    assert!(call(&gate, "s__no", Some(PARENT))["error"].is_object());
    let spans = eventually("three spans arrive", || {
        Some(receiver.received("span")).filter(|spans| spans.len() == 3)
    });
    let of = |kind: u64, name: &str| {
        let found = spans.iter().find(|span| span["span_kind"] == kind && span["name"] == name);
        found.unwrap_or_else(|| panic!("{kind} {name}: {spans:?}")).clone()
    };
    let (server, client) = (of(2, "tools/call a"), of(3, "tools/call a"));
    assert!(spans.iter().all(|span| span["trace"] == "4bf92f3577b34da6a3ce929d0e0e4736"));
    assert_eq!(server["parent"], "00f067aa0ba902b7");
    assert_eq!(client["parent"], server["span"]);
    for (name, value) in [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.tool.name", "a"),
        ("gen_ai.operation.name", "execute_tool"),
        ("mcp.protocol.version", MODERN),
        ("toolward.agent", "a"),
        ("toolward.server", "s"),
    ] {
        assert_eq!(server["attributes"][name], value, "{name}: {server}");
        assert_eq!(client["attributes"][name], value, "{name}: {client}");
    }
    assert_eq!(server["attributes"]["jsonrpc.request.id"], "7");
    assert_eq!(server["status"], 0);
    // The name of a tool that is not in the list is not part of the span.
    let refused = of(2, "tools/call");
    assert_eq!(refused["status"], 2);
    assert!(refused["attributes"]["error.type"].is_string(), "{refused}");
    // The server got the context of the CLIENT span, and the audit record has the trace id.
    let forwarded = gate.calls("s").pop().unwrap();
    let continued =
        format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", client["span"].as_str().unwrap());
    let text = forwarded.to_string();
    assert!(text.contains(&continued), "{continued}: {text}");
    let intent = gate.records().into_iter().rfind(|record| record["kind"] == "intent").unwrap();
    assert_eq!(intent["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(server["attributes"]["toolward.decision_id"], intent["id"]);
}

#[test]
fn a_sampled_call_begins_a_trace_that_the_server_continues() {
    let Some(receiver) = Receiver::start() else { return };
    let gate = gate(json!({"otlp": receiver.url(), "sample": "100%"}));
    assert!(call(&gate, "s__a", None)["result"].is_object());
    let spans = eventually("two spans arrive", || {
        Some(receiver.received("span")).filter(|spans| spans.len() == 2)
    });
    let server = spans.iter().find(|span| span["span_kind"] == 2).unwrap();
    assert_eq!(server["parent"], "");
    let text = gate.calls("s").pop().unwrap().to_string();
    assert!(text.contains(server["trace"].as_str().unwrap()), "{text}");
    // A client that traces and does not sample is not overruled.
    let unsampled = PARENT.replace("-01", "-00");
    assert!(call(&gate, "s__a", Some(&unsampled))["result"].is_object());
    let text = gate.calls("s").pop().unwrap().to_string();
    assert!(text.contains(&unsampled), "{text}");
    assert_eq!(receiver.received("span").len(), 2);
}

#[test]
fn a_receiver_that_hangs_costs_no_call() {
    let Some(receiver) = Receiver::start() else { return };
    let gate = gate(json!({"otlp": receiver.url(), "sample": 1}));
    receiver.signal("-STOP");
    for _ in 0..50 {
        assert!(call(&gate, "s__a", None)["result"].is_object());
    }
    receiver.signal("-CONT");
    eventually("spans arrive", || receiver.received("span").len() >= 100);
}
