//! Ambiguous messages, on every transport.

use serde_json::json;

use super::harness::*;

/// Attacks on a call of `s__a`; `META` is replaced by the metadata of a modern request.
fn attacks() -> Vec<String> {
    let call = |params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{META{params}}}}}"#)
    };
    let deep =
        format!(r#""name":"s__a","arguments":{{"x":{}1{}}}"#, "[".repeat(64), "]".repeat(64));
    let wide: String = (0..10_001).map(|at| format!(r#","k{at}":1"#)).collect();
    let mut attacks = vec![
        call(r#""name":"s__a","name":"s__b""#),
        call(r#""name":"s__b","name":"s__a""#),
        call(r#""name":"s__a","\u006eame":"s__b""#),
        call(r#""name":"s__a","Name":"s__b""#),
        call(r#""NAME":"s__b""#),
        call(r#""name":"s__a","ARGUMENTS":{}"#),
        call(r#""name":"s__a","arguments":{},"arguments":{}"#),
        call(r#""name":"s__a","arguments":{"k":1,"k":2}"#),
        call(r#""name":"s__a","arguments":{"k":1,"\u006b":2}"#),
        call(r#""name":"s__a","arguments":{"d":{"e":[{"k":1,"k":2}]}}"#),
        call(r#""name":"s__a","arguments":"x""#),
        call(r#""name":"s__a","arguments":[]"#),
        call(r#""name":"s__a","arguments":1"#),
        call(r#""name":1"#),
        call(r#""name":null"#),
        call(r#""name":["s__a"]"#),
        call(r#""name":{"x":"s__a"}"#),
        call(r#""name":"s__a\ud800""#),
        call(r#""name":"s__a","arguments":{"x":01}"#),
        call(r#""name":"s__a","arguments":{"x":NaN}"#),
        call(r#""name":"s__a","arguments":{"x":1,}"#),
        call(r#""name":"s__a" /* x */"#),
        call(&deep),
        call(&format!(r#""name":"s__a","arguments":{{"x":1{wide}}}"#)),
        call(r#""name":"s__a""#).replace(r#""params""#, r#""params":{META"name":"s__b"},"params""#),
        call(r#""name":"s__a""#).replace(r#""params""#, r#""Params":{META"name":"s__b"},"params""#),
        call(r#""name":"s__a""#).replace(r#""method""#, r#""method":"tools/list","method""#),
        call(r#""name":"s__a""#).replace(r#""method""#, r#""Method":"tools/list","method""#),
        call(r#""name":"s__a""#).replace(r#""id":1"#, r#""id":1,"id":2"#),
        call(r#""name":"s__a""#).replace(r#""id":1"#, r#""id":1,"ID":2"#),
        call(r#""name":"s__a""#).replace(r#""id":1"#, r#""id":1.5"#),
        call(r#""name":"s__a""#).replace(r#""id":1"#, r#""id":1e3"#),
        call(r#""name":"s__a""#).replace(r#""id":1"#, r#""id":null"#),
        call(r#""name":"s__a""#).replace(r#""id":1"#, r#""id":true"#),
        call(r#""name":"s__a""#).replace(r#""id":1"#, r#""id":{"x":1}"#),
        call(r#""name":"s__a""#).replace("2.0", "1.0"),
        call(r#""name":"s__a""#).replace(r#""jsonrpc":"2.0","#, ""),
        call(r#""name":"s__a""#).replace(r#""2.0""#, "2.0"),
        call(r#""name":"s__a""#).replace("tools/call", "tools/call "),
        call(r#""name":"s__a""#).replace("tools/call", "Tools/Call"),
        call(r#""name":"s__a""#).replace("tools/call", "tools/call\\u0000"),
        call(r#""name":"s__a""#).replace(r#""method""#, r#""result":{},"method""#),
        call(r#""name":"s__a""#)
            .replace(r#""method""#, r#""error":{"code":1,"message":""},"method""#),
        format!("[{}]", call(r#""name":"s__a""#)),
        format!("[{},{}]", call(r#""name":"s__a""#), call(r#""name":"s__b""#)),
        format!("{} {{}}", call(r#""name":"s__a""#)),
        format!("{}x", call(r#""name":"s__a""#)),
        format!("\u{feff}{}", call(r#""name":"s__a""#)),
        call(r#""name":"s__a""#).replace("tools/call", "no/such"),
    ];
    attacks.push(format!("{}{}", "[".repeat(5000), "]".repeat(5000)));
    attacks
}

fn terms() -> String {
    format!(r#""_meta":{{"{META}protocolVersion":"{MODERN}","{META}clientCapabilities":{{}}}},"#)
}

#[test]
fn attacks_over_http_reach_no_server() {
    let gate = setup()
        .stdio("s", "legacy", names(&["a", "b"]))
        .stdio("n", "modern", names(&["a", "b"]))
        .agents(json!({
            "a": {"allow": {"servers": ["s"], "tools": {"s": [{"tool": "a", "when": "!has(args.x) || args.x != 7"}]}}},
            "m": {"allow": {"servers": ["n"], "tools": {"n": [{"tool": "a", "when": "!has(args.x) || args.x != 7"}]}}},
        }))
        .start();
    let session = gate.agent("a").session();
    session.list();
    let modern = gate.agent("m");
    modern.list();
    let headers =
        [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", "n__a")];
    let twins = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META"name":"s__a","arguments":{"x":1,"X":7}}}"#;
    let unterminated =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{META"name":"s__a"}"#;
    for attack in attacks().iter().map(String::as_str).chain([twins, unterminated]) {
        let shown = &attack[..attack.len().min(200)];
        let reply = session.agent.send("POST", &session.headers(), &attack.replace("META", ""));
        assert!(matches!(reply.status, 200 | 400), "{shown}: {reply:?}");
        assert!(reply.code() < -32000, "{shown}: {reply:?}");
        let attack = attack.replace("META", &terms()).replace("s__", "n__");
        let reply = modern.send("POST", &headers, &attack);
        assert!(matches!(reply.status, 400 | 404), "{shown}: {reply:?}");
        assert!(reply.code() < -32000, "{shown}: {reply:?}");
    }
    // Ambiguous metadata.
    let good = modern_body(json!(1), "tools/call", json!({"name": "n__a"})).to_string();
    for (from, to) in [
        (
            format!("\"{META}protocolVersion\":"),
            format!("\"{META}protocolVersion\":\"2025-06-18\",\"{META}protocolVersion\":"),
        ),
        (
            format!("\"{META}protocolVersion\":"),
            format!("\"{META}ProtocolVersion\":\"2025-06-18\",\"{META}protocolVersion\":"),
        ),
        ("\"_meta\":".into(), "\"_META\":{},\"_meta\":".into()),
        ("\"_meta\":".into(), "\"_meta\":{},\"_meta\":".into()),
    ] {
        let body = good.replacen(&from, &to, 1);
        assert_ne!(body, good);
        assert_eq!(modern.send("POST", &headers, &body).status, 400, "{body}");
    }
    // Bytes that are not valid UTF-8.
    let bytes = session.agent.request(
        "POST",
        &session.headers(),
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__a??"}}"#,
    );
    let bytes: Vec<u8> = bytes.bytes().map(|byte| if byte == b'?' { 0xff } else { byte }).collect();
    assert_eq!(gate.raw(bytes).status, 400);
    // A call without an id is a notification, which requests nothing.
    let silent = r#"{"jsonrpc":"2.0","method":"tools/call","params":{META"name":"s__a"}}"#;
    let status = session.agent.send("POST", &session.headers(), &silent.replace("META", "")).status;
    assert!(matches!(status, 202 | 400), "{status}");
    let silent = silent.replace("META", &terms()).replace("s__", "n__");
    let status = modern.send("POST", &headers, &silent).status;
    assert!(matches!(status, 202 | 400), "{status}");
    assert!(gate.calls("s").is_empty() && gate.calls("n").is_empty());
    assert_eq!(text(&session.call("s__a", json!({}))), "did a");
    assert_eq!(text(&modern.call("n__a", json!({}))), "did a");
    assert_eq!((gate.calls("s").len(), gate.calls("n").len()), (1, 1));
}

#[test]
fn attacks_over_stdio_reach_no_server() {
    let mut lines = setup()
        .stdio("s", "legacy", names(&["a", "b"]))
        .stdio("n", "modern", names(&["a", "b"]))
        .agents(json!({"a": {"allow": {"servers": ["*"], "tools": {"*": ["a"]}}}}))
        .standard(&["--agent", "a"])
        .ready();
    let listed = lines.ask(&request(json!("l"), "tools/list", json!({})));
    assert_eq!(listed["result"]["tools"][0]["name"], "s__a", "{listed}");
    let listed = lines.ask(&modern_body(json!("l"), "tools/list", json!({})));
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "n__a"), "{listed}");
    for attack in attacks() {
        let shown = &attack[..attack.len().min(200)];
        for attack in
            [attack.replace("META", ""), attack.replace("META", &terms()).replace("s__", "n__")]
        {
            lines.send(&attack);
            let answer = lines.next();
            assert!(
                answer["error"]["code"].as_i64().is_some_and(|code| code < -32000),
                "{shown}: {answer}"
            );
        }
    }
    for hidden in ["s__b", "n__b", "s__c", "S__a", "s__a ", "а"] {
        let answer = lines.ask(&request(json!(1), "tools/call", json!({"name": hidden})));
        assert_eq!(answer["error"]["code"], -32602, "{hidden}");
        let answer = lines.ask(&modern_body(json!(1), "tools/call", json!({"name": hidden})));
        assert_eq!(answer["error"]["code"], -32602, "{hidden}");
    }
    lines.send(r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"s__a"}}"#);
    let answer = lines.ask(&request(json!(1), "tools/call", json!({"name": "s__a"})));
    assert_eq!(text(&answer), "did a");
    let answer = lines.ask(&modern_body(json!(1), "tools/call", json!({"name": "n__a"})));
    assert_eq!(text(&answer), "did a");
    for server in ["s", "n"] {
        assert_eq!(lines.log(server).matches("tools/call").count(), 1);
    }
    assert_eq!(lines.close().0, 0);
}

#[test]
fn the_forwarded_bytes_are_those_that_were_decided_on() {
    let gate = setup()
        .stdio("s", "legacy", names(&["t"]))
        .web("w", "legacy", names(&["t"]))
        .agents(everyone())
        .start();
    let session = gate.agent("a").session();
    session.list();
    for server in ["s", "w"] {
        let params = format!(
            r#"{{"_meta" : {{"x":1}},"name":"{server}__t","arguments":{{"b":1.50,"a":[1e2,"\u00e9\n"],"z":{{}}}},"extra":null}}"#
        );
        let body = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":\"own\",\n\"method\":\"tools/call\",\"params\":{params},\"more\":true}}"
        );
        let answer = session.agent.send("POST", &session.headers(), &body).json();
        assert_eq!(answer["id"], "own");
        let log = gate.log(server);
        let sent = log
            .iter()
            .filter_map(|one| one["body"].as_str())
            .find(|body| body.contains("tools/call"))
            .unwrap();
        let expected = params.replace(&format!("{server}__t"), "t");
        assert!(sent.contains(&expected), "{sent}");
        assert!(!sent.contains("own") && sent.contains("\"more\":true"), "{sent}");
    }
}
