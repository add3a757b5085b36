//! `telemetry.metrics` with an address of its own, `telemetry.labels` and `telemetry.max_series`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::harness::{Gate, eventually, everyone, names, setup};
use super::sinks::call;
use super::wire::Connection;

const TOKEN: &str = "token-of-the-scraper-1";

fn gate(telemetry: Value, tools: &[&str]) -> (Gate, u16) {
    let gate = setup()
        .agents(everyone())
        .set("telemetry", telemetry)
        .env("SCRAPER", TOKEN)
        .web("s", "modern", names(tools))
        .start();
    let port = eventually("metrics are served", || {
        let said = gate.said.lock().unwrap();
        let (_, rest) = said.split_once("metrics on http://")?;
        rest.split_once("/metrics")?.0.rsplit(':').next()?.parse().ok()
    });
    (gate, port)
}

fn get(port: u16, path: &str, token: Option<&str>) -> (u16, String) {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let mut connection = Connection::open(port);
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{}\r\n", token.unwrap_or_default());
    connection.send(head.as_bytes());
    let reply = connection.reply();
    (reply.status, String::from_utf8(reply.body).unwrap())
}

/// The number of samples with a prefix.
fn series(text: &str, prefix: &str) -> usize {
    text.lines().filter(|line| line.starts_with(prefix)).count()
}

#[test]
fn an_address_of_its_own_serves_metrics_to_whoever_has_the_token() {
    let telemetry = json!({"metrics": "127.0.0.1:0", "metrics_token": "${SCRAPER}"});
    let (gate, port) = gate(telemetry, &["a"]);
    call(&gate, 2);
    assert_eq!(get(port, "/metrics", None).0, 401);
    assert_eq!(get(port, "/metrics", Some("another-token-of-length")).0, 401);
    assert_eq!(get(port, "/", Some(TOKEN)).0, 404);
    assert_eq!(get(port, "/status", Some(TOKEN)).0, 404);
    let (status, text) = get(port, "/metrics", Some(TOKEN));
    assert_eq!(status, 200);
    assert!(text.contains("mcp_server_operation_duration_seconds_count"), "{text}");
    let Some(peers) = std::env::var_os("TOOLWARD_PEERS") else {
        eprintln!("skipped: ./test installs prometheus-client, and sets TOOLWARD_PEERS");
        return;
    };
    // The official parser accepts it.
    let script = "import sys\nfrom prometheus_client.openmetrics.parser import \
                  text_string_to_metric_families as parse\nprint(len(list(parse(sys.stdin.read()))))";
    let mut parser = Command::new(PathBuf::from(peers).join("python/bin/python"))
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut parser.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let output = parser.wait_with_output().unwrap();
    let families: usize = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert!(output.status.success() && families > 8, "{families}");
}

#[test]
fn a_scanner_adds_no_series() {
    let (gate, port) = gate(json!({"metrics": "127.0.0.1:0"}), &["a"]);
    call(&gate, 1);
    let agent = gate.agent("a");
    let scan = |round: usize| {
        for number in 0..150 {
            let name = format!("s__random-{round}-{number}");
            agent.modern("tools/call", json!({"name": name, "arguments": {}}));
            agent.modern_reply(json!(1), &format!("random/{round}-{number}"), json!({}));
        }
    };
    scan(0);
    let before = get(port, "/metrics", None).1;
    scan(1);
    let after = get(port, "/metrics", None).1;
    assert_eq!(series(&before, ""), series(&after, ""), "{after}");
    assert!(!after.contains("random"), "{after}");
}

#[test]
fn labels_and_the_number_of_series_can_be_reduced() {
    let tools: Vec<String> = (0..40).map(|number| format!("t{number}")).collect();
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let use_all = |gate: &Gate| {
        for tool in &tools {
            let call = json!({"name": format!("s__{tool}"), "arguments": {}});
            assert!(gate.agent("a").modern("tools/call", call)["result"].is_object());
        }
    };
    let count = "mcp_client_operation_duration_seconds_count";
    let (first, port) = gate(json!({"metrics": "127.0.0.1:0", "max_series": 10}), &tools);
    use_all(&first);
    let text = get(port, "/metrics", None).1;
    assert_eq!(series(&text, count), 11, "{text}");
    assert!(text.contains("gen_ai_tool_name=\"_OTHER\""), "{text}");
    let telemetry = json!({"metrics": "127.0.0.1:0", "labels": {"tool": false, "agent": false}});
    let (second, port) = gate(telemetry, &tools);
    use_all(&second);
    let text = get(port, "/metrics", None).1;
    assert_eq!(series(&text, count), 1, "{text}");
    assert!(!text.contains("agent=\"a\""), "{text}");
}

#[test]
fn metrics_beyond_loopback_need_a_token() {
    let telemetry = json!({"metrics": "0.0.0.0:0"});
    let (code, said) = setup()
        .agents(everyone())
        .set("telemetry", telemetry)
        .web("s", "modern", names(&["a"]))
        .fails();
    assert!(code != 0 && said.contains("metrics beyond loopback need a token"), "{said}");
}
