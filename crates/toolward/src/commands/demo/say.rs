//! The output of the demo: addresses, tokens, and commands that can be copied.

use std::fmt::Write as _;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::files::{Agent, DemoPaths};
use crate::render::{BOLD, DIM, GREEN, Table, YELLOW, paint};

/// The gateway's name in client configurations.
const NAME: &str = "toolward-demo";
const MODERN: &str = "2026-07-28";

/// The printed summary of a demo.
pub(super) struct Facts<'d> {
    pub(super) place: &'d DemoPaths,
    pub(super) agents: &'d [Agent; 3],
    /// The URL of the admin UI with its token, if enabled.
    pub(super) page: Option<String>,
    /// Requested ports that are in use.
    pub(super) busy: Vec<SocketAddr>,
}

/// A line to copy.
struct CopyableLine {
    about: String,
    text: String,
}

impl Facts<'_> {
    /// The same for scripts, on one line.
    pub(super) fn json_line(&self) -> String {
        let agents = self
            .agents
            .iter()
            .map(|agent| json!({"name": agent.name, "token": agent.token, "about": agent.about}));
        let lines = |lines: Vec<CopyableLine>| -> Vec<Value> {
            lines.iter().map(|line| json!({"about": line.about, "run": line.text})).collect()
        };
        let facts = json!({
            "page": self.page,
            "mcp": self.mcp(),
            "folder": self.place.folder,
            "config": self.place.config(),
            "policy": self.place.policy(),
            "agents": agents.collect::<Vec<_>>(),
            "curl": lines(self.curl()),
            "commands": lines(self.commands().into()),
            "clients": {
                "claude": self.claude(),
                "cursor": self.cursor(),
                "vscode": self.vscode(),
                "inspector": self.inspector(),
            },
        });
        format!("{facts}\n")
    }

    pub(super) fn to_text(&self) -> String {
        let mut out = String::new();
        let policy = self.place.policy();
        let _ = writeln!(
            out,
            "{}\n",
            paint(BOLD, "Toolward demo: two servers, three agents, one policy")
        );
        let mut row = |name: &str, value: &str, note: &str| {
            let note = if note.is_empty() { String::new() } else { format!("   {note}") };
            let _ = writeln!(out, "  {name:<10}{}{}", paint(GREEN, value), paint(DIM, note));
        };
        if let Some(page) = &self.page {
            row("Admin UI", page, "");
        }
        row("MCP", &self.mcp(), "");
        row("Policy", &policy.display().to_string(), "edit it and watch the admin UI");
        for busy in &self.busy {
            let _ = writeln!(
                out,
                "  {}",
                paint(YELLOW, format!("{busy} is in use; using a free port instead"))
            );
        }
        let mut table = Table::new(&["AGENT", "TOKEN", "ABOUT"]);
        for agent in self.agents {
            table.row(vec![
                (agent.name.into(), BOLD),
                (agent.token.clone(), GREEN),
                (agent.about.into(), DIM),
            ]);
        }
        let _ = writeln!(out);
        for line in table.render().lines() {
            let _ = writeln!(out, "  {line}");
        }
        headline(&mut out, "Try it from another terminal");
        self.curl().iter().chain(&self.commands()).for_each(|line| copy(&mut out, line));
        headline(&mut out, "Connect a client");
        for line in self.clients() {
            copy(&mut out, &line);
        }
        // The first lines may have scrolled off the screen.
        if let Some(page) = &self.page {
            let _ = writeln!(out, "\nOpen {}", paint(GREEN, page));
        }
        let keep = format!("{} demo --write DIR", quoted(&self.place.program));
        let _ = writeln!(
            out,
            "Ctrl-C stops the demo and deletes its directory. To keep the files: {}",
            paint(BOLD, keep)
        );
        out
    }

    /// The output of `--write`.
    pub(super) fn written(&self) -> String {
        let mut out = String::new();
        let folder = self.place.folder.display();
        let _ = writeln!(out, "{}", paint(BOLD, format!("The demo's files are in {folder}")));
        let _ = writeln!(out, "README.md describes them; the tokens are in tokens.txt.");
        let config = quoted(&self.place.config().display().to_string());
        headline(&mut out, "Next");
        for (about, word) in [
            ("run the gateway; it logs the address of the admin UI", "serve"),
            ("check the files", "check"),
            ("run the tests of the policy", "test"),
        ] {
            let text = format!("{} {word} -c {config}", quoted(&self.place.program));
            copy(&mut out, &CopyableLine { about: about.into(), text });
        }
        self.commands().iter().for_each(|line| copy(&mut out, line));
        out
    }

    fn mcp(&self) -> String {
        format!("http://{}/mcp", self.place.listen)
    }

    /// One complete request each.
    fn curl(&self) -> Vec<CopyableLine> {
        let [reader, maintainer, _] = self.agents;
        let call = |about: &str, name: &str, arguments: Value| CopyableLine {
            about: about.into(),
            text: self.request(reader, "tools/call", Some((name, arguments))),
        };
        vec![
            CopyableLine {
                about: "list the tools of reader; another token gets another list".into(),
                text: self.request(reader, "tools/list", None),
            },
            call("reader reads an issue: allowed", "tracker__get_issue", json!({"number": 17})),
            call("reader deletes one: refused", "tracker__delete_issue", json!({"number": 17})),
            CopyableLine {
                about: "maintainer closes one: waits until you approve it in the admin UI".into(),
                text: self.request(
                    maintainer,
                    "tools/call",
                    Some(("tracker__close_issue", json!({"number": 21}))),
                ),
            },
        ]
    }

    fn request(&self, agent: &Agent, method: &str, call: Option<(&str, Value)>) -> String {
        let mut headers = format!("-H 'MCP-Protocol-Version: {MODERN}' -H 'Mcp-Method: {method}'");
        let mut params = String::new();
        if let Some((name, arguments)) = call {
            headers.push_str(&format!(" -H 'Mcp-Name: {name}'"));
            params = format!("\"name\":{},\"arguments\":{arguments},\n      ", json!(name));
        }
        format!(
            "curl -sS -w '\\n' {} \\\n  -H 'Authorization: Bearer {}' \\\n  \
             -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\\n  \
             {headers} \\\n  \
             -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{{{params}\"_meta\":{{\n      \
             \"io.modelcontextprotocol/protocolVersion\":\"{MODERN}\",\n      \
             \"io.modelcontextprotocol/clientCapabilities\":{{}}}}}}}}'",
            self.mcp(),
            agent.token,
        )
    }

    /// The same queries as commands of the program.
    fn commands(&self) -> [CopyableLine; 4] {
        let program = quoted(&self.place.program);
        let config = quoted(&self.place.config().display().to_string());
        let write = r#"'{"path": "config/production.yaml"}'"#;
        [
            ("show what reader may do, and the rule for each tool", "ls --as reader".to_string()),
            ("check one call", format!("can-i --as maintainer files/write_file {write}")),
            ("explain the denial", format!("explain --as maintainer files/write_file {write}")),
            ("show the calls that wait for a person", "pending".to_string()),
        ]
        .map(|(about, words)| CopyableLine {
            about: about.into(),
            text: format!("{program} {words} -c {config}"),
        })
    }

    fn clients(&self) -> Vec<CopyableLine> {
        let line = |about: &str, text: String| CopyableLine { about: about.into(), text };
        vec![
            line("Claude Code", self.claude()),
            line("Cursor: .cursor/mcp.json", self.cursor().to_string()),
            line("VS Code: .vscode/mcp.json", self.vscode().to_string()),
            line("MCP Inspector (needs Node 22.19 or later)", self.inspector()),
        ]
    }

    /// The agent that clients connect as: it sees the most tools.
    fn bearer(&self) -> String {
        let [_, maintainer, _] = self.agents;
        format!("Bearer {}", maintainer.token)
    }

    fn claude(&self) -> String {
        let (mcp, bearer) = (self.mcp(), self.bearer());
        format!("claude mcp add --transport http {NAME} {mcp} --header 'Authorization: {bearer}'")
    }

    fn cursor(&self) -> Value {
        json!({"mcpServers": {NAME: {"url": self.mcp(), "headers": {"Authorization": self.bearer()}}}})
    }

    fn vscode(&self) -> Value {
        let server =
            json!({"type": "http", "url": self.mcp(), "headers": {"Authorization": self.bearer()}});
        json!({"servers": {NAME: server}})
    }

    fn inspector(&self) -> String {
        let (mcp, bearer) = (self.mcp(), self.bearer());
        format!(
            "npx -y @modelcontextprotocol/inspector --cli {mcp} --transport http \
             --header 'Authorization: {bearer}' --method tools/list"
        )
    }
}

fn headline(out: &mut String, text: &str) {
    let _ = writeln!(out, "\n{}", paint(BOLD, text));
}

/// Prints a command with a comment above it, so that both can be copied together.
fn copy(out: &mut String, line: &CopyableLine) {
    let _ = writeln!(out, "\n{}\n{}", paint(DIM, format!("# {}", line.about)), line.text);
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:,@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_shell_reads_words_as_they_are_meant() {
        assert_eq!(quoted("/usr/bin/toolward"), "/usr/bin/toolward");
        assert_eq!(quoted("/a b/it's"), r"'/a b/it'\''s'");
    }
}
