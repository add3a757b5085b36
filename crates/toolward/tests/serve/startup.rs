//! `check` fails for every configuration that `serve` rejects, and a configuration that it accepts
//! starts.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::harness::eventually;

/// A configuration that starts.
fn valid() -> Value {
    json!({
        "listen": "127.0.0.1:0",
        "admin": "off",
        "state": "state",
        "audit": {"dir": "audit"},
        "servers": {"s": {"command": "cat"}},
        "agents": {"a": {"tokens": ["${TOKEN_A}"], "allow": {"servers": ["*"]}}},
        "tests": [{"as": "a", "allow": ["s/x"]}],
    })
}

fn command(folder: &Path, word: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolward"));
    command.arg(word).arg("-c").arg(folder.join("toolward.yaml")).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", folder);
    command.env("TOKEN_A", "token-of-agent-a").env("TOKEN_B", "token-of-agent-a");
    command.env("NO_URL", "no url at all").env("REMOTE", "http://keys.example/jwks");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// The exit code and the output; a gateway that starts is ended, and has no exit code.
fn ended(mut command: Command) -> (Option<i32>, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut child = command.stderr(file.reopen().unwrap()).spawn().unwrap();
    let said = || std::fs::read_to_string(file.path()).unwrap();
    let status = eventually("it ends or listens", || match child.try_wait().unwrap() {
        Some(status) => Some(status.code()),
        None => said().contains("listening on").then_some(None),
    });
    let _ = child.kill();
    let _ = child.wait();
    (status, said())
}

type Change = fn(&mut Value, &Path);

/// Reasons for which a gateway does not start. `serve` exits with 3 for each.
const REFUSALS: [(&str, Change); 46] = [
    ("two tools of one name", |config, _| {
        let server =
            json!({"command": env!("CARGO_BIN_EXE_toolward"), "args": ["demo-server", "tracker"]});
        config["naming"] = json!("flat");
        config["servers"] = json!({"one": server, "two": server});
        config["tests"] = json!([]);
    }),
    ("an unknown key", |config, _| config["lisen"] = json!("127.0.0.1:1")),
    ("a failing test", |config, _| config["tests"] = json!([{"as": "a", "deny": ["s/x"]}])),
    ("telemetry", |config, _| config["telemetry"] = json!({"otlp": "grpc://otlp.example/"})),
    ("methods", |config, _| config["servers"]["s"]["methods"] = json!(["x/y"])),
    ("sinks", |config, _| config["audit"]["sinks"] = json!([{"stdout": true}])),
    ("an unset secret", |config, _| config["agents"]["a"]["tokens"] = json!(["${UNSET}"])),
    ("an unset header", |config, _| {
        config["servers"]["s"] = json!({"url": "https://s.example/mcp", "headers": {"Authorization": "Bearer ${UNSET}"}});
    }),
    ("a secret file that is missing", |config, _| {
        config["agents"]["a"]["tokens"] = json!(["${file:missing}"]);
    }),
    ("an invalid URL", |config, _| config["servers"]["s"] = json!({"url": "${NO_URL}"})),
    ("an open token endpoint", |config, _| {
        config["servers"]["s"] = json!({"url": "https://s.example/mcp", "oauth":
            {"token_url": "${REMOTE}", "client_id": "c", "client_secret": "${TOKEN_A}"}});
    }),
    ("no servers", |config, _| config["servers"] = json!({})),
    ("listening without credentials", |config, _| {
        config["listen"] = json!("0.0.0.0:0");
        config["agents"]["a"]["tokens"] = json!([]);
    }),
    ("listening for unnamed callers", |config, _| {
        config["listen"] = json!("0.0.0.0:0");
        config["defaults"] = json!({"deny_on_missing_agent": false});
    }),
    ("listening without a policy", |config, _| {
        config["listen"] = json!("0.0.0.0:0");
        config["agents"] = json!({"a": {"tokens": ["${TOKEN_A}"]}});
        config["tests"] = json!([]);
    }),
    ("an open admin UI", |config, _| config["admin"] = json!("0.0.0.0:0")),
    ("TLS files that are missing", |config, _| {
        config["tls"] = json!({"cert": "cert.pem", "key": "key.pem"});
    }),
    ("one token for two agents", |config, _| {
        config["agents"]["b"] = json!({"tokens": ["${TOKEN_B}"]});
    }),
    ("keys over http", |config, _| {
        config["identity"] = json!({"jwt": {"issuer": "https://i.example", "jwks": "${REMOTE}"}});
    }),
    ("a key set that is missing", |config, _| {
        config["identity"] = json!({"jwt": {"issuer": "https://i.example", "jwks": "keys.json"}});
    }),
    ("a key set that is not one", |config, folder| {
        std::fs::write(folder.join("keys.json"), "not a key set").unwrap();
        config["identity"] = json!({"jwt": {"issuer": "https://i.example", "jwks": "keys.json"}});
    }),
    ("a shell hook that bash cannot parse", |config, folder| {
        script(&folder.join("policy.sh"), "mcp_tools_policy_check() {\n");
        config["hooks"] = json!([{"name": "h", "policy_sh": "policy.sh"}]);
    }),
    ("a hook without its interpreter", |config, folder| {
        script(&folder.join("hook"), "#!/no/such/interpreter\n");
        config["hooks"] = json!([{"name": "h", "exec": ["./hook"]}]);
    }),
    ("a shell hook that is missing", |config, _| {
        config["hooks"] = json!([{"name": "h", "policy_sh": "missing.sh"}]);
    }),
    ("a hook program that is missing", |config, _| {
        config["hooks"] = json!([{"name": "h", "exec": ["./missing"]}]);
    }),
    ("a hook at no URL", |config, _| {
        config["hooks"] = json!([{"name": "h", "http": "${NO_URL}"}]);
    }),
    ("a store at no URL", |config, _| {
        config["limits"] = json!({"store": "redis://${NO_URL}:x", "calls": "5/min"});
    }),
    ("a file in place of the audit directory", |_, folder| {
        std::fs::write(folder.join("audit"), "").unwrap();
    }),
    ("a file in place of the state directory", |_, folder| {
        std::fs::write(folder.join("state"), "").unwrap();
    }),
    ("a key that others can read", |_, folder| {
        use std::os::unix::fs::PermissionsExt;
        let (state, all) = (folder.join("state"), std::fs::Permissions::from_mode(0o644));
        std::fs::create_dir(&state).unwrap();
        std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::write(state.join("seal.key"), [7; 32]).unwrap();
        std::fs::set_permissions(state.join("seal.key"), all).unwrap();
    }),
    ("a key that is too short", |_, folder| private(&folder.join("state"), "seal.key", "7")),
    ("an invalid admin token", |config, folder| {
        config["admin"] = json!("127.0.0.1:0");
        private(&folder.join("state"), "admin.token", "short");
    }),
    ("the admin UI at the address of `listen`", |config, _| {
        let port = free_port();
        config["listen"] = json!(format!("127.0.0.1:{port}"));
        config["admin"] = json!(format!("127.0.0.1:{port}"));
    }),
    ("the admin UI at an address that `listen` covers", |config, _| {
        let port = free_port();
        config["listen"] = json!(format!("0.0.0.0:{port}"));
        config["admin"] = json!(format!("127.0.0.1:{port}"));
    }),
    ("one address twice", |config, _| {
        let address = format!("127.0.0.1:{}", free_port());
        config["listen"] = json!([address, address]);
    }),
    ("one socket twice", |config, _| config["listen"] = json!(["unix:s.sock", "unix:s.sock"])),
    ("an address of another machine", |config, _| config["listen"] = json!("192.0.2.1:7410")),
    ("a socket in a missing directory", |config, _| {
        config["listen"] = json!("unix:missing/s.sock");
    }),
    ("a file in place of the socket", |config, folder| {
        std::fs::write(folder.join("s.sock"), "").unwrap();
        config["listen"] = json!("unix:s.sock");
    }),
    ("a socket with a path that is too long", |config, _| {
        config["listen"] = json!(format!("unix:{}.sock", "s".repeat(100)));
    }),
    ("a state directory that cannot be made", |config, _| {
        config["state"] = json!("/proc/toolward/state");
    }),
    ("a state directory with a name that is too long", |config, _| {
        config["state"] = json!("s".repeat(300));
    }),
    ("a state directory below a file", |config, folder| {
        std::fs::write(folder.join("file"), "").unwrap();
        config["state"] = json!("file/state");
    }),
    ("an audit directory that cannot be made", |config, _| {
        config["audit"]["dir"] = json!("/proc/toolward/audit");
    }),
    ("an audit directory that cannot be written to", |config, _| {
        config["audit"]["dir"] = json!("/proc");
    }),
    ("a directory in place of the audit log", |_, folder| {
        std::fs::create_dir_all(folder.join("audit/audit.jsonl")).unwrap();
    }),
];

/// A file that only this user can read, in a directory of the same kind.
fn private(directory: &Path, name: &str, content: &str) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode;
    std::fs::create_dir(directory).unwrap();
    std::fs::set_permissions(directory, mode(0o700)).unwrap();
    std::fs::write(directory.join(name), content).unwrap();
    std::fs::set_permissions(directory.join(name), mode(0o600)).unwrap();
}

fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn check_refuses_everything_that_serve_refuses() {
    let mut wrong = Vec::new();
    for (name, change) in REFUSALS {
        let folder = tempfile::tempdir().unwrap();
        let mut config = valid();
        change(&mut config, folder.path());
        std::fs::write(folder.path().join("toolward.yaml"), config.to_string()).unwrap();
        let (served, why) = ended(command(folder.path(), "serve"));
        if served != Some(3) {
            wrong.push(format!("{name}: serve: {served:?}: {why}"));
        }
        let (checked, said) = ended(command(folder.path(), "check"));
        // A failing test is a negative result, everything else is invalid.
        let expected = if name == "a failing test" { 1 } else { 3 };
        if checked != Some(expected) {
            wrong.push(format!("{name}: check: {checked:?}: {said}; serve said: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_configuration_that_check_accepts_starts() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("toolward.yaml"), valid().to_string()).unwrap();
    let (checked, said) = ended(command(folder.path(), "check"));
    assert_eq!(checked, Some(0), "{said}");
    assert!(!folder.path().join("state").exists(), "check writes nothing");
    let (served, said) = ended(command(folder.path(), "serve"));
    assert_eq!(served, None, "{said}");
}

#[test]
fn addresses_that_only_look_alike_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = valid();
    let port = free_port();
    config["listen"] = json!(["127.0.0.1:0", "127.0.0.1:0", format!("127.0.0.2:{port}")]);
    config["admin"] = json!(format!("127.0.0.1:{port}"));
    std::fs::write(folder.path().join("toolward.yaml"), config.to_string()).unwrap();
    let (checked, said) = ended(command(folder.path(), "check"));
    assert_eq!(checked, Some(0), "{said}");
    let (served, said) = ended(command(folder.path(), "serve"));
    assert_eq!(served, None, "{said}");
}

#[test]
fn check_passes_beside_the_gateway_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = valid();
    config["listen"] = json!([format!("127.0.0.1:{}", free_port()), "unix:s.sock"]);
    config["admin"] = json!(format!("127.0.0.1:{}", free_port()));
    std::fs::write(folder.path().join("toolward.yaml"), config.to_string()).unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut serve = command(folder.path(), "serve");
    let mut child = serve.stderr(log.reopen().unwrap()).spawn().unwrap();
    eventually("it listens", || {
        std::fs::read_to_string(log.path()).unwrap().contains("listening on").then_some(())
    });
    let (checked, said) = ended(command(folder.path(), "check"));
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(checked, Some(0), "{said}");
}

#[test]
fn check_warns_of_programs_and_directories_that_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = valid();
    std::fs::write(folder.path().join("plain"), "").unwrap();
    config["servers"] = json!({
        "absolute": {"command": "/no/such/prog"},
        "relative": {"command": "./missing"},
        "plain": {"command": "./plain"},
        "bare": {"command": "no-such-program"},
        "homeless": {"command": "cat", "cwd": "missing"},
    });
    config["tests"] = json!([]);
    std::fs::write(folder.path().join("toolward.yaml"), config.to_string()).unwrap();
    let (code, said) = ended(command(folder.path(), "check"));
    assert_eq!(code, Some(0), "{said}");
    let missing = folder.path().join("./missing").display().to_string();
    let plain = folder.path().join("./plain").display().to_string();
    for words in [
        "the server `absolute`: `/no/such/prog` does not exist",
        &format!("the server `relative`: `{missing}` does not exist"),
        &format!("the server `plain`: `{plain}` is not an executable file"),
        "the server `bare`: `no-such-program` is not in PATH",
        "the server `homeless`: `cwd` is not a directory",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(said.matches("warning: the server").count(), 5, "{said}");
}

#[test]
fn check_warns_of_requests_for_which_there_is_never_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = valid();
    let mut said = |request: &str, buffered: &str| {
        config["limits_of"] = json!({"request_bytes": request, "buffered_bytes": buffered});
        std::fs::write(folder.path().join("toolward.yaml"), config.to_string()).unwrap();
        let (code, said) = ended(command(folder.path(), "check"));
        assert_eq!(code, Some(0), "{said}");
        said
    };
    let warning = said("5 MiB", "16 MiB");
    assert!(warning.contains("requests above 4194304 bytes are always refused"), "{warning}");
    assert!(warning.contains("`buffered_bytes` to at least 20971520"), "{warning}");
    assert!(!said("4 MiB", "16 MiB").contains("always refused"));
}

#[test]
fn secrets_may_be_left_out_where_nothing_starts() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = valid();
    config["agents"]["a"]["tokens"] = json!(["${UNSET}"]);
    std::fs::write(folder.path().join("toolward.yaml"), config.to_string()).unwrap();
    let mut check = command(folder.path(), "check");
    let (code, said) = ended({
        check.arg("--no-secrets");
        check
    });
    assert!(code == Some(0) && said.contains("UNSET"), "{said}");
    let mut strict = command(folder.path(), "check");
    let (code, said) = ended({
        strict.args(["--no-secrets", "--strict"]);
        strict
    });
    assert!(code == Some(1) && said.contains("UNSET"), "{said}");
}
