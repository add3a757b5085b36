//! `toolward stdio --connect`: a stdio client of a central gateway.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::audit_log::witness;
use super::harness::*;

/// A bridge and the client that talks to it.
struct Bridge {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

fn bridge(url: &str, token: Option<&str>) -> Bridge {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolward"));
    command.args(["stdio", "--connect", url]).env_remove("TOOLWARD_TOKEN");
    if let Some(token) = token {
        witness::sent(token);
        command.env("TOOLWARD_TOKEN", token);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let answers = BufReader::new(child.stdout.take().unwrap());
    Bridge { child, answers }
}

impl Bridge {
    fn to(gate: &Gate, path: &str) -> Bridge {
        bridge(&format!("http://127.0.0.1:{}{path}", gate.port), Some("token-of-agent-a"))
    }

    fn send(&mut self, message: &Value) {
        let _ = writeln!(self.child.stdin.as_mut().unwrap(), "{message}");
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let message = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
        witness::received(&message);
        message
    }

    fn ask(&mut self, message: &Value) -> Value {
        self.send(message);
        loop {
            let answer = self.next();
            if answer["id"] == message["id"] {
                return answer;
            }
        }
    }

    fn ready(mut self) -> Bridge {
        let hello = self.ask(&initialize(LEGACY));
        assert_eq!(hello["result"]["protocolVersion"], LEGACY, "{hello}");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        self
    }

    fn names(&mut self) -> Vec<String> {
        let answer = self.ask(&request(json!("list"), "tools/list", json!({})));
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().into()).collect()
    }

    fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.ask(&request(
            json!("call"),
            "tools/call",
            json!({"name": name, "arguments": arguments}),
        ))
    }

    fn close(mut self) -> i32 {
        self.child.stdin = None;
        let child = &mut self.child;
        eventually("the bridge ends", || child.try_wait().unwrap()).code().unwrap_or(-1)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gate() -> Gate {
    setup().stdio("s", "legacy", names(&["quick", "grow", "slow"])).agents(everyone()).start()
}

#[test]
fn a_legacy_client_lists_and_calls_through_the_gateway() {
    let gate = gate();
    let mut client = Bridge::to(&gate, "/mcp").ready();
    assert_eq!(client.names(), ["s__quick", "s__grow", "s__slow"]);
    assert_eq!(text(&client.call("s__quick", json!({}))), "did quick");
    let refused = client.call("s__missing", json!({}));
    gate.refusal(&refused);
    // The gateway's own notifications of the session arrive too.
    client.send(&request(
        json!("p"),
        "tools/call",
        json!({"name": "s__grow", "arguments": {"tool": "new"}}),
    ));
    while client.next()["method"] != "notifications/tools/list_changed" {}
    assert!(client.names().contains(&"s__new".into()));
    assert_eq!(client.close(), 0);
}

#[test]
fn one_server_of_the_gateway_keeps_its_tool_names() {
    let gate = gate();
    let mut client = Bridge::to(&gate, "/mcp/s").ready();
    assert_eq!(client.names(), ["quick", "grow", "slow"]);
    assert_eq!(client.close(), 0);
}

#[test]
fn a_modern_client_needs_no_session_and_its_headers_are_made() {
    let tool = json!([{"name": "find", "inputSchema": {"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
    }}}]);
    let gate = setup().stdio("s", "modern", tool).agents(everyone()).start();
    let mut client = Bridge::to(&gate, "/mcp");
    let list = client.ask(&modern_body(json!(1), "tools/list", json!({})));
    assert_eq!(list["result"]["tools"][0]["name"], "s__find", "{list}");
    let params = json!({"name": "s__find", "arguments": {"region": "zürich "}});
    let answer = client.ask(&modern_body(json!(2), "tools/call", params));
    assert_eq!(text(&answer), "did find");
    assert_eq!(client.close(), 0);
}

#[test]
fn cancelling_a_modern_call_closes_its_stream() {
    let gate = setup().stdio("s", "modern", names(&["slow"])).agents(everyone()).start();
    let mut client = Bridge::to(&gate, "/mcp");
    let params = json!({"name": "s__slow", "arguments": {"seconds": 60}});
    client.send(&modern_body(json!("slow"), "tools/call", params));
    eventually("the call is in flight", || (!gate.calls("s").is_empty()).then_some(()));
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": "slow"}}));
    eventually("the server gets the cancellation", || {
        (!gate.heard("s", "notifications/cancelled").is_empty()).then_some(())
    });
    assert_eq!(client.close(), 0);
}

#[test]
fn a_gateway_that_restarts_is_used_again() {
    let mut gate = setup()
        .stdio("s", "legacy", names(&["quick"]))
        .agents(everyone())
        .set("listen", json!(format!("127.0.0.1:{}", free_port())))
        .start();
    let mut client = Bridge::to(&gate, "/mcp").ready();
    assert_eq!(client.names(), ["s__quick"]);
    gate.kill();
    let answer = client.call("s__quick", json!({}));
    assert_eq!(answer["error"]["data"]["error"], "gateway_unreachable", "{answer}");
    assert_eq!(answer["error"]["data"]["retryable"], true);
    gate.restart();
    assert_eq!(text(&client.call("s__quick", json!({}))), "did quick");
    assert_eq!(client.close(), 0);
}

/// A port that nothing listens on at this moment.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_wrong_token_and_a_wrong_url_are_explained() {
    let gate = gate();
    let at = |path: &str| format!("http://127.0.0.1:{}{path}", gate.port);
    let cases = [
        (bridge(&at("/mcp"), Some("no-such-token-of-anyone")), "check the token in TOOLWARD_TOKEN"),
        (bridge(&at("/mcp"), None), "set TOOLWARD_TOKEN to a token of your agent"),
        (bridge("http://192.0.2.1/mcp", Some("some-token-of-mine")), "in the clear"),
        (bridge("ftp://127.0.0.1/mcp", None), "the scheme `ftp` is not supported"),
    ];
    for (mut client, words) in cases {
        let hello = client.ask(&initialize(LEGACY));
        let message = hello["error"]["message"].as_str().unwrap_or_else(|| panic!("{hello}"));
        assert!(message.contains(words), "{message}");
    }
}
