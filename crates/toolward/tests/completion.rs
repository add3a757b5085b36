//! Completion in a real shell, and manual pages.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::{Command, Stdio};

use toolward_testkit::wait::eventually;

/// Completes the last of these words in bash.
fn complete(home: &Path, words: &[&str]) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_toolward"));
    let script = "source <(toolward completions bash)
        COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9
        _clap_complete_toolward toolward \"${COMP_WORDS[$COMP_CWORD]}\" 2>/dev/null
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let path =
        format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-c", script, "bash", "toolward"])
        .args(words)
        .env_clear()
        .env("PATH", path)
        .env("HOME", home)
        .current_dir(home)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let mut found: Vec<String> = said.lines().map(|line| line.trim().into()).collect();
    found.sort();
    found
}

fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let config = "servers:\n  files: { command: x }\n  github: { command: y }\nagents:\n  reviewer: { allow: { servers: [files] } }\n  builder: { allow: { servers: [github] } }\n";
    std::fs::write(home.path().join("toolward.yaml"), config).unwrap();
    std::fs::write(home.path().join("other.yaml"), config.replace("builder", "other")).unwrap();
    home
}

#[test]
fn agents_and_servers_of_the_configuration_are_completed() {
    let home = home();
    let complete = |words: &[&str]| complete(home.path(), words);
    assert_eq!(complete(&["ls", "--as", ""]), ["builder", "reviewer"]);
    assert_eq!(complete(&["can-i", "--as", "rev"]), ["reviewer"]);
    assert_eq!(complete(&["stdio", "--agent", "b"]), ["builder"]);
    assert_eq!(complete(&["stdio", "--server", ""]), ["files", "github"]);
    assert_eq!(complete(&["explain", "--as", "builder", "g"]), ["github/"]);
    assert_eq!(complete(&["ls", "-c", "other.yaml", "--as", ""]), ["other", "reviewer"]);
    assert_eq!(complete(&["init", "--client", "cur"]), ["cursor"]);
    assert!(complete(&["uni"]).contains(&"uninit".into()));
}

#[test]
fn tools_that_a_running_gateway_knows_are_completed() {
    let home = home();
    let program = env!("CARGO_BIN_EXE_toolward");
    let server = format!("{{ command: {program}, args: [demo-server, tracker], start: eager }}");
    let config = format!("listen: 127.0.0.1:0\nadmin: off\nservers:\n  tracker: {server}\n");
    std::fs::write(home.path().join("toolward.yaml"), config).unwrap();
    let mut gateway = Command::new(program)
        .arg("serve")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .current_dir(home.path())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let found = eventually("the tools are completed", || {
        let found = complete(home.path(), &["can-i", "tracker/"]);
        (found.len() > 1).then_some(found)
    });
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    assert!(found.iter().all(|name| name.starts_with("tracker/")), "{found:?}");
}

#[test]
fn a_broken_configuration_completes_nothing_and_says_nothing() {
    let home = home();
    std::fs::write(home.path().join("toolward.yaml"), "servers: [").unwrap();
    assert_eq!(complete(home.path(), &["ls", "--as", ""]), [""]);
}

#[test]
fn every_command_has_a_manual_page() {
    let program = || Command::new(env!("CARGO_BIN_EXE_toolward"));
    let directory = tempfile::tempdir().unwrap();
    assert!(program().args(["man", "--dir"]).arg(directory.path()).status().unwrap().success());
    for page in ["toolward", "toolward-init", "toolward-stdio", "toolward-audit-query"] {
        let page = directory.path().join(format!("{page}.1"));
        let text = std::fs::read_to_string(&page).unwrap_or_else(|_| panic!("{page:?}"));
        assert!(text.contains(".TH ") && text.contains(".SH SYNOPSIS"), "{text}");
    }
    let output = program().args(["man", "audit", "query"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(".TH toolward-audit-query 1"), "{text}");
    let output = program().args(["man", "chek"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("did you mean `check`?"));
}
