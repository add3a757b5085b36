//! Listening sockets that another process has opened: a service manager, or the gateway before this one.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::harness::{eventually, everyone, names, setup};

/// Opens a socket as a service manager does, waits, and becomes the gateway.
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
        .env("TOKEN_OF_a", "token-a")
        .env("TOKEN_OF_b", "token-b")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Whoever comes before the gateway is there waits, and is answered.
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
fn the_next_gateway_takes_over_and_sessions_go_on() {
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
        .env("TOKEN_OF_a", "token-a")
        .env("TOKEN_OF_b", "token-b")
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
