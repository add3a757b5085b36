//! `cargo xtask picture`: takes the README's screenshots of the admin UI. The program serves the demo's
//! files, its agents make a few calls, and a browser takes the screenshots.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

pub const USAGE: &str = "cargo xtask picture";

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// How long the gateway may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// An error message for people.
type Result<T> = std::result::Result<T, String>;

pub fn main(words: &[&str]) -> ExitCode {
    if !words.is_empty() {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    }
    match run() {
        Ok(folder) => {
            println!("pictures written to {}", folder.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("picture: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<PathBuf> {
    let program = program()?;
    let folder = tempfile::tempdir().map_err(|error| format!("a temporary directory: {error}"))?;
    let demo = folder.path().join("demo");
    let ports = [free_port()?, free_port()?];
    let [listen, page] = ports.map(|port| port.to_string());
    let written = Command::new(&program)
        .args(["demo", "--json", "--port", &listen, "--page-port", &page, "--write"])
        .arg(&demo)
        .output()
        .map_err(|error| format!("the program cannot be started: {error}"))?;
    let facts: Value = serde_json::from_slice(&written.stdout)
        .map_err(|_| String::from_utf8_lossy(&written.stderr).into_owned())?;
    let _gateway = Gateway::start(&program, &demo, ports)?;
    let token = std::fs::read_to_string(demo.join("state/admin.token"))
        .map_err(|error| format!("the token of the admin UI: {error}"))?;
    let agents = facts["agents"].as_array().into_iter().flatten();
    let tokens: Map<String, Value> = agents
        .map(|agent| (agent["name"].as_str().unwrap_or_default().into(), agent["token"].clone()))
        .collect();
    let images = Path::new(ROOT).join("docs/images");
    std::fs::create_dir_all(&images).map_err(|error| format!("{}: {error}", images.display()))?;
    let told = json!({
        "scenario": "picture",
        "page": format!("http://127.0.0.1:{page}/?token={}", token.trim()),
        "mcp": format!("http://127.0.0.1:{listen}/mcp"),
        "tokens": tokens,
        "shots": images,
    });
    look(&told)?;
    Ok(images)
}

/// Builds the program; returns its path, which is next to this one.
fn program() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "toolward", "--bin", "toolward"])
        .current_dir(ROOT)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("`toolward` does not build".into());
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(own.with_file_name("toolward"))
}

fn free_port() -> Result<u16> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    bound.map(|address| address.port()).map_err(|error| format!("no port is free: {error}"))
}

/// A gateway that is ended on drop.
struct Gateway(Child);

impl Gateway {
    /// Started in the directory itself, so that locations are shown as relative paths.
    fn start(program: &Path, folder: &Path, ports: [u16; 2]) -> Result<Gateway> {
        let child = Command::new(program)
            .args(["serve", "-c", "toolward.yaml"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("the gateway cannot be started: {error}"))?;
        let gateway = Gateway(child);
        let begun = Instant::now();
        while !ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()) {
            if begun.elapsed() > START_TIMEOUT {
                return Err("the gateway does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(gateway)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the browser that `./test` has installed.
fn look(told: &Value) -> Result<()> {
    let peers = Path::new(ROOT).join("target/peers");
    let peers = std::env::var_os("TOOLWARD_PEERS").map_or(peers, PathBuf::from);
    let script = Path::new(ROOT).join("crates/toolward/tests/browser/picture.mjs");
    let status = Command::new(peers.join("node"))
        .arg(script)
        .arg(told.to_string())
        .env("TOOLWARD_PEERS", &peers)
        .status()
        .map_err(|error| format!("node cannot be started: {error}; ./test installs it"))?;
    if status.success() { Ok(()) } else { Err("no picture was taken".into()) }
}
