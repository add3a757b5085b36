//! HTTP hooks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use toolward_testkit::proxy::Proxy;

use super::harness::*;
use super::support::*;
use super::tls::{Certificate, Front, NAME};

/// A service with a scripted response, which keeps the requests.
pub struct Service {
    port: u16,
    answer: Arc<Mutex<String>>,
    pub asked: Arc<Mutex<Vec<(String, Value)>>>,
    /// Calls of this tool get no response.
    slow: Arc<Mutex<Option<&'static str>>>,
    connections: Arc<Mutex<usize>>,
}

fn json_answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

impl Service {
    pub fn start() -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let service = Service {
            port,
            answer: Arc::default(),
            asked: Arc::default(),
            slow: Arc::default(),
            connections: Arc::default(),
        };
        let (answer, asked) = (service.answer.clone(), service.asked.clone());
        let slow = service.slow.clone();
        let connections = service.connections.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                *connections.lock().unwrap() += 1;
                let (answer, asked, slow) = (answer.clone(), asked.clone(), slow.clone());
                std::thread::spawn(move || serve(stream, &answer, &asked, &slow));
            }
        });
        service
    }

    pub fn says(&self, status: &str, body: &str) {
        *self.answer.lock().unwrap() = json_answer(status, body);
    }

    pub fn hangs_on(&self, tool: &'static str) {
        *self.slow.lock().unwrap() = Some(tool);
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn gate(&self, path: &str, more: Value) -> Gate {
        let mut hook = json!({"name": "h", "http": self.url(path)});
        merge(&mut hook, more);
        with_tools(&["t"]).set("hooks", json!([hook])).start()
    }
}

fn serve(
    stream: TcpStream,
    answer: &Mutex<String>,
    asked: &Mutex<Vec<(String, Value)>>,
    slow: &Mutex<Option<&str>>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let is_slow = slow.lock().unwrap().is_some_and(|tool| body["tool"] == tool);
        asked.lock().unwrap().push((head.lines().next().unwrap().into(), body));
        let answer = answer.lock().unwrap().clone();
        if answer == "hang" || is_slow {
            std::thread::sleep(Duration::from_secs(30));
        }
        if (&stream).write_all(answer.as_bytes()).is_err() || answer.is_empty() {
            return;
        }
    }
}

#[test]
fn a_service_is_posted_the_request_and_decides() {
    let service = Service::start();
    let gate = service.gate("/ask?x=1", json!({"arguments": true}));
    let a = gate.agent("a");
    service.says("200 OK", r#"{"decision":"allow"}"#);
    assert!(passed(&a.call("s__t", json!({"n": 1}))));
    let (line, body) = service.asked.lock().unwrap()[0].clone();
    assert_eq!(line, "POST /ask?x=1 HTTP/1.1");
    assert_eq!(
        (&body["version"], &body["agent"], &body["tool"]),
        (&json!(1), &json!("a"), &json!("t"))
    );
    assert_eq!(body["arguments"], json!({"n": 1}));
    assert!(body.get("id").is_none() && body.get("input").is_none());
    service.says("200 OK", r#"{"decision":"deny","code":-32600,"message":"closed","data":[1]}"#);
    let answer = a.call("s__t", json!({}));
    assert_eq!(error(&answer), (-32600, "closed".into()));
    assert_eq!(answer["error"]["data"], json!([1]));
    service.says("200 OK", r#"{"decision":"deny"}"#);
    assert_eq!(
        error(&a.call("s__t", json!({}))),
        (-32602, "s__t is refused by the hook `h`".into())
    );
    // Connections are reused: at most one per thread while calls are sequential.
    assert!(*service.connections.lock().unwrap() <= 3);
}

#[test]
fn a_service_is_reached_through_the_proxy_of_the_environment() {
    let (service, proxy) = (Service::start(), Proxy::start().unwrap());
    proxy.require("Basic dXNlcjpwQHNz");
    service.says("200 OK", r#"{"decision":"allow"}"#);
    let certificate = Certificate::new();
    let front = Front::start(&certificate, service.port);
    let (secure, plain) = (front.url("/ask"), service.url("/ask").replace("127.0.0.1", NAME));
    for (url, request) in [
        // Over TLS through a tunnel, in the clear with the whole URL as the target.
        (&secure, format!("CONNECT {NAME}:{} HTTP/1.1\r\n", front.port)),
        (&plain, format!("POST {plain} HTTP/1.1\r\n")),
    ] {
        let through = format!("http://user:p%40ss@127.0.0.1:{}", proxy.port);
        let gate = with_tools(&["t"])
            .set("hooks", json!([{"name": "h", "http": url, "timeout": "20s"}]))
            .env("HTTPS_PROXY", &through)
            .env("HTTP_PROXY", &through)
            .env("SSL_CERT_FILE", &certificate.path())
            .start();
        let before = proxy.heads().len();
        let answer = gate.agent("a").call("s__t", json!({}));
        assert!(passed(&answer), "{url}: {answer}");
        let heads = proxy.heads();
        assert!(heads.len() > before && heads[before].starts_with(&request), "{heads:?}");
    }
    let asked = service.asked.lock().unwrap().clone();
    assert!(asked.len() == 2 && asked.iter().all(|(line, _)| line == "POST /ask HTTP/1.1"));
    // Without the proxy, which alone knows the name, the call is refused.
    let hook = json!([{"name": "h", "http": secure, "timeout": "20s"}]);
    let gate = with_tools(&["t"]).set("hooks", hook).start();
    hook_failed(&gate, &gate.agent("a"));
}

#[test]
fn opa_s_answers_are_understood_and_it_finds_the_request_under_input() {
    let service = Service::start();
    let gate = service.gate("/v1/data/toolward/allow", json!({}));
    let a = gate.agent("a");
    service.says("200 OK", r#"{"result":true,"decision_id":"4b"}"#);
    assert!(passed(&a.call("s__t", json!({}))));
    let (_, body) = service.asked.lock().unwrap()[0].clone();
    assert_eq!((&body["tool"], &body["input"]["tool"]), (&json!("t"), &json!("t")));
    service.says("200 OK", r#"{"result":{"allow":true}}"#);
    assert!(passed(&a.call("s__t", json!({}))));
    service.says("200 OK", r#"{"result":false}"#);
    assert_eq!(error(&a.call("s__t", json!({}))).0, -32602);
    service.says("200 OK", r#"{"result":{"allow":false,"code":7,"message":"by opa","data":{}}}"#);
    assert_eq!(error(&a.call("s__t", json!({}))), (7, "by opa".into()));
    // An undefined decision is not a decision.
    service.says("200 OK", "{}");
    hook_failed(&gate, &a);
}

#[test]
fn whatever_else_a_service_answers_refuses_the_call() {
    let service = Service::start();
    let gate = service.gate("/", json!({"timeout": "1s"}));
    let a = gate.agent("a");
    let allow = r#"{"decision":"allow"}"#;
    let large = format!("{{\"decision\":\"allow\",\"x\":\"{}\"}}", "x".repeat(70_000));
    let twice = format!("{allow}{allow}");
    let answers = [
        json_answer("200 OK", ""),
        json_answer("200 OK", "<html>"),
        json_answer("200 OK", r#"{"decision":"allow","decision":"deny"}"#),
        json_answer("200 OK", r#"{"decision":"allow","result":false}"#),
        json_answer("200 OK", r#"{"decision":"allow","allow":false}"#),
        json_answer("200 OK", r#"{"result":{"allow":true,"deny":["x"]}}"#),
        json_answer("200 OK", &twice),
        json_answer("200 OK", &large),
        json_answer("201 Created", allow),
        json_answer("500 Oops", allow),
        json_answer("403 Forbidden", allow),
        format!(
            "HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:{}/x\r\nContent-Length: 0\r\n\r\n",
            service.port
        ),
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc".into(),
        "this is no HTTP\r\n\r\n".into(),
        String::new(),
        "hang".into(),
    ];
    for answer in answers {
        *service.answer.lock().unwrap() = answer.clone();
        let reason = hook_failed(&gate, &a);
        assert!(reason.contains("the hook `h` failed"), "{answer}: {reason}");
    }
    // When the service recovers, so do the calls.
    service.says("200 OK", allow);
    assert!(passed(&a.call("s__t", json!({}))));
    // Nothing listens at all.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let hook = json!([{"name": "h", "http": format!("http://127.0.0.1:{port}/")}]);
    let gate = with_tools(&["t"]).set("hooks", hook).start();
    hook_failed(&gate, &gate.agent("a"));
}
