//! A gateway with its admin UI, and a browser's requests to it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::harness::{Gate, Setup, eventually};
use super::wire::{Connection, Reply};

/// The agents that have tokens in these tests.
const AGENTS: [&str; 6] = ["a", "b", "reader", "keeper", "bot", "nobody"];

pub struct Site {
    pub gate: Gate,
    pub port: u16,
    pub token: String,
    /// The path of the admin UI, with slashes around it.
    pub path: String,
    pub cookie: String,
}

impl Site {
    pub fn of(setup: Setup) -> Site {
        Site::at(setup.set("admin", json!("127.0.0.1:0")))
    }

    /// The same at the configured address.
    pub fn at(setup: Setup) -> Site {
        let gate = setup.start();
        let (port, token) = entrance(&gate);
        let mut site = Site { gate, port, token, path: String::new(), cookie: String::new() };
        let reply = site.raw(&format!("GET /?token={} HTTP/1.1", site.token), &[], "");
        assert_eq!(reply.status, 303, "{reply:?}");
        site.path = reply.header("location").unwrap().into();
        let cookie = reply.header("set-cookie").unwrap();
        site.cookie = cookie.split(';').next().unwrap().into();
        site
    }

    /// A request with only these headers and its own.
    pub fn raw(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut connection = Connection::open(self.port);
        connection.send(self.bytes(line, headers, body).as_bytes());
        connection.reply()
    }

    pub fn bytes(&self, line: &str, headers: &[(&str, &str)], body: &str) -> String {
        let mut head = format!("{line}\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head += &format!("Host: 127.0.0.1:{}\r\n", self.port);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        head + "\r\n" + body
    }

    /// All bytes of a response, until the connection is closed.
    pub fn whole(&self, bytes: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    /// A view, by its path under the admin UI's.
    pub fn get(&self, view: &str, headers: &[(&str, &str)]) -> Reply {
        let mut all = vec![("Cookie", &*self.cookie)];
        all.extend(headers);
        self.raw(&format!("GET {}{view} HTTP/1.1", self.path), &all, "")
    }

    pub fn html(&self, view: &str) -> String {
        let reply = self.get(view, &[]);
        assert_eq!(reply.status, 200, "{view}: {reply:?}");
        assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
        String::from_utf8(reply.body).unwrap()
    }

    /// A part of a view, as htmx requests it.
    pub fn part(&self, view: &str) -> String {
        let reply = self.get(view, &[("HX-Request", "true")]);
        assert_eq!(reply.status, 200, "{view}: {reply:?}");
        String::from_utf8(reply.body).unwrap()
    }

    pub fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Submits a form as a browser does.
    pub fn post(&self, path: &str, form: &str) -> Reply {
        let origin = self.origin();
        let headers = [
            ("Cookie", &*self.cookie),
            ("Origin", &*origin),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ];
        self.raw(&format!("POST {path} HTTP/1.1"), &headers, form)
    }

    /// The table, once every server in it has responded.
    pub fn table(&self) -> String {
        eventually("all servers have answered", || {
            let html = self.html("");
            (!html.contains("it has not answered")).then_some(html)
        })
    }

    /// The output of a command with the same configuration.
    pub fn command(&self, arguments: &[&str]) -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_toolward"))
            .args(arguments)
            .arg("-c")
            .arg(self.gate.file("toolward.yaml"))
            .arg("--json")
            .env("HOME", self.gate.file(""))
            .envs(
                AGENTS
                    .map(|agent| (format!("TOKEN_OF_{agent}"), format!("token-of-agent-{agent}"))),
            )
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let why = String::from_utf8_lossy(&output.stderr);
        serde_json::from_str(&said).unwrap_or_else(|_| panic!("{arguments:?}: {said} {why}"))
    }
}

/// The address of the admin UI, and its token.
pub fn entrance(gate: &Gate) -> (u16, String) {
    eventually("the admin UI is served", || {
        let said = gate.said.lock().unwrap();
        let line =
            said.lines().find_map(|line| line.split_once(" INFO admin: admin UI: http://"))?;
        let (address, token) = line.1.split_once("/?token=")?;
        Some((address.rsplit(':').next()?.parse().ok()?, token.to_string()))
    })
}

/// A tool with annotations.
pub fn tool(name: &str, annotations: Value) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}, "annotations": annotations})
}

/// Tools of every kind of hint, and one with actions.
pub fn issue_tools() -> Vec<Value> {
    let read = json!({"readOnlyHint": true});
    vec![
        tool("get_issue", read.clone()),
        tool("list_issues", read),
        tool("delete_repo", json!({"destructiveHint": true})),
        tool("create_issue", json!({"destructiveHint": false})),
        tool("internal", json!({})),
        tool("unexposed", json!({})),
        json!({"name": "manage", "inputSchema": {
            "type": "object",
            "properties": {"action": {"enum": ["list", "add", "remove"]}},
        }}),
    ]
}
