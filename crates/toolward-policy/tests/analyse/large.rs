//! Large policies: what did not change is not searched.

use serde_json::{Value, json};
use toolward_policy::Family;
use toolward_policy::analyse::{Differences, Ever, Subjects, diff, never};

use crate::{agent, random};

/// The kinds of entries that real lists have: names, prefixes, suffixes, and a few that are harder.
fn entry(at: usize) -> String {
    let noun = ["issue", "page", "file", "row", "user", "branch", "event", "label"][at % 8];
    match at % 20 {
        0..=8 => format!("get_{noun}_{at}"),
        9..=12 => format!("list_{noun}_{at}_*"),
        13..=15 => format!("*_{noun}_{at}"),
        16..=17 => format!("set_{at}_?_*"),
        _ => format!("*{noun}{at}*delete*"),
    }
}

/// A policy with this number of entries, ten of which are changed.
fn policies(rules: usize) -> (Value, Value) {
    let entries: Vec<String> = (0..rules).map(entry).collect();
    let (allow, deny) = entries.split_at(rules * 4 / 5);
    let (mut new_allow, mut new_deny) = (allow.to_vec(), deny.to_vec());
    for change in 0..5 {
        let at = change * allow.len() / 5 + change;
        new_allow[at] = format!("put_{at}");
        new_deny.remove(change * new_deny.len() / 5);
    }
    (agent(json!(allow), json!(deny)), agent(json!(new_allow), json!(new_deny)))
}

fn compared(old: &Value, new: &Value, memory: usize) -> Differences {
    let subjects = Subjects { memory: Some(memory), ..Subjects::default() };
    diff(&random::policy(old), &random::policy(new), &subjects)
}

#[test]
fn ten_changes_among_two_thousand_entries_need_little_memory() {
    let (old, new) = policies(2000);
    // A search over all names would need far more.
    let found = compared(&old, &new, 16 << 20);
    assert_eq!(found.is_wider(), Some(true));
    assert!(found.undecided.is_empty(), "{:?}", found.undecided);
    let names: Vec<&str> = found.changes.iter().map(|change| change.point.name.as_str()).collect();
    assert!(names.contains(&"put_0"), "{names:?}");
    let same = compared(&old, &old, 1 << 10);
    assert_eq!(same.is_none(), Some(true));
}

#[test]
fn patterns_built_to_explode_are_undecided_within_their_memory() {
    let letters: Vec<String> = ('a'..='z').map(|c| format!("*{c}*{c}{c}*{c}*")).collect();
    let classes: Vec<String> = (0..30).map(|at| format!("*[a-{}]?????{at}*", 'z')).collect();
    for hostile in [letters, classes] {
        let before = agent(json!(["*"]), json!(hostile));
        let mut after = before.clone();
        after["agents"]["a"]["case"] = json!("insensitive");
        let found = compared(&before, &after, 1 << 20);
        assert_ne!(found.is_wider(), Some(false));
        let mut allow = json!(hostile);
        allow.as_array_mut().unwrap().push(json!("put"));
        let one = compared(&agent(json!(hostile), json!([])), &agent(allow, json!([])), 1 << 20);
        // The changed entry is a name, so the others are not searched.
        assert_eq!(one.is_wider(), Some(true));
    }
}

#[test]
fn an_allowlist_with_many_patterns_is_compared() {
    // Each of these may match the name of a server, its tool, or both.
    let mut entries: Vec<String> = (0..400).map(|at| entry(at + at % 3 * 7)).collect();
    entries.push("interact.navigate".into());
    let (old, mut new) = (json!({"allowed_tools": entries}), json!({"allowed_tools": entries}));
    new["allowed_tools"][7] = json!("put_*");
    new["allowed_tools"].as_array_mut().unwrap().push(json!("git.*"));
    let found = compared(&old, &new, 16 << 20);
    assert_eq!(found.is_wider(), Some(true));
    assert!(found.undecided.is_empty(), "{:?}", found.undecided);
    let names: Vec<(&str, &str)> = found
        .changes
        .iter()
        .map(|change| (change.point.server.as_str(), change.point.name.as_str()))
        .collect();
    assert!(names.iter().any(|(_, name)| *name == "git"), "{names:?}");
    assert!(names.iter().any(|(_, name)| *name == "put_"), "{names:?}");
    // An entry that others cover changes nothing, on any server.
    let mut redundant = old.clone();
    redundant["allowed_tools"].as_array_mut().unwrap().push(json!("list_issue_9_x*"));
    redundant["allowed_tools"][0] = json!("list_*");
    let mut same = redundant.clone();
    same["allowed_tools"].as_array_mut().unwrap().pop();
    assert_eq!(compared(&redundant, &same, 16 << 20).is_none(), Some(true));
}

#[test]
fn ten_changes_in_a_long_allowlist_need_little_memory() {
    let entries = std::env::var("ENTRIES").ok().and_then(|text| text.parse().ok());
    let entries: Vec<String> = (0..entries.unwrap_or(1000)).map(entry).collect();
    let mut changed = entries.clone();
    for change in 0..10 {
        let at = change * entries.len() / 10 + 2 * change;
        changed[at] = match change % 2 {
            0 => format!("put_{at}"),
            _ => format!("put_{at}_*"),
        };
    }
    let (old, new) = (json!({"allowed_tools": entries}), json!({"allowed_tools": changed}));
    let started = std::time::Instant::now();
    let memory = entries.len().max(1000) * 5000;
    let found = compared(&old, &new, memory);
    eprintln!("{} entries: {:?}", entries.len(), started.elapsed());
    assert!(found.undecided.is_empty(), "{:?}", found.undecided);
    let wider: Vec<&str> = found
        .changes
        .iter()
        .filter(|change| change.is_wider())
        .map(|change| change.point.name.as_str())
        .collect();
    assert!(wider.iter().all(|name| name.starts_with("put_")), "{wider:?}");
    // For a named agent and an unnamed caller.
    assert_eq!(wider.len(), 20, "{wider:?}");
    // The removed rules, and nothing else, are narrower.
    let back = compared(&new, &old, memory);
    assert!(back.undecided.is_empty(), "{:?}", back.undecided);
    assert_eq!(back.changes.iter().filter(|change| !change.is_wider()).count(), 20);
}

#[test]
fn never_is_decided_for_a_thousand_entries() {
    let entries: Vec<String> = (0..1000).map(entry).collect();
    let policy = random::policy(&agent(json!(entries), json!(["hint:destructive", "*secret*"])));
    let subjects = Subjects { memory: Some(1 << 20), ..Subjects::default() };
    for (selector, holds) in [
        ("hint:destructive", true),
        ("zap", true),
        ("get_secret", true),
        ("list_*", false),
        ("hint:read-only", false),
    ] {
        let answer = never(&policy, &subjects, Family::Tools, selector, false);
        assert_eq!(matches!(answer, Ever::Never), holds, "{selector}: {answer:?}");
        assert_eq!(matches!(answer, Ever::Yes(_)), !holds, "{selector}: {answer:?}");
    }
}
