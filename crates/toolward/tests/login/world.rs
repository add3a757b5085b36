//! A gateway with one server that needs a login, and the person who logs in.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver};

use serde_json::{Value, json};
use toolward_testkit::authorization_server::{
    AuthorizationServer, Followed, ProtectedServer, ProtectedSwitches, Switches, follow,
};
use toolward_testkit::wait::{TIMEOUT, eventually};

pub struct World {
    pub tokens: AuthorizationServer,
    pub protected: ProtectedServer,
    pub directory: tempfile::TempDir,
    pub redirect: String,
}

/// The outcome of a command.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl World {
    pub fn new() -> World {
        World::with(json!({}), json!({}))
    }

    /// With switches of the authorization server and of the protected server.
    pub fn with(switches: Value, protected: Value) -> World {
        let mut own = Switches::default();
        own.apply(&switches).unwrap();
        let tokens = AuthorizationServer::start(own).unwrap();
        let mut own = ProtectedSwitches::default();
        own.apply(&protected).unwrap();
        let protected = ProtectedServer::start(&tokens, own).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let world = World { tokens, protected, directory, redirect: own_redirect() };
        world.configure(&json!({}));
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes the configuration, with further keys of `login`.
    pub fn configure(&self, login: &Value) {
        self.configure_server(
            &json!({"url": self.protected.url(), "login": self.login_with(login)}),
        );
    }

    pub fn login_with(&self, more: &Value) -> Value {
        let mut login = json!({"redirect": self.redirect});
        for (key, value) in more.as_object().unwrap() {
            login[key] = value.clone();
        }
        login
    }

    pub fn configure_server(&self, server: &Value) {
        self.configure_servers(&json!({"it": server}));
    }

    pub fn configure_servers(&self, servers: &Value) {
        let config = json!({
            "servers": servers,
            "state": self.path("state"),
            "audit": {"dir": self.path("audit")},
            "admin": "off",
            "agents": {"a": {"allow": {"servers": ["*"]}}, "b": {"allow": {"servers": ["*"]}}},
        });
        fs::write(self.path("toolward.yaml"), config.to_string()).unwrap();
    }

    /// The same configuration with an admin UI, and an MCP endpoint on a Unix socket.
    pub fn serve_admin(&self, port: u16) {
        self.configure(&json!({}));
        let file = self.path("toolward.yaml");
        let mut config: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        config["admin"] = format!("127.0.0.1:{port}").into();
        config["listen"] = format!("unix:{}", self.path("mcp.sock").display()).into();
        config["agents"]["a"]["tokens"] = json!(["${AGENT_TOKEN}"]);
        fs::write(file, config.to_string()).unwrap();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolward"));
        command
            .args(arguments)
            .arg("-c")
            .arg(self.path("toolward.yaml"))
            .current_dir(self.directory.path())
            .env_clear()
            .env("HOME", self.directory.path())
            .env("CLIENT_SECRET", "s3cret")
            .env("AGENT_TOKEN", "token-of-agent-a-0123456789abcdef")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).stdin(Stdio::null()).output().unwrap();
        self.ran(output.status.code(), output.stdout, output.stderr)
    }

    fn ran(&self, code: Option<i32>, stdout: Vec<u8>, stderr: Vec<u8>) -> Ran {
        let ran = Ran {
            code: code.unwrap_or(-1),
            stdout: String::from_utf8(stdout).unwrap(),
            stderr: String::from_utf8(stderr).unwrap(),
        };
        self.has_no_secret(&format!("{ran:?}"));
        ran
    }

    /// Begins a login, and returns the address for the browser as soon as it is printed.
    pub fn begin_login(&self, arguments: &[&str]) -> PendingLogin {
        let mut all = vec!["login", "it", "--no-browser"];
        all.extend(arguments);
        PendingLogin::start(self.command(&all))
    }

    /// Logs in as a person who follows the redirects.
    pub fn login(&self) -> Ran {
        self.login_as(&[])
    }

    pub fn login_as(&self, arguments: &[&str]) -> Ran {
        let mut login = self.begin_login(arguments);
        if let Some(url) = login.url() {
            // Errors of the authorization server are pages: nothing is redirected, and the person gives up.
            if !follow(&url).is_ok_and(|end| reached(&end, &self.redirect)) {
                login.cancel();
            }
        }
        let (code, stdout, stderr) = login.end();
        self.ran(code, stdout.into_bytes(), stderr.into_bytes())
    }

    pub fn logged_in(&self) {
        let ran = self.login();
        assert_eq!(ran.code, 0, "{ran:?}");
    }

    pub fn gateway(&self) -> Gateway {
        self.gateway_as("a")
    }

    pub fn gateway_as(&self, agent: &str) -> Gateway {
        Gateway::start(self.command(&["stdio", "--agent", agent]))
    }

    pub fn logins(&self) -> Vec<Value> {
        let ran = self.run(&["logins", "--json"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        serde_json::from_str::<Value>(&ran.stdout).unwrap().as_array().unwrap().clone()
    }

    /// All audit records of logins.
    pub fn records(&self) -> Vec<Value> {
        let mut all = Vec::new();
        for file in files(&self.path("audit")) {
            let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
            let rows = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            all.extend(rows.filter(|row| row["kind"] == "login"));
        }
        all
    }

    /// No token, code or client secret is in a text.
    pub fn has_no_secret(&self, text: &str) {
        for secret in self.tokens.secrets() {
            assert!(!text.contains(&secret), "{secret} is in {text}");
        }
    }

    /// No token, code or client secret is in any file.
    pub fn files_have_no_secret(&self) {
        for file in files(self.directory.path()) {
            let bytes = fs::read(&file).unwrap();
            self.has_no_secret(&String::from_utf8_lossy(&bytes));
        }
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false if path.is_file() => all.push(path),
            false => {}
        }
    }
    all
}

fn reached(end: &Followed, redirect: &str) -> bool {
    end.visited.last().is_some_and(|last| last.starts_with(redirect))
}

/// A redirect address that no other test uses: each has a loopback address of its own.
fn own_redirect() -> String {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    let [_, _, a, b] = std::process::id().to_be_bytes();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("http://127.{}.{a}.{b}:7411/oauth/callback", 100 + count % 100)
}

/// A running `toolward login`.
pub struct PendingLogin {
    child: Child,
    lines: Receiver<String>,
    stderr: String,
}

impl PendingLogin {
    pub fn start(mut command: Command) -> PendingLogin {
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        PendingLogin { child, lines, stderr: String::new() }
    }

    /// The next line of standard error.
    fn line(&mut self) -> Option<String> {
        let line = self.lines.recv_timeout(TIMEOUT).ok()?;
        self.stderr += &format!("{line}\n");
        Some(line)
    }

    /// The address that it prints; `None` if it fails before.
    pub fn url(&mut self) -> Option<String> {
        loop {
            let line = self.line()?;
            if let Some(url) = line.strip_prefix("  http") {
                return Some(format!("http{url}"));
            }
            if line.starts_with("waiting for") {
                return None;
            }
        }
    }

    pub fn paste(&mut self, text: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{text}").unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends it if the person can do nothing more.
    pub fn cancel(&mut self) {
        let _ = self.child.kill();
    }

    pub fn end(mut self) -> (Option<i32>, String, String) {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        let mut stdout = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        while self.line().is_some() {}
        (status.code(), stdout, self.stderr.clone())
    }
}

/// A running `toolward stdio`.
pub struct Gateway {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    id: u64,
    /// Notifications that arrived so far.
    pub notifications: Vec<Value>,
}

impl Gateway {
    pub fn start(mut command: Command) -> Gateway {
        let mut child = command.stderr(Stdio::inherit()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        let mut gateway = Gateway { child, stdin, lines, id: 0, notifications: Vec::new() };
        let hello = gateway.ask(
            "initialize",
            &json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
        );
        assert!(hello["result"].is_object(), "{hello}");
        gateway.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        gateway
    }

    fn write(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    /// Sends a request and returns its id.
    pub fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.id += 1;
        let id = self.id;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The next response.
    pub fn response(&mut self) -> Value {
        loop {
            let message = self.lines.recv_timeout(TIMEOUT).unwrap();
            match message.get("id") {
                Some(_) => return message,
                None => self.notifications.push(message),
            }
        }
    }

    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        let response = self.response();
        assert_eq!(response["id"], id);
        response
    }

    pub fn list(&mut self) -> Value {
        self.ask("tools/list", &json!({}))
    }

    /// The names of the server's tools.
    pub fn tools(&mut self) -> Vec<String> {
        let list = self.list();
        let tools = list["result"]["tools"].as_array().into_iter().flatten();
        let names = tools.map(|tool| tool["name"].as_str().unwrap().to_string());
        names.filter(|name| name.starts_with("it__")).collect()
    }

    pub fn call(&mut self, tool: &str) -> Value {
        self.ask("tools/call", &json!({"name": format!("it__{tool}"), "arguments": {}}))
    }

    /// Calls `whoami`, and returns who the server thinks it is.
    pub fn whoami(&mut self) -> Value {
        let answer = self.call("whoami");
        let text = answer["result"]["content"][0]["text"].as_str();
        serde_json::from_str(text.unwrap_or_else(|| panic!("{answer}"))).unwrap()
    }

    /// Waits for a notification.
    pub fn notified(&mut self, method: &str) {
        eventually(&format!("{method} arrives"), || {
            self.notifications.extend(self.lines.try_iter());
            self.notifications.iter().any(|note| note["method"] == method)
        });
    }

    pub fn cancel(&mut self, id: u64) {
        self.write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
