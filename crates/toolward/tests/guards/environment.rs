//! Layers from flags and the environment, and the switch that disables them for debugging.

use serde_json::{Value, json};

use super::harness::*;
use super::support::*;

fn tools() -> Value {
    json!([
        {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
        {"name": "write", "inputSchema": {"type": "object"}},
        {"name": "c_1", "inputSchema": {"type": "object"}},
    ])
}

fn open() -> Setup {
    setup().web("s", "modern", tools()).agents(everyone())
}

/// The tools that an agent lists, all of which and nothing else can be called.
fn sees(gate: &Gate) -> Vec<String> {
    let a = gate.agent("a");
    let list = a.list();
    for tool in ["s__read", "s__write", "s__c_1"] {
        let answer = a.call(tool, json!({}));
        assert_eq!(passed(&answer), list.iter().any(|name| name == tool), "{tool}: {answer}");
    }
    list
}

#[test]
fn read_only_mode_comes_from_a_variable_a_flag_or_the_file() {
    for on in ["1", "on"] {
        let gate = open().env("TOOLWARD_READ_ONLY", on).start();
        assert_eq!(sees(&gate), ["s__read"], "{on}");
    }
    assert_eq!(sees(&open().flag("--read-only").start()), ["s__read"]);
    assert_eq!(sees(&open().set("read_only", json!(true)).start()), ["s__read"]);
    // None of them disables a restriction that another one enabled.
    let gate = open().set("read_only", json!(true)).env("TOOLWARD_READ_ONLY", "0").start();
    assert_eq!(sees(&gate), ["s__read"]);
    for off in ["no", ""] {
        assert_eq!(sees(&open().env("TOOLWARD_READ_ONLY", off).start()).len(), 3, "{off}");
    }
    for wrong in ["TRUE", " 1"] {
        let (code, said) = open().env("TOOLWARD_READ_ONLY", wrong).fails();
        assert!(code == 3 && said.contains("TOOLWARD_READ_ONLY"), "{wrong}: {said}");
    }
}

#[test]
fn an_allowlist_comes_from_a_variable() {
    let with = |list: &str| open().env("TOOLWARD_ALLOWED_TOOLS", list);
    assert_eq!(sees(&with("read,s.write").start()), ["s__read", "s__write"]);
    assert_eq!(sees(&with("read c_*").start()), ["s__read", "s__c_1"]);
    assert_eq!(sees(&with("hint:read-only").start()), ["s__read"]);
    assert_eq!(sees(&with("READ, c_1").start()), ["s__c_1"], "names are compared to the letter");
    assert_eq!(sees(&with("").start()).len(), 3, "an empty one is no layer");
    // It narrows what the file allows, and never widens it.
    let agents = json!({"a": {"allow": {"servers": ["*"], "tools": {"s": ["write"]}}}});
    let gate = setup()
        .web("s", "modern", tools())
        .agents(agents)
        .env("TOOLWARD_ALLOWED_TOOLS", "read,write")
        .start();
    assert_eq!(sees(&gate), ["s__write"]);
    for wrong in ["!read", ",", " , "] {
        let (code, said) = with(wrong).fails();
        let allowed = wrong.trim().is_empty();
        assert!(
            allowed || (code == 3 && said.contains("TOOLWARD_ALLOWED_TOOLS")),
            "{wrong}: {said}"
        );
    }
}

#[test]
fn with_allow_all_policy_is_recorded_and_not_enforced() {
    let agents = json!({"a": {
        "allow": {"servers": ["s"], "tools": {"s": ["read", "write.one"]}},
        "deny": {"tools": {"s": ["write.two"]}},
    }});
    let gate = setup()
        .web("s", "modern", tools())
        .web("r", "modern", names(&["t"]))
        .agents(agents)
        .flag("--allow-all")
        .start();
    assert!(gate.said.lock().unwrap().contains("POLICY IS NOT ENFORCED"));
    let all = super::audit_log::all(&gate.file("audit"));
    let start = all.iter().find(|record| record["kind"] == "start").unwrap();
    assert_eq!(start["allow_all"], true, "{start}");
    let a = gate.agent("a");
    assert_eq!(a.list(), ["s__read", "s__write", "s__c_1", "r__t"]);
    for (name, arguments) in [
        ("s__read", json!({})),
        ("s__write", json!({"action": "two"})),
        ("s__write", json!({})),
        ("r__t", json!({})),
    ] {
        let answer = a.call(name, arguments);
        assert!(passed(&answer), "{answer}");
    }
    let intents = intents(&gate);
    let said: Vec<(&Value, &Value, &Value)> =
        intents.iter().map(|one| (&one["verdict"], &one["step"], &one["enforced"])).collect();
    let deny = json!("deny");
    assert_eq!(said[0], (&json!("allow"), &json!("3-exact-allow"), &Value::Null));
    assert_eq!(said[1], (&deny, &json!("1-exact-deny"), &json!(false)));
    assert_eq!(said[2], (&deny, &json!("ambiguous-action"), &json!(false)));
    assert_eq!(said[3], (&deny, &json!("server-not-allowed"), &json!(false)));
    // Callers are still authenticated, and nonexistent tools still do not exist.
    assert_eq!(gate.nobody().post(&[], &initialize(LEGACY)).status, 401);
    assert_eq!(error(&a.call("s__nothing", json!({}))).0, -32602);
}

#[test]
fn allow_all_keeps_limits_hooks_and_exposure_and_stays_on_loopback() {
    let setup = open();
    let hook =
        program(&setup, "hook", "#!/bin/sh\ngrep -q '\"tool\":\"write\"' && exit 1\nexit 0\n");
    let gate = setup
        .with("s", "expose", json!(["read", "write"]))
        .set("hooks", json!([{"name": "h", "exec": [hook]}]))
        .set("limits", json!({"tools": {"s/read": "1/day"}}))
        .set("read_only", json!(true))
        .flag("--allow-all")
        .start();
    let a = gate.agent("a");
    assert_eq!(a.list(), ["s__read", "s__write"]);
    assert_eq!(error(&a.call("s__write", json!({}))).1, "s__write is refused by the hook `h`");
    assert!(passed(&a.call("s__read", json!({}))));
    limited(&a.call("s__read", json!({})));
    assert_eq!(error(&a.call("s__c_1", json!({}))).0, -32602, "an unexposed tool does not exist");
    let (code, said) = open().set("listen", json!("0.0.0.0:0")).flag("--allow-all").fails();
    assert!(code == 3 && said.contains("--allow-all"), "{said}");
}

#[test]
fn stdio_has_the_same_guards() {
    let setup = open();
    let hook =
        program(&setup, "hook", "#!/bin/sh\ngrep -q '\"tool\":\"write\"' && exit 1\nexit 0\n");
    let mut lines = setup
        .set("hooks", json!([{"name": "h", "exec": [hook]}]))
        .set("limits", json!({"calls": "2/day"}))
        .standard(&["--agent", "a"])
        .ready();
    let mut call = |name: &str| {
        lines.ask(&request(json!(name), "tools/call", json!({"name": name, "arguments": {}})))
    };
    assert_eq!(error(&call("s__write")).0, -32602);
    assert!(passed(&call("s__read")) && passed(&call("s__read")));
    assert_eq!(limited(&call("s__read"))["limit"], "all calls by all agents");
}
