//! Examples as a user runs them: a copy of the directory, the program on the `PATH`, and a client.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

/// A writable copy of an example.
pub struct Example {
    parent: tempfile::TempDir,
    name: String,
    environment: Vec<(String, String)>,
}

/// The names of all examples.
pub fn names() -> Vec<String> {
    let entries = std::fs::read_dir(EXAMPLES).unwrap().flatten();
    let folders = entries.filter(|entry| entry.path().is_dir());
    let names = folders.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name != "tools").collect()
}

pub fn example(name: &str) -> Example {
    let parent = tempfile::tempdir().unwrap();
    for folder in ["tools", name] {
        copy(&Path::new(EXAMPLES).join(folder), &parent.path().join(folder));
    }
    let program = Path::new(env!("CARGO_BIN_EXE_toolward")).parent().unwrap();
    let bin = parent.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{}:{path}", program.display(), bin.display());
    let home = parent.path().to_str().unwrap().to_string();
    let environment = vec![("PATH".into(), path), ("HOME".into(), home)];
    Example { parent, name: name.into(), environment }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), &target).unwrap()),
        }
        // A checkout may be group-writable; hooks must not be.
        let mode = std::fs::metadata(&target).unwrap().permissions().mode() & 0o755;
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

impl Example {
    pub fn env(mut self, name: &str, value: &str) -> Example {
        self.environment.push((name.into(), value.into()));
        self
    }

    pub fn folder(&self) -> PathBuf {
        self.parent.path().join(&self.name)
    }

    /// The text of one of its files.
    pub fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder().join(name)).unwrap()
    }

    /// With an `npx` that starts the installed package instead of fetching it; `None` if `./test` has
    /// installed nothing.
    pub fn with_npx(self) -> Option<Example> {
        let Some(peers) = std::env::var_os("TOOLWARD_PEERS") else {
            eprintln!("skipped: ./test installs real servers, and sets TOOLWARD_PEERS");
            return None;
        };
        let installed = Path::new(&peers).join("node_modules/.bin");
        let script = format!(
            "#!/bin/sh\nset -e\n[ \"$1\" = -y ]\npackage=${{2##*/}}\nshift 2\nexec {}/mcp-\"$package\" \"$@\"\n",
            installed.display()
        );
        let npx = self.parent.path().join("bin/npx");
        std::fs::write(&npx, script).unwrap();
        std::fs::set_permissions(&npx, std::fs::Permissions::from_mode(0o755)).unwrap();
        Some(self)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        command.current_dir(self.folder()).env_clear().envs(environment);
        command
    }

    /// Runs a command line in a shell; returns its exit code and its output.
    pub fn shell(&self, line: &str) -> (i32, String) {
        let output = self.command("sh").args(["-c", line]).stdin(Stdio::null()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8(said).unwrap())
    }

    /// A client of `toolward stdio`.
    pub fn as_agent(&self, agent: &str) -> Client {
        self.client("toolward", &["stdio", "--agent", agent])
    }

    /// A client that starts a command.
    pub fn client(&self, program: &str, arguments: &[&str]) -> Client {
        let mut child = self
            .command(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(self.parent.path().join("said")).unwrap())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let answers = lines(child.stdout.take().unwrap());
        let mut client = Client { child, input, answers, said: self.parent.path().join("said") };
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        client.ask("initialize", hello);
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    /// `toolward serve` on a free port, with the file otherwise unchanged.
    pub fn serve(&self) -> Gateway {
        let file = self.folder().join("toolward.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{text}\nlisten: 127.0.0.1:0\nadmin: off\n")).unwrap();
        let mut child = self
            .command("toolward")
            .arg("serve")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
            said += &line;
            let rest = line.split_once("listening on http://127.0.0.1:")?.1;
            rest.strip_suffix("/mcp").map(String::from)
        });
        // Further output is drained, so that it does not block.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Gateway { child, port: port.unwrap_or_else(|| panic!("it does not listen: {said}")) }
    }
}

/// The output of a child, line by line.
fn lines(output: ChildStdout) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        lines.take_while(|line| send.send(line.clone()).is_ok()).for_each(drop);
    });
    receive
}

/// A client on standard input and output.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    said: PathBuf,
}

impl Client {
    fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params}));
        loop {
            let line = self.answers.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| {
                panic!("no answer: {}", std::fs::read_to_string(&self.said).unwrap())
            });
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == method {
                return answer;
            }
        }
    }

    pub fn tools(&mut self) -> Vec<Value> {
        self.ask("tools/list", json!({}))["result"]["tools"].as_array().unwrap().clone()
    }

    /// The names that it lists.
    pub fn list(&mut self) -> Vec<String> {
        let tools = self.tools();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_string()).collect()
    }

    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// A call that is allowed; returns its text.
    pub fn done(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments);
        assert!(answer["result"]["isError"] != true && answer["error"].is_null(), "{answer}");
        answer["result"]["content"][0]["text"].as_str().unwrap().into()
    }

    /// A call of a listed tool that is refused; returns the reason.
    pub fn refused(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.call(tool, arguments);
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        answer["result"]["_meta"]["io.toolward/refusal"].clone()
    }

    /// A call of a tool that does not exist for this agent; returns the message.
    pub fn unknown(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments);
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_eq!(answer["error"]["data"]["error"], "tool_not_allowed", "{answer}");
        answer["error"]["message"].as_str().unwrap().into()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Closing its input ends the process and its children.
        self.input = None;
        let _ = self.child.wait();
    }
}

/// A running gateway.
pub struct Gateway {
    child: Child,
    pub port: String,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}
