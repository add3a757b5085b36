//! `toolward stdio --server`: one server of the configuration, under its own tool names.

use serde_json::{Value, json};

use super::harness::*;
use super::reload::replace;

fn two() -> Setup {
    let setup = setup().agents(everyone()).stdio("one", "legacy", names(&["read", "write"]));
    setup.stdio("two", "legacy", names(&["other"]))
}

fn list(lines: &mut Lines) -> Vec<String> {
    let answer = lines.ask(&request(json!("list"), "tools/list", json!({})));
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().into()).collect()
}

#[test]
fn the_server_keeps_its_tool_names_and_no_other_is_started() {
    let mut lines = two().standard(&["--agent", "a", "--server", "one"]).ready();
    assert_eq!(list(&mut lines), ["read", "write"]);
    let call = request(json!(2), "tools/call", json!({"name": "read", "arguments": {}}));
    assert_eq!(text(&lines.ask(&call)), "did read");
    for name in ["one__read", "other", "two__other"] {
        let call = request(json!(name), "tools/call", json!({"name": name, "arguments": {}}));
        assert_eq!(lines.ask(&call)["error"]["code"], -32602, "{name}");
    }
    assert_eq!(lines.close().0, 0);
    assert_eq!(lines.log("two"), "");
}

#[test]
fn rules_of_the_server_apply() {
    let agents = json!({"a": {"allow": {"servers": ["one"], "tools": {"one": ["read"]}}}});
    let setup = setup().agents(agents).stdio("one", "legacy", names(&["read", "write"]));
    let mut lines = setup.standard(&["--agent", "a", "--server", "one"]).ready();
    assert_eq!(list(&mut lines), ["read"]);
    lines.close();
}

#[test]
fn secrets_of_other_servers_are_not_needed() {
    let with = |setup: Setup| {
        let setup = setup.with("one", "env", json!({"ONE": "${SECRET_OF_ONE}"}));
        setup
            .with("two", "env", json!({"TWO": "${SECRET_OF_TWO}"}))
            .env("SECRET_OF_ONE", "s3cr3t-one")
    };
    let mut lines = with(two()).standard(&["--agent", "a", "--server", "one"]).ready();
    assert_eq!(list(&mut lines), ["read", "write"]);
    assert_eq!(lines.close().0, 0);
    let mut lines = with(two()).standard(&["--agent", "a"]);
    assert_eq!(lines.close().0, 3);
    let mut lines = with(two()).standard(&["--agent", "a", "--server", "two"]);
    assert_eq!(lines.close().0, 3);
}

#[test]
fn an_unknown_server_is_a_start_error_with_the_nearest_name() {
    let mut lines = two().standard(&["--agent", "a", "--server", "onee"]);
    let hello = lines.ask(&initialize(LEGACY));
    let message = hello["error"]["message"].as_str().unwrap();
    let words = "no server is called `onee`\n  help: did you mean `one`?";
    assert!(message.contains(words), "{message}");
    assert_eq!(lines.close().0, 3);
}

#[test]
fn a_reload_applies_and_does_not_need_the_other_servers() {
    let mut lines = two().standard(&["--agent", "a", "--server", "one"]).ready();
    assert_eq!(list(&mut lines), ["read", "write"]);
    let file = lines.setup.path("toolward.yaml");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    config["agents"]["a"]["deny"] = json!({"tools": {"one": ["write"]}});
    config["servers"]["two"]["env"] = json!({"X": "${NOT_SET_ANYWHERE}"});
    replace(&file, &config.to_string());
    eventually("the rule applies", || (list(&mut lines) == ["read"]).then_some(()));
    // Without its server, the configuration is rejected, and the old one stays active.
    config["servers"].as_object_mut().unwrap().remove("one");
    replace(&file, &config.to_string());
    let log = || std::fs::read_to_string(lines.setup.path("stderr")).unwrap();
    eventually("the reload is rejected", || {
        log().contains("no server is called `one`").then_some(())
    });
    assert_eq!(list(&mut lines), ["read"]);
    lines.close();
}

#[test]
fn a_gateway_that_denied_everything_serves_the_server_after_a_repair() {
    let setup = two().set("agent", json!({}));
    let flags = ["--agent", "a", "--server", "one", "--on-invalid-policy=deny-all"];
    let mut lines = setup.standard(&flags).ready();
    assert_eq!(list(&mut lines), [""; 0]);
    let file = lines.setup.path("toolward.yaml");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    config.as_object_mut().unwrap().remove("agent");
    replace(&file, &config.to_string());
    eventually("the tools are listed", || (list(&mut lines) == ["read", "write"]).then_some(()));
    lines.close();
}
