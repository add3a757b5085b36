//! The real clients, the real servers, and the connections between them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::harness::{Gate, Setup, setup};

const DRIVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real");
const RMCP: &str = "rmcp/release/rmcp-client";

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Client {
    Python,
    TypeScript,
    Inspector,
    Rust,
}

/// A client's target.
#[derive(Debug)]
pub enum At {
    Command(Vec<String>),
    Url { url: String, token: String },
}

pub struct Peers(PathBuf);

/// Whether to run every combination, however long it takes.
pub fn full() -> bool {
    let full = std::env::var_os("TOOLWARD_FULL").is_some_and(|value| value == "1");
    if !full {
        eprintln!("skipped: ./test --full runs every client with every server");
    }
    full
}

/// The directory that `./test` has installed them into.
pub fn peers() -> Option<Peers> {
    let peers = std::env::var_os("TOOLWARD_PEERS").map(|folder| Peers(folder.into()));
    if peers.is_none() {
        eprintln!("skipped: ./test installs real servers and clients, and sets TOOLWARD_PEERS");
    }
    peers
}

impl Peers {
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Only `./test --full` builds the Rust client.
    pub fn has(&self, client: Client) -> bool {
        let has = client != Client::Rust || self.file(RMCP).exists();
        if !has {
            eprintln!("skipped: ./test --full builds the Rust client");
        }
        has
    }

    /// The output of a client: `revision`, `server`, `tools`, `calls` and `progress`. The mode is
    /// `--legacy`, `--modern`, `--auto`, or empty, in which case the client chooses.
    pub fn see(&self, client: Client, mode: &str, calls: &Value, at: &At) -> Value {
        let driver = |name: &str| Path::new(DRIVERS).join(name).into_os_string();
        let (program, script) = match client {
            Client::Python => ("python/bin/python", Some(driver("client.py"))),
            Client::TypeScript => ("node", Some(driver("client.mjs"))),
            Client::Inspector => ("node", Some(driver("inspector.mjs"))),
            Client::Rust => (RMCP, None),
        };
        let mut command = Command::new(self.file(program));
        command.args(script).arg(calls.to_string());
        command.args(Some(mode).filter(|mode| !mode.is_empty()));
        match at {
            At::Command(words) => command.arg("--stdio").args(words),
            At::Url { url, token } => command.args(["--url", url, "--token", token]),
        };
        let output = command.stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{client:?} {mode} at {at:?}: {stderr}");
        let mut seen: Value = serde_json::from_slice(&output.stdout).unwrap();
        // The gateway does not request clients' roots yet, and this server offers the tool only to
        // clients that have some. One of the four clients does.
        if client == Client::Inspector {
            let tools = seen["tools"].as_array_mut().unwrap();
            tools.retain(|tool| tool["name"] != "get-roots-list");
        }
        seen
    }
}

/// Servers on stdio, in the order in which they are configured.
pub const SERVERS: [&str; 5] = ["everything", "files", "git", "memory", "time"];

/// The files that the servers work on.
pub struct Work {
    folder: tempfile::TempDir,
    peers: Peers,
}

impl Work {
    pub fn new(peers: Peers) -> Work {
        Work { folder: tempfile::tempdir().unwrap(), peers }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Restores the files that calls may have changed.
    pub fn renew(&self) {
        for folder in ["files", "repository"] {
            let _ = std::fs::remove_dir_all(self.path(folder));
            std::fs::create_dir(self.path(folder)).unwrap();
        }
        let _ = std::fs::remove_file(self.path("memory.jsonl"));
        std::fs::write(self.path("files/a.txt"), "grüße\r\n\u{1f980}").unwrap();
        std::fs::write(self.path("repository/a.txt"), "text\n").unwrap();
        let commit = ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "first"];
        for words in [&["init", "-q", "-b", "main"][..], &["add", "a.txt"], &commit] {
            let git = Command::new("git")
                .args(words)
                .current_dir(self.path("repository"))
                .env("GIT_AUTHOR_DATE", "2026-01-01T00:00:00Z")
                .env("GIT_COMMITTER_DATE", "2026-01-01T00:00:00Z")
                .status();
            assert!(git.unwrap().success());
        }
        std::fs::write(self.path("repository/a.txt"), "changed\n").unwrap();
    }

    pub fn command(&self, server: &str) -> Vec<String> {
        let memory = format!("MEMORY_FILE_PATH={}", self.path("memory.jsonl").display());
        let npm = |name: &str| self.peers.file(&format!("node_modules/.bin/mcp-server-{name}"));
        let pypi = |name: &str| self.peers.file(&format!("python/bin/{name}"));
        let plain = Path::new(DRIVERS).join("plain.py");
        let bin = |name: &str| self.peers.file(&format!("node_modules/.bin/{name}"));
        let env = || PathBuf::from("/usr/bin/env");
        let sdk = self.peers.file("sdk/2025-11-25");
        let sqlite =
            format!("PYTHONPATH={}:{}", sdk.display(), self.peers.file("sqlite").display());
        let run_sqlite = "from mcp_server_sqlite import main; main()";
        let home = format!("HOME={}", self.path("home").display());
        let words = match server {
            "everything" => vec![npm("everything")],
            "files" => vec![npm("filesystem"), self.path("files")],
            "memory" => vec![env(), memory.into(), npm("memory")],
            "sqlite" => vec![
                env(),
                sqlite.into(),
                pypi("python"),
                "-c".into(),
                run_sqlite.into(),
                "--db-path".into(),
                self.path("sqlite.db"),
            ],
            "fetch" => vec![pypi("mcp-server-fetch"), "--allow-private-ips".into()],
            "workflow" => vec![bin("git-mcp-server")],
            "budget" => vec![bin("mcp-budget-allocator-server"), "--stdio".into()],
            "mongodb" => vec![
                env(),
                home.into(),
                "MDB_MCP_TELEMETRY=disabled".into(),
                self.peers.file("node"),
                self.peers.file("mongodb/node_modules/.bin/mongodb-mcp-server"),
            ],
            "plain" => vec![pypi("python"), plain],
            _ => vec![pypi(&format!("mcp-server-{server}"))],
        };
        words.into_iter().map(|word| word.to_str().unwrap().to_string()).collect()
    }

    /// The calls that a client makes; the slowest client makes few.
    pub fn calls(&self, client: Client, server: &str) -> Value {
        let mut calls = self.all_calls(server);
        if client == Client::Inspector {
            calls.as_array_mut().unwrap().truncate(2);
        }
        calls
    }

    /// Valid and invalid calls, some of which change files. No result contains times or paths.
    fn all_calls(&self, server: &str) -> Value {
        let file = |name: &str| self.path("files").join(name);
        let repository = self.path("repository");
        match server {
            "everything" => json!([
                ["echo", {"message": "grüße \u{1f980}"}],
                ["get-sum", {"a": 1, "b": 2.5}],
                ["get-tiny-image", {}],
                ["get-structured-content", {"location": "New York"}],
                ["get-annotated-message", {"messageType": "error", "includeImage": true}],
                ["get-resource-links", {"count": 2}],
                ["get-sum", {"a": "wrong"}],
                ["trigger-long-running-operation", {"duration": 1, "steps": 2}],
            ]),
            "files" => json!([
                ["read_text_file", {"path": file("a.txt")}],
                ["write_file", {"path": file("b.txt"), "content": "b\u{0}\n"}],
                ["list_directory", {"path": self.path("files")}],
                ["read_text_file", {"path": "/etc/passwd"}],
            ]),
            "git" => json!([
                ["git_log", {"repo_path": repository, "max_count": 1}],
                ["git_create_branch", {"repo_path": repository, "branch_name": "new"}],
                ["git_diff_unstaged", {"repo_path": repository}],
                ["git_status", {"repo_path": "/nonexistent"}],
            ]),
            "memory" => json!([
                ["create_entities", {"entities": [
                    {"name": "a", "entityType": "t", "observations": ["first", "grüße"]}]}],
                ["read_graph", {}],
                ["search_nodes", {"query": "nothing like it"}],
                ["add_observations", {"observations": [{"entityName": "b", "contents": []}]}],
            ]),
            "time" => json!([
                ["convert_time", {
                    "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}],
                ["convert_time", {}],
            ]),
            _ => json!([["add", {"a": 1, "b": 2}], ["add", {"a": "wrong"}]]),
        }
    }

    /// The output of a client whose calls may change the files.
    pub fn see(&self, client: Client, mode: &str, calls: &Value, at: &At) -> Value {
        self.renew();
        self.peers.see(client, mode, calls, at)
    }

    pub fn direct(&self, client: Client, mode: &str, server: &str) -> Value {
        let at = At::Command(self.command(server));
        self.see(client, mode, &self.calls(client, server), &at)
    }

    /// A server behind `toolward wrap`.
    pub fn wrapped(&self, flags: &[&str], server: &str) -> At {
        let audit = self.path("audit");
        let program = env!("CARGO_BIN_EXE_toolward");
        let words = [program, "wrap", "--audit", audit.to_str().unwrap(), "--name", server];
        let words = words.iter().chain(flags).chain(&["--"]).map(|word| word.to_string());
        At::Command(words.chain(self.command(server)).collect())
    }

    /// A policy file's path.
    pub fn policy(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).to_str().unwrap().into()
    }

    /// A configuration with these servers.
    pub fn setup(&self, servers: &[&str]) -> Setup {
        self.renew();
        // Many start at once, on a busy machine.
        let patient = setup().set("list_timeout", json!("60s"));
        servers.iter().fold(patient, |setup, server| {
            let command = self.command(server);
            setup.server(server, json!({"command": command[0], "args": command[1..]}))
        })
    }

    /// server-everything over HTTP, on a free loopback port.
    pub fn everything_on_http(&self, transport: &str) -> Web {
        let node = self.peers.file("node");
        Web::start(
            Command::new(node)
                .arg("--require")
                .arg(Path::new(DRIVERS).join("loopback.cjs"))
                .arg(self.peers.file("node_modules/.bin/mcp-server-everything"))
                .arg(transport)
                .env("PORT", "0"),
        )
    }

    /// An HTTP server of both protocol versions, whose tools have no annotations.
    pub fn plain_on_http(&self) -> Web {
        let command = self.command("plain");
        Web::start(Command::new(&command[0]).arg(&command[1]).arg("http"))
    }
}

/// A listening server.
pub struct Web {
    child: Child,
    port: u16,
}

impl Web {
    fn start(command: &mut Command) -> Web {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
            line.strip_prefix("loopback port ").and_then(|port| port.parse().ok())
        });
        // It continues to write.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Web { child, port: port.unwrap() }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn at(&self, path: &str) -> At {
        At::Url { url: self.url(path), token: "none".into() }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client target for an agent of a gateway.
pub fn place(gate: &Gate, agent: &str, path: &str) -> At {
    let url = format!("http://127.0.0.1:{}{path}", gate.port);
    At::Url { url, token: format!("token-of-agent-{agent}") }
}

/// Calls with the names of the endpoint for all servers.
pub fn named(server: &str, calls: &Value) -> Vec<Value> {
    let calls = calls.as_array().unwrap().iter();
    calls.map(|call| json!([format!("{server}__{}", call[0].as_str().unwrap()), call[1]])).collect()
}

/// The names of the tools that a client lists.
pub fn tools_of(seen: &Value) -> Vec<&str> {
    seen["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}
