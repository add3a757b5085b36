//! Real clients that wait for a person.

use std::process::Command;

use serde_json::{Value, json};
use toolward_testkit::wait::eventually;

use super::harness::Gate;
use super::peers::*;

const TOOL: &str = "time__get_current_time";

fn toolward(gate: &Gate, arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(arguments)
        .args(["--json", "-c", gate.file("toolward.yaml").to_str().unwrap()])
        .env("HOME", gate.file(""))
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{arguments:?}: {output:?}"))
}

/// Each client makes the same call twice. The first is approved when it has waited for longer than it is held.
#[test]
fn clients_wait_for_an_approval_or_repeat_the_call() {
    let Some(peers) = peers() else { return };
    let rust = peers.has(Client::Rust);
    let work = Work::new(peers);
    let gate = work
        .setup(&["time"])
        .agents(json!({"a": {"allow": {"servers": ["time"], "tools": {"time": [
            {"tool": "get_current_time", "ask": true}]}}}}))
        .set("approvals", json!({"hold": "2s"}))
        .start();
    let calls = json!([[TOOL, {"timezone": "Etc/UTC"}], [TOOL, {"timezone": "Etc/UTC"}]]);
    let clients = [
        (Client::Python, "--legacy"),
        (Client::Python, "--modern"),
        (Client::TypeScript, "--legacy"),
        (Client::TypeScript, "--modern"),
        (Client::Rust, "--legacy"),
        (Client::Rust, "--modern"),
    ];
    for (client, mode) in clients.into_iter().filter(|(one, _)| rust || *one != Client::Rust) {
        let before = gate.records().iter().filter(|one| one["kind"] == "intent").count();
        let seen = std::thread::scope(|scope| {
            let at = place(&gate, "a", "/mcp");
            let (work, calls) = (&work, &calls);
            let sees = scope.spawn(move || work.see(client, mode, calls, &at));
            let id = eventually("the call waits", || {
                Some(toolward(&gate, &["pending"])[0]["id"].as_str()?.to_string())
            });
            // A round of a modern client, or the first answer of a legacy one.
            eventually("the first wait is over", || {
                let records = gate.records().into_iter();
                let waited = |one: &Value| one["kind"] == "refusal" && one["ticket"] == *id;
                records.into_iter().any(|one| waited(&one)).then_some(())
            });
            assert_eq!(toolward(&gate, &["approve", &id])["approved"], true);
            // The second call of a modern client asks again; that of a legacy client was the repetition.
            if mode == "--modern" {
                let again = eventually("the second call waits", || {
                    Some(toolward(&gate, &["pending"])[0]["id"].as_str()?.to_string())
                });
                assert_eq!(
                    toolward(&gate, &["deny", &again, "--reason", "once is enough"])["denied"],
                    true
                );
            }
            sees.join().unwrap()
        });
        let text = |at: usize| {
            seen["calls"][at]["content"][0]["text"]
                .as_str()
                .unwrap_or_else(|| panic!("{client:?} {mode}: {seen}"))
        };
        let (waits, done) = if mode == "--modern" { (1, 0) } else { (0, 1) };
        assert!(text(done).contains("timezone"), "{client:?} {mode}: {seen}");
        assert_eq!(seen["calls"][waits]["isError"], true, "{client:?} {mode}: {seen}");
        let expected = if mode == "--modern" { "once is enough" } else { "has not decided yet" };
        assert!(text(waits).contains(expected), "{client:?} {mode}: {seen}");
        let made = gate.records().iter().filter(|one| one["kind"] == "intent").count() - before;
        assert_eq!(made, 1, "{client:?} {mode}");
    }
}
