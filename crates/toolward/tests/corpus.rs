//! Tool lists of real servers. They are not part of this repository, because others wrote them; if the
//! directory is not there, these tests report that they were skipped.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod program;
#[path = "program/real_lists.rs"]
mod real_lists;

use program::toolward;
use real_lists::real_lists;
use serde_json::{Value, json};
use toolward_config::hint_sets;

/// The contract's table, written a second time.
fn hints(annotations: &Value) -> Vec<&'static str> {
    let is = |name: &str, value: bool| annotations[name].as_bool() == Some(value);
    let mut hints = vec![if is("openWorldHint", false) { "closed-world" } else { "open-world" }];
    if is("readOnlyHint", true) {
        hints.push("read-only");
    } else if !is("destructiveHint", false) {
        hints.push("destructive");
    }
    if is("idempotentHint", true) {
        hints.push("idempotent");
    }
    hints.sort();
    hints
}

#[test]
fn real_lists_load_and_hints_follow_the_table() {
    let Some(lists) = real_lists() else { return };
    assert_eq!(lists.len(), 18);
    for (file, list) in lists {
        let path = file.to_str().unwrap();
        let run = toolward(&["ls", "--json", "--all", "--tools", path], "");
        assert_eq!(run.code, 0, "{path}: {}", run.stderr);
        assert!(!run.stderr.contains("left out"), "{path}: {}", run.stderr);
        let shown: Vec<Value> = serde_json::from_str(&run.stdout).unwrap();
        let offered = list["tools"].as_array().unwrap();
        assert_eq!(shown.len(), offered.len(), "{path}");
        for (shown, tool) in shown.iter().zip(offered) {
            assert_eq!(shown["server"], list["server"]);
            assert_eq!(shown["tool"], tool["name"]);
            assert_eq!(shown["hints"], json!(hints(&tool["annotations"])), "{}", tool["name"]);
        }
    }
}

#[test]
fn read_only_mode_shows_exactly_the_tools_marked_read_only() {
    let Some(lists) = real_lists() else { return };
    let (mut shown, mut offered) = (0, 0);
    for (file, list) in lists {
        let run = toolward(&["ls", "--json", "--read-only", "--tools", file.to_str().unwrap()], "");
        let names: Vec<Value> = serde_json::from_str(&run.stdout).unwrap();
        let marked = |tool: &&Value| tool["annotations"]["readOnlyHint"] == true;
        let marked: Vec<&Value> = list["tools"].as_array().unwrap().iter().filter(marked).collect();
        let names: Vec<&Value> = names.iter().map(|row| &row["tool"]).collect();
        assert_eq!(names, marked.iter().map(|tool| &tool["name"]).collect::<Vec<_>>());
        shown += names.len();
        offered += list["tools"].as_array().unwrap().len();
    }
    assert!(shown > 0 && shown < offered);
}

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
