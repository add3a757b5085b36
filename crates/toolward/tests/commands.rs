//! The output of each command.
#![allow(clippy::unwrap_used)]

mod program;

use insta::assert_snapshot;
use program::toolward;

/// Command line, exit code and both outputs, as one text.
fn seen(line: &str) -> String {
    seen_with(line, "")
}

fn seen_with(line: &str, input: &str) -> String {
    let run = toolward(&words(line), input);
    let mut text = format!("$ toolward {line}\n{}", run.stdout);
    if !run.stderr.is_empty() {
        text.push_str(&format!("--- stderr\n{}", run.stderr));
    }
    text.push_str(&format!("--- exit {}\n", run.code));
    text
}

/// Splits at spaces, but not inside single quotes.
fn words(line: &str) -> Vec<&str> {
    line.split('\'')
        .enumerate()
        .flat_map(
            |(at, part)| if at % 2 == 1 { vec![part] } else { part.split_whitespace().collect() },
        )
        .collect()
}

const SAMPLE: &str = "-c examples/first-policy/toolward.yaml --tools examples/first-policy/tools";

/// A directory with one file, and the file's path.
fn file(name: &str, content: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    let path = path.to_str().unwrap().to_string();
    (folder, path)
}

/// The same with the directory's own name removed from the output.
fn seen_in(folder: &tempfile::TempDir, line: &str) -> String {
    seen(line).replace(folder.path().to_str().unwrap(), "DIR")
}

/// The exit code if no one reads standard output.
fn unread(arguments: &[&str]) -> Option<i32> {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let home = tempfile::tempdir().unwrap();
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"));
    program.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).args(arguments);
    program.env_clear().env("HOME", home.path()).stdin(std::process::Stdio::null());
    program.stdout(writer).status().unwrap().code()
}

#[test]
fn output_that_no_one_reads_is_not_success() {
    let (_one, open) = file("open.yaml", "agents: { dev: { allow: { servers: [tracker] } } }\n");
    let (_other, closed) = file("closed.yaml", "agents: { dev: { allow: { servers: [] } } }\n");
    let test = "  - { as: dev, allow: [tracker/get_issue] }\n";
    let failing = format!("agents: {{ dev: {{ allow: {{ servers: [] }} }} }}\ntests:\n{test}");
    let (_third, failing) = file("failing.yaml", &failing);
    let (log, _) = file("audit.jsonl", "not a record\n");
    let log = log.path().to_str().unwrap();
    for line in [
        format!("can-i --policy {closed} --as dev tracker/get_issue"),
        format!("who-can --policy {closed} tracker/get_issue"),
        format!("can-ever --policy {closed} tracker/get_issue"),
        format!("test --policy {failing}"),
        format!("check --policy {failing}"),
        format!("diff {closed} {open}"),
        format!("diff --format markdown {closed} {open}"),
        format!("diff --json {closed} {open}"),
        format!("equal {closed} {open}"),
        format!("audit verify --dir {log}"),
        format!("plan --dir {log} -c {closed} {open}"),
        format!("ls --policy {open} --as dev --tools examples/first-policy/tools"),
        "doctor".into(),
        "schema".into(),
        "man".into(),
        "--help".into(),
        "--version".into(),
    ] {
        assert_eq!(unread(&words(&line)), Some(141), "{line}");
    }
}

#[test]
fn help_has_examples() {
    for command in [
        "demo",
        "check",
        "ls",
        "can-i",
        "explain",
        "decide",
        "diff",
        "equal",
        "can-ever",
        "who-can",
        "match",
        "test",
        "import",
        "schema",
        "completions",
        "token",
        "tools",
    ] {
        let help = toolward(&[command, "--help"], "").stdout;
        assert!(help.contains("Examples:"), "{command}");
        assert!(
            command == "completions"
                || help.contains("--json")
                || ["schema", "decide", "token", "tools"].contains(&command),
            "{command}"
        );
    }
    assert_snapshot!(seen("--help"));
    assert_snapshot!("no_command", seen(""));
    assert_snapshot!("unknown_command", seen("chekc"));
}

#[test]
fn check_reports_the_active_policy() {
    assert_snapshot!(seen(&format!("check {SAMPLE}")));
}

#[test]
fn check_as_json() {
    assert_snapshot!(seen(&format!("check --json {SAMPLE}")));
}

#[test]
fn check_shows_mistakes_with_their_place() {
    let (folder, path) = file("p.yaml", "agents:\n  dev:\n    alow:\n      servers: [\"*\"]\n");
    assert_snapshot!(seen_in(&folder, &format!("check --policy {path}")));
}

#[test]
fn check_shows_what_is_wrong_with_a_condition() {
    let content = "allowed_tools:\n  - tool: write_file\n    when: 'arg.path.startsWith(\"/srv/\")'\n  - tool: x\n    when: 'args.path.startWith(\"/srv/\")'\n";
    let (folder, path) = file("p.yaml", content);
    assert_snapshot!(seen_in(&folder, &format!("check --policy {path}")));
    let (folder, path) =
        file("p.yaml", "allowed_tools:\n  - tool: write_file\n    when: 'args.path =='\n");
    assert_snapshot!(
        "a_condition_that_does_not_parse",
        seen_in(&folder, &format!("check --policy {path}"))
    );
}

#[test]
fn check_warns_of_rules_that_cannot_mean_what_was_wanted() {
    let content = "\
agents:
  dev:
    allow:
      servers: [tracker, brwser]
      tools:
        tracker: [get_isue, \"get_*\", get_issue, \"hint:readonly\", \"\"]
        browser: []
    deny:
      tools:
        tracker: [add_comment, \"*_comment\"]
";
    let (folder, path) = file("p.yaml", content);
    assert_snapshot!(seen_in(
        &folder,
        &format!("check --policy {path} --tools examples/first-policy/tools")
    ));
}

#[test]
fn check_refuses_a_policy_that_hides_everything() {
    let (folder, path) = file("p.yaml", "allowed_tools: [nothing_like_this]\n");
    assert_snapshot!(seen_in(
        &folder,
        &format!("check --policy {path} --tools examples/first-policy/tools")
    ));
}

#[test]
fn check_reports_failed_tests() {
    let content =
        "allowed_tools: [observe]\ntests:\n  - {allow: [browser/observe, browser/interact]}\n";
    let (folder, path) = file("p.yaml", content);
    assert_snapshot!(seen_in(&folder, &format!("check --policy {path}")));
}

#[test]
fn ls_shows_what_an_agent_may_do() {
    assert_snapshot!(seen(&format!("ls --as reviewer --all {SAMPLE}")));
    assert_snapshot!("ls_of_a_stranger", seen(&format!("ls --as stranger {SAMPLE}")));
    let (folder, path) =
        file("p.yaml", "agents:\n  reviewer:\n    allow:\n      servers: [\"*\"]\n");
    let flags = format!("--as reviewr --policy {path} --tools examples/first-policy/tools");
    assert_snapshot!("ls_of_a_typo", seen_in(&folder, &format!("ls {flags}")));
    assert_snapshot!(
        "can_i_of_a_typo",
        seen_in(&folder, &format!("can-i tracker/get_issue {flags}"))
    );
    assert_snapshot!(
        "explain_of_a_typo",
        seen_in(&folder, &format!("explain tracker/get_issue {flags}"))
    );
    assert_snapshot!(
        "ls_one_server_json",
        seen(&format!("ls --as reviewer --server browser --json {SAMPLE}"))
    );
}

#[test]
fn a_tool_list_of_another_server_is_reported() {
    let (folder, path) = file("trackr.json", r#"{"tools": [{"name": "get_issue"}]}"#);
    let main = "-c examples/first-policy/toolward.yaml";
    assert_snapshot!(seen_in(
        &folder,
        &format!("can-i --as reviewer tracker/get_issue {main} --tools {path}")
    ));
    let (folder, path) = file("x.json", r#"{"server": "files", "tools": [{"name": "get_issue"}]}"#);
    assert_snapshot!(
        "a_tool_list_that_names_another_server",
        seen_in(
            &folder,
            &format!("ls --as reviewer --server tracker {main} --tools tracker={path}")
        )
    );
}

#[test]
fn strict_checks_fail_on_warnings() {
    let (folder, path) = file("p.yaml", "allowed_tools: [get_issue, get_issue]\n");
    let code = |flags: &str| toolward(&words(&format!("check --policy {path} {flags}")), "").code;
    assert_eq!((code(""), code("--strict")), (0, 1));
    let strict = format!("check --strict --json --policy {path}");
    assert!(seen_in(&folder, &strict).contains("\"ok\":false"));
    let (_folder, path) = file("p.yaml", "allowed_tools: [get_issue]\n");
    assert_eq!(toolward(&["check", "--strict", "--policy", &path], "").code, 0);
}

#[test]
fn an_agent_of_a_pattern_is_known_and_explained() {
    let policy = "roles:\n  reader: { allow: { servers: [\"*\"], tools: { \"*\": [\"get_*\"] } } }\n\
                  agents:\n  \"ci-*\": { roles: [reader] }\n";
    let (folder, path) = file("p.yaml", policy);
    let asked = format!("explain --as ci-7 --policy {path} tracker/get_issue");
    assert_snapshot!(seen_in(&folder, &asked));
    let denied = toolward(&["can-i", "--as", "cd-7", "--policy", &path, "tracker/get_issue"], "");
    assert_eq!(denied.code, 1);
    assert!(denied.stderr.contains("no agent is named `cd-7`"), "{}", denied.stderr);
}

#[test]
fn ls_needs_tool_lists() {
    assert_snapshot!(seen("ls --as reviewer -c examples/first-policy/toolward.yaml"));
    assert_snapshot!("ls_of_an_unknown_server", seen(&format!("ls --server brwser {SAMPLE}")));
}

#[test]
fn can_i_answers_with_a_sentence_and_an_exit_code() {
    assert_snapshot!(seen(&format!("can-i --as reviewer tracker/get_issue {SAMPLE}")));
    assert_snapshot!(
        "can_i_no",
        seen(&format!("can-i --as reviewer browser/interact '{{\"action\": \"click\"}}' {SAMPLE}"))
    );
    assert_snapshot!(
        "can_i_json",
        seen(&format!("can-i --json --as reviewer tracker/delete_project {SAMPLE}"))
    );
    assert_snapshot!(
        "can_i_no_such_tool",
        seen(&format!("can-i --as reviewer tracker/nothing {SAMPLE}"))
    );
    assert_snapshot!(
        "can_i_list_not_known",
        seen("can-i --as reviewer tracker/get_issue -c examples/first-policy/toolward.yaml")
    );
    assert_snapshot!(
        "can_i_no_such_server",
        seen(&format!("can-i --as reviewer trakcer/get_issue {SAMPLE}"))
    );
    assert_snapshot!("can_i_wrong_usage", seen("can-i --as reviewer get_issue"));
    assert_snapshot!("can_i_bad_arguments", seen("can-i --as reviewer a/b '[1]'"));
}

#[test]
fn can_i_never_allows_what_the_listing_hides() {
    let (_folder, path) = file("p.yaml", "allowed_tools: [interact.fly]\n");
    let run = toolward(
        &[
            "can-i",
            "browser/interact",
            r#"{"action": "fly"}"#,
            "--policy",
            &path,
            "--tools",
            "examples/first-policy/tools",
        ],
        "",
    );
    assert_eq!(run.code, 1, "{}", run.stdout);
}

#[test]
fn can_i_knows_prompts_and_resources() {
    let (_folder, path) =
        file("p.yaml", "allowed_tools: [\"*\"]\nallowed_resources: [\"file:///srv/*\"]\n");
    let ask = |kind: &str, name: &str| toolward(&["can-i", "--policy", &path, kind, name], "").code;
    assert_eq!(ask("--prompt", "s/p"), 0);
    assert_eq!(ask("--resource", "s/file:///srv/a"), 0);
    assert_eq!(ask("--resource", "s/file:///etc/passwd"), 1);
    assert_eq!(ask("--resource", "s/file:///srv/../etc/passwd"), 1);
    assert_eq!(toolward(&["can-i", "--prompt", "--resource", "s/p"], "").code, 2);
}

/// A legacy server with prompts and resources; its argument is the scheme of some of them.
const LISTING: &str = r#"
import json, sys
scheme = sys.argv[1]
for line in sys.stdin:
    asked = json.loads(line)
    results = {
        "initialize": {
            "protocolVersion": "2025-06-18", "serverInfo": {"name": "s", "version": "1"},
            "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
        },
        "tools/list": {"tools": []},
        "prompts/list": {"prompts": [{"name": "summarize"}, {"name": "internal"}]},
        "resources/list": {"resources": [{"uri": "note:1", "name": "a"}, {"uri": scheme + ":2", "name": "b"}]},
        "resources/templates/list": {"resourceTemplates": [{"uriTemplate": scheme + ":{id}", "name": "c"}]},
    }
    if "id" in asked:
        answer = {"jsonrpc": "2.0", "id": asked["id"]}
        if asked["method"] in results:
            answer["result"] = results[asked["method"]]
        else:
            answer["error"] = {"code": -32601, "message": "unknown method"}
        print(json.dumps(answer), flush=True)
"#;

#[test]
fn ls_shows_prompts_and_resources() {
    let (_folder, script) = file("server.py", LISTING);
    let server = |scheme: &str, more: &str| {
        format!("{scheme}: {{command: python3, args: ['{script}', {scheme}]{more}}}")
    };
    let exposed = ", expose_prompts: [{prompt: internal, display_name: plan}]";
    let config = format!(
        "servers:\n  {}\n  {}\nagents: {{dev: {{allow: {{servers: ['*']}}, deny: {{resources: {{b: ['b:2']}}}}}}}}\n",
        server("a", exposed),
        server("b", "")
    );
    let (_folder, path) = file("toolward.yaml", &config);
    let run = toolward(&["ls", "-c", &path, "--as", "dev", "--prompts"], "");
    assert!(run.stdout.contains("internal as plan"), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("`dev` sees 3 of 4 prompts"), "{}", run.stdout);
    let words =
        ["ls", "-c", &path, "--as", "dev", "--resources", "--all", "--server", "b", "--json"];
    let run = toolward(&words, "");
    let rows: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let row = |at: usize| (&rows[at]["resource"], &rows[at]["listed"], &rows[at]["belongs_to"]);
    let (no, null) = (serde_json::json!(false), serde_json::Value::Null);
    assert_eq!(row(0), (&serde_json::json!("note:1"), &no, &serde_json::json!("a")), "{rows}");
    assert_eq!(row(1), (&serde_json::json!("b:2"), &no, &null), "{rows}");
    assert_eq!(rows[2]["template"], "b:{id}");
    assert_eq!(rows[2]["listed"], true);
}

#[test]
fn a_template_is_listed_if_it_can_expand_to_an_allowed_uri() {
    let (_folder, script) = file("server.py", LISTING);
    let config = format!(
        "servers: {{s: {{command: python3, args: ['{script}', note]}}}}\nbuiltin: true\nagents:\n  \
         dev: {{allow: {{servers: [s], resources: {{s: ['note:public-*']}}}}}}\n  \
         other: {{allow: {{servers: [s], resources: {{s: ['memo:*']}}}}}}\n  \
         finder: {{allow: {{servers: ['*']}}, discovery: progressive}}\n"
    );
    let (_folder, path) = file("toolward.yaml", &config);
    let template = |agent: &str| {
        let run =
            toolward(&["ls", "-c", &path, "--as", agent, "--resources", "--all", "--json"], "");
        let rows: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        let rows = rows.as_array().unwrap().iter();
        let row = rows.clone().find(|row| row["template"] == "note:{id}").unwrap().clone();
        (row["verdict"].as_str().unwrap().to_string(), row["listed"] == true)
    };
    assert_eq!(template("dev"), ("depends".into(), true));
    assert_eq!(template("other"), ("deny".into(), false));
    assert_eq!(template("finder"), ("deny".into(), false));
    let ask = |agent: &str, words: &[&str]| {
        let run = toolward(&[&["can-i", "-c", &path, "--as", agent], words].concat(), "");
        (run.code, run.stdout)
    };
    let (code, said) = ask("dev", &["--resource", "s/note:{id}", "--list"]);
    assert_eq!(
        (code, said.starts_with("depends: no rule allows the template")),
        (0, true),
        "{said}"
    );
    assert_eq!(ask("other", &["--resource", "s/note:{id}", "--list"]).0, 1);
    // Progressive discovery covers only tools.
    let (code, said) = ask("finder", &["--prompt", "s/summarize"]);
    assert_eq!((code, said.contains("which covers only tools")), (1, true), "{said}");
    assert_eq!(ask("finder", &["--resource", "s/note:1"]).0, 1);
}

#[test]
fn decide_and_tests_know_prompts_and_resources() {
    let policy = "agents:\n  dev:\n    allow:\n      servers: [s]\n      prompts: {s: [review]}\n      \
         resources: {s: ['note:*']}\ntests:\n  - as: dev\n    allow: ['prompt:s/review', 'resource:s/note:1']\n    \
         hidden: ['prompt:s/plan', 'resource:s/memo:1']\n";
    let (_folder, path) = file("p.yaml", policy);
    let run = toolward(&["test", "--policy", &path], "");
    assert_eq!(run.code, 0, "{}", run.stdout);
    assert!(run.stdout.contains("4 passed, 0 failed"), "{}", run.stdout);
    let lines = [
        r#"{"agent": "dev", "server": "s", "prompt": "review"}"#,
        r#"{"agent": "dev", "server": "s", "prompt": "plan", "query": "list"}"#,
        r#"{"agent": "dev", "server": "s", "resource": "note:1"}"#,
        r#"{"agent": "dev", "server": "s", "resource": "note:../1"}"#,
    ];
    let run = toolward(&["decide", "--policy", &path], &lines.join("\n"));
    let verdicts: Vec<bool> =
        run.stdout.lines().map(|line| line.contains(r#""verdict":"allow""#)).collect();
    assert_eq!(verdicts, [true, false, true, false], "{}", run.stdout);
    let wrong = r#"{"agent": "dev", "server": "s", "prompt": "review", "tool": "t"}"#;
    let run = toolward(&["decide", "--policy", &path], wrong);
    assert_eq!(run.code, 3, "{}", run.stdout);
    assert!(run.stdout.contains("one of `tool`, `prompt` and `resource`"), "{}", run.stdout);
}

#[test]
fn explain_shows_every_step() {
    assert_snapshot!(seen(&format!(
        "explain --as reviewer browser/interact '{{\"action\": \"execute_js\"}}' {SAMPLE}"
    )));
    assert_snapshot!(
        "explain_hidden",
        seen(&format!("explain --as reviewer tracker/delete_project {SAMPLE}"))
    );
    assert_snapshot!(
        "explain_allowed",
        seen(&format!(
            "explain --as maintainer tracker/delete_project '{{\"name\": \"scratch-1\"}}' {SAMPLE}"
        ))
    );
    assert_snapshot!(
        "explain_condition_fails",
        seen(&format!("explain --as maintainer tracker/delete_project '{{\"name\": 7}}' {SAMPLE}"))
    );
    assert_snapshot!(
        "explain_list",
        seen(&format!("explain --as reviewer browser/interact --list {SAMPLE}"))
    );
    assert_snapshot!(
        "explain_json",
        seen(&format!("explain --json --as stranger tracker/add_comment {SAMPLE}"))
    );
    assert_snapshot!(
        "explain_ambiguous",
        seen(&format!(
            "explain --as reviewer browser/interact '{{\"action\": \"navigate\", \"Action\": \"click\"}}' {SAMPLE}"
        ))
    );
    assert_snapshot!(
        "explain_not_exposed",
        seen(&format!("explain --as reviewer browser/configure {SAMPLE}"))
    );
}

#[test]
fn explain_of_a_word_names_both_things_that_it_could_be() {
    let run = toolward(&["explain", "nosuchid"], "");
    assert_eq!(run.code, 2, "{}", run.stderr);
    for words in
        ["`nosuchid` is neither SERVER/TOOL nor the id of a decision", "SERVER/TOOL", "12 digits"]
    {
        assert!(run.stderr.contains(words), "{}", run.stderr);
    }
}

#[test]
fn a_client_file_without_servers_is_not_a_missing_file() {
    let (_folder, path) = file("mcp.json", r#"{"mcpServers": {}}"#);
    let run = toolward(&["check", "-c", &path], "");
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert!(run.stderr.contains("there are no servers"), "{}", run.stderr);
    assert!(!run.stderr.contains("no configuration was found"), "{}", run.stderr);
}

#[test]
fn explain_shows_several_layers() {
    let (folder, path) = file("more.yaml", "allowed_tools: [observe]\n");
    assert_snapshot!(seen_in(
        &folder,
        &format!("explain --as reviewer tracker/get_issue {SAMPLE} --policy {path} --read-only")
    ));
}

#[test]
fn match_prints_names() {
    let names = "get_user\nset_user\nGET_ALL\nobserve\n";
    assert_snapshot!(seen_with("match 'get_*'", names));
    assert_snapshot!("match_ignore_case", seen_with("match -i 'get_*'", names));
    assert_snapshot!("match_every_action", seen_with("match 'observe.*'", names));
    assert_snapshot!("match_none", seen_with("match 'x*'", names));
    assert_snapshot!("match_hint", seen_with("match hint:read-only", names));
}

#[test]
fn test_runs_the_policy_s_own_tests() {
    assert_snapshot!(seen(&format!("test {SAMPLE}")));
    let content = "allowed_tools: [\"hint:read-only\"]\ntests:\n  - {allow: [tracker/get_issue], hidden: [tracker/add_comment]}\n";
    let (folder, path) = file("p.yaml", content);
    assert_snapshot!("a_failed_test", seen_in(&folder, &format!("test --policy {path}")));
    assert_snapshot!(
        "the_same_test_with_tool_lists",
        seen_in(&folder, &format!("test --policy {path} --tools examples/first-policy/tools"))
    );
    let (folder, path) = file("p.yaml", "allowed_tools: [a]\n");
    assert_snapshot!("no_tests", seen_in(&folder, &format!("test --policy {path} --json")));
}

#[test]
fn import_writes_native_yaml() {
    let (folder, path) =
        file("c.toml", "[chat]\ntools = [\"hint:read-only\", \"shell\"]\nmodel = \"x\"\n");
    assert_snapshot!(seen_in(&folder, &format!("import toml {path}")));
    let plugin = "plugins:\n  middleware:\n    files:\n      - handler: tool_manager\n        config:\n          tools:\n            - {tool: internal_read_file, display_name: read_file}\n            - {tool: list}\n";
    let (folder, path) = file("p.yaml", plugin);
    assert_snapshot!("import_plugin", seen_in(&folder, &format!("import plugin {path}")));
    assert_snapshot!("import_wrong_format", seen_in(&folder, &format!("import toml {path}")));
}

#[test]
fn schema_is_json_schema() {
    let run = toolward(&["schema"], "");
    let schema: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(run.code, 0);
    assert!(schema["properties"]["agents"].is_object());
}

#[test]
fn completions_are_written_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = toolward(&["completions", shell], "");
        assert!(run.code == 0 && run.stdout.contains("TOOLWARD_COMPLETE"), "{shell}");
    }
}

#[test]
fn hostile_names_reach_no_terminal() {
    let list =
        r#"{"server": "s", "tools": [{"name": "a\u001b[31mred\u202etxt"}, {"name": "a\nb"}]}"#;
    let (_folder, path) = file("s.json", list);
    let (_policy, policy) = file("p.yaml", "allowed_tools: [\"*\"]\n");
    let run = toolward(&["ls", "--policy", &policy, "--tools", &path], "");
    assert_eq!(run.code, 0);
    assert!(run.stdout.chars().all(|c| c == '\n' || !c.is_control()), "{:?}", run.stdout);
    assert!(!run.stdout.contains('\u{202e}'));
    assert_eq!(run.stdout.lines().count(), 4, "{}", run.stdout);
}

#[test]
fn a_broken_tool_list_is_diagnosed() {
    let (folder, path) =
        file("s.json", "{\"tools\": [{\"name\": \"a\"}, 7, {\"name\": \"\"}, {\"name\": \"a\"}]}");
    assert_snapshot!(seen_in(
        &folder,
        &format!(
            "ls --tools {path} --policy examples/first-policy/toolward.yaml --allowlist-config /dev/null"
        )
    ));
    let (folder, path) = file("s.json", "{\"tools\": [}");
    assert_snapshot!(
        "a_tool_list_that_is_not_json",
        seen_in(&folder, &format!("ls --tools {path}"))
    );
    let (folder, path) = file("s.json", "{}");
    assert_snapshot!("a_tool_list_without_tools", seen_in(&folder, &format!("ls --tools {path}")));
}
