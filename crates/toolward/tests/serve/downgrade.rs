//! Reloads that would weaken protection: changing a file cannot remove agents, layers or authentication
//! from a running gateway.

use serde_json::{Value, json};

use super::harness::{Gate, eventually, setup};
use super::mount::Mount;
use super::reload::{beside, change, listed, only, replace, said, two};

/// Tries to apply a configuration that must be rejected with this message.
fn refused(gate: &Gate, words: &str, cut: impl FnOnce(&mut Value)) {
    let file = gate.file("toolward.yaml");
    let good = std::fs::read_to_string(&file).unwrap();
    gate.said.lock().unwrap().clear();
    change(gate, cut);
    said(gate, words);
    said(gate, "restart the gateway");
    let (code, told) = beside(gate, &["reload"]);
    assert!(code == 3 && told.contains(words), "{code} {told}");
    // A caller without a token is still unnamed.
    assert_eq!(gate.nobody().modern_reply(json!(1), "tools/list", json!({})).status, 401);
    assert_eq!(listed(&gate.agent("a")), ["s__read"], "{words}");
    replace(&file, &good);
}

#[test]
fn a_layer_the_tests_and_the_need_for_a_name_go_by_a_restart_only() {
    let setup = setup().agents(only(&["read"])).web("s", "modern", two());
    std::fs::write(setup.path("list.yaml"), "allowed_tools: [read]\n").unwrap();
    let gate = setup
        .set("policies", json!(["list.yaml"]))
        .set("tests", json!([{"as": "a", "allow": ["s/read"], "deny": ["s/write"]}]))
        .start();
    assert_eq!(listed(&gate.agent("a")), ["s__read"]);
    let remove = |key: &'static str| {
        move |config: &mut Value| {
            config.as_object_mut().unwrap().remove(key);
        }
    };
    // The file ends before `agents`: still a valid configuration, of a gateway that authenticates no
    // caller.
    refused(&gate, "the agents layer of", |config| {
        remove("agents")(config);
        remove("tests")(config);
    });
    refused(&gate, "the allowlist layer of", remove("policies"));
    refused(&gate, "had 2 tests, and would have none", remove("tests"));
    refused(&gate, "callers would no longer need a name", |config| {
        config["defaults"] = json!({"deny_on_missing_agent": false});
    });
}

/// Queries the gateway by its state directory: files may be invalid.
fn reload(gate: &Gate, flags: &[&str]) -> (i32, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"));
    command.args(["reload", "--state"]).arg(gate.file("state")).args(flags);
    let output = command.env_clear().output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), said)
}

/// A policy that is still valid when truncated at many positions.
const POLICY: &str = "\
agents:
  a:
    allow:
      servers: [s]
    deny:
      tools:
        s:
          - write
          - 'remove_*'
  b:
    allow:
      servers: [s]
      tools: {s: [read]}
";

#[test]
fn a_file_that_was_cut_takes_nothing_away() {
    let setup = setup().agents(json!({"a": {}})).web("s", "modern", two());
    std::fs::write(setup.path("policy.yaml"), POLICY).unwrap();
    let gate = setup.set("policies", json!(["policy.yaml"])).start();
    let (agent, file) = (gate.agent("a"), gate.file("policy.yaml"));
    assert_eq!(listed(&agent), ["s__read"]);
    let mut valid = Vec::new();
    for end in 0..POLICY.len() {
        // Some programs end every file with a newline, also a truncated one.
        for cut in [POLICY[..end].to_string(), format!("{}\n", &POLICY[..end])] {
            // Without its final newline, the file has the same data.
            if cut.trim_end() == POLICY.trim_end() {
                continue;
            }
            replace(&file, &cut);
            let (code, told) = reload(&gate, &[]);
            assert_eq!(code, 3, "cut at {end}: {told}");
            if told.contains("truncated: ") {
                assert!(told.contains("toolward reload --accept"), "{told}");
                valid.push(cut);
            }
        }
    }
    assert_eq!(listed(&agent), ["s__read"]);
    assert!(valid.len() > 20, "{}", valid.len());
    let cut = POLICY.split("    deny").next().unwrap();
    assert!(valid.iter().any(|valid| valid == cut));
    // The watcher rejects it too, and reports how to apply it.
    gate.said.lock().unwrap().clear();
    replace(&file, cut);
    said(&gate, "toolward reload --accept");
    assert_eq!(listed(&agent), ["s__read"]);
    let (code, told) = reload(&gate, &["--accept"]);
    assert_eq!(code, 0, "{told}");
    assert_eq!(listed(&agent), ["s__read", "s__write"]);
}

#[test]
fn an_accepted_file_still_has_to_pass_the_tests() {
    let setup = setup().agents(json!({"a": {}})).web("s", "modern", two());
    std::fs::write(setup.path("policy.yaml"), POLICY).unwrap();
    let tests = json!([{"as": "a", "allow": ["s/read"], "deny": ["s/write"]}]);
    let gate = setup.set("policies", json!(["policy.yaml"])).set("tests", tests).start();
    let file = gate.file("policy.yaml");
    replace(&file, POLICY.split("    deny").next().unwrap());
    let (code, told) = reload(&gate, &["--accept"]);
    assert!(code == 3 && told.contains("1 test of the policy failed"), "{code} {told}");
    assert_eq!(listed(&gate.agent("a")), ["s__read"]);
    // Without the last agent, the tests still pass: the text is of the same kind.
    replace(&file, POLICY.split("  b:").next().unwrap());
    let (code, told) = beside(&gate, &["reload"]);
    assert!(code == 3 && told.contains("toolward reload --accept"), "{code} {told}");
    let (code, told) = reload(&gate, &["--accept"]);
    assert_eq!(code, 0, "{told}");
}

#[test]
fn an_accepted_file_is_that_of_one_gateway() {
    let state = tempfile::tempdir().unwrap();
    let start = || {
        let setup = setup().agents(json!({"a": {}})).web("s", "modern", two());
        std::fs::write(setup.path("policy.yaml"), POLICY).unwrap();
        let setup = setup.set("policies", json!(["policy.yaml"]));
        setup.set("state", json!(state.path())).start()
    };
    let (one, other) = (start(), start());
    for gate in [&one, &other] {
        replace(&gate.file("policy.yaml"), POLICY.split("    deny").next().unwrap());
    }
    let (code, told) = beside(&one, &["reload", "--accept"]);
    assert_eq!(code, 0, "{told}");
    assert_eq!(listed(&one.agent("a")), ["s__read", "s__write"]);
    assert_eq!(listed(&other.agent("a")), ["s__read"]);
    // A configuration that no gateway has active belongs to none.
    std::fs::remove_file(other.file("toolward.yaml")).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"));
    command.args(["reload", "--accept", "-c"]).arg(other.file("gone.yaml"));
    let output = command.env("HOME", state.path()).output().unwrap();
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(listed(&other.agent("a")), ["s__read"]);
}

#[test]
fn a_truncated_policy_script_is_not_applied() {
    use std::os::unix::fs::PermissionsExt;
    let setup = setup().agents(only(&["read"])).web("s", "modern", two());
    let script =
        "mcp_tools_policy_check() {\n  return 0\n}\nmcp_tools_policy_check() {\n  return 1\n}\n";
    let file = setup.path("policy.sh");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let gate = setup.set("hooks", json!([{"name": "h", "policy_sh": "policy.sh"}])).start();
    std::fs::write(&file, &script[..script.len() / 2]).unwrap();
    let (code, told) = beside(&gate, &["reload"]);
    assert!(code == 3 && told.contains("toolward reload --accept"), "{code} {told}");
}

#[test]
fn layers_can_be_edited_and_added() {
    let gate = setup()
        .agents(only(&["read"]))
        .web("s", "modern", two())
        .set("tests", json!([{"as": "a", "allow": ["s/read"]}, {"as": "a", "deny": ["s/write"]}]))
        .start();
    let agent = gate.agent("a");
    assert_eq!(listed(&agent), ["s__read"]);
    change(&gate, |config| {
        config["agents"]["a"]["allow"]["tools"]["s"] = json!(["read", "write"]);
        config["agents"]["c"] = json!({"deny": {"servers": ["*"]}});
        config["tests"] = json!([{"as": "a", "allow": ["s/read"]}]);
    });
    eventually("it is active", || (listed(&agent).len() == 2).then_some(()));
    change(&gate, |config| {
        config["allowed_tools"] = json!(["read"]);
        config["agents"].as_object_mut().unwrap().remove("c");
    });
    eventually("it is active", || (listed(&agent) == ["s__read"]).then_some(()));
    // A restriction added by a reload is not removed by a reload.
    refused(&gate, "the allowlist layer of", |config| {
        config.as_object_mut().unwrap().remove("allowed_tools");
    });
}

#[test]
fn a_policy_without_its_agents_is_not_applied() {
    let setup = setup().web("s", "modern", two()).set("policies", json!(["agents.yaml"]));
    let agents = "agents: {a: {allow: {servers: [s]}}}\n";
    std::fs::write(setup.path("agents.yaml"), agents).unwrap();
    let gate = setup.start();
    replace(&gate.file("agents.yaml"), "agents: {}\n");
    said(&gate, "no agent would be left");
    let (_, told) = beside(&gate, &["status"]);
    assert!(told.contains("agents   a\n"), "{told}");
}

#[test]
fn a_reload_that_could_not_be_recorded_comes_by_itself_when_it_can() {
    let setup = setup().agents(only(&["read"])).web("s", "modern", two());
    let audit = setup.path("audit");
    let Some(disk) = Mount::create("size=8m", &audit) else { return };
    let gate = setup.start();
    let agent = gate.agent("a");
    assert_eq!(listed(&agent), ["s__read"]);
    disk.cover();
    change(&gate, |config| config["agents"]["a"]["allow"]["tools"]["s"] = json!(["write"]));
    said(&gate, "the previous one stays active");
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let told = gate.said.lock().unwrap().matches("the previous one stays active").count();
    assert_eq!(told, 1, "it is said once");
    disk.uncover();
    eventually("it is active", || (listed(&agent) == ["s__write"]).then_some(()));
}

#[test]
fn the_version_is_of_everything_that_decides_and_of_nothing_else() {
    let setup = setup().agents(only(&["read"])).web("s", "modern", two());
    let policy = setup.path("policy.sh");
    std::fs::write(&policy, "mcp_tools_policy_check() { return 0; }\n").unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&policy, PermissionsExt::from_mode(0o600)).unwrap();
    let gate = setup.set("limits", json!({"calls": "100/s"})).start();
    let version = || -> String {
        let (code, said) = beside(&gate, &["reload"]);
        assert_eq!(code, 0, "{said}");
        said.split_whitespace().nth(3).unwrap().into()
    };
    let mut seen = vec![version()];
    let mut differs = |what: &dyn Fn(&mut Value)| {
        change(&gate, what);
        let now = version();
        assert!(!seen.contains(&now), "{now} {seen:?}");
        seen.push(now);
    };
    differs(&|config| config["limits"] = json!({"calls": "101/s"}));
    differs(&|config| config["servers"]["s"]["limits"] = json!({"calls": "7/s"}));
    differs(&|config| config["agents"]["a"]["limits"] = json!({"calls": "7/s"}));
    differs(&|config| {
        config["hooks"] = json!([{"name": "h", "policy_sh": "policy.sh"}]);
    });
    differs(&|_| {
        std::fs::write(&policy, "mcp_tools_policy_check() { return 1; }\n").unwrap();
    });
    differs(&|config| config["hooks"][0]["critical"] = json!(false));
    differs(&|config| {
        config["builtin"] = json!(true);
        config["agents"]["a"]["discovery"] = json!("progressive");
        config["agents"]["a"]["allow"]["servers"] = json!(["s", "toolward"]);
    });
    // Moved lines do not make another policy.
    let before = version();
    let file = gate.file("toolward.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    replace(&file, &format!("# a comment\n\n{text}"));
    assert_eq!(version(), before);
}
