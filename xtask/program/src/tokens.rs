//! `cargo xtask tokens`: how many tokens tool lists take, listed directly and with progressive
//! discovery. It queries the program in front of servers with tool lists of real servers.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use serde_json::{Value, json};

pub const USAGE: &str = "cargo xtask tokens [DIRECTORY WITH TOOL LISTS]";

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The number of bytes that count as one token.
const BYTES_A_TOKEN: usize = 4;

/// An error message for people.
type Result<T> = std::result::Result<T, String>;

pub fn main(words: &[&str]) -> ExitCode {
    let folder = match words {
        [] => Path::new(ROOT).join("../shared/corpus"),
        [folder] => PathBuf::from(folder),
        _ => {
            eprintln!("usage: {USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("tokens: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(folder: &Path) -> Result<()> {
    let text = |error: std::io::Error| error.to_string();
    let files = std::fs::read_dir(folder).map_err(|error| {
        format!("{}: {error}\nthe lists are not part of this repository", folder.display())
    })?;
    let mut files: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let work = tempfile::tempdir().map_err(text)?;
    let mut servers = json!({});
    for file in &files {
        let list = std::fs::read_to_string(file).map_err(text)?;
        let list: Value = serde_json::from_str(&list).map_err(|error| error.to_string())?;
        let name = list["server"].as_str().ok_or("a list does not name its server")?;
        let path = work.path().join(format!("{name}.json"));
        std::fs::write(&path, list["tools"].to_string()).map_err(text)?;
        let script = Path::new(ROOT).join("crates/toolward/tests/program/both.py");
        let arguments = json!([script, "stdio", "both", "/dev/null", path]);
        servers[name] = json!({"command": "python3", "args": arguments});
    }
    let allow = json!({"servers": ["*"]});
    let config = json!({
        "builtin": true,
        "list_timeout": "60s",
        "state": "state",
        "audit": {"dir": "audit"},
        "servers": servers,
        "agents": {
            "direct": {"allow": allow, "deny": {"servers": ["toolward"]}},
            "progressive": {"allow": allow, "discovery": "progressive"},
        },
    });
    let path = work.path().join("toolward.yaml");
    std::fs::write(&path, config.to_string()).map_err(text)?;
    let program = crate::torture::build()?;

    let mut direct = Client::start(&program, &path, "direct")?;
    let list = direct.ask("tools/list", json!({}))?["tools"].take();
    let mut progressive = Client::start(&program, &path, "progressive")?;
    let own = progressive.ask("tools/list", json!({}))?["tools"].take();
    println!("| what a model reads | tools | bytes | tokens, about |\n|---|---|---|---|");
    row(&format!("the list, direct: {} servers", files.len()), &[&list]);
    row("the list, progressive", &[&own]);
    row("`list_servers`", &[&progressive.own("list_servers", json!({}))?]);
    let questions = Path::new(ROOT).join("crates/toolward/tests/data/search-questions.jsonl");
    let questions = std::fs::read_to_string(questions).map_err(text)?;
    let (mut found, mut definitions) = (Vec::new(), Vec::new());
    for line in questions.lines() {
        let case: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let hits = progressive.own("search_tools", json!({"query": case["question"]}))?;
        let first = &hits["tools"][0];
        let wanted = json!({"server": first["server"], "names": [first["name"]]});
        definitions.push(progressive.own("get_server_tools", wanted)?);
        found.push(hits);
    }
    row(&format!("`search_tools`, mean of {}", found.len()), &found.iter().collect::<Vec<_>>());
    let definitions: Vec<&Value> = definitions.iter().collect();
    row("`get_server_tools` of the first that was found, mean", &definitions);
    Ok(())
}

/// A row of the table: the mean of these responses, written without spaces.
fn row(name: &str, answers: &[&Value]) {
    let bytes: usize = answers.iter().map(|answer| answer.to_string().len()).sum();
    let bytes = bytes / answers.len().max(1);
    let tools = match answers {
        [one] => one.as_array().map_or(String::new(), |tools| tools.len().to_string()),
        _ => String::new(),
    };
    println!("| {name} | {tools} | {bytes} | {} |", bytes / BYTES_A_TOKEN);
}

/// A client of `toolward stdio`.
struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Client {
    fn start(program: &Path, config: &Path, agent: &str) -> Result<Client> {
        let child = Command::new(program)
            .args(["stdio", "--agent", agent, "-c"])
            .arg(config)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.map_err(|error| format!("the gateway: {error}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the gateway has no standard streams".into());
        };
        let mut client = Client { child, input, output: BufReader::new(output), next: 0 };
        let info = json!({"name": "tokens", "version": "1"});
        let hello =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
        client.ask("initialize", hello)?;
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(client)
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        writeln!(self.input, "{message}").map_err(|error| error.to_string())
    }

    fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).map_err(|error| error.to_string())?;
            if read == 0 {
                return Err(format!("the gateway ended before it answered `{method}`"));
            }
            let mut answer: Value =
                serde_json::from_str(&line).map_err(|error| error.to_string())?;
            if answer["id"] == id {
                let result = answer["result"].take();
                return if result.is_null() { Err(answer.to_string()) } else { Ok(result) };
            }
        }
    }

    /// Calls a tool of the built-in server.
    fn own(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        let params = json!({"name": format!("toolward__{tool}"), "arguments": arguments});
        let mut result = self.ask("tools/call", params)?;
        match result["structuredContent"].take() {
            Value::Null => Err(result.to_string()),
            said => Ok(said),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
