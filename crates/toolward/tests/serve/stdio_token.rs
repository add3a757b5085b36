//! `toolward stdio` and its token.

use serde_json::{Value, json};

use super::harness::{Lines, Setup, eventually, everyone, names, request, setup};
use super::reload::replace;

fn with_token(token: &str) -> Setup {
    let setup = setup().agents(everyone()).env("TOOLWARD_TOKEN", token);
    setup.stdio("s", "legacy", names(&["quick", "wait"]))
}

fn change(lines: &Lines, change: impl FnOnce(&mut Value)) {
    let file = lines.setup.path("toolward.yaml");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    change(&mut config);
    replace(&file, &config.to_string());
}

/// The client gets nothing more, and the program exits.
fn ends(mut lines: Lines) {
    let child = &mut lines.child;
    eventually("the program ends", || child.try_wait().unwrap());
    let heard = lines.log("s").matches("after the end").count();
    lines.send(&request(json!(9), "tools/call", json!({"name": "s__after the end"})).to_string());
    assert_eq!(lines.log("s").matches("after the end").count(), heard);
}

#[test]
fn a_revoked_token_ends_the_connection() {
    let mut lines = with_token("token-of-agent-a").standard(&[]).ready();
    let call = request(json!(2), "tools/call", json!({"name": "s__quick", "arguments": {}}));
    assert!(lines.ask(&call)["result"].is_object());
    change(&lines, |config| {
        let hash = "sha256:620443eb8a61870674ec7ba4a508fec88f71dcd0fa42d862020a640d1e0bdf79";
        config["agents"]["a"]["tokens"] = json!([hash]);
    });
    ends(lines);
}

#[test]
fn calls_in_flight_when_the_token_is_revoked_get_an_error() {
    let setup = setup().agents(everyone()).env("TOOLWARD_TOKEN", "token-of-agent-a");
    let mut lines = setup.stdio("s", "legacy", names(&["slow"])).standard(&[]).ready();
    let slow = json!({"name": "s__slow", "arguments": {"seconds": 20}});
    let list = request(json!(2), "tools/list", json!({}));
    assert!(lines.ask(&list)["result"].is_object());
    lines.send(&request(json!("waits"), "tools/call", slow).to_string());
    eventually("it is in flight", || lines.log("s").contains("tools/call").then_some(()));
    change(&lines, |config| drop(config["agents"].as_object_mut().unwrap().remove("a")));
    let mut answer = lines.next();
    while answer["id"] != "waits" {
        answer = lines.next();
    }
    assert_eq!(answer["error"]["data"]["error"], "turned_away", "{answer}");
    ends(lines);
}

#[test]
fn a_gateway_that_denied_everything_ends_when_it_knows_the_token() {
    let setup = with_token("token-of-agent-a").set("agent", json!({}));
    let mut lines = setup.standard(&["--on-invalid-policy=deny-all"]).ready();
    let list = request(json!(2), "tools/list", json!({}));
    assert_eq!(lines.ask(&list)["result"]["tools"], json!([]));
    change(&lines, |config| drop(config.as_object_mut().unwrap().remove("agent")));
    ends(lines);
}

#[test]
fn a_token_that_is_given_to_another_ends_the_connection() {
    let lines = with_token("token-of-agent-a").standard(&[]).ready();
    change(&lines, |config| {
        config["agents"]["a"]["tokens"] = json!(["${TOKEN_OF_b}"]);
        config["agents"]["b"]["tokens"] = json!(["${TOKEN_OF_a}"]);
    });
    ends(lines);
}

#[test]
fn other_changes_leave_the_connection() {
    let mut lines = with_token("token-of-agent-a").standard(&["--agent", "a"]).ready();
    change(&lines, |config| {
        config["agents"]["a"]["deny"] = json!({"tools": {"s": ["wait"]}});
        config["agents"].as_object_mut().unwrap().remove("b");
    });
    let list = request(json!(3), "tools/list", json!({}));
    eventually("the other rules hold", || {
        let tools = lines.ask(&list)["result"]["tools"].as_array().unwrap().len();
        (tools == 1).then_some(())
    });
    assert_eq!(lines.close().0, 0);
}

#[test]
fn a_wrong_token_is_recorded() {
    let wrong = [
        ("no-such-token", &[][..], "TOOLWARD_TOKEN is not the token of any agent"),
        ("", &[][..], "TOOLWARD_TOKEN is not the token of any agent"),
        ("", &["--agent", "a"][..], "TOOLWARD_TOKEN is not the token of any agent"),
        (
            "token-of-agent-a",
            &["--agent", "b"][..],
            "TOOLWARD_TOKEN is the token of another agent than --agent",
        ),
    ];
    for (token, flags, why) in wrong {
        let mut lines = with_token(token).standard(flags);
        let (code, _) = lines.close();
        assert_eq!(code, 3);
        let records = super::audit_log::all(&lines.setup.path("audit"));
        let told = records.iter().find(|record| record["kind"] == "turned-away").unwrap();
        assert_eq!((&told["source"], &told["reason"]), (&json!("stdio"), &json!(why)));
    }
}

fn for_agent(agents: Value, defaults: Value, agent: &str, flags: &[&str]) -> Lines {
    let setup = setup().agents(agents).set("defaults", defaults);
    let setup = setup.stdio("s", "legacy", names(&["t"]));
    setup.standard(&[&["--agent", agent], flags].concat())
}

fn log_of(lines: &Lines) -> String {
    std::fs::read_to_string(lines.setup.path("stderr")).unwrap()
}

#[test]
fn an_agent_that_no_rule_names_is_a_start_error() {
    let agents = || json!({"reviewer": {"allow": {"servers": ["*"]}}, "default": {"allow": {"servers": ["*"]}}});
    // `default` is for unknown agents only with `deny_on_missing_agent: false`.
    let mut lines = for_agent(agents(), json!({}), "reviwer", &[]);
    let hello = lines.ask(&super::harness::initialize("2025-06-18"));
    let message = hello["error"]["message"].as_str().unwrap();
    let words = "no agent is named `reviwer`, and the policy denies everything to unknown agents";
    assert!(message.contains(words) && message.contains("did you mean `reviewer`?"), "{hello}");
    assert_eq!(lines.close().0, 3);
    assert!(log_of(&lines).contains("did you mean `reviewer`?"), "{}", log_of(&lines));
    // If no name is similar, the error lists the existing names.
    let mut lines = for_agent(agents(), json!({}), "zzzzzzzz", &[]);
    assert_eq!(lines.close().0, 3);
    assert!(log_of(&lines).contains("there are default, reviewer"), "{}", log_of(&lines));
}

#[test]
fn an_unknown_agent_with_the_rules_of_default_starts_with_a_warning() {
    let agents = json!({"reviewer": {"allow": {"servers": ["*"]}}, "default": {"allow": {"servers": ["*"]}}});
    let open = json!({"deny_on_missing_agent": false});
    let mut lines = for_agent(agents.clone(), open.clone(), "reviwer", &[]).ready();
    let list = request(json!(2), "tools/list", json!({}));
    assert_eq!(lines.ask(&list)["result"]["tools"].as_array().unwrap().len(), 1);
    lines.close();
    let words =
        "no agent is named `reviwer`: the rules of `default` apply (did you mean `reviewer`?)";
    assert!(log_of(&lines).contains(words), "{}", log_of(&lines));
    let mut lines = for_agent(agents.clone(), json!({}), "reviwer", &["--allow-all"]).ready();
    lines.close();
    assert!(log_of(&lines).contains("did you mean `reviewer`?"), "{}", log_of(&lines));
    let mut lines = for_agent(agents, open, "reviewer", &[]).ready();
    lines.close();
    assert!(!log_of(&lines).contains("no agent is named"), "{}", log_of(&lines));
}
