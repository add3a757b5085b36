//! The entries that `init` writes, read by the rules of each client's documentation and started exactly so.

use std::path::Path;

use serde_json::{Value, json};
use toolward_config::splice::{FileFormat, SourceText};

use crate::{Home, start_as_the_client_does};

/// A client: its file, the entry's place in it, the names of its fields, and a reference that it replaces.
struct Client {
    id: &'static str,
    file: &'static str,
    place: &'static [&'static str],
    command: &'static str,
    env: &'static str,
    /// As its documentation writes a reference to the variable `TRACKER_TOKEN`, or a literal value.
    token: &'static str,
}

const fn client(
    id: &'static str,
    file: &'static str,
    place: &'static [&'static str],
    token: &'static str,
) -> Client {
    Client { id, file, place, command: "command", env: "env", token }
}

const SERVERS: &[&str] = &["mcpServers", "tracker"];

const CLIENTS: &[Client] = &[
    client("claude-desktop", ".config/Claude/claude_desktop_config.json", SERVERS, "literal"),
    client("claude-code", ".claude.json", SERVERS, "${TRACKER_TOKEN}"),
    client("cursor", ".cursor/mcp.json", SERVERS, "${env:TRACKER_TOKEN}"),
    client("vscode", ".config/Code/User/mcp.json", &["servers", "tracker"], "${input:token}"),
    client("windsurf", ".codeium/windsurf/mcp_config.json", SERVERS, "${env:TRACKER_TOKEN}"),
    client("zed", ".config/zed/settings.json", &["context_servers", "tracker"], "literal"),
    client("cline", ".cline/data/settings/cline_mcp_settings.json", SERVERS, "literal"),
    client("gemini-cli", ".gemini/settings.json", SERVERS, "$TRACKER_TOKEN"),
    client("codex", ".codex/config.toml", &["mcp_servers", "tracker"], "literal"),
    client(
        "continue",
        ".continue/config.yaml",
        &["mcpServers", "0"],
        "${{ secrets.TRACKER_TOKEN }}",
    ),
    Client {
        command: "cmd",
        env: "envs",
        ..client("goose", ".config/goose/config.yaml", &["extensions", "tracker"], "literal")
    },
    Client {
        env: "environment",
        ..client(
            "opencode",
            ".config/opencode/opencode.jsonc",
            &["mcp", "tracker"],
            "{env:TRACKER_TOKEN}",
        )
    },
    client("kiro", ".kiro/settings/mcp.json", SERVERS, "${TRACKER_TOKEN}"),
    client("lm-studio", ".lmstudio/mcp.json", SERVERS, "literal"),
    client("copilot-cli", ".copilot/mcp-config.json", SERVERS, "literal"),
    client("warp", ".warp/.mcp.json", SERVERS, "literal"),
];

impl Client {
    /// The client's file before `init`.
    fn content(&self, server: &Path) -> String {
        let server = server.to_str().unwrap();
        let args = json!(["--api-key", "sk-live-0123456789abcdef0123", "two words"]);
        let env = json!({"TOKEN": self.token});
        match self.id {
            "codex" => format!(
                "[mcp_servers.tracker]\ncommand = {server:?}\nargs = {args}\n\n[mcp_servers.tracker.env]\nTOKEN = {:?}\n",
                self.token
            ),
            "continue" => format!(
                "mcpServers:\n  - name: tracker\n    command: {server}\n    args: {args}\n    env: {env}\n"
            ),
            "goose" => format!(
                "extensions:\n  tracker:\n    type: stdio\n    cmd: {server}\n    args: {args}\n    envs: {env}\n"
            ),
            "opencode" => {
                let mut words = vec![json!(server)];
                words.extend(args.as_array().unwrap().iter().cloned());
                let entry = json!({"type": "local", "command": words, "environment": env});
                format!("{:#}", json!({"mcp": {"tracker": entry}}))
            }
            _ => {
                let entry = json!({"command": server, "args": args, "env": env});
                format!("{:#}", json!({self.place[0]: {"tracker": entry}}))
            }
        }
    }

    /// The entry as the client starts it: its fields under the usual names, with references replaced.
    fn entry(&self, file: &Path) -> Value {
        let format = match file.extension().unwrap().to_str().unwrap() {
            "toml" => FileFormat::Toml,
            "yaml" => FileFormat::Yaml,
            _ => FileFormat::Jsonc,
        };
        let text = SourceText::decode(&std::fs::read(file).unwrap(), format).unwrap();
        let tree = text.tree().unwrap().to_json();
        let entry = self.place.iter().fold(&tree, |node, step| match step.parse::<usize>() {
            Ok(at) => &node[at],
            Err(_) => &node[step],
        });
        let mut words = match &entry[self.command] {
            Value::Array(words) => words.clone(),
            program => {
                let args = entry["args"].as_array().unwrap().iter();
                [program].into_iter().chain(args).cloned().collect()
            }
        };
        let program = words.remove(0);
        let env = entry[self.env].to_string().replace(self.token, "the-token");
        json!({"command": program, "args": words, "env": serde_json::from_str::<Value>(&env).unwrap()})
    }
}

#[test]
fn the_entry_of_every_client_starts_its_server_with_its_secrets_and_serves_a_call() {
    for client in CLIENTS {
        let home = Home::new();
        std::fs::remove_dir_all(home.path(".cursor")).unwrap();
        let file = home.path(client.file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let before = client.content(&home.path("server"));
        std::fs::write(&file, &before).unwrap();
        let (code, said) = home.run(&["init", "--yes"]);
        assert_eq!(code, 0, "{}: {said}", client.id);
        let entry = client.entry(&file);
        let expected = ["stdio", "--agent", client.id, "--server", "tracker"];
        assert_eq!(entry["args"], json!(expected), "{}", client.id);
        let answers = start_as_the_client_does(&entry, home.directory.path());
        let tools = answers[1]["result"]["tools"].as_array().unwrap();
        assert!(tools.iter().any(|tool| tool["name"] == "get_issue"), "{}: {answers:?}", client.id);
        assert!(answers[2]["result"]["content"].is_array(), "{}: {answers:?}", client.id);
        let started = std::fs::read_to_string(home.path("started")).unwrap();
        let expected =
            "--api-key\nsk-live-0123456789abcdef0123\ntwo words\nTOKEN=the-token\nMOVED=\n";
        assert_eq!(started, expected, "{}", client.id);
        assert_eq!(home.run(&["uninit", "--yes"]).0, 0);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), before, "{}", client.id);
    }
}

/// A project could otherwise start any program, with the secrets of the entry.
#[test]
fn a_configuration_in_the_directory_of_a_project_has_no_effect_on_an_entry() {
    let home = Home::new();
    let (code, said) = home.run(&["init", "--yes"]);
    assert_eq!(code, 0, "{said}");
    let project = home.path("project");
    std::fs::create_dir(&project).unwrap();
    let evil = format!(
        "servers:\n  tracker: {{ command: /bin/sh, args: [-c, \"touch {}\"], inherit_env: true }}\n",
        home.path("attacked").display()
    );
    std::fs::write(project.join("toolward.yaml"), evil).unwrap();
    let entry = home.entry();
    let args = entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    let env = entry["env"].as_object().unwrap().iter();
    let mut child = std::process::Command::new(entry["command"].as_str().unwrap())
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.directory.path())
        .envs(env.map(|(name, value)| (name, value.as_str().unwrap())))
        .current_dir(&project)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let client = json!({"name": "x", "version": "1"});
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let begin = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, format!("{begin}\n{request}\n").as_bytes()).unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let listed = lines.find(|line| line.as_ref().unwrap().contains("\"id\":1")).unwrap().unwrap();
    drop(stdin);
    child.wait().unwrap();
    assert!(listed.contains("get_issue"), "{listed}");
    assert!(!home.path("attacked").exists());
}
