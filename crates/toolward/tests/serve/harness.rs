//! A gateway with scripted servers behind it, and clients that talk to it byte by byte.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::wire::{Connection, Reply};
use crate::record::witness;

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/both.py");
pub const LEGACY: &str = "2025-06-18";
pub const NEWEST_LEGACY: &str = "2025-11-25";
pub const MODERN: &str = "2026-07-28";
pub const META: &str = "io.modelcontextprotocol/";

/// What is started: a configuration and the servers in it.
pub struct Setup {
    config: Value,
    folder: tempfile::TempDir,
    web: Vec<Child>,
    pub environment: Vec<(String, String)>,
    flags: Vec<String>,
}

/// Tools by name.
pub fn names(tools: &[&str]) -> Value {
    tools.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect()
}

/// Everything of these servers, for the agents `a` and `b`.
pub fn everyone() -> Value {
    json!({"a": {"allow": {"servers": ["*"]}}, "b": {"allow": {"servers": ["*"]}}})
}

pub fn setup() -> Setup {
    let config = json!({
        "listen": "127.0.0.1:0",
        "admin": "off",
        "state": "state",
        "audit": {"dir": "audit"},
        "servers": {},
    });
    let folder = tempfile::tempdir().unwrap();
    let (web, environment, flags) = Default::default();
    Setup { config, folder, web, environment, flags }
}

impl Setup {
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Further members of the configuration.
    pub fn set(mut self, key: &str, value: Value) -> Setup {
        self.config[key] = value;
        self
    }

    /// The agents; those without tokens get `token-of-agent-NAME`.
    pub fn agents(mut self, mut agents: Value) -> Setup {
        for (name, agent) in agents.as_object_mut().unwrap() {
            if agent.get("tokens").is_none() && name != "default" {
                agent["tokens"] = json!([format!("${{TOKEN_OF_{name}}}")]);
                self.environment
                    .push((format!("TOKEN_OF_{name}"), format!("token-of-agent-{name}")));
            }
        }
        self.set("agents", agents)
    }

    pub fn env(mut self, name: &str, value: &str) -> Setup {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// A further flag of `serve`.
    pub fn flag(mut self, flag: &str) -> Setup {
        self.flags.push(flag.into());
        self
    }

    /// A server as the configuration has it.
    pub fn server(mut self, name: &str, definition: Value) -> Setup {
        self.config["servers"][name] = definition;
        self
    }

    /// Where a server on HTTP is.
    pub fn url(&self, name: &str) -> String {
        self.config["servers"][name]["url"].as_str().unwrap().into()
    }

    /// More about a server that is there already.
    pub fn with(mut self, name: &str, key: &str, value: Value) -> Setup {
        self.config["servers"][name][key] = value;
        self
    }

    pub fn stdio(self, name: &str, era: &str, tools: Value) -> Setup {
        let list = self.path(&format!("{name}.json"));
        std::fs::write(&list, tools.to_string()).unwrap();
        let log = self.path(&format!("{name}.log"));
        let arguments = json!([SERVER, "stdio", era, log, list]);
        self.server(name, json!({"command": "python3", "args": arguments}))
    }

    /// A server on HTTP, which is started now.
    pub fn web(self, name: &str, era: &str, tools: Value) -> Setup {
        self.web_with(name, era, tools, &[])
    }

    pub fn web_with(
        mut self,
        name: &str,
        era: &str,
        tools: Value,
        environment: &[(&str, &str)],
    ) -> Setup {
        let port = self.start_web(name, era, tools, environment);
        self.server(name, json!({"url": format!("http://127.0.0.1:{port}/mcp")}))
    }

    /// Starts a server on HTTP; gives its port.
    pub fn start_web(
        &mut self,
        name: &str,
        era: &str,
        tools: Value,
        environment: &[(&str, &str)],
    ) -> u16 {
        let list = self.path(&format!("{name}.json"));
        std::fs::write(&list, tools.to_string()).unwrap();
        let mut child = Command::new("python3")
            .args([SERVER, "http", era])
            .arg(self.path(&format!("{name}.log")))
            .arg(list)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        self.web.push(child);
        port.trim().parse().unwrap()
    }

    /// The configuration as a file.
    pub fn file(&self) -> PathBuf {
        let file = self.path("toolward.yaml");
        std::fs::write(&file, serde_json::to_string_pretty(&self.config).unwrap()).unwrap();
        file
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolward"));
        command
            .args(arguments)
            .args(&self.flags)
            .arg("-c")
            .arg(self.file())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    pub fn start(self) -> Gate {
        let mut gate = Gate {
            child: None,
            port: 0,
            said: Arc::default(),
            refusals: Cell::new(0),
            setup: self,
        };
        gate.restart();
        gate
    }

    /// Starts what does not start; gives the exit code and what it said.
    pub fn fails(self) -> (i32, String) {
        let output = self.command(&["serve"]).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        self.asked(&said);
        (output.status.code().unwrap_or(-1), said)
    }

    pub fn standard(self, arguments: &[&str]) -> Lines {
        let mut all = vec!["stdio"];
        all.extend(arguments);
        let mut child = self
            .command(&all)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(self.path("stderr")).unwrap())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Lines { child, answers, setup: self }
    }
}

impl Setup {
    /// Asks what must hold when the program has ended, whatever it was started for.
    fn asked(&self, said: &str) {
        let of_client = self.environment.iter().filter(|(name, value)| {
            let own = name.starts_with("TOOLWARD_") && name != "TOOLWARD_TOKEN";
            !own && !value.starts_with('/')
        });
        let mut secrets: Vec<String> = of_client.map(|(_, value)| value.clone()).collect();
        let servers = self.config["servers"].as_object().into_iter().flatten();
        let headers = servers.filter_map(|(_, server)| server["headers"].as_object()).flatten();
        let values = headers.filter_map(|(_, value)| value.as_str());
        secrets.extend(values.filter(|value| !value.contains("${")).map(String::from));
        let audit = self.path(self.config["audit"]["dir"].as_str().unwrap_or("audit"));
        let unrecorded = self.config["audit"]["required"] == false;
        witness::Ended { audit: &audit, secrets, said, unrecorded }.ask();
    }
}

impl Setup {
    /// Ends the servers on HTTP.
    pub fn stop_web(&mut self) {
        for mut web in self.web.drain(..) {
            let _ = web.kill();
            let _ = web.wait();
        }
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.stop_web();
    }
}

/// A running gateway.
pub struct Gate {
    pub child: Option<Child>,
    pub port: u16,
    /// Its standard error.
    pub said: Arc<Mutex<String>>,
    /// Refusals that were counted by [`Gate::refusal`].
    refusals: Cell<usize>,
    pub setup: Setup,
}

impl Gate {
    /// Starts the gateway, again if need be, with the same files.
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
            let line = said.lines().find(|line| line.contains("listening on http"))?;
            assert!(line.starts_with("toolward: listening on http"), "{line}");
            line.strip_suffix("/mcp")?.rsplit(':').next()?.parse().ok()
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

    /// Waits for the end; gives the exit code.
    pub fn ended(&mut self) -> i32 {
        let child = self.child.as_mut().unwrap();
        let status = eventually("the gateway ends", || child.try_wait().unwrap());
        status.code().unwrap_or(-1)
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.port)
    }

    /// One exchange on a connection of its own.
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
        crate::record::decisions(&self.file("audit"))
    }

    /// What reached a server.
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

    /// Checks that an answer is a refusal with exactly one record; gives what it says.
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

    /// Processes whose parent is the gateway, without the one that watches over them.
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

/// Tries until there is something, for ten seconds.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn alive(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

/// What one agent sends.
#[derive(Clone)]
pub struct Agent {
    port: u16,
    pub token: Option<String>,
    pub path: String,
}

/// A client of a gateway that somebody else started.
pub fn agent_at(port: u16, token: &str) -> Agent {
    Agent { port, token: Some(token.into()), path: "/mcp".into() }
}

impl Agent {
    pub fn at(&self, path: &str) -> Agent {
        Agent { path: path.into(), ..self.clone() }
    }

    /// A request's bytes, with these headers beside the usual.
    pub fn request(&self, method: &str, headers: &[(&str, &str)], body: &str) -> String {
        let mut head =
            format!("{method} {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n", self.path, self.port);
        if let Some(token) = &self.token {
            witness::sent(token);
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        let given =
            |wanted: &str| headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
        if !given("accept") {
            head += "Accept: application/json, text/event-stream\r\n";
        }
        if method == "POST" {
            if !given("content-type") {
                head += "Content-Type: application/json\r\n";
            }
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head + "\r\n" + body
    }

    /// Sends and leaves the connection open, for streams.
    pub fn open(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Connection {
        let mut connection = Connection::open(self.port);
        connection.send(self.request(method, headers, body).as_bytes());
        connection
    }

    pub fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.open(method, headers, body).reply()
    }

    pub fn post(&self, headers: &[(&str, &str)], body: &Value) -> Reply {
        self.send("POST", headers, &body.to_string())
    }

    /// Begins a session.
    pub fn session(&self) -> Session {
        self.session_of(LEGACY)
    }

    pub fn session_of(&self, revision: &str) -> Session {
        let reply = self.post(&[], &initialize(revision));
        assert_eq!(reply.status, 200, "{reply:?}");
        let hello = reply.json();
        assert_eq!(hello["result"]["protocolVersion"], revision, "{hello}");
        let id = reply.header("mcp-session-id").unwrap().to_string();
        let session = Session {
            agent: self.clone(),
            id,
            revision: revision.into(),
            hello: hello["result"].clone(),
        };
        let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(session.post(&told).status, 202);
        session
    }

    /// A session in which the server's answer to `initialize` came within the second that it has.
    pub fn heard(&self, is_so: impl Fn(&Value) -> bool) -> Session {
        eventually("the server answers `initialize` in time", || {
            Some(self.session()).filter(|session| is_so(&session.hello))
        })
    }

    /// A modern request with its headers.
    pub fn modern_reply(&self, id: Value, method: &str, params: Value) -> Reply {
        self.modern_open(id, method, params).reply()
    }

    pub fn modern_open(&self, id: Value, method: &str, params: Value) -> Connection {
        let body = modern_body(id, method, params);
        let name = body["params"]["name"].as_str().map(header_value);
        let mut headers = vec![("MCP-Protocol-Version", MODERN), ("Mcp-Method", method)];
        headers.extend(name.as_deref().map(|name| ("Mcp-Name", name)));
        self.open("POST", &headers, &body.to_string())
    }

    pub fn modern(&self, method: &str, params: Value) -> Value {
        let reply = self.modern_reply(json!("m"), method, params);
        assert_eq!(reply.status, 200, "{reply:?}");
        let answer = reply.json();
        assert_eq!(answer["id"], "m");
        answer
    }
}

pub fn initialize(revision: &str) -> Value {
    let client = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": "begin", "method": "initialize", "params": params})
}

pub fn modern_body(id: Value, method: &str, mut params: Value) -> Value {
    params["_meta"][format!("{META}protocolVersion")] = json!(MODERN);
    params["_meta"][format!("{META}clientCapabilities")] = json!({});
    params["_meta"][format!("{META}clientInfo")] = json!({"name": "test", "version": "1"});
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// A value as a header may carry it.
fn header_value(value: &str) -> String {
    let plain = value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if plain && value.trim() == value {
        return value.into();
    }
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::from("=?base64?");
    for three in value.as_bytes().chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(*three.get(at).unwrap_or(&0)));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            out.push(if at > three.len() { '=' } else { digit.into() });
        }
    }
    out + "?="
}

pub fn request(id: Value, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// A session of the era that has them.
#[derive(Clone)]
pub struct Session {
    pub agent: Agent,
    pub id: String,
    pub revision: String,
    pub hello: Value,
}

impl Session {
    pub fn headers(&self) -> [(&str, &str); 2] {
        [("Mcp-Session-Id", &self.id), ("MCP-Protocol-Version", &self.revision)]
    }

    pub fn post(&self, body: &Value) -> Reply {
        self.agent.post(&self.headers(), body)
    }

    pub fn open(&self, body: &Value) -> Connection {
        self.agent.open("POST", &self.headers(), &body.to_string())
    }

    /// A GET stream, past its head.
    pub fn listen(&self, last: Option<&str>) -> Connection {
        let mut headers = self.headers().to_vec();
        headers.push(("Accept", "text/event-stream"));
        headers.extend(last.map(|last| ("Last-Event-ID", last)));
        let mut connection = self.agent.open("GET", &headers, "");
        let head = connection.head();
        assert_eq!(head.status, 200, "{head:?}");
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        connection
    }

    pub fn delete(&self) -> Reply {
        self.agent.send("DELETE", &self.headers(), "")
    }

    pub fn ask(&self, method: &str, params: Value) -> Value {
        let reply = self.post(&request(json!(7), method, params));
        assert_eq!(reply.status, 200, "{reply:?}");
        let answer = reply.json();
        assert_eq!(answer["id"], 7);
        answer
    }
}

/// Either era, for what both must do alike.
pub trait Caller {
    fn ask(&self, method: &str, params: Value) -> Value;

    fn call(&self, name: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": name, "arguments": arguments}))
    }

    fn tools(&self) -> Vec<Value> {
        let answer = self.ask("tools/list", json!({}));
        answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
    }

    fn list(&self) -> Vec<String> {
        self.tools().iter().map(|tool| tool["name"].as_str().unwrap().into()).collect()
    }
}

impl Caller for Session {
    fn ask(&self, method: &str, params: Value) -> Value {
        Session::ask(self, method, params)
    }
}

impl Caller for Agent {
    fn ask(&self, method: &str, params: Value) -> Value {
        self.modern(method, params)
    }
}

pub fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// `toolward stdio` and the client that talks to it.
pub struct Lines {
    pub child: Child,
    answers: BufReader<std::process::ChildStdout>,
    pub setup: Setup,
}

impl Lines {
    pub fn send(&mut self, line: &str) {
        // A program that has ended does not read; whoever waits for an answer then will notice.
        let _ = writeln!(self.child.stdin.as_mut().unwrap(), "{line}");
    }

    pub fn next(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let message = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
        witness::received(&message);
        message
    }

    pub fn ask(&mut self, message: &Value) -> Value {
        self.send(&message.to_string());
        loop {
            let answer = self.next();
            if answer["id"] == message["id"] {
                return answer;
            }
        }
    }

    pub fn ready(mut self) -> Lines {
        let hello = self.ask(&initialize(LEGACY));
        assert!(hello["result"].is_object(), "{hello}");
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        self
    }

    /// Closes the input; gives the exit code and what was said last.
    pub fn close(&mut self) -> (i32, String) {
        self.child.stdin = None;
        let child = &mut self.child;
        let status = eventually("the program ends", || child.try_wait().unwrap());
        let mut rest = String::new();
        self.answers.read_to_string(&mut rest).unwrap();
        (status.code().unwrap_or(-1), rest)
    }

    pub fn log(&self, server: &str) -> String {
        std::fs::read_to_string(self.setup.path(&format!("{server}.log"))).unwrap_or_default()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            return;
        }
        witness::end(&mut self.child);
        let said = std::fs::read_to_string(self.setup.path("stderr")).unwrap_or_default();
        self.setup.asked(&said);
    }
}
