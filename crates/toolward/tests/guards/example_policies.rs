//! The example policies of `examples/hooks`, compared with recorded results of the framework that
//! defined the format.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::harness::*;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hooks");
const FACTS: &str = include_str!("../data/hook-facts.jsonl");
/// A policy from a project that uses that framework.
const GIT_HEX: &str = r#"
mcp_tools_policy_check() {
  if [ "${GIT_HEX_READ_ONLY:-}" = "1" ] && [ "$1" != gitHex.getRebasePlan ]; then
    mcp_tools_error -32602 "git-hex is running in read-only mode. Tool '$1' is disabled."
    return 1
  fi
}
"#;

/// A policy in front of a server with these tools, each called once.
fn call(folder: &Path, policy: &Path, setting: &Setting, tools: &[&str]) -> Vec<Value> {
    let list = folder.join("tools.json");
    std::fs::write(&list, names(tools).to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolward"));
    command.args(["wrap", "--policy"]).arg(policy).arg("--audit").arg(folder.join("audit"));
    if let Some(seconds) = &setting.timeout {
        command.args(["--timeout", seconds]);
    }
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/both.py");
    command.args(["--", "python3", server, "stdio", "legacy"]);
    command.arg(folder.join("log")).arg(&list);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", folder);
    command.envs(setting.env.as_object().unwrap().iter().map(|(k, v)| (k, v.as_str().unwrap())));
    command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    writeln!(stdin, "{}", initialize(LEGACY)).unwrap();
    lines.next().unwrap();
    let begun = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    writeln!(stdin, "{begun}").unwrap();
    let answers = tools.iter().enumerate().map(|(at, tool)| {
        let call = request(json!(at), "tools/call", json!({"name": tool}));
        writeln!(stdin, "{call}").unwrap();
        let answers = lines.by_ref().map(|line| serde_json::from_str::<Value>(&line).unwrap());
        answers.into_iter().find(|answer| answer["id"] == at).unwrap()
    });
    let answers = answers.collect();
    drop(stdin);
    child.wait().unwrap();
    answers
}

/// The environment of a policy, apart from the tool.
#[derive(Debug, Clone, PartialEq)]
struct Setting {
    env: Value,
    timeout: Option<String>,
}

impl Setting {
    fn of(fact: &Value) -> Setting {
        let timeout = fact["source"].as_str().unwrap().split("timeoutSecs=").nth(1);
        let timeout = timeout.filter(|seconds| *seconds != "None").map(String::from);
        Setting { env: fact["env"].clone(), timeout }
    }

    fn env(name: &str, value: &str) -> Setting {
        Setting { env: json!({name: value}), timeout: None }
    }
}

#[test]
fn the_examples_answer_as_recorded_and_the_unsafe_answers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    // A checkout may be group-writable; the copies are not.
    let policy = |name: &str| -> PathBuf {
        let path = folder.path().join(format!("{name}.sh"));
        let text = match name {
            "git-hex" => GIT_HEX.into(),
            name => std::fs::read_to_string(format!("{EXAMPLES}/{name}.sh")).unwrap(),
        };
        std::fs::write(&path, text).unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let facts: Vec<Value> = FACTS.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(facts.len(), 25);
    // Cases that differ only in the tool are sent to one program.
    let together =
        |a: &Value, b: &Value| a["policy_sh"] == b["policy_sh"] && Setting::of(a) == Setting::of(b);
    for facts in facts.chunk_by(together) {
        let name = match facts[0]["policy_sh"].as_str().unwrap() {
            "seed_override_githex" => "git-hex",
            "seed_ex1_readonly" => "read-only",
            "seed_ex2_allowlist" => "allowlist",
            "seed_ex3_audit" => "audit-line",
            "seed_ex4_metadata" => "timeout-limit",
            other => panic!("{other}"),
        };
        let tools: Vec<&str> = facts.iter().map(|fact| fact["tool"].as_str().unwrap()).collect();
        let answers = call(folder.path(), &policy(name), &Setting::of(&facts[0]), &tools);
        for ((fact, tool), answer) in facts.iter().zip(&tools).zip(&answers) {
            match (fact["expected"].as_str().unwrap(), fact["unsafe"] == true) {
                ("allow", false) => assert_eq!(text(answer), format!("did {tool}"), "{fact}"),
                (_, unsafe_there) => {
                    let mut want = fact["error"].clone();
                    if unsafe_there {
                        let message = format!("Tool '{tool}' is not in the allowed list");
                        want = json!({"code": -32602, "message": message});
                    }
                    assert_eq!(answer["error"]["code"], want["code"], "{fact}: {answer}");
                    assert_eq!(answer["error"]["message"], want["message"], "{fact}: {answer}");
                }
            }
        }
    }
    let log = std::fs::read_to_string(folder.path().join("audit.log")).unwrap();
    assert!(log.ends_with(" tool_invocation tool=any\n"), "{log}");
}

#[test]
fn no_name_can_pass_the_examples_as_another() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, std::fs::read(format!("{EXAMPLES}/{name}")).unwrap()).unwrap();
        path
    };
    let allowlist = copy("allowlist.sh");
    let tools = ["a,b", "*", "?", "[a]", "a ", " a", "a\nb", "A", "$(id)", "-n", "\\a", "b"];
    let setting = Setting::env("MYPROJECT_ALLOWED_TOOLS", "a,b");
    let answers = call(folder.path(), &allowlist, &setting, &tools);
    let (last, others) = answers.split_last().unwrap();
    for (tool, answer) in tools.iter().zip(others) {
        assert_eq!(answer["error"]["code"], -32602, "{tool:?}: {answer}");
    }
    assert_eq!(text(last), "did b");
    // An entry of the audit log remains one line, and a call that cannot be recorded is not made.
    let audit = copy("audit-line.sh");
    let setting = Setting::env("MYPROJECT_AUDIT_LOG", "lines");
    assert!(call(folder.path(), &audit, &setting, &["x\ny tool=z"])[0]["result"].is_object());
    assert_eq!(std::fs::read_to_string(folder.path().join("lines")).unwrap().lines().count(), 1);
    let setting = Setting::env("MYPROJECT_AUDIT_LOG", "/proc/nonexistent/x");
    assert_eq!(call(folder.path(), &audit, &setting, &["x"])[0]["error"]["code"], -32603);
}

#[test]
fn the_example_configuration_is_valid() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(EXAMPLES).unwrap().flatten() {
        let copy = folder.path().join(file.file_name());
        std::fs::copy(file.path(), &copy).unwrap();
        let mode = file.metadata().unwrap().permissions().mode() & 0o755;
        std::fs::set_permissions(copy, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let output = Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["check", "-c"])
        .arg(folder.path().join("toolward.yaml"))
        .env("WRITER_TOKEN", "a-writer-token-for-check")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
