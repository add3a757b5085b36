//! Unmodified configuration files of MCP clients.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use toolward_config::config::{Connect, Server, Transport};
use toolward_config::{LoadFailure, LoadedConfig, Loader, Options};

type World = HashMap<PathBuf, String>;

fn files(files: &[(&str, &str)]) -> World {
    files.iter().map(|(name, text)| (PathBuf::from(name), text.to_string())).collect()
}

fn load(world: &World, main: &str) -> Result<LoadedConfig, LoadFailure> {
    let env: HashMap<String, String> =
        [("HOME", "/home/u"), ("TOKEN", "s3cret-value"), ("PORT", "8080")]
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .into();
    let loader = Loader { files: world, env: &env };
    let options = Options { main: Some(main.into()), ..Options::default() };
    let mut loaded = loader.load(&options)?;
    let unresolved = loaded.config.resolve_secrets(&env, world);
    let lines: Vec<String> = unresolved.iter().map(|finding| finding.to_line()).collect();
    assert!(lines.is_empty(), "{lines:?}");
    Ok(loaded)
}

fn good(text: &str, main: &str) -> LoadedConfig {
    let world = files(&[(main, text), ("/w/p/.env", "# c\nexport A=1\nB='two words'\nC=env\n")]);
    load(&world, main).unwrap_or_else(|failed| {
        let lines: Vec<String> = failed.diagnostics.iter().map(|one| one.to_line()).collect();
        panic!("{lines:#?}")
    })
}

fn wrong(text: &str, main: &str) -> String {
    match load(&files(&[(main, text)]), main) {
        Ok(_) => panic!("it loads: {text}"),
        Err(failed) => {
            let lines: Vec<String> = failed.diagnostics.iter().map(|one| one.to_line()).collect();
            lines.join("\n")
        }
    }
}

fn server<'l>(loaded: &'l LoadedConfig, name: &str) -> &'l Server {
    loaded.config.servers.iter().find(|server| server.name == name).unwrap()
}

/// Program, arguments and variables, resolved.
fn stdio(server: &Server) -> (String, Vec<String>, Vec<(String, String)>) {
    let Connect::Stdio { command, args, env, .. } = &server.connect else { panic!("not stdio") };
    let args = args.iter().map(|arg| arg.value().unwrap().to_string()).collect();
    let env = env.iter().map(|(name, value)| (name.clone(), value.value().unwrap().to_string()));
    (command.clone(), args, env.collect())
}

#[test]
fn vs_code() {
    let loaded = good(
        r#"{
          // Prompted for once.
          "inputs": [{"type": "promptString", "id": "key", "description": "API key", "password": true}],
          "servers": {
            "files": {
              "type": "stdio",
              "command": "npx",
              "args": ["-y", "@modelcontextprotocol/server-filesystem", "${workspaceFolder}", "${env:PORT}"],
              "env": {"LEVEL": 3, "GONE": null, "KEY": "${env:TOKEN}", "C": "own"},
              "envFile": "${workspaceFolder}/.env",
              "dev": {"watch": "src/**"},
              "sandboxEnabled": true, /* the client's own */
            },
            "web": {"type": "http", "url": "https://h.example/mcp", "headers": {"X-Key": "${env:TOKEN}"}},
          },
          "sandbox": {"network": {}},
        }"#,
        "/w/p/.vscode/mcp.json",
    );
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let (command, args, mut env) = stdio(server(&loaded, "files"));
    assert_eq!(command, "npx");
    assert_eq!(args[2..], ["/w/p", "8080"]);
    env.sort();
    let expected =
        [("A", "1"), ("B", "two words"), ("C", "own"), ("KEY", "s3cret-value"), ("LEVEL", "3")];
    assert_eq!(env, expected.map(|(name, value)| (name.to_string(), value.to_string())));
    let Connect::Http { url, headers, transport, .. } = &server(&loaded, "web").connect else {
        panic!()
    };
    assert_eq!(url.value(), Some("https://h.example/mcp"));
    assert_eq!(headers[0].1.value(), Some("s3cret-value"));
    assert_eq!(*transport, Some(Transport::Streamable));
}

#[test]
fn windsurf_cursor_and_cline() {
    let loaded = good(
        r#"{"mcpServers": {
          "remote": {"serverUrl": "https://h.example/mcp", "headers": {"A": "x"}},
          "line": {"command": "npx -y some-server --flag"},
          "slow": {"command": "/opt/my tools/run", "timeout": 300},
          "ms": {"command": "x", "timeout": 60000},
          "off": {"command": "x", "disabled": true},
          "nested": {"transport": {"type": "streamableHttp", "url": "https://n.example/mcp"}, "metadata": {}}
        }}"#,
        "/w/mcp_config.json",
    );
    let Connect::Http { url, .. } = &server(&loaded, "remote").connect else { panic!() };
    assert_eq!(url.value(), Some("https://h.example/mcp"));
    let (command, args, _) = stdio(server(&loaded, "line"));
    assert_eq!((&*command, args.join(" ")), ("npx", "-y some-server --flag".into()));
    assert_eq!(stdio(server(&loaded, "slow")).0, "/opt/my tools/run");
    let timeout = |name: &str| server(&loaded, name).timeout.otherwise;
    assert_eq!(timeout("slow"), Some(Duration::from_secs(300)));
    assert_eq!(timeout("ms"), Some(Duration::from_secs(60)));
    let Connect::Http { transport, .. } = &server(&loaded, "nested").connect else { panic!() };
    assert_eq!(*transport, Some(Transport::Streamable));
    assert!(!loaded.config.servers.iter().any(|server| server.name == "off"));
}

#[test]
fn claude_desktop_has_other_keys_at_the_top() {
    let text = r#"{
      "globalShortcut": "Cmd+Space",
      "preferences": {"theme": "dark", "apiKey": "hunter2"},
      "mcpServers": {"files": {"command": "npx", "args": ["-y", "x"]}}
    }"#;
    let loaded = good(text, "/w/claude_desktop_config.json");
    assert_eq!(loaded.config.servers.len(), 1);
    // In the project's own file, an unknown key remains an error.
    assert!(wrong(text, "/w/toolward.json").contains("unknown key `globalShortcut`"));
}

#[test]
fn a_misspelt_policy_in_a_clients_file_is_not_dropped() {
    let text = r#"{"mcpServers": {"s": {"command": "x"}}, "agnets": {"a": {}}}"#;
    assert!(wrong(text, "/w/.mcp.json").contains("did you mean `agents`?"));
    let text = r#"{"mcpServers": {"s": {"command": "x", "exposee": ["a"]}}}"#;
    assert!(wrong(text, "/w/.mcp.json").contains("did you mean `expose`?"));
}

#[test]
fn restrictions_that_nothing_enforces_are_reported() {
    let text =
        r#"{"mcpServers": {"s": {"command": "x", "disabledTools": ["rm"], "tools": ["*"]}}}"#;
    let loaded = good(text, "/w/mcp_config.json");
    let warnings: Vec<String> = loaded.warnings.iter().map(|one| one.to_line()).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("`disabledTools` of the client is not enforced here"));
}

#[test]
fn a_prompted_value_gives_help() {
    for entry in [
        r#"{"command": "x", "env": {"K": "${input:key}"}}"#,
        r#"{"command": "x", "args": ["--key=${input:key}"]}"#,
        r#"{"type": "http", "url": "https://h.example", "headers": {"K": "Bearer ${input:key}"}}"#,
    ] {
        let said = wrong(&format!(r#"{{"servers": {{"s": {entry}}}}}"#), "/w/mcp.json");
        assert!(said.contains("VS Code prompts for") && said.contains("${env:NAME}"), "{said}");
    }
}

#[test]
fn servers_from_adds_the_servers_of_clients_beside_a_policy() {
    let main = "servers_from: [.vscode/mcp.json, ~/.cursor/mcp.json]\n\
                servers: {own: {command: x}}\n\
                agents: {a: {allow: {servers: ['*']}}}\n";
    let code =
        r#"{"servers": {"files": {"command": "./run.sh"}}, /* kept */ "agents": {"b": {}},}"#;
    let cursor = r#"{"mcpServers": {"web": {"url": "https://h.example/mcp"}}}"#;
    let world = files(&[
        ("/w/toolward.yaml", main),
        ("/w/.vscode/mcp.json", code),
        ("/home/u/.cursor/mcp.json", cursor),
    ]);
    let loaded = load(&world, "/w/toolward.yaml").unwrap();
    let names: Vec<&str> = loaded.config.servers.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["own", "files", "web"]);
    assert_eq!(loaded.source.servers.len(), 3);
    // A project's file is relative to the project, and only its servers count.
    assert_eq!(stdio(server(&loaded, "files")).0, "/w/./run.sh");
    assert_eq!(loaded.source.layers.len(), 1);
    assert!(loaded.files.contains(&PathBuf::from("/w/.vscode/mcp.json")));

    let twice = main.replace("own", "files");
    let world = files(&[
        ("/w/toolward.yaml", &twice),
        ("/w/.vscode/mcp.json", code),
        ("/home/u/.cursor/mcp.json", cursor),
    ]);
    let failed = load(&world, "/w/toolward.yaml").unwrap_err();
    assert!(failed.diagnostics[0].to_line().contains("also described in another file"));
    let world = files(&[("/w/toolward.yaml", "servers_from: [x.json]\n"), ("/w/x.json", "{}")]);
    let failed = load(&world, "/w/toolward.yaml").unwrap_err();
    assert!(failed.diagnostics[0].to_line().contains("the file has no servers"));
}

#[test]
fn claude_code_defaults_are_used_for_variables_that_are_not_set() {
    let loaded = good(
        r#"{"mcpServers": {
          "stdio": {
            "command": "${TOOLS:-/opt/tools}/bin/server",
            "args": ["--port", "${PORT:-1}", "--host=${HOST:-localhost}", "${EMPTY:-}"],
            "env": {"KEY": "${TOKEN:-none}", "LEVEL": "${LEVEL:-a:-b}"}
          },
          "web": {"url": "https://${HOST:-h.example}/mcp", "headers": {"X": "Bearer ${NO_TOKEN:-public}"}}
        }}"#,
        "/w/p/.mcp.json",
    );
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let (command, args, env) = stdio(server(&loaded, "stdio"));
    assert_eq!(command, "/opt/tools/bin/server");
    assert_eq!(args, ["--port", "8080", "--host=localhost", ""]);
    assert_eq!(env[0], ("KEY".into(), "s3cret-value".into()));
    assert_eq!(env[1], ("LEVEL".into(), "a:-b".into()));
    let Connect::Http { url, headers, .. } = &server(&loaded, "web").connect else { panic!() };
    assert_eq!(url.value(), Some("https://h.example/mcp"));
    assert_eq!(headers[0].1.value(), Some("Bearer public"));
}

#[test]
fn references_in_a_client_s_command_are_replaced() {
    let loaded = good(
        r#"{"mcpServers": {
          "home": {"command": "${HOME}/bin/server"},
          "editor": {"command": "${userHome}/bin/server"},
          "here": {"command": "./${env:PORT}/server"}
        }}"#,
        "/w/p/.mcp.json",
    );
    assert_eq!(stdio(server(&loaded, "home")).0, "/home/u/bin/server");
    assert_eq!(stdio(server(&loaded, "editor")).0, "/home/u/bin/server");
    assert_eq!(stdio(server(&loaded, "here")).0, "/w/p/./8080/server");
    let message = wrong(r#"{"mcpServers": {"s": {"command": "${1x}/y"}}}"#, "/w/.mcp.json");
    assert!(message.contains("is not a reference"), "{message}");
}

#[test]
fn names_that_cannot_be_used_are_derived() {
    let loaded = good(
        r#"{"mcpServers": {
          "io.github.acme/files": {"command": "x"},
          "My files": {"command": "x"},
          "My-files": {"command": "x"},
          "a__b": {"command": "x"}
        }}"#,
        "/w/.mcp.json",
    );
    let names: Vec<&str> = loaded.config.servers.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["io.github.acme-files", "My-files-2", "My-files", "a_b"]);
    let lines: Vec<String> = loaded.warnings.iter().map(|one| one.to_line()).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    let words = "the server `io.github.acme/files` is named `io.github.acme-files` here";
    assert!(lines[0].contains(words), "{lines:?}");
    // The names of the project's own files are usable as server names.
    let message = wrong("servers: {\"a/b\": {command: x}}\n", "/w/toolward.yaml");
    assert!(message.contains("a server's name must not contain `/`"), "{message}");
}

#[test]
fn a_vs_code_file_is_recognized_by_its_content() {
    let text = r#"{
      // As saved elsewhere.
      "inputs": [],
      "servers": {"s": {"type": "stdio", "command": "x", "args": ["${env:PORT}"], "gallery": true}},
    }"#;
    for main in ["/w/code.json", "/w/settings.jsonc", "/w/servers"] {
        let loaded = good(text, main);
        assert_eq!(stdio(server(&loaded, "s")).1, ["8080"], "{main}");
    }
    // Without `inputs`, it is the project's own file.
    let message = wrong(r#"{"servers": {"s": {"command": "x", "gallery": true}}}"#, "/w/t.json");
    assert!(message.contains("unknown key `gallery`"), "{message}");
}
