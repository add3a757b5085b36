//! A slow server is started once: `wrap` and `stdio` wait for its process, and remember what it supports.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::harness::*;

/// A server, the command in front of it, and its client.
#[derive(Debug, Clone, Copy)]
struct Case {
    command: &'static str,
    /// The protocol versions of the server.
    era: &'static str,
    /// The server's reaction to an unknown method.
    unknown: &'static str,
    /// Whether the client probes for the modern protocol version first.
    probes: bool,
    /// The seconds in which the server reads nothing.
    takes: &'static str,
}

impl Case {
    fn all(takes: &'static str) -> Vec<Case> {
        let mut all = Vec::new();
        for (era, unknown) in
            [("legacy", "answer"), ("legacy", "exit"), ("modern", "answer"), ("both", "answer")]
        {
            for command in ["wrap", "stdio"] {
                for probes in [false, true] {
                    all.push(Case { command, era, unknown, probes, takes });
                }
            }
        }
        all
    }

    /// The starts of the server in the first run. Only a process that has ended is replaced.
    fn first(self) -> usize {
        if self.probes && self.unknown == "exit" { 2 } else { 1 }
    }

    fn program(self, folder: &Path) -> Command {
        let path = |name: &str| folder.join(name);
        let server = [
            json!(SERVER),
            json!("stdio"),
            json!(self.era),
            json!(path("log")),
            json!(path("tools")),
        ];
        std::fs::write(path("tools"), names(&["t"]).to_string()).unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_toolward"));
        program.env("HOME", folder).current_dir(folder);
        if self.command == "wrap" {
            program.args(["wrap", "--name", "s"]);
            for (name, value) in self.environment() {
                program.arg("--env").arg(format!("{name}={value}"));
            }
            program.args(["--", "python3"]).args(server.iter().map(|one| one.as_str().unwrap()));
        } else {
            let environment: serde_json::Map<_, _> = self
                .environment()
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect();
            let server = json!({"command": "python3", "args": server, "env": environment});
            let config =
                json!({"servers": {"s": server}, "agents": {"a": {"allow": {"servers": ["s"]}}}});
            std::fs::write(path("toolward.json"), config.to_string()).unwrap();
            program.args(["stdio", "--agent", "a", "-c", "toolward.json"]);
        }
        program
    }

    fn environment(self) -> [(&'static str, &'static str); 2] {
        [("START_TAKES", self.takes), ("UNKNOWN", self.unknown)]
    }

    /// One run: the client calls a tool and leaves. Returns the number of starts of the server so far.
    fn run(self, folder: &Path) -> usize {
        let mut child = self
            .program(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut ask = |message: Value| -> Value {
            writeln!(stdin, "{message}").unwrap();
            loop {
                let line = lines.next().unwrap_or_else(|| panic!("{self:?}: it ended")).unwrap();
                let answer: Value = serde_json::from_str(&line).unwrap();
                if answer["id"] == message["id"] {
                    return answer;
                }
            }
        };
        let terms = json!({
            format!("{META}protocolVersion"): MODERN, format!("{META}clientCapabilities"): {},
            format!("{META}clientInfo"): {"name": "test", "version": "1"},
        });
        let mut modern = self.probes;
        if modern {
            let found = ask(request(json!("probe"), "server/discover", json!({"_meta": terms})));
            modern = found["result"].is_object();
            assert!(modern || found["error"]["code"] == -32601, "{self:?}: {found}");
        }
        if !modern {
            let hello = ask(initialize(LEGACY));
            assert!(hello["result"].is_object(), "{self:?}: {hello}");
        }
        let name = if self.command == "wrap" { "t" } else { "s__t" };
        let mut params = json!({ "name": name });
        if modern {
            params["_meta"] = terms;
        }
        let answer = ask(request(json!("call"), "tools/call", params));
        assert_eq!(text(&answer), "did t", "{self:?}");
        drop(stdin);
        assert!(child.wait().unwrap().success(), "{self:?}");
        let log = std::fs::read_to_string(folder.join("log")).unwrap();
        log.lines().filter(|line| line.contains("\"event\": \"start\"")).count()
    }
}

fn memory(folder: &Path) -> PathBuf {
    folder.join(".local/state/toolward/protocol-versions.json")
}

#[test]
fn a_slow_server_is_started_once_in_every_run() {
    for takes in ["0", "3"] {
        std::thread::scope(|scope| {
            for case in Case::all(takes) {
                scope.spawn(move || {
                    let folder = tempfile::tempdir().unwrap();
                    assert_eq!(case.run(folder.path()), case.first(), "{case:?}: the first run");
                    assert_eq!(case.run(folder.path()), case.first() + 1, "{case:?}: the next run");
                });
            }
        });
    }
}

#[test]
fn the_next_run_lists_before_the_server_has_started() {
    let mut gate = setup()
        .stdio("s", "legacy", names(&["t", "hidden"]))
        .with("s", "env", json!({"START_TAKES": "5"}))
        .agents(json!({"a": {"allow": {"servers": ["s"], "tools": {"s": ["t"]}}}}))
        .start();
    assert_eq!(gate.agent("a").list(), ["s__t"]);
    let lists = gate.setup.path("state/lists");
    let stored = || {
        let files = std::fs::read_dir(&lists).into_iter().flatten().flatten();
        files.map(|file| file.path()).any(|path| path.extension().is_none())
    };
    eventually("the list is stored", stored);
    gate.restart();
    let agent = gate.agent("a");
    assert_eq!(agent.list(), ["s__t"]);
    assert_eq!(gate.heard("s", "tools/list").len(), 1, "the server has not been asked again yet");
    assert_eq!(text(&agent.call("s__t", json!({}))), "did t");
    assert_eq!(gate.heard("s", "tools/list").len(), 2, "the call waited for the server's list");
}

#[test]
fn what_a_server_supports_is_remembered_without_its_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let case = Case { command: "wrap", era: "legacy", unknown: "exit", probes: true, takes: "0" };
    assert_eq!(case.run(folder.path()), 2);
    let path = memory(folder.path());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("legacy") && !text.contains("python3"), "{text}");
    // A file that cannot be read costs one attempt, and is replaced.
    std::fs::write(&path, "{").unwrap();
    assert_eq!(case.run(folder.path()), 4);
    assert_eq!(case.run(folder.path()), 5);
}

#[test]
fn a_server_that_is_still_starting_is_named_in_the_log_once() {
    let folder = tempfile::tempdir().unwrap();
    let case =
        Case { command: "stdio", era: "legacy", unknown: "answer", probes: true, takes: "3" };
    case.run(folder.path());
    let said = std::fs::read_to_string(folder.path().join("stderr")).unwrap();
    let lines: Vec<_> = said.lines().filter(|line| line.contains("still starting")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].contains(" INFO upstream: s: "), "{said}");
}
