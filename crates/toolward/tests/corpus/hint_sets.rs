//! Built-in sets of hints: against the lists of real servers, and as `check` and `explain` show them.

use serde_json::{Value, json};
use tempfile::TempDir;
use toolward_config::hint_sets;

use crate::hints;
use crate::program::toolward;
use crate::real_lists::real_lists;

/// A script of a library's documentation, which is not a package.
const WITHOUT_SET: [&str; 1] = ["fastmcp-demo"];

#[test]
fn every_real_list_has_a_set_of_hints_that_names_exactly_its_tools() {
    let Some(lists) = real_lists() else { return };
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("toolward.yaml");
    for (file, list) in lists {
        let name = list["server"].as_str().unwrap();
        let Some(set) = hint_sets::named(name) else {
            assert!(WITHOUT_SET.contains(&name), "{name}");
            continue;
        };
        assert_eq!(set.version, list["serverInfo"]["version"].as_str().unwrap(), "{name}");
        assert_eq!(set.server, list["serverInfo"]["name"].as_str().unwrap(), "{name}");
        let tools = list["tools"].as_array().unwrap();
        let names: Vec<&Value> = tools.iter().map(|tool| &tool["name"]).collect();
        assert_eq!(set.tools.iter().map(|(tool, _)| tool).collect::<Vec<_>>(), names, "{name}");
        let has_hints = tools.iter().any(|tool| tool.get("annotations").is_some());
        assert_eq!(set.is_annotated, has_hints, "{name}");

        let (kind, package) = set.packages[0].split_once(':').unwrap();
        let command = if kind == "npm" { "npx" } else { "uvx" };
        let server = json!({"command": command, "args": [package], "hints_from": "builtin"});
        std::fs::write(&config, json!({"servers": {name: server}}).to_string()).unwrap();
        let (config, file) = (config.to_str().unwrap(), file.to_str().unwrap());
        let run = toolward(&["ls", "--json", "--all", "-c", config, "--tools", file], "");
        assert_eq!(run.code, 0, "{name}: {}", run.stderr);
        let shown: Vec<Value> = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(shown.len(), set.tools.len());
        for (shown, (tool, hints)) in shown.iter().zip(&set.tools) {
            let mut hints: Vec<&str> = hints.iter().map(String::as_str).collect();
            hints.retain(|hint| *hint != "non-destructive");
            hints.sort();
            assert_eq!((&shown["tool"], &shown["hints"]), (&json!(tool), &json!(hints)), "{name}");
        }
    }
}

/// A review may find that a tool does more than its server claims, never less.
#[test]
fn no_set_calls_a_tool_read_only_that_its_server_does_not() {
    let Some(lists) = real_lists() else { return };
    for (_, list) in lists {
        let name = list["server"].as_str().unwrap();
        let Some(set) = hint_sets::named(name).filter(|set| set.is_annotated) else { continue };
        for tool in list["tools"].as_array().unwrap() {
            let own = set.hints(tool["name"].as_str().unwrap()).unwrap();
            let has = |hint: &str| own.iter().any(|known| known == hint);
            let claims = hints(&tool["annotations"]);
            assert!(!has("read-only") || claims.contains(&"read-only"), "{name}/{}", tool["name"]);
            assert!(!has("closed-world") || claims.contains(&"closed-world"), "{name}");
            assert!(!has("idempotent") || claims.contains(&"idempotent"), "{name}");
        }
    }
}

/// A configuration with one server, and the list of one of its tools.
fn one_server(server: &Value, agent: &Value, tool: &Value) -> (TempDir, String, String) {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, content: Value| {
        let file = directory.path().join(name);
        std::fs::write(&file, content.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let config = json!({"servers": {"gh": server}, "agents": {"a": {"allow": agent}}});
    let config = write("toolward.json", config);
    let list = write("list.json", json!({"tools": [tool]}));
    (directory, config, format!("gh={list}"))
}

fn github(more: Value) -> Value {
    let mut server =
        json!({"command": "npx", "args": ["-y", "@modelcontextprotocol/server-github"]});
    server.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server
}

const MISSING: &str = "the tools of `gh` have no annotations, so all of them count as destructive";

#[test]
fn check_reports_a_server_without_annotations_if_there_is_a_set_and_hints_matter() {
    let by_hint = json!({"servers": ["gh"], "tools": {"gh": ["hint:read-only"]}});
    let by_name = json!({"servers": ["gh"], "tools": {"gh": ["get_issue"]}});
    let plain = json!({"name": "get_issue", "inputSchema": {"type": "object"}});
    let mut annotated = plain.clone();
    annotated["annotations"] = json!({"readOnlyHint": true});
    let found = |server: Value, agent: &Value, tool: Option<&Value>| {
        let (_directory, config, list) = one_server(&server, agent, tool.unwrap_or(&plain));
        let mut arguments = vec!["check", "-c", &config];
        if tool.is_some() {
            arguments.extend(["--tools", &list]);
        }
        toolward(&arguments, "").stderr.contains(MISSING)
    };
    assert!(found(github(json!({})), &by_hint, Some(&plain)));
    // Without the list, the version that was reviewed decides.
    assert!(found(github(json!({})), &by_hint, None));
    assert!(!found(github(json!({})), &by_hint, Some(&annotated)));
    assert!(!found(github(json!({})), &by_name, Some(&plain)));
    assert!(!found(github(json!({"hints_from": "builtin"})), &by_hint, Some(&plain)));
    assert!(!found(github(json!({"hints": {"get_issue": ["read-only"]}})), &by_hint, Some(&plain)));
    assert!(!found(json!({"command": "other"}), &by_hint, Some(&plain)));
    let read_only = github(json!({}));
    let (_directory, config, list) = one_server(&read_only, &by_name, &plain);
    let run = toolward(&["check", "-c", &config, "--tools", &list, "--read-only"], "");
    assert!(run.stderr.contains(MISSING) && run.stderr.contains("add `hints_from: builtin`"));
}

#[test]
fn explain_shows_that_hints_come_from_a_set() {
    let agent = json!({"servers": ["gh"], "tools": {"gh": ["hint:read-only"]}});
    let tool = json!({"name": "get_issue", "inputSchema": {"type": "object"}});
    let shown = |more: Value| {
        let (_directory, config, list) = one_server(&github(more), &agent, &tool);
        let arguments = ["explain", "--as", "a", "gh/get_issue", "-c", &config, "--tools", &list];
        toolward(&arguments, "").stdout
    };
    let set = shown(json!({"hints_from": "builtin"}));
    let words = "hints: open-world, read-only (the built-in set `github-legacy`, version 0.6.2)";
    assert!(set.contains(words) && set.contains(": allow"), "{set}");
    let both = shown(json!({"hints_from": "builtin", "hints": {"get_*": ["destructive"]}}));
    assert!(both.contains("hints: destructive, open-world\n") && both.contains(": deny"), "{both}");
    let none = shown(json!({}));
    assert!(none.contains("hints: destructive, open-world\n") && none.contains(": deny"), "{none}");
}
