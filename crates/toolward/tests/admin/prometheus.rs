//! The dashboard and the alert rules of `deploy`, with a real Prometheus that scrapes a gateway.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::harness::{eventually, names, setup};
use super::kit::Site;
use super::wire::Connection;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

struct Prometheus {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// `None` if it is not installed; `./test` installs it.
    fn scraping(site: &Site) -> Option<Prometheus> {
        let folder = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        // The shipped configuration, with this gateway's port and a short interval.
        let config =
            std::fs::read_to_string(Path::new(DEPLOY).join("prometheus/prometheus.yaml")).unwrap();
        let config = config.replace("127.0.0.1:7411", &format!("127.0.0.1:{}", site.port));
        let config = config.replace("scrape_interval: 15s", "scrape_interval: 200ms");
        std::fs::write(folder.path().join("prometheus.yaml"), config).unwrap();
        std::fs::write(folder.path().join("admin.token"), &site.token).unwrap();
        std::fs::copy(
            Path::new(DEPLOY).join("prometheus/alerts.yaml"),
            folder.path().join("alerts.yaml"),
        )
        .unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--config.file=prometheus.yaml")
            .arg("--storage.tsdb.path=data")
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => Some(Prometheus { child, port, _folder: folder }),
            Err(_) => {
                eprintln!("skipped: ./test installs Prometheus");
                None
            }
        }
    }

    /// The samples of an expression.
    fn query(&self, expression: &str) -> Vec<Value> {
        if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            return Vec::new();
        }
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut connection = Connection::open(self.port);
        let head = format!(
            "GET /api/v1/query?query={encoded} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        );
        connection.send(head.as_bytes());
        let reply = connection.reply();
        if reply.status == 503 {
            return Vec::new();
        }
        let answer = reply.json();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }
}

#[test]
fn every_panel_of_the_dashboard_shows_data() {
    let site = Site::of(setup().stdio("one", "modern", names(&["read", "write", "crash"])).agents(
        json!({
            "reader": {"allow": {"servers": ["one"], "tools": {"one": ["read", "crash"]}}},
        }),
    ));
    let Some(prometheus) = Prometheus::scraping(&site) else { return };
    let agent = site.gate.agent("reader");
    let call = |name: &str| agent.modern("tools/call", json!({"name": name, "arguments": {}}));
    let dashboard = std::fs::read(Path::new(DEPLOY).join("grafana/toolward.json")).unwrap();
    let dashboard: Value = serde_json::from_slice(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() >= 10);
    // A call whose server ends is an error of the server; the next ones wait for a new process.
    call("one__crash");
    for panel in panels {
        let expression = panel["targets"][0]["expr"].as_str().unwrap();
        let expression = expression.replace("$__rate_interval", "1m");
        eventually(&format!("data for {expression}"), || {
            for tool in ["one__read", "one__write"] {
                call(tool);
            }
            let samples = prometheus.query(&expression);
            let is_number = |sample: &Value| sample["value"][1].as_str() != Some("NaN");
            samples.iter().any(is_number).then_some(())
        });
    }
    // A misspelled metric would never fire an alert.
    let alerts = std::fs::read_to_string(Path::new(DEPLOY).join("prometheus/alerts.yaml")).unwrap();
    for metric in metrics_in(&alerts) {
        eventually(&format!("the metric {metric} exists"), || {
            (!prometheus.query(&metric).is_empty()).then_some(())
        });
    }
}

/// The names of metrics in a text.
fn metrics_in(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let metrics = words.filter(|word| {
        word.starts_with("toolward_")
            || word.starts_with("mcp_server_")
            || word.starts_with("mcp_client_")
    });
    let mut metrics: Vec<String> = metrics.map(Into::into).collect();
    metrics.sort();
    metrics.dedup();
    assert!(metrics.len() >= 4, "{metrics:?}");
    metrics
}

#[test]
fn alert_rules_fire_when_they_should() {
    let folder: PathBuf = Path::new(DEPLOY).join("prometheus");
    for arguments in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]] {
        let output = Command::new("promtool").args(arguments).current_dir(&folder).output();
        let Ok(output) = output else {
            eprintln!("skipped: ./test installs Prometheus");
            return;
        };
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
}
