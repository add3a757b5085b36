//! The start and the shutdown of a demo, and the files it leaves.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::{Value, json};

use super::harness::eventually;
use super::running::{Demo, command};

fn mode(path: &std::path::Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn its_directory_is_private_and_removed_at_the_end() {
    for signal in ["-INT", "-TERM"] {
        let mut demo = Demo::start(&[]);
        let folder = demo.folder();
        assert_eq!(demo.folders(), std::slice::from_ref(&folder));
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(&folder.join("tokens.txt")), 0o600);
        let config = std::fs::read_to_string(folder.join("toolward.yaml")).unwrap();
        let said = demo.said();
        for agent in ["reader", "maintainer", "visitor"] {
            assert!(!config.contains(demo.token(agent)), "{config}");
            assert!(!said.contains(demo.token(agent)), "{said}");
            assert!(!demo.agent(agent).list().is_empty());
        }
        demo.signal(signal);
        let (code, _) = demo.ended();
        assert_eq!(code, Some(0), "{}", demo.said());
        assert!(demo.folders().is_empty(), "{:?}", demo.folders());
        assert!(!demo.said().contains("not reloaded"), "{}", demo.said());
    }
}

#[test]
fn it_does_not_wait_for_calls_in_flight() {
    let mut demo = Demo::start(&[]);
    let params = json!({"name": "tracker__weekly_report", "arguments": {"seconds": 20}});
    let agent = demo.agent("reader");
    // Several, so that each thread of the gateway has one.
    let calls: Vec<_> = (0..8).map(|_| agent.open("tools/call", params.clone())).collect();
    eventually("the server is at it", || (demo.busy_threads() == calls.len()).then_some(()));
    demo.signal("-INT");
    let (_, took) = demo.ended();
    // The time is the promise: waiting for the calls would take sixteen seconds.
    assert!(took < Duration::from_secs(12), "{took:?}");
    assert!(demo.folders().is_empty());
}

#[test]
fn a_second_signal_leaves_nothing_behind_either() {
    let mut demo = Demo::start(&[]);
    let params = json!({"name": "tracker__weekly_report", "arguments": {"seconds": 20}});
    let _call = demo.agent("reader").open("tools/call", params);
    demo.signal("-INT");
    demo.signal("-INT");
    demo.ended();
    assert!(demo.folders().is_empty(), "{:?}", demo.folders());
}

#[test]
fn a_port_in_use_is_reported_and_another_one_used() {
    // If the port is already in use, that is just as good.
    let _taken = TcpListener::bind("127.0.0.1:7410");
    let home = tempfile::tempdir().unwrap();
    let mut command = command(home.path());
    command.args(["demo", "--page-port", "0"]);
    let demo = Demo::of(command, home);
    assert!(demo.printed.contains("127.0.0.1:7410 is in use"), "{}", demo.printed);
    assert_ne!(demo.port(), 7410);
    assert_eq!(demo.agent("visitor").list().len(), 2);
}

#[test]
fn a_port_that_was_asked_for_is_taken_or_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for flag in ["--port", "--page-port"] {
        let home = tempfile::tempdir().unwrap();
        let other = if flag == "--port" { "--page-port" } else { "--port" };
        let words = ["demo", flag, &port, other, "0"];
        let output = command(home.path()).args(words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{said}");
        assert!(said.contains(&format!("choose another port with {flag}")), "{said}");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_demo_that_cannot_start_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mut command = command(home.path());
    command.args(["demo", "--port", "0", "--page-port", "0"]).env("TOOLWARD_ALLOWED_TOOLS", "!x");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn the_policy_is_a_file_that_can_be_edited() {
    let demo = Demo::start(&[]);
    let visitor = demo.agent("visitor");
    assert_eq!(visitor.list(), ["tracker__search_issues", "tracker__get_issue"]);
    let file = demo.folder().join("policy.yaml");
    let policy = std::fs::read_to_string(&file).unwrap();
    let changed = policy.replace("[search_issues, get_issue]", "[search_issues, close_issue]");
    assert_ne!(policy, changed);
    std::fs::write(&file, &changed).unwrap();
    eventually("the list changes", || {
        (visitor.list() == ["tracker__search_issues", "tracker__close_issue"]).then_some(())
    });
    // The policy's own tests prevent a mistake from reaching the agents.
    std::fs::write(&file, changed.replace("[board.clear]", "[board.show]")).unwrap();
    eventually("it is refused", || {
        demo.said().contains("1 test of the policy failed").then_some(())
    });
    assert_eq!(visitor.list(), ["tracker__search_issues", "tracker__close_issue"]);
}

/// Runs the program on its own terminal until it has printed how to end it, then closes the terminal.
/// Prints the output, and waits for the exit.
const TERMINAL: &str = "
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
said = b''
while b'Ctrl-C stops' not in said:
    said += os.read(terminal, 4096)
os.close(terminal)
os.waitpid(pid, 0)
sys.stdout.buffer.write(said)
";

#[test]
fn it_ends_with_its_terminal() {
    let home = tempfile::tempdir().unwrap();
    let words = ["demo", "--port", "0", "--page-port", "0"];
    let run = |plain: Option<&str>| {
        let mut python = std::process::Command::new("python3");
        python.args(["-c", TERMINAL, super::running::PROGRAM]).args(words);
        python.env("TMPDIR", home.path()).env("TERM", "xterm").env_remove("NO_COLOR");
        python.envs(plain.map(|value| ("NO_COLOR", value)));
        let output = python.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run(None).contains('\u{1b}'));
    assert!(!run(Some("1")).contains('\u{1b}'));
}

#[test]
fn the_facts_come_as_json_too() {
    let demo = Demo::start(&["--json"]);
    let facts: Value = serde_json::from_str(&demo.printed).unwrap();
    assert_eq!(demo.printed.lines().count(), 1);
    let names: Vec<&Value> =
        facts["agents"].as_array().unwrap().iter().map(|agent| &agent["name"]).collect();
    assert_eq!(names, ["reader", "maintainer", "visitor"]);
    let folder = std::path::Path::new(facts["folder"].as_str().unwrap());
    assert_eq!(facts["policy"], folder.join("policy.yaml").to_str().unwrap());
    assert_eq!(facts["config"], folder.join("toolward.yaml").to_str().unwrap());
    let mcp = facts["mcp"].as_str().unwrap();
    for line in facts["curl"].as_array().unwrap() {
        assert!(line["run"].as_str().unwrap().contains(mcp), "{line}");
        // One of them waits for a person (`a_call_waits_until_a_person_approves_it`).
        if !line["run"].as_str().unwrap().contains("close_issue") {
            super::running::answer(line["run"].as_str().unwrap(), demo.home.path());
        }
    }
    assert!(facts["page"].as_str().unwrap().contains("/?token="), "{facts}");
    assert_eq!(facts["clients"]["cursor"]["mcpServers"]["toolward-demo"]["url"], mcp);
}
