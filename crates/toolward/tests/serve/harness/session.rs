//! A legacy session, and what it has in common with modern clients.

use serde_json::{Value, json};

use super::*;

/// A legacy session.
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

    /// A GET stream whose head has been read.
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

/// A client of either protocol version, for behavior that both share.
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
