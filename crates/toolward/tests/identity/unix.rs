//! A unix socket: the kernel identifies the user at the other end.

use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::*;
use crate::jwt::turned_away;

/// The user who runs the tests.
pub fn own_uid() -> u32 {
    std::fs::metadata("/proc/self").unwrap().uid()
}

/// A gateway on a socket file in addition to its port.
pub fn gate(agents: Value) -> Gate {
    setup()
        .stdio("s", "legacy", names(&["t", "more"]))
        .set("listen", json!(["127.0.0.1:0", "unix:gate.sock"]))
        .agents(agents)
        .start()
}

fn ask(socket: &Path, authorization: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let body = initialize(LEGACY).to_string();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{authorization}Accept: */*\r\n\
         Content-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

fn mode(socket: &Path) -> u32 {
    std::fs::metadata(socket).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_mapped_user_is_the_agent_and_another_has_no_name() {
    let own = own_uid();
    let gate = gate(json!({
        "me": {"uid": [own, 4_000_000_000u32], "tokens": [], "allow": {"servers": ["*"]}},
        "other": {"uid": own.wrapping_add(1), "allow": {"servers": ["*"]}},
    }));
    let socket = gate.file("gate.sock");
    assert_eq!(mode(&socket), 0o666, "every user must be able to connect");
    assert_eq!(ask(&socket, "").0, 200);
    // The port identifies no one by uid.
    assert_eq!(gate.nobody().post(&[], &initialize(LEGACY)).status, 401);
    // A token must match the user.
    let (status, answer) = ask(&socket, "Authorization: Bearer token-of-agent-other\r\n");
    assert_eq!(status, 401, "{answer}");
    assert!(answer.contains("WWW-Authenticate: Bearer error=\"invalid_token\""), "{answer}");
    assert_eq!(ask(&socket, "Authorization: Bearer wrong\r\n").0, 401);
    let recorded = turned_away(&gate, 3);
    assert!(recorded.contains(&"two credentials name different agents".into()), "{recorded:?}");
    let told = gate.records();
    let told = told.iter().find(|one| one["reason"] == "two credentials name different agents");
    assert_eq!(told.unwrap()["source"], format!("uid {own}"));
}

#[test]
fn an_unmapped_user_has_no_name_and_a_token_gives_it_one() {
    let gate = gate(json!({
        "other": {"uid": own_uid().wrapping_add(1), "allow": {"servers": ["*"]}},
        "a": {"allow": {"servers": ["*"]}},
    }));
    let socket = gate.file("gate.sock");
    assert_eq!(ask(&socket, "").0, 401);
    assert_eq!(ask(&socket, "Authorization: Bearer token-of-agent-a\r\n").0, 200);
    assert_eq!(ask(&socket, "Authorization: Bearer token-of-agent-other\r\n").0, 200);
}

#[test]
fn without_mapped_users_the_socket_is_this_user_s_alone() {
    let gate = gate(json!({"a": {"allow": {"servers": ["*"]}}}));
    let socket = gate.file("gate.sock");
    assert_eq!(mode(&socket), 0o600);
    assert_eq!(ask(&socket, "").0, 401);
    assert_eq!(ask(&socket, "Authorization: Bearer token-of-agent-a\r\n").0, 200);
}

#[test]
fn the_socket_is_opened_and_closed_with_the_users_of_the_configuration() {
    let gate = gate(json!({"a": {"allow": {"servers": ["*"]}}}));
    let (socket, file) = (gate.file("gate.sock"), gate.file("toolward.yaml"));
    assert_eq!(mode(&socket), 0o600);
    let config: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let mut with_user = config.clone();
    with_user["agents"]["a"]["uid"] = json!(own_uid());
    std::fs::write(&file, with_user.to_string()).unwrap();
    eventually("everyone may come", || (mode(&socket) == 0o666).then_some(()));
    eventually("the user is the agent", || (ask(&socket, "").0 == 200).then_some(()));
    std::fs::write(&file, config.to_string()).unwrap();
    eventually("only this user may come", || (mode(&socket) == 0o600).then_some(()));
    assert_eq!(ask(&socket, "").0, 401);
}
