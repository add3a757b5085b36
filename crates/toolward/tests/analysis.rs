//! `diff`, `equal`, `can-ever`, `who-can`, `plan` and `learn`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "analysis/learn.rs"]
mod learn;
#[path = "analysis/log.rs"]
mod log;
#[path = "analysis/plan.rs"]
mod plan;
mod program;
#[path = "program/real_lists.rs"]
mod real_lists;
#[path = "analysis/week.rs"]
mod week;

use std::path::Path;

use program::{Run, toolward};
use serde_json::{Value, json};

const OLD: &str = "\
agents:
  reviewer:
    allow: { servers: [tracker], tools: { tracker: [\"get_*\", add_comment] } }
    deny: { tools: { tracker: [get_secret] } }
";
const NEW: &str = "\
agents:
  reviewer:
    allow: { servers: [tracker], tools: { tracker: [\"get_*\", \"add_*\"] } }
";

/// A directory with files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

/// Runs a command whose words that end in `.yaml` are files of the directory.
fn run(folder: &Path, line: &[&str]) -> Run {
    let words: Vec<String> = line
        .iter()
        .map(|word| match word.ends_with(".yaml") {
            true => folder.join(word).to_str().unwrap().to_owned(),
            false => (*word).to_owned(),
        })
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut run = toolward(&words, "");
    let shown = format!("{}/", folder.to_str().unwrap());
    run.stdout = run.stdout.replace(&shown, "");
    run
}

#[test]
fn a_wider_policy_is_shown_with_examples_and_rules() {
    let folder = folder(&[("old.yaml", OLD), ("new.yaml", NEW)]);
    let wider = run(folder.path(), &["diff", "old.yaml", "new.yaml"]);
    assert_eq!(wider.code, 1, "{}", wider.stderr);
    // The manual shows this.
    let manual = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/changes.md"),
    );
    let shown: Vec<&str> =
        wider.stdout.lines().map(|line| line.split(" (agents").next().unwrap()).collect();
    for line in &shown {
        let words = line.split(".yaml").next().unwrap();
        assert!(manual.as_ref().unwrap().contains(words), "{line}");
    }
    assert!(wider.stdout.contains("wider  reviewer: tracker/get_secret: deny -> allow"));
    assert!(wider.stdout.contains("wider  reviewer: tracker/add_: deny -> allow"));
    assert!(wider.stdout.ends_with("wider in 2 ways\n"), "{}", wider.stdout);
    let allowed = run(folder.path(), &["diff", "--allow-wider", "old.yaml", "new.yaml"]);
    assert_eq!(allowed.code, 0);
    let narrower = run(folder.path(), &["diff", "new.yaml", "old.yaml"]);
    assert_eq!(narrower.code, 0);
    assert!(narrower.stdout.ends_with("nothing becomes wider\n"), "{}", narrower.stdout);
    let same = run(folder.path(), &["diff", "old.yaml", "old.yaml"]);
    assert_eq!((same.code, same.stdout.as_str()), (0, "no difference\n"));
}

#[test]
fn a_difference_is_printed_as_json_and_markdown() {
    let folder = folder(&[("old.yaml", OLD), ("new.yaml", NEW)]);
    let answer = run(folder.path(), &["diff", "--json", "old.yaml", "new.yaml"]);
    let answer: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(answer["wider"], json!(true));
    let example = json!({"agent": "reviewer", "server": "tracker", "tool": "get_secret"});
    let changes = answer["changes"].as_array().unwrap();
    let change = changes.iter().find(|change| change["example"] == example).unwrap();
    assert_eq!(change["before"]["rule"], json!("agents.reviewer.deny.tools.tracker[0]"));
    assert_eq!(change["after"]["verdict"], json!("allow"));
    let table =
        run(folder.path(), &["diff", "--format", "markdown", "old.yaml", "new.yaml"]).stdout;
    assert!(table.starts_with("**Policy change: wider in 2 ways**\n"), "{table}");
    assert!(table.contains("| **wider** | `reviewer: tracker/add_` | deny → allow |"), "{table}");
}

#[test]
fn known_tools_that_change_are_listed() {
    let folder = folder(&[("old.yaml", OLD), ("new.yaml", NEW)]);
    let list = "tracker=examples/first-policy/tools/tracker.json";
    let answer = run(folder.path(), &["diff", "--json", "old.yaml", "new.yaml", "--tools", list]);
    let answer: Value = serde_json::from_str(&answer.stdout).unwrap();
    let known = answer["known_tools"].as_array().unwrap();
    assert!(known.iter().all(|tool| tool["agent"] == json!("reviewer")), "{known:?}");
}

#[test]
fn changes_that_are_not_analyzed_make_the_answer_undecided() {
    let server = "servers: { tracker: { command: x } }\n";
    let limited = OLD.replace("  reviewer:\n", "  reviewer:\n    limits: { calls: 5/min }\n");
    let (old, new) = (format!("{server}{OLD}"), format!("{server}{limited}"));
    let folder = folder(&[("old.yaml", &old), ("new.yaml", &new)]);
    let undecided = run(folder.path(), &["diff", "old.yaml", "new.yaml"]);
    assert_eq!(undecided.code, 4);
    assert!(undecided.stdout.contains("not analyzed  limits changed"), "{}", undecided.stdout);
    let only = run(folder.path(), &["diff", "--policy-only", "old.yaml", "new.yaml"]);
    assert_eq!((only.code, only.stdout.as_str()), (0, "no difference\n"));
}

#[test]
fn another_token_is_a_change_that_is_not_analyzed() {
    let with = |token: &str| {
        let tokens = format!("  reviewer:\n    tokens: [\"${{{token}}}\"]\n");
        format!(
            "servers: {{ tracker: {{ command: x }} }}\n{}",
            OLD.replace("  reviewer:\n", &tokens)
        )
    };
    let folder = folder(&[("old.yaml", &with("A")), ("new.yaml", &with("B"))]);
    let undecided = run(folder.path(), &["diff", "old.yaml", "new.yaml"]);
    assert_eq!(undecided.code, 4, "{}", undecided.stderr);
    assert!(undecided.stdout.contains("not analyzed  identities changed"), "{}", undecided.stdout);
    assert_eq!(run(folder.path(), &["diff", "old.yaml", "old.yaml"]).code, 0);
}

#[test]
fn a_configuration_is_compared_with_the_layers_that_it_lists() {
    let config = "servers: { tracker: { command: x } }\npolicies: [layer.yaml]\n";
    let open = "servers: { tracker: { command: x } }\nallowed_tools: [\"*\"]\n";
    let folder = folder(&[
        ("old.yaml", config),
        ("layer.yaml", OLD),
        ("new.yaml", config),
        ("open.yaml", open),
    ]);
    assert_eq!(run(folder.path(), &["equal", "old.yaml", "new.yaml"]).code, 0);
    let wider = run(folder.path(), &["diff", "--policy-only", "old.yaml", "open.yaml"]);
    assert_eq!(wider.code, 1, "{}{}", wider.stdout, wider.stderr);
}

#[test]
fn policies_with_the_same_meaning_are_equal() {
    let rewritten = "\
roles:
  reader: { allow: { servers: [tracker], tools: { \"track*\": [\"get_*\"] } } }
agents:
  reviewer:
    roles: [reader]
    allow: { tools: { tracker: [add_comment, get_issue] } }
    deny: { tools: { \"*\": [get_secret] } }
";
    let folder = folder(&[("old.yaml", OLD), ("same.yaml", rewritten), ("new.yaml", NEW)]);
    let same = run(folder.path(), &["equal", "old.yaml", "same.yaml"]);
    assert_eq!((same.code, same.stdout.as_str()), (0, "equal: both decide everything alike\n"));
    let other = run(folder.path(), &["equal", "old.yaml", "new.yaml"]);
    assert_eq!(other.code, 1);
    assert!(other.stdout.starts_with("not equal\n  reviewer: tracker/"), "{}", other.stdout);
    let answer = run(folder.path(), &["equal", "--json", "old.yaml", "new.yaml"]).stdout;
    assert_eq!(serde_json::from_str::<Value>(&answer).unwrap()["equal"], json!(false));
}

#[test]
fn what_an_agent_can_ever_call_is_shown_with_its_rule() {
    let folder = folder(&[("old.yaml", OLD)]);
    let ask = |words: &[&str]| {
        let line = [&["can-ever", "--policy", "old.yaml"], words].concat();
        run(folder.path(), &line)
    };
    let never = ask(&["--as", "reviewer", "tracker/delete_*"]);
    assert_eq!((never.code, never.stdout.as_str()), (1, "never\n"));
    let yes = ask(&["--as", "reviewer", "*/get_*"]);
    assert_eq!(yes.code, 0);
    assert!(yes.stdout.contains("e.g. reviewer: tracker/get_"), "{}", yes.stdout);
    assert!(yes.stdout.contains("agents.reviewer.allow.tools.tracker[0]"), "{}", yes.stdout);
    assert_eq!(ask(&["--as", "nobody", "*/*"]).code, 1);
    assert_eq!(ask(&["tracker"]).code, 2);
    let answer = ask(&["--json", "tracker/get_secret"]).stdout;
    assert_eq!(serde_json::from_str::<Value>(&answer).unwrap()["answer"], json!("never"));
}

#[test]
fn a_misspelled_server_or_hint_of_can_ever_is_warned_about() {
    let config = format!("servers: {{ tracker: {{ command: unused }} }}\n{OLD}");
    let folder = folder(&[("toolward.yaml", &config), ("old.yaml", OLD)]);
    let ask = |flag: &str, file: &str, subject: &str| {
        let seen = run(folder.path(), &["can-ever", flag, file, subject]);
        (seen.code, seen.stdout, seen.stderr)
    };
    for (subject, warning) in [
        ("trakcer/*", "warning: there is no server named `trakcer`; did you mean `tracker`?\n"),
        (
            "tracker/hint:destuctive",
            "warning: no tool has the hint `destuctive`, and no server's `hints` define it\n",
        ),
    ] {
        assert_eq!(ask("-c", "toolward.yaml", subject), (1, "never\n".into(), warning.into()));
    }
    for subject in ["tracker/delete_*", "tr*/delete_*"] {
        assert_eq!(ask("-c", "toolward.yaml", subject), (1, "never\n".into(), String::new()));
    }
    // A policy without a configuration does not say which servers exist.
    assert_eq!(ask("--policy", "old.yaml", "trakcer/*"), (1, "never\n".into(), String::new()));
}

#[test]
fn the_agents_that_may_make_a_call_are_listed() {
    let folder = folder(&[("old.yaml", OLD)]);
    let ask = |tool: &str| run(folder.path(), &["who-can", "--json", "--policy", "old.yaml", tool]);
    let rows: Value = serde_json::from_str(&ask("tracker/get_issue").stdout).unwrap();
    assert_eq!(rows[0]["agent"], json!("reviewer"));
    assert_eq!(rows[0]["rule"], json!("agents.reviewer.allow.tools.tracker[0]"));
    assert_eq!(rows.as_array().unwrap().len(), 1);
    let nobody = ask("tracker/get_secret");
    assert_eq!((nobody.code, nobody.stdout.as_str()), (1, "[]\n"));
}

/// A policy with a `never` test.
fn never(rules: &str, test: &str) -> String {
    format!("agents:\n  dev: {rules}\ntests:\n  - never: {test}\n")
}

const SAFE: &str = r#"{ allow: { servers: [s] }, deny: { tools: { "*": ["hint:destructive"] } } }"#;
const OPEN: &str = "{ allow: { servers: [s], tools: { s: [\"put_*\", get] } } }";
const DESTRUCTIVE: &str = "{ calls: [\"*/hint:destructive\"] }";

#[test]
fn a_policy_that_breaks_a_never_test_is_shown_with_an_example_and_its_rule() {
    let folder = folder(&[
        ("safe.yaml", &never(SAFE, DESTRUCTIVE)),
        ("open.yaml", &never(OPEN, "{ as: \"d*\", calls: [s/put_all, \"*/hint:destructive\"] }")),
    ]);
    let safe = run(folder.path(), &["test", "--policy", "safe.yaml"]);
    let expected = "ok   everyone never */hint:destructive\n1 passed, 0 failed\n";
    assert_eq!((safe.code, safe.stdout.as_str()), (0, expected));
    let open = run(folder.path(), &["test", "--policy", "open.yaml"]);
    assert_eq!(open.code, 1);
    let line = "FAIL d* never s/put_all\n     allowed: dev: s/put_all\n     by `put_*` open.yaml:2:46 \
                (agents.dev.allow.tools.s[0])\n";
    assert!(open.stdout.starts_with(line), "{}", open.stdout);
    let report = run(folder.path(), &["test", "--json", "--policy", "open.yaml"]).stdout;
    let report: Value = serde_json::from_str(&report).unwrap();
    let example = json!({"agent": "dev", "server": "s", "tool": "put_all"});
    assert_eq!(report["cases"][0]["example"], example);
    assert_eq!((&report["failed"], &report["passed"]), (&json!(2), &json!(0)));
    let check = run(folder.path(), &["check", "--policy", "open.yaml"]);
    assert!(
        check.code == 1 && check.stderr.contains("FAIL d* never s/put_all"),
        "{}",
        check.stderr
    );
}

#[test]
fn an_undecided_never_test_fails_with_the_condition_that_it_depends_on() {
    let when = r#"{ tool: drop, when: 'claims.team == "ops"' }"#;
    let rules = format!("{{ allow: {{ servers: [s], tools: {{ s: [{when}] }} }} }}");
    let folder = folder(&[("p.yaml", &never(&rules, "{ calls: [s/drop] }"))]);
    let undecided = run(folder.path(), &["test", "--policy", "p.yaml"]);
    assert_eq!(undecided.code, 1);
    assert!(
        undecided.stdout.contains("undecided, perhaps allowed: dev: s/drop"),
        "{}",
        undecided.stdout
    );
    assert!(
        undecided.stdout.contains(r#"depends on `claims.team == "ops"`"#),
        "{}",
        undecided.stdout
    );
    let asks = "{ allow: { servers: [s], tools: { s: [{ tool: drop, ask: true }] } } }";
    let asked = |unless: &str| {
        let folder =
            self::folder(&[("p.yaml", &never(asks, &format!("{{ calls: [s/drop]{unless} }}")))]);
        run(folder.path(), &["test", "--policy", "p.yaml"])
    };
    assert_eq!(asked(", unless: ask").code, 0);
    let without = asked("");
    assert!(without.stdout.contains("`unless: ask` accepts this"), "{}", without.stdout);
}

#[test]
fn a_never_test_about_nothing_that_exists_is_reported() {
    let folder = folder(&[
        ("hint.yaml", &never(SAFE, "{ calls: [\"*/hint:destroy\"] }")),
        ("agent.yaml", &never(SAFE, "{ as: dve, calls: [\"*/x\"] }")),
    ]);
    let hint = run(folder.path(), &["test", "--policy", "hint.yaml"]);
    assert!(
        hint.code == 1 && hint.stdout.contains("no tool has the hint `destroy`"),
        "{}",
        hint.stdout
    );
    let agent = run(folder.path(), &["check", "--policy", "agent.yaml"]);
    assert!(agent.stderr.contains("a test is about the agent `dve`"), "{}", agent.stderr);
}

#[test]
fn changed_pins_are_not_analyzed() {
    let with =
        |pins: &str| format!("servers: {{ tracker: {{ command: x }} }}\npins: {pins}\n{OLD}");
    let folder = folder(&[("old.yaml", &with("strict")), ("new.yaml", &with("warn"))]);
    let undecided = run(folder.path(), &["diff", "old.yaml", "new.yaml"]);
    assert_eq!(undecided.code, 4, "{}", undecided.stderr);
    assert!(undecided.stdout.contains("not analyzed  pins changed"), "{}", undecided.stdout);
    assert_eq!(run(folder.path(), &["diff", "--policy-only", "old.yaml", "new.yaml"]).code, 0);
}

/// A sample; `./test --full model` compares every decision of a small scope.
#[test]
fn the_reference_model_decides_alike() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/model/compare.py");
    let run = std::process::Command::new("python3")
        .args([script, env!("CARGO_BIN_EXE_toolward"), "--sample", "120"])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
}
