//! Tools as bytes: a client drops fields that it does not know, so there is none here.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::bytes::entries;
use super::harness::{NEWEST_LEGACY, initialize, modern_body, request};
use super::peers::*;

/// What a command answers to the last of these messages; each is sent once the one before is answered.
fn last_answer(at: &At, messages: &[Value]) -> String {
    let At::Command(words) = at else { panic!("{at:?} is no command") };
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut answer = String::new();
    for message in messages {
        writeln!(stdin, "{message}").unwrap();
        let Some(id) = message.get("id") else { continue };
        let answers = |line: &String| serde_json::from_str::<Value>(line).unwrap()["id"] == *id;
        answer = lines.by_ref().map(Result::unwrap).find(answers).unwrap();
    }
    drop(stdin);
    let _ = child.kill();
    let _ = child.wait();
    answer
}

#[test]
fn tools_of_real_servers_pass_to_the_byte() {
    let Some(peers) = peers() else { return };
    let work = Work::new(peers);
    work.renew();
    let policy = work.policy("all.yaml", "allowed_tools: [\"*\"]\n");
    let legacy = [
        initialize(NEWEST_LEGACY),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        request(json!(1), "tools/list", json!({})),
    ];
    let modern = [modern_body(json!(1), "tools/list", json!({}))];
    for server in SERVERS {
        let eras: &[&[Value]] = match server {
            "git" | "time" => &[&legacy, &modern],
            _ => &[&legacy],
        };
        for messages in eras {
            let direct = last_answer(&At::Command(work.command(server)), messages);
            let through = last_answer(&work.wrapped(&["--policy", &policy], server), messages);
            assert!(!entries(&direct).is_empty(), "{server}: {direct}");
            assert_eq!(entries(&direct), entries(&through), "{server}");
            let whole: Value = serde_json::from_str(&direct).unwrap();
            assert_eq!(entries(&direct).len(), whole["result"]["tools"].as_array().unwrap().len());
            assert!(whole["result"].get("nextCursor").is_none(), "{server}: more pages");
        }
    }
}
