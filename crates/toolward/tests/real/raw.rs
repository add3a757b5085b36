//! Tools as bytes, without an MCP client: a client drops fields that it does not know.

use serde_json::{Value, json};

use super::bytes::entries;
use super::harness::{NEWEST_LEGACY, initialize, modern_body, request};
use super::line_client::LineClient;
use super::peers::*;

/// The response of a command to the last of these messages; each is sent after the response to the
/// previous one.
fn last_answer(at: &At, messages: &[Value]) -> String {
    let At::Command(words) = at else { panic!("{at:?} is no command") };
    let mut client = LineClient::start(words);
    let mut answer = String::new();
    for message in messages {
        match message.get("id") {
            Some(_) => answer = client.ask(message),
            None => client.notify(message),
        }
    }
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
