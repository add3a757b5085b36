//! `toolward demo --write DIR`: files to start from.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::running::{answer, command, line, shell};

/// Writes the files; returns the output.
fn write(home: &Path, folder: &str, arguments: &[&str]) -> String {
    let mut command = command(home);
    command.current_dir(home).args(["demo", "--write", folder, "--port", "0", "--page-port", "0"]);
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A gateway that is ended with the test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        super::audit_log::witness::end(&mut self.0);
    }
}

#[test]
fn the_files_work_as_they_are() {
    let home = tempfile::tempdir().unwrap();
    // A name that a shell would interpret.
    let printed = write(home.path(), "to start/it's mine", &[]);
    let folder = home.path().join("to start/it's mine");
    let mode = |name: &str| folder.join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("tokens.txt"), mode(".")), (0o600, 0o700));
    let checked = shell(line(&printed, "check the files"), home.path(), None);
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success() && checked.stderr.is_empty(), "{said}{:?}", checked.stderr);
    assert!(said.contains("19 of 19 tests passed"), "{said}");
    let tested = shell(line(&printed, "run the tests of the policy"), home.path(), None);
    let said = String::from_utf8(tested.stdout).unwrap();
    assert!(tested.status.success() && said.contains("19 passed, 0 failed"), "{said}");
    for (about, code) in
        [("what reader may do", 0), ("check one call", 1), ("explain the denial", 1)]
    {
        let asked = shell(line(&printed, about), home.path(), None);
        assert_eq!(asked.status.code(), Some(code), "{about}: {asked:?}");
    }
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    for command in readme.lines().filter(|line| line.starts_with("toolward ")) {
        if !command.contains("serve") {
            let line = command.replacen("toolward", super::running::PROGRAM, 1);
            let asked =
                shell(&format!("cd '{}' && {line}", "to start/it'\\''s mine"), home.path(), None);
            assert!(matches!(asked.status.code(), Some(0 | 1)), "{line}: {asked:?}");
        }
    }
}

#[test]
fn serve_takes_the_tokens_that_were_written() {
    let home = tempfile::tempdir().unwrap();
    let printed = write(home.path(), "heron", &[]);
    let tokens = std::fs::read_to_string(home.path().join("heron/tokens.txt")).unwrap();
    let config = std::fs::read_to_string(home.path().join("heron/toolward.yaml")).unwrap();
    assert_eq!(tokens.lines().count(), 3);
    let mut words = command(home.path());
    let mut child = words
        .current_dir(home.path())
        .args(["serve", "-c", "heron/toolward.yaml"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(
        line(&printed, "run the gateway").ends_with(" serve -c heron/toolward.yaml"),
        "{printed}"
    );
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let serving = Serving(child);
    let mcp = said.find_map(|line| Some(line.split_once("listening on ")?.1.to_string())).unwrap();
    // Output is drained, so that nothing blocks.
    std::thread::spawn(move || said.for_each(drop));
    for row in tokens.lines() {
        let (agent, token) = row.split_once(' ').unwrap();
        let token = token.trim();
        assert!(!config.contains(token));
        let client = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}});
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": client}});
        let listed = answer(
            &format!(
                "curl -s {mcp} -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' \
                 -H 'Accept: application/json, text/event-stream' -H 'Mcp-Method: tools/list' \
                 -H 'MCP-Protocol-Version: 2026-07-28' -d '{body}'"
            ),
            home.path(),
        );
        let expected = match agent {
            "reader" => 6,
            "maintainer" => 11,
            _ => 2,
        };
        let tools = listed["result"]["tools"].as_array().unwrap();
        assert_eq!(tools.len(), expected, "{agent}: {listed}");
    }
    drop(serving);
}

#[test]
fn nothing_is_overwritten() {
    for name in ["toolward.yaml", "policy.yaml", "README.md", "tokens.txt"] {
        let home = tempfile::tempdir().unwrap();
        // Nor at the target of a link.
        let mine = home.path().join("mine");
        std::fs::write(&mine, "mine").unwrap();
        std::os::unix::fs::symlink("mine", home.path().join(name)).unwrap();
        let output =
            command(home.path()).arg("demo").arg("--write").arg(home.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("{name} already exists")), "{said}");
        assert!(said.contains("help: choose another directory"), "{said}");
        assert_eq!(std::fs::read_to_string(&mine).unwrap(), "mine");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2);
    }
}

#[test]
fn the_files_are_listed_as_json_too() {
    let home = tempfile::tempdir().unwrap();
    let facts: Value = serde_json::from_str(&write(home.path(), "heron", &["--json"])).unwrap();
    assert_eq!(facts["config"], "heron/toolward.yaml");
    assert_eq!(facts["page"], Value::Null);
    let tokens = std::fs::read_to_string(home.path().join("heron/tokens.txt")).unwrap();
    for agent in facts["agents"].as_array().unwrap() {
        assert!(tokens.contains(agent["token"].as_str().unwrap()));
    }
}

#[test]
fn a_name_that_would_do_something_to_the_terminal_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let words = ["demo", "--write", "a\u{1b}[31m\u{202e}b"];
    let output = command(home.path()).current_dir(home.path()).args(words).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("contains characters that cannot be printed"), "{said}");
    assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_that_cannot_be_created_is_reported() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("file"), "").unwrap();
    let words = ["demo", "--write", "file/below"];
    let output = command(home.path()).current_dir(home.path()).args(words).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot write to file/below"), "{said}");
}
