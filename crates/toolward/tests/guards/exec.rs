//! Hooks that are started for each call, and behavior that all hooks share.

use std::path::Path;

use serde_json::{Value, json};

use super::harness::*;
use super::support::*;

/// A gateway whose hook saves its input and allows the call.
fn recording(more: Value) -> Setup {
    with_program("#!/bin/sh\ncat > \"$SEEN\"\nenv > \"$SEEN.env\"\nexit 0\n", more)
}

#[test]
fn a_program_gets_the_request_and_allows_with_zero() {
    let tools = json!([{
        "name": "t", "description": "a tool", "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": true, "openWorldHint": false},
    }]);
    let setup = setup().web("s", "modern", tools).agents(everyone());
    let path = program(&setup, "hook", "#!/bin/sh\ncat > \"$SEEN\"\n");
    let seen = setup.path("seen");
    let hook = json!({"name": "h", "exec": [path], "env": {"SEEN": seen}});
    let mut with_arguments = hook.clone();
    merge(&mut with_arguments, json!({"name": "i", "arguments": true, "priority": 60}));
    with_arguments["env"]["SEEN"] = json!(setup.path("seen-arguments"));
    let gate = setup.set("hooks", json!([with_arguments, hook])).start();
    let call = json!({"name": "s__t", "arguments": {"action": "go", "n": [1, 2]}});
    let body = modern_body(json!("id-7"), "tools/call", call);
    // Formatted as a person would send it: the hook gets all of it.
    let pretty = serde_json::to_string_pretty(&body).unwrap();
    let headers =
        [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", "s__t")];
    let answer = gate.agent("a").send("POST", &headers, &pretty).json();
    assert!(passed(&answer), "{answer}");
    let told = |name: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(gate.file(name)).unwrap()).unwrap()
    };
    let mut want = json!({
        "version": 1, "agent": "a", "server": "s", "tool": "t", "action": "go",
        "definition": {
            "name": "t", "description": "a tool", "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": true, "openWorldHint": false},
        },
        "hints": ["closed-world", "read-only"],
        "client": {"name": "test", "version": "1", "capabilities": {}},
        "claims": null, "request_id": "id-7",
    });
    assert_eq!(told("seen"), want);
    want["arguments"] = json!({"action": "go", "n": [1, 2]});
    assert_eq!(told("seen-arguments"), want);
    // A session identifies its client once.
    let session = gate.agent("b").session();
    assert!(passed(&session.call("s__t", json!({}))));
    let seen = told("seen");
    assert_eq!(
        (&seen["agent"], &seen["action"], &seen["request_id"]),
        (&json!("b"), &Value::Null, &json!(7))
    );
    assert_eq!(seen["client"], json!({"name": "test", "version": "1", "capabilities": {}}));
}

#[test]
fn a_program_denies_with_exit_code_one_and_its_own_message() {
    let cases = [
        (
            "echo '{\"code\":-32600,\"message\":\"closed\",\"data\":{\"until\":[9]}}'",
            -32600,
            "closed",
            json!({"until": [9]}),
        ),
        ("echo '{\"message\":\"no\"}'", -32602, "no", Value::Null),
        ("echo '{\"code\":42,\"message\":\"mine\"}'", 42, "mine", Value::Null),
        ("echo '{\"code\":-32001,\"message\":\"taken\"}'", -32602, "taken", Value::Null),
        ("echo '{\"code\":-32700,\"message\":\"taken\"}'", -32602, "taken", Value::Null),
        ("echo 'not now' >&2; echo 'second' >&2", -32602, "not now", Value::Null),
        ("echo garbage; echo 'see the log' >&2", -32602, "see the log", Value::Null),
        ("true", -32602, "s__t is refused by the hook `h`", Value::Null),
    ];
    let setup = with_program("#!/bin/sh\ncat > /dev/null\n. \"$SAYS\"\nexit 1\n", json!({}));
    let says = setup.path("says");
    let setup =
        setup.set("hooks", json!([{"name": "h", "exec": ["./hook"], "env": {"SAYS": says}}]));
    let gate = setup.start();
    let a = gate.agent("a");
    for (script, code, message, data) in cases {
        std::fs::write(&says, script).unwrap();
        let answer = a.call("s__t", json!({}));
        assert_eq!(error(&answer), (code, message.into()), "{script}: {answer}");
        assert_eq!(answer["error"].get("data").unwrap_or(&Value::Null), &data, "{answer}");
        let record = refusals(&gate).pop().unwrap();
        assert_eq!((&record["step"], &record["hook"]), (&json!("hook"), &json!("h")));
        assert!(record["reason"].as_str().unwrap().contains(message), "{record}");
    }
    assert!(gate.calls("s").is_empty());
}

#[test]
fn a_hook_that_cannot_be_asked_refuses_the_call() {
    // It existed at startup, and was removed.
    let gate = with_program("#!/bin/sh\nexit 0\n", json!({})).start();
    assert!(passed(&gate.agent("a").call("s__t", json!({}))));
    std::fs::remove_file(gate.file("hook")).unwrap();
    assert!(hook_failed(&gate, &gate.agent("a")).contains("cannot be started"));
    // An exit code that a hook may not use.
    for (script, why) in [
        ("exit 2", "ended with 2"),
        ("exit 127", "ended with 127"),
        ("kill -9 $$", "by a signal"),
        ("echo '{\"decision\":\"deny\"}'; exit 0", "exits with 0"),
        ("echo checking; echo '{\"decision\":\"deny\"}'; exit 0", "exits with 0"),
        ("echo '{\"decision\":\"allow\"}'; echo '{\"decision\":\"deny\"}'; exit 0", "exits with 0"),
        ("echo '{\"decision\":\"allow\",\"decision\":\"deny\"}'; exit 0", "exits with 0"),
        ("echo DENY; exit 0", "exits with 0"),
        ("echo '{\"decision\":\"allow\",\"allow\":false}'; exit 0", "exits with 0"),
        ("echo '{\"result\":{\"allow\":true}}'; exit 0", "exits with 0"),
    ] {
        let gate = with_program(&format!("#!/bin/sh\n{script}\n"), json!({})).start();
        let reason = hook_failed(&gate, &gate.agent("a"));
        assert!(reason.contains(why), "{script}: {reason}");
        eventually("it is logged", || gate.said.lock().unwrap().contains("hook h: ").then_some(()));
    }
}

#[test]
fn a_failure_of_a_hook_that_is_not_critical_is_recorded_and_the_call_continues() {
    let gate = with_program("#!/bin/sh\nexit 3\n", json!({"critical": false})).start();
    let a = gate.agent("a");
    assert!(passed(&a.call("s__t", json!({}))));
    let failed = &intents(&gate)[0]["hooks_failed"];
    assert_eq!(failed[0]["hook"], "h", "{failed}");
    assert!(failed[0]["why"].as_str().unwrap().contains("ended with 3"), "{failed}");
    // A denial stays a denial.
    let gate = with_program("#!/bin/sh\nexit 1\n", json!({"critical": false})).start();
    assert_eq!(error(&gate.agent("a").call("s__t", json!({}))).0, -32602);
}

/// A hook that gets its own name as an argument, and the file to write it to.
fn logging_hook(name: &str, program: &Value, log: &Path, more: Value) -> Value {
    let mut hook = json!({"name": name, "exec": [program, name], "env": {"LOG": log}});
    merge(&mut hook, more);
    hook
}

#[test]
fn hooks_are_asked_by_priority_and_then_in_the_order_of_the_file() {
    let setup = with_tools(&["t"]);
    let path =
        program(&setup, "hook", "#!/bin/sh\ncat >/dev/null\necho $1 >> \"$LOG\"\n[ $1 != stop ]\n");
    let log = setup.path("log");
    let hook = |name: &str, more: Value| logging_hook(name, &path, &log, more);
    let gate = setup
        .set(
            "hooks",
            json!([
                hook("c", json!({})),
                hook("d", json!({"priority": 50})),
                hook("off", json!({"enabled": false, "priority": 0})),
                hook("stop", json!({"priority": 99})),
                hook("never", json!({"priority": 100})),
                hook("a", json!({"priority": 0})),
                hook("b", json!({"priority": 49})),
            ]),
        )
        .start();
    let answer = gate.agent("a").call("s__t", json!({}));
    assert_eq!(error(&answer).1, "s__t is refused by the hook `stop`");
    assert_eq!(std::fs::read_to_string(log).unwrap(), "a\nb\nc\nd\nstop\n");
}

#[test]
fn a_hook_is_asked_about_what_it_selects_and_never_before_policy() {
    let tools = json!([
        {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
        {"name": "drop", "inputSchema": {"type": "object"}},
        {"name": "go", "inputSchema": {"type": "object"}},
        {"name": "denied", "inputSchema": {"type": "object"}},
    ]);
    let setup = setup().web("s", "modern", tools.clone()).web("r", "modern", tools).agents(json!({
        "a": {"allow": {"servers": ["*"]}, "deny": {"tools": {"*": ["denied", "go.away"]}}},
        "b": {"allow": {"servers": ["*"]}},
    }));
    let path = program(&setup, "hook", "#!/bin/sh\necho $1 >> \"$LOG\"\n");
    let log = setup.path("log");
    let hook = |name: &str, more: Value| logging_hook(name, &path, &log, more);
    let gate = setup
        .set(
            "hooks",
            json!([
                hook("all", json!({})),
                hook("agent", json!({"agents": ["a"]})),
                hook("server", json!({"servers": ["r*"]})),
                hook("hint", json!({"tools": ["hint:destructive"]})),
                hook("name", json!({"tools": ["GO", "s.dr*"]})),
                hook("action", json!({"tools": ["go.far"], "servers": ["s"], "agents": ["a"]})),
            ]),
        )
        .start();
    let asked = |agent: &str, tool: &str, arguments: Value| {
        let _ = std::fs::remove_file(&log);
        let answer = gate.agent(agent).call(tool, arguments);
        (passed(&answer), std::fs::read_to_string(&log).unwrap_or_default().replace('\n', " "))
    };
    let want = |names: &str| (true, format!("{names} "));
    assert_eq!(asked("a", "s__read", json!({})), want("all agent"));
    assert_eq!(asked("b", "r__read", json!({})), want("all server"));
    assert_eq!(asked("b", "s__drop", json!({})), want("all hint name"));
    assert_eq!(asked("b", "r__drop", json!({})), want("all server hint"));
    assert_eq!(asked("a", "s__go", json!({"action": "near"})), want("all agent hint name"));
    assert_eq!(asked("a", "s__go", json!({"action": "far"})), want("all agent hint name action"));
    // Hooks are not called for calls that the policy denies, whether the tool is hidden or does not
    // exist.
    for (name, arguments) in
        [("s__denied", json!({})), ("s__nothing", json!({})), ("s__go", json!({"action": "away"}))]
    {
        assert_eq!(asked("a", name, arguments), (false, String::new()), "{name}");
    }
    // Nor for listings.
    let _ = std::fs::remove_file(&log);
    gate.agent("a").list();
    assert!(!log.exists());
}

#[test]
fn a_program_sees_only_what_is_declared() {
    let setup = recording(json!({}));
    let seen = setup.path("seen");
    let hook = json!({
        "name": "h", "exec": ["./hook"], "pass_env": ["GIT_HEX_*", "ONE"],
        "env": {"SEEN": seen, "SECRET": "${HOOK_SECRET}", "GIT_HEX_B": "declared"},
    });
    let gate = setup
        .set("hooks", json!([hook]))
        .env("HOOK_SECRET", "s3cr3t")
        .env("GIT_HEX_A", "1")
        .env("GIT_HEX_B", "2")
        .env("ONE", "3")
        .env("ONEMORE", "4")
        .env("OTHER", "5")
        .start();
    assert!(passed(&gate.agent("a").call("s__t", json!({}))));
    let seen = std::fs::read_to_string(gate.file("seen.env")).unwrap();
    let value = |name: &str| {
        seen.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(String::from)
    };
    assert_eq!(value("SECRET").as_deref(), Some("s3cr3t"));
    assert_eq!(value("GIT_HEX_A").as_deref(), Some("1"));
    assert_eq!(
        value("GIT_HEX_B").as_deref(),
        Some("declared"),
        "the declared value takes precedence"
    );
    assert_eq!(value("ONE").as_deref(), Some("3"));
    assert!(value("PATH").is_some() && value("HOME").is_some());
    for hidden in ["ONEMORE", "OTHER", "HOOK_SECRET", "TOKEN_OF_a"] {
        assert_eq!(value(hidden), None, "{hidden}");
    }
}

#[test]
fn arguments_that_a_hook_could_read_otherwise_than_the_server_are_refused() {
    let body = json!({"name": "s__t", "arguments": {"path": "/ok", "PATH": "/etc/shadow"}});
    let gate = recording(json!({})).set("hooks", json!([])).start();
    assert!(passed(&gate.agent("a").modern("tools/call", body.clone())));
    let setup = recording(json!({}));
    let seen = setup.path("seen");
    let hook = json!({"name": "h", "exec": ["./hook"], "arguments": true, "env": {"SEEN": seen}});
    let gate = setup.set("hooks", json!([hook])).start();
    let answer = gate.agent("a").modern_reply(json!(1), "tools/call", body).json();
    assert_eq!(error(&answer).0, -32602, "{answer}");
    assert!(gate.calls("s").is_empty() && !gate.file("seen").exists());
}

#[test]
fn a_hook_that_is_missing_or_not_executable_is_an_error_at_start_in_check_and_at_reload() {
    let hook = |exec: &str| {
        let hook = json!([{"name": "h", "exec": [exec]}]);
        let setup = with_tools(&["t"]).set("hooks", hook);
        std::fs::write(setup.path("plain"), "#!/bin/sh\nexit 0\n").unwrap();
        std::fs::create_dir(setup.path("folder")).unwrap();
        setup
    };
    for (exec, why) in [
        ("./missing", "No such file"),
        ("./plain", "is not executable"),
        ("./folder", "is not a file"),
        ("no-such-program-anywhere", "was not found in PATH"),
    ] {
        let setup = hook(exec);
        let (code, said) = check(&setup);
        assert!(code == 3 && said.contains(why) && said.contains("hook `h`"), "{exec}: {said}");
        let (code, said) = setup.fails();
        assert!(code == 3 && said.contains(why) && said.contains("hook `h`"), "{exec}: {said}");
    }
    let (code, said) = check(&hook("true"));
    assert_eq!(code, 0, "{said}");
    // A reload that names one is rejected.
    let gate = with_program("#!/bin/sh\nexit 0\n", json!({})).start();
    let file = gate.file("toolward.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let broken = gate.file("new");
    std::fs::write(&broken, text.replace("./hook", "./missing")).unwrap();
    std::fs::rename(&broken, &file).unwrap();
    eventually("the reload is refused", || {
        gate.said.lock().unwrap().contains("was not reloaded").then_some(())
    });
    assert!(passed(&gate.agent("a").call("s__t", json!({}))));
}

#[test]
fn a_truncated_script_refuses_calls_until_a_person_accepts_it() {
    let whole = "#!/bin/sh\nif grep -q '\"tool\":\"u\"'; then\n  exit 1\nfi\n";
    // Without its last three lines, the script allows every call.
    let cut = "#!/bin/sh\n";
    for interpreter in [&[][..], &["/bin/sh"]] {
        let setup = with_program(whole, json!({}));
        let hook = setup.path("hook");
        let exec: Vec<&Path> = interpreter.iter().map(Path::new).chain([&*hook]).collect();
        let gate = setup.set("hooks", json!([{"name": "h", "exec": exec}])).start();
        let a = gate.agent("a");
        assert!(passed(&a.call("s__t", json!({}))));
        assert_eq!(error(&a.call("s__u", json!({}))).0, -32602);
        std::fs::write(gate.file("hook"), cut).unwrap();
        let why = hook_failed(&gate, &a);
        assert!(why.contains("truncated") && why.contains("reload --accept"), "{why}");
        let (code, said) = reload(&gate, &[]);
        assert!(code == 3 && said.contains("reload --accept"), "{code} {said}");
        hook_failed(&gate, &a);
        // A script that was changed otherwise is run at once.
        std::fs::write(gate.file("hook"), whole.replace("\"u\"", "\"t\"")).unwrap();
        assert!(passed(&a.call("s__u", json!({}))));
        std::fs::write(gate.file("hook"), cut).unwrap();
        hook_failed(&gate, &a);
        let (code, said) = reload(&gate, &["--accept"]);
        assert_eq!(code, 0, "{said}");
        assert!(passed(&a.call("s__t", json!({}))) && passed(&a.call("s__u", json!({}))));
    }
}

/// `toolward reload`: its exit code and output.
fn reload(gate: &Gate, flags: &[&str]) -> (i32, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"));
    command.arg("reload").args(flags).arg("-c").arg(gate.file("toolward.yaml")).env_clear();
    let output = command.env("HOME", "/proc/nonexistent").output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
}

/// `toolward check`: its exit code and output.
fn check(setup: &Setup) -> (i32, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["check", "-c"])
        .arg(setup.file())
        .envs(setup.environment.iter().map(|(name, value)| (name, value)))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn numbers_that_a_hook_could_read_otherwise_than_the_server_are_refused() {
    for persistent in [false, true] {
        let allow = match persistent {
            false => "#!/bin/sh\ncat > /dev/null\n",
            true => {
                "#!/usr/bin/env python3\nimport sys, json\nfor line in sys.stdin:\n    \
                 print(json.dumps({\"id\": json.loads(line)[\"id\"], \"decision\": \"allow\"}), flush=True)\n"
            }
        };
        let more = json!({"arguments": true, "critical": false, "persistent": persistent});
        let gate = with_program(allow, more).start();
        let a = gate.agent("a");
        for (number, allowed) in [
            ("1.5", true),
            ("9007199254740993", true),
            ("100.00000000000000001", false),
            ("18446744073709551617", false),
            ("[1,{\"deep\":1e-400}]", false),
        ] {
            let call = json!({"name": "s__t", "arguments": {"n": 0}});
            let body = modern_body(json!(1), "tools/call", call).to_string();
            let body = body.replacen("\"n\":0", &format!("\"n\":{number}"), 1);
            let headers = [
                ("MCP-Protocol-Version", MODERN),
                ("Mcp-Method", "tools/call"),
                ("Mcp-Name", "s__t"),
            ];
            let answer = a.send("POST", &headers, &body).json();
            assert_eq!(passed(&answer), allowed, "{number}: {answer}");
            if !allowed {
                assert_eq!(error(&answer).0, -32602, "{answer}");
                let record = refusals(&gate).pop().unwrap();
                assert_eq!((&record["step"], &record["hook"]), (&json!("hook"), &json!("h")));
            }
        }
        assert_eq!(gate.calls("s").len(), 2);
    }
}

#[test]
fn an_agent_with_slow_hooks_does_not_keep_another_waiting() {
    let script =
        "#!/bin/sh\ngrep -q '\"agent\":\"a\"' && { echo $$ >> \"$PIDS\"; sleep 60; }\nexit 0\n";
    let setup = with_program(script, json!({}));
    let pids_file = setup.path("pids");
    let hook = json!({
        "name": "h", "exec": ["./hook"], "timeout": "20s", "env": {"PIDS": pids_file},
    });
    let gate = setup.set("hooks", json!([hook])).start();
    let (a, b) = (gate.agent("a"), gate.agent("b"));
    a.list();
    b.list();
    let call = |at: usize| a.modern_open(json!(at), "tools/call", json!({"name": "s__t"}));
    let held: Vec<_> = (0..80).map(call).collect();
    eventually("the agent has its share", || (pids(&pids_file).len() == 16).then_some(()));
    for _ in 0..3 {
        assert!(passed(&b.call("s__t", json!({}))));
    }
    assert_eq!(pids(&pids_file).len(), 16, "no more than its share");
    drop(held);
}
