//! A running gateway.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::*;
use crate::audit_log::witness;

/// A running gateway.
pub struct Gate {
    pub child: Option<Child>,
    pub port: u16,
    /// Its standard error.
    pub said: Arc<Mutex<String>>,
    /// Refusals that were counted by [`Gate::refusal`].
    pub(super) refusals: Cell<usize>,
    pub setup: Setup,
}

impl Gate {
    /// Starts the gateway, or restarts it with the same files.
    pub fn restart(&mut self) {
        self.kill();
        let mut child = self
            .setup
            .command(&["serve"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        self.child = Some(child);
        let said = self.said.clone();
        said.lock().unwrap().clear();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let mut said = said.lock().unwrap();
                said.push_str(&line);
                said.push('\n');
            }
        });
        self.port = eventually("the gateway listens", || {
            let said = self.said.lock().unwrap();
            let (_, address) = said.split_once("listening on http")?;
            address.split_once("/mcp")?.0.rsplit(':').next()?.parse().ok()
        });
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Waits for the exit; returns the exit code.
    pub fn ended(&mut self) -> i32 {
        let child = self.child.as_mut().unwrap();
        let status = eventually("the gateway ends", || child.try_wait().unwrap());
        status.code().unwrap_or(-1)
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.port)
    }

    /// One exchange on its own connection.
    pub fn raw(&self, bytes: impl AsRef<[u8]>) -> Reply {
        let mut connection = self.connect();
        connection.send(bytes.as_ref());
        connection.reply()
    }

    /// A client with an agent's token.
    pub fn agent(&self, name: &str) -> Agent {
        Agent {
            port: self.port,
            token: Some(format!("token-of-agent-{name}")),
            path: "/mcp".into(),
        }
    }

    pub fn nobody(&self) -> Agent {
        Agent { port: self.port, token: None, path: "/mcp".into() }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.setup.path(name)
    }

    pub fn records(&self) -> Vec<Value> {
        crate::audit_log::decisions(&self.file("audit"))
    }

    /// The messages that reached a server.
    pub fn log(&self, server: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.file(&format!("{server}.log"))).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Messages with this method that reached a server.
    pub fn heard(&self, server: &str, method: &str) -> Vec<Value> {
        let bodies = self.log(server);
        let bodies = bodies.iter().filter_map(|entry| entry["body"].as_str());
        let messages = bodies.filter_map(|body| serde_json::from_str(body).ok());
        messages.filter(|message: &Value| message["method"] == method).collect()
    }

    pub fn calls(&self, server: &str) -> Vec<Value> {
        self.heard(server, "tools/call")
    }

    /// Checks that a response is a refusal with exactly one audit record; returns its message.
    pub fn refusal(&self, answer: &Value) -> Value {
        let listed = answer["result"].is_object();
        let data = if listed {
            assert_eq!(answer["result"]["isError"], true, "{answer}");
            assert!(answer["result"].get("structuredContent").is_none(), "{answer}");
            &answer["result"]["_meta"]["io.toolward/refusal"]
        } else {
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
            assert_eq!(answer["error"]["message"], answer["error"]["data"]["message"], "{answer}");
            &answer["error"]["data"]
        };
        assert_eq!(data["error"], "tool_not_allowed", "{answer}");
        assert_eq!(data["retryable"], false, "{answer}");
        self.refusals.set(self.refusals.get() + 1);
        let records = self.records();
        let refusals: Vec<_> = records.iter().filter(|one| one["kind"] == "refusal").collect();
        assert_eq!(refusals.len(), self.refusals.get(), "one record a refusal: {answer}");
        let record = refusals.last().unwrap();
        assert_eq!(record["id"], data["decision_id"]);
        assert_eq!((&record["verdict"], &record["listed"]), (&json!("deny"), &json!(listed)));
        data.clone()
    }

    /// Child processes of the gateway, without the guard process.
    pub fn children(&self) -> Vec<u32> {
        let own = self.child.as_ref().unwrap().id();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let rest = stat.rsplit(')').next().unwrap_or_default();
            let mut fields = rest.split_whitespace();
            let state = fields.next();
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let is_guard = line.ends_with(b"\0guard\0");
            state != Some("Z") && fields.next() == Some(&own.to_string()) && !is_guard
        })
        .collect()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.kill();
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "the gateway said:\n{}", self.said.lock().unwrap());
            return;
        }
        self.child.as_mut().into_iter().for_each(witness::end);
        let said = self.said.lock().unwrap().clone();
        self.setup.asked(&said);
        let audit = self.setup.config["audit"]["dir"].as_str().unwrap_or("audit");
        witness::are_counted(self.port, &self.setup.path(audit), &said);
    }
}
