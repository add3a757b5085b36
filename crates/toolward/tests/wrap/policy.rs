//! Listings, forwarded messages and audit records.

use serde_json::{Value, json};

use crate::harness::*;

#[test]
fn an_agent_sees_and_calls_only_what_it_may() {
    let mut wrapped =
        setup("allowed_tools: [read, list]\n", names(&["read", "write", "list"])).ready();
    assert_eq!(wrapped.list(), ["read", "list"]);
    assert_eq!(Wrapped::text(&wrapped.call("read", json!({}))), "did read");
    let hidden = wrapped.call("write", json!({"path": "/"}));
    assert_eq!(hidden["error"]["code"], -32602);
    assert_eq!(hidden["error"]["message"], "write is not permitted. Allowed: read, list");
    assert_eq!(hidden["error"]["data"]["error"], "tool_not_allowed");
    assert_eq!(wrapped.forwarded().len(), 1);
    assert_eq!(wrapped.close(), 0);
}

#[test]
fn hidden_and_nonexistent_are_alike_but_for_the_decision_id() {
    let mut wrapped = setup("allowed_tools: [a]\n", names(&["a", "xx"])).ready();
    let answers: Vec<String> = ["xx", "yy"]
        .iter()
        .map(|name| {
            let mut answer = wrapped.call(name, json!({"action": "go"}));
            assert!(answer["error"]["data"]["decision_id"].is_string());
            answer["error"]["data"]["decision_id"] = json!("-");
            answer.to_string().replace(name, "NAME")
        })
        .collect();
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0].contains("NAME.go is not permitted"));
}

#[test]
fn the_forwarded_bytes_are_those_that_were_decided_on() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["t"])).ready();
    let params = r#"{"_meta" : {"progressToken":"p","x":1},"name":"t","arguments":{"b":1.50,"a":[1e2,"\u00e9"],"z":{}},"extra":null}"#;
    wrapped.send(&format!(
        r#"{{"jsonrpc":"2.0","id":"own","method":"tools/call","params":{params},"more":true}}"#
    ));
    assert_eq!(wrapped.answer(&json!("own"))["id"], "own");
    let sent = wrapped.forwarded().remove(0);
    let minted: Value = serde_json::from_str(&sent).unwrap();
    let expected = params.replace("\"p\"", &minted["params"]["_meta"]["progressToken"].to_string());
    assert!(sent.contains(&expected), "{sent}");
    assert!(minted["id"].is_u64() && minted["more"] == true);
}

#[test]
fn ambiguous_messages_never_reach_the_server() {
    let mut wrapped = setup("allowed_tools: [a]\n", names(&["a", "b"])).ready();
    let attacks = [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","\u006eame":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"},"params":{"name":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","Method":"tools/call","params":{"name":"a"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":1}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"k":1,"k":2}}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}]"#,
        r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/call","params":{"name":"a"}}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"tools/call","params":{"name":"a"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call ","params":{"name":"a"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"Tools/Call","params":{"name":"a"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}} {}"#,
    ];
    for attack in attacks {
        wrapped.send(attack);
        let answer = wrapped.next();
        assert!(answer["error"]["code"].is_i64(), "{attack}: {answer}");
    }
    for name in ["b", " a", "a ", "A", "a\u{200b}", "а"] {
        assert_eq!(wrapped.call(name, json!({}))["error"]["code"], -32602, "{name:?}");
    }
    wrapped.send(r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a"}}"#);
    assert_eq!(Wrapped::text(&wrapped.call("a", json!({}))), "did a");
    assert_eq!(wrapped.forwarded().len(), 1);
}

#[test]
fn other_methods_and_denied_requests_of_the_server_do_not_pass() {
    let make = || setup("allowed_tools: [\"*\"]\n", names(&["ask"]));
    let (mut wrapped, hello) = heard(make, |hello| hello["serverInfo"]["name"] == "scripted");
    assert_eq!(hello["result"]["capabilities"]["tools"], json!({"listChanged": true}));
    assert!(hello["result"]["capabilities"].get("resources").is_none());
    for method in ["resources/list", "resources/templates/list"] {
        let answer = wrapped.request(json!(5), method, json!({}));
        assert!(answer["result"].is_object(), "{method}: {answer}");
    }
    let answer = wrapped.request(json!(5), "tasks/list", json!({}));
    assert_eq!(answer["result"], json!({"tasks": []}));
    // Sampling is denied by default: the call ends, and the server is not told that it could sample.
    let reply = Wrapped::text(&wrapped.call("ask", json!({}))).to_string();
    assert!(reply.contains("denied by policy"), "{reply}");
    let log = std::fs::read_to_string(wrapped.file("log")).unwrap();
    let initialize: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    let declared = json!({"elicitation": {}, "roots": {}});
    assert_eq!(initialize["params"]["capabilities"], declared);
    assert!(!log.contains("resources/") && !log.contains("tasks/"), "it has none");
}

#[test]
fn the_enum_of_an_action_is_narrowed_and_other_actions_are_refused_as_results() {
    let tools = json!([{
        "name": "interact",
        "inputSchema": {"type": "object", "properties": {"action": {"enum": ["navigate", "run"]}, "url": {}}},
        "x-unknown": {"kept": 1.0},
    }]);
    let mut wrapped = setup("allowed_tools: [interact.navigate]\n", tools).ready();
    let list = wrapped.request(json!(1), "tools/list", json!({}));
    let tool = &list["result"]["tools"][0];
    assert_eq!(tool["inputSchema"]["properties"]["action"]["enum"], json!(["navigate"]));
    assert_eq!(tool["x-unknown"], json!({"kept": 1.0}));
    assert_eq!(
        Wrapped::text(&wrapped.call("interact", json!({"action": "navigate"}))),
        "did interact"
    );
    for arguments in
        [json!({"action": "run"}), json!({}), json!({"action": 1}), json!({"Action": "navigate"})]
    {
        let answer = wrapped.call("interact", arguments.clone());
        assert_eq!(answer["result"]["isError"], true, "{arguments}");
        assert_eq!(answer["result"]["_meta"]["io.toolward/refusal"]["error"], "tool_not_allowed");
        assert!(answer["result"].get("structuredContent").is_none());
    }
    assert_eq!(wrapped.forwarded().len(), 1);
}

#[test]
fn a_renamed_tool_is_reachable_by_its_new_name_only() {
    let plugin = "plugins:\n  middleware:\n    s:\n      - handler: tool_manager\n        config:\n          tools:\n            - {tool: internal, display_name: shown, display_description: Nice}\n";
    let mut wrapped = setup(plugin, names(&["internal", "other"])).ready();
    let list = wrapped.request(json!(1), "tools/list", json!({}));
    assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 1);
    assert_eq!(list["result"]["tools"][0]["description"], "Nice");
    assert_eq!(Wrapped::text(&wrapped.call("shown", json!({}))), "did internal");
    assert_eq!(wrapped.call("internal", json!({}))["error"]["code"], -32602);
    assert_eq!(wrapped.forwarded().len(), 1);
}

#[test]
fn every_page_is_followed_and_malformed_entries_are_left_out() {
    let tools = json!([{"name": "a"}, 7, {"name": ""}, {"name": "a"}, {"title": "x"}, {"name": "b"}, {"name": "c"}]);
    let mut wrapped = Setup { page: Some(2), ..setup("allowed_tools: [a, c]\n", tools) }.ready();
    assert_eq!(wrapped.list(), ["a", "c"]);
    let cursor = wrapped.request(json!(2), "tools/list", json!({"cursor": "2"}));
    assert_eq!(cursor["error"]["code"], -32602);
}

#[test]
fn nothing_is_forwarded_that_cannot_be_recorded() {
    for device in ["/dev/full", "/dev/null"] {
        let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["a"])).ready();
        let file = wrapped.file("audit/audit.jsonl");
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(device, &file).unwrap();
        let answer = wrapped.call("a", json!({}));
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        assert_eq!(answer["error"]["data"]["error"], "not_recorded");
        assert_eq!(wrapped.request(json!(1), "tools/list", json!({}))["error"]["code"], -32603);
        assert!(wrapped.forwarded().is_empty());
    }
}

#[test]
fn a_record_has_caller_tool_and_reason_and_no_arguments() {
    let mut wrapped = setup("allowed_tools: [a]\n", names(&["a", "b"])).ready();
    wrapped.list();
    wrapped.call("a", json!({"password": "hunter2"}));
    wrapped.call("b", json!({"password": "hunter2"}));
    let records = wrapped.records();
    let kinds: Vec<&str> = records.iter().map(|record| record["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["list", "intent", "outcome", "refusal"]);
    assert_eq!(records[0]["servers"], json!({"s": {"offered": 2, "shown": 1}}));
    assert_eq!(records[0]["names"], json!({"s": {"shown": ["a"], "removed": ["b"]}}));
    assert_eq!(records[1]["agent"], "dev");
    assert_eq!(records[1]["rule"], "allowed_tools[0]");
    assert_eq!((&records[2]["intent"], &records[2]["outcome"]), (&records[1]["id"], &json!("ok")));
    assert_eq!(
        (&records[3]["exposed_name"], &records[3]["verdict"]),
        (&json!("b"), &json!("deny"))
    );
    assert!(records.windows(2).all(|pair| pair[0]["id"].as_str() < pair[1]["id"].as_str()));
    assert!(
        !std::fs::read_to_string(wrapped.file("audit/audit.jsonl")).unwrap().contains("hunter2")
    );
}
