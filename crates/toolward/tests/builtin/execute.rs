//! A call through `execute_tool` equals the call that it makes: the same bytes, the same response, the
//! same record.

use serde_json::{Value, json};

use super::harness::*;
use super::support::*;

fn rules() -> Value {
    json!({
        "a": {
            "allow": {"servers": ["*"], "tools": {"tracker": [
                "get_issue", "echo", {"tool": "create_issue", "when": "args.title != 'no'"},
            ]}},
            "deny": {"servers": ["vault"], "tools": {"files": ["remove_file"]}},
        },
        "b": {"allow": {"servers": ["*"]}},
    })
}

/// Without the parts that differ from call to call.
fn plain(mut answer: Value, names: &[&str]) -> String {
    if let Some(data) = answer.pointer_mut("/error/data") {
        data["decision_id"] = json!(null);
    }
    if let Some(data) = answer.pointer_mut("/result/_meta/io.toolward~1refusal") {
        let id = data["decision_id"].as_str().unwrap_or("-").to_string();
        data["decision_id"] = json!(null);
        let text = answer.pointer_mut("/result/content/0/text").unwrap();
        *text = json!(text.as_str().unwrap().replace(&id, "ID"));
    }
    names.iter().fold(answer.to_string(), |text, name| text.replace(name, "NAME"))
}

#[test]
fn the_forwarded_arguments_are_the_clients_bytes() {
    let gate = world().agents(rules()).start();
    let a = gate.agent("a");
    a.list();
    let args = r#"{ "number" : 1.50,  "x":"\u0041\/ä", "deep":{"b":[ ],"a":null} }"#;
    let arguments = format!(r#"{{"tool":"get_issue","args":{args}, "server":"tracker"}}"#);
    let send = |name: &str, arguments: &str| {
        let meta = format!(
            r#"{{"{META}protocolVersion":"{MODERN}","{META}clientCapabilities":{{}},"trace":"t"}}"#
        );
        let params = format!(r#"{{"name":"{name}","arguments":{arguments},"_meta":{meta}}}"#);
        let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#);
        let headers =
            [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", name)];
        let reply = a.send("POST", &headers, &body);
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    };
    let through = send("toolward__execute_tool", &arguments);
    let direct = send("tracker__get_issue", args);
    assert_eq!(through, direct);
    let bodies: Vec<String> = gate
        .log("tracker")
        .iter()
        .filter_map(|entry| entry["body"].as_str())
        .filter(|body| body.contains("tools/call"))
        .map(String::from)
        .collect();
    assert_eq!(bodies.len(), 2);
    assert!(bodies[0].contains(&format!("\"arguments\":{args}")), "{}", bodies[0]);
    // Apart from the ids, which the gateway owns, the server cannot distinguish the two.
    let without_id = |body: &String| {
        let mut message: Value = serde_json::from_str(body).unwrap();
        message["id"] = json!(null);
        message
    };
    assert_eq!(without_id(&bodies[0]), without_id(&bodies[1]));
    let heads: Vec<Value> = gate
        .log("tracker")
        .into_iter()
        .filter(|one| one["headers"]["mcp-name"] == "get_issue")
        .collect();
    assert_eq!(heads.len(), 2);
}

#[test]
fn arguments_that_two_readers_could_read_differently_are_refused_inside_too() {
    let gate = world().agents(rules()).start();
    let session = gate.agent("a").session();
    session.list();
    for (args, status) in [
        (r#"{"title":"a","title":"no"}"#, 400),
        (r#"{"title":"a","\u0074itle":"no"}"#, 400),
        (r#"{"title":"a","Title":"no"}"#, 200),
        (r#"{"deep":{"x":1,"x":2}}"#, 400),
    ] {
        let arguments = format!(r#"{{"server":"tracker","tool":"create_issue","args":{args}}}"#);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"toolward__execute_tool","arguments":{arguments}}}}}"#
        );
        let reply = session.agent.send("POST", &session.headers(), &body);
        assert_eq!(reply.status, status, "{args}: {reply:?}");
        assert!(reply.code() < -32000, "{args}: {reply:?}");
    }
    assert!(gate.calls("tracker").is_empty());
}

#[test]
fn a_refusal_reads_like_that_of_the_call_itself() {
    let gate = world().server("vault", json!({"command": "false"})).agents(rules()).start();
    let a = gate.agent("a");
    let session = a.session();
    let both = |server: &str, tool: &str, args: Value| {
        for caller in [&a as &dyn Caller, &session] {
            let direct = caller.call(&format!("{server}__{tool}"), args.clone());
            gate.refusal(&direct);
            let arguments = json!({"server": server, "tool": tool, "args": args});
            let through = caller.call("toolward__execute_tool", arguments);
            let (prefixed, address) = (format!("{server}__{tool}"), format!("{server}/{tool}"));
            gate.refusal(&through);
            // A tool that is allowed only as `execute_tool` is not among the tools it can call.
            let direct =
                direct.to_string().replace(", toolward/*", "").replace(",\"toolward/*\"", "");
            let direct = plain(serde_json::from_str(&direct).unwrap(), &[&prefixed, &address]);
            let through = plain(through, &[&address]);
            assert!(
                !through.contains("__"),
                "names are those that `execute_tool` takes: {through}"
            );
            assert_eq!(without_names(&through), without_names(&direct), "{address}");
        }
    };
    both("files", "remove_file", json!({"path": "x"}));
    both("files", "nothing", json!({"path": "x"}));
    both("vault", "nothing", json!({}));
    both("nowhere", "nothing", json!({"action": "go"}));
    both("tracker", "create_issue", json!({"title": "no"}));
    assert_eq!(
        text(&execute(&a, "tracker", "create_issue", json!({"title": "yes"}))),
        "did create_issue"
    );
    assert!(gate.calls("files").is_empty());
    assert_eq!(gate.calls("tracker").len(), 1);
    let refusals = records(&gate, "refusal");
    let via: Vec<bool> = refusals.iter().map(|one| one["via"] == "toolward/execute_tool").collect();
    assert_eq!(via, [false, true].repeat(10));
    let last = refusals.last().unwrap();
    assert_eq!((&last["server"], &last["tool"]), (&json!("tracker"), &json!("create_issue")));
    assert_eq!(last["exposed_name"], "tracker/create_issue");
}

#[test]
fn the_record_names_the_tool_that_was_called_and_the_way_to_it() {
    let gate = world().agents(rules()).start();
    let a = gate.agent("a");
    execute(&a, "files", "read_file", json!({"path": "x"}));
    a.call("files__read_file", json!({"path": "x"}));
    let intents = records(&gate, "intent");
    assert_eq!(intents.len(), 2);
    let [through, direct] = [&intents[0], &intents[1]];
    assert_eq!((&through["via"], &direct["via"]), (&json!("toolward/execute_tool"), &Value::Null));
    for member in
        ["server", "tool", "verdict", "step", "rule", "reason", "arguments", "agent", "policy"]
    {
        assert_eq!(through[member], direct[member], "{member}");
    }
    assert_eq!(through["server"], "files");
    let outcomes = records(&gate, "outcome");
    assert_eq!(outcomes.len(), 2);
    for (intent, outcome) in intents.iter().zip(&outcomes) {
        assert_eq!((&outcome["intent"], &outcome["outcome"]), (&intent["id"], &json!("ok")));
    }
    // The results of discovery are recorded as a listing, with each name once.
    own(&a, "search_tools", json!({"query": "file"}));
    own(&a, "list_servers", json!({}));
    let lists = records(&gate, "list");
    assert_eq!(
        (&lists[0]["via"], &lists[1]["via"]),
        (&json!("toolward/search_tools"), &json!("toolward/list_servers"))
    );
    assert_eq!(lists[0]["servers"]["files"], json!({"offered": 4, "shown": 3}));
    assert_eq!(lists[0]["names"]["files"]["removed"], json!(["remove_file"]));
    assert!(lists[1].get("names").is_none(), "{}", lists[1]);
    let own_calls = &records(&gate, "intent")[2..];
    assert_eq!(
        (&own_calls[0]["server"], &own_calls[0]["tool"]),
        (&json!("toolward"), &json!("search_tools"))
    );
}

#[test]
fn progress_comes_under_the_clients_token() {
    let gate = world().agents(rules()).start();
    let a = gate.agent("a");
    a.list();
    let arguments = json!({"server": "tracker", "tool": "echo", "args": {"say": "hi"}});
    let params = |token: &str| json!({"name": "toolward__execute_tool", "arguments": arguments, "_meta": {"progressToken": token}});
    let reply = a.modern_reply(json!("m"), "tools/call", params("mine"));
    let messages = reply.messages();
    assert_eq!(messages.len(), 3, "{messages:?}");
    for (step, message) in messages.iter().take(2).enumerate() {
        assert_eq!(message["params"]["progressToken"], "mine", "{message}");
        assert_eq!(message["params"]["progress"], step + 1);
    }
    assert_eq!(messages[2]["result"]["content"][0]["text"], "hi");
    let session = a.session();
    let reply = session.post(&request(json!(9), "tools/call", params("theirs")));
    assert_eq!(reply.messages()[0]["params"]["progressToken"], "theirs");
}

#[test]
fn a_cancelled_call_is_cancelled_at_its_server() {
    let gate = setup()
        .set("builtin", json!(true))
        .stdio("s", "legacy", names(&["hang"]))
        .agents(everyone())
        .start();
    let session = gate.agent("a").session();
    session.list();
    let arguments = json!({"server": "s", "tool": "hang", "args": {}});
    let call = json!({"name": "toolward__execute_tool", "arguments": arguments});
    let _open = session.open(&request(json!("h"), "tools/call", call));
    eventually("the call arrives", || (gate.calls("s").len() == 1).then_some(()));
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "h"}});
    assert_eq!(session.post(&cancel).status, 202);
    eventually("the server hears of it", || {
        gate.log("s").iter().any(|entry| entry["event"] == "cancelled").then_some(())
    });
    eventually("it is recorded", || {
        records(&gate, "outcome").iter().any(|one| one["outcome"] == "cancelled").then_some(())
    });
}

#[test]
fn a_call_takes_as_long_as_both_the_client_and_the_server_allow() {
    let gate = setup()
        .set("builtin", json!(true))
        .web("short", "modern", names(&["later"]))
        .with("short", "timeout", json!("2s"))
        .web("long", "modern", names(&["later"]))
        .with("long", "timeout", json!("60s"))
        .agents(everyone())
        .start();
    let a = gate.agent("a");
    a.list();
    let call = |server: &str, timeout: Option<u64>, seconds: f64| {
        let args = json!({"seconds": seconds});
        let arguments =
            json!({"server": server, "tool": "later", "args": args, "timeout_ms": timeout});
        own(&a, "execute_tool", arguments)
    };
    // The tool responds after eight seconds: a client that waits that long gets the response.
    for (server, timeout) in [("long", Some(150)), ("short", Some(60_000)), ("short", None)] {
        let answer = call(server, timeout, 8.0);
        assert_eq!(answer["error"]["data"]["error"], "server_timeout", "{server}: {answer}");
    }
    assert_eq!(text(&call("long", None, 0.01)), "later");
}
