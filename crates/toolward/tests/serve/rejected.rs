//! Requests rejected without a decision about a call are counted by agent or address, reason and
//! second.

use std::collections::BTreeMap;

use serde_json::json;

use super::audit_log;
use super::harness::*;
use super::wire::Reply;

/// The count of each reason, by agent or address.
fn counted(folder: &std::path::Path) -> BTreeMap<(String, String), u64> {
    let mut counts = BTreeMap::new();
    for record in audit_log::all(folder) {
        if record["kind"] == "turned-away" {
            let who = record["agent"].as_str().map(|agent| format!("agent {agent}"));
            let who = who.unwrap_or_else(|| record["source"].as_str().unwrap().into());
            let why = record["reason"].as_str().unwrap().to_string();
            *counts.entry((who, why)).or_default() += record["count"].as_u64().unwrap();
        }
    }
    counts
}

fn total(folder: &std::path::Path) -> u64 {
    counted(folder).values().sum()
}

#[test]
fn whatever_is_refused_over_http_is_counted() {
    let agents = json!({
        "a": {"allow": {"servers": ["s"], "tools": {"s": ["*"]}}},
        "b": {"allow": {"servers": ["*"], "tools": {"*": ["*"]}}},
    });
    let gate = setup()
        .agents(agents)
        .web("s", "modern", names(&["t"]))
        .web("other", "modern", names(&["t"]))
        .start();
    let (a, nobody) = (gate.agent("a"), gate.nobody());
    let audit = gate.file("audit");
    let (session, foreign) = (a.session(), gate.agent("b").session());
    let mut expected: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut sent = |who: &str, status: u16, why: &str, reply: Reply| {
        assert_eq!(reply.status, status, "{why}: {reply:?}");
        *expected.entry((who.into(), why.into())).or_default() += 1;
    };
    let agent = "agent a";
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let call = modern_body(json!(1), "tools/call", json!({"name": "s__t"}));
    let with = |id: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"}).to_string();
    for (why, body) in [
        ("the message is not valid JSON", "{".to_string()),
        ("duplicate key in an object", "{\"id\":1,\"id\":2}".into()),
        ("batches are not accepted", format!("[{}]", with("x"))),
        ("not a valid JSON-RPC message", "\"x\"".into()),
        ("not a valid JSON-RPC message", "{\"jsonrpc\":\"1.0\",\"id\":1}".into()),
        ("the message is nested too deeply", format!("{{\"jsonrpc\":\"2.0\",\"x\":{deep}}}")),
        ("there is no session", with("x")),
    ] {
        sent(agent, 400, why, a.send("POST", &[], &body));
    }
    let modern = |method: &'static str, version: &'static str| {
        vec![("MCP-Protocol-Version", version), ("Mcp-Method", method), ("Mcp-Name", "s__t")]
    };
    let why = "the headers do not match the message";
    sent(agent, 400, why, a.post(&modern("tools/list", MODERN), &call));
    let mut old = call.clone();
    old["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2099-01-01");
    let old_headers = modern("tools/call", "2099-01-01");
    sent(agent, 400, "unsupported protocol version", a.post(&old_headers, &old));
    for method in ["tasks/update", "completion/complete", "nothing/like/this"] {
        let body = modern_body(json!(1), method, json!({"taskId": "t", "name": "s__t", "ref": {}}));
        let headers = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", method)];
        let reply = a.post(&headers, &body);
        let why = match reply.json()["error"]["code"].as_i64() {
            Some(-32601) => "unknown method",
            Some(-32021) => "the client did not declare a capability",
            Some(-32602) => "missing or invalid parameters",
            _ => panic!("{method}: {reply:?}"),
        };
        let status = reply.status;
        sent(agent, status, why, reply);
    }
    let plain = [("Content-Type", "text/plain")];
    sent(agent, 415, "the content type is not plain JSON", a.send("POST", &plain, "{}"));
    let html = [("Accept", "text/html")];
    let why = "the client does not accept the response's content type";
    sent(agent, 406, why, a.send("POST", &html, &with("x")));
    let huge = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer token-of-agent-a\r\n\
                Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n";
    sent(agent, 413, "the message is too large", gate.raw(huge));
    // A session of another agent, and one that never existed.
    for id in [foreign.id.as_str(), "nonsense"] {
        let headers = [("Mcp-Session-Id", id)];
        let why = "unknown session, or a session of another agent";
        sent(agent, 404, why, a.send("POST", &headers, &with("x")));
        sent(agent, 404, why, a.send("DELETE", &headers, ""));
    }
    // A server that the agent may not use, and one that does not exist.
    for server in ["other", "nowhere"] {
        let at = a.at(&format!("/mcp/{server}"));
        sent(agent, 404, "the agent has no such server", at.send("POST", &[], &with("x")));
    }
    sent(
        "127.0.0.1",
        404,
        "there is nothing at this address",
        nobody.at("/x").send("GET", &[], ""),
    );
    // In a session: unsupported methods, and a call without an id.
    let answer = session.post(&request(json!(7), "tasks/list", json!({"cursor": "x"})));
    assert_eq!(answer.json()["error"]["code"], -32602);
    sent(agent, answer.status, "missing or invalid parameters", answer);
    for method in ["tasks/get", "tasks/cancel", "tasks/result"] {
        let answer = session.post(&request(json!(7), method, json!({"taskId": "t"})));
        let said = answer.json();
        assert_eq!(said["error"]["message"], "unknown task", "{method}: {said}");
        sent(agent, answer.status, "missing or invalid parameters", answer);
    }
    let silent = json!({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "s__t"}});
    let why = "a request without an id, or a notification with one";
    sent(agent, 202, why, session.post(&silent));
    let cursor = request(json!(8), "tools/list", json!({"cursor": "x"}));
    let reply = session.post(&cursor);
    sent(agent, reply.status, "missing or invalid parameters", reply);
    let all: u64 = expected.values().sum();
    eventually("all are counted", || (total(&audit) >= all).then_some(()));
    assert_eq!(counted(&audit), expected);
    assert!(gate.calls("s").is_empty() && gate.calls("other").is_empty());
    // A row of the output has the reason.
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["audit", "query", "--agent", "a", "--kind", "turned-away", "--dir"])
        .arg(&audit)
        .output()
        .unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    assert!(out.contains("rejected 1: batches are not accepted"), "{out}");
}

#[test]
fn whatever_is_refused_on_standard_input_is_counted() {
    let mut lines = setup()
        .agents(everyone())
        .stdio("s", "legacy", names(&["t"]))
        .standard(&["--agent", "a"])
        .ready();
    let audit = lines.setup.path("audit");
    lines.send("{");
    assert_eq!(lines.next()["error"]["code"], -32700);
    lines.send("[]");
    assert_eq!(lines.next()["error"]["code"], -32600);
    lines.send(
        &json!({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "s__t"}}).to_string(),
    );
    for (method, code) in [("tasks/list", -32602), ("nothing/like/this", -32601)] {
        let answer = lines.ask(&request(json!(3), method, json!({"cursor": "x"})));
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
    eventually("all are counted", || (total(&audit) == 5).then_some(()));
    let who: Vec<String> = counted(&audit).into_keys().map(|(who, _)| who).collect();
    assert!(who.iter().all(|who| who == "agent a"), "{who:?}");
}

#[test]
fn an_agent_that_floods_does_not_fill_the_disk() {
    let gate = setup().agents(everyone()).web("s", "modern", names(&["t"])).start();
    let (mut sent, begun) = (0, std::time::Instant::now());
    let a = gate.agent("a");
    let bodies = ["{", "[]", "\"x\"", "{\"a\":1,\"a\":1}"];
    while begun.elapsed().as_secs() < 3 {
        for body in bodies {
            assert_eq!(a.send("POST", &[], body).status, 400);
            sent += 1;
        }
    }
    let audit = gate.file("audit");
    eventually("all are counted", || (total(&audit) == sent).then_some(()));
    let size = std::fs::metadata(audit.join("audit.jsonl")).unwrap().len();
    assert!(size < 20_000, "{size} bytes for {sent} requests");
}

#[test]
fn the_words_of_a_caller_make_no_long_answer_and_no_long_record() {
    let allow = json!({"tool": "t", "when": "args.path == \"/srv\""});
    let agents = json!({"a": {"allow": {"servers": ["*"], "tools": {"s": [allow]}}}});
    let audit = json!({"dir": "audit", "arguments": "none"});
    let gate = setup().agents(agents).web("s", "modern", names(&["t"])).set("audit", audit).start();
    let token = "ghp_0123456789abcdefABCDEF01";
    let long = format!("TOKEN={token} {}", "é".repeat(1_000_000));
    let a = gate.agent("a");
    for name in ["s__t", "s__nothing"] {
        let answer = a.modern("tools/call", json!({"name": name, "arguments": {"action": long}}));
        gate.refusal(&answer);
        let size = answer.to_string().len();
        assert!(size < 4_000, "{name}: {size} bytes");
    }
    let answer = a.session().call(&format!("s__{long}"), json!({}));
    gate.refusal(&answer);
    assert!(answer.to_string().len() < 4_000);
    let records = audit_log::all(&gate.file("audit"));
    let refusals = records.iter().filter(|record| record["kind"] == "refusal");
    for record in refusals {
        let text = record.to_string();
        assert!(text.len() < 6_000 && !text.contains(token), "{text:.3000}");
        let action = record["action"].as_str().unwrap_or("TOKEN=[redacted] é");
        assert!(action.starts_with("TOKEN=[redacted] é"), "{action}");
    }
    // Short texts are repeated as they are.
    let answer = a.modern("tools/call", json!({"name": "s__t", "arguments": {"action": "run"}}));
    let told = gate.refusal(&answer);
    assert_eq!((&told["tool"], &told["action"]), (&json!("s__t"), &json!("run")));
}
