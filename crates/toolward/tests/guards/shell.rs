//! Hooks that are bash files with `mcp_tools_policy_check`.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use super::harness::*;
use super::support::*;

fn with_policy(tools: &[&str], text: &str, more: Value) -> Setup {
    let setup = with_tools(tools);
    write(&setup.path("policy.sh"), text, 0o644);
    let mut hook = json!({"name": "h", "policy_sh": "policy.sh"});
    merge(&mut hook, more);
    setup.set("hooks", json!([hook]))
}

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn its_answer_reaches_the_client_with_code_message_and_data() {
    let policy = r#"
set -euo pipefail
mcp_tools_policy_check() {
  echo "asked about $1"
  case "$1" in
    t) return 0 ;;
    code) mcp_tools_error -32600 "no 'right' to \"$1\"" '{"need": ["x"]}'; return 1 ;;
    odd) mcp_tools_error -32001 $'two\nlines' '{broken'; return 1 ;;
    silent) return 1 ;;
    other) return 7 ;;
    twice) mcp_tools_error -1 first; mcp_tools_error -32603 last; return 1 ;;
    leaves) exit 0 ;;
    unset) [ "$NEVER_SET" = 1 ] ;;
  esac
}
"#;
    let tools = ["t", "code", "odd", "silent", "other", "twice", "leaves", "unset"];
    let gate = with_policy(&tools, policy, json!({"timeout": "5s"})).start();
    let a = gate.agent("a");
    assert!(passed(&a.call("s__t", json!({}))));
    let answer = a.call("s__code", json!({}));
    assert_eq!(error(&answer), (-32600, "no 'right' to \"code\"".into()));
    assert_eq!(answer["error"]["data"], json!({"need": ["x"]}));
    // With an invalid code, or data that is not JSON, the refusal is still a refusal.
    let answer = a.call("s__odd", json!({}));
    assert_eq!(error(&answer), (-32602, "two\nlines".into()));
    assert!(answer["error"].get("data").is_none());
    for name in ["silent", "other"] {
        let blocked = format!("Tool '{name}' blocked by policy");
        assert_eq!(error(&a.call(&format!("s__{name}"), json!({}))), (-32602, blocked));
    }
    assert_eq!(error(&a.call("s__twice", json!({}))), (-32603, "last".into()));
    // A check that exits the shell has not decided.
    for name in ["leaves", "unset"] {
        let answer = a.call(&format!("s__{name}"), json!({}));
        assert_eq!(answer["error"]["data"]["error"], "hook_failed", "{answer}");
    }
    assert!(passed(&a.call("s__t", json!({}))), "and the shell continues");
    eventually("its words are in the log", || {
        gate.said.lock().unwrap().contains("hook h: asked about t").then_some(())
    });
    assert_eq!(gate.calls("s").len(), 2);
}

#[test]
fn it_gets_the_original_name_and_the_definition_with_what_the_gateway_knows() {
    let policy = "mcp_tools_policy_check() { printf '%s\\n%s' \"$1\" \"$2\" > \"$SEEN\"; }\n";
    let tools = json!([{
        "name": "internal_read", "description": "d", "inputSchema": {"type": "object"},
        "server": "forged", "path": "/bin/forged", "timeoutSecs": 1,
    }]);
    let setup = setup().stdio("s", "legacy", tools.clone()).web("w", "modern", tools);
    let path = setup.path("policy.sh");
    write(&path, policy, 0o600);
    let seen = setup.path("seen");
    let expose = json!([{"tool": "internal_read", "display_name": "read"}]);
    let gate = setup
        .with("s", "timeout", json!({"internal_*": "90s"}))
        .with("s", "expose", expose)
        .agents(everyone())
        .env("SEEN", seen.to_str().unwrap())
        .set("hooks", json!([{"name": "h", "policy_sh": "policy.sh"}]))
        .start();
    let told = |name: &str| -> (String, Value) {
        let answer = gate.agent("a").call(name, json!({"secret": "argument"}));
        assert!(passed(&answer), "{answer}");
        let text = std::fs::read_to_string(&seen).unwrap();
        assert!(!text.contains("argument"));
        let (name, metadata) = text.split_once('\n').unwrap();
        (name.into(), serde_json::from_str(metadata).unwrap())
    };
    let want = |server: &str, seconds: u64| {
        json!({
            "name": "internal_read", "description": "d", "inputSchema": {"type": "object"},
            "server": server, "timeoutSecs": seconds,
        })
    };
    let (name, metadata) = told("s__read");
    let mut with_path = want("s", 90);
    with_path["path"] = json!("python3");
    assert_eq!((name.as_str(), metadata), ("internal_read", with_path));
    // An HTTP server has no command; the default `timeout` is thirty seconds.
    let (name, metadata) = told("w__internal_read");
    assert_eq!((name.as_str(), metadata), ("internal_read", want("w", 30)));
}

#[test]
fn a_file_that_others_could_change_fails_the_start() {
    let fine = "mcp_tools_policy_check() { return 0; }\n";
    let fails = |prepare: &dyn Fn(&Setup), why: &str| {
        let setup = with_policy(&["t"], fine, json!({}));
        prepare(&setup);
        let (code, said) = setup.fails();
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("the hook `h`") && said.contains(why), "{said}");
    };
    let file = |setup: &Setup| setup.path("policy.sh");
    fails(&|setup| std::fs::remove_file(file(setup)).unwrap(), "cannot be read");
    fails(&|setup| write(&file(setup), fine, 0o664), "its group can write");
    fails(&|setup| write(&file(setup), fine, 0o646), "every user can write");
    fails(
        &|setup| {
            std::fs::rename(file(setup), setup.path("real.sh")).unwrap();
            symlink(setup.path("real.sh"), file(setup)).unwrap();
        },
        "symbolic link",
    );
    fails(
        &|setup| {
            std::fs::remove_file(file(setup)).unwrap();
            std::fs::create_dir(file(setup)).unwrap();
        },
        "not a regular file",
    );
    fails(
        &|setup| {
            let folder = file(setup).parent().unwrap().to_owned();
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        },
        "others can write to the directory",
    );
    // Only root can create another user's file.
    let setup = with_policy(&["t"], fine, json!({}));
    if std::os::unix::fs::chown(file(&setup), Some(12_345), None).is_ok() {
        let (code, said) = setup.fails();
        assert!(code == 3 && said.contains("belongs to another user"), "{said}");
    }
}

#[test]
fn a_file_without_the_function_refuses_calls() {
    let gate = with_policy(&["t"], "true\n", json!({"timeout": "5s"})).start();
    hook_failed(&gate, &gate.agent("a"));
    let why = "no mcp_tools_policy_check";
    eventually(why, || gate.said.lock().unwrap().contains(why).then_some(()));
}

#[test]
fn a_file_that_bash_cannot_parse_does_not_start_and_is_not_run() {
    let text = "touch \"$RAN\"\nmcp_tools_policy_check() {\n";
    let setup = with_policy(&["t"], text, json!({}));
    let ran = setup.path("ran");
    // A shell would run the code in the file that `BASH_ENV` names.
    write(&setup.path("env.sh"), "touch \"$RAN\"\n", 0o644);
    let code = setup.path("env.sh");
    let setup = setup.env("RAN", ran.to_str().unwrap()).env("BASH_ENV", code.to_str().unwrap());
    let (code, said) = setup.fails();
    assert!(code == 3 && said.contains("syntax error") && said.contains("policy.sh"), "{said}");
    assert!(!ran.exists());
}

#[test]
fn calls_share_one_bash_leave_nothing_behind_and_do_not_wait_for_each_other() {
    let policy = r#"
echo $BASHPID >> "$PIDS"
mcp_tools_policy_check() {
  if [ -n "${LEFT:-}" ]; then return 1; fi
  LEFT=1
  cd /tmp
  if [ "$1" = hang ]; then echo $BASHPID >> "$PIDS.hang"; sleep 60 & echo $! >> "$PIDS.hang"; wait; fi
}
"#;
    let setup = with_policy(&["t", "hang"], policy, json!({"timeout": "4s"}));
    let file = setup.path("pids");
    let gate = setup.env("PIDS", file.to_str().unwrap()).start();
    let a = gate.agent("a");
    for _ in 0..3 {
        assert!(passed(&a.call("s__t", json!({}))), "nothing of an earlier call is left");
    }
    assert_eq!(pids(&file).len(), 1);
    let hanging = {
        let a = a.clone();
        std::thread::spawn(move || a.call("s__hang", json!({})))
    };
    eventually("the call hangs", || pids(&gate.file("pids.hang")).len() == 2);
    assert!(passed(&gate.agent("b").call("s__t", json!({}))));
    assert!(!hanging.is_finished(), "the other agent waited for the call that hangs");
    let answer = hanging.join().unwrap();
    assert_eq!(answer["error"]["data"]["error"], "hook_failed", "{answer}");
    gone(&pids(&gate.file("pids.hang")));
    assert!(passed(&a.call("s__t", json!({}))));
}

#[test]
fn a_policy_that_is_a_program_is_a_hook() {
    let setup = with_tools(&["t", "u"]);
    write(&setup.path("policy.sh"), "mcp_tools_policy_check() { [ \"$1\" = t ]; }\n", 0o644);
    program(&setup, "check", "#!/bin/sh\ngrep -q '\"agent\":\"a\"'\n");
    let gate = setup.set("policies", json!(["policy.sh", "check"])).start();
    assert!(passed(&gate.agent("a").call("s__t", json!({}))));
    let answer = gate.agent("a").call("s__u", json!({}));
    assert_eq!(error(&answer), (-32602, "Tool 'u' blocked by policy".into()));
    let answer = gate.agent("b").call("s__t", json!({}));
    assert!(error(&answer).1.contains("check"), "{answer}");
}

#[test]
fn a_policy_that_prints_without_end_is_refused_and_ended() {
    let policy = "mcp_tools_policy_check() { [ $1 = t ] && return 0; yes | head -c 100000000; }";
    let gate = with_policy(&["t", "u"], policy, json!({"timeout": "5s"})).start();
    let a = gate.agent("a");
    assert!(passed(&a.call("s__t", json!({}))));
    assert_eq!(error(&a.call("s__u", json!({}))).0, -32603);
    assert!(refusals(&gate).pop().unwrap()["reason"].to_string().contains("too much"));
    assert!(passed(&a.call("s__t", json!({}))));
}

#[test]
fn variables_that_are_code_for_the_shell_do_not_reach_it() {
    let policy =
        "mcp_tools_policy_check() { [ -n \"$WORD\" ] && echo \"the variable is set\"; return 1; }";
    let setup = with_policy(&["t"], policy, json!({"timeout": "5s"}));
    write(
        &setup.path("env.sh"),
        "mcp_tools_policy_check() { return 0; }\nreadonly -f \
          mcp_tools_policy_check\n",
        0o644,
    );
    let file = setup.path("env.sh").display().to_string();
    let gate = setup
        .env("WORD", "of the gateway")
        .env("BASH_ENV", &file)
        .env("ENV", &file)
        .env("BASH_FUNC_return%%", "() { builtin return 0; }")
        .env("SHELLOPTS", "noexec")
        .start();
    assert_eq!(
        error(&gate.agent("a").call("s__t", json!({}))),
        (-32602, "Tool 't' blocked by policy".into())
    );
    eventually("it sees the others", || {
        gate.said.lock().unwrap().contains("the variable is set").then_some(())
    });
}

#[test]
fn a_directory_that_belongs_to_another_user_fails_the_start() {
    // Only root can change the owner of a file.
    if rustix::process::geteuid().as_raw() != 0 {
        return;
    }
    use std::os::unix::fs::chown;
    for link in [false, true] {
        let setup = with_tools(&["t"]);
        let folder = setup.path("theirs");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        write(&folder.join("policy.sh"), "mcp_tools_policy_check() { return 0; }", 0o644);
        chown(&folder, Some(65534), Some(65534)).unwrap();
        symlink(&folder, setup.path("link")).unwrap();
        let file = if link { "link/policy.sh" } else { "theirs/policy.sh" };
        let (code, said) = setup.set("hooks", json!([{"name": "h", "policy_sh": file}])).fails();
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("belongs to another user"), "{said}");
    }
}

#[test]
fn a_pipe_in_the_place_of_a_file_fails_the_start_at_once() {
    let pipe = |setup: &Setup, name: &str| {
        let made = std::process::Command::new("mkfifo").arg(setup.path(name)).status().unwrap();
        assert!(made.success());
    };
    for (key, value) in [
        ("hooks", json!([{"name": "h", "policy_sh": "pipe"}])),
        ("hooks", json!([{"name": "h", "exec": ["true"], "env": {"K": "${file:pipe}"}}])),
        ("policies", json!(["pipe"])),
    ] {
        let setup = with_tools(&["t"]);
        pipe(&setup, "pipe");
        let (code, said) = setup.set(key, value.clone()).fails();
        assert_eq!(code, 3, "{value}: {said}");
        assert!(said.contains("regular file"), "{value}: {said}");
    }
}
