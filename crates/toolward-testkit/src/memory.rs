//! A scripted MCP server in the process of the test.
//!
//! It reads and writes one JSON message per line on an in-memory stream, so a test with paused time decides when
//! each byte arrives. What it received can be read at any moment.
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

/// Bytes that fit into a stream before its writer waits.
const STREAM_BYTES: usize = 64 << 10;

const MODERN: &str = "2026-07-28";

/// One step of what a server does about a message.
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
    /// Closes the connection, as a process that ends does.
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
}

#[derive(Default)]
struct State {
    tools: Vec<Value>,
    scripts: HashMap<String, Script>,
    received: Vec<Value>,
    connections: usize,
    does_not_start: bool,
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
        Server(Arc::new(Shared { versions, state: Mutex::new(state), arrived, released }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server does about messages of a method, instead of what it usually does.
    pub fn on(
        &self,
        method: &str,
        script: impl Fn(&Value) -> Vec<Step> + Send + Sync + 'static,
    ) -> &Server {
        self.state().scripts.insert(method.into(), Arc::new(script));
        self
    }

    /// Does the usual again.
    pub fn forget(&self, method: &str) {
        self.state().scripts.remove(method);
    }

    pub fn set_tools(&self, tools: Vec<Value>) {
        self.state().tools = tools;
    }

    /// Whether the next start fails.
    pub fn set_unstartable(&self, fails: bool) {
        self.state().does_not_start = fails;
    }

    /// Ends all [`Step::Hold`], now and later.
    pub fn release(&self) {
        self.0.released.send_replace(true);
    }

    /// How often the server was started.
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

    /// Starts the server: gives the stream on which it reads and writes. Must be called on a runtime.
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
        let (read, write) = tokio::io::split(stream);
        let mut lines = BufReader::new(read).lines();
        let closed = watch::Sender::new(false);
        let mut closing = closed.subscribe();
        let output = Arc::new(AsyncMutex::new(write));
        loop {
            let line = tokio::select! {
                line = lines.next_line() => line,
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
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "memory", "version": "1"},
            }),
            "server/discover" if modern => json!({
                "supportedVersions": [MODERN],
                "capabilities": {"tools": {}},
                "ttlMs": 60000,
                "cacheScope": "private",
            }),
            "tools/list" if is_modern => {
                json!({"tools": self.state().tools, "ttlMs": 60000, "cacheScope": "private"})
            }
            "tools/list" => json!({"tools": self.state().tools}),
            "tools/call" => {
                let said = message["params"]["arguments"].to_string();
                json!({"content": [{"type": "text", "text": said}]})
            }
            "ping" => json!({}),
            _ => return vec![Step::Error(id, -32601, "unknown method")],
        };
        if is_modern {
            result["resultType"] = json!("complete");
        }
        vec![Step::Result(id, result)]
    }
}

fn line(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}
