//! `toolward init`, `uninit` and `doctor` as programs, and a client that starts what `init` wrote.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "init/doctor.rs"]
mod doctor;
#[path = "init/entries.rs"]
mod entries;
#[path = "init/left_alone.rs"]
mod left_alone;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

const SECRET: &str = "sk-live-0123456789abcdef0123";

/// A home directory with a client that has one server.
struct Home {
    directory: TempDir,
}

impl Home {
    fn new() -> Home {
        let home = Home { directory: tempfile::tempdir().unwrap() };
        // Leaves what it was started with, and is a server then.
        let script = format!(
            "#!/bin/sh\nprintf '%s\\n' \"$@\" \"TOKEN=$TOKEN\" \"MOVED=$TOOLWARD_ARG_2\" > {}\nexec {} demo-server tracker\n",
            home.path("started").display(),
            env!("CARGO_BIN_EXE_toolward"),
        );
        std::fs::write(home.path("server"), script).unwrap();
        std::fs::set_permissions(home.path("server"), std::fs::Permissions::from_mode(0o700))
            .unwrap();
        let entry = json!({
            "command": home.path("server"),
            "args": ["--api-key", SECRET, "two words"],
            "env": {"TOKEN": "t-0123456789"},
        });
        std::fs::create_dir(home.path(".cursor")).unwrap();
        let content = format!("// mine\n{:#}\n", json!({"mcpServers": {"tracker": entry}}));
        std::fs::write(home.file(), content).unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.path(".cursor/mcp.json")
    }

    fn content(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap()
    }

    fn entry(&self) -> Value {
        let content = self.content();
        let json = content.trim_start_matches("// mine\n");
        serde_json::from_str::<Value>(json).unwrap()["mcpServers"]["tracker"].clone()
    }

    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_toolward"))
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.directory.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = [stdout, stderr].concat();
        (status.code().unwrap_or(-1), String::from_utf8(said).unwrap())
    }

    fn is_untouched(&self, before: &str) {
        assert_eq!(self.content(), before);
        assert!(!self.path(".config").exists() && !self.path(".local").exists());
    }
}

#[test]
fn without_a_terminal_and_without_yes_the_plan_is_printed_and_nothing_changes() {
    let home = Home::new();
    let before = home.content();
    let (code, said) = home.run(&["init"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("tracker: wrapped as the server `tracker`"), "{said}");
    assert!(
        said.contains("nothing was changed: there is no terminal to ask on; use --yes"),
        "{said}"
    );
    home.is_untouched(&before);
}

#[test]
fn a_dry_run_shows_the_changed_lines_with_values_masked() {
    let home = Home::new();
    let before = home.content();
    let (code, said) = home.run(&["init", "--dry-run"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("-         \"--api-key\"") && said.contains("+ ") && said.contains("\"…\""),
        "{said}"
    );
    assert!(!said.contains(SECRET) && !said.contains("t-0123456789"), "{said}");
    home.is_untouched(&before);
}

#[test]
fn what_init_writes_is_a_server_with_its_own_tool_names() {
    let home = Home::new();
    let before = home.content();
    let (code, said) = home.run(&["doctor"]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("tracker: direct\n    help: run `toolward init --client cursor`"),
        "{said}"
    );
    let (code, said) = home.run(&["init", "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains(SECRET), "{said}");
    let (code, said) = home.run(&["doctor"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("1 server protected"), "{said}");
    assert!(said.contains("  tracker: wrapped, 9 tools\n"), "{said}");
    assert!(
        said.contains("Cursor has not connected yet\n    next: turn the servers off"),
        "{said}"
    );
    let config = std::fs::read_to_string(home.path(".config/toolward/toolward.yaml")).unwrap();
    assert!(!config.contains(SECRET) && config.contains("${TOOLWARD_ARG_2}"), "{config}");
    assert!(home.content().starts_with("// mine\n"));

    // Commands work without the variables that only the client sets.
    let (code, said) = home.run(&["check"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = home.run(&["ls", "--as", "cursor"]);
    assert!(
        code != 3
            && said.contains(
                "the tools of tracker are not known: the variable `TOOLWARD_ARG_2` is not set"
            ),
        "{said}"
    );

    let entry = home.entry();
    let args = json!(["stdio", "--agent", "cursor", "--server", "tracker"]);
    assert_eq!(entry["args"], args, "{entry}");
    let answers = start_as_the_client_does(&entry, home.directory.path());
    let tools = answers[1]["result"]["tools"].as_array().unwrap().iter();
    let names: Vec<&str> = tools.map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"get_issue"), "{names:?}");
    // The program got what its client gave it, and nothing of Toolward's.
    let started = std::fs::read_to_string(home.path("started")).unwrap();
    assert_eq!(started, format!("--api-key\n{SECRET}\ntwo words\nTOKEN=t-0123456789\nMOVED=\n"));
    assert!(home.path(".local/state/toolward/audit/audit.jsonl").exists());
    assert!(!home.path(".config/toolward/audit").exists());
    let (code, said) = home.run(&["audit", "query", "--json"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("\"cursor\""), "{said}");

    let (code, said) = home.run(&["doctor", "--offline"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("  tracker: wrapped, last used "), "{said}");
    assert!(said.contains("Cursor has connected: 1 call of 1 tool, 0 refused"), "{said}");
    let next = "nothing is denied to it yet. `toolward learn --as cursor` proposes rules for them";
    assert!(said.contains(next), "{said}");
    let (code, said) = home.run(&["doctor"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("nothing is denied to it yet. The listed ones are read-only."), "{said}");

    let (code, said) = home.run(&["uninit", "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(home.content(), before);
    assert!(!home.path(".config/toolward/toolward.yaml").exists());
    let (code, said) = home.run(&["uninit", "--yes"]);
    assert_eq!((code, said.as_str()), (0, "there is nothing to undo\n"));
}

/// Starts an entry exactly as written; returns the answers to `initialize`, `tools/list` and a call.
fn start_as_the_client_does(entry: &Value, home: &Path) -> Vec<Value> {
    let args = entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    let env = entry["env"].as_object().unwrap().iter();
    let mut child = Command::new(entry["command"].as_str().unwrap())
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(env.map(|(name, value)| (name, value.as_str().unwrap())))
        .env("HOME", home)
        .current_dir(Path::new("/"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut answers: Vec<Value> = Vec::new();
    let client = json!({"name": "cursor", "version": "1"});
    let initialize =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let mut ask = |method: &str, params: Value| {
        let id = answers.len();
        writeln!(
            stdin,
            "{}",
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        )
        .unwrap();
        let answer = loop {
            let line = lines.next().unwrap().unwrap();
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == id {
                break answer;
            }
        };
        answers.push(answer);
    };
    ask("initialize", initialize);
    ask("tools/list", json!({}));
    ask("tools/call", json!({"name": "get_issue", "arguments": {"number": 1}}));
    drop(stdin);
    assert!(child.wait().unwrap().success());
    answers
}

#[test]
fn unknown_clients_are_refused_with_the_nearest_name() {
    let home = Home::new();
    for command in ["init", "uninit", "doctor"] {
        let (code, said) = home.run(&[command, "--client", "cursr"]);
        assert_eq!(code, 2);
        assert!(
            said.contains("no client is named `cursr`") && said.contains("did you mean `cursor`?"),
            "{said}"
        );
    }
}

#[test]
fn a_file_at_another_place_is_remembered() {
    let home = Home::new();
    let moved = home.path("elsewhere.json");
    std::fs::rename(home.file(), &moved).unwrap();
    let before = std::fs::read_to_string(&moved).unwrap();
    let named = format!("cursor={}", moved.display());
    let (code, said) = home.run(&["init", "--yes", "--path", &named, "--json"]);
    assert_eq!(code, 0, "{said}");
    let plan: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(plan["files"][0]["entries"][0]["state"], "wrap", "{plan}");
    let (code, said) = home.run(&["doctor", "--json"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("elsewhere.json"), "{said}");
    assert_eq!(home.run(&["uninit", "--yes"]).0, 0);
    assert_eq!(std::fs::read_to_string(&moved).unwrap(), before);
}
