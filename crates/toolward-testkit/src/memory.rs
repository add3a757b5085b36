//! A scripted MCP server in the process of the test.
//!
//! It reads and writes one JSON message per line on an in-memory stream, so a test with paused time
//! decides when each byte arrives. The messages it received can be read at any time.
//!
//! ```
//! use serde_json::json;
//! use toolward_testkit::memory::{Server, Step};
//!
//! let server = Server::legacy(&["echo"]);
//! server.on("tools/call", |request| vec![Step::Error(request["id"].clone(), -32000, "no")]);
//! assert!(server.received("tools/call").is_empty());
//! ```

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, WriteHalf};
use tokio::sync::{Mutex as AsyncMutex, watch};

/// The capacity of a stream: a writer waits when it is full.
const STREAM_BYTES: usize = 64 << 10;

const MODERN: &str = "2026-07-28";

/// One step of a server's reaction to a message.
#[derive(Debug, Clone)]
pub enum Step {
    /// A message, as a line.
    Send(Value),
    /// A response with this result to the request with this id.
    Result(Value, Value),
    /// An error response to the request with this id.
    Error(Value, i64, &'static str),
    /// Bytes as they are.
    Bytes(Vec<u8>),
    Wait(Duration),
    /// Waits until the test calls [`Server::release`].
    Hold,
    /// Closes the connection, as a process that exits does.
    Close,
}

/// The protocol versions of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Versions {
    Legacy,
    Modern,
    Both,
}

type Script = Arc<dyn Fn(&Value) -> Vec<Step> + Send + Sync>;

/// A handle to the server; all clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

struct Shared {
    versions: Versions,
    state: Mutex<State>,
    /// Counts received messages.
    arrived: watch::Sender<usize>,
    released: watch::Sender<bool>,
    /// A message for every connection.
    told: watch::Sender<Option<Value>>,
}

#[derive(Default)]
struct State {
    tools: Vec<Value>,
    prompts: Vec<Value>,
    resources: Vec<Value>,
    templates: Vec<Value>,
    scripts: HashMap<String, Script>,
    received: Vec<Value>,
    connections: usize,
    does_not_start: bool,
    start_takes: Duration,
}

impl Server {
    /// A server of legacy protocol versions with tools of these names.
    pub fn legacy(tools: &[&str]) -> Server {
        Server::new(Versions::Legacy, tools)
    }

    /// A server of modern protocol versions.
    pub fn modern(tools: &[&str]) -> Server {
        Server::new(Versions::Modern, tools)
    }

    pub fn both(tools: &[&str]) -> Server {
        Server::new(Versions::Both, tools)
    }

    fn new(versions: Versions, tools: &[&str]) -> Server {
        let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
        let state = State { tools: tools.iter().map(tool).collect(), ..State::default() };
        let (arrived, released) = (watch::Sender::new(0), watch::Sender::new(false));
        let (state, told) = (Mutex::new(state), watch::Sender::new(None));
        Server(Arc::new(Shared { versions, state, arrived, released, told }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the server's default reaction to messages of a method.
    pub fn on(
        &self,
        method: &str,
        script: impl Fn(&Value) -> Vec<Step> + Send + Sync + 'static,
    ) -> &Server {
        self.state().scripts.insert(method.into(), Arc::new(script));
        self
    }

    /// Restores the default reaction.
    pub fn forget(&self, method: &str) {
        self.state().scripts.remove(method);
    }

    pub fn set_tools(&self, tools: Vec<Value>) {
        self.state().tools = tools;
    }

    /// Sets its prompts, by name. It declares prompts if it has some when it is started.
    pub fn set_prompts(&self, prompts: &[&str]) -> &Server {
        self.state().prompts = prompts.iter().map(|name| json!({ "name": name })).collect();
        self
    }

    /// Sets its resources, by URI. It declares resources if it has some when it is started.
    pub fn set_resources(&self, uris: &[&str]) -> &Server {
        let resource = |uri: &&str| json!({"uri": uri, "name": uri});
        self.state().resources = uris.iter().map(resource).collect();
        self
    }

    /// Sets its resource templates.
    pub fn set_templates(&self, templates: &[&str]) -> &Server {
        let template = |text: &&str| json!({"uriTemplate": text, "name": text});
        self.state().templates = templates.iter().map(template).collect();
        self
    }

    /// Sends a message on every connection.
    pub fn tell(&self, message: Value) {
        self.0.told.send_replace(Some(message));
    }

    fn capabilities(&self, is_legacy: bool) -> Value {
        let state = self.state();
        let changes = if is_legacy { json!({"listChanged": true}) } else { json!({}) };
        let mut all = json!({ "tools": changes });
        if !state.prompts.is_empty() {
            all["prompts"] = changes.clone();
        }
        if !state.resources.is_empty() || !state.templates.is_empty() {
            all["resources"] = changes;
            all["resources"]["subscribe"] = json!(true);
        }
        all
    }

    /// Whether the next start fails.
    pub fn set_unstartable(&self, fails: bool) {
        self.state().does_not_start = fails;
    }

    /// How long the server reads nothing after each start.
    pub fn set_start_takes(&self, time: Duration) {
        self.state().start_takes = time;
    }

    /// Ends all [`Step::Hold`], now and later.
    pub fn release(&self) {
        self.0.released.send_replace(true);
    }

    /// The number of times the server was started.
    pub fn connections(&self) -> usize {
        self.state().connections
    }

    /// The messages of a method that arrived so far.
    pub fn received(&self, method: &str) -> Vec<Value> {
        let state = self.state();
        state.received.iter().filter(|message| message["method"] == method).cloned().collect()
    }

    /// The responses that arrived so far.
    pub fn responses(&self) -> Vec<Value> {
        let state = self.state();
        state.received.iter().filter(|message| message.get("method").is_none()).cloned().collect()
    }

    /// Waits for the first message of a method.
    pub async fn arrival(&self, method: &str) -> Value {
        self.arrivals(method, 1).await.remove(0)
    }

    /// Waits for this many messages of a method.
    pub async fn arrivals(&self, method: &str, count: usize) -> Vec<Value> {
        let mut arrived = self.0.arrived.subscribe();
        loop {
            let received = self.received(method);
            if received.len() >= count {
                return received;
            }
            let _ = arrived.changed().await;
        }
    }

    /// Starts the server and returns the stream on which it reads and writes. Must be called on a
    /// runtime.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        let mut state = self.state();
        if state.does_not_start {
            return Err(io::Error::other("it does not start"));
        }
        state.connections += 1;
        let (ours, theirs) = tokio::io::duplex(STREAM_BYTES);
        tokio::spawn(self.clone().serve(ours));
        Ok(theirs)
    }

    async fn serve(self, stream: DuplexStream) {
        let start_takes = self.state().start_takes;
        tokio::time::sleep(start_takes).await;
        let (read, write) = tokio::io::split(stream);
        let mut lines = BufReader::new(read).lines();
        let closed = watch::Sender::new(false);
        let mut closing = closed.subscribe();
        let output = Arc::new(AsyncMutex::new(write));
        let mut told = self.0.told.subscribe();
        loop {
            let line = tokio::select! {
                line = lines.next_line() => line,
                Ok(()) = told.changed() => {
                    let steps = told.borrow_and_update().clone().map(Step::Send);
                    let steps = steps.into_iter().collect();
                    tokio::spawn(self.clone().work(steps, output.clone(), closed.clone()));
                    continue;
                }
                _ = closing.wait_for(|closed| *closed) => return,
            };
            let Ok(Some(line)) = line else { return };
            let message: Value = serde_json::from_str(&line).unwrap_or_default();
            let method = message["method"].as_str().unwrap_or_default().to_string();
            self.state().received.push(message.clone());
            self.0.arrived.send_modify(|count| *count += 1);
            let script = self.state().scripts.get(&method).cloned();
            let steps = match script {
                Some(script) => script(&message),
                None => self.usual(&method, &message),
            };
            let work = self.clone().work(steps, output.clone(), closed.clone());
            tokio::spawn(work);
        }
    }

    async fn work(
        self,
        steps: Vec<Step>,
        output: Arc<AsyncMutex<WriteHalf<DuplexStream>>>,
        closed: watch::Sender<bool>,
    ) {
        let mut closing = closed.subscribe();
        let steps = async {
            for step in steps {
                let bytes = match step {
                    Step::Send(message) => line(&message),
                    Step::Result(id, result) => {
                        line(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
                    }
                    Step::Error(id, code, message) => {
                        let error = json!({"code": code, "message": message});
                        line(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
                    }
                    Step::Bytes(bytes) => bytes,
                    Step::Wait(time) => {
                        tokio::time::sleep(time).await;
                        continue;
                    }
                    Step::Hold => {
                        let mut released = self.0.released.subscribe();
                        let _ = released.wait_for(|released| *released).await;
                        continue;
                    }
                    Step::Close => {
                        closed.send_replace(true);
                        return;
                    }
                };
                if output.lock().await.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = steps => {}
            _ = closing.wait_for(|closed| *closed) => {}
        }
    }

    /// The response of a well-behaved server.
    fn usual(&self, method: &str, message: &Value) -> Vec<Step> {
        let id = message["id"].clone();
        if id.is_null() || method.is_empty() {
            return Vec::new();
        }
        let (legacy, modern) =
            (self.0.versions != Versions::Modern, self.0.versions != Versions::Legacy);
        let is_modern =
            message["params"]["_meta"].get("io.modelcontextprotocol/protocolVersion").is_some();
        let mut result = match method {
            "initialize" if legacy => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": self.capabilities(true),
                "serverInfo": {"name": "memory", "version": "1"},
            }),
            "server/discover" if modern => json!({
                "supportedVersions": [MODERN],
                "capabilities": self.capabilities(false),
                "ttlMs": 60000,
                "cacheScope": "private",
            }),
            "tools/list" => json!({"tools": self.state().tools}),
            "prompts/list" => json!({"prompts": self.state().prompts}),
            "resources/list" => json!({"resources": self.state().resources}),
            "resources/templates/list" => json!({"resourceTemplates": self.state().templates}),
            "prompts/get" => {
                let said = message["params"].to_string();
                json!({"messages": [{"role": "user", "content": {"type": "text", "text": said}}]})
            }
            "resources/read" => {
                let uri = &message["params"]["uri"];
                json!({"contents": [{"uri": uri, "text": "content"}]})
            }
            "resources/subscribe" | "resources/unsubscribe" => json!({}),
            // The stream stays open.
            "subscriptions/listen" => return Vec::new(),
            "completion/complete" => json!({"completion": {"values": ["one", "two"]}}),
            "tools/call" => {
                let said = message["params"]["arguments"].to_string();
                json!({"content": [{"type": "text", "text": said}]})
            }
            "ping" => json!({}),
            _ => return vec![Step::Error(id, -32601, "unknown method")],
        };
        if is_modern {
            result["resultType"] = json!("complete");
            if method.ends_with("/list") || method == "resources/read" {
                result["ttlMs"] = json!(60000);
                result["cacheScope"] = json!("private");
            }
        }
        vec![Step::Result(id, result)]
    }
}

fn line(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}
