//! Examples of files of other systems in front of a server, and of decisions for scripts.

use serde_json::json;

use super::support::example;

#[test]
fn files_of_other_systems_hold_in_front_of_a_server() {
    let example = example("import");
    let wrap = |file: &str, server: &str| {
        let arguments = ["wrap", "--policy", file, "--agent", "admin", "--name", server, "--"];
        let command = ["toolward", "demo-server", server];
        example.client("toolward", &[&arguments[..], &command].concat())
    };
    // By capability: tools that read, and a tool that this server does not have.
    let reads = ["search_issues", "get_issue", "weekly_report"];
    assert_eq!(wrap("tools.toml", "tracker").list(), reads);
    // Hidden and renamed.
    let mut files = wrap("plugin.yaml", "files");
    assert_eq!(files.list(), ["list_files", "read_file"]);
    files.done("read_file", json!({"path": "README.md"}));
    files.unknown("fs_get_v2", json!({"path": "README.md"}));
    // Agents: a server without a list of its own is granted completely.
    assert_eq!(wrap("agents.json", "tracker").list().len(), 9);
    // An allowlist of other tools leaves nothing.
    assert!(wrap("allow.yaml", "tracker").list().is_empty());
}

#[test]
fn a_hook_of_another_system_is_asked() {
    let wrap = ["wrap", "--policy", "policy.sh", "--", "toolward", "demo-server", "tracker"];
    let open = example("import");
    open.client("toolward", &wrap).done("get_issue", json!({"number": 17}));
    let closed = example("import").env("GIT_HEX_READ_ONLY", "1");
    let answer = closed.client("toolward", &wrap).call("get_issue", json!({"number": 17}));
    let words = "git-hex is running in read-only mode. Tool 'get_issue' is disabled.";
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["message"]),
        (&json!(-32602), &json!(words))
    );
}

#[test]
fn the_ci_command_fails_if_a_decision_changed() {
    let example = example("policy-tests");
    let workflow = example.file("workflow.yml");
    let steps = workflow.lines().filter_map(|line| line.trim().strip_prefix("- run: toolward"));
    // Tool lists are stored next to the policy there.
    let steps: Vec<String> = steps
        .map(|step| format!("toolward{}", step.replace("--tools tools", "--tools ../tools")))
        .collect();
    assert_eq!(steps.len(), 3);
    for step in &steps {
        let (code, said) = example.shell(step);
        assert_eq!(code, 0, "{step}: {said}");
    }
    let policy = example.file("toolward.yaml").replace("number < 100", "number < 10");
    std::fs::write(example.folder().join("toolward.yaml"), policy).unwrap();
    for step in &steps {
        let (code, said) = example.shell(step);
        assert_eq!(code, 1, "{step}: {said}");
    }
}
