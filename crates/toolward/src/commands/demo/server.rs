//! `toolward demo-server`: the demo's MCP server on standard input and output, legacy and modern.
//!
//! A request with modern metadata gets a modern response; any other belongs to a legacy session.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::check;
use super::world::{Outcome, World, tools};
use crate::cli::{DemoPart, DemoServerArgs};
use crate::exit::{self, Failure};
use toolward_gateway::lock::LockUnpoisoned;

const MODERN: &str = "2026-07-28";
/// The newest first.
const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const META: &str = "io.modelcontextprotocol/";

/// The progress messages of the slow tool, one per step.
const STEPS: [&str; 5] =
    ["reading issues", "reading comments", "counting", "writing", "reading it once more"];

const PARSE: i32 = -32700;
const REQUEST: i32 = -32600;
const METHOD: i32 = -32601;
const PARAMS: i32 = -32602;
const VERSION: i32 = -32022;

pub(crate) fn run(args: &DemoServerArgs) -> Result<u8, Failure> {
    let part = args.part.map(|part| match part {
        DemoPart::Tracker => "tracker",
        DemoPart::Files => "files",
    });
    let server = Server {
        name: part.map_or_else(|| "demo".into(), |part| format!("demo-{part}")),
        tools: tools(part),
        shared: Arc::new(DemoState {
            world: Mutex::new(World::new()),
            running: Mutex::new(HashMap::new()),
        }),
        begun: false,
    };
    server.serve(std::io::stdin().lock())
}

struct Server {
    name: String,
    tools: Vec<Value>,
    shared: Arc<DemoState>,
    /// A legacy session has begun.
    begun: bool,
}

struct DemoState {
    world: Mutex<World>,
    /// Slow calls in flight, by their id as written. Removing one cancels it.
    running: Mutex<HashMap<String, mpsc::Sender<()>>>,
}

/// A JSON-RPC error.
struct RpcError {
    code: i32,
    message: String,
    data: Option<Value>,
}

fn refused(code: i32, message: impl Into<String>) -> RpcError {
    RpcError { code, message: message.into(), data: None }
}

impl Server {
    /// Serves requests until the input ends.
    fn serve(mut self, mut input: impl BufRead) -> Result<u8, Failure> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if input.read_until(b'\n', &mut line)? == 0 {
                return Ok(exit::OK);
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            let Ok(message) = serde_json::from_slice::<Value>(&line) else {
                send(&answer(&Value::Null, Err(refused(PARSE, "a line must be one JSON object"))))?;
                continue;
            };
            if let Some(answer) = self.hear(&message) {
                send(&answer)?;
            }
        }
    }

    /// The immediate response to a message, if there is one.
    fn hear(&mut self, message: &Value) -> Option<Value> {
        let (id, method) = (message.get("id"), message["method"].as_str());
        let params = &message["params"];
        match (id, method) {
            (Some(id), Some(method)) if id.is_string() || id.is_i64() || id.is_u64() => {
                let asked = DemoRequest { id, params, modern: terms(params).is_some() };
                let result = self.ask(method, &asked).transpose()?;
                Some(answer(id, result.map(|result| asked.in_era(result))))
            }
            (Some(_), Some(_)) => {
                let why = "an id is a string or a whole number";
                Some(answer(&Value::Null, Err(refused(REQUEST, why))))
            }
            (None, Some("notifications/cancelled")) => {
                // This cancels the call, which gets no response.
                self.shared.running().remove(&params["requestId"].to_string());
                None
            }
            _ => None,
        }
    }

    /// The result of a request; `None` if it is sent later.
    fn ask(&mut self, method: &str, asked: &DemoRequest<'_>) -> Result<Option<Value>, RpcError> {
        if let Some(version) = terms(asked.params).filter(|version| *version != MODERN) {
            let message = format!("protocol version {version} is not supported, use {MODERN}");
            let data = json!({"supported": [MODERN], "requested": version});
            return Err(RpcError { code: VERSION, message, data: Some(data) });
        }
        match method {
            "initialize" if !asked.modern => {
                self.begun = true;
                let wanted = asked.params["protocolVersion"].as_str();
                let version = LEGACY.iter().find(|known| Some(**known) == wanted);
                Ok(Some(json!({
                    "protocolVersion": version.unwrap_or(&LEGACY[0]),
                    "capabilities": {"tools": {}},
                    "serverInfo": self.info(),
                    "instructions": self.instructions(),
                })))
            }
            "server/discover" if asked.modern => Ok(Some(json!({
                "supportedVersions": [MODERN],
                "capabilities": {"tools": {}},
                "instructions": self.instructions(),
                "ttlMs": 60_000,
                "cacheScope": "public",
                "_meta": {format!("{META}serverInfo"): self.info()},
            }))),
            "ping" if !asked.modern => Ok(Some(json!({}))),
            "tools/list" | "tools/call" if !asked.modern && !self.begun => Err(refused(
                REQUEST,
                format!("begin with `initialize`, or send `{META}protocolVersion` in `_meta`"),
            )),
            "tools/list" => {
                let terms = json!({"tools": self.tools, "ttlMs": 60_000, "cacheScope": "public"});
                let plain = json!({"tools": self.tools});
                Ok(Some(if asked.modern { terms } else { plain }))
            }
            "tools/call" => self.call(asked),
            _ => Err(refused(METHOD, format!("there is no method {method} here"))),
        }
    }

    fn call(&self, asked: &DemoRequest<'_>) -> Result<Option<Value>, RpcError> {
        let name = asked.params["name"].as_str().unwrap_or_default();
        let Some(tool) = self.tools.iter().find(|tool| tool["name"] == name) else {
            let names = self.tools.iter().filter_map(|tool| tool["name"].as_str());
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(refused(PARAMS, format!("there is no tool {name}; there are {names}")));
        };
        let none = Map::new();
        let given = match asked.params.get("arguments") {
            None => &none,
            Some(Value::Object(given)) => given,
            Some(_) => return Err(refused(PARAMS, "`arguments` is an object")),
        };
        if let Err(wrong) = check::arguments(tool, given) {
            return Ok(Some(result(tool, Err(wrong))));
        }
        if name == "weekly_report" {
            self.report(tool, given, asked);
            return Ok(None);
        }
        let outcome = self.shared.world().call(name, given);
        Ok(Some(result(tool, outcome)))
    }

    /// Responds later, from its own thread, unless the call is cancelled.
    fn report(&self, tool: &Value, given: &Map<String, Value>, asked: &DemoRequest<'_>) {
        let seconds = given.get("seconds").and_then(Value::as_f64).unwrap_or(3.0);
        let step = Duration::from_secs_f64((seconds / STEPS.len() as f64).clamp(0.0, 20.0));
        let token = asked.params["_meta"].get("progressToken").cloned();
        let (cancel, cancelled) = mpsc::channel();
        let (key, id) = (asked.id.to_string(), asked.id.clone());
        self.shared.running().insert(key.clone(), cancel);
        let (shared, tool, modern) = (self.shared.clone(), tool.clone(), asked.modern);
        std::thread::spawn(move || {
            for (at, message) in STEPS.iter().enumerate() {
                if cancelled.recv_timeout(step) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
                if let Some(token) = &token {
                    let told = json!({
                        "jsonrpc": "2.0", "method": "notifications/progress",
                        "params": {"progressToken": token, "progress": at + 1, "total": STEPS.len(),
                            "message": message},
                    });
                    let _ = send(&told);
                }
            }
            if shared.running().remove(&key).is_some() {
                let report = result(&tool, Ok(json!(shared.world().report())));
                let asked = DemoRequest { id: &id, params: &Value::Null, modern };
                let _ = send(&answer(&id, Ok(asked.in_era(report))));
            }
        });
    }

    fn info(&self) -> Value {
        json!({"name": self.name, "title": "Heron, a made-up project", "version": env!("CARGO_PKG_VERSION")})
    }

    fn instructions(&self) -> &'static str {
        "The issues and files of Heron, a made-up project. Everything is in memory and lost at the end."
    }
}

impl DemoState {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.locked()
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, mpsc::Sender<()>>> {
        self.running.locked()
    }
}

/// A parsed request.
struct DemoRequest<'m> {
    id: &'m Value,
    params: &'m Value,
    modern: bool,
}

impl DemoRequest<'_> {
    /// Adds `resultType`, which only modern responses have.
    fn in_era(&self, mut result: Value) -> Value {
        if self.modern {
            result["resultType"] = json!("complete");
        }
        result
    }
}

/// The protocol version that a modern request names.
fn terms(params: &Value) -> Option<&str> {
    params["_meta"][format!("{META}protocolVersion")].as_str()
}

/// A tool result of the protocol. A tool with an output schema returns both forms.
fn result(tool: &Value, outcome: Outcome) -> Value {
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    match outcome {
        Ok(value) if tool["outputSchema"].is_object() => {
            json!({"content": text(&value.to_string()), "structuredContent": value})
        }
        Ok(value) => json!({"content": text(value.as_str().unwrap_or_default())}),
        Err(why) => json!({"content": text(&why), "isError": true}),
    }
}

fn answer(id: &Value, result: Result<Value, RpcError>) -> Value {
    match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(RpcError { code, message, data }) => {
            let mut error = json!({"code": code, "message": message});
            if let Some(data) = data {
                error["data"] = data;
            }
            json!({"jsonrpc": "2.0", "id": id, "error": error})
        }
    }
}

/// Writes one line atomically.
fn send(message: &Value) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{message}\n").as_bytes())?;
    out.flush()
}
