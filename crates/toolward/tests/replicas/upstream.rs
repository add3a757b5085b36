//! A fast MCP server in the test itself, which counts every call by its number.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// Executed calls: the number of executions of each, by tool.
#[derive(Clone, Default)]
pub struct Executed(Arc<Mutex<HashMap<(String, u64), u32>>>);

impl Executed {
    pub fn all(&self) -> HashMap<(String, u64), u32> {
        self.0.lock().unwrap().clone()
    }
}

/// Starts the server; returns its URL.
pub fn start(tools: &'static [&'static str]) -> (String, Executed) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}/mcp", listener.local_addr().unwrap().port());
    let executed = Executed::default();
    let counts = executed.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counts = counts.clone();
            std::thread::spawn(move || serve(stream, tools, &counts));
        }
    });
    (url, executed)
}

fn serve(stream: TcpStream, tools: &[&str], executed: &Executed) {
    let _ = stream.set_nodelay(true);
    let (mut out, mut input) = (stream.try_clone().unwrap(), BufReader::new(stream));
    loop {
        let (mut length, mut line, mut first) = (0, String::new(), None);
        loop {
            line.clear();
            match input.read_line(&mut line) {
                Ok(1..) => {}
                _ => return,
            }
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            first.get_or_insert_with(|| text.to_owned());
            if let Some((name, value)) = text.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        if input.read_exact(&mut body).is_err() {
            return;
        }
        let (status, body) = match first.as_deref().is_some_and(|line| line.starts_with("POST")) {
            true => answer(&serde_json::from_slice(&body).unwrap(), tools, executed),
            false => ("405 Method Not Allowed", String::new()),
        };
        let response = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if out.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

fn answer(message: &Value, tools: &[&str], executed: &Executed) -> (&'static str, String) {
    let params = &message["params"];
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "counter", "version": "1"},
        }),
        Some("tools/list") => {
            let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
            json!({"tools": tools.iter().map(tool).collect::<Vec<_>>()})
        }
        Some("tools/call") => {
            let name = params["name"].as_str().unwrap().to_owned();
            let number = params["arguments"]["n"].as_u64().unwrap();
            *executed.0.lock().unwrap().entry((name, number)).or_default() += 1;
            json!({"content": [{"type": "text", "text": number.to_string()}]})
        }
        Some("ping") => json!({}),
        _ if message.get("id").is_none() => return ("202 Accepted", String::new()),
        _ => {
            let error = json!({"code": -32601, "message": "not known"});
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
            return ("200 OK", answer.to_string());
        }
    };
    ("200 OK", json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string())
}
