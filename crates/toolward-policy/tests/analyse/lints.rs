//! Lints that need a search: rules that can never decide.

use std::collections::HashSet;

use serde_json::{Value, json};
use toolward_policy::Catalogue;
use toolward_policy::lint::LintKind;

use crate::random::{self, Random};
use crate::{agent, decide, sample, world};

/// The paths of rules that can never decide, without their beginning.
fn dead(policy: &Value) -> Vec<String> {
    let lints = random::policy(policy).lint(&Catalogue::default());
    let found = lints
        .iter()
        .filter(|lint| matches!(lint.kind, LintKind::Shadowed | LintKind::NeverMatches));
    found.map(|lint| lint.path.replace("agents.a.", "")).collect()
}

#[test]
fn entries_that_others_cover_together_are_found() {
    let together = agent(json!(["[a-m]*", "[n-z]*", "[a-z]?*", "get_*"]), json!([]));
    assert_eq!(dead(&together), ["allow.tools.s[2]", "allow.tools.s[3]"]);
    let apart = agent(json!(["[a-m]*", "[o-z]*", "[a-z]?*"]), json!([]));
    assert_eq!(dead(&apart), [""; 0]);
    // A condition may be false.
    let unsure = agent(json!([{"tool": "[a-m]*", "when": "args.n > 1"}, "[a-c]*"]), json!([]));
    assert_eq!(dead(&unsure), [""; 0]);
    let denied = agent(json!(["x_*", "y"]), json!(["x_a*", "x_[!a]*", "x_"]));
    assert_eq!(dead(&denied), ["allow.tools.s[0]"]);
    let list = json!({"allowed_tools": ["get_?", "get_??*", "get_", "get_*"]});
    assert_eq!(dead(&list), ["allowed_tools[3]"]);
}

#[test]
fn exact_entries_are_evaluated_before_patterns() {
    assert_eq!(dead(&agent(json!(["get_*", "get_x"]), json!([]))), [""; 0]);
    assert_eq!(dead(&agent(json!(["get_*", "get_x*"]), json!([]))), ["allow.tools.s[1]"]);
}

#[test]
fn entries_of_other_keys_count_on_the_servers_that_they_match() {
    let with = |first: &str| {
        json!({"agents": {"a": {"allow": {
            "servers": ["s", "t"],
            "tools": {first: ["get_*"], "[st]": ["get_x*"]}
        }}}})
    };
    assert_eq!(dead(&with("*")), [r#"allow.tools["[st]"][0]"#]);
    // On the other server, the entry decides.
    assert_eq!(dead(&with("s")), [""; 0]);
    let unused = json!({"agents": {"a": {"allow": {"servers": ["s"], "tools": {"t*": ["x"]}}}}});
    assert_eq!(dead(&unused), [r#"allow.tools["t*"][0]"#]);
}

#[test]
fn hints_and_actions_are_covered_too() {
    let hints = json!(["hint:read-only", "hint:read-only+closed-world", "hint:idempotent"]);
    assert_eq!(dead(&agent(hints, json!([]))), ["allow.tools.s[1]"]);
    // Every tool is one or the other.
    let worlds = agent(json!(["*"]), json!(["hint:open-world", "hint:closed-world"]));
    assert_eq!(dead(&worlds), ["allow.tools.s[0]"]);
    let actions = agent(json!(["board.*", "board.show", "x.a*", "x.ab"]), json!([]));
    assert_eq!(dead(&actions), [""; 0], "exact entries come first");
    let patterns = agent(json!(["x.a*", "x.ab*", "x.b*"]), json!([]));
    assert_eq!(dead(&patterns), ["allow.tools.s[1]"]);
}

#[test]
fn entries_for_tools_that_are_not_exposed_never_match() {
    let mut policy =
        agent(json!(["get_*", "put_*", "put", "get_x.go", "hint:read-only"]), json!([]));
    policy["servers"] = json!({"s": {"expose": ["get_x", "list_*"]}});
    assert_eq!(dead(&policy), ["allow.tools.s[1]", "allow.tools.s[2]"]);
}

#[test]
fn a_rule_that_is_called_dead_never_decides() {
    let world = world();
    let mut random = Random(5);
    let mut found = 0;
    for _ in 0..40 {
        let (value, _) = random::pair(&mut random);
        let policy = random::policy(&value);
        let dead: HashSet<String> = policy
            .lint(&Catalogue::default())
            .into_iter()
            .filter(|lint| lint.kind == LintKind::Shadowed)
            .map(|lint| lint.path)
            .collect();
        found += dead.len();
        if dead.is_empty() {
            continue;
        }
        for point in sample(&world, &mut random, 1500) {
            let decision = decide(&policy, &point);
            let path = policy.rule(&decision).map(|rule| rule.path);
            let is_dead = path.as_ref().is_some_and(|path| dead.contains(path));
            assert!(!is_dead, "{path:?} decides {point:?}\n{value}");
        }
    }
    assert!(found > 8, "{found} dead rules");
}

#[test]
fn linting_many_patterns_is_bounded() {
    let pair = |letter: char| [format!("{letter}?"), format!("{letter}??*"), format!("{letter}?*")];
    let many = (0..600).map(|at| format!("*_{at}_x?y*"));
    let entries: Vec<String> = pair('q').into_iter().chain(many).chain(pair('r')).collect();
    // The last pair is not found: there are too many patterns before it.
    assert_eq!(dead(&agent(json!(entries), json!([]))), ["allow.tools.s[2]"]);
}
