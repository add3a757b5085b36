//! An idle session expires, with everything that only it used. The timeout of the program is half an
//! hour, so this tests the gateway crate directly.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use toolward_gateway::active::reachable::Reachable;
use toolward_gateway::active::{self, Active};
use toolward_gateway::audit::redact::Redact;
use toolward_gateway::audit::{self, Audit};
use toolward_gateway::authn::Identities;
use toolward_gateway::budget::Budget;
use toolward_gateway::context::Context;
use toolward_gateway::downstream::accept::{Ending, Grace, Socket, serve};
use toolward_gateway::downstream::http::{Endpoint, Setup};
use toolward_gateway::gateway::Gateway;
use toolward_gateway::guard::Guards;
use toolward_gateway::guard::approvals::Approvals;
use toolward_gateway::opaque_id::Sealer;
use toolward_gateway::upstream::{Definition, Launch, Reach, Servers};
use toolward_gateway::view::discovery::Discovery;
use toolward_gateway::view::names::Naming;
use toolward_policy::Policy;
use toolward_policy::source::Source;
use toolward_testkit::wait;

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../toolward/tests/program/both.py");
const IDLE: Duration = Duration::from_secs(2);

/// A gateway with one scripted server, in threads of this process.
struct Gate {
    port: String,
    end: watch::Sender<Ending>,
    threads: Option<std::thread::JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

fn definition(folder: &std::path::Path) -> Definition {
    let tools: Value = ["pid", "later"].iter().map(|name| json!({"name": name})).collect();
    std::fs::write(folder.join("tools.json"), tools.to_string()).unwrap();
    let mut arguments: Vec<std::ffi::OsString> =
        [SERVER, "stdio", "legacy"].map(Into::into).to_vec();
    arguments.extend(["log", "tools.json"].map(|file| folder.join(file).into_os_string()));
    let launch = Launch {
        name: "s".into(),
        program: "python3".into(),
        file: None,
        arguments,
        environment: Vec::new(),
        inherit: Default::default(),
        folder: None,
    }
    .resolved();
    Definition {
        name: "s".into(),
        reach: Reach::Child(launch),
        timeouts: Default::default(),
        share: false,
        cache: true,
        max_children: 8,
        eager: false,
        answer_bytes: 1 << 20,
        results: Default::default(),
        schemes: Vec::new(),
        roots: None,
    }
}

fn start() -> Gate {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let servers = Servers::new();
    let all = servers.create(vec![definition(folder.path())], &[]);
    let active = active::Setup {
        policy: Policy::compile(Source::default()).unwrap(),
        shadow: None,
        pins: Default::default(),
        version: "v".into(),
        enforced: true,
        guards: Guards::default(),
        approvals: Default::default(),
        admins: None,
        servers: all,
        naming: Naming::Prefix { separator: "__".into() },
        identities: Identities::default(),
        reachable: Reachable::new(["127.0.0.1".to_string()], []),
        redact: Redact::default(),
        discovery: Discovery::default(),
        denies_all: false,
    };
    let context = Context {
        servers: Arc::new(servers),
        audit: Audit::open(audit::Setup::in_folder(path("audit"))).unwrap(),
        sealer: Arc::new(Sealer::random().unwrap()),
        approvals: Arc::new(Approvals::in_memory().unwrap()),
        held: Default::default(),
        links: Default::default(),
        tasks: Default::default(),
        series: Default::default(),
        current: Default::default(),
        budget: Budget::new(1 << 24),
        list_timeout: Duration::from_secs(20),
    };
    let gateway = Gateway::new(context, Active::new(active));
    let setup = Setup {
        tls: None,
        sealer: Arc::new(Sealer::in_directory(&path("state")).unwrap()),
        state: path("state"),
        request_bytes: 1 << 20,
        waiting_requests: 100,
        session_idle: Some(IDLE),
    };
    let endpoint = Arc::new(Endpoint::new(Arc::new(gateway), setup));
    let socket = Socket::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.address().rsplit(':').next().unwrap().to_string();
    let (end, ending) = watch::channel(Ending::No);
    let threads = std::thread::spawn(move || {
        let time = Duration::from_secs(5);
        let grace = Grace { otherwise: time, handed_over: time };
        serve(endpoint, vec![socket], 2, 100, &ending, grace).unwrap();
    });
    Gate { port, end, threads: Some(threads), _folder: folder }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = self.end.send(Ending::Now);
        let _ = self.threads.take().unwrap().join();
    }
}

struct Session<'g> {
    gate: &'g Gate,
    id: String,
}

impl Gate {
    fn open(&self, head: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", self.port)).unwrap();
        let host = format!("Host: 127.0.0.1:{}\r\nContent-Type: application/json\r\n", self.port);
        let length = format!("Connection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{host}{length}{body}").as_bytes()).unwrap();
        stream
    }

    fn post(&self, session: &str, body: &Value) -> (u16, String) {
        let head = format!("POST /mcp HTTP/1.1\r\nAccept: application/json\r\n{session}");
        let mut answer = String::new();
        self.open(&head, &body.to_string()).read_to_string(&mut answer).unwrap();
        (answer[9..12].parse().unwrap(), answer)
    }

    fn session(&self) -> Session<'_> {
        let client = json!({"name": "c", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let (status, answer) = self.post("", &begin);
        assert_eq!(status, 200, "{answer}");
        let id = answer.lines().find_map(|line| line.strip_prefix("Mcp-Session-Id: ")).unwrap();
        Session { gate: self, id: id.into() }
    }
}

impl Session<'_> {
    fn header(&self) -> String {
        format!("Mcp-Session-Id: {}\r\n", self.id)
    }

    fn status(&self) -> u16 {
        self.gate.post(&self.header(), &json!({"jsonrpc": "2.0", "id": 2, "method": "ping"})).0
    }

    fn call(&self, name: &str, arguments: Value) -> String {
        let params = json!({"name": format!("s__{name}"), "arguments": arguments});
        let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params});
        let (status, answer) = self.gate.post(&self.header(), &call);
        assert_eq!(status, 200, "{answer}");
        let body: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        let text = body["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{answer}")).into()
    }

    fn pid(&self) -> u32 {
        self.call("pid", json!({})).parse().unwrap()
    }

    fn listen(&self) -> TcpStream {
        let head = format!("GET /mcp HTTP/1.1\r\nAccept: text/event-stream\r\n{}", self.header());
        let mut stream = self.gate.open(&head, "");
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        stream
    }
}

fn alive(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

fn ends(what: &str, pid: u32) {
    wait::eventually(what, || !alive(pid));
}

#[test]
fn an_idle_session_ends_and_one_in_use_does_not() {
    let gate = start();
    let (idle, active, listening) = (gate.session(), gate.session(), gate.session());
    let (idle_pid, active_pid, listening_pid) = (idle.pid(), active.pid(), listening.pid());
    assert!(idle_pid != active_pid && active_pid != listening_pid);
    let stream = listening.listen();
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            // One request that takes longer than the idle timeout of a session.
            let busy = gate.session();
            let pid = busy.pid();
            assert_eq!(busy.call("later", json!({"seconds": 5})), "later");
            assert_eq!(busy.pid(), pid);
        });
        wait::always("a session in use is kept", 3 * IDLE, || active.status() == 200);
        busy.join().unwrap();
    });
    ends("the process of the idle session ends", idle_pid);
    assert_eq!(idle.status(), 404, "the session is not known any more");
    assert!(alive(active_pid) && alive(listening_pid));
    assert_eq!(listening.status(), 200, "a session with an open stream continues");
    assert_eq!(listening.pid(), listening_pid);
    drop(stream);
    ends("the stream is closed", listening_pid);
    assert_eq!(listening.status(), 404);
}
