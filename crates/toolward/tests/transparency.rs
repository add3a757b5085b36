//! Tool lists of real servers, through the gateway: with a policy that allows everything, every entry
//! is passed through byte for byte. The lists are not part of this repository, because others wrote
//! them; if the directory is not there, these tests report that they were skipped.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[allow(dead_code)]
#[path = "program/audit_log.rs"]
mod audit_log;
#[path = "program/bytes.rs"]
mod bytes;
#[allow(dead_code)]
#[path = "serve/harness.rs"]
mod harness;
#[path = "program/line_client.rs"]
mod line_client;
#[path = "program/real_lists.rs"]
mod real_lists;
#[allow(dead_code)]
#[path = "serve/wire.rs"]
mod wire;

use bytes::entries;
use harness::*;
use line_client::LineClient;
use real_lists::real_lists;
use serde_json::{Value, json};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/server.py");
/// Tools per page, so that most lists have several pages.
const PAGE: &str = "7";

/// A scripted server with the list of a real one.
struct Listed {
    name: String,
    tools: Vec<Value>,
    command: Vec<String>,
}

fn corpus(folder: &tempfile::TempDir) -> Option<Vec<Listed>> {
    let listed = real_lists()?.into_iter().map(|(_, list)| {
        let name = list["server"].as_str().unwrap().to_string();
        let path = |ending: &str| folder.path().join(format!("{name}.{ending}"));
        std::fs::write(path("json"), list["tools"].to_string()).unwrap();
        let words = [SERVER.into(), path("log"), path("json"), PAGE.into()];
        let words = words.iter().map(|word| word.to_str().unwrap().to_string());
        let command = std::iter::once("python3".to_string()).chain(words).collect();
        Listed { name, tools: list["tools"].as_array().unwrap().clone(), command }
    });
    Some(listed.collect())
}

/// All entries of a list, byte for byte, from all of its pages.
fn all_pages(mut ask: impl FnMut(Value) -> String) -> Vec<String> {
    let (mut all, mut cursor) = (Vec::new(), json!({}));
    loop {
        let text = ask(cursor);
        all.extend(entries(&text).into_iter().map(String::from));
        let message = text.lines().find_map(|line| {
            let line = line.strip_prefix("data:").unwrap_or(line);
            serde_json::from_str::<Value>(line).ok().filter(Value::is_object)
        });
        match &message.unwrap()["result"]["nextCursor"] {
            Value::Null => return all,
            next => cursor = json!({"cursor": next}),
        }
    }
}

/// The list that a command prints on standard output.
fn listed_by(command: &[String]) -> Vec<String> {
    let mut client = LineClient::start(command);
    client.ask(&initialize(LEGACY));
    all_pages(|params| client.ask(&request(json!(1), "tools/list", params)))
}

/// The server's own list, compared with the file.
fn direct(listed: &Listed) -> Vec<String> {
    let direct = listed_by(&listed.command);
    let parsed = direct.iter().map(|entry| serde_json::from_str::<Value>(entry).unwrap());
    let order = |tool: &Value| tool.to_string();
    assert_eq!(
        parsed.map(|tool| order(&tool)).collect::<Vec<_>>(),
        listed.tools.iter().map(order).collect::<Vec<_>>(),
        "{}",
        listed.name
    );
    direct
}

#[test]
fn real_lists_pass_through_wrap_to_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    let Some(corpus) = corpus(&folder) else { return };
    let policy = folder.path().join("all.yaml");
    std::fs::write(&policy, "allowed_tools: [\"*\"]\n").unwrap();
    let audit = folder.path().join("audit");
    for listed in &corpus {
        let flags = ["--policy", policy.to_str().unwrap(), "--audit", audit.to_str().unwrap()];
        let words = [env!("CARGO_BIN_EXE_toolward"), "wrap"].into_iter().chain(flags).chain(["--"]);
        let command: Vec<String> =
            words.map(String::from).chain(listed.command.iter().cloned()).collect();
        assert_eq!(listed_by(&command), direct(listed), "{}", listed.name);
    }
}

#[test]
fn real_lists_pass_through_serve_to_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    let Some(corpus) = corpus(&folder) else { return };
    let all = corpus.iter().fold(setup().set("list_timeout", json!("60s")), |setup, listed| {
        let (program, words) = listed.command.split_first().unwrap();
        setup.server(&listed.name, json!({"command": program, "args": words}))
    });
    let gate = all.agents(everyone()).start();
    let expected: Vec<Vec<String>> = corpus.iter().map(direct).collect();
    let agent = gate.agent("a");
    let text = |reply: wire::Reply| String::from_utf8(reply.body).unwrap();
    let modern = |agent: &Agent| {
        all_pages(|params| text(agent.modern_reply(json!(1), "tools/list", params)))
    };
    let legacy = |agent: &Agent| {
        let session = agent.session();
        all_pages(|params| text(session.post(&request(json!(1), "tools/list", params))))
    };
    // Together, in the order of the configuration, with only the names changed.
    for all in [legacy(&agent), modern(&agent)] {
        let servers = corpus.iter().zip(&expected);
        let servers =
            servers.flat_map(|(listed, tools)| tools.iter().map(|tool| (&listed.name, tool)));
        assert_eq!(all.len(), servers.clone().count());
        for (shown, (server, tool)) in all.iter().zip(servers) {
            let name = |entry: &str| {
                let entry: Value = serde_json::from_str(entry).unwrap();
                entry["name"].as_str().unwrap().to_string()
            };
            let (new, old) = (name(shown), name(tool));
            assert!(new.starts_with(&format!("{server}__")) && new.len() <= 64, "{new}");
            if new.len() < 64 {
                assert_eq!(new, format!("{server}__{old}"));
            }
            assert_eq!(shown.replacen(&json!(new).to_string(), &json!(old).to_string(), 1), *tool);
        }
    }
    // One by one, under their own names.
    for (listed, expected) in corpus.iter().zip(&expected) {
        let agent = agent.at(&format!("/mcp/{}", listed.name));
        assert_eq!(legacy(&agent), *expected, "{}", listed.name);
        assert_eq!(modern(&agent), *expected, "{}", listed.name);
    }
}
