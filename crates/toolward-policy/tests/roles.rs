//! Roles and agent patterns: agents that share rules.
#![allow(clippy::unwrap_used)]

mod common;

use serde_json::{Value, json};
use toolward_policy::{
    Call, Caller, Catalogue, CompileProblem, Policy, Step, Subject, Tool, Verdict,
};

use common::{policy, source};

fn decide(policy: &Policy, agent: &str, server: &str, tool: &str) -> (Verdict, Option<String>) {
    let decision =
        policy.decide(Caller::named(agent), server, &Tool::named(tool), &Call::default());
    (decision.verdict, policy.rule(&decision).map(|rule| rule.path))
}

fn allowed(policy: &Policy, agent: &str, server: &str, tool: &str) -> bool {
    decide(policy, agent, server, tool).0 == Verdict::Allow
}

fn shared() -> Value {
    json!({
        "roles": {
            "reader": {"allow": {"servers": ["*"], "tools": {"*": ["get_*"]}}},
            "careful": {"deny": {"servers": ["vault"], "tools": {"*": ["get_secret"]}}}
        },
        "agents": {
            "reviewer": {
                "roles": ["reader", "careful"],
                "allow": {"servers": ["chat"], "tools": {"tracker": ["comment"]}},
                "deny": {"servers": ["billing"]}
            },
            "auditor": {"roles": ["reader"], "case": "insensitive"}
        }
    })
}

#[test]
fn an_agent_has_the_rules_of_its_roles_and_its_own() {
    let policy = policy(&shared());
    assert!(allowed(&policy, "reviewer", "tracker", "get_issue"));
    assert!(allowed(&policy, "reviewer", "tracker", "comment"));
    assert!(!allowed(&policy, "reviewer", "tracker", "get_secret"));
    assert!(!allowed(&policy, "reviewer", "vault", "get_issue"));
    assert!(!allowed(&policy, "reviewer", "billing", "get_issue"));
    assert!(allowed(&policy, "auditor", "vault", "get_secret"));
    assert!(!allowed(&policy, "auditor", "tracker", "comment"));
}

#[test]
fn a_role_is_compared_by_the_case_of_its_agent() {
    let policy = policy(&shared());
    assert!(allowed(&policy, "auditor", "tracker", "GET_issue"));
    assert!(!allowed(&policy, "reviewer", "tracker", "GET_issue"));
}

#[test]
fn a_decision_names_the_role_that_its_rule_comes_from() {
    let policy = policy(&shared());
    let rule = |agent, server, tool| decide(&policy, agent, server, tool).1.unwrap();
    assert_eq!(rule("reviewer", "t", "get_x"), "roles.reader.allow.tools[\"*\"][0]");
    assert_eq!(rule("reviewer", "t", "get_secret"), "roles.careful.deny.tools[\"*\"][0]");
    assert_eq!(rule("reviewer", "vault", "x"), "roles.careful.deny.servers[0]");
    assert_eq!(rule("reviewer", "billing", "x"), "agents.reviewer.deny.servers[0]");
    assert_eq!(rule("reviewer", "tracker", "comment"), "agents.reviewer.allow.tools.tracker[0]");
    let server = policy.decide_server(Some("reviewer"), "chat");
    assert_eq!(policy.rule(&server).unwrap().path, "roles.reader.allow.servers[0]");
}

#[test]
fn requests_to_the_client_are_those_of_all_roles() {
    let policy = policy(&json!({
        "roles": {
            "asks": {"allow": {"client_requests": ["sampling"]}},
            "plain": {"allow": {"servers": ["*"]}}
        },
        "agents": {
            "a": {"roles": ["plain", "asks"], "allow": {"client_requests": ["roots"]}},
            "b": {"roles": ["plain"]}
        }
    }));
    let may = |agent, request| {
        let cell = policy.cell(Some(agent), "s", Subject::ClientRequest(request));
        let decision = cell.decide(Caller::named(agent), &Call::default());
        (decision.is_allowed(), policy.rule(&decision).map(|rule| rule.path))
    };
    let sampling = Some("roles.asks.allow.client_requests[0]".into());
    assert_eq!(may("a", "sampling"), (true, sampling));
    assert_eq!(may("a", "roots"), (true, Some("agents.a.allow.client_requests[0]".into())));
    assert!(!may("a", "elicitation.form").0);
    // Without a setting, the default applies.
    assert!(may("b", "elicitation.form").0 && !may("b", "sampling").0);
}

#[test]
fn a_role_that_does_not_exist_is_an_error() {
    let errors = Policy::compile(source(&json!({"agents": {"a": {"roles": ["x"]}}}))).unwrap_err();
    assert_eq!(errors[0].problem, CompileProblem::UnknownRole("x".into()));
    assert_eq!(errors[0].path, "agents.a.roles");
}

#[test]
fn a_mistake_in_a_role_is_reported_once() {
    let shared = json!({
        "roles": {"r": {"allow": {"servers": ["*"], "tools": {"s": ["a", "a", "hint:odd"]}}}},
        "agents": {"a": {"roles": ["r"]}, "b": {"roles": ["r"]}}
    });
    let lints = policy(&shared).lint(&Catalogue::default());
    let paths: Vec<&str> = lints.iter().map(|lint| lint.path.as_str()).collect();
    assert_eq!(paths, ["roles.r.allow.tools.s[1]", "roles.r.allow.tools.s[2]"]);
    let wrong = json!({
        "roles": {"r": {"allow": {"tools": {"s": [{"tool": "x", "when": "nothing"}]}}}},
        "agents": {"a": {"roles": ["r"]}, "b": {"roles": ["r"]}}
    });
    let errors = Policy::compile(source(&wrong)).unwrap_err();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].path, "roles.r.allow.tools.s[0]");
}

fn patterns() -> Policy {
    policy(&json!({
        "patterns": true,
        "agents": {
            "ci-*": {"allow": {"servers": ["build"]}},
            "ci-main": {"allow": {"servers": ["deploy"]}},
            "default": {"allow": {"servers": ["docs"]}}
        },
        "defaults": {"deny_on_missing_agent": false}
    }))
}

#[test]
fn an_exact_name_takes_precedence_over_a_pattern_and_a_pattern_over_default() {
    let policy = patterns();
    for (agent, server) in [
        ("ci-7", "build"),
        ("ci-", "build"),
        ("ci-main", "deploy"),
        ("dev", "docs"),
        ("CI-7", "docs"),
    ] {
        for other in ["build", "deploy", "docs"] {
            assert_eq!(allowed(&policy, agent, other, "x"), other == server, "{agent} {other}");
        }
    }
    let nobody = policy.decide_server(None, "build");
    assert_eq!(nobody.step, Step::ServerNotAllowed, "an unnamed caller matches no pattern");
    assert!(policy.knows_agent("ci-7") && !policy.knows_agent("dev"));
    assert!(policy.has_rules_of("ci-7") && !policy.has_rules_of("dev"));
}

#[test]
fn a_name_is_a_pattern_only_where_the_loader_says_so() {
    let literal = policy(&json!({"agents": {"ci-*": {"allow": {"servers": ["build"]}}}}));
    assert!(!allowed(&literal, "ci-7", "build", "x"));
    assert!(allowed(&literal, "ci-*", "build", "x"));
}

#[test]
fn a_name_that_two_patterns_match_is_an_error() {
    let both = json!({"patterns": true, "agents": {"ci-*": {}, "*-prod": {}, "cd-*": {}}});
    let errors = Policy::compile(source(&both)).unwrap_err();
    let names: Vec<&CompileProblem> = errors.iter().map(|error| &error.problem).collect();
    let common = |pattern: &str, name: &str| CompileProblem::OverlappingAgents {
        pattern: pattern.into(),
        name: name.into(),
    };
    assert_eq!(names, [&common("ci-*", "ci-prod"), &common("*-prod", "cd-prod")]);
}
