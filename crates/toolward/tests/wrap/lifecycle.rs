//! Calls that are cancelled, slow or crash, and the shutdown.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use serde_json::json;

use crate::harness::*;

#[test]
fn a_crash_is_answered_at_once_and_the_server_recovers() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["crash", "hang", "a"])).ready();
    wrapped
        .send(r#"{"jsonrpc":"2.0","id":"waiting","method":"tools/call","params":{"name":"hang"}}"#);
    eventually("the first call has reached the server", || {
        wrapped.forwarded().iter().any(|line| line.contains("\"hang\""))
    });
    wrapped
        .send(r#"{"jsonrpc":"2.0","id":"crash","method":"tools/call","params":{"name":"crash"}}"#);
    let answers = [wrapped.next(), wrapped.next()];
    for answer in &answers {
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        assert_eq!(answer["error"]["data"]["error"], "server_disconnected");
        assert_eq!(answer["error"]["data"]["retryable"], false);
    }
    eventually("the server is started again", || {
        wrapped.call("a", json!({}))["result"].is_object()
    });
    let calls = wrapped.forwarded();
    assert_eq!(
        calls.iter().filter(|line| line.contains("\"hang\"")).count(),
        1,
        "nothing is sent twice"
    );
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
fn a_changed_list_is_announced_if_the_view_changed() {
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
    let answer = wrapped.call("twice", json!({}));
    assert_eq!(answer["error"]["data"]["error"], "bad_answer", "{answer}");
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
        // The signal is sent before the gateway exits; the process may need a moment to die.
        eventually(&format!("process {pid} ends (terminated: {terminated})"), || !alive());
    }
}

#[test]
fn a_call_that_is_cancelled_before_it_is_forwarded_never_is() {
    let flags = vec!["--env".into(), "LIST_TAKES=1".into(), "--env".into(), "INSTRUCTIONS=".into()];
    let mut wrapped =
        Setup { flags, ..setup("allowed_tools: [\"*\"]\n", names(&["a", "b"])) }.ready();
    // Without instructions the list has not been requested yet: the first call waits for it.
    wrapped.send(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a"}}"#);
    wrapped
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#);
    assert_eq!(Wrapped::text(&wrapped.call("b", json!({}))), "did b");
    let calls = wrapped.forwarded();
    assert!(!calls.iter().any(|line| line.contains("\"a\"")), "{calls:?}");
    assert_eq!(calls.len(), 1);
}

#[test]
fn requests_before_the_end_of_input_are_answered() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["later"])).ready();
    wrapped.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"later"}}"#);
    assert_eq!(wrapped.close(), 0);
    assert_eq!(Wrapped::text(&wrapped.next()), "later");
    assert!(wrapped.records().iter().any(|record| record["outcome"] == "ok"));
}

#[test]
fn tasks_links_and_answers_to_server_requests_do_not_pass() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["a", "task", "link"])).ready();
    for extra in ["requestState", "inputResponses"] {
        let answer = wrapped.request(json!(1), "tools/call", json!({"name": "a", extra: {}}));
        assert_eq!(answer["error"]["code"], -32602, "{extra}");
    }
    assert!(wrapped.forwarded().is_empty());
    // A server without tasks ignores a request for one, and so does the gateway.
    let wanted = json!({"name": "a", "task": {"ttl": 1000}});
    assert_eq!(Wrapped::text(&wrapped.request(json!(1), "tools/call", wanted)), "did a");
    assert!(!wrapped.forwarded()[0].contains("ttl"), "{:?}", wrapped.forwarded());
    for tool in ["task", "link"] {
        let answer = wrapped.call(tool, json!({}));
        assert!(answer.to_string().contains("question_refused"), "{answer}");
    }
}

#[test]
fn a_server_cannot_imitate_the_gateway() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["forge", "surrogate"])).ready();
    let answer = wrapped.call("forge", json!({}));
    assert_eq!(answer["result"]["_meta"], json!({"own": 1}));
}

#[test]
fn irregularities_deep_in_a_response_are_passed_on_unchanged() {
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
    // The next one writes a new file, which records that something is missing.
    assert_eq!(Wrapped::text(&wrapped.call("a", json!({}))), "did a");
    assert_eq!(wrapped.kinds(), ["segment", "gap", "intent", "outcome"]);
    // Without a directory the log cannot be written, and no call is made.
    std::fs::rename(wrapped.file("audit"), wrapped.file("away")).unwrap();
    assert_eq!(wrapped.call("a", json!({}))["error"]["data"]["error"], "not_recorded");
    assert_eq!(wrapped.forwarded().len(), 2);
    std::fs::rename(wrapped.file("away"), wrapped.file("audit")).unwrap();
    assert_eq!(Wrapped::text(&wrapped.call("a", json!({}))), "did a");
    assert_eq!(wrapped.kinds()[4..], ["recovery", "intent", "outcome"]);
}

#[test]
fn a_client_that_closes_its_side_ends_the_server_gracefully_and_soon() {
    let mut wrapped = setup("allowed_tools: [\"*\"]\n", names(&["a"])).ready();
    assert_eq!(Wrapped::text(&wrapped.call("a", json!({}))), "did a");
    wrapped.stdin = None;
    assert!(wrapped.child.wait().unwrap().success());
    assert!(wrapped.file("log.end").exists(), "the server saw the end of its input, not a signal");
}

#[test]
fn an_unread_log_blocks_nothing() {
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
    for (line, expected) in [(begin, "serverInfo"), (call, "did a")] {
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
        let answer = answers.next().unwrap().unwrap();
        assert!(answer.contains(expected), "{answer}");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}
