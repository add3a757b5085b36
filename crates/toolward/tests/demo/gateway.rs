//! Every tool through the demo's gateway, for every agent, and the effect of each kind of rule.

use serde_json::{Value, json};

use super::harness::eventually;
use super::running::Demo;
use super::server::calls;

/// A tool's name as clients of the gateway see it.
fn exposed(tool: &str) -> String {
    match tool {
        "fs_get_v2" => "files__read_file".into(),
        "list_files" | "write_file" => format!("files__{tool}"),
        _ => format!("tracker__{tool}"),
    }
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// Whether policy refused a call, in either shape.
fn refused(answer: &Value) -> bool {
    let listed = &answer["result"]["_meta"]["io.toolward/refusal"];
    listed.is_object() || answer["error"]["data"]["error"] == "tool_not_allowed"
}

#[test]
fn a_refusal_is_explained_from_another_terminal() {
    let demo = Demo::start(&[]);
    let answer = demo.agent("visitor").call(&exposed("write_file"), json!({}));
    assert!(refused(&answer), "{answer}");
    let id = answer["error"]["data"]["decision_id"].as_str().unwrap();
    let mut explain = super::running::command(demo.home.path());
    let output = explain.args(["explain", id]).current_dir("/").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("visitor"), "{said}");
    // The log can be followed the same way.
    let mut tail = super::running::command(demo.home.path());
    let output = tail.args(["tail", "--no-follow"]).current_dir("/").output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains(id));
}

#[test]
fn every_tool_is_called_by_every_agent() {
    let demo = Demo::start(&[]);
    let may: [(&str, &[&str]); 3] = [
        (
            "reader",
            &["search_issues", "get_issue", "board", "weekly_report", "list_files", "fs_get_v2"],
        ),
        (
            "maintainer",
            &[
                "search_issues",
                "get_issue",
                "create_issue",
                "add_comment",
                "close_issue",
                "board",
                "weekly_report",
                "send_digest",
                "list_files",
                "fs_get_v2",
                "write_file",
            ],
        ),
        ("visitor", &["search_issues", "get_issue"]),
    ];
    for (agent, may) in may {
        let agent = demo.agent(agent);
        // A call that waits for a person has a test of its own.
        let asks = |tool: &str| may.contains(&tool) && tool == "close_issue";
        for (tool, arguments, part) in calls().into_iter().filter(|(tool, ..)| !asks(tool)) {
            let answer = agent.call(&exposed(tool), arguments);
            assert_eq!(refused(&answer), !may.contains(&tool), "{tool}: {answer}");
            if !refused(&answer) {
                assert!(text(&answer).contains(part), "{tool}: {answer}");
            }
        }
    }
    // The renamed tool does not exist under its original name, and a nonexistent tool gets the same
    // response.
    let agent = demo.agent("maintainer");
    let renamed = agent.call("files__fs_get_v2", json!({"path": "README.md"}));
    assert!(refused(&renamed) && renamed["error"]["code"] == -32602, "{renamed}");
}

#[test]
fn each_kind_of_rule_has_its_effect() {
    let demo = Demo::start(&[]);
    let (reader, maintainer) = (demo.agent("reader"), demo.agent("maintainer"));
    // An action.
    let moved =
        reader.call("tracker__board", json!({"action": "move", "number": 17, "column": "done"}));
    assert!(refused(&moved) && text(&moved).contains("board.move is not permitted"), "{moved}");
    let cleared = maintainer.call("tracker__board", json!({"action": "clear"}));
    assert!(refused(&cleared), "{cleared}");
    // A condition.
    for (path, passes) in [
        ("drafts/new.md", true),
        ("config/production.yaml", false),
        ("drafts/../config/production.yaml", false),
    ] {
        let answer = maintainer.call("files__write_file", json!({"path": path, "content": "x"}));
        assert_eq!(refused(&answer), !passes, "{path}: {answer}");
    }
    let kept = maintainer.call("files__read_file", json!({"path": "config/production.yaml"}));
    assert!(text(&kept).contains("retries: 5"), "{kept}");
    // A deny that overrides an allow.
    assert!(refused(&maintainer.call("tracker__delete_issue", json!({"number": 17}))));
    // A limit.
    let comment = json!({"number": 17, "text": "Any news?"});
    let answers: Vec<Value> =
        (0..6).map(|_| maintainer.call("tracker__add_comment", comment.clone())).collect();
    assert!(
        answers[..5].iter().all(|answer| text(answer).contains("Added comment")),
        "{answers:?}"
    );
    let limited = &answers[5]["result"]["_meta"]["io.toolward/refusal"];
    assert_eq!(limited["error"], "limit_exceeded", "{}", answers[5]);
    // A note that one agent writes can be read by another one.
    let issue = reader.call("tracker__get_issue", json!({"number": 17}));
    let comments = issue["result"]["structuredContent"]["comments"].as_array().unwrap();
    assert_eq!(comments.len(), 6, "{issue}");
}

#[test]
fn progress_arrives_and_a_disconnect_cancels() {
    let demo = Demo::start(&[]);
    let reader = demo.agent("reader");
    let params = |seconds: f64| {
        json!({"name": "tracker__weekly_report",
        "arguments": {"seconds": seconds}, "_meta": {"progressToken": 7}})
    };
    let mut call = reader.open("tools/call", params(0.5));
    assert_eq!(call.head().header("content-type"), Some("text/event-stream"));
    let events: Vec<Value> =
        std::iter::from_fn(|| call.event()).map(|event| event.json()).collect();
    assert_eq!(events.len(), 6, "{events:?}");
    assert!(events[..5].iter().all(|event| event["params"]["progressToken"] == 7), "{events:?}");
    assert!(text(&events[5]).contains("# This week at Heron"));
    let call = reader.open("tools/call", params(20.0));
    eventually("the server is at it", || (demo.busy_threads() == 1).then_some(()));
    drop(call);
    // It would have taken twenty seconds; the outcome is recorded much sooner, and the server stops
    // working on it.
    eventually("the call is cancelled", || {
        let records = super::audit_log::all(&demo.folder().join("audit"));
        let ends = records.iter().filter(|record| record["kind"] == "outcome");
        (ends.count() == 2).then_some(())
    });
    eventually("the server gives up", || (demo.busy_threads() == 0).then_some(()));
}
