//! Audit records of rejected reloads, trace ids and unnamed callers.

use serde_json::{Value, json};

use super::audit_log;
use super::harness::*;

fn of_kind(gate: &Gate, kind: &str) -> Vec<Value> {
    let records = audit_log::all(&gate.file("audit")).into_iter();
    records.filter(|record| record["kind"] == kind).collect()
}

#[test]
fn a_reload_that_was_refused_is_recorded_without_secrets() {
    let gate = setup().agents(everyone()).web("s", "modern", names(&["a"])).start();
    let file = gate.file("toolward.yaml");
    let good = std::fs::read_to_string(&file).unwrap();
    let mut config: Value = serde_json::from_str(&good).unwrap();
    config["agents"]["a"]["tokens"] = json!(["hunter2-plain"]);
    std::fs::write(&file, config.to_string()).unwrap();
    let refused = eventually("it is recorded", || of_kind(&gate, "reload").pop());
    let start = of_kind(&gate, "start").pop().unwrap();
    assert_eq!((&refused["policy"], &refused["by"]), (&start["policy"], &json!("files")));
    let why = refused["error"].as_str().unwrap();
    assert!(why.contains("a token must not be in the file") && !why.contains("hunter2"), "{why}");
    assert!(!gate.said.lock().unwrap().contains("hunter2"));
    std::fs::write(&file, good).unwrap();
    eventually("the valid configuration is applied", || {
        of_kind(&gate, "reload").into_iter().find(|record| record["error"].is_null())
    });
}

#[test]
fn a_trace_is_that_of_the_message_or_else_of_the_header() {
    let gate = setup().agents(everyone()).web("s", "modern", names(&["a"])).start();
    let (one, other) = ("0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736");
    let parent = |trace: &str| format!("00-{trace}-b7ad6b7169203331-01");
    let agent = gate.agent("a");
    let call = |header: &str, meta: Option<String>, name: &str| {
        let mut body = modern_body(json!(1), "tools/call", json!({"name": name, "arguments": {}}));
        if let Some(meta) = meta {
            body["params"]["_meta"]["traceparent"] = json!(meta);
        }
        let headers = [
            ("MCP-Protocol-Version", MODERN),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", name),
            ("traceparent", header),
        ];
        assert_eq!(agent.post(&headers, &body).status, 200);
    };
    let traces = |kind: &str| {
        let of = |record: &Value| record["trace_id"].as_str().map(String::from);
        of_kind(&gate, kind).iter().map(of).collect::<Vec<_>>()
    };
    call(&parent(one), None, "s__a");
    call(&parent(one), Some(parent(other)), "s__a");
    call("nonsense", None, "s__a");
    call(&parent(one), Some("nonsense".into()), "s__a");
    assert_eq!(traces("intent"), [Some(one.into()), Some(other.into()), None, None]);
    call(&parent(one), None, "s__nothing");
    assert_eq!(traces("refusal"), [Some(one.to_string())]);
    // Sessions behave the same.
    let session = agent.session();
    let headers = [
        ("Mcp-Session-Id", session.id.as_str()),
        ("MCP-Protocol-Version", LEGACY),
        ("traceparent", &parent(other)),
    ];
    assert_eq!(agent.post(&headers, &request(json!(1), "tools/list", json!({}))).status, 200);
    assert_eq!(traces("list"), [Some(other.to_string())]);
}

#[test]
fn stdio_does_not_start_without_a_name_where_unnamed_callers_are_denied() {
    let agents = json!({"a": {"allow": {"servers": ["*"]}}, "b": {"allow": {"servers": ["*"]}}});
    let gate = || setup().agents(agents.clone()).stdio("s", "legacy", names(&["t"]));
    let mut lines = gate().standard(&[]);
    let answer = lines.ask(&initialize(LEGACY));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("--agent NAME") && message.contains("a, b"), "{message}");
    assert_eq!(lines.close().0, 3);
    let mut lines = gate().standard(&["--agent", "b"]).ready();
    let list = lines.ask(&request(json!(3), "tools/list", json!({})));
    assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 1);
}

#[test]
fn nobody_is_named_by_no_flag() {
    let agents = json!({"default": {"allow": {"servers": ["*"]}}});
    let mut lines = setup()
        .agents(agents)
        .set("defaults", json!({"deny_on_missing_agent": false}))
        .stdio("s", "legacy", names(&["t"]))
        .standard(&[])
        .ready();
    lines.ask(&request(json!(3), "tools/list", json!({})));
    let records = audit_log::all(&lines.setup.path("audit"));
    let list = records.iter().find(|record| record["kind"] == "list").unwrap();
    assert_eq!((&list["identity"], &list["agent"]), (&json!("none"), &Value::Null), "{list}");
}

#[test]
fn the_audit_log_has_the_reason_of_a_hidden_tool_and_the_client_does_not_get_it() {
    let agents = json!({
        "a": {"allow": {"servers": ["*"]}, "deny": {"tools": {"s": ["del"]}}},
        "b": {"allow": {"servers": ["other"]}},
    });
    let gate = setup()
        .agents(agents)
        .web("s", "modern", names(&["read", "del"]))
        .web("other", "modern", names(&["read"]))
        .start();
    let a = gate.agent("a");
    let told = |agent: &Agent, name: &str| told_at(&gate, agent, name);
    let (hidden, id, record) = told(&a, "s__del");
    assert_eq!((&record["server"], &record["tool"]), (&json!("s"), &json!("del")), "{record}");
    assert_eq!((&record["step"], &record["layer"]), (&json!("1-exact-deny"), &json!(0)));
    assert_eq!(record["rule"], "agents.a.deny.tools.s[0]");
    assert!(record["rule_at"].as_str().unwrap().contains("toolward.yaml:"), "{record}");
    assert_eq!((&record["listed"], &record["verdict"]), (&json!(false), &json!("deny")));
    let (nothing, _, record) = told(&a, "s__nope");
    assert_eq!((&record["server"], &record["tool"]), (&json!("s"), &json!("nope")), "{record}");
    assert_eq!((&record["step"], &record["rule"]), (&json!("no-such-tool"), &Value::Null));
    assert_eq!(hidden, nothing);
    let (nowhere, _, record) = told(&a, "x__read");
    assert_eq!((&record["server"], &record["step"]), (&Value::Null, &json!("no-such-tool")));
    assert_eq!(record["reason"], "no server has a tool of this name");
    assert_eq!(hidden, nowhere);
    // A server that the agent may not use.
    let b = gate.agent("b");
    let (hidden, _, record) = told(&b, "s__read");
    assert_eq!((&record["server"], &record["tool"]), (&json!("s"), &json!("read")), "{record}");
    assert_eq!(record["step"], "server-not-allowed");
    assert_eq!(hidden, told(&b, "s__nope").0);
    // The same at a server's own address.
    let (hidden, _, record) = told_at(&gate, &a.at("/mcp/s"), "del");
    assert_eq!((&record["server"], &record["tool"]), (&json!("s"), &json!("del")), "{record}");
    assert_eq!(record["step"], "1-exact-deny");
    assert_eq!(hidden, told_at(&gate, &a.at("/mcp/s"), "nope").0);
    // Such a record can be queried like any other, and is explained by the rule as it was then.
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"));
        command.args(words).arg("--dir").arg(gate.file("audit")).env("HOME", "/proc/nonexistent");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let rows = run(&["audit", "query", "--tool", "del", "--server", "s", "--json"]);
    assert_eq!(rows.lines().count(), 2, "{rows}");
    let file = gate.file("toolward.yaml");
    let config = std::fs::read_to_string(&file).unwrap().replace("\"del\"", "\"d?l\"");
    std::fs::write(&file, config).unwrap();
    eventually("it is applied", || of_kind(&gate, "reload").pop());
    let said = run(&["explain", &id]);
    assert!(said.contains("agents.a.deny.tools.s[0]") && said.contains("del"), "{said}");
    assert!(!said.contains("d?l"), "{said}");
}

fn told_at(gate: &Gate, agent: &Agent, name: &str) -> (String, String, Value) {
    let answer = agent.modern("tools/call", json!({"name": name, "arguments": {}}));
    let id = gate.refusal(&answer)["decision_id"].as_str().unwrap().to_string();
    let plain = answer.to_string().replace(name, "NAME").replace(&id, "ID");
    (plain, id, of_kind(gate, "refusal").pop().unwrap())
}

#[test]
fn a_renamed_tool_called_by_its_original_name_is_recorded_as_renamed() {
    let gate = setup()
        .web("s", "modern", names(&["internal_read", "other"]))
        .with("s", "expose", json!([{"tool": "internal_read", "display_name": "read"}, "other"]))
        .agents(everyone())
        .start();
    let a = gate.agent("a");
    assert_eq!(a.list(), ["s__read", "s__other"]);
    for (agent, prefix) in [(&a, "s__"), (&a.at("/mcp/s"), "")] {
        let (renamed, id, record) = told_at(&gate, agent, &format!("{prefix}internal_read"));
        assert_eq!((&record["server"], &record["tool"]), (&json!("s"), &json!("internal_read")));
        assert_eq!(record["step"], "not-exposed", "{record}");
        let reason = "the server `s` exposes its tool `internal_read` as `read` only";
        assert_eq!(record["reason"], reason);
        let mut explain = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"));
        explain
            .args(["explain", &id, "--dir"])
            .arg(gate.file("audit"))
            .env("HOME", "/proc/nonexistent");
        let said = String::from_utf8(explain.output().unwrap().stdout).unwrap();
        assert!(said.contains(reason) && !said.contains("has no tool"), "{said}");
        // The client cannot tell it from a name that does not exist.
        let (nothing, _, record) = told_at(&gate, agent, &format!("{prefix}internal_writ"));
        assert_eq!(record["step"], "no-such-tool");
        assert_eq!(renamed, nothing);
    }
}
