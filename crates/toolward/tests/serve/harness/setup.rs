//! A configuration with its scripted servers.

use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::audit_log::witness;

/// A configuration with its scripted servers, before the gateway starts.
pub struct Setup {
    pub config: Value,
    pub(super) folder: tempfile::TempDir,
    pub(super) web: Vec<Child>,
    pub environment: Vec<(String, String)>,
    pub(super) flags: Vec<String>,
}

/// Tools by name.
pub fn names(tools: &[&str]) -> Value {
    tools.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect()
}

/// Access to everything on these servers, for the agents `a` and `b`.
pub fn everyone() -> Value {
    json!({"a": {"allow": {"servers": ["*"]}}, "b": {"allow": {"servers": ["*"]}}})
}

pub fn setup() -> Setup {
    let config = json!({
        "listen": "127.0.0.1:0",
        "admin": "off",
        "state": "state",
        "audit": {"dir": "audit"},
        // Many servers start at once, on a busy machine.
        "list_timeout": "30s",
        "servers": {},
    });
    let folder = tempfile::tempdir().unwrap();
    let (web, environment, flags) = Default::default();
    Setup { config, folder, web, environment, flags }
}

impl Setup {
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Adds keys to the configuration.
    pub fn set(mut self, key: &str, value: Value) -> Setup {
        self.config[key] = value;
        self
    }

    /// The agents; those without tokens get `token-of-agent-NAME`.
    pub fn agents(mut self, mut agents: Value) -> Setup {
        for (name, agent) in agents.as_object_mut().unwrap() {
            if agent.get("tokens").is_none() && name != "default" {
                agent["tokens"] = json!([format!("${{TOKEN_OF_{name}}}")]);
                self.environment
                    .push((format!("TOKEN_OF_{name}"), format!("token-of-agent-{name}")));
            }
        }
        self.set("agents", agents)
    }

    pub fn env(mut self, name: &str, value: &str) -> Setup {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Adds a flag of `serve`.
    pub fn flag(mut self, flag: &str) -> Setup {
        self.flags.push(flag.into());
        self
    }

    /// A server as configured.
    pub fn server(mut self, name: &str, definition: Value) -> Setup {
        self.config["servers"][name] = definition;
        self
    }

    /// The URL of an HTTP server.
    pub fn url(&self, name: &str) -> String {
        self.config["servers"][name]["url"].as_str().unwrap().into()
    }

    /// Adds keys to a server.
    pub fn with(mut self, name: &str, key: &str, value: Value) -> Setup {
        self.config["servers"][name][key] = value;
        self
    }

    pub fn stdio(self, name: &str, era: &str, tools: Value) -> Setup {
        let list = self.path(&format!("{name}.json"));
        std::fs::write(&list, tools.to_string()).unwrap();
        let log = self.path(&format!("{name}.log"));
        let arguments = json!([SERVER, "stdio", era, log, list]);
        self.server(name, json!({"command": "python3", "args": arguments}))
    }

    /// An HTTP server, which is started now.
    pub fn web(self, name: &str, era: &str, tools: Value) -> Setup {
        self.web_with(name, era, tools, &[])
    }

    pub fn web_with(
        mut self,
        name: &str,
        era: &str,
        tools: Value,
        environment: &[(&str, &str)],
    ) -> Setup {
        let port = self.start_web(name, era, tools, environment);
        self.server(name, json!({"url": format!("http://127.0.0.1:{port}/mcp")}))
    }

    /// Starts an HTTP server; returns its port.
    pub fn start_web(
        &mut self,
        name: &str,
        era: &str,
        tools: Value,
        environment: &[(&str, &str)],
    ) -> u16 {
        let list = self.path(&format!("{name}.json"));
        std::fs::write(&list, tools.to_string()).unwrap();
        let mut child = Command::new("python3")
            .args([SERVER, "http", era])
            .arg(self.path(&format!("{name}.log")))
            .arg(list)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        self.web.push(child);
        port.trim().parse().unwrap()
    }

    /// The configuration as a file.
    pub fn file(&self) -> PathBuf {
        let file = self.path("toolward.yaml");
        std::fs::write(&file, serde_json::to_string_pretty(&self.config).unwrap()).unwrap();
        file
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolward"));
        command
            .args(arguments)
            .args(&self.flags)
            .arg("-c")
            .arg(self.file())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    pub fn start(self) -> Gate {
        let mut gate = Gate {
            child: None,
            port: 0,
            said: Arc::default(),
            refusals: Cell::new(0),
            setup: self,
        };
        gate.restart();
        gate
    }

    /// Starts a gateway that must not start; returns the exit code and its output.
    pub fn fails(self) -> (i32, String) {
        let output = self.command(&["serve"]).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        self.asked(&said);
        (output.status.code().unwrap_or(-1), said)
    }

    pub fn standard(self, arguments: &[&str]) -> Lines {
        let mut all = vec!["stdio"];
        all.extend(arguments);
        let mut child = self
            .command(&all)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(self.path("stderr")).unwrap())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Lines { child, answers, setup: self }
    }
}

impl Setup {
    /// Checks the invariants that hold after every program has ended.
    pub(super) fn asked(&self, said: &str) {
        let of_client = self.environment.iter().filter(|(name, value)| {
            let own = name.starts_with("TOOLWARD_") && name != "TOOLWARD_TOKEN";
            !own && !value.starts_with('/')
        });
        let mut secrets: Vec<String> = of_client.map(|(_, value)| value.clone()).collect();
        let servers = self.config["servers"].as_object().into_iter().flatten();
        let headers = servers.filter_map(|(_, server)| server["headers"].as_object()).flatten();
        let values = headers.filter_map(|(_, value)| value.as_str());
        secrets.extend(values.filter(|value| !value.contains("${")).map(String::from));
        let audit = self.path(self.config["audit"]["dir"].as_str().unwrap_or("audit"));
        let unrecorded = self.config["audit"]["required"] == false;
        witness::Ended { audit: &audit, secrets, said, unrecorded }.ask();
    }
}

impl Setup {
    /// Ends the HTTP servers.
    pub fn stop_web(&mut self) {
        for mut web in self.web.drain(..) {
            let _ = web.kill();
            let _ = web.wait();
        }
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.stop_web();
    }
}
