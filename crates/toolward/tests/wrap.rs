//! `toolward wrap` between a client and a scripted server: what is seen, what is forwarded, what is
//! recorded.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[path = "program/record.rs"]
mod record;

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/server.py");
/// What the client's environment holds, and the server's must not.
const SECRET: &str = "secret-of-the-client";

/// A wrapped server and the client that talks to it.
struct Wrapped {
    folder: tempfile::TempDir,
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
}

/// What is put around the scripted server.
struct Setup {
    policy: &'static str,
    tools: Value,
    flags: Vec<String>,
    page: Option<usize>,
    /// The record goes to a device that is full.
    full: bool,
}

fn setup(policy: &'static str, tools: Value) -> Setup {
    Setup { policy, tools, flags: Vec::new(), page: None, full: false }
}

fn names(tools: &[&str]) -> Value {
    tools.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect()
}

impl Setup {
    fn start(self) -> Wrapped {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("policy.yaml"), self.policy).unwrap();
        std::fs::write(path("tools.json"), self.tools.to_string()).unwrap();
        std::fs::create_dir(path("audit")).unwrap();
        if self.full {
            std::os::unix::fs::symlink("/dev/full", path("audit/audit.jsonl")).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolward"));
        command
            .args(["wrap", "--agent", "dev", "--name", "s", "--policy"])
            .arg(path("policy.yaml"))
            .arg("--audit")
            .arg(path("audit"))
            .args(&self.flags)
            .args(["--", "python3", SERVER])
            .arg(path("log"))
            .arg(path("tools.json"))
            .args(self.page.map(|page| page.to_string()))
            .env("SECRET_OF_THE_CLIENT", SECRET)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(path("stderr")).unwrap());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Wrapped { folder, child, stdin, answers }
    }

    /// Started, and past the handshake.
    fn ready(self) -> Wrapped {
        let mut wrapped = self.start();
        let hello = wrapped.initialize();
        assert!(hello["result"].is_object(), "{hello}");
        wrapped
    }
}

impl Wrapped {
    fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        // A program that has ended does not read; whoever waits for an answer then will notice.
        let _ = stdin.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdin.flush());
    }

    fn next(&self) -> Value {
        let line = self.answers.recv_timeout(Duration::from_secs(20)).unwrap();
        let message = serde_json::from_str(&line).unwrap();
        record::witness::received(&message);
        message
    }

    /// The answer to this id; notifications before it are passed over.
    fn answer(&self, id: &Value) -> Value {
        loop {
            let message = self.next();
            if message["id"] == *id {
                return message;
            }
        }
    }

    fn request(&mut self, id: Value, method: &str, params: Value) -> Value {
        self.send(
            &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        );
        self.answer(&id)
    }

    fn initialize(&mut self) -> Value {
        let params = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"sampling": {}, "elicitation": {}, "roots": {}},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let answer = self.request(json!(0), "initialize", params);
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        answer
    }

    fn list(&mut self) -> Vec<String> {
        let answer = self.request(json!("list"), "tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().into()).collect()
    }

    fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.request(json!("call"), "tools/call", json!({"name": name, "arguments": arguments}))
    }

    fn text(answer: &Value) -> &str {
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Calls that reached the server.
    fn forwarded(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.file("log")).unwrap_or_default();
        log.lines().filter(|line| line.contains("tools/call")).map(String::from).collect()
    }

    fn records(&self) -> Vec<Value> {
        record::decisions(&self.file("audit"))
    }

    fn kinds(&self) -> Vec<String> {
        let records = record::all(&self.file("audit"));
        records.iter().map(|record| record["kind"].as_str().unwrap().into()).collect()
    }

    /// Closes the client's side; gives the exit code.
    fn close(&mut self) -> i32 {
        self.stdin = None;
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(begun.elapsed() < Duration::from_secs(15), "the program does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Wrapped {
    fn drop(&mut self) {
        self.stdin = None;
        if std::thread::panicking() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            return;
        }
        record::witness::end(&mut self.child);
        let said = std::fs::read_to_string(self.file("stderr")).unwrap_or_default();
        let secrets = vec![SECRET.into(), "hunter2".into()];
        let audit = self.file("audit");
        let ended =
            record::witness::Ended { audit: &audit, secrets, said: &said, unrecorded: false };
        ended.ask();
    }
}

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
fn what_is_forwarded_is_byte_for_byte_what_was_decided_on() {
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
fn messages_that_two_readers_could_read_differently_never_reach_the_server() {
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
fn other_methods_and_the_server_s_questions_do_not_pass() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["ask"])).start();
    let hello = wrapped.initialize();
    assert_eq!(hello["result"]["capabilities"], json!({"tools": {"listChanged": true}}));
    assert_eq!(hello["result"]["serverInfo"]["name"], "scripted");
    for method in [
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "logging/setLevel",
        "tasks/list",
    ] {
        let answer = wrapped.request(json!(5), method, json!({}));
        assert_eq!(answer["error"]["code"], -32601, "{method}");
    }
    let reply = Wrapped::text(&wrapped.call("ask", json!({}))).to_string();
    assert!(reply.contains("-32601"), "{reply}");
    let log = std::fs::read_to_string(wrapped.file("log")).unwrap();
    let initialize: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!(initialize["params"]["capabilities"], json!({}));
    assert!(!log.contains("prompts/list"));
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
    let mut wrapped =
        Setup { full: true, ..setup("allowed_tools: [\"*\"]\n", names(&["a"])) }.ready();
    let answer = wrapped.call("a", json!({}));
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert_eq!(answer["error"]["data"]["error"], "not_recorded");
    assert_eq!(wrapped.request(json!(1), "tools/list", json!({}))["error"]["code"], -32603);
    assert!(wrapped.forwarded().is_empty());
}

#[test]
fn the_record_says_who_what_and_why_and_holds_no_arguments() {
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

#[test]
fn a_crash_is_answered_at_once_and_the_server_comes_back() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["crash", "hang", "a"])).ready();
    wrapped
        .send(r#"{"jsonrpc":"2.0","id":"waiting","method":"tools/call","params":{"name":"hang"}}"#);
    let begun = Instant::now();
    wrapped
        .send(r#"{"jsonrpc":"2.0","id":"crash","method":"tools/call","params":{"name":"crash"}}"#);
    let answers = [wrapped.next(), wrapped.next()];
    assert!(begun.elapsed() < Duration::from_secs(3));
    for answer in &answers {
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        assert_eq!(answer["error"]["data"]["error"], "server_unavailable");
        assert_eq!(answer["error"]["data"]["retryable"], true);
    }
    let begun = Instant::now();
    loop {
        let answer = wrapped.call("a", json!({}));
        if answer["result"].is_object() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let calls = wrapped.forwarded();
    assert_eq!(
        calls.iter().filter(|line| line.contains("\"hang\"")).count(),
        1,
        "nothing is sent twice"
    );
}

#[test]
fn cancellation_reaches_the_server_and_the_late_answer_nobody() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["hang", "a"])).ready();
    wrapped.list();
    wrapped.send(r#"{"jsonrpc":"2.0","id":"h","method":"tools/call","params":{"name":"hang"}}"#);
    while wrapped.forwarded().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    wrapped
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"h"}}"#);
    assert_eq!(Wrapped::text(&wrapped.call("a", json!({}))), "did a");
    assert_eq!(
        wrapped.answers.recv_timeout(Duration::from_millis(300)),
        Err(RecvTimeoutError::Timeout)
    );
    assert!(
        std::fs::read_to_string(wrapped.file("log")).unwrap().contains("notifications/cancelled")
    );
    assert!(wrapped.records().iter().any(|record| record["outcome"] == "cancelled"));
}

#[test]
fn progress_comes_under_the_client_s_own_token_and_strays_do_not_come() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["slow", "stray"])).ready();
    let params = json!({"name": "slow", "_meta": {"progressToken": "mine"}});
    wrapped.send(
        &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string(),
    );
    let progress = [wrapped.next(), wrapped.next()];
    assert!(progress.iter().all(|message| message["params"]["progressToken"] == "mine"));
    assert_eq!(wrapped.next()["id"], 1);
    wrapped.send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"stray"}}"#);
    assert_eq!(wrapped.next()["id"], 2);
}

#[test]
fn a_change_of_the_list_is_told_where_the_view_changed() {
    let mut wrapped = setup("allowed_tools: [grow, \"new_*\"]\n", names(&["grow"])).ready();
    assert_eq!(wrapped.list(), ["grow"]);
    wrapped.call("grow", json!({"tool": "hidden_one"}));
    assert_eq!(
        wrapped.answers.recv_timeout(Duration::from_millis(500)),
        Err(RecvTimeoutError::Timeout)
    );
    wrapped.send(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "grow", "arguments": {"tool": "new_one"}}}).to_string());
    let mut seen = [wrapped.next(), wrapped.next()];
    seen.sort_by_key(|message| message["id"].is_null());
    assert_eq!(seen[1]["method"], "notifications/tools/list_changed");
    assert_eq!(wrapped.list(), ["grow", "new_one"]);
}

#[test]
fn an_answer_that_two_readers_could_read_differently_is_an_error_at_once() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["twice"])).ready();
    let begun = Instant::now();
    let answer = wrapped.call("twice", json!({}));
    assert_eq!(answer["error"]["data"]["error"], "bad_answer", "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_call_that_takes_too_long_is_answered_and_cancelled() {
    let flags = vec!["--timeout".into(), "1".into()];
    let mut wrapped =
        Setup { flags, ..setup("allowed_tools: [\"*\"]\n", names(&["hang", "a"])) }.ready();
    let answer = wrapped.call("hang", json!({}));
    assert_eq!(answer["error"]["data"]["error"], "server_timeout", "{answer}");
    assert_eq!(Wrapped::text(&wrapped.call("a", json!({}))), "did a");
    assert!(
        std::fs::read_to_string(wrapped.file("log")).unwrap().contains("notifications/cancelled")
    );
}

#[test]
fn nothing_that_the_server_started_stays_behind() {
    for terminated in [false, true] {
        let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["spawn"])).ready();
        let pid: u32 = Wrapped::text(&wrapped.call("spawn", json!({}))).parse().unwrap();
        let alive = || {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !state.is_empty() && !state.contains(") Z ")
        };
        assert!(alive());
        if terminated {
            let own = wrapped.child.id().to_string();
            assert!(Command::new("kill").args(["-TERM", &own]).status().unwrap().success());
        }
        wrapped.close();
        // The signal is sent before the gateway ends; the process may need a moment to die.
        let begun = Instant::now();
        while alive() {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            assert!(begun.elapsed() < Duration::from_secs(5), "terminated: {terminated}: {state}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_call_that_is_cancelled_before_it_is_forwarded_never_is() {
    let flags = vec!["--env".into(), "LIST_TAKES=1".into(), "--env".into(), "INSTRUCTIONS=".into()];
    let mut wrapped =
        Setup { flags, ..setup("allowed_tools: [\"*\"]\n", names(&["a", "b"])) }.ready();
    // Without instructions nobody has asked for the list yet: the first call waits for it.
    wrapped.send(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a"}}"#);
    wrapped
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#);
    assert_eq!(Wrapped::text(&wrapped.call("b", json!({}))), "did b");
    let calls = wrapped.forwarded();
    assert!(!calls.iter().any(|line| line.contains("\"a\"")), "{calls:?}");
    assert_eq!(calls.len(), 1);
}

#[test]
fn what_was_asked_before_the_end_of_input_is_answered() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["later"])).ready();
    wrapped.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"later"}}"#);
    assert_eq!(wrapped.close(), 0);
    assert_eq!(Wrapped::text(&wrapped.next()), "later");
    assert!(wrapped.records().iter().any(|record| record["outcome"] == "ok"));
}

#[test]
fn tasks_links_and_answers_to_questions_do_not_pass() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["a", "task", "link"])).ready();
    for extra in ["task", "requestState", "inputResponses"] {
        let answer = wrapped.request(json!(1), "tools/call", json!({"name": "a", extra: {}}));
        assert_eq!(answer["error"]["code"], -32602, "{extra}");
    }
    assert!(wrapped.forwarded().is_empty());
    for tool in ["task", "link"] {
        let answer = wrapped.call(tool, json!({}));
        assert_eq!(answer["error"]["data"]["error"], "question_refused", "{answer}");
    }
}

#[test]
fn a_server_cannot_speak_for_the_gateway() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["forge", "surrogate"])).ready();
    let answer = wrapped.call("forge", json!({}));
    assert_eq!(answer["result"]["_meta"], json!({"own": 1}));
}

#[test]
fn what_is_odd_deep_in_an_answer_is_passed_on_as_it_is() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["surrogate"])).ready();
    wrapped.send(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"surrogate"}}"#);
    let line = wrapped.answers.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(line.contains(r#""text":"\ud800""#), "{line}");
}

#[test]
fn a_record_that_was_removed_is_no_record() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["a"])).ready();
    assert_eq!(Wrapped::text(&wrapped.call("a", json!({}))), "did a");
    assert_eq!(wrapped.kinds(), ["segment", "start", "intent", "outcome"]);
    std::fs::remove_file(wrapped.file("audit/audit.jsonl")).unwrap();
    // The next one goes into a new file, which says that something is missing.
    assert_eq!(Wrapped::text(&wrapped.call("a", json!({}))), "did a");
    assert_eq!(wrapped.kinds(), ["segment", "gap", "intent", "outcome"]);
    // Without a folder there is nowhere to write, and nothing happens.
    std::fs::rename(wrapped.file("audit"), wrapped.file("away")).unwrap();
    assert_eq!(wrapped.call("a", json!({}))["error"]["data"]["error"], "not_recorded");
    assert_eq!(wrapped.forwarded().len(), 2);
    std::fs::rename(wrapped.file("away"), wrapped.file("audit")).unwrap();
    assert_eq!(Wrapped::text(&wrapped.call("a", json!({}))), "did a");
    assert_eq!(wrapped.kinds()[4..], ["intent", "outcome"]);
}

#[test]
fn a_client_that_closes_its_side_ends_the_server_in_order_and_soon() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["a"])).ready();
    assert_eq!(Wrapped::text(&wrapped.call("a", json!({}))), "did a");
    let begun = Instant::now();
    wrapped.stdin = None;
    assert!(wrapped.child.wait().unwrap().success());
    // A server that is sent a signal instead of the end of its input would take two seconds.
    assert!(begun.elapsed() < Duration::from_millis(1900), "{:?}", begun.elapsed());
}

#[test]
fn a_log_that_nobody_reads_holds_nothing_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("tools.json"), names(&["a"]).to_string()).unwrap();
    let script = "import runpy, sys, threading\n\
        def flood():\n    while True: sys.stderr.write('x' * 4000 + chr(10))\n\
        threading.Thread(target=flood, daemon=True).start()\n\
        sys.argv.pop(0)\n\
        runpy.run_path(sys.argv[0], run_name='__main__')";
    let mut child = Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["wrap", "--audit"])
        .arg(folder.path())
        .args(["--", "python3", "-c", script, SERVER])
        .args([file("log"), file("tools.json")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let begin = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a"}}"#;
    for (line, expected) in [(begin, "scripted"), (call, "did a")] {
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
        let answer = answers.next().unwrap().unwrap();
        assert!(answer.contains(expected), "{answer}");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_server_sees_only_declared_variables() {
    let flags = vec!["--env".into(), "GIVEN=1".into()];
    let mut wrapped =
        Setup { flags, ..setup("allowed_tools: [\"*\"]\n", names(&["environment"])) }.ready();
    let answer = wrapped.call("environment", json!({}));
    let seen: Vec<&str> = Wrapped::text(&answer).split(' ').collect();
    assert!(seen.contains(&"GIVEN") && seen.contains(&"PATH"));
    assert!(!seen.contains(&"SECRET_OF_THE_CLIENT"));
}

#[test]
fn instructions_that_name_a_hidden_tool_are_left_out() {
    let flags = || vec!["--env".into(), "INSTRUCTIONS=Use DAN-ger first.".into()];
    let mut wrapped =
        Setup { flags: flags(), ..setup("allowed_tools: [a]\n", names(&["a", "danger"])) }.start();
    assert!(wrapped.initialize()["result"].get("instructions").is_none());
    let mut wrapped =
        Setup { flags: flags(), ..setup("allowed_tools: [\"*\"]\n", names(&["a", "danger"])) }
            .start();
    assert_eq!(wrapped.initialize()["result"]["instructions"], "Use DAN-ger first.");
}

#[test]
fn a_session_begins_with_initialize_and_begins_once() {
    let mut wrapped = setup("allowed_tools: [a]\n", names(&["a"])).start();
    assert_eq!(wrapped.request(json!(1), "tools/list", json!({}))["error"]["code"], -32600);
    assert!(wrapped.initialize()["result"].is_object());
    assert!(wrapped.initialize()["error"].is_object());
    assert_eq!(wrapped.request(json!(2), "ping", json!({}))["result"], json!({}));
}

#[test]
fn a_request_id_in_use_is_refused() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["hang", "a"])).ready();
    wrapped.list();
    for _ in 0..2 {
        wrapped.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang"}}"#);
    }
    assert_eq!(wrapped.next()["error"]["code"], -32600);
    // A further call has reached the server behind everything that was sent before it.
    wrapped.call("a", json!({}));
    assert_eq!(wrapped.forwarded().len(), 2);
}

#[test]
fn what_keeps_it_from_starting_is_told_to_the_first_request() {
    let mut wrapped = setup("alowed_tools: []\n", names(&[])).start();
    let answer = wrapped.initialize();
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("unknown key `alowed_tools`") && message.contains("did you mean"),
        "{message}"
    );
    assert_eq!(wrapped.close(), 3);

    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["wrap", "--audit", folder.path().to_str().unwrap(), "--", "/nonexistent/server"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let line = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    writeln!(child.stdin.as_mut().unwrap(), "{line}").unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer["error"]["message"].as_str().unwrap().contains("cannot be started"), "{answer}");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn conditions_decide_on_the_arguments_that_are_forwarded() {
    let policy = "agents:\n  dev:\n    allow:\n      servers: [s]\n      tools:\n        s: [{tool: write, when: 'args.path.startsWith(\"/srv/\")'}]\n";
    let mut wrapped = setup(policy, names(&["write"])).ready();
    assert_eq!(wrapped.list(), ["write"]);
    assert_eq!(Wrapped::text(&wrapped.call("write", json!({"path": "/srv/a"}))), "did write");
    assert_eq!(wrapped.call("write", json!({"path": "/etc/a"}))["result"]["isError"], true);
    assert_eq!(wrapped.call("write", json!({}))["result"]["isError"], true);
    let twins = wrapped.call("write", json!({"path": "/srv/a", "Path": "/etc/a"}));
    assert_eq!(twins["error"]["code"], -32602);
    assert_eq!(wrapped.forwarded().len(), 1);
}

#[test]
fn a_client_that_first_asks_what_it_speaks_to_starts_the_server_once() {
    const BOTH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/both.py");
    // A server that says no goes on. One that ends or is silent is asked in the other era, by another
    // process, before the client hears that it does not know the question.
    for (unknown, most) in [("answer", 1), ("exit", 3), ("silent", 3)] {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("tools.json"), names(&["a"]).to_string()).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_toolward"))
            .args(["wrap", "--env", &format!("UNKNOWN={unknown}"), "--audit"])
            .arg(folder.path())
            .args(["--", "python3", BOTH, "stdio", "legacy"])
            .args([file("log"), file("tools.json")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let meta = "io.modelcontextprotocol/";
        let terms = json!({"_meta": {
            format!("{meta}protocolVersion"): "2026-07-28", format!("{meta}clientCapabilities"): {},
            format!("{meta}clientInfo"): {"name": "c", "version": "1"},
        }});
        let begin = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        });
        let mut ask = |id: u32, method: &str, params: &Value| -> Value {
            let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
            serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap()
        };
        let begun = Instant::now();
        let found = ask(1, "server/discover", &terms);
        let quick = begun.elapsed() < Duration::from_millis(1500);
        assert_eq!(found["error"]["code"], -32601, "{unknown}: {found}");
        let hello = ask(2, "initialize", &begin);
        assert_eq!(hello["result"]["serverInfo"]["name"], "scripted", "{unknown}: {hello}");
        let answer = ask(3, "tools/call", &json!({"name": "a"}));
        assert_eq!(Wrapped::text(&answer), "did a", "{unknown}");
        drop(stdin);
        assert!(child.wait().unwrap().success());
        let log = std::fs::read_to_string(file("log")).unwrap();
        let log: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let starts = log.iter().filter(|entry| entry["event"] == "start").count();
        assert!(starts == most || unknown == "answer" && !quick, "{unknown}: {starts}");
        // The server that serves heard what the client says of itself.
        let heard = |entry: &&Value| entry["body"].as_str().is_some_and(|b| b.contains("\"c\""));
        assert_eq!(log.iter().filter(heard).count(), 1, "{unknown}");
    }
}
