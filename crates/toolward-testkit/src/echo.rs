//! Echo server: an MCP server, legacy and modern, whose calls return their arguments.

pub mod http;
pub mod others;
pub mod stdio;

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use self::others::Others;
use crate::json::{member, quote, string};

pub const MODERN: &str = "2026-07-28";
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// A callback that gets the parameters of a call.
pub type CallObserver = Box<dyn Fn(&[u8]) + Send + Sync>;

/// The state of the server, independent of the transport. See [`http`] and [`stdio`].
pub struct Server {
    /// The JSON array of tools.
    tools: Vec<u8>,
    names: HashSet<Vec<u8>>,
    sessions: Mutex<HashSet<Vec<u8>>>,
    begun: AtomicU64,
    /// Whether responses over HTTP are event streams.
    pub sse: bool,
    /// Whether it knows only legacy protocol versions.
    pub legacy: bool,
    others: Option<Others>,
    /// Called with the parameters of every call, before the response.
    pub on_call: Option<CallObserver>,
}

/// The kind of a message, as far as the transport needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind<'a> {
    /// Starts a session.
    Initialize,
    Legacy,
    /// With the values that the headers must mirror.
    Modern {
        method: &'a [u8],
        name: Option<&'a [u8]>,
    },
}

/// The kind of the response to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// None: the message was a notification or a response.
    Nothing,
    Result,
    /// An error, with its HTTP status for modern clients.
    Error(u16),
}

impl Server {
    /// Creates a server with these tools: a JSON array, or an object with the array in `tools`.
    pub fn new(list: &str) -> io::Result<Server> {
        let list: Value = serde_json::from_str(list)?;
        let tools = match &list {
            Value::Object(object) => object.get("tools"),
            list => Some(list),
        };
        let tools =
            tools.and_then(Value::as_array).ok_or_else(|| bad("the file has no list of tools"))?;
        let names = tools.iter().filter_map(|tool| tool["name"].as_str()).map(|name| {
            // Compared with the JSON of a request, so names must not need escape sequences.
            name.as_bytes().to_vec()
        });
        Ok(Server {
            names: names.collect(),
            tools: serde_json::to_vec(tools)?,
            sessions: Mutex::default(),
            begun: AtomicU64::new(1),
            sse: false,
            legacy: false,
            others: None,
            on_call: None,
        })
    }

    /// Adds prompts and resources, and the tools `touch`, which announces a change of the resource in its argument `uri`
    /// (over stdio), and `ask`, which asks the client and never ends (over HTTP).
    pub fn offer(mut self, others: Others) -> io::Result<Server> {
        let mut tools: Vec<Value> = serde_json::from_slice(&self.tools)?;
        for name in ["touch", "ask"] {
            tools.push(json!({"name": name, "inputSchema": {"type": "object"}}));
            self.names.insert(name.into());
        }
        self.tools = serde_json::to_vec(&tools)?;
        self.others = Some(others);
        Ok(self)
    }

    /// Appends the response to a message. Returns the kinds of the message and of the response.
    pub fn answer<'m>(&self, message: &'m [u8], out: &mut Vec<u8>) -> (RequestKind<'m>, Outcome) {
        let method = string(message, "method").unwrap_or_default();
        let params = member(message, "params").unwrap_or(b"{}");
        let modern = member(params, "_meta").and_then(|meta| member(meta, PROTOCOL_VERSION));
        let modern = modern.filter(|_| !self.legacy);
        let name = match method {
            b"tools/call" | b"prompts/get" => Some(string(params, "name").unwrap_or_default()),
            b"resources/read" => Some(string(params, "uri").unwrap_or_default()),
            _ => None,
        };
        let asked = match (modern, method) {
            (Some(_), _) => RequestKind::Modern { method, name },
            (None, b"initialize") => RequestKind::Initialize,
            (None, _) => RequestKind::Legacy,
        };
        if let (b"tools/call", Some(on_call)) = (method, &self.on_call) {
            on_call(params);
        }
        let (Some(id), false) = (member(message, "id"), method.is_empty()) else {
            return (asked, Outcome::Nothing);
        };
        if let (b"tools/call", Some(b"touch"), Some(_)) = (method, name, &self.others) {
            let arguments = member(params, "arguments").unwrap_or_default();
            others::updated(string(arguments, "uri").unwrap_or_default(), out);
        }
        let mut reply = Reply { out, id };
        let capabilities = || match self.others {
            Some(_) => Others::capabilities(),
            None => json!({"tools": {}}),
        };
        let others = self.others.as_ref();
        let other =
            others.and_then(|others| others.answer(method, params, modern.is_some(), &mut reply));
        if let Some(answered) = other {
            return (asked, answered);
        }
        let answered = match (method, modern.is_some()) {
            (b"tools/call", modern) => self.call(params, name, modern, &mut reply),
            (b"tools/list", modern) => {
                let terms =
                    "\"resultType\":\"complete\",\"ttlMs\":60000,\"cacheScope\":\"private\",";
                let terms = if modern { terms } else { "" };
                reply.result(&[b"{", terms.as_bytes(), b"\"tools\":", &self.tools, b"}"])
            }
            (b"server/discover", true) => {
                let result = json!({
                    "resultType": "complete",
                    "supportedVersions": [MODERN],
                    "capabilities": capabilities(),
                    "ttlMs": 60000,
                    "cacheScope": "private",
                    "_meta": {"io.modelcontextprotocol/serverInfo": info()},
                });
                reply.result(&[result.to_string().as_bytes()])
            }
            (b"initialize", false) => {
                let wanted = string(params, "protocolVersion").unwrap_or_default();
                let known = LEGACY.iter().find(|known| known.as_bytes() == wanted);
                let result = json!({
                    "protocolVersion": known.unwrap_or(&LEGACY[0]),
                    "capabilities": capabilities(),
                    "serverInfo": info(),
                });
                reply.result(&[result.to_string().as_bytes()])
            }
            (b"ping", false) => reply.result(&[b"{}"]),
            _ => reply.error(404, -32601, "unknown method"),
        };
        (asked, answered)
    }

    fn call(
        &self,
        params: &[u8],
        name: Option<&[u8]>,
        modern: bool,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        if !name.is_some_and(|name| self.names.contains(name)) {
            return reply.error(200, -32602, "unknown tool");
        }
        let arguments = member(params, "arguments").unwrap_or(b"{}");
        let terms: &[u8] = if modern { b"\"resultType\":\"complete\"," } else { b"" };
        reply.begin();
        reply.out.push(b'{');
        reply.out.extend_from_slice(terms);
        reply.out.extend_from_slice(b"\"content\":[{\"type\":\"text\",\"text\":");
        quote(arguments, reply.out);
        reply.out.extend_from_slice(b"}]}}");
        Outcome::Result
    }

    fn begin_session(&self) -> String {
        let id = format!("session-{}", self.begun.fetch_add(1, Ordering::Relaxed));
        self.sessions().insert(id.clone().into_bytes());
        id
    }

    fn has_session(&self, id: &[u8]) -> bool {
        self.sessions().contains(id)
    }

    fn end_session(&self, id: &[u8]) -> bool {
        self.sessions().remove(id)
    }

    fn sessions(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A response that is being written.
struct Reply<'a> {
    out: &'a mut Vec<u8>,
    id: &'a [u8],
}

impl Reply<'_> {
    fn begin(&mut self) {
        self.out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        self.out.extend_from_slice(self.id);
        self.out.extend_from_slice(b",\"result\":");
    }

    fn result(&mut self, parts: &[&[u8]]) -> Outcome {
        self.begin();
        parts.iter().for_each(|part| self.out.extend_from_slice(part));
        self.out.push(b'}');
        Outcome::Result
    }

    fn error(&mut self, status: u16, code: i32, message: &str) -> Outcome {
        error(self.out, self.id, code, message);
        Outcome::Error(status)
    }
}

fn error(out: &mut Vec<u8>, id: &[u8], code: i32, message: &str) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id);
    out.extend_from_slice(
        format!(",\"error\":{{\"code\":{code},\"message\":\"{message}\"}}}}").as_bytes(),
    );
}

/// Generates a list of `echo` and further tools, each of about `bytes` bytes or more.
pub fn tools(count: usize, bytes: usize) -> String {
    let words = "Reads what is asked for and gives it back in the order in which it was found. ";
    let tool = |at: usize| {
        let mut tool = json!({
            "name": if at == 0 { "echo".into() } else { format!("tool_{at:03}") },
            "description": "",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "message": {"type": "string", "description": "The text to echo"},
                    "number": {"type": "integer", "minimum": 0},
                },
            },
            "annotations": {"readOnlyHint": true, "openWorldHint": false},
        });
        let missing = bytes.saturating_sub(tool.to_string().len()).max(words.len());
        let text: String = words.chars().cycle().take(missing).collect();
        tool["description"] = json!(text);
        tool
    };
    Value::Array((0..count).map(tool).collect()).to_string()
}

fn info() -> Value {
    json!({"name": "testkit-echo", "version": env!("CARGO_PKG_VERSION")})
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(server: &Server, message: &Value) -> (Outcome, Value) {
        let mut out = Vec::new();
        let (_, answered) = server.answer(message.to_string().as_bytes(), &mut out);
        (answered, serde_json::from_slice(&out).unwrap_or_default())
    }

    fn modern(method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({PROTOCOL_VERSION: MODERN});
        json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params})
    }

    #[test]
    fn a_call_returns_its_arguments_as_text() {
        let server = Server::new(&tools(1, 0)).unwrap();
        let arguments = json!({"message": "a \"quoted\" line\n", "n": 1});
        let call = modern("tools/call", json!({"name": "echo", "arguments": arguments}));
        let (answered, answer) = ask(&server, &call);
        assert_eq!(answered, Outcome::Result);
        assert_eq!(
            (&answer["id"], &answer["result"]["resultType"]),
            (&json!("a"), &json!("complete"))
        );
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), arguments);
    }

    #[test]
    fn a_list_is_returned_unchanged() {
        let list = json!([{"name": "x", "odd": {"a": [1, 2]}}]);
        for given in [list.clone(), json!({"server": "s", "tools": list})] {
            let server = Server::new(&given.to_string()).unwrap();
            let (_, answer) = ask(&server, &modern("tools/list", json!({})));
            assert_eq!(answer["result"]["tools"], list);
            assert_eq!(answer["result"]["ttlMs"], 60000);
            let legacy = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
            let (_, answer) = ask(&server, &legacy);
            assert_eq!(answer["result"], json!({"tools": list}));
        }
    }

    #[test]
    fn a_generated_list_has_the_requested_size() {
        let list = tools(100, 1000);
        assert!((95_000..110_000).contains(&list.len()), "{}", list.len());
        let list: Value = serde_json::from_str(&list).unwrap();
        assert_eq!(list.as_array().unwrap().len(), 100);
        assert_eq!(list[0]["name"], "echo");
    }

    #[test]
    fn each_era_has_its_own_methods() {
        let server = Server::new(&tools(1, 0)).unwrap();
        let legacy = |method: &str| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"protocolVersion": "2025-06-18"}});
        let (_, hello) = ask(&server, &legacy("initialize"));
        assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
        let (_, found) = ask(&server, &modern("server/discover", json!({})));
        assert_eq!(found["result"]["supportedVersions"], json!([MODERN]));
        assert_eq!(ask(&server, &legacy("ping")).1["result"], json!({}));
        assert_eq!(ask(&server, &modern("ping", json!({}))).0, Outcome::Error(404));
        assert_eq!(ask(&server, &modern("initialize", json!({}))).0, Outcome::Error(404));
        assert_eq!(ask(&server, &legacy("server/discover")).0, Outcome::Error(404));
    }

    #[test]
    fn notifications_and_responses_get_no_response() {
        let server = Server::new("[]").unwrap();
        for silent in [
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
        ] {
            assert_eq!(ask(&server, &silent), (Outcome::Nothing, Value::Null));
        }
    }

    #[test]
    fn an_unknown_tool_is_an_error() {
        let server = Server::new("[]").unwrap();
        let (answered, answer) = ask(&server, &modern("tools/call", json!({"name": "echo"})));
        assert_eq!((answered, &answer["error"]["code"]), (Outcome::Error(200), &json!(-32602)));
    }
}
