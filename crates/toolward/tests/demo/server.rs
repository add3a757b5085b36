//! The demo's server, without a gateway.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::harness::{META, MODERN, eventually, initialize, modern_body, request};
use super::running::PROGRAM;

/// `toolward demo-server` and a client.
pub struct Server {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
    modern: bool,
}

impl Server {
    fn start(part: &[&str], modern: bool) -> Server {
        let mut child = Command::new(PROGRAM)
            .arg("demo-server")
            .args(part)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut server = Server { child, answers, modern };
        if !modern {
            server.raw(&initialize("2025-11-25").to_string());
            server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        server
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"))
    }

    /// Sends a line and returns the next one received.
    fn raw(&mut self, line: &str) -> Value {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.next()
    }

    fn message(&self, id: Value, method: &str, params: Value) -> Value {
        if self.modern { modern_body(id, method, params) } else { request(id, method, params) }
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let message = self.message(json!("a"), method, params);
        let answer = self.raw(&message.to_string());
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!("a")));
        answer
    }

    fn tools(&mut self) -> Vec<Value> {
        self.ask("tools/list", json!({}))["result"]["tools"].as_array().unwrap().clone()
    }

    fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": name, "arguments": arguments}))
    }

    /// The text of a call's result, and whether it is an error.
    fn says(&mut self, name: &str, arguments: Value) -> (String, bool) {
        let answer = self.call(name, arguments);
        let result = &answer["result"];
        assert_eq!(result["resultType"] == "complete", self.modern, "{answer}");
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        (text.into(), result["isError"] == true)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One call of every tool, ordered so that every call that can succeed does, and a part of its result.
pub fn calls() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("search_issues", json!({"query": "login"}), "\"total\":1"),
        ("get_issue", json!({"number": 12}), "Export of large tables"),
        (
            "create_issue",
            json!({"title": "Dark mode", "labels": ["wish"]}),
            "Opened #22: Dark mode",
        ),
        ("add_comment", json!({"number": 22, "text": "Please."}), "Added comment 1 to"),
        ("close_issue", json!({"number": 22}), "#22 is closed."),
        ("delete_issue", json!({"number": 22}), "Deleted #22 and its comments."),
        ("board", json!({"action": "show"}), "doing: #12"),
        ("send_digest", json!({"to": "team@heron.example"}), "mail.heron.example does not respond"),
        ("list_files", json!({}), "config/production.yaml"),
        ("fs_get_v2", json!({"path": "docs/sync.md"}), "# The sync service"),
        (
            "write_file",
            json!({"path": "drafts/a.md", "content": "x"}),
            "Wrote drafts/a.md (1 bytes).",
        ),
        ("weekly_report", json!({"seconds": 0}), "# This week at Heron"),
    ]
}

#[test]
fn every_tool_works_in_both_eras() {
    for modern in [false, true] {
        let mut server = Server::start(&[], modern);
        let tools = server.tools();
        let offered: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        let mut called: Vec<&str> = calls().iter().map(|(name, ..)| *name).collect();
        called.sort_by_key(|name| offered.iter().position(|offered| offered == name));
        assert_eq!(called, offered);
        for (name, arguments, part) in calls() {
            let (text, failed) = server.says(name, arguments);
            assert!(text.contains(part), "{name}: {text}");
            assert_eq!(failed, name == "send_digest", "{name}: {text}");
        }
    }
}

#[test]
fn a_part_has_its_own_tools_only() {
    let mut tracker = Server::start(&["tracker"], true);
    let mut files = Server::start(&["files"], true);
    assert_eq!((tracker.tools().len(), files.tools().len()), (9, 3));
    let unknown = files.call("get_issue", json!({"number": 17}));
    assert_eq!(unknown["error"]["code"], -32602);
    let message = "there is no tool get_issue; there are list_files, fs_get_v2, write_file";
    assert_eq!(unknown["error"]["message"], message);
}

#[test]
fn tools_differ_in_their_annotations() {
    let mut server = Server::start(&[], true);
    let mut kinds: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for tool in server.tools() {
        let is = |hint: &str, value: bool| tool["annotations"][hint] == value;
        let name = tool["name"].as_str().unwrap().to_string();
        for (kind, holds) in [
            ("plain", tool.get("annotations").is_none()),
            ("read-only", is("readOnlyHint", true)),
            ("destructive", is("destructiveHint", true)),
            ("idempotent", is("idempotentHint", true)),
            ("open-world", is("openWorldHint", true)),
        ] {
            if holds {
                kinds.entry(kind).or_default().push(name.clone());
            }
        }
        assert_eq!(tool["inputSchema"]["type"], "object");
        assert_eq!(tool["inputSchema"]["additionalProperties"], false);
        assert!(tool["description"].as_str().unwrap().len() > 20);
    }
    assert_eq!(kinds["plain"], ["board", "list_files", "fs_get_v2", "write_file"]);
    assert_eq!(kinds["read-only"], ["search_issues", "get_issue", "weekly_report"]);
    assert_eq!(kinds["destructive"], ["delete_issue"]);
    assert_eq!(kinds["idempotent"], ["close_issue"]);
    assert_eq!(kinds["open-world"], ["send_digest"]);
}

#[test]
fn it_starts_in_the_era_of_the_client() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut server = Server::start(&[], true);
        let hello = server.raw(&initialize(version).to_string());
        assert_eq!(hello["result"]["protocolVersion"], version);
        assert_eq!(hello["result"]["serverInfo"]["name"], "demo");
        let listed = server.raw(&request(json!(1), "tools/list", json!({})).to_string());
        assert!(listed["result"].get("resultType").is_none(), "{listed}");
        assert_eq!(
            server.raw(&request(json!(2), "ping", json!({})).to_string())["result"],
            json!({})
        );
    }
    let mut server = Server::start(&[], true);
    for unknown in ["2026-07-28", "1999-01-01"] {
        let hello = server.raw(&initialize(unknown).to_string());
        assert_eq!(hello["result"]["protocolVersion"], "2025-11-25");
    }
    let mut server = Server::start(&["tracker"], true);
    let found = server.ask("server/discover", json!({}))["result"].clone();
    assert_eq!(found["supportedVersions"], json!([MODERN]));
    assert_eq!(found["_meta"][format!("{META}serverInfo")]["name"], "demo-tracker");
    let listed = server.ask("tools/list", json!({}));
    assert_eq!(listed["result"]["resultType"], "complete");
    assert_eq!(listed["result"]["cacheScope"], "public");
}

#[test]
fn an_invalid_call_is_answered_with_a_suggestion() {
    let mut server = Server::start(&[], true);
    let early = server.raw(&request(json!(1), "tools/list", json!({})).to_string());
    assert!(early["error"]["message"].as_str().unwrap().contains("`initialize`"), "{early}");
    let mut other = modern_body(json!(1), "tools/list", json!({}));
    other["params"]["_meta"][format!("{META}protocolVersion")] = json!("2030-01-01");
    let other = server.raw(&other.to_string());
    assert_eq!(other["error"]["code"], -32022);
    assert_eq!(other["error"]["data"], json!({"supported": [MODERN], "requested": "2030-01-01"}));
    assert_eq!(server.raw("{nonsense")["error"]["code"], -32700);
    assert_eq!(server.ask("resources/list", json!({}))["error"]["code"], -32601);
    assert_eq!(server.ask("initialize", json!({}))["error"]["code"], -32601);
    let list = server.ask("tools/call", json!({"name": "get_issue", "arguments": [1]}));
    assert_eq!(list["error"]["code"], -32602);
    let no_id = json!({"jsonrpc": "2.0", "id": null, "method": "tools/list"});
    assert_eq!(server.raw(&no_id.to_string())["error"]["code"], -32600);
    for (name, arguments, part) in [
        ("get_issue", json!({}), "needs `number`: a whole number"),
        ("get_issue", json!({"number": "17"}), "not \"17\""),
        ("get_issue", json!({"number": 99}), "There are #12, #17, #21, #8."),
        ("board", json!({"action": "burn"}), "one of show, move, clear"),
        ("board", json!({"action": "move"}), "\"column\":\"doing\""),
        ("fs_get_v2", json!({"path": "/etc/passwd"}), "There are README.md"),
        ("write_file", json!({"path": "a", "content": "b", "mode": 1}), "does not know `mode`"),
    ] {
        let (text, failed) = server.says(name, arguments);
        assert!(failed && text.contains(part), "{name}: {text}");
    }
}

#[test]
fn the_slow_tool_reports_progress() {
    for modern in [false, true] {
        let mut server = Server::start(&["tracker"], modern);
        let params = json!({"name": "weekly_report", "arguments": {"seconds": 0.2},
            "_meta": {"progressToken": "t"}});
        let call = server.message(json!(5), "tools/call", params);
        server.send(&call);
        for step in 1..=5 {
            let told = server.next();
            assert_eq!(told["method"], "notifications/progress");
            assert_eq!(told["params"]["progressToken"], "t");
            assert_eq!(
                (&told["params"]["progress"], &told["params"]["total"]),
                (&json!(step), &json!(5))
            );
        }
        assert_eq!(server.next()["id"], 5);
    }
}

#[test]
fn a_cancelled_call_is_not_answered() {
    for modern in [false, true] {
        let mut server = Server::start(&["tracker"], modern);
        let params = json!({"name": "weekly_report", "arguments": {"seconds": 1}});
        let call = server.message(json!(5), "tools/call", params);
        server.send(&call);
        let told = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
        server.send(&told);
        // A later call is answered after the time that the first would have taken: nothing else
        // arrived.
        let (report, _) = server.says("weekly_report", json!({"seconds": 1.5}));
        assert!(report.contains("Heron"));
    }
}

#[test]
fn others_are_answered_while_a_call_takes_its_time() {
    let mut server = Server::start(&["tracker"], true);
    let params = json!({"name": "weekly_report", "arguments": {"seconds": 20}});
    let call = server.message(json!(5), "tools/call", params);
    server.send(&call);
    assert!(server.says("get_issue", json!({"number": 17})).0.contains("Login page"));
    // The end of the input ends the server, even with calls in flight.
    server.child.stdin = None;
    eventually("the server ends", || server.child.try_wait().unwrap());
}
