//! Configuration of the built-in server.

use serde_json::json;

use super::harness::*;
use super::program::toolward;
use super::support::*;

#[test]
fn without_builtin_nothing_is_added() {
    let gate = setup().web("s", "modern", names(&["t"])).agents(everyone()).start();
    let a = gate.agent("a");
    assert_eq!(a.list(), ["s__t"]);
    assert_eq!(a.at("/mcp/toolward").modern_reply(json!(1), "tools/list", json!({})).status, 404);
    gate.refusal(&own(&a, "search_tools", json!({"query": "t"})));
}

#[test]
fn a_server_of_that_name_and_progressive_without_builtin_do_not_start() {
    let (code, said) = setup()
        .set("builtin", json!(true))
        .server("toolward", json!({"command": "true"}))
        .agents(everyone())
        .fails();
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("the name `toolward` is reserved for the built-in server"), "{said}");
    let (code, said) = setup()
        .server("s", json!({"command": "true"}))
        .agents(json!({"a": {"discovery": "progressive", "allow": {"servers": ["*"]}}}))
        .fails();
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("add `builtin: true`"), "{said}");
}

#[test]
fn policy_decides_which_built_in_tools_exist() {
    let gate = world()
        .agents(json!({
            "a": {"allow": {"servers": ["*"], "tools": {"toolward": ["hint:read-only"]}}},
            "b": {"allow": {"servers": ["files"]}},
            "c": {"allow": {"servers": ["*"]}, "deny": {"tools": {"toolward": ["*_tools", "execute_tool"]}}},
        }))
        .start();
    let own_of = |agent: &str| -> Vec<String> {
        let names = gate.agent(agent).list().into_iter();
        names.filter_map(|name| name.strip_prefix("toolward__").map(String::from)).collect()
    };
    // `execute_tool` counts as the tool that it calls: each is decided separately.
    assert_eq!(own_of("a"), OWN);
    assert_eq!(own_of("b"), Vec::<String>::new());
    assert_eq!(own_of("c"), ["list_servers", "server_config"]);
    gate.refusal(&own(&gate.agent("b"), "server_config", json!({})));
    gate.refusal(&own(&gate.agent("c"), "search_tools", json!({"query": "x"})));
    gate.refusal(&execute(&gate.agent("c"), "files", "read_file", json!({})));
    assert!(gate.calls("files").is_empty());
    for (agent, status) in [("a", 200), ("b", 404), ("c", 200)] {
        let at = gate.agent(agent).at("/mcp/toolward");
        assert_eq!(at.modern_reply(json!(1), "tools/list", json!({})).status, status, "{agent}");
    }
}

#[test]
fn the_own_tools_are_described_in_every_revision_as_it_can_read_them() {
    let gate = world().agents(everyone()).start();
    let at = gate.agent("a").at("/mcp/toolward");
    let described = |tools: &[serde_json::Value]| {
        let structured = tools.iter().filter(|tool| tool.get("outputSchema").is_some()).count();
        let named: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(named, OWN);
        for tool in tools {
            let reads = tool["name"] != "execute_tool";
            assert_eq!(tool["annotations"]["readOnlyHint"], reads, "{tool}");
        }
        structured
    };
    assert_eq!(described(&at.tools()), 4);
    assert_eq!(described(&at.session_of("2025-11-25").tools()), 4);
    assert_eq!(described(&at.session_of("2025-06-18").tools()), 4);
    assert_eq!(described(&at.session_of("2025-03-26").tools()), 0);
    let old = at.session_of("2024-11-05");
    assert_eq!(described(&old.tools()), 0);
    let answer = old.call("list_servers", json!({}));
    assert!(answer["result"].get("structuredContent").is_none(), "{answer}");
    assert!(text(&answer).contains("\"files\""), "{answer}");
    assert_eq!(old.hello["serverInfo"]["name"], "toolward");
    assert_eq!(old.hello["capabilities"]["tools"]["listChanged"], true);
    let discovered = at.modern("server/discover", json!({}));
    let only_tools = json!({"tools": {"listChanged": true}});
    assert_eq!(discovered["result"]["capabilities"], only_tools, "{discovered}");
}

#[test]
fn read_only_mode_holds_for_what_is_called_and_not_for_the_way_to_it() {
    let mut reads = tool("read_file", "Reads.", "path");
    reads["annotations"] = json!({"readOnlyHint": true});
    let gate = setup()
        .set("builtin", json!(true))
        .set("read_only", json!(true))
        .web("s", "modern", json!([reads, tool("wipe", "Wipes.", "path")]))
        .agents(everyone())
        .start();
    let a = gate.agent("a");
    assert_eq!(said(&own(&a, "server_config", json!({})))["read_only"], true);
    assert_eq!(found(&said(&own(&a, "get_server_tools", json!({"server": "s"})))), ["read_file"]);
    assert_eq!(text(&execute(&a, "s", "read_file", json!({}))), "did read_file");
    gate.refusal(&execute(&a, "s", "wipe", json!({})));
    assert_eq!(gate.calls("s").len(), 1);
}

#[test]
fn flat_names_of_built_in_tools_must_not_collide_with_others() {
    let gate = world().set("naming", json!("flat")).agents(everyone()).start();
    let a = gate.agent("a");
    assert_eq!(a.list()[7..], OWN);
    let call = json!({"server": "files", "tool": "read_file", "args": {}});
    assert_eq!(text(&a.call("execute_tool", call)), "did read_file");
    drop(gate);
    let (code, said) = world()
        .set("naming", json!("flat"))
        .web("other", "modern", names(&["search_tools"]))
        .agents(everyone())
        .fails();
    assert_ne!(code, 0);
    assert!(said.contains("toolward/search_tools"), "{said}");
}

#[test]
fn commands_know_the_built_in_tools() {
    let setup = world().agents(json!({
        "a": {"allow": {"servers": ["files"]}},
        "b": {"allow": {"servers": ["toolward"], "tools": {"toolward": ["search_*"]}}},
    }));
    let tests = json!([
        {"as": "a", "hidden": ["toolward/search_tools"]},
        {"as": "b", "allow": ["toolward/search_tools"], "hidden": ["toolward/execute_tool"]},
    ]);
    let setup = setup.set("tests", tests);
    let file = setup.file();
    let run = |arguments: &[&str]| {
        let mut all = arguments.to_vec();
        all.extend(["-c", file.to_str().unwrap()]);
        toolward(&all, "")
    };
    let checked = run(&["check", "--no-secrets"]);
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
    assert!(!checked.stderr.contains("nothing else mentions"), "{}", checked.stderr);
    assert_eq!(run(&["test"]).code, 0);
    assert_eq!(run(&["can-i", "--as", "b", "toolward/search_tools"]).code, 0);
    let no = run(&["can-i", "--as", "b", "toolward/execute_tool"]);
    assert_eq!(no.code, 1, "{}{}", no.stdout, no.stderr);
}

#[test]
fn without_enforcement_the_built_in_tools_reach_denied_tools_and_report_it() {
    let gate = world()
        .flag("--allow-all")
        .agents(json!({"a": {"allow": {"servers": ["tracker", "toolward"]}}}))
        .start();
    let a = gate.agent("a");
    assert_eq!(said(&own(&a, "server_config", json!({})))["enforced"], false);
    assert_eq!(text(&execute(&a, "files", "read_file", json!({}))), "did read_file");
    let intent = records(&gate, "intent").pop().unwrap();
    assert_eq!((&intent["verdict"], &intent["enforced"]), (&json!("deny"), &json!(false)));
    assert_eq!(
        (&intent["server"], &intent["via"]),
        (&json!("files"), &json!("toolward/execute_tool"))
    );
}
