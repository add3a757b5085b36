//! Tool lists of real servers. They are not part of this repository, because others wrote them; if the
//! directory is not there, these tests report that they were skipped.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "corpus/hint_sets.rs"]
mod hint_sets;
mod program;
#[path = "program/real_lists.rs"]
mod real_lists;

use program::toolward;
use real_lists::real_lists;
use serde_json::{Value, json};

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
