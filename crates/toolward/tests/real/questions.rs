//! Questions of real servers to a client, directly and through the gateway.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use toolward_testkit::wait::eventually;

use super::harness::NEWEST_LEGACY;
use super::peers::*;

/// A client that responds to everything a server asks.
struct Session {
    child: Child,
    stdin: ChildStdin,
    messages: Receiver<Value>,
    root: String,
    /// The methods that were asked.
    asked: Vec<String>,
    next: u64,
}

impl Session {
    fn begin(at: &At, root: &Path) -> Session {
        let At::Command(words) = at else { panic!("{at:?} is no command") };
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, messages) = channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        let stdin = child.stdin.take().unwrap();
        let root = format!("file://{}", root.display());
        let mut session = Session { child, stdin, messages, root, asked: Vec::new(), next: 0 };
        let params = json!({
            "protocolVersion": NEWEST_LEGACY,
            "capabilities": {"elicitation": {}, "roots": {}, "sampling": {}},
            "clientInfo": {"name": "test", "version": "1"},
        });
        session.request("initialize", params);
        session.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        session
    }

    fn write(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").unwrap();
    }

    /// The response to a request. Questions that arrive before it are answered.
    fn request(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = json!(self.next);
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let message = self.messages.recv_timeout(Duration::from_secs(60)).unwrap();
            match message["method"].as_str() {
                None if message["id"] == id => return message,
                Some(asked) if message.get("id").is_some() => {
                    self.asked.push(asked.into());
                    let result = self.response(asked);
                    self.write(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
                }
                _ => {}
            }
        }
    }

    fn response(&self, method: &str) -> Value {
        match method {
            "roots/list" => json!({"roots": [{"uri": self.root, "name": "work"}]}),
            "elicitation/create" => json!({"action": "accept", "content": {"name": "Ada"}}),
            "sampling/createMessage" => json!({
                "role": "assistant", "model": "m", "content": {"type": "text", "text": "sampled"},
            }),
            _ => json!({}),
        }
    }

    /// The result of a call, once the server lists the tool.
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        eventually("the server lists the tool", || {
            let listed = self.request("tools/list", json!({}));
            let tools = listed["result"]["tools"].as_array().unwrap().clone();
            tools.iter().any(|one| one["name"] == tool).then_some(())
        });
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        answer["result"].clone()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_filesystem_server_stays_inside_the_roots_of_the_client() {
    let Some(peers) = peers() else { return };
    let work = Work::new(peers);
    work.renew();
    let policy = work.policy("all.yaml", "allowed_tools: [\"*\"]\n");
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let direct = At::Command(work.command("files"));
    for at in [direct, work.wrapped(&["--policy", &policy], "files")] {
        let mut session = Session::begin(&at, &root);
        // The server asks for the roots in its own time.
        eventually("the roots are in use", || {
            let allowed = session.call("list_allowed_directories", json!({}));
            let text = allowed["content"][0]["text"].as_str().unwrap_or_default().to_string();
            (text.trim() == format!("Allowed directories:\n{}", root.display())).then_some(())
        });
        assert_eq!(session.asked, ["roots/list"], "{at:?}");
        let outside = session.call("read_text_file", json!({"path": "/etc/hostname"}));
        assert_eq!(outside["isError"], true, "{outside}");
    }
}

#[test]
fn elicitation_and_sampling_of_a_real_server_reach_the_client() {
    let Some(peers) = peers() else { return };
    let work = Work::new(peers);
    work.renew();
    let policy = "agents: {dev: {allow: {servers: ['*'], client_requests: ['*']}}}\n";
    let policy = work.policy("asking.yaml", policy);
    let root = tempfile::tempdir().unwrap();
    let through = work.wrapped(&["--policy", &policy, "--agent", "dev"], "everything");
    let mut direct = Session::begin(&At::Command(work.command("everything")), root.path());
    let mut wrapped = Session::begin(&through, root.path());
    for (tool, arguments, method) in [
        ("trigger-elicitation-request", json!({}), "elicitation/create"),
        (
            "trigger-sampling-request",
            json!({"prompt": "x", "maxTokens": 5}),
            "sampling/createMessage",
        ),
    ] {
        let expected = direct.call(tool, arguments.clone());
        assert!(expected["isError"].is_null(), "{expected}");
        assert_eq!(wrapped.call(tool, arguments), expected, "{tool}");
        assert!(wrapped.asked.iter().any(|asked| asked == method), "{:?}", wrapped.asked);
    }
}
