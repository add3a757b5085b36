//! The checks that every installed package has to pass, however it was installed.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dist::{Result, read};
use crate::process::{Process, send};

/// An installed program: how it is started.
pub(super) struct Installed<'a> {
    pub(super) command: &'a dyn Fn() -> Command,
    /// The program's path as the program itself sees it, for the server that `wrap` starts.
    pub(super) program: &'a str,
    pub(super) version: &'a str,
    /// For logs.
    pub(super) folder: &'a Path,
}

impl Installed<'_> {
    /// The version, exit codes, `wrap` and `demo`.
    pub(super) fn works(&self) -> Result<()> {
        let version = read((self.command)().arg("--version"))?;
        expect(version.trim() == format!("toolward {}", self.version), || {
            format!("`--version` printed {version:?}")
        })?;
        let mut wrong = (self.command)();
        let wrong = wrong.arg("no-such-command").stderr(Stdio::null()).status();
        expect(wrong.as_ref().is_ok_and(|status| status.code() == Some(2)), || {
            format!("wrong usage ended with {wrong:?}")
        })?;
        self.wraps()?;
        self.demo()
    }

    /// Lists the tools of a server through `wrap`.
    fn wraps(&self) -> Result<()> {
        let mut command = (self.command)();
        command.args(["wrap", "--read-only", "--audit", "/tmp/toolward-audit", "--"]);
        command.args([self.program, "demo-server", "tracker"]);
        let listed = exchange(&mut command)?;
        let names = |message: &Value| {
            let tools = message["result"]["tools"].as_array().cloned().unwrap_or_default();
            tools
                .iter()
                .filter_map(|tool| Some(tool["name"].as_str()?.to_string()))
                .collect::<Vec<_>>()
        };
        let names = names(&listed);
        expect(
            names.contains(&"get_issue".into()) && !names.contains(&"delete_issue".into()),
            || format!("`wrap --read-only` listed {names:?}"),
        )
    }

    /// Runs the commands that the demo prints: a list, an allowed call and a refused one.
    fn demo(&self) -> Result<()> {
        let mut command = (self.command)();
        command.args(["demo", "--json", "--port", "0", "--page-port", "0"]);
        let mut demo = Process::start_to_read("the demo", &mut command, self.folder)?;
        let facts: Value = parse(&demo.first_line()?)?;
        // The first three: the next one waits for a person.
        let answers = facts["curl"].as_array().into_iter().flatten().take(3).map(|line| {
            parse(&read(
                Command::new("sh").arg("-c").arg(line["run"].as_str().unwrap_or_default()),
            )?)
        });
        let answers = answers.collect::<Result<Vec<Value>>>()?;
        let [list, allowed, refused] = &answers[..] else {
            return Err(format!("the demo printed {} requests", answers.len()));
        };
        expect(list["result"]["tools"].as_array().is_some_and(|tools| tools.len() == 6), || {
            format!("the list of the demo's reader: {list}")
        })?;
        expect(allowed["result"]["structuredContent"]["number"] == 17, || {
            format!("an allowed call: {allowed}")
        })?;
        let reason = refused["error"]["message"].as_str().unwrap_or_default();
        expect(reason.contains("is not permitted"), || format!("a refused call: {refused}"))?;
        // A launcher ends as its program does.
        send(program_of(demo.id()), Signal::TERM);
        let status = demo.ended()?;
        expect(status.code() == Some(0), || format!("the demo ended with {status}"))
    }
}

/// Starts an MCP server, lists its tools and closes its input; returns the response to `tools/list`.
pub(super) fn exchange(command: &mut Command) -> Result<Value> {
    let client = json!({"name": "check", "version": "1"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let messages = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
    ];
    let named = format!("{command:?}");
    let failed = |error: std::io::Error| format!("{named}: {error}");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut input = child.stdin.take();
    for message in messages {
        input.as_mut().map_or(Ok(()), |input| writeln!(input, "{message}")).map_err(failed)?;
    }
    drop(input);
    let output = child.wait_with_output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    expect(output.status.success(), || format!("{named} failed ({})\n{text}", output.status))?;
    let listed =
        text.lines().filter_map(|line| parse(line).ok()).find(|message| message["id"] == 2);
    listed.ok_or_else(|| format!("{named} did not list its tools\n{text}"))
}

/// The process of the program: this one, or a descendant of it if it is a launcher.
pub(super) fn program_of(process: u32) -> u32 {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    if name.trim() == "toolward" {
        return process;
    }
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let child = children.unwrap_or_default().split(' ').find_map(|id| id.parse().ok());
    child.map_or(process, program_of)
}

pub(super) fn expect(holds: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

pub(super) fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| format!("{error} in {text:?}"))
}
