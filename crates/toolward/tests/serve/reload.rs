//! A configuration that changes while the gateway runs.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::harness::{
    Agent, Caller, Gate, MODERN, Session, eventually, modern_body, names, setup, text,
};

pub fn two() -> Value {
    names(&["read", "write"])
}

pub fn only(tools: &[&str]) -> Value {
    json!({"a": {"allow": {"servers": ["s"], "tools": {"s": tools}}}})
}

pub fn listed(agent: &Agent) -> Vec<String> {
    tools(&agent.modern("tools/list", json!({})))
}

fn seen(session: &Session) -> Vec<String> {
    tools(&session.ask("tools/list", json!({})))
}

fn tools(answer: &Value) -> Vec<String> {
    let tools = answer["result"]["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap().into()).collect()
}

/// Replaces a file by renaming another one over it, as editors do.
pub fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, path).unwrap();
}

pub fn change(gate: &Gate, change: impl FnOnce(&mut Value)) {
    let file = gate.file("toolward.yaml");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    change(&mut config);
    replace(&file, &config.to_string());
}

fn agents(gate: &Gate, agents: Value) {
    change(gate, |config| {
        for (name, rules) in agents.as_object().unwrap() {
            config["agents"][name]["allow"] = rules["allow"].clone();
        }
    });
}

pub fn said(gate: &Gate, words: &str) {
    eventually(words, || gate.said.lock().unwrap().contains(words).then_some(()));
}

#[test]
fn a_changed_policy_is_soon_active_and_clients_are_notified() {
    let gate = setup().agents(only(&["read"])).web("s", "both", two()).start();
    let agent = gate.agent("a");
    let session = agent.session();
    let mut feed = session.listen(None);
    assert_eq!(seen(&session), ["s__read"]);
    assert_eq!(listed(&agent), ["s__read"]);
    agents(&gate, only(&["read", "write"]));
    eventually("it is active", || (listed(&agent).len() == 2).then_some(()));
    assert_eq!(feed.event().unwrap().json()["method"], "notifications/tools/list_changed");
    assert_eq!(seen(&session), ["s__read", "s__write"]);
    // Overwritten in place, and by a signal.
    let file = gate.file("toolward.yaml");
    let text = std::fs::read_to_string(&file).unwrap().replace("\"write\"", "\"none\"");
    std::fs::write(&file, text).unwrap();
    eventually("it is active", || (listed(&agent) == ["s__read"]).then_some(()));
    gate.signal("-HUP");
    eventually("the signal is heard", || {
        let records = super::audit_log::all(&gate.file("audit"));
        let reloads: Vec<_> =
            records.into_iter().filter(|record| record["kind"] == "reload").collect();
        (reloads.len() == 3 && reloads[2]["by"] == "SIGHUP").then_some(())
    });
}

#[test]
fn an_invalid_configuration_is_rejected_as_a_whole_and_reported() {
    let gate = setup().agents(only(&["read"])).web("s", "modern", two()).start();
    let agent = gate.agent("a");
    let file = gate.file("toolward.yaml");
    let good = std::fs::read_to_string(&file).unwrap();
    let refused = |text: &str, words: &str| {
        gate.said.lock().unwrap().clear();
        replace(&file, text);
        said(&gate, words);
        assert_eq!(listed(&agent), ["s__read"], "{words}");
    };
    let with = |change: &dyn Fn(&mut Value)| {
        let mut config: Value = serde_json::from_str(&good).unwrap();
        change(&mut config);
        config.to_string()
    };
    refused(&good[..good.len() / 2], "the previous one stays active");
    refused("", "the previous one stays active");
    refused(&good.replace("\"agents\"", "\"agent\""), "did you mean `agents`?");
    refused(&with(&|config| config["listen"] = json!("127.0.0.1:1")), "`listen` cannot change");
    refused(&with(&|config| config["naming"] = json!("flat")), "`naming` cannot change");
    refused(
        &with(&|config| drop(config.as_object_mut().unwrap().remove("agents"))),
        "the previous one stays active",
    );
    refused(
        &with(&|config| config["tests"] = json!([{"as": "a", "allow": ["s/write"]}])),
        "1 test of the policy failed",
    );
    // Half of the change is valid: none of it is applied.
    refused(
        &with(&|config| {
            config["agents"]["a"]["allow"]["tools"]["s"] = json!(["read", "write"]);
            config["servers"]["t"] = json!({"command": "x", "url": "http://127.0.0.1:1"});
        }),
        "the previous one stays active",
    );
    gate.said.lock().unwrap().clear();
    std::fs::remove_file(&file).unwrap();
    said(&gate, "the previous one stays active");
    assert_eq!(listed(&agent), ["s__read"]);
    replace(
        &file,
        &with(&|config| {
            config["agents"]["a"]["allow"]["tools"]["s"] = json!(["write"]);
        }),
    );
    eventually("the valid configuration is applied", || {
        (listed(&agent) == ["s__write"]).then_some(())
    });
}

#[test]
fn a_revoked_agent_is_out_and_its_streams_end() {
    let everyone = json!({"a": {"allow": {"servers": ["*"]}}, "b": {"allow": {"servers": ["*"]}}});
    let gate = setup().agents(everyone).web("s", "both", two()).start();
    let (kept, gone) = (gate.agent("a"), gate.agent("b"));
    let (stays, ends) = (kept.session(), gone.session());
    let (mut stays, mut ends) = (stays.listen(None), ends.listen(None));
    change(&gate, |config| drop(config["agents"].as_object_mut().unwrap().remove("b")));
    eventually("the stream ends", || ends.is_closed().then_some(()));
    assert_eq!(gone.modern_reply(json!(1), "tools/list", json!({})).status, 401);
    assert_eq!(listed(&kept).len(), 2);
    assert!(stays.is_silent(Duration::from_millis(300)));
}

#[test]
fn a_token_revoked_while_the_body_arrives_makes_no_call() {
    let everyone = json!({"a": {"allow": {"servers": ["*"]}}, "b": {"allow": {"servers": ["*"]}}});
    let gate = setup().agents(everyone).web("s", "both", two()).start();
    let (kept, gone) = (gate.agent("a"), gate.agent("b"));
    let call = |agent: &Agent| {
        let params = json!({"name": "s__write", "arguments": {}});
        let body = modern_body(json!(1), "tools/call", params).to_string();
        let headers = [
            ("MCP-Protocol-Version", MODERN),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "s__write"),
        ];
        let request = agent.request("POST", &headers, &body);
        let (head, rest) = request.split_at(request.len() - body.len() / 2);
        let mut connection = gate.connect();
        connection.send(head.as_bytes());
        (connection, rest.to_string())
    };
    // Both have sent the head, were authenticated, and have yet to send the rest of the body.
    let (mut stays, stays_rest) = call(&kept);
    let (mut ends, ends_rest) = call(&gone);
    change(&gate, |config| drop(config["agents"].as_object_mut().unwrap().remove("b")));
    eventually("the token is revoked", || {
        let reply = gone.modern_reply(json!(2), "tools/list", json!({}));
        (reply.status == 401).then_some(())
    });
    ends.send(ends_rest.as_bytes());
    assert_eq!(ends.reply().status, 401);
    assert!(gate.calls("s").is_empty(), "nothing was forwarded");
    // A caller whose token is still valid continues under the new configuration.
    stays.send(stays_rest.as_bytes());
    assert_eq!(stays.reply().status, 200);
    assert_eq!(gate.calls("s").len(), 1);
}

#[test]
fn a_server_with_a_new_key_keeps_its_flat_names() {
    let setup = setup().agents(json!({"a": {"allow": {"servers": ["*"]}}}));
    let setup = setup.stdio("one", "legacy", two()).stdio("two", "legacy", names(&["send"]));
    let gate = setup.set("naming", json!("flat")).start();
    let agent = gate.agent("a");
    // The session holds a view of the first configuration, and with it the names.
    let session = agent.session();
    assert_eq!(seen(&session), ["read", "write", "send"]);
    change(&gate, |config| {
        let one = config["servers"].as_object_mut().unwrap().remove("one").unwrap();
        config["servers"]["renamed"] = one;
    });
    eventually("the renamed server is listed", || {
        let all = listed(&agent).len() == 3;
        (all && has_listed(&gate, "renamed")).then_some(())
    });
    let mut now = seen(&session);
    now.sort();
    assert_eq!(now, ["read", "send", "write"]);
    assert_eq!(text(&session.call("write", json!({}))), "did write");
}

/// Whether a listing that includes this server has been recorded.
fn has_listed(gate: &Gate, server: &str) -> bool {
    gate.records().iter().any(|record| record["servers"].get(server).is_some())
}

#[test]
fn servers_come_go_and_stay() {
    let setup = setup().agents(json!({"a": {"allow": {"servers": ["*"]}}}));
    let gate = setup.stdio("one", "legacy", two()).stdio("two", "legacy", two()).start();
    let agent = gate.agent("a");
    assert_eq!(listed(&agent).len(), 4);
    // A slow server may have been tried with both protocol versions: the process of the other one ends.
    let before = eventually("one process for each server", || {
        Some(gate.children()).filter(|children| children.len() == 2)
    });
    let file = std::fs::read_to_string(gate.file("toolward.yaml")).unwrap();
    change(&gate, |config| {
        let two = config["servers"].as_object_mut().unwrap().remove("two").unwrap();
        config["servers"]["three"] = two;
    });
    let three = ["one__read", "one__write", "three__read", "three__write"];
    eventually("the other server is listed", || (listed(&agent) == three).then_some(()));
    eventually("the server that is gone has ended", || {
        let now = gate.children();
        let kept = before.iter().filter(|pid| now.contains(pid)).count();
        (kept == 1 && now.len() == 2).then_some(())
    });
    // A call in flight ends under the configuration it started with.
    replace(&gate.file("toolward.yaml"), &file);
    eventually("the first ones are back", || {
        listed(&agent).contains(&"two__read".into()).then_some(())
    });
}

#[test]
fn secrets_in_files_are_read_again() {
    let setup = setup();
    std::fs::write(setup.path("token"), "the-first-token-of-a").unwrap();
    let agents = json!({"a": {"tokens": ["${file:token}"], "allow": {"servers": ["*"]}}});
    let gate = setup.agents(agents).web("s", "modern", two()).start();
    let with = |token: &str| {
        let mut agent = gate.agent("a");
        agent.token = Some(token.into());
        agent
    };
    assert_eq!(listed(&with("the-first-token-of-a")).len(), 2);
    replace(&gate.file("token"), "the-second-token-of-a");
    eventually("the new token is good", || {
        let reply = with("the-second-token-of-a").modern_reply(json!(1), "tools/list", json!({}));
        (reply.status == 200).then_some(())
    });
    let old = with("the-first-token-of-a").modern_reply(json!(1), "tools/list", json!({}));
    assert_eq!(old.status, 401);
}

#[test]
fn a_swapped_link_is_a_change() {
    let setup = setup();
    // A mounted configuration: links to a directory that is swapped as a whole.
    for (folder, tool) in [("..1", "read"), ("..2", "write")] {
        std::fs::create_dir_all(setup.path("mount").join(folder)).unwrap();
        let policy = setup.path("mount").join(folder).join("policy.yaml");
        std::fs::write(policy, format!("allowed_tools: [{tool}]\n")).unwrap();
    }
    let link = |to: &str, at: &str| {
        let beside = setup.path("mount").join("..tmp");
        std::os::unix::fs::symlink(to, &beside).unwrap();
        std::fs::rename(beside, setup.path("mount").join(at)).unwrap();
    };
    link("..1", "..data");
    link("..data/policy.yaml", "policy.yaml");
    let root = setup.path("mount");
    let gate = setup
        .agents(json!({"a": {"allow": {"servers": ["*"]}}}))
        .set("policies", json!(["mount/policy.yaml"]))
        .web("s", "modern", two())
        .start();
    let agent = gate.agent("a");
    assert!(gate.said.lock().unwrap().contains("Allowlist enabled, 1 tools/actions permitted"));
    assert_eq!(listed(&agent), ["s__read"]);
    std::os::unix::fs::symlink("..2", root.join("..tmp")).unwrap();
    std::fs::rename(root.join("..tmp"), root.join("..data")).unwrap();
    eventually("the other directory is read", || (listed(&agent) == ["s__write"]).then_some(()));
    said(&gate, "Allowlist reloaded, 1 tools/actions permitted");
}

/// Runs a command with the gateway's configuration.
pub fn beside(gate: &Gate, arguments: &[&str]) -> (i32, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"));
    command.args(arguments).arg("-c").arg(gate.file("toolward.yaml"));
    command.env_clear().env("HOME", "/proc/nonexistent");
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), said)
}

#[test]
fn the_active_configuration_can_be_queried_and_reloaded_by_hand() {
    let gate = setup().agents(only(&["read"])).web("s", "modern", two()).start();
    assert_eq!(listed(&gate.agent("a")), ["s__read"]);
    let status = || {
        let (code, said) = beside(&gate, &["status", "--json"]);
        assert_eq!(code, 0, "{said}");
        serde_json::from_str::<Value>(&said).unwrap()[0].clone()
    };
    let first = status();
    assert_eq!(first["agents"], json!(["a"]));
    assert_eq!(first["servers"][0]["name"], "s");
    assert_eq!(first["servers"][0]["state"], "up");
    assert_eq!(first["servers"][0]["revisions"], json!(["2026-07-28"]));
    assert_eq!(first["servers"][0]["tools"], 2);
    assert_eq!((&first["audit"], &first["allow_all"]), (&json!("ok"), &json!(false)));
    assert_eq!(first["reload"]["last"], Value::Null);
    let (code, said) = beside(&gate, &["reload"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(status()["reload"]["last"]["by"], "toolward reload");
    // The error is returned to the caller of `reload`, and remains visible.
    change(&gate, |config| config["naming"] = json!("flat"));
    let (code, said) = beside(&gate, &["reload"]);
    assert!(code == 3 && said.contains("`naming` cannot change"), "{code} {said}");
    let (code, said) = beside(&gate, &["status"]);
    assert!(code == 0 && said.contains("refused") && said.contains("`naming`"), "{said}");
    assert_eq!(status()["policy"]["version"], first["policy"]["version"]);
    // Only this user can connect.
    use std::os::unix::fs::PermissionsExt;
    let control = std::fs::metadata(gate.file("state/control")).unwrap();
    assert_eq!(control.permissions().mode() & 0o777, 0o700);
}

#[test]
fn without_a_gateway_commands_fail() {
    let mut gate = setup().agents(only(&["read"])).web("s", "modern", two()).start();
    gate.kill();
    for command in ["status", "reload"] {
        let (code, said) = beside(&gate, &[command]);
        assert!(code == 5 && said.contains("no gateway"), "{code} {said}");
    }
}

#[test]
fn where_that_is_wanted_an_invalid_policy_denies_everything_until_it_is_right() {
    let setup = setup().agents(only(&["read"])).web("s", "modern", two());
    std::fs::write(setup.path("policy.yaml"), "allowed_tool: [read]\n").unwrap();
    let setup = setup.set("policies", json!(["policy.yaml"]));
    let gate = setup.flag("--on-invalid-policy=deny-all").start();
    said(&gate, "EVERY CALL IS DENIED");
    let agent = gate.agent("a");
    assert_eq!(agent.modern_reply(json!(1), "tools/list", json!({})).status, 401);
    replace(&gate.file("policy.yaml"), "allowed_tools: [read]\n");
    eventually("the policy is active", || {
        let reply = agent.modern_reply(json!(1), "tools/list", json!({}));
        (reply.status == 200).then_some(())
    });
    assert_eq!(listed(&agent), ["s__read"]);
}

#[test]
fn no_damaged_file_takes_effect() {
    let gate = setup().agents(only(&["read"])).web("s", "modern", two()).start();
    let agent = gate.agent("a");
    assert_eq!(listed(&agent), ["s__read"]);
    let file = gate.file("toolward.yaml");
    let good = std::fs::read(&file).unwrap();
    // A damaged file that is still valid may be applied; it must then be what `check` reports.
    let (mut refused, mut taken) = (0, 0);
    let tries = match std::env::var_os("TOOLWARD_FULL") {
        Some(_) => 2000,
        None => 100,
    };
    for number in 0..tries {
        let mut bytes = good.clone();
        let at = number * 7919 % bytes.len();
        match number % 4 {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << (number % 8),
            2 => drop(bytes.drain(at..(at + 1 + number % 40).min(good.len()))),
            _ => {
                let again = bytes[at..(at + 20).min(good.len())].to_vec();
                bytes.splice(at..at, again);
            }
        }
        let beside_it = gate.file("damaged");
        std::fs::write(&beside_it, &bytes).unwrap();
        std::fs::rename(&beside_it, &file).unwrap();
        let state = gate.file("state");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"));
        command.args(["reload", "--state"]).arg(&state).env_clear();
        let output = command.output().unwrap();
        let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"));
        check.args(["check", "-c"]).arg(&file).env_clear();
        check.env("HOME", gate.file("")).env("TOKEN_OF_a", "token-of-agent-a");
        let valid = check.output().unwrap().status.code() != Some(3);
        match output.status.code() {
            Some(0) => {
                assert!(valid, "{number}: {}", String::from_utf8_lossy(&bytes));
                taken += 1;
            }
            Some(3) => refused += 1,
            other => panic!("{number}: {other:?}"),
        }
    }
    assert!(refused > tries / 2, "{refused} refused, {taken} taken");
    std::fs::write(&file, &good).unwrap();
    eventually("the good one is back", || (listed(&agent) == ["s__read"]).then_some(()));
}
