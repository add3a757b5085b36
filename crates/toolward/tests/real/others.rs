//! Prompts and resources of real servers: the same through the gateway as directly, and hidden if the policy denies them.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use super::harness::{NEWEST_LEGACY, initialize, request};
use super::line_client::LineClient;
use super::peers::*;

const PROMPTS: &str = "prompts/list";
const RESOURCES: &str = "resources/list";
const TEMPLATES: &str = "resources/templates/list";

/// A server, what it offers, and what is requested of it.
struct Case {
    server: &'static str,
    lists: &'static [&'static str],
    /// A prompt or a resource, as the parameters of a request for it.
    wanted: Value,
    /// Another one, or the same, that a policy denies.
    denied: Value,
}

/// One session of a client on standard input and output.
struct Session(LineClient, u64);

impl Session {
    fn begin(at: &At) -> Session {
        let At::Command(words) = at else { panic!("{at:?} is no command") };
        let mut client = LineClient::start(words);
        client.ask(&initialize(NEWEST_LEGACY));
        client.notify(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        Session(client, 10)
    }

    /// The response to a request, without its id.
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.1 += 1;
        let answer = self.0.ask(&request(json!(self.1), method, params.clone()));
        let mut answer: Value = serde_json::from_str(&answer).unwrap();
        answer.as_object_mut().unwrap().shift_remove("id");
        answer
    }

    /// The prompt or resource with these parameters.
    fn get(&mut self, params: &Value) -> Value {
        let method = if params.get("uri").is_some() { "resources/read" } else { "prompts/get" };
        self.ask(method, params)
    }
}

/// The entries of a list, by the name that requests use.
fn listed(answer: &Value) -> Vec<String> {
    let (_, entries) = answer["result"].as_object().unwrap().iter().next().unwrap();
    let name = |entry: &Value| {
        let names = ["uri", "uriTemplate", "name"].map(|member| entry[member].as_str());
        names.into_iter().flatten().next().unwrap().to_string()
    };
    entries.as_array().unwrap_or_else(|| panic!("{answer}")).iter().map(name).collect()
}

fn name_of(params: &Value) -> &str {
    params["uri"].as_str().or(params["name"].as_str()).unwrap()
}

impl Case {
    fn check(&self, work: &Work) {
        let server = self.server;
        let direct = At::Command(work.command(server));
        let all = work.policy("all.yaml", "allowed_tools: [\"*\"]\n");
        let kind = if self.denied.get("uri").is_some() { "resources" } else { "prompts" };
        let agent =
            json!({"allow": {"servers": ["*"]}, "deny": {kind: {server: [name_of(&self.denied)]}}});
        let less = json!({"agents": {"dev": agent}}).to_string();
        let less = work.policy("less.yaml", &less);
        let mut direct = Session::begin(&direct);
        let mut through = Session::begin(&work.wrapped(&["--policy", &all], server));
        let flags = ["--policy", &*less, "--agent", "dev"];
        let mut narrowed = Session::begin(&work.wrapped(&flags, server));
        for list in self.lists {
            let expected = direct.ask(list, &json!({}));
            assert!(!listed(&expected).is_empty(), "{server}: {expected}");
            assert_eq!(through.ask(list, &json!({})), expected, "{server}");
            let left: Vec<String> = listed(&expected)
                .into_iter()
                .filter(|name| name != name_of(&self.denied))
                .collect();
            assert_eq!(listed(&narrowed.ask(list, &json!({}))), left, "{server}");
        }
        let expected = direct.get(&self.wanted);
        assert!(expected.get("result").is_some(), "{server}: {expected}");
        assert_eq!(through.get(&self.wanted), expected, "{server}");
        // Denied and nonexistent ones get the same response.
        assert!(direct.get(&self.denied).get("result").is_some(), "{server}: {}", self.denied);
        let refused = narrowed.get(&self.denied);
        let code = if kind == "resources" { -32002 } else { -32602 };
        assert_eq!(refused["error"]["code"], code, "{server}: {refused}");
        if name_of(&self.denied) != name_of(&self.wanted) {
            assert_eq!(narrowed.get(&self.wanted), expected, "{server}");
        }
    }
}

/// A web page on loopback, for a server that fetches pages.
fn page() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let body = "<html><body><h1>Grüße</h1><p>A page.</p></body></html>";
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close";
            let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    format!("http://{address}/")
}

#[test]
fn prompts_and_resources_of_small_servers_are_the_same_through_the_gateway() {
    let Some(peers) = peers() else { return };
    let work = Work::new(peers);
    work.renew();
    for case in [
        Case {
            server: "everything",
            lists: &[PROMPTS, RESOURCES, TEMPLATES],
            wanted: json!({"name": "simple-prompt"}),
            denied: json!({"name": "resource-prompt", "arguments": {"resourceType": "Text", "resourceId": "1"}}),
        },
        Case {
            server: "sqlite",
            lists: &[PROMPTS, RESOURCES],
            wanted: json!({"uri": "memo://insights"}),
            denied: json!({"name": "mcp-demo", "arguments": {"topic": "retail"}}),
        },
        Case {
            server: "fetch",
            lists: &[PROMPTS],
            wanted: json!({"name": "fetch", "arguments": {"url": page()}}),
            denied: json!({"name": "fetch", "arguments": {"url": page()}}),
        },
        Case {
            server: "workflow",
            lists: &[PROMPTS, RESOURCES, TEMPLATES],
            wanted: json!({"name": "git_wrapup", "arguments": {"createTag": "false"}}),
            denied: json!({"uri": "git://working-directory"}),
        },
        // A user interface, which follows its tool unless a rule denies it.
        Case {
            server: "budget",
            lists: &[RESOURCES],
            wanted: json!({"uri": "ui://budget-allocator/mcp-app.html"}),
            denied: json!({"uri": "ui://budget-allocator/mcp-app.html"}),
        },
    ] {
        case.check(&work);
    }
}

#[test]
fn prompts_and_resources_of_a_large_server_are_the_same_through_the_gateway() {
    let Some(peers) = peers().filter(|_| full()) else { return };
    let work = Work::new(peers);
    work.renew();
    let mongodb = Case {
        server: "mongodb",
        lists: &[RESOURCES, TEMPLATES],
        wanted: json!({"uri": "debug://mongodb"}),
        denied: json!({"uri": "config://config"}),
    };
    mongodb.check(&work);
}
