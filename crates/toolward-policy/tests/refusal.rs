//! Refusal messages for agents.
#![allow(clippy::unwrap_used)]

mod common;

use common::world::{World, definition, dev, tools};
use serde_json::{Value, json};
use std::time::Duration;
use toolward_policy::reason::About;
use toolward_policy::refusal::{Limited, Redact, Sent};
use toolward_policy::{Call, Caller, Tool, Verdict};

const LAST: &str = "Decision 66064ca24dc9f (a person can run: toolward explain 66064ca24dc9f)";

#[test]
fn a_name_that_is_not_listed_gets_callable_names() {
    let rules = dev(
        json!({"servers": ["browser", "git"], "tools": {"browser": ["observe", "interact.navigate", "secret_tool", "get_*"]}}),
        json!({"tools": {"browser": ["secret_tool"]}}),
    );
    let browser = tools(&["observe", "interact", "secret_tool"]);
    let world = World::new(rules, vec![("browser", browser), ("git", tools(&["log"]))]).prefixed();
    let refused = world.call("shell", json!({"action": "run"}));
    let message = "shell.run is not permitted. Allowed: browser__observe, browser__interact.navigate, git__log";
    assert_eq!(
        refused.data,
        json!({
            "error": "tool_not_allowed", "message": message, "tool": "shell", "action": "run",
            "allowed_tools": ["browser/observe", "browser/interact.navigate", "browser/get_*", "git/*"],
            "retryable": false, "decision_id": "66064ca24dc9f",
        })
    );
    assert_eq!((refused.message.as_str(), refused.text().as_str()), (message, message));
    assert!(!refused.listed);

    let stranger = World::new(json!({"agents": {}}), vec![]);
    assert_eq!(stranger.message("shell"), "shell is not permitted. Allowed: nothing");
}

#[test]
fn a_condition_that_was_false_is_quoted_with_what_was_sent() {
    let entry = json!({"tool": "write_file", "when": "args.path.startsWith(\"drafts/\")", "message": "Ask in #platform to widen this."});
    let rules = dev(json!({"servers": ["*"], "tools": {"files": [entry]}}), json!({}));
    let world = World::new(rules, vec![("files", tools(&["write_file"]))]);
    let refused = world.call("write_file", json!({"path": "b.txt", "content": "secret"}));
    let head = "write_file is not permitted with these arguments: it is allowed only when args.path.startsWith(\"drafts/\").";
    assert_eq!(
        refused.text(),
        format!(
            "{head}\nYou sent path = \"b.txt\". Repeating the same call will not help.\n\
             Ask in #platform to widen this.\n{LAST}"
        )
    );
    assert_eq!(refused.data["message"], format!("{head}\nAsk in #platform to widen this."));
    assert!(refused.listed);
    let recorded = refused.text_without_values();
    assert!(recorded.contains("You sent path = [not recorded]. Repeating"), "{recorded}");

    let missing = world.call("write_file", json!({"file": "b.txt"})).message;
    assert!(
        missing.starts_with(
            "write_file is not permitted with these arguments: it is allowed only when \
             args.path.startsWith(\"drafts/\") (path is missing)."
        ),
        "{missing}"
    );
    // A value of another type fails too, and is not reported as missing.
    let wrong = world.call("write_file", json!({"path": 7})).text();
    assert!(wrong.contains("You sent path = 7.") && !wrong.contains("missing"), "{wrong}");
    assert!(wrong.contains(" (which cannot be evaluated for these arguments)."), "{wrong}");
}

#[test]
fn at_most_three_conditions_are_quoted_and_none_on_the_caller() {
    let entry = |when: &str| json!({"tool": "t", "when": when});
    let rules = |conditions: &[&str]| {
        let entries: Vec<Value> = conditions.iter().map(|when| entry(when)).collect();
        dev(json!({"servers": ["*"], "tools": {"s": entries}}), json!({}))
    };
    let head = |conditions: &[&str]| {
        let world = World::new(rules(conditions), vec![("s", tools(&["t"]))]);
        world.call("t", json!({"a": 9})).message
    };
    let of = "t is not permitted with these arguments: it is allowed only";
    assert_eq!(
        head(&["args.a == 1", "args.a == 2", "args.a == 3", "args.a == 4", "args.a == 5"]),
        format!(
            "{of} when args.a == 1, or when args.a == 2, or when args.a == 3, or under 2 more conditions."
        )
    );
    assert_eq!(
        head(&["args.a == 1 && agent == 'dev'", "args.a == 2", "args.a == 3 && claims.x == 1"]),
        format!("{of} when args.a == 2, or under a condition on the caller.")
    );
    let caller = ["args.a == 1 && tool == 't'", "args.a == 2 && hints.exists(h, h == 'x')"];
    let world = World::new(rules(&caller), vec![("s", tools(&["t"]))]);
    let text = world.call("t", json!({"a": 9})).text();
    assert!(
        text.starts_with(&format!("{of} under a condition on the caller.\nRepeating")),
        "{text}"
    );
    // A condition of several lines is quoted on one line.
    assert_eq!(
        head(&["args.a == 1 &&\n  args.a != 2"]),
        format!("{of} when args.a == 1 && args.a != 2.")
    );
}

#[test]
fn a_deny_never_shows_its_condition() {
    let rules = dev(
        json!({"servers": ["*"]}),
        json!({"tools": {"s": [{"tool": "t", "when": "args.path.contains('s3cret')", "message": "Ask Ann."}]}}),
    );
    let world = World::new(rules, vec![("s", tools(&["t"]))]);
    let text = world.call("t", json!({"path": "/s3cret/x"})).text();
    assert_eq!(
        text,
        format!(
            "t is not permitted with these arguments: denied by policy.\n\
             Repeating the same call will not help.\nAsk Ann.\n{LAST}"
        )
    );
}

#[test]
fn an_action_is_refused_with_those_that_are_allowed() {
    let rules = dev(
        json!({"servers": ["*"], "tools": {"web": ["interact.navigate", "interact.refresh", "look"]}}),
        json!({}),
    );
    let world = World::new(rules, vec![("web", tools(&["look", "interact"]))]).prefixed();
    let refused = world.call("web__interact", json!({"action": "execute_js"}));
    let head = "web__interact.execute_js is not permitted. Allowed: web__interact.navigate, \
                web__interact.refresh, web__look";
    let sent = "You sent action = \"execute_js\". Allowed values of action: navigate, refresh.";
    assert_eq!(
        refused.text(),
        format!("{head}\n{sent} Repeating the same call will not help.\n{LAST}")
    );
    // Without an action, the entry that covers the tool is another call.
    assert_eq!(
        world.message("web__interact"),
        "web__interact is not permitted. Allowed: web__interact.navigate, \
         web__interact.refresh, web__look"
    );

    // The schema lists the actions, and a deny removes one.
    let schema = json!({"inputSchema": {"properties": {"action": {"enum": ["a", "b", "c"]}}}});
    let rules = dev(json!({"servers": ["*"]}), json!({"tools": {"web": ["do.b"]}}));
    let world = World::new(rules, vec![("web", vec![definition("do", schema)])]);
    let text = world.call("do", json!({"action": "b"})).text();
    assert_eq!(
        text,
        format!(
            "do.b is not permitted. Allowed: do.a, do.c\n\
             You sent action = \"b\". Allowed values of action: a, c. Denied by policy. Repeating the same call will not help.\n{LAST}"
        )
    );
    // Without a list of actions, the tool itself would cover the refused call.
    let rules = dev(json!({"servers": ["*"]}), json!({"tools": {"web": ["do.b"]}}));
    let world = World::new(rules, vec![("web", tools(&["do", "look"]))]);
    let message = world.call("do", json!({"action": "b"})).message;
    assert_eq!(message, "do.b is not permitted. Allowed: look");
}

#[test]
fn an_ambiguous_action_is_explained() {
    let rules = dev(json!({"servers": ["*"], "tools": {"s": ["t.go"]}}), json!({}));
    let world = World::new(rules, vec![("s", tools(&["t"]))]);
    let of = "is not permitted with these arguments:";
    for (arguments, message) in [
        (json!({"action": 1}), format!("t {of} the argument action is not a string.")),
        (
            json!({"Action": "go"}),
            format!("t {of} the argument Action differs from action only in case."),
        ),
        (
            json!({"what": "x", "action": "go"}),
            format!("t.x {of} the arguments what and action name different actions."),
        ),
    ] {
        assert_eq!(world.call("t", arguments).message, message);
    }
}

#[test]
fn an_allowlist_shows_its_entries_as_written() {
    let hinted = definition("read_it", json!({"annotations": {"readOnlyHint": true}}));
    let mut offered = tools(&["observe", "interact", "get_a"]);
    offered.push(hinted);
    let rules = |list: Value| json!({"allowed_tools": list});
    let world = |list: Value| World::new(rules(list), vec![("web", offered.clone())]).prefixed();

    let list = json!(["OBSERVE.*", "interact.Navigate", "not_there", "nothing_*"]);
    let refused = world(list.clone()).call("web__configure", json!({}));
    assert_eq!(
        refused.message,
        "web__configure is not permitted. Allowed: OBSERVE.*, interact.Navigate, nothing_*"
    );
    assert_eq!(
        refused.data["allowed_tools"],
        json!(["OBSERVE.*", "interact.Navigate", "nothing_*"])
    );
    let action = world(list).call("web__interact", json!({"action": "click"}));
    assert_eq!(
        action.message,
        "web__interact.click is not permitted. Allowed: OBSERVE.*, interact.Navigate, nothing_*"
    );

    // Hints are not callable names.
    let refused = world(json!(["hint:read-only", "interact"])).call("web__shell", json!({}));
    assert_eq!(refused.message, "web__shell is not permitted. Allowed: interact, web__read_it");
    assert_eq!(refused.data["allowed_tools"], json!(["hint:read-only", "interact"]));

    // An entry that covers the refused call is replaced by the calls that it really allows.
    for name in ["web__get_b", "get_b"] {
        let message = world(json!(["get_*", "observe"])).message(name);
        assert_eq!(message, format!("{name} is not permitted. Allowed: observe, web__get_a"));
    }
    assert_eq!(
        world(json!(["*"])).message("web__nope"),
        "web__nope is not permitted. Allowed: web__observe, web__interact, web__get_a, web__read_it"
    );
    assert_eq!(
        world(json!(["observe"])).message("observe"),
        "observe is not permitted. Allowed: web__observe"
    );
    assert_eq!(world(json!([])).message("x"), "x is not permitted. Allowed: nothing");

    // Another layer may leave nothing of a pattern.
    let mut both =
        dev(json!({"servers": ["*"], "tools": {"web": ["interact", "get_*"]}}), json!({}));
    both["allowed_tools"] = json!(["interact.go", "get_*", "obs*"]);
    let world = World::new(both, vec![("web", offered)]);
    let message = world.call("interact", json!({"action": "x"})).message;
    assert_eq!(message, "interact.x is not permitted. Allowed: interact.go, get_*");
}

#[test]
fn no_selector_spells_a_name_that_is_not_listed() {
    let offered = || {
        vec![("web", tools(&["look", "interact", "secret_tool", "a.b"])), ("git", tools(&["log"]))]
    };
    let selectors = |world: &World| {
        let refused = world.call("nope", json!({}));
        let text = refused.text();
        assert!(!text.contains("secret"), "{text}");
        refused.data["allowed_tools"].clone()
    };
    // As in an agent's lists: what is spelled must be listed on that very server.
    let entries = json!([
        "secret_tool",
        "secret_tool.*",
        "secret_tool.nav*",
        "secret_tool.go",
        "gone.*",
        "log.*",
        "LOOK.*",
        "look.*",
        "interact.g*",
        "a.*",
        "secret_*",
        "*.go",
        "[s]ecret_tool.x",
        "hint:read-only",
    ]);
    let rules = dev(
        json!({"servers": ["*"], "tools": {"web": entries}}),
        json!({"tools": {"web": ["secret_tool"]}}),
    );
    assert_eq!(
        selectors(&World::new(rules, offered())),
        json!([
            "web/LOOK.*",
            "web/look.*",
            "web/interact.g*",
            "web/a.*",
            "web/secret_*",
            "web/*.go",
            "web/[s]ecret_tool.x",
            "web/hint:read-only",
            "git/*",
        ])
    );
    // As in an allowlist, where an entry may also begin with a server that the agent may use.
    let list = json!([
        "secret_tool",
        "SECRET_TOOL.*",
        "web.secret_tool.*",
        "web.secret_tool.g?",
        "vault.*",
        "vault.get_*",
        "web.look.*",
        "Web.interact.go",
        "web.*",
        "web.l*",
        "interact.*",
        "log.*",
    ]);
    let mut rules = dev(json!({"servers": ["web"]}), json!({"tools": {"web": ["secret_tool"]}}));
    rules["allowed_tools"] = list.clone();
    let mut web = offered();
    web.truncate(1);
    assert_eq!(
        selectors(&World::new(rules, web)),
        json!(["web/*", "web.look.*", "Web.interact.go", "web.*", "web.l*", "interact.*"])
    );
    // Without other layers, the entries themselves are in the text.
    let unlisted =
        World::new(json!({"allowed_tools": ["vault.*", "look.*", "wipe.now"]}), offered());
    let refused = unlisted.call("nope", json!({}));
    assert_eq!(refused.message, "nope is not permitted. Allowed: look.*");
    assert_eq!(refused.data["allowed_tools"], json!(["look.*"]));
}

#[test]
fn nothing_allowed_covers_the_refused_call() {
    let entries = ["a", "a.*", "a.b", "*", "a*", "*.b", "b", "hint:destructive"];
    let offered = || tools(&["a", "b", "ab"]);
    for first in entries {
        for second in entries {
            for name in ["a", "ab", "a.b", "abc", "nope", "s__a"] {
                for arguments in [json!({}), json!({"action": "b"}), json!({"action": "c"})] {
                    let rules = json!({"allowed_tools": [first, second]});
                    let world = World::new(rules, vec![("s", offered())]);
                    let allowed = {
                        let arguments = arguments.as_object().unwrap().clone();
                        let row = &world.servers[0].1;
                        row.decide(Caller::named("dev"), name, &Call::with(&arguments))
                    };
                    if allowed.verdict == Verdict::Allow {
                        continue;
                    }
                    let message = world.call(name, arguments).message;
                    let (what, list) = message.split_once(" is not permitted. Allowed: ").unwrap();
                    assert!(
                        !list.split(", ").any(|one| one == what),
                        "{first} {second}: {message}"
                    );
                    assert!(!list.split(", ").any(|one| one == "*"), "{first} {second}: {message}");
                }
            }
        }
    }
}

#[test]
fn the_nearest_names_come_first_and_the_rest_is_counted() {
    let mut names: Vec<String> = (0..30).map(|n| format!("tool_{n:02}")).collect();
    names.push("read_file".into());
    names.push("write_file".into());
    let rules = dev(json!({"servers": ["*"]}), json!({}));
    let offered: Vec<Tool> = names.iter().map(|name| Tool::named(name)).collect();
    let world = World::new(rules, vec![("s", offered)]).prefixed();
    let message = world.message("raed_file");
    assert!(
        message.starts_with(
            "raed_file is not permitted. Allowed: s__read_file, s__write_file, s__tool_00,"
        ),
        "{message}"
    );
    assert!(message.ends_with(", s__tool_07 (22 more in tools/list)"), "{message}");

    // So are an allowlist's entries beyond fifty, and selectors in the data.
    let list: Vec<String> = (0..60).map(|n| format!("x{n}_*")).collect();
    let world = World::new(json!({"allowed_tools": list}), vec![("s", tools(&["x0_a"]))]);
    let refused = world.call("y", json!({}));
    assert!(refused.message.ends_with(", x49_* (10 more)"), "{}", refused.message);
    let selectors = refused.data["allowed_tools"].as_array().unwrap();
    assert_eq!((selectors.len(), selectors.last().unwrap()), (51, &json!("…")));
    // Regardless of their length.
    let list: Vec<String> = (0..60).map(|n| format!("{n}{}*", "x".repeat(2000))).collect();
    let world = World::new(json!({"allowed_tools": list}), vec![("s", tools(&[]))]);
    assert!(world.message("y").len() < 6000);
}

#[test]
fn hidden_and_nonexistent_are_alike_also_beside_similar_names() {
    let rules = dev(
        json!({"servers": ["*"], "tools": {"s": ["read_*", {"tool": "hidden_write", "when": "agent == 'x'", "message": "Ask Ann."}]}}),
        json!({"tools": {"s": [{"tool": "read_secret", "message": "Ask Bob."}]}}),
    );
    let world = |names: &[&str]| World::new(rules.clone(), vec![("s", tools(names))]).prefixed();
    let with = world(&["read_a", "read_secret", "hidden_write", "other", "read_b"]);
    let without = world(&["read_a", "read_b"]);
    for name in [
        "s__read_secret",
        "s__read_secre",
        "s__hidden_write",
        "s__other",
        "read_secret",
        "other",
        "",
    ] {
        for arguments in [json!({}), json!({"action": "go"})] {
            let (one, other) = (with.call(name, arguments.clone()), without.call(name, arguments));
            assert_eq!(one, other, "{name}");
            assert!(!one.message.contains("Ask"), "an entry's message is in {one:?}");
        }
    }
}

#[test]
fn messages_come_from_the_entry_the_agent_or_the_file() {
    let mut rules = dev(
        json!({"servers": ["*"], "tools": {"s": [{"tool": "t", "when": "args.a == 1", "message": "the entry's"}, {"tool": "u", "when": "args.a == 1"}]}}),
        json!({}),
    );
    let says = |rules: &Value, name: &str| {
        let world = World::new(rules.clone(), vec![("s", tools(&["t", "u"]))]);
        let message = world.call(name, json!({})).message;
        message.split_once('\n').map(|(_, note)| note.to_string())
    };
    assert_eq!(says(&rules, "u"), None);
    rules["message"] = json!("the file's");
    assert_eq!(says(&rules, "u").as_deref(), Some("the file's"));
    assert_eq!(says(&rules, "gone").as_deref(), Some("the file's"));
    rules["agents"]["dev"]["message"] = json!("the agent's\nin two lines");
    assert_eq!(says(&rules, "u").as_deref(), Some("the agent's\nin two lines"));
    assert_eq!(says(&rules, "gone").as_deref(), Some("the agent's\nin two lines"));
    assert_eq!(says(&rules, "t").as_deref(), Some("the entry's"));
    // The agent that is used for an unknown one also provides its message.
    let stand_in = json!({
        "agents": {"default": {"allow": {"servers": []}, "message": "for strangers"}},
        "defaults": {"deny_on_missing_agent": false},
    });
    assert_eq!(says(&stand_in, "t").as_deref(), Some("for strangers"));
}

#[test]
fn without_explanations_only_the_fact_is_left() {
    let mut rules = dev(
        json!({"servers": ["*"], "tools": {"s": [{"tool": "t", "when": "args.a == 1"}, "u.go"]}}),
        json!({}),
    );
    let world = |rules: &Value| World::new(rules.clone(), vec![("s", tools(&["t", "u"]))]);
    rules["explain_to_agent"] = json!(false);
    rules["message"] = json!("Ask Ann.");
    for (name, arguments, what) in [
        ("t", json!({"a": 5}), "t"),
        ("u", json!({"action": "x"}), "u.x"),
        ("gone", json!({}), "gone"),
    ] {
        let refused = world(&rules).call(name, arguments);
        assert_eq!(refused.message, format!("{what} is not permitted\nAsk Ann."));
        assert!(refused.data.get("allowed_tools").is_none());
        let text = refused.text();
        assert!(
            !text.contains("Allowed") && !text.contains("args.a") && !text.contains("You sent"),
            "{text}"
        );
    }
    let limited = Limited::Exceeded {
        limit: "limits.calls",
        rate: "1/min",
        retry_after: Duration::from_secs(3),
    };
    let sent = Sent { tool: "t", action: None, arguments: None };
    let refused = world(&rules).allowed().limit(sent, limited, None, &(), "1");
    assert_eq!(refused.message, "t is not permitted\nAsk Ann.");
    assert_eq!(
        (&refused.data["limit"], &refused.data["retry_after_ms"]),
        (&Value::Null, &json!(3000))
    );
    // One agent can get the reason although others do not.
    rules["agents"]["dev"]["explain_to_agent"] = json!(true);
    assert!(world(&rules).message("gone").contains("Allowed: "));
}

#[test]
fn a_rate_limit_refusal_has_the_limit_and_the_wait() {
    let world = World::new(dev(json!({"servers": ["*"]}), json!({})), vec![("s", tools(&["t"]))]);
    let sent = Sent { tool: "t", action: Some("go"), arguments: None };
    let limited = Limited::Exceeded {
        limit: "your calls",
        rate: "5/min",
        retry_after: Duration::from_millis(11_500),
    };
    let refused = world.allowed().limit(sent, limited, Some("Ask Ann."), &(), "66064ca24dc9f");
    let head = "t.go is not permitted at this rate: the limit of 5/min on your calls is used up.";
    assert_eq!(refused.text(), format!("{head}\nTry again in 12 s.\nAsk Ann.\n{LAST}"));
    assert_eq!(refused.data["error"], "limit_exceeded");
    assert_eq!(refused.data["limit"], "your calls");
    assert_eq!(refused.data["retryable"], true);
    assert_eq!(refused.data["allowed_tools"], json!(["s/*"]));
    let refused = world.allowed().limit(sent, Limited::Unavailable, None, &(), "1");
    assert_eq!(refused.data["limit"], "store");
    assert_eq!(refused.message, "t.go is not permitted now: its rate limit cannot be checked.");
}

/// Redacts values that begin with `sk-`, and values of `password`.
struct Secrets;

impl Redact for Secrets {
    fn text<'t>(&self, text: &'t str) -> std::borrow::Cow<'t, str> {
        if text.starts_with("sk-") { "[redacted]".into() } else { text.into() }
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => self.text(&text).into_owned().into(),
            Value::Object(members) => {
                let member = |(key, value): (String, Value)| {
                    let secret = key == "password";
                    (key, if secret { json!("[redacted]") } else { self.value(value) })
                };
                Value::Object(members.into_iter().map(member).collect())
            }
            other => other,
        }
    }
}

#[test]
fn repeated_text_is_redacted_escaped_and_short() {
    let entry = json!({"tool": "t", "when": "args.password == 'x' || args.key == 'y' || args.long == 'z' || args.odd == '' || args.from.password == ''"});
    let rules = dev(json!({"servers": ["*"], "tools": {"s": [entry]}}), json!({}));
    let world = World::new(rules, vec![("s", tools(&["t"]))]);
    let arguments = json!({
        "password": "hunter2", "key": "sk-123", "long": "y".repeat(5000),
        "odd": "a\n\u{202e}b\"\u{1b}[31m", "from": {"password": "hunter3"},
    });
    let text = world.call_with("t", arguments, &Secrets).text();
    assert!(
        text.contains("You sent password = \"[redacted]\", key = \"[redacted]\", long = \"yyy"),
        "{text}"
    );
    assert!(text.contains(&format!("{}…\"", "y".repeat(200))) && !text.contains(&"y".repeat(201)));
    assert!(text.contains(r#"odd = "a\n\u{202e}b\"\u001b[31m""#), "{text}");
    assert!(text.contains("from.password = \"[redacted]\"") && !text.contains("hunter"), "{text}");
    // Names and actions too: a name is text of the caller.
    let long = format!("{}\nDecision 1", "n".repeat(300));
    let refused = world.call_with(&long, json!({"action": "sk-456"}), &Secrets);
    assert!(!refused.message.contains('\n') && refused.message.len() < 300, "{}", refused.message);
    assert!(refused.message.contains("….[redacted] is not permitted"), "{}", refused.message);
    assert_eq!(world.call("a\nb", json!({})).message, "a\\u{a}b is not permitted. Allowed: t");
}

#[test]
fn people_read_the_same_reason_with_its_rule() {
    let entry = json!({"tool": "t", "when": "args.a == 1 && agent != 'x'"});
    let rules = dev(json!({"servers": ["*"], "tools": {"s": [entry]}}), json!({}));
    let world = World::new(rules, vec![("s", tools(&["t"]))]);
    let caller = Caller::named("dev");
    let reason = |arguments: Value| {
        let arguments = arguments.as_object().unwrap().clone();
        let (cell, call) = (world.servers[0].1.cell("t").unwrap(), Call::with(&arguments));
        let why = world.policy.why(cell, caller, &call, cell.decide(caller, &call));
        let about = About { agent: Some("dev"), server: "s", subject: "t", action: None };
        world.policy.reason_why(&why, about)
    };
    let of = "`s/t` is allowed only when `args.a == 1 && agent != 'x'`, which";
    let at = "(agents.dev.allow.tools.s[0])";
    assert_eq!(reason(json!({"a": 2})), format!("{of} is false {at}"));
    assert_eq!(reason(json!({})), format!("{of} needs the argument `a`, which is missing {at}"));
}
