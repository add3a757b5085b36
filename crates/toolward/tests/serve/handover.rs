//! Listening sockets that another process has opened: a service manager, or the previous gateway.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::harness::{Caller, Gate, agent_at, alive, eventually, everyone, names, setup, text};
use super::reload::beside;

/// Opens a socket as a service manager does, waits, and executes the gateway.
const MANAGER: &str = "import os, socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('127.0.0.1', int(sys.argv[1])))
s.listen()
os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
time.sleep(0.5)
os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
";

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_socket_of_the_service_manager_is_used() {
    let port = free_port();
    let setup = setup().agents(everyone()).web("s", "modern", names(&["a"]));
    let setup = setup.set("listen", json!(format!("127.0.0.1:{port}")));
    let config = setup.file();
    let mut child = Command::new("python3")
        .args(["-c", MANAGER, &port.to_string(), env!("CARGO_BIN_EXE_toolward"), "serve", "-c"])
        .arg(&config)
        .env("HOME", setup.path(""))
        .env("TOKEN_OF_a", "token-of-agent-a")
        .env("TOKEN_OF_b", "token-of-agent-b")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // A client that connects before the gateway runs waits, and gets its response.
    let mut connection =
        eventually("somebody listens", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    use std::io::{Read, Write};
    write!(connection, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        .unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let _ = child.kill();
    let _ = child.wait();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
}

#[test]
fn the_next_gateway_takes_over_and_sessions_continue() {
    let port = free_port();
    let gate = setup()
        .agents(everyone())
        .web("s", "both", names(&["a"]))
        .set("listen", json!(format!("127.0.0.1:{port}")))
        .start();
    let session = gate.agent("a").session();
    let listed = |answer: &Value| answer["result"]["tools"][0]["name"].clone();
    assert_eq!(listed(&session.ask("tools/list", json!({}))), "s__a");
    let mut next = Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["serve", "--take-over", "-c"])
        .arg(gate.file("toolward.yaml"))
        .env("HOME", gate.file(""))
        .env("TOKEN_OF_a", "token-of-agent-a")
        .env("TOKEN_OF_b", "token-of-agent-b")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut gate = gate;
    assert_eq!(gate.ended(), 0);
    let answer = session.ask("tools/list", json!({}));
    let _ = next.kill();
    let _ = next.wait();
    assert_eq!(listed(&answer), "s__a");
}

/// The next gateway, with another configuration file.
fn next(gate: &Gate, file: &str, flags: &[&str]) -> std::process::Child {
    Command::new(env!("CARGO_BIN_EXE_toolward"))
        .arg("serve")
        .args(flags)
        .arg("-c")
        .arg(gate.file(file))
        .env("HOME", gate.file(""))
        .env("TOKEN_OF_a", "token-of-agent-a")
        .env("TOKEN_OF_b", "token-of-agent-b")
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(gate.file("next")).unwrap())
        .spawn()
        .unwrap()
}

fn end(mut child: std::process::Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn on(port: u16) -> Value {
    json!(format!("127.0.0.1:{port}"))
}

#[test]
fn only_the_gateway_of_the_same_address_is_taken_over() {
    let (port, other) = (free_port(), free_port());
    let setup = setup().agents(everyone()).web("s", "both", names(&["a"]));
    let gate = setup.set("listen", on(port)).start();
    let file = std::fs::read_to_string(gate.file("toolward.yaml")).unwrap();
    let mut config: Value = serde_json::from_str(&file).unwrap();
    config["listen"] = on(other);
    std::fs::write(gate.file("other.yaml"), config.to_string()).unwrap();
    let child = next(&gate, "other.yaml", &["--take-over"]);
    eventually("it listens", || std::net::TcpStream::connect(("127.0.0.1", other)).ok());
    assert_eq!(agent_at(other, "token-of-agent-a").list(), ["s__a"]);
    // The gateway that was running still is.
    assert_eq!(gate.agent("a").list(), ["s__a"]);
    assert!(alive(gate.child.as_ref().unwrap().id()));
    end(child);
    let said = std::fs::read_to_string(gate.file("next")).unwrap();
    assert!(said.contains("listens on other addresses, and is left alone"), "{said}");
}

#[test]
fn a_call_that_takes_long_is_finished_by_the_process_that_began_it() {
    let port = free_port();
    let setup = setup().agents(everyone()).stdio("s", "legacy", names(&["slow"]));
    let setup = setup.with("s", "timeout", json!("60s"));
    let mut gate = setup.set("listen", on(port)).start();
    let agent = gate.agent("a");
    assert_eq!(agent.list(), ["s__slow"]);
    let calling = std::thread::spawn(move || agent.call("s__slow", json!({"seconds": 12})));
    eventually("it is in flight", || (!gate.calls("s").is_empty()).then_some(()));
    let child = next(&gate, "toolward.yaml", &["--take-over"]);
    // `status` reports which process is shutting down.
    eventually("one process ends", || {
        let (code, said) = beside(&gate, &["status"]);
        (code == 0 && said.contains("draining: another process has taken over")).then_some(())
    });
    let answer = calling.join().unwrap();
    assert!(answer["result"].is_object(), "{answer}");
    assert!(!text(&answer).is_empty());
    assert_eq!(gate.ended(), 0);
    end(child);
}

/// The same for a socket file, which remains the service manager's.
const FILE_MANAGER: &str = "import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
";

#[test]
fn a_socket_file_of_the_service_manager_is_left_to_it() {
    let setup = setup().agents(everyone()).web("s", "modern", names(&["a"]));
    let socket = setup.path("gate.sock");
    let setup = setup.set("listen", json!("unix:gate.sock"));
    let mut child = Command::new("python3")
        .args(["-c", FILE_MANAGER])
        .arg(&socket)
        .args([env!("CARGO_BIN_EXE_toolward"), "serve", "-c"])
        .arg(setup.file())
        .env("HOME", setup.path(""))
        .env("TOKEN_OF_a", "token-of-agent-a")
        .env("TOKEN_OF_b", "token-of-agent-b")
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(setup.path("said")).unwrap())
        .spawn()
        .unwrap();
    eventually("it listens", || {
        let said = std::fs::read_to_string(setup.path("said")).unwrap();
        said.contains("listening on unix:").then_some(())
    });
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(socket.exists(), "the file is not this process's");
}

#[test]
fn a_gateway_that_does_not_answer_is_named_and_not_waited_for() {
    let gate = setup().agents(everyone()).web("s", "modern", names(&["a"])).start();
    let id = gate.child.as_ref().unwrap().id();
    eventually("it can be asked", || (beside(&gate, &["status"]).0 == 0).then_some(()));
    gate.signal("-STOP");
    let (code, said) = beside(&gate, &["status"]);
    gate.signal("-CONT");
    assert!(code == 5 && said.contains(&format!("process {id} does not respond")), "{said}");
}
