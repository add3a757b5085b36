//! A directory with an audit log, the gateway that writes it, and the program that reads it.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/server.py");

pub struct Log {
    folder: tempfile::TempDir,
    config: Value,
}

/// The output of a command.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// One object per line.
    pub fn rows(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// All findings of `verify --json`.
    pub fn findings(&self) -> Vec<Value> {
        let report = self.json();
        let streams = report["streams"].as_array().unwrap().iter();
        streams.flat_map(|stream| stream["findings"].as_array().unwrap().clone()).collect()
    }
}

impl Log {
    pub fn new() -> Log {
        let log = Log { folder: tempfile::tempdir().unwrap(), config: json!({}) };
        let tools = json!(["read", "write", "crash", "hang", "hidden"]);
        let tools: Vec<Value> = tools
            .as_array()
            .unwrap()
            .iter()
            .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
            .collect();
        std::fs::write(log.path("tools.json"), json!(tools).to_string()).unwrap();
        let arguments = json!([SERVER, log.path("server.log"), log.path("tools.json")]);
        let write = json!({"tool": "write", "when": "args.path.startsWith(\"/srv/\")"});
        let tools = json!({"s": ["read", "hang", "crash", write]});
        let allow = json!({"servers": ["*"], "tools": tools});
        let config = json!({
            "admin": "off",
            "state": "state",
            "audit": {"dir": "audit"},
            "servers": {"s": {"command": "python3", "args": arguments}},
            "agents": {"dev": {"allow": allow}, "other": {"allow": allow}},
        });
        Log { config, ..log }
    }

    /// An audit log with every kind of record that a small session writes.
    pub fn small() -> Log {
        let log = Log::new();
        let mut client = log.client("dev");
        client.list();
        client.call("read", json!({"path": "/x"}));
        client.call("write", json!({"path": "/etc"}));
        client.call("hidden", json!({}));
        client.call("write", json!({"path": "/srv/a"}));
        client.close();
        log
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path("audit").join(name)
    }

    /// Adds keys of `audit` to the configuration.
    pub fn audit(mut self, key: &str, value: Value) -> Log {
        self.config["audit"][key] = value;
        self
    }

    pub fn allow(&mut self, tools: Value) {
        self.config["agents"]["dev"]["allow"]["tools"]["s"] = tools;
    }

    /// Writes the configuration to where the gateway reads it.
    pub fn save(&self) {
        std::fs::write(self.path("toolward.yaml"), self.config.to_string()).unwrap();
    }

    /// The gateway, and a client after its handshake.
    pub fn client(&self, agent: &str) -> Client {
        let config = self.path("toolward.yaml");
        self.save();
        let mut child = Command::new(env!("CARGO_BIN_EXE_toolward"))
            .args(["stdio", "--agent", agent, "-c"])
            .arg(&config)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut client = Client { child, answers };
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        assert!(client.ask("initialize", params)["result"].is_object());
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    /// A command that reads the audit log.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolward"));
        command.args(words).arg("--dir").arg(self.path("audit"));
        command.env_clear().env("HOME", "/proc/nonexistent").stdin(Stdio::null());
        command
    }

    pub fn run(&self, words: &[&str]) -> Said {
        said(self.command(words))
    }

    pub fn verify(&self) -> Said {
        self.run(&["audit", "verify", "--json"])
    }

    /// The lines of a log file.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(String::from).collect()
    }

    pub fn write(&self, name: &str, lines: &[String]) {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(self.file(name), text).unwrap();
    }

    pub fn records(&self, name: &str) -> Vec<Value> {
        self.lines(name).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// All segments of the first stream, in order.
    pub fn segments(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("audit")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("audit-")).collect();
        names.sort();
        names
    }
}

pub fn said(mut command: Command) -> Said {
    let output = command.output().unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

pub fn hash(line: &str) -> String {
    Sha256::digest(line).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A client of one gateway.
pub struct Client {
    pub child: Child,
    answers: BufReader<ChildStdout>,
}

impl Client {
    pub fn send(&mut self, message: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            self.answers.read_line(&mut line).unwrap();
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == 7 {
                return answer;
            }
        }
    }

    pub fn list(&mut self) -> Value {
        self.ask("tools/list", json!({}))
    }

    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": format!("s__{tool}"), "arguments": arguments}))
    }

    /// Shuts the gateway down gracefully.
    pub fn close(mut self) {
        self.child.stdin = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
