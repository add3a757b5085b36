//! A running demo, and its output.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{MODERN, modern_body};
use crate::wire::Connection;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_toolward");

/// The program with a clean environment.
pub fn command(home: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("TMPDIR", home)
        .stdin(Stdio::null());
    command
}

pub struct Demo {
    pub child: Child,
    /// Everything that it printed.
    pub printed: String,
    /// The directory for temporary files.
    pub home: tempfile::TempDir,
}

impl Demo {
    /// A demo on free ports, with additional arguments.
    pub fn start(arguments: &[&str]) -> Demo {
        let home = tempfile::tempdir().unwrap();
        let mut command = command(home.path());
        command.args(["demo", "--port", "0", "--page-port", "0"]).args(arguments);
        Demo::of(command, home)
    }

    pub fn of(mut command: Command, home: tempfile::TempDir) -> Demo {
        let stderr = std::fs::File::create(home.path().join("stderr")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut printed = String::new();
        // The last line explains how to end it; in JSON there is only one line.
        while !printed.contains("Ctrl-C stops") && !printed.starts_with('{') {
            if lines.read_line(&mut printed).unwrap() == 0 {
                let said = std::fs::read_to_string(home.path().join("stderr")).unwrap();
                panic!("it did not start: {said}");
            }
        }
        // Further output is drained, so that nothing blocks.
        std::thread::spawn(move || {
            let mut rest = String::new();
            let _ = lines.read_to_string(&mut rest);
        });
        Demo { child, printed, home }
    }

    /// The line to copy after a comment that contains these words.
    pub fn line(&self, about: &str) -> &str {
        line(&self.printed, about)
    }

    /// The token of an agent, from the table.
    pub fn token(&self, agent: &str) -> &str {
        let mut rows = self.printed.lines().map(|line| line.split_whitespace());
        let found = rows.find_map(|mut words| (words.next() == Some(agent)).then(|| words.next()));
        found.flatten().unwrap()
    }

    /// The word after the name of an address.
    pub fn address(&self, name: &str) -> &str {
        let mut rows = self.printed.lines().map(str::trim_start);
        rows.find_map(|row| row.strip_prefix(name)?.split_whitespace().next()).unwrap()
    }

    pub fn port(&self) -> u16 {
        let address = self.address("MCP").strip_suffix("/mcp").unwrap();
        address.rsplit(':').next().unwrap().parse().unwrap()
    }

    pub fn folder(&self) -> PathBuf {
        Path::new(self.address("Policy")).parent().unwrap().into()
    }

    pub fn agent(&self, name: &str) -> Agent {
        Agent { port: self.port(), token: self.token(name).into() }
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(self.home.path().join("stderr")).unwrap()
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Waits for the exit; returns the exit code and the time it took.
    pub fn ended(&mut self) -> (Option<i32>, Duration) {
        let begun = Instant::now();
        let status = crate::harness::eventually("the demo ends", || self.child.try_wait().unwrap());
        (status.code(), begun.elapsed())
    }

    /// Threads of the demo's servers that handle a call, without the reading ones.
    pub fn busy_threads(&self) -> usize {
        let own = self.child.id().to_string();
        let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let servers = processes.filter(|path| {
            let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().nth(1) == Some(&own)
        });
        let counts: Vec<usize> = servers
            .filter_map(|path| Some(std::fs::read_dir(path.join("task")).ok()?.count()))
            .collect();
        counts.iter().sum::<usize>() - counts.len()
    }

    /// Existing demo directories.
    pub fn folders(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.home.path()).unwrap().flatten();
        let hidden = |path: &PathBuf| path.file_name().unwrap().as_encoded_bytes()[0] == b'.';
        entries.map(|entry| entry.path()).filter(|path| path.is_dir() && !hidden(path)).collect()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        crate::audit_log::witness::end(&mut self.child);
        if std::thread::panicking() {
            eprintln!("the demo printed:\n{}\nand said:\n{}", self.printed, self.said());
        }
    }
}

/// The text after a comment that contains these words, up to the next empty line.
pub fn line<'p>(printed: &'p str, about: &str) -> &'p str {
    let comments = printed.split("\n# ").skip(1).filter_map(|block| block.split_once('\n'));
    let mut found = comments.filter(|(comment, _)| comment.contains(about));
    let (_, rest) = found.next().unwrap_or_else(|| panic!("no line about {about}: {printed}"));
    rest.split("\n\n").next().unwrap().trim_end()
}

/// Runs a printed line in a shell.
pub fn shell(line: &str, home: &Path, path: Option<&Path>) -> Output {
    let path = path.map(|path| format!("{}:", path.display())).unwrap_or_default();
    let path = format!("{path}{}", std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", line]).env_clear().env("PATH", path).env("HOME", home);
    command.current_dir(home).stdin(Stdio::null()).output().unwrap()
}

/// The output of a line, which must succeed.
pub fn answer(line: &str, home: &Path) -> Value {
    let output = shell(line, home, None);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    // A response that takes long is an event stream.
    let body = String::from_utf8_lossy(&output.stdout);
    let event = body.lines().find_map(|line| line.strip_prefix("data: "));
    serde_json::from_str(event.unwrap_or(&body))
        .unwrap_or_else(|error| panic!("{line}: {error}: {output:?}"))
}

/// One agent of a demo, as a modern client.
pub struct Agent {
    port: u16,
    token: String,
}

impl Agent {
    pub fn open(&self, method: &str, params: Value) -> Connection {
        let body = modern_body(json!(1), method, params);
        let name = body["params"]["name"].as_str();
        let name = name.map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
        let body = body.to_string();
        let mut connection = Connection::open(self.port);
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n{name}\
             Content-Length: {}\r\n\r\n{body}",
            self.port,
            self.token,
            body.len()
        );
        connection.send(request.as_bytes());
        connection
    }

    pub fn ask(&self, method: &str, params: Value) -> Value {
        let reply = self.open(method, params).reply();
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    pub fn call(&self, name: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": name, "arguments": arguments}))
    }

    pub fn list(&self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().into()).collect()
    }
}
