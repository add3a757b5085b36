//! Commands that look for a running gateway: how they find it, and what they read from it.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::harness::{Gate, eventually, everyone, names, setup};
use super::reload::{change, listed, only, replace, two};

/// Exit code, standard output and standard error.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Runs the program in a directory, with the gateway's home directory.
pub fn run(gate: &Gate, directory: &Path, arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolward"));
    command.args(arguments).current_dir(directory).env_clear();
    command.env("HOME", gate.setup.path("")).env("PATH", std::env::var_os("PATH").unwrap());
    command.envs(gate.setup.environment.iter().map(|(name, value)| (name, value)));
    let output = command.output().unwrap();
    Said {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn with_layer() -> Gate {
    let setup = setup().agents(everyone()).set("policies", json!(["extra.yaml"]));
    std::fs::write(setup.path("extra.yaml"), "allowed_tools: [read]\n").unwrap();
    let gate = setup.web("s", "modern", two()).start();
    assert_eq!(listed(&gate.agent("a")), ["s__read"]);
    gate
}

#[test]
fn a_broken_policy_layer_does_not_hide_the_gateway() {
    let gate = with_layer();
    let main = gate.file("toolward.yaml");
    let main = main.to_str().unwrap();
    replace(&gate.file("extra.yaml"), "allowed_tools: [read\n");
    for command in ["status", "reload"] {
        // Without a home directory there is no registry: only the configuration gives the location.
        let mut alone = Command::new(env!("CARGO_BIN_EXE_toolward"));
        let output = alone.args([command, "-c", main]).env_clear().output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let expected = if command == "status" { 0 } else { 3 };
        assert_eq!(output.status.code(), Some(expected), "{command}: {said}");
        assert!(said.contains("extra.yaml"), "{command}: {said}");
    }
    // The log is read too.
    let said = run(&gate, Path::new("/"), &["audit", "query", "-c", main, "--kind", "list"]);
    assert_eq!((said.code, said.out.lines().count()), (0, 2), "{}{}", said.out, said.err);
    // A main file that cannot be parsed at all is found by its name.
    replace(&gate.file("toolward.yaml"), "listen: [\n");
    for (command, expected) in [("status", 0), ("reload", 3)] {
        let said = run(&gate, Path::new("/"), &[command, "-c", main]);
        assert_eq!(said.code, expected, "{command}: {}{}", said.out, said.err);
    }
    let said = run(&gate, Path::new("/"), &["audit", "query", "-c", main, "--kind", "list"]);
    assert_eq!((said.code, said.out.lines().count()), (0, 2), "{}{}", said.out, said.err);
}

#[test]
fn a_gateway_is_found_from_any_directory_while_it_runs() {
    let mut gate = with_layer();
    let said = run(&gate, Path::new("/"), &["status", "--json"]);
    let status: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(status[0]["process"], gate.child.as_ref().unwrap().id());
    assert_eq!(
        status[0]["config"],
        gate.file("toolward.yaml").canonicalize().unwrap().to_str().unwrap()
    );
    let registry = gate.file(".local/state/toolward/gateways");
    assert_eq!(std::fs::read_dir(&registry).unwrap().count(), 1);
    // A killed gateway leaves an entry, which the next lookup removes.
    gate.kill();
    let said = run(&gate, Path::new("/"), &["status"]);
    assert_eq!(said.code, 5, "{}{}", said.out, said.err);
    assert_eq!(std::fs::read_dir(&registry).unwrap().count(), 0);
    // A graceful shutdown leaves nothing.
    gate.restart();
    gate.signal("-TERM");
    let child = gate.child.as_mut().unwrap();
    eventually("the gateway ends", || child.try_wait().unwrap());
    let left = std::fs::read_dir(&registry).map_or(0, |entries| entries.count());
    assert_eq!(left, 0);
}

#[test]
fn a_past_decision_is_explained_from_any_directory() {
    let gate = with_layer();
    let refused =
        gate.agent("a").modern("tools/call", json!({"name": "s__write", "arguments": {}}));
    let id = gate.refusal(&refused)["decision_id"].as_str().unwrap().to_string();
    let main = gate.file("toolward.yaml");
    let elsewhere = tempfile::tempdir().unwrap();
    for arguments in [&["explain", &*id][..], &["explain", &id, "-c", main.to_str().unwrap()]] {
        let said = run(&gate, elsewhere.path(), arguments);
        assert_eq!(said.code, 0, "{arguments:?}: {}{}", said.out, said.err);
        assert!(said.out.contains("write") && said.out.contains(&id), "{}", said.out);
    }
    // Also while a policy layer is broken.
    replace(&gate.file("extra.yaml"), "allowed_tools: [read\n");
    let said = run(&gate, elsewhere.path(), &["explain", &id, "-c", main.to_str().unwrap()]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let other = id.replace(|c: char| c.is_ascii_digit(), "0");
    let said = run(&gate, elsewhere.path(), &["explain", &other]);
    assert_eq!(said.code, 1);
    let audit = gate.file("audit").canonicalize().unwrap();
    assert!(said.err.contains(audit.to_str().unwrap()), "{}", said.err);
}

#[test]
fn queries_use_the_tool_lists_of_the_running_gateway_and_state_it() {
    let gate = setup().agents(only(&["read"])).stdio("s", "legacy", two()).start();
    assert_eq!(listed(&gate.agent("a")), ["s__read"]);
    let started = gate.heard("s", "initialize").len();
    let main = gate.file("toolward.yaml");
    let main = main.to_str().unwrap();
    let note = format!("running gateway (process {})", gate.child.as_ref().unwrap().id());
    for arguments in [
        &["ls", "--as", "a", "-c", main][..],
        &["can-i", "--as", "a", "s/read", "-c", main],
        &["explain", "--as", "a", "s/read", "-c", main],
    ] {
        let said = run(&gate, Path::new("/"), arguments);
        assert_eq!(said.code, 0, "{arguments:?}: {}{}", said.out, said.err);
        assert!(said.err.contains(&note), "{arguments:?}: {}", said.err);
        assert!(!said.out.contains("not known"), "{}", said.out);
    }
    assert_eq!(gate.heard("s", "initialize").len(), started, "no second server was started");
    // A saved list and another configuration are used as they are.
    let saved = gate.file("saved.json");
    std::fs::write(&saved, json!({"server": "s", "tools": names(&["saved"])}).to_string()).unwrap();
    let saved = saved.to_str().unwrap();
    let said =
        run(&gate, Path::new("/"), &["ls", "--as", "a", "--all", "-c", main, "--tools", saved]);
    assert!(said.out.contains("saved") && said.err.is_empty(), "{}{}", said.out, said.err);
    let copy = gate.file("copy.yaml");
    std::fs::copy(main, &copy).unwrap();
    let said = run(&gate, Path::new("/"), &["ls", "--as", "a", "-c", copy.to_str().unwrap()]);
    assert!(said.out.contains("read") && said.err.is_empty(), "{}{}", said.out, said.err);
}

#[test]
fn counters_of_rules_survive_a_reload_that_does_not_change_them() {
    let gate = setup().agents(only(&["read", "write"])).web("s", "modern", two()).start();
    let agent = gate.agent("a");
    let call = |tool: &str| agent.modern("tools/call", json!({"name": tool, "arguments": {}}));
    for tool in ["s__read", "s__read", "s__write", "s__none"] {
        call(tool);
    }
    let main = gate.file("toolward.yaml");
    let ask = |word: &str| {
        let said = run(&gate, Path::new("/"), &[word, "--json", "-c", main.to_str().unwrap()]);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        serde_json::from_str::<Value>(&said.out).unwrap()[0].clone()
    };
    let hits = || {
        let policy = ask("status")["policy"].clone();
        let hits = policy["hits"].as_array().unwrap().iter();
        let hits: Vec<String> =
            hits.map(|hit| format!("{} {}", hit["rule"], hit["calls"])).collect();
        (hits.join(", "), policy["decided"].as_u64().unwrap(), policy["refused_unseen"].as_u64())
    };
    let (before, decided, unlisted) = hits();
    assert!(before.contains("tools.s[0]\" 2") && before.contains("tools.s[1]\" 1"), "{before}");
    assert_eq!(unlisted, Some(1));
    change(&gate, |config| {
        config["agents"]["a"]["allow"]["tools"]["s"] = json!(["other", "read", "writ*"]);
    });
    ask("reload");
    let (after, still, unlisted) = hits();
    assert!(after.contains("tools.s[1]\" 2") && !after.contains("tools.s[2]"), "{after}");
    assert_eq!((still, unlisted), (decided, Some(1)));
    call("s__read");
    assert!(hits().0.contains("tools.s[1]\" 3"));
}

#[test]
fn a_changed_separator_is_named() {
    let gate = setup().agents(everyone()).web("s", "modern", two()).start();
    change(&gate, |config| config["separator"] = json!("--"));
    let main = gate.file("toolward.yaml");
    let said = run(&gate, Path::new("/"), &["reload", "-c", main.to_str().unwrap()]);
    assert!(said.code == 3 && said.out.contains("`separator` cannot change"), "{}", said.out);
    assert!(!said.out.contains("naming"), "{}", said.out);
}

#[test]
fn status_shows_each_file_once_with_its_layers() {
    let setup = setup().agents(everyone()).set("allowed_tools", json!(["*"]));
    let gate = setup.web("s", "modern", two()).start();
    let main = gate.file("toolward.yaml");
    let said = run(&gate, Path::new("/"), &["status", "-c", main.to_str().unwrap()]);
    let policy = said.out.lines().find(|line| line.starts_with("  policy ")).unwrap();
    assert_eq!(policy.matches("toolward.yaml").count(), 1, "{policy}");
    assert!(policy.ends_with("toolward.yaml (agents, allowlist)"), "{policy}");
}
