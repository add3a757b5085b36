//! Guards for `default` apply to every caller without rules of its own, named or not.

use serde_json::{Value, json};

use super::harness::*;
use super::support::*;

/// A gateway for `w` and `default`, with a hook for these agents that refuses everything.
fn refusing(agents: Value) -> Setup {
    let setup = setup().web("s", "modern", names(&["t"]));
    let path = program(&setup, "hook", "#!/bin/sh\necho no >&2\nexit 1\n");
    open(setup).set("hooks", json!([{"name": "h", "exec": [path], "agents": agents}]))
}

fn open(setup: Setup) -> Setup {
    let all = json!({"servers": ["*"]});
    let agents = json!({"w": {"allow": all}, "default": {"allow": all}});
    setup.agents(agents).set("defaults", json!({"deny_on_missing_agent": false}))
}

fn call(lines: &mut Lines) -> Value {
    let params = json!({"name": "s__t", "arguments": {}});
    lines.ask(&request(json!(1), "tools/call", params))
}

#[test]
fn a_hook_for_default_is_asked_about_everyone_who_is_default() {
    for agents in [json!(["default"]), json!(["[!w]*"]), json!(["d*"])] {
        let gate = refusing(agents.clone()).start();
        assert_eq!(error(&gate.nobody().call("s__t", json!({}))).1, "no", "{agents}");
        let session = gate.nobody().session();
        assert_eq!(error(&session.call("s__t", json!({}))).1, "no", "{agents}");
        assert!(passed(&gate.agent("w").call("s__t", json!({}))), "{agents}");
        assert_eq!(gate.calls("s").len(), 1, "{agents}");
        for flags in [&[][..], &["--agent", "stranger"], &["--agent", "default"]] {
            let mut lines = refusing(agents.clone()).standard(flags).ready();
            assert_eq!(error(&call(&mut lines)).1, "no", "{agents} {flags:?}");
        }
        let mut lines = refusing(agents.clone()).standard(&["--agent", "w"]).ready();
        assert!(passed(&call(&mut lines)), "{agents}");
    }
    // A guard can also name an agent that has no rules of its own.
    let mut lines = refusing(json!(["strange*"])).standard(&["--agent", "stranger"]).ready();
    assert_eq!(error(&call(&mut lines)).1, "no");
    let gate = refusing(json!(["w"])).start();
    assert!(passed(&gate.nobody().call("s__t", json!({}))));
    assert_eq!(error(&gate.agent("w").call("s__t", json!({}))).1, "no");
}

#[test]
fn an_agent_that_one_layer_does_not_name_is_default_there() {
    let setup = refusing(json!(["default"]));
    let policy = json!({
        "defaults": {"deny_on_missing_agent": false},
        "agents": {"default": {"allow": {"servers": ["*"]}}},
    });
    std::fs::write(setup.path("more.yaml"), policy.to_string()).unwrap();
    let gate = setup.set("policies", json!(["more.yaml"])).start();
    assert_eq!(error(&gate.agent("w").call("s__t", json!({}))).1, "no");
}

#[test]
fn limits_and_discovery_of_default_hold_for_everyone_who_is_default() {
    let mut setup = open(setup().web("s", "modern", names(&["t"])));
    let all = json!({"servers": ["*"]});
    setup = setup.set("builtin", json!(true)).agents(json!({
        "w": {"allow": all},
        "default": {"allow": all, "limits": {"calls": "2/day"}, "discovery": "progressive"},
    }));
    let gate = setup.start();
    assert!(gate.agent("w").list().contains(&"s__t".into()));
    assert!(!gate.nobody().list().contains(&"s__t".into()));
    let inner = json!({"server": "s", "tool": "t", "args": {}});
    let run = || gate.nobody().call("toolward__execute_tool", inner.clone());
    assert!(passed(&run()) && passed(&run()));
    assert_eq!(limited(&run())["limit"], "calls by agents without rules of their own");
    assert!((0..3).all(|_| passed(&gate.agent("w").call("s__t", json!({})))));
}
