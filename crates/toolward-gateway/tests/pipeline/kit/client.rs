//! Clients of both listeners and both protocol versions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Mutex as AsyncMutex, oneshot, watch};
use tokio::task::JoinHandle;
use toolward_gateway::client::{Caller, Claims};
use toolward_gateway::downstream::stdio;

use super::http::{self, HalfSent, Reply};
use super::{Gate, within_an_hour};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// The listener and the protocol version of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    StdioLegacy,
    StdioModern,
    HttpLegacy,
    HttpModern,
}

impl Kind {
    pub const ALL: [Kind; 4] =
        [Kind::StdioLegacy, Kind::StdioModern, Kind::HttpLegacy, Kind::HttpModern];

    pub fn is_modern(self) -> bool {
        matches!(self, Kind::StdioModern | Kind::HttpModern)
    }
}

/// A client that has begun its session, if its protocol version has sessions.
#[derive(Clone)]
pub struct Client {
    gate: Gate,
    kind: Kind,
    token: String,
    transport: Transport,
    next: Arc<AtomicU64>,
    notifications: Arc<Mutex<Vec<Value>>>,
    /// The capabilities that the client declares.
    capabilities: Value,
    responder: Responder,
    /// The result of `initialize` on stdio.
    greeting: Value,
}

/// Responds to requests of servers: the result, or `None` to leave a request open.
pub type Responder = Arc<dyn Fn(&Value) -> Option<Value> + Send + Sync>;

/// The response to a message of the gateway, if it is a request that the client responds to.
fn respond(responder: &Responder, message: &Value) -> Option<Value> {
    message.get("method").filter(|_| message.get("id").is_some())?;
    let result = responder(message)?;
    Some(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}

#[derive(Clone)]
enum Transport {
    Http { session: Option<String> },
    Stdio(Arc<Lines>),
}

/// A stdio connection.
struct Lines {
    output: AsyncMutex<WriteHalf<DuplexStream>>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
    _running: watch::Sender<bool>,
}

/// A request in flight.
pub struct Pending {
    pub id: u64,
    answer: JoinHandle<Option<Value>>,
}

impl Pending {
    /// The response; panics if it is missing.
    pub async fn answer(self) -> Value {
        let answer = within_an_hour("a response", self.answer).await.unwrap();
        answer.unwrap_or_else(|| panic!("the request got no response"))
    }

    /// The same while time does not advance.
    pub async fn unhurried(self) -> Value {
        self.answer.await.unwrap().unwrap_or_else(|| panic!("the request got no response"))
    }

    /// Waits until it is certain that there is no response.
    pub async fn no_answer(self) {
        if let Ok(answer) = tokio::time::timeout(Duration::from_secs(3600), self.answer).await {
            assert_eq!(answer.unwrap(), None);
        }
    }

    /// Waits until it is answered, or until it is certain that it never will be.
    pub async fn settled(self) {
        let _ = tokio::time::timeout(Duration::from_secs(3600), self.answer).await;
    }

    /// Closes the connection on which an HTTP request was sent.
    pub async fn disconnect(self) {
        self.answer.abort();
        let _ = self.answer.await;
    }
}

impl Client {
    pub(super) async fn connect(
        gate: Gate,
        kind: Kind,
        (agent, subject): (&str, Option<&str>),
        (capabilities, responder): (Value, Responder),
    ) -> Client {
        let notifications = Arc::new(Mutex::new(Vec::new()));
        let transport = match kind {
            Kind::HttpLegacy | Kind::HttpModern => Transport::Http { session: None },
            _ => Transport::Stdio(serve_stdio(
                &gate,
                (agent, subject),
                (notifications.clone(), responder.clone()),
            )),
        };
        let (token, next) = (format!("token-of-{agent}"), Arc::new(AtomicU64::new(1)));
        let greeting = Value::Null;
        let mut client = Client {
            gate,
            kind,
            token,
            transport,
            next,
            notifications,
            capabilities,
            responder,
            greeting,
        };
        if !kind.is_modern() {
            client.initialize().await;
        }
        client
    }

    async fn initialize(&mut self) {
        let info = json!({"name": "test", "version": "1"});
        let params = json!({
            "protocolVersion": LEGACY, "capabilities": self.capabilities, "clientInfo": info
        });
        let message = self.message(Some(0), "initialize", params);
        match &self.transport {
            Transport::Http { .. } => {
                let reply = self.post(&message).await;
                assert_eq!(reply.status, 200, "{:?}", reply.messages());
                self.transport = Transport::Http { session: reply.session };
            }
            Transport::Stdio(lines) => {
                let answer = lines.request(0, &message).await.unwrap();
                assert!(answer["result"].is_object());
                self.greeting = answer["result"].clone();
            }
        }
        self.notify("notifications/initialized", json!({})).await;
    }

    /// Continues with `initialize`, as a client whose probe for the modern protocol version failed.
    pub async fn fall_back(mut self) -> Client {
        self.kind = Kind::StdioLegacy;
        self.initialize().await;
        self
    }

    fn message(&self, id: Option<u64>, method: &str, mut params: Value) -> Value {
        if self.kind.is_modern() {
            let meta = params["_meta"].as_object().cloned().unwrap_or_default();
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            });
            params["_meta"].as_object_mut().unwrap().extend(meta);
        }
        let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        if let Some(id) = id {
            message["id"] = json!(id);
        }
        message
    }

    /// Sends the head of a request over HTTP; its body is sent later.
    pub async fn send_head(&self, method: &str, params: Value) -> HalfSent {
        let message = self.message(Some(99), method, params);
        self.head(&message).await
    }

    async fn head(&self, message: &Value) -> HalfSent {
        let authorization = format!("Bearer {}", self.token);
        let mut headers = vec![("Authorization", authorization.as_str())];
        if let Transport::Http { session: Some(session) } = &self.transport {
            headers.push(("Mcp-Session-Id", session));
        }
        if self.kind.is_modern() {
            headers.push(("Mcp-Protocol-Version", MODERN));
            headers.push(("Mcp-Method", message["method"].as_str().unwrap()));
            let params = &message["params"];
            let names = ["name", "uri", "taskId"];
            if let Some(name) = names.iter().find_map(|name| params[name].as_str()) {
                headers.push(("Mcp-Name", name));
            }
        }
        http::send_head(&self.gate.0.endpoint, &headers, message).await
    }

    async fn post(&self, message: &Value) -> Reply {
        let client = self.clone();
        // As it arrives: a test may respond by hand while the request waits.
        let on_message = move |message: &Value| {
            if message.get("method").is_some() {
                client.notifications.lock().unwrap().push(message.clone());
            }
            if let Some(response) = respond(&client.responder, message) {
                let client = client.clone();
                tokio::spawn(async move { client.send(&response).await });
            }
        };
        self.head(message).await.finish_with(on_message).await
    }

    /// Sends a message that gets no response.
    pub async fn send(&self, message: &Value) {
        match &self.transport {
            Transport::Stdio(lines) => lines.write(message).await,
            Transport::Http { .. } => {
                let reply = Box::pin(async { self.head(message).await.finish().await }).await;
                assert_eq!(reply.status, 202);
            }
        }
    }

    /// Begins a request.
    pub fn begin(&self, method: &str, params: Value) -> Pending {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (client, message) = (self.clone(), self.message(Some(id), method, params));
        let answer = tokio::spawn(async move {
            match &client.transport {
                Transport::Stdio(lines) => lines.request(id, &message).await,
                Transport::Http { .. } => {
                    let messages = client.post(&message).await.messages();
                    messages.into_iter().find(|one| one.get("method").is_none())
                }
            }
        });
        Pending { id, answer }
    }

    /// Begins a call of a tool of the server `s`.
    pub fn begin_call(&self, tool: &str, arguments: Value) -> Pending {
        self.begin("tools/call", json!({"name": format!("s__{tool}"), "arguments": arguments}))
    }

    /// The same with a progress token, so that the server may report progress.
    pub fn begin_call_with_progress(&self, tool: &str) -> Pending {
        let meta = json!({"progressToken": "mine"});
        self.begin("tools/call", json!({"name": format!("s__{tool}"), "_meta": meta}))
    }

    /// Calls a tool of the server `s`.
    pub async fn call(&self, tool: &str) -> Value {
        self.begin_call(tool, json!({"say": "hi"})).answer().await
    }

    pub async fn call_with(&self, tool: &str, arguments: Value) -> Value {
        self.begin_call(tool, arguments).answer().await
    }

    pub async fn request(&self, method: &str, params: Value) -> Value {
        self.begin(method, params).answer().await
    }

    /// The result of `initialize` on stdio.
    pub fn greeting(&self) -> &Value {
        &self.greeting
    }

    /// The names of the tools that the client sees.
    pub async fn list(&self) -> Vec<String> {
        let answer = self.request("tools/list", json!({})).await;
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_string()).collect()
    }

    /// The names, URIs or URI templates that a list contains.
    pub async fn entries(&self, method: &str) -> Vec<String> {
        let answer = self.request(method, json!({})).await;
        let lists = ["tools", "prompts", "resources", "resourceTemplates"];
        let list = lists.iter().find_map(|list| answer["result"][list].as_array());
        let list = list.unwrap_or_else(|| panic!("{method}: {answer}")).iter();
        let keys = ["uriTemplate", "uri", "name"];
        let key = |entry: &Value| keys.iter().find_map(|key| entry[key].as_str().map(String::from));
        list.map(|entry| key(entry).unwrap()).collect()
    }

    pub async fn notify(&self, method: &str, params: Value) {
        let message = self.message(None, method, params);
        match &self.transport {
            Transport::Stdio(lines) => lines.write(&message).await,
            Transport::Http { .. } => drop(self.post(&message).await),
        }
    }

    /// Cancels a request as its protocol version and transport do it.
    pub async fn cancel(&self, pending: Pending) {
        if self.kind == Kind::HttpModern {
            return pending.disconnect().await;
        }
        let params = json!({"requestId": pending.id, "reason": "changed my mind"});
        self.notify("notifications/cancelled", params).await;
        pending.no_answer().await;
    }

    pub fn notifications(&self, method: &str) -> Vec<Value> {
        let all = self.notifications.lock().unwrap();
        all.iter().filter(|one| one["method"] == method).cloned().collect()
    }
}

impl Lines {
    async fn write(&self, message: &Value) {
        let line = format!("{message}\n");
        self.output.lock().await.write_all(line.as_bytes()).await.unwrap();
    }

    async fn request(&self, id: u64, message: &Value) -> Option<Value> {
        let (answered, answer) = oneshot::channel();
        self.waiting.lock().unwrap().insert(id, answered);
        self.write(message).await;
        answer.await.ok()
    }
}

fn serve_stdio(
    gate: &Gate,
    (agent, subject): (&str, Option<&str>),
    (notifications, responder): (Arc<Mutex<Vec<Value>>>, Responder),
) -> Arc<Lines> {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (running, revoked) = watch::channel(false);
    let mut caller = Caller::new(Some(agent.into()), "operator");
    caller.claims = subject.map(|subject| {
        let claims = json!({ "sub": subject }).as_object().cloned().unwrap_or_default();
        Arc::new(Claims::new(claims, false, &[0; 32]))
    });
    let gateway = gate.gateway().clone();
    let streams = tokio::io::split(theirs);
    let scope = gate.scope();
    tokio::spawn(stdio::serve(gateway, caller, scope, revoked, 1 << 20, streams));
    let (input, output) = tokio::io::split(ours);
    let (output, waiting) = (AsyncMutex::new(output), Mutex::default());
    let lines = Arc::new(Lines { output, waiting, _running: running });
    tokio::spawn(read(input, lines.clone(), (notifications, responder)));
    lines
}

async fn read(
    input: ReadHalf<DuplexStream>,
    lines: Arc<Lines>,
    (notifications, responder): (Arc<Mutex<Vec<Value>>>, Responder),
) {
    let mut input = BufReader::new(input).lines();
    while let Ok(Some(line)) = input.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        let waiting = message["id"].as_u64().filter(|_| message.get("method").is_none());
        let waiting = waiting.and_then(|id| lines.waiting.lock().unwrap().remove(&id));
        match waiting {
            Some(answered) => drop(answered.send(message)),
            None => {
                if let Some(response) = respond(&responder, &message) {
                    lines.write(&response).await;
                }
                notifications.lock().unwrap().push(message);
            }
        }
    }
}
