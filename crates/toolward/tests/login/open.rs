//! A server with `login` that no one has logged in to is asked without credentials: it may not need a login.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use serde_json::{Value, json};
use toolward_testkit::http::{Frame, frame};
use toolward_testkit::wait::eventually;

use crate::world::World;

#[test]
fn a_server_that_needs_no_login_works_with_login_in_its_configuration() {
    let world = World::with(json!({}), json!({"open": true}));
    let mut gateway = world.gateway();
    assert_eq!(gateway.tools().len(), 2);
    assert!(gateway.call("echo")["result"]["content"].is_array());
    let shown = world.run(&["status"]);
    assert!(!shown.stdout.contains("needs login"), "{shown:?}");
    let seen = world.protected.seen();
    assert!(seen.iter().all(|request| request.field("authorization").is_empty()), "{seen:?}");
    assert_eq!(world.tokens.seen().len(), 0, "nothing is requested from an authorization server");
}

#[test]
fn only_a_401_makes_a_login_needed_and_no_credentials_of_the_client_are_sent() {
    let world = World::with(json!({}), json!({"open": true}));
    let served = Served::start(&world);
    let token = TOKEN;
    let called = |tool: &str| served.call(tool);
    assert!(called("echo")["result"]["content"].is_array());
    world.protected.switch(|switches| switches.open = false);
    let refused = called("echo");
    assert_eq!(refused["error"]["data"]["error"], "needs_login", "{refused}");
    let asked = world.protected.seen().len();
    assert_eq!(called("echo")["error"]["data"]["error"], "needs_login");
    assert_eq!(world.protected.seen().len(), asked, "it is not asked again with each call");
    for request in world.protected.seen() {
        assert!(request.field("authorization").is_empty(), "{request:?}");
        assert!(!format!("{request:?}").contains(token), "{request:?}");
    }
    world.logged_in();
    eventually("the login is used", || called("whoami")["result"].is_object());
    for request in world.protected.seen() {
        assert!(!format!("{request:?}").contains(token), "{request:?}");
    }
}

#[test]
fn a_session_of_a_login_is_not_used_without_it() {
    let world = World::new();
    world.logged_in();
    let mut gateway = world.gateway();
    assert_eq!(gateway.whoami()["subject"], "alice");
    let sessions: Vec<String> = sessions(&world);
    world.protected.switch(|switches| switches.open = true);
    assert_eq!(world.run(&["logout", "it"]).code, 0);
    eventually("the gateway notices", || {
        gateway.call("echo");
        anonymous_calls(&world) > 0
    });
    for request in world.protected.seen() {
        let session = request.field("mcp-session-id");
        let is_anonymous = request.field("authorization").is_empty();
        assert!(!(is_anonymous && sessions.iter().any(|one| one == session)), "{request:?}");
    }
}

/// The sessions of requests with a token.
fn sessions(world: &World) -> Vec<String> {
    let seen = world.protected.seen();
    let own = seen.iter().filter(|request| !request.field("authorization").is_empty());
    let own = own.map(|request| request.field("mcp-session-id").to_string());
    own.filter(|session| !session.is_empty()).collect()
}

fn anonymous_calls(world: &World) -> usize {
    let calls = world.protected.calls();
    calls.iter().filter(|call| call.field("authorization").is_empty()).count()
}

const TOKEN: &str = "token-of-agent-a-0123456789abcdef";

/// A running `toolward serve` with a session of an agent that has a token.
struct Served {
    child: Child,
    socket: std::path::PathBuf,
    session: String,
}

impl Served {
    fn start(world: &World) -> Served {
        world.serve_admin(0);
        let socket = world.path("mcp.sock");
        let child = world.command(&["serve"]).stderr(Stdio::inherit()).spawn().unwrap();
        eventually("it listens", || UnixStream::connect(&socket).is_ok());
        let mut served = Served { child, socket, session: String::new() };
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"}});
        let (_, session) = served
            .post(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}));
        served.session = format!("Mcp-Session-Id: {}\r\n", session.unwrap());
        served.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        served
    }

    fn call(&self, tool: &str) -> Value {
        let params = json!({"name": format!("it__{tool}"), "arguments": {}});
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
        let body = self.post(&call).0;
        // A response may be an event.
        let mut message = body.lines().filter_map(|line| {
            serde_json::from_str::<Value>(line.strip_prefix("data: ").unwrap_or(line)).ok()
        });
        message.rfind(|message| message["id"] == 2).unwrap_or_else(|| panic!("{body}"))
    }

    /// The body of the response, and its session.
    fn post(&self, message: &Value) -> (String, Option<String>) {
        let body = message.to_string();
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             {}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
            self.session,
            body.len()
        )
        .unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let Frame::Whole(layout) = frame(&bytes).unwrap() else { panic!("an incomplete response") };
        let mut room = Vec::new();
        let response = layout.message(&bytes, &mut room);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(response.body), response.field("mcp-session-id").map(text))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
