//! `discovery: progressive`: an agent lists only the built-in tools, and calls all others through them.

use serde_json::{Value, json};

use super::harness::*;
use super::support::*;

fn agents() -> Value {
    json!({
        "a": {"discovery": "progressive", "allow": {"servers": ["*"]}, "deny": {"tools": {"files": ["remove_file"]}}},
        "b": {"allow": {"servers": ["*"]}},
    })
}

#[test]
fn only_the_built_in_tools_are_listed_and_reach_everything() {
    let gate = world().agents(agents()).start();
    let listed: Vec<String> = OWN.iter().map(|name| format!("toolward__{name}")).collect();
    let a = gate.agent("a");
    assert_eq!(a.list(), listed);
    assert_eq!(a.session().list(), listed);
    assert!(gate.log("files").is_empty(), "listing starts no server");
    assert_eq!(gate.agent("b").list().len(), 7 + 5);

    let hits = said(&own(&a, "search_tools", json!({"query": "write a file"})));
    assert_eq!(found(&hits)[0], "files/write_file");
    let name = json!({"server": "files", "names": ["write_file"]});
    let definition = said(&own(&a, "get_server_tools", name));
    assert_eq!(definition["tools"][0]["inputSchema"]["type"], "object");
    assert_eq!(text(&execute(&a, "files", "write_file", json!({"path": "x"}))), "did write_file");
    assert_eq!(gate.calls("files").len(), 1);
    assert_eq!(said(&own(&a, "server_config", json!({})))["discovery"], "progressive");
}

#[test]
fn unlisted_tools_cannot_be_called_directly_and_are_unknown() {
    let gate = world().agents(agents()).start();
    let a = gate.agent("a");
    let session = a.session();
    let direct = |name: &str| {
        [&a as &dyn Caller, &session].map(|caller| {
            let mut data = gate.refusal(&caller.call(name, json!({"path": "x"})));
            data["decision_id"] = json!(null);
            let message = data["message"].as_str().unwrap();
            let (what, list) = message.split_once(". Allowed: ").unwrap();
            // The most similar name comes first.
            let mut names: Vec<&str> = list.split(", ").collect();
            names.sort_unstable();
            data["message"] = json!(format!("{what}. Allowed: {}", names.join(", ")));
            data.to_string().replace(name, "NAME")
        })
    };
    let unknown = direct("files__nothing");
    for name in [
        "files__read_file",
        "files__remove_file",
        "tracker__get_issue",
        "read_file",
        "files/read_file",
    ] {
        assert_eq!(direct(name), unknown, "{name}");
    }
    assert!(unknown[0].contains("toolward/*"), "{}", unknown[0]);
    assert!(gate.calls("files").is_empty() && gate.calls("tracker").is_empty());
    // Nor by the servers' own addresses, which do not exist for the agent.
    for (path, status) in [("/mcp/files", 404), ("/mcp/nothing", 404), ("/mcp/toolward", 200)] {
        let reply = a.at(path).modern_reply(json!(1), "tools/list", json!({}));
        assert_eq!(reply.status, status, "{path}");
        let reply = a.at(path).post(&[], &initialize(LEGACY));
        assert_eq!(reply.status, status, "{path}");
    }
    assert_eq!(gate.agent("b").at("/mcp/files").list().len(), 4);
}

#[test]
fn hidden_tools_are_hidden_in_every_discovery_step() {
    let gate = world().agents(agents()).start();
    let a = gate.agent("a");
    let all = found(&said(&own(&a, "get_server_tools", json!({"server": "files"}))));
    assert_eq!(all, ["read_file", "write_file", "list_folder"]);
    for query in ["remove file", "remove_file", "delete"] {
        let hits = found(&said(&own(&a, "search_tools", json!({ "query": query }))));
        assert!(!hits.contains(&"files/remove_file".into()), "{query}: {hits:?}");
    }
    let refused = gate.refusal(&execute(&a, "files", "remove_file", json!({})));
    assert_eq!(refused["tool"], "files/remove_file");
    assert!(gate.calls("files").is_empty());
}

/// The output of a command about an agent of this configuration, with the gateway's tool lists.
fn asked(gate: &Gate, arguments: &[&str]) -> (i32, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"));
    command.args(arguments).arg("-c").arg(gate.file("toolward.yaml")).env_clear();
    command.env("HOME", gate.file("")).env("PATH", std::env::var_os("PATH").unwrap());
    command.envs(gate.setup.environment.iter().map(|(name, value)| (name, value)));
    let output = command.output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn commands_show_what_the_agent_lists_and_how_it_calls_the_rest() {
    let gate = world().agents(agents()).start();
    gate.agent("b").list();
    let (code, said) = asked(&gate, &["ls", "--as", "a", "--json"]);
    assert_eq!(code, 0);
    let rows: Vec<Value> = serde_json::from_str(&said).unwrap();
    let listed = |row: &&Value| row["listed"] == true;
    assert_eq!(rows.iter().filter(listed).count(), 5);
    assert!(rows.iter().filter(listed).all(|row| row["server"] == "toolward"));
    let others: Vec<&Value> = rows.iter().filter(|row| !listed(row)).collect();
    assert_eq!(others.len(), 6);
    assert!(others.iter().all(|row| row["route"] == "execute_tool"), "{others:?}");
    let (_, said) = asked(&gate, &["ls", "--as", "a"]);
    assert!(said.contains("`a` sees 5 of 12 tools"), "{said}");
    assert!(said.contains("a direct call is refused"), "{said}");
    let (_, said) = asked(&gate, &["ls", "--as", "b"]);
    assert!(said.contains("`b` sees 12 of 12 tools") && !said.contains("direct"), "{said}");

    let (code, said) = asked(&gate, &["can-i", "--as", "a", "files/read_file"]);
    assert!(code == 0 && said.contains("through `toolward/execute_tool`"), "{said}");
    let (code, said) = asked(&gate, &["can-i", "--as", "a", "--list", "files/read_file"]);
    assert!(code == 1 && said.contains("progressive discovery"), "{said}");
    let (code, said) = asked(&gate, &["can-i", "--as", "a", "files/remove_file"]);
    assert!(code == 1 && !said.contains("execute_tool"), "{said}");
    let (code, said) = asked(&gate, &["can-i", "--as", "a", "toolward/search_tools"]);
    assert!(code == 0 && !said.contains("progressive"), "{said}");

    let (code, said) = asked(&gate, &["explain", "--as", "a", "files/read_file"]);
    assert!(code == 0 && said.contains("through `toolward/execute_tool`"), "{said}");
    assert!(said.contains("a direct call is answered with the error"), "{said}");
    // Only the call through `execute_tool` is.
    let forwarded: Vec<&str> = said.lines().filter(|line| line.contains("is forwarded")).collect();
    assert_eq!(forwarded, ["through `toolward/execute_tool`, the call is forwarded"]);
    let (_, said) = asked(&gate, &["explain", "--as", "a", "files/read_file", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["listed"], &said["route"]), (&json!(false), &json!("execute_tool")));
}

#[test]
fn the_audit_log_has_the_reason_of_a_refused_direct_call() {
    let mut agents = agents();
    agents["c"] = agents["a"].clone();
    agents["c"]["deny"]["tools"]["toolward"] = json!(["execute_tool"]);
    let gate = world().agents(agents).start();
    gate.agent("b").list();
    let refused = |agent: &str, tool: &str| {
        let answer = gate.agent(agent).call(&format!("files__{tool}"), json!({}));
        let id = gate.refusal(&answer)["decision_id"].as_str().unwrap().to_string();
        let record = gate.records().into_iter().find(|record| record["id"] == id).unwrap();
        assert_eq!((&record["server"], &record["tool"]), (&json!("files"), &json!(tool)));
        let reason = record["reason"].as_str().unwrap().to_string();
        let (_, said) = asked(&gate, &["explain", &id]);
        assert!(said.contains(&reason), "{said}");
        (record["step"].as_str().unwrap().to_string(), reason)
    };
    let can_i = |agent: &str, tool: &str| {
        asked(&gate, &["can-i", "--as", agent, "--list", &format!("files/{tool}")]).1
    };
    // The same step and reason as `can-i --list`, which is the same query.
    let (step, reason) = refused("a", "read_file");
    assert_eq!(step, "not-exposed");
    assert!(reason.contains("a direct call is refused"), "{reason}");
    assert!(can_i("a", "read_file").contains(&reason), "{reason}");
    let (step, reason) = refused("c", "read_file");
    assert_eq!(step, "1-exact-deny");
    assert!(can_i("c", "read_file").contains(&reason), "{reason}");
    // A denied tool is denied by its rule, and a nonexistent one does not exist.
    let (step, reason) = refused("a", "remove_file");
    assert_eq!(step, "1-exact-deny");
    assert!(!reason.contains("progressive"), "{reason}");
    assert_eq!(refused("a", "nothing").0, "no-such-tool");
}

#[test]
fn without_execute_tool_a_progressive_agent_calls_nothing_else() {
    let mut agents = agents();
    agents["a"]["deny"]["tools"]["toolward"] = json!(["execute_tool"]);
    let gate = world().agents(agents).start();
    gate.agent("b").list();
    let (_, said) = asked(&gate, &["ls", "--as", "a"]);
    assert!(said.contains("`a` sees 4 of 12 tools") && said.contains("calls 0 through"), "{said}");
    for word in ["can-i", "explain"] {
        let (code, said) = asked(&gate, &[word, "--as", "a", "files/read_file"]);
        assert!(code == 1 && said.contains("`toolward/execute_tool` is denied"), "{said}");
    }
}

#[test]
fn the_own_tools_are_not_called_through_each_other() {
    let gate = world().agents(agents()).start();
    let a = gate.agent("a");
    for tool in OWN {
        let inner = json!({"server": "files", "tool": "read_file", "args": {}});
        let refused = gate.refusal(&execute(&a, "toolward", tool, inner));
        assert_eq!(refused["tool"], format!("toolward/{tool}"));
    }
    assert!(gate.calls("files").is_empty());
}

#[test]
fn over_stdio_it_is_the_same() {
    let mut lines = world().agents(agents()).standard(&["--agent", "a"]).ready();
    let list = lines.ask(&request(json!(1), "tools/list", json!({})));
    assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 5, "{list}");
    let direct = json!({"name": "files__read_file", "arguments": {}});
    let refused = lines.ask(&request(json!(2), "tools/call", direct));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let through = json!({"server": "files", "tool": "read_file", "args": {}});
    let call = json!({"name": "toolward__execute_tool", "arguments": through});
    let answer = lines.ask(&request(json!(3), "tools/call", call));
    assert_eq!(text(&answer), "did read_file", "{answer}");
}

#[test]
fn callers_without_rules_use_the_discovery_mode_of_default() {
    let gate = world()
        .set("defaults", json!({"deny_on_missing_agent": false}))
        .agents(json!({
            "default": {"discovery": "progressive", "allow": {"servers": ["*"]}},
            "a": {"allow": {"servers": ["*"]}},
        }))
        .start();
    assert_eq!(gate.nobody().list().len(), 5);
    assert_eq!(gate.agent("a").list().len(), 12);
}

#[test]
fn a_reload_changes_how_an_agent_finds_tools() {
    let gate = world().agents(everyone()).start();
    let session = gate.agent("a").session();
    assert_eq!(session.list().len(), 12);
    let mut feed = session.listen(None);
    let file = gate.file("toolward.yaml");
    let written = std::fs::read_to_string(&file).unwrap();
    let mut config: Value = serde_json::from_str(&written).unwrap();
    config["agents"]["a"]["discovery"] = json!("progressive");
    std::fs::write(&file, config.to_string()).unwrap();
    assert_eq!(feed.event().unwrap().json()["method"], "notifications/tools/list_changed");
    assert_eq!(session.list().len(), 5);
    gate.refusal(&session.call("files__read_file", json!({})));
    assert_eq!(text(&execute(&session, "files", "read_file", json!({}))), "did read_file");
}
