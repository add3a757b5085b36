//! Analysis of policies, against exhaustive enumeration of a small world.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "analyse/changes.rs"]
mod changes;
mod common;
#[path = "analyse/large.rs"]
mod large;
#[path = "analyse/lints.rs"]
mod lints;
#[path = "analyse/never.rs"]
mod never;
#[path = "analyse/random.rs"]
mod random;

use serde_json::{Map, Value, json};
use toolward_policy::analyse::{Change, Differences, Point, PointKind, Subjects, diff};
use toolward_policy::{Call, Caller, Decision, Policy, Subject, Tool, Verdict};

use random::Random;

/// The decision of a policy about a point, by the engine's public interface.
fn decide(policy: &Policy, point: &Point) -> Decision {
    let caller = Caller { agent: point.agent.as_deref(), claims: None };
    let tool = Tool::new(&point.name, &point.definition);
    let hints = policy.hints(&point.server, &tool);
    let subject = match point.kind {
        PointKind::Tool => Subject::Tool(&tool, &hints),
        PointKind::Prompt => Subject::Prompt(&point.name),
        PointKind::Resource => Subject::Resource(&point.name),
        PointKind::Template => Subject::Template(&point.name),
        PointKind::ClientRequest => Subject::ClientRequest(&point.name),
    };
    let cell = policy.cell(caller.agent, &point.server, subject);
    let arguments = point.arguments.as_ref().map(|arguments| arguments as _);
    cell.decide(caller, &Call { action: None, arguments })
}

/// Compares two policies, and checks every witness with the engine.
fn compare(old: &Policy, new: &Policy) -> Differences {
    let found = diff(old, new, &Subjects::default());
    for change in &found.changes {
        let Change { point, before, after, .. } = change;
        assert_eq!(decide(old, point), *before, "{point:?}");
        assert_eq!(decide(new, point), *after, "{point:?}");
        assert_ne!(before.verdict, after.verdict);
    }
    found
}

/// Every point of the small world, by its number.
struct World {
    names: Vec<String>,
    definitions: Vec<Map<String, Value>>,
    calls: Vec<Value>,
}

const AGENTS: [Option<&str>; 5] = [Some("a"), Some("b"), Some("ab"), Some("other"), None];
const SERVERS: [&str; 3] = ["a", "b", "ab"];
const REQUESTS: [&str; 3] = ["roots", "sampling", "elicitation.form"];

fn world() -> World {
    let mut names = Vec::new();
    for one in ["a", "b", "A"] {
        names.push(one.to_string());
        for two in ["a", "b", ".", "_"] {
            names.push(format!("{one}{two}"));
            names.extend(["a", "b"].map(|three| format!("{one}{two}{three}")));
        }
    }
    let mut definitions = Vec::new();
    for annotations in [
        json!({}),
        json!({"readOnlyHint": true}),
        json!({"destructiveHint": false, "idempotentHint": true}),
        json!({"readOnlyHint": true, "openWorldHint": false}),
    ] {
        for properties in [json!({}), json!({"action": {}}), json!({"op": {}})] {
            let definition =
                json!({"annotations": annotations, "inputSchema": {"properties": properties}});
            definitions.push(definition.as_object().unwrap().clone());
        }
    }
    let mut calls: Vec<Value> = vec![json!({})];
    for action in ["a", "b", "ab", "A"] {
        calls.extend([json!({"action": action}), json!({"op": action})]);
        calls.push(json!({"action": action, "op": "b"}));
    }
    calls.extend([json!({"action": 1}), json!({"what": "a", "action": "b"}), json!({"op": null})]);
    for number in [json!(0), json!(1), json!(2), json!("x"), json!(1.5)] {
        for path in [None, Some("a"), Some("ab"), Some("b")] {
            let mut call = json!({"n": number});
            call["p"] = path.map_or(json!(null), |path| json!(path));
            calls.extend([call.clone(), json!({"n": number}), json!({"p": path})]);
        }
    }
    World { names, definitions, calls }
}

impl World {
    fn len(&self) -> usize {
        AGENTS.len()
            * SERVERS.len()
            * self.names.len()
            * (self.definitions.len() + 2)
            * self.calls.len()
    }

    /// The point with this number.
    fn point(&self, mut number: usize) -> Point {
        let mut next = |end: usize| {
            let digit = number % end;
            number /= end;
            digit
        };
        let definition = next(self.definitions.len() + 2);
        let name = &self.names[next(self.names.len())];
        let call = next(self.calls.len());
        let arguments = Some(random::arguments(&self.calls[call]));
        let (agent, server) = (AGENTS[next(AGENTS.len())], SERVERS[next(SERVERS.len())]);
        let (kind, name, arguments) = match definition.checked_sub(self.definitions.len()) {
            None => (PointKind::Tool, name.clone(), arguments),
            Some(0) => (PointKind::Prompt, name.clone(), arguments),
            Some(_) if call < 2 => (PointKind::Template, name.clone(), None),
            Some(_) if call < 6 => (PointKind::Resource, format!("{name}:{name}"), arguments),
            Some(_) => (PointKind::ClientRequest, REQUESTS[call % 3].into(), None),
        };
        let definition = self.definitions.get(definition).cloned().unwrap_or_default();
        let (agent, server) = (agent.map(String::from), server.into());
        Point { agent, server, kind, name, definition, arguments }
    }
}

/// A sample of the world that differs from pair to pair.
fn sample<'w>(
    world: &'w World,
    random: &mut Random,
    size: usize,
) -> impl Iterator<Item = Point> + 'w {
    let (start, stride) = (random.below(world.len()), 1 + 2 * random.below(world.len() / 2));
    (0..size).map(move |at| world.point((start + at * stride) % world.len()))
}

#[test]
fn nothing_wider_is_never_wrong() {
    let world = world();
    let mut random = Random(7);
    let (mut wider, mut undecided, mut seen) = (0, 0, 0);
    let pairs = std::env::var("PAIRS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    for pair in 0..pairs {
        let (old, new) = random::pair(&mut random);
        let shown = format!("pair {pair}\n{old}\n{new}");
        let (old, new) = (random::policy(&old), random::policy(&new));
        let found = compare(&old, &new);
        let answer = found.is_wider();
        wider += usize::from(answer == Some(true));
        undecided += usize::from(answer.is_none());
        for point in sample(&world, &mut random, 2000) {
            let (before, after) = (decide(&old, &point).verdict, decide(&new, &point).verdict);
            if after < before {
                seen += 1;
                assert_ne!(answer, Some(false), "{point:?} is wider\n{shown}");
            }
            if after != before {
                assert_ne!(found.is_none(), Some(true), "{point:?} differs\n{shown}");
            }
        }
    }
    eprintln!("{pairs} pairs: {wider} wider, {undecided} undecided, {seen} wider points seen");
    assert!(wider * 5 > pairs, "{wider} wider");
    assert!(undecided * 100 <= pairs.max(100), "{undecided} undecided");
}

fn differ(old: Value, new: Value) -> Differences {
    compare(&random::policy(&old), &random::policy(&new))
}

/// The changes that become wider: `agent server/name verdict->verdict`.
fn wider(old: Value, new: Value) -> Vec<String> {
    let found = differ(old, new);
    let text = |change: &Change| {
        let agent = change.point.agent.as_deref().unwrap_or("-");
        let (before, after) = (change.before.verdict, change.after.verdict);
        format!("{agent} {}/{} {before}->{after}", change.point.server, change.point.name)
    };
    let is_wider = |change: &&Change| change.is_wider() && change.point.kind == PointKind::Tool;
    found.changes.iter().filter(is_wider).map(text).collect()
}

fn agent(allow: Value, deny: Value) -> Value {
    json!({"agents": {"a": {
        "allow": {"servers": ["s"], "tools": {"s": allow}},
        "deny": {"tools": {"s": deny}}
    }}})
}

#[test]
fn an_added_allow_and_a_removed_deny_are_wider() {
    let before = agent(json!(["get_*"]), json!(["get_secret", "*_all"]));
    assert_eq!(wider(before.clone(), before.clone()), Vec::<String>::new());
    let added = agent(json!(["get_*", "put_x"]), json!(["get_secret", "*_all"]));
    assert_eq!(wider(before.clone(), added.clone()), ["a s/put_x deny->allow"]);
    assert_eq!(wider(added, before.clone()), Vec::<String>::new());
    let removed = agent(json!(["get_*"]), json!(["get_secret"]));
    assert_eq!(wider(before.clone(), removed), ["a s/get_all deny->allow"]);
    let redundant = agent(json!(["get_*", "get_x"]), json!(["get_secret", "*_all", "a_all"]));
    assert_eq!(differ(before, redundant).is_none(), Some(true));
}

#[test]
fn removing_the_last_allowed_tool_opens_the_implicit_grant() {
    let before = agent(json!(["x"]), json!([]));
    assert_eq!(wider(before.clone(), agent(json!([]), json!([]))), ["a s/a deny->allow"]);
    let gone = json!({"agents": {"a": {"allow": {"servers": ["s"]}}}});
    assert_eq!(wider(before, gone), ["a s/a deny->allow"]);
}

#[test]
fn removing_an_action_beside_its_tool_ends_the_look_up() {
    // With `interact.navigate`, the action is looked for, and an ambiguous one is denied.
    let before = agent(json!(["interact", "interact.navigate"]), json!([]));
    let after = agent(json!(["interact"]), json!([]));
    let found = differ(before, after);
    assert_eq!(found.is_wider(), Some(true));
    let point = &found.changes[0].point;
    assert_eq!(
        (point.name.as_str(), found.changes[0].before.step.as_str()),
        ("interact", "ambiguous-action")
    );
    assert!(point.arguments.is_some());
}

#[test]
fn removing_or_moving_an_entry_that_asks_is_wider() {
    let ask = json!({"tool": "put_*", "ask": true});
    let before = agent(json!([ask, "*"]), json!([]));
    assert_eq!(wider(before.clone(), agent(json!(["*"]), json!([]))), ["a s/put_ ask->allow"]);
    assert_eq!(wider(before, agent(json!(["*", ask]), json!([]))), ["a s/put_ ask->allow"]);
}

#[test]
fn removing_a_layer_an_exposure_or_read_only_mode_is_wider() {
    let everything = || json!({"agents": {"a": {"allow": {"servers": ["*"]}}}});
    let with = |key: &str, value: Value| {
        let mut policy = everything();
        policy[key] = value;
        policy
    };
    for before in [
        with("allowed_tools", json!(["get_*"])),
        with("read_only", json!(true)),
        with("servers", json!({"s": {"expose": ["x"]}})),
        with("servers", json!({"s": {"expose": ["x_*"]}})),
    ] {
        let found = differ(before.clone(), everything());
        assert_eq!(found.is_wider(), Some(true), "{before}");
        assert_eq!(differ(everything(), before.clone()).is_wider(), Some(false), "{before}");
    }
}

#[test]
fn removing_a_named_agent_makes_it_default() {
    let before = json!({
        "agents": {
            "a": {"allow": {"servers": ["s"], "tools": {"s": ["x"]}}},
            "default": {"allow": {"servers": ["s"]}}
        },
        "defaults": {"deny_on_missing_agent": false}
    });
    let mut after = before.clone();
    after["agents"].as_object_mut().unwrap().remove("a");
    assert_eq!(wider(before.clone(), after), ["a s/a deny->allow"]);
    let mut closed = before.clone();
    closed["defaults"]["deny_on_missing_agent"] = json!(true);
    let unknown = wider(closed, before);
    assert!(unknown.contains(&"- s/a deny->allow".to_string()), "{unknown:?}");
    assert!(!unknown.iter().any(|text| text.starts_with("a ")), "{unknown:?}");
}

#[test]
fn a_changed_case_is_seen() {
    let with = |case: &str| json!({"agents": {"a": {"case": case, "allow": {"servers": ["*"], "tools": {"*": ["get"]}}}}});
    assert_eq!(wider(with("sensitive"), with("insensitive")), ["a a/geT deny->allow"]);
    assert_eq!(differ(with("insensitive"), with("sensitive")).is_wider(), Some(false));
    let list = |case: &str| json!({"allowed_tools": ["get"], "case": case});
    assert_eq!(differ(list("sensitive"), list("insensitive")).is_wider(), Some(true));
}

#[test]
fn changed_action_keys_are_seen() {
    let with = |keys: Value| {
        let mut policy = agent(json!(["do.get"]), json!([]));
        policy["servers"] = json!({"s": {"action_keys": keys}});
        policy
    };
    let found = differ(with(json!(["action"])), with(json!(["op"])));
    assert_eq!(found.is_wider(), Some(true));
    let arguments = found.changes.iter().find(|change| change.is_wider()).unwrap();
    let members = &arguments.point.arguments.as_ref().unwrap().members;
    assert_eq!(members.get("op"), Some(&json!("get")));
    assert_eq!(differ(with(json!(["action"])), with(json!(["action"]))).is_none(), Some(true));
}

#[test]
fn changed_hints_and_trust_are_seen() {
    let with = |server: Value| {
        json!({
            "agents": {"a": {"allow": {"servers": ["s"], "tools": {"s": ["hint:read-only"]}}}},
            "servers": {"s": server}
        })
    };
    let plain = with(json!({}));
    let stated = with(json!({"hints": {"run_*": ["read-only"]}}));
    let found = differ(plain.clone(), stated);
    assert_eq!(found.is_wider(), Some(true));
    assert_eq!(found.changes[0].point.name, "run_");
    let untrusted = with(json!({"trust_annotations": false}));
    assert_eq!(differ(plain.clone(), untrusted.clone()).is_wider(), Some(false));
    assert_eq!(differ(untrusted, plain).is_wider(), Some(true));
}

#[test]
fn a_server_can_be_a_part_of_an_allowed_name() {
    // `git.a` matches the pattern, so every tool of the server `git` becomes callable.
    let (old, new) = (json!({"allowed_tools": ["x"]}), json!({"allowed_tools": ["x", "git*"]}));
    let subjects = Subjects { servers: Some("git"), ..Subjects::default() };
    let found = diff(&random::policy(&old), &random::policy(&new), &subjects);
    let names: Vec<&str> = found.changes.iter().map(|change| change.point.name.as_str()).collect();
    assert!(names.contains(&"a"), "{names:?}");
    let found = wider(old, json!({"allowed_tools": ["x", "git.push"]}));
    assert!(!found.is_empty());
}

#[test]
fn prompts_resources_and_requests_to_the_client_are_compared() {
    let with = |allow: Value| json!({"agents": {"a": {"allow": allow}}});
    let base = json!({"servers": ["s"], "tools": {"s": ["x"]}});
    let more = |key: &str, value: Value| {
        let mut allow = base.clone();
        allow[key] = value;
        with(allow)
    };
    for (key, value, kind) in [
        ("prompts", json!({"s": ["p"]}), PointKind::Prompt),
        ("resources", json!({"s": ["file:///r"]}), PointKind::Resource),
        ("client_requests", json!(["*"]), PointKind::ClientRequest),
    ] {
        let found = differ(with(base.clone()), more(key, value));
        let kinds: Vec<PointKind> = found.changes.iter().map(|change| change.point.kind).collect();
        assert_eq!(kinds, [kind]);
        assert_eq!(found.is_wider(), Some(true));
    }
}

#[test]
fn conditions_on_arguments_are_decided() {
    let when = |text: &str| agent(json!([{"tool": "x", "when": text}]), json!([]));
    for (before, after, expected) in [
        ("args.n < 3", "args.n < 2", Some(false)),
        ("args.n < 2", "args.n < 3", Some(true)),
        (r#"args.p.startsWith("a")"#, r#"args.p.startsWith("ab")"#, Some(false)),
        (r#"args.p.startsWith("ab")"#, r#"args.p.startsWith("a")"#, Some(true)),
        (r#"args.p == "a""#, r#"args.p in ["a", "b"]"#, Some(true)),
        (r#"args.p in ["b", "a"]"#, r#"args.p == "a" || args.p == "b""#, Some(false)),
        // An error in one of two alternatives is absorbed by the other.
        (r#"args.p == "a" || args.n == 1"#, r#"args.n == 1 || args.p == "a""#, Some(false)),
        ("true", "args.n == args.n", None),
        (r#"tool == "x""#, "true", Some(false)),
        (r#"has(args.p) && args.p == "a""#, r#"args.p == "a""#, Some(false)),
        (r#"args.p == "a""#, r#"!(args.p != "a")"#, Some(false)),
        ("args.n > 1", "!(args.n <= 1)", Some(false)),
        (r#"claims.team == "a""#, r#"claims.team == "a""#, Some(false)),
    ] {
        let found = differ(when(before), when(after));
        let answer = found.is_wider();
        if expected.is_none() {
            assert_ne!(answer, Some(true), "{before} -> {after}");
        } else {
            assert_eq!(answer, expected, "{before} -> {after}: {found:?}");
        }
    }
}

#[test]
fn a_difference_that_depends_on_an_unknown_condition_is_undecided() {
    let before = agent(json!(["x"]), json!([{"tool": "x", "when": r#"claims.team != "a""#}]));
    let after = agent(json!(["x"]), json!([{"tool": "x", "when": r#"claims.team != "b""#}]));
    let found = differ(before, after);
    assert_eq!(found.is_wider(), None);
    assert!(found.possible.iter().any(Change::is_wider));
    assert_eq!(found.possible[0].depends_on.len(), 2);
}

#[test]
fn patterns_that_distinguish_too_many_names_are_undecided() {
    let mut deny: Vec<String> = Vec::new();
    for one in 'a'..='z' {
        deny.push(format!("*{one}*{one}{one}*"));
    }
    let before = agent(json!(["*"]), json!(deny));
    let mut after = before.clone();
    after["servers"] = json!({"s": {"hints": {"x": ["read-only"]}}});
    let (before, after) = (random::policy(&before), random::policy(&after));
    let subjects = Subjects { memory: Some(4 << 20), ..Subjects::default() };
    let found = diff(&before, &after, &subjects);
    assert_eq!(found.is_wider(), None);
    assert!(!found.undecided.is_empty());
}

#[test]
fn verdicts_are_compared_from_strict_to_lenient() {
    assert!(Verdict::Allow < Verdict::Ask && Verdict::Ask < Verdict::Deny);
}
