//! Requests of one agent.

use serde_json::{Value, json};

use super::*;
use crate::audit_log::witness;

/// A client with the credentials of one agent.
#[derive(Clone)]
pub struct Agent {
    pub port: u16,
    pub token: Option<String>,
    pub path: String,
}

/// A client of a gateway that the test did not start through [`Setup`].
pub fn agent_at(port: u16, token: &str) -> Agent {
    Agent { port, token: Some(token.into()), path: "/mcp".into() }
}

impl Agent {
    pub fn at(&self, path: &str) -> Agent {
        Agent { path: path.into(), ..self.clone() }
    }

    /// A request's bytes, with these headers in addition to the default ones.
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

    /// Starts a session.
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

    /// A session in which the server responded to `initialize` within the one-second limit.
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

/// A value encoded for a header.
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
