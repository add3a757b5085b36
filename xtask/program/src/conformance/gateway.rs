//! The gateway under test: `toolward serve` in front of one server, with a policy that allows everything.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::Result;
use super::listening::Listening;
use crate::process::free_port;

/// A server definition for a URL.
pub(super) fn over_http(url: &str) -> Value {
    json!({"url": url})
}

/// A server definition for a command.
pub(super) fn over_stdio(words: &[String]) -> Value {
    json!({"command": words.first(), "args": words.get(1..)})
}

/// Starts the gateway and waits until it listens.
pub(super) fn start(program: &Path, server: &Value, folder: &Path) -> Result<Listening> {
    let port = free_port()?;
    let config = json!({
        "listen": format!("127.0.0.1:{port}"),
        "admin": "off",
        "state": "state",
        "audit": {"dir": "audit"},
        "list_timeout": "30s",
        "servers": {"reference": server},
        // The suite sends no credentials.
        "agents": {"default": {"allow": {"servers": ["*"], "client_requests": ["*"]}}},
        "defaults": {"deny_on_missing_agent": false},
    });
    let file = folder.join("toolward.yaml");
    std::fs::write(&file, config.to_string())
        .map_err(|error| format!("the configuration: {error}"))?;
    let mut command = Command::new(program);
    command.args(["serve", "-c"]).arg(file).current_dir(folder);
    Listening::start("toolward", &mut command, folder, (port, "/mcp/reference"))
}
