//! `can-ever` and `never` tests.

use serde_json::{Value, json};
use toolward_policy::analyse::{Ever, Subjects, can_ever, never, never_tests};
use toolward_policy::source::Place;
use toolward_policy::testing::{NeverCall, NeverTest, PolicyTest};
use toolward_policy::{Family, Verdict};

use crate::random::{self, Random};
use crate::{agent, decide, sample, world};

/// The answer in a word, with the name of its example.
fn answer(policy: &Value, subjects: &Subjects<'_>, selector: &str, unless_ask: bool) -> String {
    let policy = random::policy(policy);
    match never(&policy, subjects, Family::Tools, selector, unless_ask) {
        Ever::Yes(witness) => {
            assert_eq!(decide(&policy, &witness.point), witness.decision, "{witness:?}");
            format!("allowed {}", witness.point.name)
        }
        Ever::Asks(witness) => format!("asks {}", witness.point.name),
        Ever::Never => "never".into(),
        Ever::Depends(witness) => format!("depends {}", witness.depends_on.join(" ")),
        Ever::Undecided(_) => "undecided".into(),
    }
}

fn of_everyone(policy: &Value, selector: &str) -> String {
    answer(policy, &Subjects::default(), selector, false)
}

#[test]
fn never_holds_for_tools_that_do_not_exist_yet() {
    let safe = agent(json!(["*"]), json!(["hint:destructive", "drop_*"]));
    assert_eq!(of_everyone(&safe, "hint:destructive"), "never");
    assert_eq!(of_everyone(&safe, "drop_*"), "never");
    assert_eq!(of_everyone(&safe, "*_all"), "allowed _all");
    assert_eq!(
        of_everyone(&agent(json!(["get_*"]), json!([])), "hint:destructive"),
        "allowed get_"
    );
    assert_eq!(
        of_everyone(&agent(json!(["hint:read-only"]), json!([])), "hint:destructive"),
        "never"
    );
}

#[test]
fn an_action_of_a_tool_that_is_allowed_as_a_whole_can_be_called() {
    let whole = agent(json!(["board"]), json!([]));
    assert_eq!(of_everyone(&whole, "board.archive"), "allowed board");
    let shown = agent(json!(["board.show"]), json!([]));
    assert_eq!(of_everyone(&shown, "board.archive"), "never");
    let denied = agent(json!(["board"]), json!(["board.arch*"]));
    assert_eq!(of_everyone(&denied, "board.archive"), "never");
}

#[test]
fn approval_counts_unless_it_is_accepted() {
    let asks = agent(json!([{"tool": "put_*", "ask": true}, "get_*"]), json!([]));
    assert_eq!(of_everyone(&asks, "put_*"), "asks put_");
    assert_eq!(answer(&asks, &Subjects::default(), "put_*", true), "never");
    assert_eq!(answer(&asks, &Subjects::default(), "*", true), "allowed get_");
    let policy = random::policy(&asks);
    let found = can_ever(&policy, &Subjects::default(), Family::Tools, "put_*");
    assert!(matches!(found, Ever::Asks(_)), "{found:?}");
}

#[test]
fn what_depends_on_an_unknown_condition_does_not_hold() {
    let claims = r#"claims.team == "ops""#;
    let policy = agent(json!([{"tool": "drop", "when": claims}]), json!([]));
    assert_eq!(of_everyone(&policy, "drop"), format!("depends {claims}"));
    let impossible =
        agent(json!([{"tool": "drop", "when": "args.n > 5 && args.n < 3"}]), json!([]));
    assert_eq!(of_everyone(&impossible, "drop"), "never");
}

#[test]
fn agents_of_a_pattern_are_those_that_no_rule_names_too() {
    let policy = json!({
        "agents": {
            "ci-main": {"allow": {"servers": ["x"]}},
            "default": {"allow": {"servers": ["s"]}}
        },
        "defaults": {"deny_on_missing_agent": false}
    });
    let agents =
        |agents| Subjects { agents: Some(agents), servers: Some("s"), ..Subjects::default() };
    assert_eq!(answer(&policy, &agents("ci-*"), "*", false), "allowed a");
    assert_eq!(answer(&policy, &agents("ci-main"), "*", false), "never");
}

#[test]
fn prompts_and_resources_are_never_allowed_either() {
    let policy = random::policy(&json!({"agents": {"a": {"allow": {
        "servers": ["s"], "tools": {"s": ["x"]},
        "prompts": {"s": ["get_*"]}, "resources": {"s": ["note:*"]}
    }}}}));
    let ask = |family, selector| never(&policy, &Subjects::default(), family, selector, false);
    assert!(matches!(ask(Family::Prompts, "put_*"), Ever::Never));
    assert!(matches!(ask(Family::Prompts, "*_x"), Ever::Yes(_)));
    assert!(matches!(ask(Family::Resources, "file:*"), Ever::Never));
    assert!(matches!(ask(Family::Resources, "note:1*"), Ever::Yes(_)));
}

fn test(agents: Option<&str>, selector: &str) -> PolicyTest {
    let call = NeverCall {
        family: Family::Tools,
        server: "*".into(),
        selector: selector.into(),
        written: format!("*/{selector}"),
        place: Place::default(),
    };
    let agents = agents.map(String::from);
    let never = NeverTest { agents, calls: vec![call], unless_ask: false };
    PolicyTest { never: Some(never), ..PolicyTest::default() }
}

#[test]
fn a_test_that_could_not_fail_does_not_pass() {
    let policy = random::policy(&agent(json!(["get_*"]), json!([])));
    let tests = [test(Some("*"), "put"), test(None, "get_x"), test(None, "hint:destructiv")];
    let outcomes = never_tests(&policy, &tests);
    let passed: Vec<bool> = outcomes.iter().map(|outcome| outcome.passed()).collect();
    assert_eq!(passed, [true, false, false]);
    assert!(outcomes[2].vacuous.as_ref().unwrap().contains("destructiv"));
}

#[test]
fn the_name_of_a_server_is_not_a_part_of_a_denied_name() {
    // `ab.a` matches both patterns, but only entries of allowlists are compared with it.
    let policy = random::policy(&json!({
        "agents": {"a": {"allow": {"servers": ["ab"]}, "deny": {"tools": {"*": ["*a*b*"]}}}},
        "allowed_tools": ["a*"],
    }));
    let answer = never(&policy, &Subjects::default(), Family::Tools, "x", false);
    assert!(matches!(answer, Ever::Yes(_)), "{answer:?}");
}

#[test]
fn a_condition_that_fails_skips_an_allow_and_matches_a_deny() {
    // The condition is not analyzed. If it holds or fails, the deny matches; if not, no entry does.
    let when = json!({"tool": "x", "when": "args.items.exists(one, one > 1)"});
    let policy = random::policy(&agent(json!([when, "y"]), json!([when])));
    let answer = never(&policy, &Subjects::default(), Family::Tools, "x", false);
    assert!(matches!(answer, Ever::Never), "{answer:?}");
}

#[test]
fn an_agent_that_a_pattern_stands_for_has_a_plain_name() {
    let agents = json!({"ci-*": {"allow": {"servers": ["s"]}}});
    let policy = random::policy(&json!({"agents": agents, "patterns": true}));
    let answer = never(&policy, &Subjects::default(), Family::Tools, "x", false);
    let Ever::Yes(witness) = answer else { panic!("{answer:?}") };
    assert_eq!(witness.point.agent.as_deref(), Some("ci-"));
}

#[test]
fn never_is_never_wrong() {
    let world = world();
    let mut random = Random(11);
    let (mut held, mut undecided) = (0, 0);
    let policies = std::env::var("PAIRS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    for at in 0..policies {
        let (value, _) = random::pair(&mut random);
        let policy = random::policy(&value);
        let selector = ["a", "*b", "a.b", "hint:destructive", "hint:read-only", "?a", "*"][at % 7];
        let answer = never(&policy, &Subjects::default(), Family::Tools, selector, true);
        undecided += usize::from(matches!(answer, Ever::Undecided(_)));
        let Ever::Never = answer else { continue };
        held += 1;
        let asked = toolward_policy::selector::Selector::new(selector, Default::default());
        for point in sample(&world, &mut random, 3000) {
            let tool = toolward_policy::Tool::new(&point.name, &point.definition);
            let covered = asked.names_tool(&point.name)
                || asked.carried_by(&policy.hints(&point.server, &tool));
            if point.kind == toolward_policy::analyse::PointKind::Tool && covered {
                let verdict = decide(&policy, &point).verdict;
                assert_ne!(verdict, Verdict::Allow, "{selector} {point:?}\n{value}");
            }
        }
    }
    eprintln!("{policies} policies: {held} held, {undecided} undecided");
    assert!(held * 20 > policies, "{held} held");
    assert!(undecided * 100 <= policies.max(100), "{undecided} undecided");
}
