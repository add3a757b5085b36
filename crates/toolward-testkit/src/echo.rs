//! An MCP server of both eras whose calls answer with their arguments.

pub mod http;
pub mod stdio;

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::json::{member, quote, string};

pub const MODERN: &str = "2026-07-28";
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// Somebody who hears the parameters of calls.
pub type Heard = Box<dyn Fn(&[u8]) + Send + Sync>;

/// What the server has and knows; how it is reached is the business of [`http`] and [`stdio`].
pub struct Server {
    /// The array of tools, as it is sent.
    tools: Vec<u8>,
    names: HashSet<Vec<u8>>,
    sessions: Mutex<HashSet<Vec<u8>>>,
    begun: AtomicU64,
    /// Over HTTP: answers come as event streams.
    pub sse: bool,
    /// Hears the parameters of every call, before it is answered.
    pub heard: Option<Heard>,
}

/// What a message is, as far as a transport must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked<'a> {
    /// Begins a session.
    Initialize,
    Legacy,
    /// With what the headers must repeat.
    Modern {
        method: &'a [u8],
        name: Option<&'a [u8]>,
    },
}

/// What comes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// It was a notification or an answer.
    Nothing,
    Result,
    /// An error, with the status it has over HTTP in the modern era.
    Error(u16),
}

impl Server {
    /// A server with these tools: a JSON array, or an object that has one under `tools`.
    pub fn new(list: &str) -> io::Result<Server> {
        let list: Value = serde_json::from_str(list)?;
        let tools = match &list {
            Value::Object(object) => object.get("tools"),
            list => Some(list),
        };
        let tools =
            tools.and_then(Value::as_array).ok_or_else(|| bad("there is no list of tools"))?;
        let names = tools.iter().filter_map(|tool| tool["name"].as_str()).map(|name| {
            // As it is written in a request, for names that need no escapes.
            name.as_bytes().to_vec()
        });
        Ok(Server {
            names: names.collect(),
            tools: serde_json::to_vec(tools)?,
            sessions: Mutex::default(),
            begun: AtomicU64::new(1),
            sse: false,
            heard: None,
        })
    }

    /// Appends the answer to a message, and says what it was.
    pub fn answer<'m>(&self, message: &'m [u8], out: &mut Vec<u8>) -> (Asked<'m>, Answered) {
        let method = string(message, "method").unwrap_or_default();
        let params = member(message, "params").unwrap_or(b"{}");
        let modern = member(params, "_meta").and_then(|meta| member(meta, PROTOCOL_VERSION));
        let name = (method == b"tools/call").then(|| string(params, "name").unwrap_or_default());
        let asked = match (modern, method) {
            (Some(_), _) => Asked::Modern { method, name },
            (None, b"initialize") => Asked::Initialize,
            (None, _) => Asked::Legacy,
        };
        if let (b"tools/call", Some(heard)) = (method, &self.heard) {
            heard(params);
        }
        let (Some(id), false) = (member(message, "id"), method.is_empty()) else {
            return (asked, Answered::Nothing);
        };
        let mut reply = Reply { out, id };
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
                    "capabilities": {"tools": {}},
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
                    "capabilities": {"tools": {}},
                    "serverInfo": info(),
                });
                reply.result(&[result.to_string().as_bytes()])
            }
            (b"ping", false) => reply.result(&[b"{}"]),
            _ => reply.error(404, -32601, "the method is not known"),
        };
        (asked, answered)
    }

    fn call(
        &self,
        params: &[u8],
        name: Option<&[u8]>,
        modern: bool,
        reply: &mut Reply<'_>,
    ) -> Answered {
        if !name.is_some_and(|name| self.names.contains(name)) {
            return reply.error(200, -32602, "there is no such tool");
        }
        let arguments = member(params, "arguments").unwrap_or(b"{}");
        let terms: &[u8] = if modern { b"\"resultType\":\"complete\"," } else { b"" };
        reply.begin();
        reply.out.push(b'{');
        reply.out.extend_from_slice(terms);
        reply.out.extend_from_slice(b"\"content\":[{\"type\":\"text\",\"text\":");
        quote(arguments, reply.out);
        reply.out.extend_from_slice(b"}]}}");
        Answered::Result
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

/// An answer under way.
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

    fn result(&mut self, parts: &[&[u8]]) -> Answered {
        self.begin();
        parts.iter().for_each(|part| self.out.extend_from_slice(part));
        self.out.push(b'}');
        Answered::Result
    }

    fn error(&mut self, status: u16, code: i32, message: &str) -> Answered {
        error(self.out, self.id, code, message);
        Answered::Error(status)
    }
}

fn error(out: &mut Vec<u8>, id: &[u8], code: i32, message: &str) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id);
    out.extend_from_slice(
        format!(",\"error\":{{\"code\":{code},\"message\":\"{message}\"}}}}").as_bytes(),
    );
}

/// A list of `echo` and further tools, each of about so many bytes, or as short as it gets.
pub fn tools(count: usize, bytes: usize) -> String {
    let words = "Reads what is asked for and gives it back in the order in which it was found. ";
    let tool = |at: usize| {
        let mut tool = json!({
            "name": if at == 0 { "echo".into() } else { format!("tool_{at:03}") },
            "description": "",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "message": {"type": "string", "description": "What to say"},
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

    fn ask(server: &Server, message: &Value) -> (Answered, Value) {
        let mut out = Vec::new();
        let (_, answered) = server.answer(message.to_string().as_bytes(), &mut out);
        (answered, serde_json::from_slice(&out).unwrap_or_default())
    }

    fn modern(method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({PROTOCOL_VERSION: MODERN});
        json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params})
    }

    #[test]
    fn a_call_answers_with_its_arguments_as_text() {
        let server = Server::new(&tools(1, 0)).unwrap();
        let arguments = json!({"message": "a \"quoted\" line\n", "n": 1});
        let call = modern("tools/call", json!({"name": "echo", "arguments": arguments}));
        let (answered, answer) = ask(&server, &call);
        assert_eq!(answered, Answered::Result);
        assert_eq!(
            (&answer["id"], &answer["result"]["resultType"]),
            (&json!("a"), &json!("complete"))
        );
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), arguments);
    }

    #[test]
    fn a_list_is_sent_as_it_was_given() {
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
    fn a_generated_list_has_the_asked_for_size() {
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
        assert_eq!(ask(&server, &modern("ping", json!({}))).0, Answered::Error(404));
        assert_eq!(ask(&server, &modern("initialize", json!({}))).0, Answered::Error(404));
        assert_eq!(ask(&server, &legacy("server/discover")).0, Answered::Error(404));
    }

    #[test]
    fn notifications_and_answers_are_not_answered() {
        let server = Server::new("[]").unwrap();
        for silent in [
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
        ] {
            assert_eq!(ask(&server, &silent), (Answered::Nothing, Value::Null));
        }
    }

    #[test]
    fn a_tool_that_is_not_there_is_an_error() {
        let server = Server::new("[]").unwrap();
        let (answered, answer) = ask(&server, &modern("tools/call", json!({"name": "echo"})));
        assert_eq!((answered, &answer["error"]["code"]), (Answered::Error(200), &json!(-32602)));
    }
}
