//! `--on-invalid-policy deny-all`: a gateway that denies everything until its files are valid.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::harness::{Setup, eventually, setup};
use super::reload::{beside, listed, only, replace, said, two};
use super::wire::Connection;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn ready(port: u16) -> Option<(u16, String)> {
    std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    let mut connection = Connection::open(port);
    connection.send(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let reply = connection.reply();
    Some((reply.status, String::from_utf8_lossy(&reply.body).into_owned()))
}

fn denying(setup: Setup) -> Setup {
    setup.flag("--on-invalid-policy=deny-all")
}

#[test]
fn a_secret_that_is_missing_is_waited_for() {
    let agents = json!({"a": {"tokens": ["${file:token}"], "allow": {"servers": ["*"]}}});
    let gate = denying(setup().agents(agents).web("s", "modern", two())).start();
    said(&gate, "EVERY CALL IS DENIED");
    assert_eq!(ready(gate.port).unwrap(), (503, "denying".into()));
    let (code, told) = beside(&gate, &["status"]);
    assert!(code == 0 && told.contains("EVERY CALL IS DENIED") && told.contains("token"), "{told}");
    let mut agent = gate.agent("a");
    agent.token = Some("a-token-that-is-late".into());
    assert_eq!(agent.modern_reply(json!(1), "tools/list", json!({})).status, 401);
    std::fs::write(gate.file("token"), "a-token-that-is-late\n").unwrap();
    eventually("it is active", || {
        (agent.modern_reply(json!(1), "tools/list", json!({})).status == 200).then_some(())
    });
    assert_eq!(ready(gate.port).unwrap(), (200, "ready".into()));
    let (_, told) = beside(&gate, &["status"]);
    assert!(!told.contains("EVERY CALL IS DENIED"), "{told}");
}

#[test]
fn a_variable_that_is_not_set_denies() {
    let agents = json!({"a": {"tokens": ["${NOT_SET_HERE}"], "allow": {"servers": ["*"]}}});
    let setup = setup().agents(agents).web("s", "modern", two());
    let gate = denying(setup).start();
    said(&gate, "EVERY CALL IS DENIED");
    assert_eq!(ready(gate.port).unwrap().0, 503);
}

/// The gateway, on whichever port it listens.
struct Running {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(setup: &Setup) -> Running {
    let mut child = Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["serve", "--on-invalid-policy=deny-all", "-c"])
        .arg(setup.path("toolward.yaml"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", setup.path("home"))
        .env("TOKEN_OF_a", "token-of-agent-a")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let said: Arc<Mutex<String>> = Arc::default();
    let kept = said.clone();
    std::thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            kept.lock().unwrap().push_str(&(line + "\n"));
        }
    });
    Running { child, said }
}

#[test]
fn with_another_address_in_the_file_the_process_restarts() {
    let port = free_port();
    let setup = setup().agents(only(&["read"])).web("s", "modern", two());
    let setup = setup.set("listen", json!(format!("127.0.0.1:{port}")));
    let file = setup.file();
    let good = std::fs::read_to_string(&file).unwrap();
    // Only its address can be read from the file; the audit log and the state are at their default
    // locations.
    let mut bad: Value = json!({"listen": "zz", "admin": "off"});
    bad["agent"] = json!({});
    std::fs::write(&file, bad.to_string()).unwrap();
    let running = run(&setup);
    let id = running.child.id();
    eventually("it is logged", || {
        let said = running.said.lock().unwrap();
        // Another program may use the default port: then the gateway cannot start at all.
        (said.contains("listening on http://127.0.0.1:7410") || said.contains("cannot listen"))
            .then_some(())
    });
    if running.said.lock().unwrap().contains("cannot listen") {
        return;
    }
    assert_eq!(ready(7410).unwrap(), (503, "denying".into()));
    replace(&file, &good);
    eventually("it listens at the configured address", || {
        ready(port).filter(|(status, _)| *status == 200)
    });
    let said = running.said.lock().unwrap().clone();
    assert!(said.contains("restarting in place"), "{said}");
    assert_eq!(running.child.id(), id);
    let agent = super::harness::agent_at(port, "token-of-agent-a");
    assert_eq!(listed(&agent), ["s__read"]);
    // The audit log of the first process is closed.
    let records = super::audit_log::all(&setup.path("audit"));
    let kinds: Vec<&str> = records.iter().filter_map(|record| record["kind"].as_str()).collect();
    assert_eq!(kinds.get(..4), Some(&["segment", "start", "stop", "start"][..]), "{kinds:?}");
}
