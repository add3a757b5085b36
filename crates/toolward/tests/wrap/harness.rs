//! A wrapped server, and the client that talks to it.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
#[allow(unused_imports)]
pub use toolward_testkit::wait::eventually;

use crate::audit_log;

pub const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/server.py");
/// A value in the client's environment, which must not be in the audit log.
pub const SECRET: &str = "secret-of-the-client";

/// A wrapped server and the client that talks to it.
pub struct Wrapped {
    pub folder: tempfile::TempDir,
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    pub answers: Receiver<String>,
}

/// The flags and files around the scripted server.
pub struct Setup {
    pub policy: &'static str,
    pub tools: Value,
    pub flags: Vec<String>,
    pub page: Option<usize>,
}

pub fn setup(policy: &'static str, tools: Value) -> Setup {
    Setup { policy, tools, flags: Vec::new(), page: None }
}

pub fn names(tools: &[&str]) -> Value {
    tools.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect()
}

impl Setup {
    pub fn start(self) -> Wrapped {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("policy.yaml"), self.policy).unwrap();
        std::fs::write(path("tools.json"), self.tools.to_string()).unwrap();
        std::fs::create_dir(path("audit")).unwrap();
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
            .env("HTTPS_PROXY", "http://127.0.0.1:1")
            .env("TOOLWARD_OTHER", "1")
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

    /// Started, with the handshake completed.
    pub fn ready(self) -> Wrapped {
        let mut wrapped = self.start();
        let hello = wrapped.initialize();
        assert!(hello["result"].is_object(), "{hello}");
        wrapped
    }
}

/// A wrapped server that responded to `initialize` within the one-second limit.
pub fn heard(make: impl Fn() -> Setup, is_so: impl Fn(&Value) -> bool) -> (Wrapped, Value) {
    eventually("the server answers `initialize` within its second", || {
        let mut wrapped = make().start();
        let hello = wrapped.initialize();
        is_so(&hello["result"]).then_some((wrapped, hello))
    })
}

impl Wrapped {
    pub fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        // A program that has exited does not read; a test that waits for a response then fails.
        let _ = stdin.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdin.flush());
    }

    pub fn next(&self) -> Value {
        let line = self.answers.recv_timeout(Duration::from_secs(60)).unwrap();
        let message = serde_json::from_str(&line).unwrap();
        audit_log::witness::received(&message);
        message
    }

    /// The response to this id; notifications before it are skipped.
    pub fn answer(&self, id: &Value) -> Value {
        loop {
            let message = self.next();
            if message["id"] == *id {
                return message;
            }
        }
    }

    pub fn request(&mut self, id: Value, method: &str, params: Value) -> Value {
        self.send(
            &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        );
        self.answer(&id)
    }

    pub fn initialize(&mut self) -> Value {
        let params = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"sampling": {}, "elicitation": {}, "roots": {}},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let answer = self.request(json!(0), "initialize", params);
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        answer
    }

    pub fn list(&mut self) -> Vec<String> {
        let answer = self.request(json!("list"), "tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().into()).collect()
    }

    pub fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.request(json!("call"), "tools/call", json!({"name": name, "arguments": arguments}))
    }

    pub fn text(answer: &Value) -> &str {
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Calls that reached the server.
    pub fn forwarded(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.file("log")).unwrap_or_default();
        log.lines().filter(|line| line.contains("tools/call")).map(String::from).collect()
    }

    pub fn records(&self) -> Vec<Value> {
        audit_log::decisions(&self.file("audit"))
    }

    pub fn kinds(&self) -> Vec<String> {
        let records = audit_log::all(&self.file("audit"));
        records.iter().map(|record| record["kind"].as_str().unwrap().into()).collect()
    }

    /// Closes the client's side; returns the exit code.
    pub fn close(&mut self) -> i32 {
        self.stdin = None;
        let status = eventually("the program ends", || self.child.try_wait().unwrap());
        status.code().unwrap_or(-1)
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
        audit_log::witness::end(&mut self.child);
        let said = std::fs::read_to_string(self.file("stderr")).unwrap_or_default();
        let secrets = vec![SECRET.into(), "hunter2".into()];
        let audit = self.file("audit");
        let ended =
            audit_log::witness::Ended { audit: &audit, secrets, said: &said, unrecorded: false };
        ended.ask();
    }
}
