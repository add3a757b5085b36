//! The suite and the reference servers, installed into `target/peers/conformance`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::listening::Listening;
use super::{Checks, Result};
use crate::process::{Process, free_port};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conformance");
const SUITE: &str = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
/// How long one run of the suite may take.
const SUITE_TIMEOUT: Duration = Duration::from_secs(300);

/// The scenarios of the extension for tasks, which belong to no revision and are run one by one.
const TASK_SCENARIOS: [&str; 9] = [
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-mrtr-composition",
    "tasks-required-task-error",
];

/// A server that has everything the suite tests, written with one of the official SDKs, or our own with tasks.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Server {
    Python,
    Rust,
    TypeScript,
    Tasks,
}

impl Server {
    pub(super) const ALL: [Server; 4] =
        [Server::Python, Server::Rust, Server::TypeScript, Server::Tasks];

    pub(super) fn name(self) -> &'static str {
        match self {
            Server::Python => "python",
            Server::Rust => "rust",
            Server::TypeScript => "typescript",
            Server::Tasks => "tasks",
        }
    }

    /// Whether the suite has scenarios for the server in a revision.
    pub(super) fn is_tested_in(self, revision: &str) -> bool {
        self != Server::Tasks || revision == "2026-07-28"
    }
}

/// The directory that everything is installed into.
pub(super) struct Peers(PathBuf);

impl Peers {
    /// Installs what is missing.
    pub(super) fn install(servers: &[Server]) -> Result<Peers> {
        let folder = Path::new(ROOT).join("target/peers/conformance");
        let mut command = Command::new(Path::new(FILES).join("install"));
        command.arg(&folder).args(servers.iter().map(|server| server.name()));
        let status = command.status().map_err(|error| format!("conformance/install: {error}"))?;
        let folder = folder.canonicalize().ok().filter(|_| status.success());
        folder.map(Peers).ok_or_else(|| "the suite or a server cannot be installed".into())
    }

    /// The command of a server: over stdio as it is, over HTTP with a port as its argument.
    pub(super) fn command(&self, server: Server) -> Vec<String> {
        let script = |name: &str| Path::new(FILES).join(name);
        let words = match server {
            Server::Python => vec![self.0.join("python/bin/python"), script("python.py")],
            Server::Rust => vec![self.0.join("rust/release/conformance-server")],
            Server::TypeScript => vec![self.0.join("node"), script("typescript.mjs")],
            Server::Tasks => vec![self.0.join("python/bin/python"), script("tasks.py")],
        };
        words.iter().map(|word| word.display().to_string()).collect()
    }

    /// Starts a server over HTTP, and waits until it listens.
    pub(super) fn listen(&self, server: Server, folder: &Path) -> Result<Listening> {
        let port = free_port()?;
        let words = self.command(server);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(port.to_string()).current_dir(folder);
        Listening::start(server.name(), &mut command, folder, (port, "/mcp"))
    }

    /// Runs all scenarios of a server and a revision.
    pub(super) fn suite(
        &self,
        server: Server,
        url: &str,
        revision: &str,
        folder: &Path,
    ) -> Result<Checks> {
        let results = folder.join("results");
        let all: Vec<Vec<&str>> = match server {
            Server::Tasks => TASK_SCENARIOS.map(|one| vec!["--force", "--scenario", one]).into(),
            _ => vec![vec!["--suite", "all"]],
        };
        for (at, scenarios) in all.iter().enumerate() {
            let logs = folder.join(format!("suite-{at}"));
            std::fs::create_dir(&logs).map_err(|error| format!("the suite's log: {error}"))?;
            let mut command = Command::new(self.0.join("node"));
            command.arg(self.0.join(SUITE)).args(["server", "--url", url]).args(scenarios);
            command.args(["--spec-version", revision, "--output-dir"]).arg(&results);
            Process::start("the suite", &mut command, &logs)?.wait(SUITE_TIMEOUT)?;
        }
        Checks::read(&results)
    }
}
