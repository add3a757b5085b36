//! Examples of rules: by name, by capability, by action, by arguments, in layers.

use serde_json::json;

use super::support::{example, names};

#[test]
fn every_configuration_passes_its_own_check_and_tests() {
    let mut configurations = 0;
    for name in names() {
        let example = example(&name);
        if !example.folder().join("toolward.yaml").exists() {
            continue;
        }
        // One example is for another server than the saved lists.
        let lists = match example.folder().join("tools").exists() {
            _ if name == "hooks" => "",
            true => "--tools tools",
            false => "--tools ../tools",
        };
        let (code, said) = example.shell(&format!("toolward check --no-secrets {lists}"));
        assert_eq!(code, 0, "{name}: {said}");
        // Tokens come from the environment, and programs may not be installed here; there is no other
        // warning.
        let warnings = said.lines().filter(|line| line.starts_with("warning"));
        let of_place =
            |line: &str| line.ends_with("_TOKEN` is not set") || line.ends_with("is not in PATH");
        let others = warnings.filter(|line| !of_place(line));
        assert_eq!(others.count(), 0, "{name}: {said}");
        // This example has hooks, which policy tests do not run.
        if name != "hooks" {
            let (code, said) = example.shell(&format!("toolward test {lists}"));
            assert_eq!(code, 0, "{name}: {said}");
            assert!(said.contains("passed, 0 failed"), "{name}: {said}");
        }
        configurations += 1;
    }
    assert!(configurations >= 12, "{configurations}");
}

#[test]
fn by_name() {
    let example = example("by-name");
    let mut triager = example.as_agent("triager");
    let issues = ["search_issues", "get_issue", "create_issue", "close_issue"];
    assert_eq!(triager.list(), issues.map(|name| format!("tracker__{name}")));
    assert!(triager.done("tracker__get_issue", json!({"number": 17})).contains("language"));
    for hidden in ["tracker__delete_issue", "files__list_files", "tracker__no_such_tool"] {
        let message = triager.unknown(hidden, json!({"number": 17}));
        let named = message.strip_prefix(&format!("{hidden} is not permitted. Allowed: ")).unwrap();
        let mut named: Vec<&str> = named.split(", ").collect();
        named.sort_by_key(|name| issues.iter().position(|one| name.ends_with(one)));
        assert_eq!(named, issues.map(|name| format!("tracker__{name}")));
    }
    // Nothing was deleted.
    assert!(triager.done("tracker__get_issue", json!({"number": 17})).contains("language"));
}

#[test]
fn by_capability() {
    let example = example("by-capability");
    let mut reader = example.as_agent("reader");
    let reads = ["tracker__search_issues", "tracker__get_issue", "tracker__weekly_report"];
    let files = ["files__list_files", "files__fs_get_v2"];
    assert_eq!(reader.list(), [&reads[..], &files].concat());
    assert!(reader.done("files__fs_get_v2", json!({"path": "README.md"})).contains("Heron"));
    reader.unknown("files__write_file", json!({"path": "README.md", "content": ""}));
    let mut writer = example.as_agent("writer");
    let list = writer.list();
    assert!(list.iter().any(|name| name == "tracker__add_comment"), "{list:?}");
    for hidden in ["tracker__delete_issue", "tracker__board", "files__write_file"] {
        assert!(!list.iter().any(|name| name == hidden), "{list:?}");
        writer.unknown(hidden, json!({"number": 17}));
    }
    writer.done("tracker__add_comment", json!({"number": 17, "text": "Seen."}));
}

#[test]
fn by_action() {
    let example = example("by-action");
    let mut planner = example.as_agent("planner");
    let tools = planner.tools();
    let board = tools.iter().find(|tool| tool["name"] == "tracker__board").unwrap();
    let actions = &board["inputSchema"]["properties"]["action"]["enum"];
    assert_eq!(*actions, json!(["show", "move"]));
    planner.done("tracker__board", json!({"action": "move", "number": 17, "column": "done"}));
    let refusal = planner.refused("tracker__board", json!({"action": "clear"}));
    assert_eq!(refusal["action"], "clear");
    assert!(planner.done("tracker__board", json!({"action": "show"})).contains("17"));
}

#[test]
fn by_arguments() {
    let example = example("by-arguments");
    let mut writer = example.as_agent("writer");
    assert_eq!(writer.list(), ["files__list_files", "files__fs_get_v2", "files__write_file"]);
    writer.done("files__write_file", json!({"path": "drafts/a.md", "content": "new words"}));
    assert!(writer.done("files__fs_get_v2", json!({"path": "drafts/a.md"})).contains("new words"));
    for path in ["config/production.yaml", "drafts/../config/production.yaml"] {
        let refusal = writer.refused("files__write_file", json!({"path": path, "content": "x"}));
        assert_eq!(refusal["error"], "tool_not_allowed");
    }
    let kept = writer.done("files__fs_get_v2", json!({"path": "config/production.yaml"}));
    assert!(kept.contains("postgres"), "{kept}");
}

#[test]
fn an_allowlist_for_everyone_restricts_the_rules_of_agents() {
    let example = example("layers");
    let mut maintainer = example.as_agent("maintainer");
    let shown = ["search_issues", "get_issue", "add_comment", "close_issue", "weekly_report"];
    assert_eq!(maintainer.list(), shown.map(|name| format!("tracker__{name}")));
    maintainer.unknown("tracker__send_digest", json!({"to": "team@heron.example"}));
    maintainer.done("tracker__close_issue", json!({"number": 17}));
}

#[test]
fn tools_are_hidden_and_renamed() {
    let example = example("rename");
    let mut reader = example.as_agent("reader");
    let tools = reader.tools();
    let names: Vec<_> = tools.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["files__list_files", "files__read_file"]);
    assert_eq!(tools[1]["description"], "Read a file of the project.");
    assert!(reader.done("files__read_file", json!({"path": "README.md"})).contains("Heron"));
    reader.unknown("files__fs_get_v2", json!({"path": "README.md"}));
    reader.unknown("files__write_file", json!({"path": "README.md", "content": ""}));
}

#[test]
fn read_only_mode_restricts_everything() {
    let reads = ["search_issues", "get_issue", "weekly_report"];
    let example_of_mode = example("read-only");
    let mut maintainer = example_of_mode.as_agent("maintainer");
    assert_eq!(maintainer.list(), reads.map(|name| format!("tracker__{name}")));
    maintainer.unknown("tracker__close_issue", json!({"number": 17}));
    // From the environment, in front of a configuration that allows more.
    let by_variable = example("layers").env("TOOLWARD_READ_ONLY", "1");
    assert_eq!(
        by_variable.as_agent("maintainer").list(),
        reads.map(|name| format!("tracker__{name}"))
    );
    // From a flag, around one server.
    let flags = ["wrap", "--read-only", "--", "toolward", "demo-server", "tracker"];
    assert_eq!(example_of_mode.client("toolward", &flags).list(), reads);
}
