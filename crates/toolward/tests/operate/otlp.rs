//! A receiver of OTLP that decodes with the official Python classes.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

const RECEIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/operate/receiver.py");

pub struct Receiver {
    child: Child,
    pub port: u16,
    folder: tempfile::TempDir,
}

impl Receiver {
    /// `None` if the Python packages are not installed; `./test` installs them.
    pub fn start() -> Option<Receiver> {
        let Some(peers) = std::env::var_os("TOOLWARD_PEERS") else {
            eprintln!("skipped: ./test installs opentelemetry-proto, and sets TOOLWARD_PEERS");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(PathBuf::from(peers).join("python/bin/python"))
            .arg(RECEIVER)
            .arg(folder.path().join("received"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Some(Receiver { child, port: port.trim().parse().unwrap(), folder })
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Everything received: log records, or spans.
    pub fn received(&self, kind: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("received")).unwrap_or_default();
        // The last line may not be complete yet.
        let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        all.filter(|one| one["kind"] == kind).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
