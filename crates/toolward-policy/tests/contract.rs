//! Statements of the contract that the case files do not cover, each as a test.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Request, policy, source};
use serde_json::{Value, json};
use toolward_policy::condition::{Condition, ConditionError};
use toolward_policy::explain::{Outcome, Query};
use toolward_policy::lint::LintKind;
use toolward_policy::reason::About;
use toolward_policy::source::*;
use toolward_policy::testing::{Expect, PolicyTest, TestArguments, TestCase};
use toolward_policy::{
    Call, Caller, Catalogue, CompileProblem, Family, Policy, Step, Subject, Tool, ToolSet, Verdict,
};

fn decide(policy: &Policy, request: Value) -> (&'static str, &'static str) {
    let decision = Request::new(&request).decide(policy);
    (decision.verdict.as_str(), decision.step.as_str())
}

fn agent(allow: Value, deny: Value) -> Policy {
    policy(&json!({"agents": {"dev": {"allow": allow, "deny": deny}}}))
}

/// A policy with one server that has operator settings.
fn with_server(value: &Value, server: ServerSource) -> Policy {
    let mut source = source(value);
    source.servers.push(server);
    Policy::compile(source).unwrap()
}

#[test]
fn a_server_may_be_denied_by_pattern_and_deny_wins() {
    let policy = agent(json!({"servers": ["*"]}), json!({"servers": ["no*"]}));
    assert_eq!(
        decide(&policy, json!({"agent": "dev", "server": "notion", "tool": "x"})),
        ("deny", "server-deny")
    );
    assert_eq!(
        decide(&policy, json!({"agent": "dev", "server": "github", "tool": "x"})),
        ("allow", "5-implicit-grant")
    );
}

#[test]
fn case_insensitive_agents_fold_servers_keys_tools_and_actions() {
    let policy = policy(&json!({"agents": {"dev": {
        "case": "insensitive",
        "allow": {"servers": ["WEB"], "tools": {"wEb": ["Interact.Navigate"]}},
    }}}));
    let request = json!({"agent": "dev", "server": "Web", "tool": "INTERACT", "arguments": {"action": "NAVIGATE"}});
    assert_eq!(decide(&policy, request), ("allow", "3-exact-allow"));
    let request = json!({"agent": "DEV", "server": "Web", "tool": "INTERACT", "arguments": {"action": "NAVIGATE"}});
    assert_eq!(decide(&policy, request), ("deny", "unknown-agent"));
}

#[test]
fn action_keys_can_be_chosen_for_each_tool() {
    let server = ServerSource {
        action_keys: ActionKeysSource::ByTool(vec![
            ("run_*".into(), vec!["mode".into()]),
            ("run_fast".into(), vec!["speed".into()]),
        ]),
        ..ServerSource::new("web")
    };
    let policy = with_server(
        &json!({"allowed_tools": ["*.safe", "run_fast.safe", "run_slow.safe", "other.safe"]}),
        server,
    );
    let call = |tool: &str, arguments: Value| {
        decide(&policy, json!({"server": "web", "tool": tool, "arguments": arguments})).0
    };
    assert_eq!(call("run_slow", json!({"mode": "safe"})), "allow");
    assert_eq!(call("run_slow", json!({"action": "safe"})), "deny");
    assert_eq!(call("run_fast", json!({"speed": "safe"})), "allow");
    assert_eq!(call("run_fast", json!({"mode": "safe"})), "deny");
    assert_eq!(call("other", json!({"action": "safe"})), "allow");
}

#[test]
fn ambiguous_actions_are_denied_before_any_rule() {
    let policy = agent(
        json!({"servers": ["*"], "tools": {"web": ["interact", "interact.navigate"]}}),
        json!({}),
    );
    let call = |arguments: Value| {
        decide(
            &policy,
            json!({"agent": "dev", "server": "web", "tool": "interact", "arguments": arguments}),
        )
    };
    assert_eq!(call(json!({"action": "navigate"})), ("allow", "3-exact-allow"));
    assert_eq!(call(json!({})), ("allow", "3-exact-allow"));
    for ambiguous in [
        json!({"action": "navigate", "what": "run"}),
        json!({"action": null}),
        json!({"action": ["navigate"]}),
        json!({"what": "navigate", "action": 1}),
        json!({"ACTION": "navigate"}),
        json!({"action": "navigate", "What": "navigate"}),
    ] {
        assert_eq!(call(ambiguous.clone()), ("deny", "ambiguous-action"), "{ambiguous}");
    }
    assert_eq!(call(json!({"action": "navigate", "what": "navigate"})).0, "allow");
}

#[test]
fn a_missing_action_is_ambiguous_if_a_deny_rule_names_one() {
    let deny =
        |selector: &str| agent(json!({"servers": ["*"]}), json!({"tools": {"web": [selector]}}));
    let plain = json!({"agent": "dev", "server": "web", "tool": "interact"});
    assert_eq!(decide(&deny("interact.run"), plain.clone()), ("deny", "ambiguous-action"));
    assert_eq!(decide(&deny("inter*.run"), plain.clone()), ("allow", "5-implicit-grant"));
    let mut declared = plain.clone();
    declared["definition"] = json!({"inputSchema": {"properties": {"action": {}}}});
    assert_eq!(decide(&deny("inter*.run"), declared), ("deny", "ambiguous-action"));
}

#[test]
fn an_argument_that_only_unicode_folding_makes_an_action_key_is_ambiguous() {
    let server = ServerSource {
        action_keys: ActionKeysSource::All(vec!["task".into()]),
        ..ServerSource::new("web")
    };
    let policy = with_server(&json!({"allowed_tools": ["run.safe"]}), server);
    let request =
        json!({"server": "web", "tool": "run", "arguments": {"task": "safe", "taſk": "rm"}});
    assert_eq!(decide(&policy, request), ("deny", "ambiguous-action"));
}

#[test]
fn stated_hints_replace_claims_and_the_careful_one_holds() {
    let server = ServerSource {
        hints: vec![
            ("get_*".into(), vec!["read-only".into()]),
            ("*_issue".into(), vec!["writes-to-tracker".into()]),
            ("create_issue".into(), vec!["idempotent".into(), "non-destructive".into()]),
            (
                "get_odd".into(),
                vec!["read-only".into(), "destructive".into(), "closed-world".into()],
            ),
        ],
        ..ServerSource::new("github")
    };
    let policy = with_server(&json!({"allowed_tools": []}), server);
    let hints = |tool: &str| {
        policy.hints("github", &Tool::named(tool)).iter().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(hints("get_user"), ["open-world", "read-only"]);
    assert_eq!(hints("get_issue"), ["open-world", "read-only", "writes-to-tracker"]);
    assert_eq!(hints("close_issue"), ["destructive", "open-world", "writes-to-tracker"]);
    assert_eq!(hints("create_issue"), ["idempotent", "open-world"]);
    assert_eq!(hints("get_odd"), ["closed-world", "destructive"]);
    assert_eq!(hints("other"), ["destructive", "open-world"]);
}

#[test]
fn a_server_that_is_not_trusted_cannot_claim_anything() {
    let claims = json!({"annotations": {"readOnlyHint": true, "openWorldHint": false}});
    let tool = Tool::new("get", claims.as_object().unwrap());
    let server = ServerSource { trust_annotations: false, ..ServerSource::new("far") };
    let policy = with_server(&json!({"allowed_tools": ["hint:read-only"]}), server);
    assert!(!policy.decide(Caller::default(), "far", &tool, &Call::default()).is_allowed());
    assert!(policy.decide(Caller::default(), "near", &tool, &Call::default()).is_allowed());
}

#[test]
fn conditions_are_checked_at_load() {
    let error = |text: &str| Condition::new(text).unwrap_err();
    assert!(matches!(error("args.path.startsWith("), ConditionError::Syntax { .. }));
    assert_eq!(error("argz.path == 1"), ConditionError::UnknownVariable("argz".into()));
    assert_eq!(error("args.all(x, y == x)"), ConditionError::UnknownVariable("y".into()));
    assert_eq!(error("open('/etc/passwd') == ''"), ConditionError::UnknownFunction("open".into()));
    assert!(matches!(error(""), ConditionError::Syntax { .. }));
    assert!(Condition::new("args.list.all(x, x > 1) && size(hints) < 3").is_ok());
    assert!(Condition::new("has(args.a) ? args.a == 'b' : action != null").is_ok());
}

#[test]
fn no_condition_can_end_the_program_or_take_forever() {
    let deep = |open: &str, close: &str, depth: usize| {
        format!("{}true{}", open.repeat(depth), close.repeat(depth))
    };
    // Rejected in one way or another, without a panic or a crash.
    for depth in [90, 300, 900, 100_000] {
        for (open, close) in
            [("[", "]"), ("bool(", ")"), ("{1: ", "}"), ("1 + ", ""), ("1 in ", "")]
        {
            assert!(Condition::new(&deep(open, close, depth)).is_err(), "{open} {depth}");
            let hidden = format!("// \"\n r'\\' == '' || {}", deep(open, close, depth));
            assert!(Condition::new(&hidden).is_err(), "{open} {depth}");
        }
        let _ = Condition::new(&deep("(", ")", depth));
        let _ = Condition::new(&deep("!", "", depth));
        let _ = Condition::new(&deep("-", "", depth));
        let _ = Condition::new(&format!("args{}", ".a".repeat(depth)));
        let _ = Condition::new(&format!("args{}", "['a']".repeat(depth)));
    }
    assert_eq!(
        Condition::new("args.l.all(a, args.l.exists(b, b == a))").unwrap_err(),
        ConditionError::NestedLoops
    );
    assert!(Condition::new("args.l.filter(a, a > 1).all(a, a < 9)").is_ok());
    // The deepest accepted nesting can be evaluated on an ordinary stack.
    let nested = deep("bool(", ")", 45).replace("true", "args.ok");
    let policy = policy(&json!({"allowed_tools": [
        {"tool": "deep", "when": nested}, {"tool": "loop", "when": "args.l.all(x, x == 1)"}
    ]}));
    let ask = |tool: &str, arguments: Value| {
        decide(&policy, json!({"server": "s", "tool": tool, "arguments": arguments})).0
    };
    assert_eq!(ask("deep", json!({"ok": true})), "allow");
    assert_eq!(ask("loop", json!({"l": vec![1; 1000]})), "allow");
    assert_eq!(ask("loop", json!({"l": vec![1; 5000]})), "deny");
}

#[test]
fn a_condition_that_can_never_be_true_or_false_is_refused() {
    for text in ["1", "'true'", "null", "[]", "args.x.matches('(')"] {
        assert!(matches!(Condition::new(text), Err(ConditionError::NotACondition(_))), "{text}");
    }
    assert!(Condition::new("true").is_ok() && Condition::new("false").is_ok());
}

#[test]
fn every_documented_function_can_be_called() {
    let expressions = [
        "size(args.s) == 3",
        "args.s.contains('b')",
        "args.s.startsWith('a')",
        "args.s.endsWith('c')",
        "args.s.matches('^a.c$')",
        "string(args.n) == '7'",
        "int(args.n) == 7",
        "uint(args.n) == 7u",
        "double(args.n) == 7.0",
        "bool('true')",
        "type(args.n) == int",
        "dyn(args.n) == 7",
    ];
    for expression in expressions {
        let policy = policy(&json!({"allowed_tools": [{"tool": "*", "when": expression}]}));
        let request = json!({"server": "s", "tool": "t", "arguments": {"s": "abc", "n": 7}});
        assert_eq!(decide(&policy, request).0, "allow", "{expression}");
    }
}

#[test]
fn conditions_see_the_context_of_the_contract() {
    let holds = |when: &str| {
        let policy = policy(&json!({"allowed_tools": [{"tool": "*", "when": when}]}));
        let definition = json!({"inputSchema": {"properties": {"action": {}}}, "title": "T"});
        let tool = Tool::new("t", definition.as_object().unwrap());
        let arguments = json!({"action": "go", "n": 1});
        let claims = json!({"groups": ["a", "b"]});
        let caller = Caller { agent: Some("dev"), claims: claims.as_object() };
        let call = Call::with(arguments.as_object().unwrap());
        policy.decide(caller, "s", &tool, &call).is_allowed()
    };
    for when in [
        "agent == 'dev'",
        "server == 's'",
        "tool == 't'",
        "action == 'go'",
        "args.n == 1",
        "'open-world' in hints",
        "'b' in claims.groups",
        "definition.title == 'T'",
    ] {
        assert!(holds(when), "{when}");
    }
    for when in ["args.n", "args.missing == 1", "args.n == '1'", "claims.sub == 'x'"] {
        assert!(!holds(when), "{when}");
    }
}

#[test]
fn a_condition_on_arguments_is_depends_while_listing() {
    let list = |allow: Value, deny: Value| {
        decide(
            &agent(allow, deny),
            json!({"agent": "dev", "server": "s", "tool": "t", "query": "list"}),
        )
    };
    let conditional = json!({"tool": "t", "when": "args.x == 1"});
    assert_eq!(
        list(json!({"servers": ["*"], "tools": {"s": [conditional]}}), json!({})),
        ("depends", "3-exact-allow")
    );
    assert_eq!(
        list(json!({"servers": ["*"]}), json!({"tools": {"s": [conditional]}})),
        ("depends", "1-exact-deny")
    );
    let known = json!({"tool": "t", "when": "agent == 'dev'"});
    assert_eq!(
        list(json!({"servers": ["*"], "tools": {"s": [known]}}), json!({})),
        ("allow", "3-exact-allow")
    );
    assert_eq!(
        list(json!({"servers": ["*"]}), json!({"tools": {"s": [known]}})),
        ("deny", "1-exact-deny")
    );
}

#[test]
fn ask_lies_between_depends_and_deny() {
    let asks = json!({"allow": {"servers": ["*"], "tools": {"s": [{"tool": "t", "ask": true}]}}});
    let policy = policy(&json!({"agents": {"dev": asks}, "allowed_tools": ["t.go"]}));
    let call = json!({"agent": "dev", "server": "s", "tool": "t", "arguments": {"action": "go"}});
    assert_eq!(decide(&policy, call.clone()), ("ask", "3-exact-allow"));
    let mut list = call.clone();
    list["query"] = json!("list");
    assert_eq!(decide(&policy, list), ("ask", "3-exact-allow"));
    let mut other = call;
    other["arguments"]["action"] = json!("stop");
    assert_eq!(decide(&policy, other), ("deny", "allowlist-none"));
}

#[test]
fn ask_in_a_deny_list_is_refused() {
    let source = source(
        &json!({"agents": {"dev": {"deny": {"tools": {"s": [{"tool": "t", "ask": true}]}}}}}),
    );
    let errors = Policy::compile(source).unwrap_err();
    assert_eq!(errors[0].problem, CompileProblem::AskInDeny);
    assert_eq!(errors[0].path, "agents.dev.deny.tools.s[0]");
}

#[test]
fn selectors_that_would_cost_too_much_are_refused() {
    for (selector, problem) in [
        ("x".repeat(2049), CompileProblem::SelectorTooLong),
        (format!("?{}", ".a".repeat(33)), CompileProblem::TooManyDots),
    ] {
        let errors = Policy::compile(source(&json!({"allowed_tools": [selector]}))).unwrap_err();
        assert_eq!(errors[0].problem, problem);
    }
    assert!(
        Policy::compile(source(&json!({"allowed_tools": ["a.".repeat(32), "x".repeat(2048)]})))
            .is_ok()
    );
}

#[test]
fn an_allowlist_entry_with_an_exclamation_mark_is_refused() {
    let errors = Policy::compile(source(&json!({"allowed_tools": ["a", "!b"]}))).unwrap_err();
    assert_eq!(errors[0].problem, CompileProblem::DenyInAllowlist("!b".into()));
    assert_eq!(errors[0].path, "allowed_tools[1]");
}

fn kinds(policy: &Policy, server: &str, name: &str, uri: &str) -> [bool; 3] {
    let allowed = |subject| {
        policy
            .cell(Some("dev"), server, subject)
            .decide(Caller::named("dev"), &Call::default())
            .is_allowed()
    };
    [
        allowed(Subject::Prompt(name)),
        allowed(Subject::Resource(uri)),
        allowed(Subject::Template(uri)),
    ]
}

#[test]
fn narrowing_the_tools_of_a_server_closes_its_prompts_and_resources() {
    let open = agent(json!({"servers": ["s"]}), json!({}));
    assert_eq!(kinds(&open, "s", "p", "file:///a"), [true; 3]);
    assert_eq!(kinds(&open, "other", "p", "file:///a"), [false; 3]);
    let narrowed = agent(json!({"servers": ["*"], "tools": {"s": ["t"]}}), json!({}));
    assert_eq!(kinds(&narrowed, "s", "p", "file:///a"), [false; 3]);
    assert_eq!(kinds(&narrowed, "other", "p", "file:///a"), [true; 3]);
    let named = agent(
        json!({"servers": ["*"], "tools": {"s": ["t"]}, "prompts": {"s": ["p"]}, "resources": {"s": ["file:///a*"]}}),
        json!({"resources": {"*": ["file:///a/secret"]}}),
    );
    assert_eq!(kinds(&named, "s", "p", "file:///a/b"), [true; 3]);
    assert_eq!(kinds(&named, "s", "q", "file:///a/secret"), [false; 3]);
}

#[test]
fn prompts_and_resources_beside_an_allowlist() {
    let some = policy(&json!({"allowed_tools": ["t"]}));
    assert_eq!(kinds(&some, "s", "p", "file:///a"), [false; 3]);
    let all = policy(&json!({"allowed_tools": ["t", "*"]}));
    assert_eq!(kinds(&all, "s", "p", "file:///a"), [true; 3]);
    let named = policy(
        &json!({"allowed_tools": ["t"], "allowed_prompts": ["s.p"], "allowed_resources": ["file:///A"]}),
    );
    assert_eq!(kinds(&named, "s", "p", "file:///a"), [true; 3]);
}

#[test]
fn a_resource_cannot_be_spelled_around_a_rule() {
    let policy = agent(
        json!({"servers": ["*"]}),
        json!({"resources": {"*": ["MEMO://Host/%73ecret", "file:///etc/*"]}}),
    );
    let resource = |uri: &str| {
        let cell = policy.cell(Some("dev"), "s", Subject::Resource(uri));
        cell.decide(Caller::named("dev"), &Call::default()).step
    };
    assert_eq!(resource("file:///srv/a"), Step::ImplicitGrant);
    assert_eq!(resource("memo://host/secret"), Step::ExactDeny);
    assert_eq!(resource("mEmo://HOST/s%65cret"), Step::ExactDeny);
    assert_eq!(resource("FILE:///%65tc/passwd"), Step::WildcardDeny);
    for uri in [
        "file:///srv/../etc/passwd",
        "file:///srv/%2e%2E/etc",
        "file:///srv/%2fetc",
        "file:///a%5cb",
        "file:///a\\b",
        "file:///a%zz",
        "file:///./a",
        "file:///a b",
    ] {
        assert_eq!(resource(uri), Step::UnsafeUri, "{uri}");
    }
}

#[test]
fn a_web_resource_cannot_be_spelled_around_a_rule() {
    let policy = agent(
        json!({"servers": ["*"]}),
        json!({"resources": {"*": ["http://ex.com/x", "https://ex.com"]}}),
    );
    let denied = |uri: &str| {
        let cell = policy.cell(Some("dev"), "s", Subject::Resource(uri));
        cell.decide(Caller::named("dev"), &Call::default()).verdict == Verdict::Deny
    };
    for uri in [
        "http://ex.com:80/x",
        "http://ex.com:/x",
        "HTTP://EX.com/x?",
        "http://ex.com/x#a",
        "https://ex.com:443/",
        "https://ex.com",
    ] {
        assert!(denied(uri), "{uri}");
    }
    assert!(!denied("http://ex.com:8080/x") && !denied("http://ex.com/x?q=1"));
}

#[test]
fn client_requests_are_elicitation_and_roots_by_default() {
    let request = |allow: Value, name: &str| {
        let policy = agent(allow, json!({}));
        policy
            .cell(Some("dev"), "s", Subject::ClientRequest(name))
            .decide(Caller::named("dev"), &Call::default())
            .is_allowed()
    };
    assert!(request(json!({"servers": ["*"]}), "elicitation"));
    assert!(request(json!({"servers": ["*"]}), "roots"));
    assert!(request(json!({"servers": ["*"]}), "elicitation.url"));
    assert!(!request(json!({"servers": ["*"]}), "sampling"));
    let form = json!({"servers": ["*"], "client_requests": ["elicitation.form"]});
    assert!(request(form.clone(), "elicitation.form") && !request(form.clone(), "elicitation.url"));
    assert!(!request(form, "roots"));
    // Context of other servers must be named.
    for (entry, allowed) in [("*", false), ("sampling", false), ("sampling.allServers", true)] {
        let allow = json!({"servers": ["*"], "client_requests": [entry]});
        assert_eq!(request(allow, "sampling.allServers"), allowed, "{entry}");
    }
    assert!(request(json!({"servers": ["*"], "client_requests": ["*"]}), "sampling"));
    assert!(!request(json!({"servers": ["*"], "client_requests": []}), "elicitation"));
    assert!(!request(json!({"servers": ["other"]}), "elicitation"));
}

#[test]
fn read_only_mode_is_a_layer_like_any_other() {
    let mut source = source(&json!({"allowed_tools": ["*"]}));
    source.layers.push(LayerSource { name: "--read-only".into(), rules: RulesSource::ReadOnly });
    let policy = Policy::compile(source).unwrap();
    let call = |hints: Value| decide(&policy, json!({"server": "s", "tool": "t", "hints": hints}));
    assert_eq!(call(json!(["read-only"])), ("allow", "read-only-mode"));
    assert_eq!(call(json!([])), ("deny", "read-only-mode"));
}

#[test]
fn without_any_layer_everything_exposed_is_allowed() {
    let expose = ExposeSource {
        entries: vec![ExposeEntry { name: "t".into(), ..ExposeEntry::default() }],
        literal: false,
    };
    let source = Source {
        servers: vec![ServerSource { expose: Some(expose), ..ServerSource::new("s") }],
        ..Source::default()
    };
    let policy = Policy::compile(source).unwrap();
    assert_eq!(decide(&policy, json!({"server": "s", "tool": "t"})), ("allow", "no-policy"));
    assert_eq!(decide(&policy, json!({"server": "s", "tool": "u"})), ("deny", "not-exposed"));
    assert_eq!(decide(&policy, json!({"server": "z", "tool": "u"})), ("allow", "no-policy"));
}

#[test]
fn a_rule_that_names_a_tool_by_its_display_name_is_refused() {
    let expose = ExposeSource {
        entries: vec![ExposeEntry {
            name: "internal_read".into(),
            display_name: Some("read".into()),
            ..ExposeEntry::default()
        }],
        literal: false,
    };
    let mut source = source(&json!({"agents": {"dev": {"deny": {"tools": {"files": ["read"]}}}}}));
    source
        .servers
        .push(ServerSource { expose: Some(expose.clone()), ..ServerSource::new("files") });
    let errors = Policy::compile(source).unwrap_err();
    assert!(
        matches!(&errors[0].problem, CompileProblem::DisplayName { original, .. } if original == "internal_read")
    );
}

/// The settings of the server `s`, which exposes `review` as `check`, and what matches `plan_*`.
fn with_exposed_prompts() -> ServerSource {
    let entry = |name: &str, display_name: Option<&str>| ExposeEntry {
        name: name.into(),
        display_name: display_name.map(String::from),
        ..ExposeEntry::default()
    };
    let entries = vec![entry("review", Some("check")), entry("plan_*", None)];
    let expose_prompts = Some(ExposeSource { entries, literal: false });
    ServerSource { expose_prompts, ..ServerSource::new("s") }
}

#[test]
fn prompts_that_are_not_exposed_are_denied_before_any_rule() {
    let rules = json!({"agents": {"dev": {"allow": {"servers": ["s"]}}}});
    let policy = with_server(&rules, with_exposed_prompts());
    let step = |subject: Subject<'_>| {
        let cell = policy.cell(Some("dev"), "s", subject);
        cell.decide(Caller { agent: Some("dev"), claims: None }, &Call::default()).step
    };
    assert_eq!(step(Subject::Prompt("review")), Step::ImplicitGrant);
    assert_eq!(step(Subject::Prompt("plan_week")), Step::ImplicitGrant);
    assert_eq!(step(Subject::Prompt("check")), Step::NotExposed);
    assert_eq!(step(Subject::Prompt("secret")), Step::NotExposed);
    // Tools and resources have exposures of their own, or none.
    assert_eq!(
        step(Subject::Tool(&Tool::named("secret"), &Default::default())),
        Step::ImplicitGrant
    );
    assert_eq!(step(Subject::Resource("note:secret")), Step::ImplicitGrant);
}

#[test]
fn a_rule_that_names_a_prompt_by_its_display_name_is_refused() {
    let compile = |rules: Value| {
        let mut source = source(&rules);
        source.servers.push(with_exposed_prompts());
        Policy::compile(source)
    };
    for rules in [
        json!({"agents": {"dev": {"deny": {"prompts": {"s": ["check"]}}}}}),
        json!({"allowed_tools": ["x"], "allowed_prompts": ["s.check"]}),
    ] {
        let errors = compile(rules).unwrap_err();
        assert!(
            matches!(&errors[0].problem, CompileProblem::DisplayName { original, .. } if original == "review")
        );
    }
    // The same name in a list of tools, and a longer name of a prompt, are other things.
    for (list, name) in [("tools", "check"), ("prompts", "check.fast")] {
        assert!(compile(json!({"agents": {"dev": {"deny": {list: {"s": [name]}}}}})).is_ok());
    }
}

#[test]
fn the_answer_is_that_of_the_first_strictest_layer_or_of_the_last() {
    let layers =
        policy(&json!({"agents": {"dev": {"allow": {"servers": ["*"]}}}, "allowed_tools": ["a"]}));
    let answer = |tool: &str| {
        let decision =
            Request::new(&json!({"agent": "dev", "server": "s", "tool": tool})).decide(&layers);
        (decision.verdict, decision.layer, layers.rule(&decision).map(|rule| rule.path))
    };
    assert_eq!(answer("a"), (Verdict::Allow, Some(1), Some("allowed_tools[0]".into())));
    assert_eq!(answer("b"), (Verdict::Deny, Some(1), None));
}

#[test]
fn paths_quote_what_is_not_a_plain_word() {
    let policy =
        policy(&json!({"agents": {"a b": {"allow": {"servers": ["*"], "tools": {"a.b": ["x"]}}}}}));
    let decision =
        Request::new(&json!({"agent": "a b", "server": "a.b", "tool": "x"})).decide(&policy);
    assert_eq!(policy.rule(&decision).unwrap().path, r#"agents["a b"].allow.tools["a.b"][0]"#);
}

#[test]
fn a_row_never_answers_for_a_tool_that_the_server_does_not_have() {
    let policy = policy(&json!({"allowed_tools": ["*"]}));
    let row = policy.row(None, "s", &ToolSet::new(vec![Tool::named("a")]));
    assert_eq!(row.decide(Caller::default(), "a", &Call::default()).step, Step::AllowlistMatch);
    assert_eq!(row.decide(Caller::default(), "b", &Call::default()).step, Step::NoSuchTool);
}

#[test]
fn explanations_show_what_was_tried() {
    let policy = agent(
        json!({"servers": ["*"], "tools": {"s": [{"tool": "t", "when": "args.x == 1"}, "t.go", "t*"]}}),
        json!({"tools": {"*": [{"tool": "t", "when": "args.y.z == 1"}]}}),
    );
    let hints = toolward_policy::Hints::default();
    let tool = Tool::named("t");
    let arguments = json!({"x": 2, "y": {"z": 2}, "action": "stop"});
    let call = Call::with(arguments.as_object().unwrap());
    let explained =
        policy.explain(Caller::named("dev"), "s", Subject::Tool(&tool, &hints), Query::Call(call));
    let steps = &explained.layers[0].steps;
    let outcomes: Vec<(Step, Vec<&Outcome>)> = steps
        .iter()
        .map(|step| (step.step, step.tried.iter().map(|tried| &tried.outcome).collect()))
        .collect();
    assert_eq!(
        outcomes,
        [
            (Step::ServerAllow, vec![&Outcome::Matched]),
            (Step::ExactDeny, vec![&Outcome::ConditionFalse]),
            (Step::WildcardDeny, vec![]),
            (Step::ExactAllow, vec![&Outcome::ConditionFalse, &Outcome::OtherAction]),
            (Step::WildcardAllow, vec![&Outcome::Matched]),
        ]
    );
}

fn catalogue(lists: &[(&str, &[&str])]) -> Catalogue {
    let mut catalogue = Catalogue::default();
    for (server, tools) in lists {
        catalogue.insert(
            server,
            Some(ToolSet::new(tools.iter().map(|name| Tool::named(name)).collect())),
        );
    }
    catalogue
}

#[test]
fn lints_find_rules_that_cannot_mean_what_was_wanted() {
    let policy = policy(&json!({"agents": {"dev": {
        "allow": {"servers": ["files", "gihub"], "tools": {
            "files": ["read_file", "read_*", "read_text", "", "reed_file", "hint:reed-only", "list.all"],
            "git": [], "notion": ["x"], "web": ["[z-a]", "*", "get_*", "hint:read-only+destructive"],
        }},
        "deny": {"servers": ["notion"], "tools": {"files": ["read_file"]}},
    }}}));
    let catalogue = catalogue(&[
        ("files", &["read_file", "read_text", "list", "list.all"]),
        ("github", &["a"]),
        ("git", &["b"]),
        ("notion", &["x"]),
        ("web", &["get_a"]),
    ]);
    let lints = policy.lint(&catalogue);
    let found = |kind: LintKind| -> Vec<&str> {
        lints.iter().filter(|lint| lint.kind == kind).map(|lint| lint.path.as_str()).collect()
    };
    let list = |server: &str, entry: usize| format!("agents.dev.allow.tools.{server}[{entry}]");
    assert_eq!(found(LintKind::UnknownServer), ["agents.dev.allow.servers[1]"]);
    assert_eq!(found(LintKind::OddName), [list("files", 3)]);
    assert_eq!(found(LintKind::NoKnownTool), [list("files", 4)]);
    assert_eq!(found(LintKind::EmptyAllowList), [list("git", 0)]);
    assert_eq!(found(LintKind::ToolOrAction), [list("files", 6)]);
    assert_eq!(found(LintKind::Shadowed), [list("files", 0), list("web", 2)]);
    let never = found(LintKind::NeverMatches);
    assert!(never.contains(&&*list("files", 5)) && never.contains(&&*list("notion", 0)));
    assert!(never.contains(&&*list("web", 0)) && never.contains(&&*list("web", 3)));
    let misspelt = lints.iter().find(|lint| lint.kind == LintKind::NoKnownTool).unwrap();
    assert!(misspelt.misspelt.as_ref().unwrap().1.contains(&"read_file".to_string()));
}

#[test]
fn a_policy_that_hides_everything_is_noticed() {
    let catalogue = catalogue(&[("s", &["a"])]);
    let hides = |value: Value| policy(&value).hides_everything(&catalogue);
    assert_eq!(hides(json!({"allowed_tools": ["b"]})), Some(true));
    assert_eq!(hides(json!({"allowed_tools": ["a"]})), Some(false));
    assert_eq!(hides(json!({"agents": {"dev": {"allow": {"servers": ["x"]}}}})), Some(true));
    assert_eq!(policy(&json!({"allowed_tools": []})).hides_everything(&Catalogue::default()), None);
}

#[test]
fn policy_tests_are_run_against_calls_and_listings() {
    let policy = agent(
        json!({
            "servers": ["s"], "tools": {"s": ["t.go", {"tool": "w", "when": "args.p == 'x'"}]},
            "prompts": {"s": ["p"]}, "resources": {"s": ["note:*"]},
        }),
        json!({}),
    );
    let case = |expect, server: &str, tool: &str, arguments: Value| TestCase {
        expect,
        family: Family::Tools,
        server: server.into(),
        name: tool.into(),
        arguments: arguments
            .as_object()
            .map(|members| TestArguments { members: members.clone(), numbers: Vec::new() }),
        scope: None,
        written: String::new(),
        place: Place::default(),
    };
    let other =
        |expect, family, name: &str| TestCase { family, ..case(expect, "s", name, json!(null)) };
    let tests = [PolicyTest {
        agent: Some("dev".into()),
        never: None,
        cases: vec![
            case(Expect::Allow, "s", "t", json!({"action": "go"})),
            case(Expect::Deny, "s", "t", json!({"action": "stop"})),
            case(Expect::Hidden, "s", "t", json!(null)),
            case(Expect::Allow, "s", "w", json!({"p": "x"})),
            case(Expect::Hidden, "z", "t", json!(null)),
            other(Expect::Allow, Family::Prompts, "p"),
            other(Expect::Hidden, Family::Prompts, "q"),
            other(Expect::Allow, Family::Resources, "note:1"),
            other(Expect::Deny, Family::Resources, "note:../1"),
            other(Expect::Deny, Family::Resources, "memo:1"),
        ],
    }];
    let outcomes = toolward_policy::testing::run(&policy, &Catalogue::default(), &tests);
    let passed: Vec<bool> = outcomes.iter().map(|outcome| outcome.passed).collect();
    assert_eq!(passed, [true, true, false, true, true, true, true, true, true, true]);
}

#[test]
fn reasons_are_sentences_that_name_the_rule() {
    let policy = agent(json!({"servers": ["*"]}), json!({"tools": {"db": ["drop_*"]}}));
    let decision =
        Request::new(&json!({"agent": "dev", "server": "db", "tool": "drop_all"})).decide(&policy);
    let about = About { agent: Some("dev"), server: "db", subject: "drop_all", action: None };
    assert_eq!(
        policy.reason(&decision, about),
        "`drop_*` in the deny list of agent `dev` covers `db/drop_all` (agents.dev.deny.tools.db[0])"
    );
}
