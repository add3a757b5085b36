//! Completion in a real shell, and manual pages.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::path::Path;
use std::process::{Command, Stdio};

use toolward_testkit::wait::eventually;

/// Loads the script into bash, and completes the last of the words that follow.
const BASH: &str = "source <(toolward completions bash)
    COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9
    _clap_complete_toolward toolward \"${COMP_WORDS[$COMP_CWORD]}\" 2>/dev/null
    printf '%s\\n' \"${COMPREPLY[@]}\"";
/// The same in zsh. `_describe` gets the names of arrays, and adds a slash to the first one.
const ZSH: &str = "compdef() { :; }
    _describe() { local end=''; [[ $3 == dirs ]] && end=/; for one in \"${(@P)3}\"; do print -r -- \"${one%%:*}$end\"; done; }
    source <(toolward completions zsh)
    words=(\"$@\"); CURRENT=$#
    _clap_dynamic_completer_toolward";
const FISH: &str = "toolward completions fish | source
    complete -C \"$argv\" | string split -f1 \\t";

/// Completes the last of these words in bash.
fn complete(home: &Path, words: &[&str]) -> Vec<String> {
    complete_in(home, &["bash", "-c", BASH, "bash"], words).unwrap()
}

/// Completes the last of these words in a shell; `None` if the shell is not installed.
fn complete_in(home: &Path, shell: &[&str], words: &[&str]) -> Option<Vec<String>> {
    let program = Path::new(env!("CARGO_BIN_EXE_toolward"));
    let path =
        format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = Command::new(shell[0])
        .args(&shell[1..])
        .arg("toolward")
        .args(words)
        .env_clear()
        .env("PATH", path)
        .env("HOME", home)
        .current_dir(home)
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        eprintln!("skipped: {} is not installed", shell[0]);
        return None;
    };
    let said = String::from_utf8(output.stdout).unwrap();
    let mut found: Vec<String> = said.lines().map(|line| line.trim().into()).collect();
    found.sort();
    Some(found)
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
fn zsh_and_fish_complete_the_same() {
    let home = home();
    for shell in [&["zsh", "-f", "-c", ZSH, "zsh"][..], &["fish", "-N", "-c", FISH]] {
        let complete = |words: &[&str]| complete_in(home.path(), shell, words);
        let Some(agents) = complete(&["ls", "--as", ""]) else { continue };
        assert_eq!(agents, ["builder", "reviewer"], "{}", shell[0]);
        assert_eq!(complete(&["stdio", "--server", "f"]).unwrap(), ["files"], "{}", shell[0]);
        assert_eq!(
            complete(&["explain", "--as", "builder", "g"]).unwrap(),
            ["github/"],
            "{}",
            shell[0]
        );
        assert_eq!(complete(&["doctor", "--client", "cur"]).unwrap(), ["cursor"], "{}", shell[0]);
    }
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
    // The help lists all commands that are not hidden.
    let help = program().arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap().lines();
    let commands = commands.filter_map(|line| {
        line.split_whitespace()
            .next()
            .filter(|_| line.starts_with("  ") && !line.starts_with("   "))
    });
    let pages: Vec<String> = commands
        .filter(|name| *name != "help")
        .map(|name| format!("toolward-{name}"))
        .chain(["toolward", "toolward-audit-query"].map(String::from))
        .collect();
    assert!(pages.len() > 20 && pages.contains(&"toolward-doctor".into()), "{pages:?}");
    for page in pages {
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
