//! Rate limits and every kind of hook between real clients and a real server, and how clients show
//! refusals.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::harness::{Gate, Setup};
use super::peers::*;

const EXEC: &str = r#"#!/bin/sh
cat > /dev/null
echo '{"code": -32600, "message": "denied by exec", "data": {"ask": "ops"}}'
exit 1
"#;
const PERSISTENT: &str = r#"#!/usr/bin/env python3
import json, sys
for line in sys.stdin:
    call = json.loads(line)
    large = call["arguments"]["a"] > 10
    answer = {"decision": "deny", "message": "too large"} if large else {"decision": "allow"}
    print(json.dumps(dict(answer, id=call["id"])), flush=True)
"#;
const POLICY: &str = r#"
mcp_tools_policy_check() {
  mcp_tools_error -32602 "Read-only mode: '$1' is disabled" '{"mode": "read-only"}'
  return 1
}
"#;

/// A service that denies as OPA does.
fn opa() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut asked = [0; 64 << 10];
            let _ = stream.read(&mut asked);
            let body = r#"{"result": {"allow": false, "message": "denied by opa"}}"#;
            let head = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    port
}

fn guarded(work: &Work) -> Gate {
    let setup = work.setup(&["everything"]);
    let write = |setup: &Setup, name: &str, text: &str, mode: u32| {
        std::fs::write(setup.path(name), text).unwrap();
        std::fs::set_permissions(setup.path(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    write(&setup, "exec", EXEC, 0o755);
    write(&setup, "persistent", PERSISTENT, 0o755);
    write(&setup, "policy.sh", POLICY, 0o644);
    let url = format!("http://127.0.0.1:{}/v1/data/x", opa());
    setup
        .set("hooks", json!([
            {"name": "e", "exec": ["./exec"], "tools": ["get-annotated-message"], "timeout": "10s"},
            {"name": "p", "exec": ["./persistent"], "persistent": true, "arguments": true,
             "tools": ["get-sum"], "timeout": "10s"},
            {"name": "s", "policy_sh": "policy.sh", "tools": ["get-tiny-image"], "timeout": "10s"},
            {"name": "o", "http": url, "tools": ["get-env"], "timeout": "10s"},
        ]))
        .set("limits", json!({"tools": {"everything/echo": "1/day"}}))
        .agents(json!({"a": {"allow": {"servers": ["*"]}}}))
        .start()
}

#[test]
fn real_clients_show_the_message_of_a_guard() {
    let Some(peers) = peers() else { return };
    let work = Work::new(peers);
    let calls = json!([
        ["everything__get-annotated-message", {"messageType": "error"}],
        ["everything__get-sum", {"a": 2, "b": 3}],
        ["everything__get-sum", {"a": 20, "b": 3}],
        ["everything__get-tiny-image", {}],
        ["everything__get-env", {}],
        ["everything__echo", {"message": "once"}],
        ["everything__echo", {"message": "twice"}],
    ]);
    for client in [Client::Python, Client::TypeScript] {
        let gate = guarded(&work);
        let seen = work.see(client, "", &calls, &place(&gate, "a", "/mcp"));
        let said = |at: usize| -> &Value { &seen["calls"][at] };
        let error = |at: usize, code: i64, message: &str| {
            let call = said(at);
            assert_eq!(call["code"], code, "{client:?}: {call}");
            assert!(call["error"].as_str().unwrap().contains(message), "{client:?}: {call}");
            call["data"].clone()
        };
        assert_eq!(error(0, -32600, "denied by exec"), json!({"ask": "ops"}));
        assert!(said(1)["content"][0]["text"].as_str().unwrap().contains('5'), "{}", said(1));
        error(2, -32602, "too large");
        let data = error(3, -32602, "Read-only mode: 'get-tiny-image' is disabled");
        assert_eq!(data, json!({"mode": "read-only"}));
        error(4, -32602, "denied by opa");
        assert!(said(5)["content"][0]["text"].as_str().unwrap().contains("once"), "{}", said(5));
        let limited = said(6);
        assert_eq!(limited["isError"], true, "{client:?}: {limited}");
        let text = limited["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("the limit of 1/day on") && text.contains("Try again in"), "{text}");
        let refusal = &limited["_meta"]["io.toolward/refusal"];
        assert_eq!(refusal["limit"], "calls of this kind by all agents", "{limited}");
        assert!(refusal["retry_after_ms"].as_u64().unwrap() > 0, "{limited}");
    }
}
