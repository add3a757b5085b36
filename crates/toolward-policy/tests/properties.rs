//! Properties of every policy and every request.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Request, policy, source};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};
use toolward_policy::allowed::Offer;
use toolward_policy::call::stated_action;
use toolward_policy::explain::{Outcome, Query, Tried};
use toolward_policy::refusal::Sent;
use toolward_policy::selector::Selector;
use toolward_policy::source::{Case, ExposeEntry, ExposeSource, ServerSource};
use toolward_policy::why::Cause;
use toolward_policy::{Call, Caller, Policy, Step, Subject, Tool, ToolSet, Verdict};

const TOOLS: [&str; 7] =
    ["interact", "observe", "get_user", "drop_table", "list.all", "Interact", "a[b]"];
const ACTIONS: [&str; 6] = ["navigate", "Navigate", "logs", "execute_js", "a.b", ""];
const SERVERS: [&str; 4] = ["web", "Web", "db", "fs-1"];
const AGENTS: [&str; 4] = ["dev", "ops", "default", "ghost"];
const HINTS: [&str; 4] = ["read-only", "destructive", "idempotent", "closed-world"];

fn selector() -> impl Strategy<Value = String> {
    let tool = select(&TOOLS[..]).prop_map(String::from);
    let pattern = select(vec![
        "*",
        "get_*",
        "*t",
        "inter*",
        "?bserve",
        "[io]*",
        "[!a-m]*",
        "list.*",
        "*.*",
        "drop_table.*",
        "",
        "!x",
        "[z-a]",
        "a[b]",
        "*_*_*",
    ])
    .prop_map(String::from);
    let left = prop_oneof![
        select(&TOOLS[..]).prop_map(String::from),
        select(vec!["*", "inter*", "[io]*", "web.interact", "list"]).prop_map(String::from)
    ];
    let right = prop_oneof![
        select(&ACTIONS[..]).prop_map(String::from),
        select(vec!["nav*", "l?gs", "[!n]*", "*"]).prop_map(String::from)
    ];
    let action = (left, right).prop_map(|(left, right)| format!("{left}.{right}"));
    let hint = prop::collection::vec(select(&HINTS[..]), 1..3)
        .prop_map(|tags| format!("hint:{}", tags.join("+")));
    prop_oneof![3 => tool, 3 => pattern, 4 => action, 2 => hint]
}

fn condition() -> impl Strategy<Value = &'static str> {
    select(vec![
        "true",
        "false",
        "args.path.startsWith('/srv/')",
        "has(args.path)",
        "action == 'navigate'",
        "agent == 'dev'",
        "'read-only' in hints",
        "definition.nothing == 1",
        "size(args) > 0",
        "tool.startsWith('i')",
        "server == 'web' && args.x == 1",
    ])
}

fn entry() -> impl Strategy<Value = Value> {
    (selector(), prop::option::weighted(0.2, condition()), prop::bool::weighted(0.05)).prop_map(
        |(selector, when, ask)| match (when, ask) {
            (None, false) => json!(selector),
            (Some(when), ask) => json!({"tool": selector, "when": when, "ask": ask}),
            (None, true) => json!({"tool": selector, "ask": true, "scope": "s"}),
        },
    )
}

fn plain_entry() -> impl Strategy<Value = Value> {
    (selector(), prop::option::weighted(0.2, condition())).prop_map(|(selector, when)| match when {
        None => json!(selector),
        Some(when) => json!({"tool": selector, "when": when}),
    })
}

fn keyed<S: Strategy<Value = Value>>(entry: S) -> impl Strategy<Value = Value> {
    let key = select(vec!["web", "Web", "db", "*", "[wd]*", "fs-1"]);
    prop::collection::vec((key, prop::collection::vec(entry, 0..4)), 0..3).prop_map(|lists| {
        let mut map = Map::new();
        for (key, list) in lists {
            map.insert(key.into(), json!(list));
        }
        Value::Object(map)
    })
}

fn servers() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(select(vec!["*", "web", "db", "w*", "[!w]*", "fs-1"]), 0..3)
}

fn agent() -> impl Strategy<Value = Value> {
    let case = select(vec!["sensitive", "sensitive", "insensitive"]);
    (servers(), keyed(entry()), prop::option::weighted(0.2, servers()), keyed(plain_entry()), case)
        .prop_map(|(servers, allow, denied, deny, case)| {
            json!({
                "case": case,
                "allow": {"servers": if servers.is_empty() { vec!["*"] } else { servers }, "tools": allow},
                "deny": {"servers": denied.unwrap_or_default(), "tools": deny},
            })
        })
}

fn agents_layer() -> impl Strategy<Value = Value> {
    let agents = prop::collection::vec((select(&AGENTS[..3]), agent()), 1..4);
    (agents, any::<bool>()).prop_map(|(agents, deny)| {
        let agents: Map<String, Value> =
            agents.into_iter().map(|(name, agent)| (name.to_string(), agent)).collect();
        json!({"agents": agents, "defaults": {"deny_on_missing_agent": deny}})
    })
}

fn allowlist_layer() -> impl Strategy<Value = Value> {
    let list = prop::collection::vec(entry(), 0..5).prop_map(|mut list| {
        list.retain(|entry| entry != "!x" && entry["tool"] != "!x");
        list
    });
    (list, select(vec!["sensitive", "insensitive"]))
        .prop_map(|(list, case)| json!({"allowed_tools": list, "case": case}))
}

fn any_policy() -> impl Strategy<Value = Value> {
    let both = (agents_layer(), allowlist_layer()).prop_map(|(mut agents, list)| {
        agents.as_object_mut().unwrap().extend(list.as_object().unwrap().clone());
        agents
    });
    prop_oneof![3 => agents_layer(), 2 => allowlist_layer(), 2 => both]
}

fn action_property() -> impl Strategy<Value = Value> {
    let values = prop::collection::vec(select(&ACTIONS[..]), 1..4);
    prop_oneof![
        3 => values.prop_map(|values| json!({"type": "string", "enum": values})),
        1 => Just(json!({"type": "string"})),
        1 => Just(json!({"enum": ["navigate", 1]})),
    ]
}

fn definition() -> impl Strategy<Value = Value> {
    let what = prop::option::weighted(0.4, action_property());
    let action = prop::option::weighted(0.3, action_property());
    (what, action, prop::option::of(any::<bool>())).prop_map(|(what, action, read_only)| {
        let mut properties = Map::new();
        properties.extend(what.map(|schema| ("what".into(), schema)));
        properties.extend(action.map(|schema| ("action".into(), schema)));
        let mut definition = json!({"inputSchema": {"type": "object", "properties": properties}});
        if let Some(read_only) = read_only {
            definition["annotations"] = json!({"readOnlyHint": read_only});
        }
        definition
    })
}

fn arguments() -> impl Strategy<Value = Value> {
    let action = || {
        prop_oneof![
            6 => select(&ACTIONS[..]).prop_map(|action| json!(action)),
            1 => Just(json!(null)),
            1 => Just(json!(7)),
        ]
    };
    let member = prop_oneof![
        (Just("what"), action()),
        (Just("action"), action()),
        (Just("Action"), action()),
        (Just("path"), Just(json!("/srv/x"))),
        (Just("x"), Just(json!(1))),
        (Just("interact"), Just(json!("interact.navigate"))),
    ];
    prop::collection::vec(member, 0..3).prop_map(|members| {
        Value::Object(members.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
    })
}

fn request() -> impl Strategy<Value = Value> {
    let arguments = prop::option::weighted(0.8, arguments());
    let agent = prop::option::weighted(0.9, select(&AGENTS[..]));
    (agent, select(&SERVERS[..]), select(&TOOLS[..]), definition(), arguments).prop_map(
        |(agent, server, tool, definition, arguments)| {
            json!({
                "agent": agent, "server": server, "tool": tool,
                "definition": definition, "arguments": arguments,
            })
        },
    )
}

fn one_tool(request: &Request) -> ToolSet {
    ToolSet::new(vec![request.tool.clone()])
}

/// Fewer for mutation tests.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(3000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_fast_path_and_the_plain_matcher_agree(value in any_policy(), request in request()) {
        let policy = policy(&value);
        let request = Request::new(&request);
        let hints = request.hints(&policy);
        let subject = Subject::Tool(&request.tool, &hints);
        let cell = policy.cell(request.agent.as_deref(), &request.server, subject);
        let plain = policy.explain(request.caller(), &request.server, subject, Query::Call(request.call()));
        prop_assert_eq!(cell.decide(request.caller(), &request.call()), plain.decision);
        let plain = policy.explain(request.caller(), &request.server, subject, Query::List);
        prop_assert_eq!(cell.list(request.caller()).decision, plain.decision);
    }

    #[test]
    fn the_reason_of_a_refusal_is_what_the_plain_matcher_found(value in any_policy(), request in request()) {
        let policy = policy(&value);
        let request = Request::new(&request);
        let hints = request.hints(&policy);
        let subject = Subject::Tool(&request.tool, &hints);
        let cell = policy.cell(request.agent.as_deref(), &request.server, subject);
        let decision = cell.decide(request.caller(), &request.call());
        if decision.verdict != Verdict::Deny {
            return Ok(());
        }
        let why = policy.why(&cell, request.caller(), &request.call(), decision);
        let found: Vec<_> = match &why.cause {
            Cause::Conditions(unmet) => unmet.iter().map(|one| one.rule()).collect(),
            _ => Vec::new(),
        };
        let plain = policy.explain(request.caller(), &request.server, subject, Query::Call(request.call()));
        let layer = plain.layers.iter().find(|layer| Some(layer.layer) == decision.layer);
        let allows = |step: Step| matches!(step, Step::ExactAllow | Step::WildcardAllow | Step::AllowlistMatch);
        let steps = layer.iter().flat_map(|layer| &layer.steps).filter(|step| allows(step.step));
        let unmet = |tried: &&Tried| matches!(tried.outcome, Outcome::ConditionFalse | Outcome::ConditionFailed(_));
        let expected: Vec<_> = steps.flat_map(|step| &step.tried).filter(unmet).map(|tried| tried.rule).collect();
        match &why.cause {
            // These are conditions on the caller, of entries that would otherwise allow the call.
            Cause::Scopes(scopes) => prop_assert!(!scopes.is_empty() && !expected.is_empty()),
            _ => prop_assert_eq!(found, expected),
        }
    }

    #[test]
    fn a_hidden_tool_gets_the_refusal_of_one_that_does_not_exist(value in any_policy(), request in request()) {
        let policy = policy(&value);
        let request = Request::new(&request);
        let caller = request.caller();
        let others = ["observe", "get_user", "interact"].map(Tool::named).to_vec();
        let named = |tool: &Tool| others.iter().any(|other| other.name() == tool.name());
        let listed = policy.list(caller, &request.server, &request.tool).decision.verdict != Verdict::Deny;
        if listed || named(&request.tool) {
            return Ok(());
        }
        let refusal = |tools: Vec<Tool>| {
            let row = policy.row(caller.agent, &request.server, &ToolSet::new(tools));
            let name = |(tool, cell): (&Tool, &toolward_policy::Cell)| {
                (cell.list(caller).decision.verdict != Verdict::Deny).then(|| tool.name().into())
            };
            let names = row.iter().map(name).collect();
            let offer = Offer { server: &request.server, prefix: String::new(), row: &row, names };
            let call = request.call();
            let action = stated_action(&call);
            let sent = Sent { tool: request.tool.name(), action: action.as_deref(), arguments: call.arguments };
            policy.allowed(caller, &[offer]).refuse(&policy, sent, None, &(), "1")
        };
        let without = refusal(others.clone());
        let mut all = others.clone();
        all.insert(1, request.tool.clone());
        prop_assert_eq!(refusal(all), without);
    }

    #[test]
    fn prompts_and_resources_agree_too(value in any_policy(), request in request()) {
        let policy = policy(&value);
        let request = Request::new(&request);
        let name = request.tool.name();
        for subject in [Subject::Prompt(name), Subject::Resource(name), Subject::Template(name), Subject::ClientRequest("elicitation"), Subject::ClientRequest("sampling")] {
            let cell = policy.cell(request.agent.as_deref(), &request.server, subject);
            let plain = policy.explain(request.caller(), &request.server, subject, Query::List);
            prop_assert_eq!(cell.list(request.caller()).decision, plain.decision);
        }
    }

    #[test]
    fn a_deny_that_covers_the_tool_always_wins(value in agents_layer(), request in request()) {
        let request = Request::new(&request);
        let mut value = value;
        let name = request.tool.name();
        for agent in value["agents"].as_object_mut().unwrap().values_mut() {
            agent["deny"]["tools"]["*"] = json!([name]);
            agent["case"] = json!("sensitive");
        }
        let decision = request.decide(&policy(&value));
        prop_assert_eq!(decision.verdict, Verdict::Deny);
    }

    #[test]
    fn a_further_layer_never_allows_more(first in any_policy(), second in any_policy(), request in request()) {
        let request = Request::new(&request);
        let alone = request.decide(&policy(&first));
        let mut layered = source(&first);
        layered.layers.extend(source(&second).layers);
        let both = request.decide(&Policy::compile(layered).unwrap());
        prop_assert!(both.verdict >= alone.verdict);
    }

    #[test]
    fn hidden_means_not_callable(value in any_policy(), request in request()) {
        let policy = policy(&value);
        let request = Request::new(&request);
        let row = policy.row(request.agent.as_deref(), &request.server, &one_tool(&request));
        let listed = row.cell(request.tool.name()).unwrap().list(request.caller()).decision;
        let called = row.decide(request.caller(), request.tool.name(), &request.call());
        if listed.verdict == Verdict::Deny {
            prop_assert_eq!(called.verdict, Verdict::Deny);
        }
    }

    #[test]
    fn listed_as_allowed_means_every_call_that_fits_the_schema_is(value in any_policy(), request in request()) {
        let policy = policy(&value);
        let fits = fits_schema(&request);
        let request = Request::new(&request);
        let row = policy.row(request.agent.as_deref(), &request.server, &one_tool(&request));
        let listed = row.cell(request.tool.name()).unwrap().list(request.caller()).decision;
        let called = row.decide(request.caller(), request.tool.name(), &request.call());
        if listed.verdict == Verdict::Allow && fits && called.step != Step::AmbiguousAction {
            prop_assert_eq!(called.verdict, Verdict::Allow);
        }
    }

    #[test]
    fn a_narrowed_enum_holds_every_action_that_may_be_called(value in any_policy(), request in request()) {
        let policy = policy(&value);
        let definition = request["definition"].clone();
        let request = Request::new(&request);
        let row = policy.row(request.agent.as_deref(), &request.server, &one_tool(&request));
        let listing = row.cell(request.tool.name()).unwrap().list(request.caller());
        let Some(kept) = listing.actions else { return Ok(()) };
        let properties = definition["inputSchema"]["properties"].as_object().unwrap();
        for (key, schema) in properties {
            for action in schema["enum"].as_array().unwrap().iter().filter_map(Value::as_str) {
                let mut arguments = Map::new();
                arguments.insert(key.clone(), json!(action));
                let call = Call::with(&arguments);
                let called = row.cell(request.tool.name()).unwrap().decide(request.caller(), &call);
                if called.verdict == Verdict::Allow {
                    prop_assert!(kept.contains(&action.to_string()), "{} is missing", action);
                }
            }
        }
    }

    #[test]
    fn renames_do_not_change_verdicts(value in any_policy(), request in request()) {
        let request = Request::new(&request);
        let exposed = |display_name: Option<&str>| {
            let mut source = source(&value);
            source.servers.push(ServerSource {
                expose: Some(ExposeSource {
                    entries: vec![ExposeEntry {
                        name: request.tool.name().into(),
                        display_name: display_name.map(String::from),
                        ..ExposeEntry::default()
                    }],
                    literal: true,
                }),
                ..ServerSource::new(&request.server)
            });
            request.decide(&Policy::compile(source).unwrap())
        };
        prop_assert_eq!(exposed(None), exposed(Some("shown_as")));
    }

    #[test]
    fn a_folding_allowlist_does_not_see_case(list in allowlist_layer(), request in request()) {
        let mut list = list;
        list["case"] = json!("insensitive");
        for entry in list["allowed_tools"].as_array_mut().unwrap() {
            if entry.is_object() { *entry = entry["tool"].clone(); }
        }
        let policy = policy(&list);
        let lower = Request::new(&request);
        let mut upper = request.clone();
        for key in ["server", "tool"] {
            upper[key] = json!(upper[key].as_str().unwrap().to_ascii_uppercase());
        }
        let upper = Request::new(&upper);
        prop_assert_eq!(lower.decide(&policy), upper.decide(&policy));
    }

    #[test]
    fn a_sensitive_list_sees_case(request in request(), flip in any::<prop::sample::Index>()) {
        let written = request["tool"].as_str().unwrap().to_string();
        let at = flip.index(written.len());
        let mut other = written.clone().into_bytes();
        other[at] ^= 0x20;
        prop_assume!(other[at].is_ascii_alphabetic());
        let other = String::from_utf8(other).unwrap();
        let policy = policy(&json!({"allowed_tools": [written, "x.y"], "case": "sensitive"}));
        let mut request = request;
        request["tool"] = json!(other);
        prop_assert_eq!(Request::new(&request).decide(&policy).verdict, Verdict::Deny);
    }

    #[test]
    fn no_argument_makes_a_selector_match_that_names_another_tool(list in allowlist_layer(), request in request()) {
        let mut list = list;
        list["case"] = json!("sensitive");
        let name = request["tool"].as_str().unwrap().to_string();
        let server = request["server"].as_str().unwrap().to_string();
        list["allowed_tools"].as_array_mut().unwrap().retain(|entry| {
            let text = entry.as_str().unwrap_or_else(|| entry["tool"].as_str().unwrap());
            let selector = Selector::new(text, Case::Sensitive);
            let full = format!("{server}.{name}");
            selector.tags().is_none() && ![name.as_str(), &full].iter().any(|name| {
                selector.names_tool(name) || selector.actions_of(name, true).next().is_some()
            })
        });
        let decision = Request::new(&request).decide(&policy(&list));
        prop_assert_eq!(decision.verdict, Verdict::Deny);
    }

    #[test]
    fn a_condition_that_fails_never_allows(request in request(), deny in plain_entry()) {
        let request = Request::new(&request);
        let failing = json!({"tool": "*", "when": "args.not_there.deeper == 1"});
        let allowed = policy(&json!({"allowed_tools": [failing]}));
        prop_assert_eq!(request.decide(&allowed).verdict, Verdict::Deny);
        let denied = policy(&json!({"agents": {"dev": {
            "allow": {"servers": ["*"]},
            "deny": {"tools": {"*": [failing, deny]}},
        }}}));
        let decision = denied.decide(Caller::named("dev"), &request.server, &request.tool, &request.call());
        prop_assert_eq!(decision.verdict, Verdict::Deny);
    }
}

/// Whether the arguments are a call that the schema permits, with an explicit action if the schema
/// lists actions.
fn fits_schema(request: &Value) -> bool {
    let properties = request["definition"]["inputSchema"]["properties"].as_object().unwrap();
    let no_arguments = Map::new();
    let arguments = request["arguments"].as_object().unwrap_or(&no_arguments);
    let lists_actions = properties.values().any(|schema| schema.get("enum").is_some());
    let says_action = properties.keys().any(|key| arguments.contains_key(key));
    let other_key = ["what", "action"]
        .iter()
        .any(|key| !properties.contains_key(*key) && arguments.contains_key(*key));
    let permitted =
        properties.iter().all(|(key, schema)| match (arguments.get(key), schema.get("enum")) {
            (Some(value), Some(values)) => values.as_array().unwrap().contains(value),
            _ => true,
        });
    permitted && !(lists_actions && (!says_action || other_key))
}
