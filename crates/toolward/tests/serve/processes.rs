//! Files and processes around the gateway: ownership, lookup and termination.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::harness::*;
use super::mount::Mount;
use super::reload::{beside, said, two};

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn script(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    mode(path, 0o755);
}

/// The processes whose command line contains a word.
fn with_word(word: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        alive(*pid) && String::from_utf8_lossy(&line).contains(word)
    };
    pids.filter(has).collect()
}

/// A word that is in no other test's command lines.
fn own_word(what: &str) -> String {
    format!("{what}-of-{}", std::process::id())
}

/// A gateway with a server that ignores a closed standard input, as does its child, which has `word` in
/// its command line.
fn stubborn(word: &str) -> Gate {
    let setup = setup().agents(everyone()).stdio("s", "legacy", two());
    let run = setup.path("run");
    let config = std::fs::read_to_string(setup.file()).unwrap();
    let server = serde_json::from_str::<Value>(&config).unwrap()["servers"]["s"].clone();
    let line: Vec<&str> =
        server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let program = server["command"].as_str().unwrap();
    let text = format!(
        "#!/bin/sh\ntrap '' HUP\nsh -c 'trap \"\" TERM; while :; do sleep 1; done' {word} &\n\
         {program} {} \nsleep 600\n",
        line.join(" ")
    );
    script(&run, &text);
    let gate = setup.server("s", json!({"command": run})).start();
    assert_eq!(gate.agent("a").list().len(), 2);
    assert_eq!(with_word(word).len(), 1);
    gate
}

/// The guard processes of a gateway.
fn guards(gate: &Gate) -> Vec<u32> {
    let own = gate.child.as_ref().unwrap().id().to_string();
    let is_own = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit(')').next().unwrap_or_default().to_string();
        rest.split_whitespace().nth(1) == Some(&own)
    };
    let named = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.ends_with(b"\0guard\0")
    };
    with_word("guard").into_iter().filter(|pid| is_own(pid) && named(pid)).collect()
}

/// Kills the guard; returns the old and the new one.
fn kill_guard(gate: &Gate) -> [u32; 2] {
    // A child between fork and exec still has the gateway's own command line.
    let first = eventually("there is one guard", || {
        let now = guards(gate);
        (now.len() == 1).then_some(now)
    });
    let killed = Command::new("kill").args(["-9", &first[0].to_string()]).status().unwrap();
    assert!(killed.success());
    let second = eventually("the guard is replaced", || {
        let now = guards(gate);
        (now.len() == 1 && now != first).then_some(now)
    });
    [first[0], second[0]]
}

#[test]
fn servers_and_their_children_end_with_a_killed_gateway() {
    let word = own_word("grandchild");
    let mut gate = stubborn(&word);
    let servers = gate.children();
    assert_eq!(servers.len(), 1);
    gate.kill();
    eventually("the server and its children end", || {
        (with_word(&word).is_empty() && !servers.iter().any(|pid| alive(*pid))).then_some(())
    });
}

#[test]
fn a_killed_guard_is_replaced_at_once() {
    let word = own_word("guarded");
    let mut gate = stubborn(&word);
    let servers = gate.children();
    // No other child is started in between, and the second guard can be killed too.
    kill_guard(&gate);
    let [_, guard] = kill_guard(&gate);
    gate.kill();
    eventually("the server and its children end", || {
        let left = servers.iter().chain([&guard]).any(|pid| alive(*pid));
        (with_word(&word).is_empty() && !left).then_some(())
    });
}

#[test]
fn hooks_end_with_a_killed_gateway() {
    let setup = setup().agents(everyone()).web("s", "modern", two());
    let word = own_word("hook");
    let hook = setup.path("hook");
    // It can be read once the gateway has registered it.
    let loops = format!("sh -c 'while :; do sleep 1; done' {word}");
    script(&hook, &format!("#!/bin/sh\ntrap '' TERM\nread -r request\n{loops}\n"));
    let hooks = json!([{"name": "h", "exec": [hook], "timeout": "60s"}]);
    let mut gate = setup.set("hooks", hooks).start();
    let agent = gate.agent("a");
    let body = json!({"name": "s__read", "arguments": {}});
    let call = agent.modern_open(json!(1), "tools/call", body);
    eventually("the hook runs", || (!with_word(&word).is_empty()).then_some(()));
    gate.kill();
    drop(call);
    eventually("the hook ends", || with_word(&word).is_empty().then_some(()));
}

#[test]
fn a_new_guard_learns_of_every_server() {
    let setup = setup().agents(everyone()).stdio("one", "legacy", two());
    let mut gate = setup.stdio("two", "legacy", two()).with("two", "start", json!("lazy")).start();
    assert_eq!(gate.agent("a").at("/mcp/one").list().len(), 2);
    let [_, guard] = kill_guard(&gate);
    assert_eq!(gate.agent("a").at("/mcp/two").list().len(), 2);
    let servers = gate.children();
    assert_eq!(servers.len(), 2);
    gate.kill();
    eventually("all end", || {
        let left = servers.iter().chain([&guard]).any(|pid| alive(*pid));
        (!left).then_some(())
    });
}

#[test]
fn a_unix_listener_replaces_a_socket_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (precious, path) = (folder.path().join("notes.txt"), folder.path().join("s.sock"));
    std::fs::write(&precious, "precious").unwrap();
    let on = |path: &Path| {
        let listen = json!(["127.0.0.1:0", format!("unix:{}", path.display())]);
        setup().agents(everyone()).stdio("s", "legacy", two()).set("listen", listen)
    };
    let (code, said) = on(&precious).fails();
    assert!(code == 3 && said.contains("not a socket"), "{code} {said}");
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    // A socket without a listener is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let mut gate = on(&path).start();
    assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
    assert_eq!(gate.agent("a").list().len(), 2);
    // The gateway does not remove a file that is not its own.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "kept").unwrap();
    gate.signal("-TERM");
    assert_eq!(gate.ended(), 0);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
}

#[test]
fn a_bare_command_is_never_taken_from_the_working_directory() {
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().join("ran");
    script(&folder.path().join("some-server"), &format!("#!/bin/sh\ntouch {}\n", marker.display()));
    let system = std::env::var("PATH").unwrap();
    for path in [format!(".:{system}"), format!(":{system}"), format!("{system}:")] {
        let output = Command::new(env!("CARGO_BIN_EXE_toolward"))
            .args(["tools", "save", "-o", "-", "--", "some-server"])
            .current_dir(folder.path())
            .env("PATH", &path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("`some-server` was not found in PATH"), "{said}");
    }
    assert!(!marker.exists());
}

#[test]
fn check_shows_which_program_a_bare_command_is() {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    script(&bin.join("some-server"), "#!/bin/sh\n");
    let config = folder.path().join("toolward.yaml");
    let text = "servers: {s: {command: some-server}, t: {command: no-such-server}}\n\
                allowed_tools: [a]\n";
    std::fs::write(&config, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(["check", "-c"])
        .arg(&config)
        .env("PATH", &bin)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("s runs {}/some-server", bin.display())), "{said}");
    assert!(said.contains("`no-such-server` is not in PATH"), "{said}");
}

#[test]
fn hooks_and_secrets_that_others_can_write_are_refused() {
    let world = |hook: u32, secret: u32| {
        let setup = setup().web("s", "modern", two());
        script(&setup.path("hook"), "#!/bin/sh\n");
        std::fs::write(setup.path("token"), "a-token-from-a-file").unwrap();
        mode(&setup.path("hook"), hook);
        mode(&setup.path("token"), secret);
        let agents = json!({"a": {"tokens": ["${file:token}"], "allow": {"servers": ["*"]}}});
        let hook = setup.path("hook");
        setup.agents(agents).set("hooks", json!([{"name": "h", "exec": [hook]}]))
    };
    let interpreted = world(0o775, 0o600);
    let hook = interpreted.path("hook");
    let (code, said) =
        interpreted.set("hooks", json!([{"name": "h", "exec": ["/bin/sh", "-e", hook]}])).fails();
    assert!(code == 3 && said.contains("the hook") && said.contains("its group"), "{said}");
    let (code, said) = world(0o775, 0o600).fails();
    assert!(code == 3 && said.contains("the hook") && said.contains("its group"), "{said}");
    let (code, said) = world(0o755, 0o606).fails();
    assert!(code == 3 && said.contains("the secret") && said.contains("every user"), "{said}");
    let gate = world(0o755, 0o644).start();
    // A running gateway does not reload such a file either.
    mode(&gate.file("token"), 0o666);
    let (code, told) = beside(&gate, &["reload"]);
    assert!(code == 3 && told.contains("chmod go-w"), "{told}");
    let (code, told) = beside(&gate, &["check"]);
    assert!(code == 3 && told.contains("the secret"), "{told}");
}

#[test]
fn configuration_that_others_can_write_is_reported() {
    let setup = setup().agents(everyone()).web("s", "modern", two());
    std::fs::write(setup.path("list.yaml"), "allowed_tools: ['*']\n").unwrap();
    mode(&setup.path("list.yaml"), 0o664);
    std::fs::create_dir(setup.path("state")).unwrap();
    mode(&setup.path("state"), 0o770);
    let gate = setup.set("policies", json!(["list.yaml"])).start();
    said(&gate, "its group can write to");
    said(&gate, "the state directory");
    let (_, told) = beside(&gate, &["check"]);
    assert!(told.contains("list.yaml is not safe") && told.contains("chmod go-w"), "{told}");
}

#[test]
fn files_on_a_read_only_mount_are_accepted() {
    let setup = setup().agents(everyone()).web("s", "modern", two());
    let volume = setup.path("volume");
    let Some(_disk) = Mount::create("size=1m", &volume) else { return };
    // The layout of a ConfigMap as kubelet mounts it.
    std::fs::create_dir(volume.join("..2026")).unwrap();
    script(&volume.join("..2026/hook"), "#!/bin/sh\n");
    std::fs::write(volume.join("..2026/policy.sh"), "mcp_tools_policy_check() { return 0; }\n")
        .unwrap();
    mode(&volume.join("..2026/hook"), 0o777);
    std::os::unix::fs::symlink("..2026", volume.join("..data")).unwrap();
    for file in ["hook", "policy.sh"] {
        std::os::unix::fs::symlink(format!("..data/{file}"), volume.join(file)).unwrap();
    }
    let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(&volume).status().unwrap();
    assert!(remounted.success());
    let hooks = json!([
        {"name": "h", "exec": [volume.join("hook")]},
        {"name": "p", "policy_sh": volume.join("policy.sh")},
    ]);
    let gate = setup.set("hooks", hooks).start();
    let answer = gate.agent("a").call("s__read", json!({}));
    assert_eq!(answer["error"], Value::Null, "{answer}");
    drop(gate);
}

#[test]
fn a_gateway_is_taken_over_from_only_in_a_directory_of_this_user() {
    use std::os::unix::fs::chown;
    if rustix::process::geteuid().as_raw() != 0 {
        return;
    }
    let setup = setup().agents(everyone()).web("s", "modern", two());
    let control = setup.path("state/control");
    std::fs::create_dir_all(&control).unwrap();
    chown(&control, Some(1000), None).unwrap();
    let gate = setup.flag("--take-over").start();
    said(&gate, "the state directory is missing or not this user's");
}

#[test]
fn a_gateway_of_another_user_is_not_taken_over_from() {
    if rustix::process::geteuid().as_raw() != 0 {
        return;
    }
    let setup = setup().agents(everyone()).web("s", "modern", two());
    let control = setup.path("state/control");
    std::fs::create_dir_all(&control).unwrap();
    mode(&control, 0o700);
    // The credentials of a listener are those of the process that called `listen`.
    let listener = "import os, socket, sys, time\n\
                    s = socket.socket(socket.AF_UNIX)\n\
                    s.bind(sys.argv[1])\n\
                    os.setuid(1000)\n\
                    s.listen()\n\
                    print('ready', flush=True)\n\
                    time.sleep(60)\n";
    let mut other = Command::new("python3")
        .args(["-c", listener])
        .arg(control.join("999999.sock"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let out = other.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut ready).unwrap();
    let gate = setup.flag("--take-over").start();
    said(&gate, "its control socket belongs to a process of uid 1000");
    let (code, told) = beside(&gate, &["status", "--json"]);
    assert!(code == 0 && !told.contains("999999"), "{told}");
    other.kill().unwrap();
    other.wait().unwrap();
}

/// A scripted server whose tool `environment` returns the names of its variables.
const WITH_ENVIRONMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/server.py");

#[test]
fn a_server_gets_connectivity_and_what_the_configuration_names() {
    let setup = setup().agents(everyone());
    let tools = setup.path("environment.json");
    std::fs::write(&tools, names(&["environment"]).to_string()).unwrap();
    let server = |log: &str| {
        let files = [setup.path(log), tools.clone()];
        json!({"command": "python3", "args": [WITH_ENVIRONMENT, files[0], files[1]]})
    };
    let (few, some, all) = (server("few"), server("some"), server("all"));
    let gate = setup
        .server("few", few)
        .server("some", some)
        .with("some", "inherit_env", json!(["SERVICE_*"]))
        .server("all", all)
        .with("all", "inherit_env", json!(true))
        .env("HTTPS_PROXY", "http://127.0.0.1:1")
        .env("SERVICE_KEY", "secret-of-the-service")
        .env("OTHER_KEY", "secret-of-another-one")
        .env("TOOLWARD_OTHER", "1")
        .start();
    let session = gate.agent("a").session();
    let seen = |server: &str| -> Vec<String> {
        let answer = session.call(&format!("{server}__environment"), json!({}));
        text(&answer).split(' ').map(String::from).collect()
    };
    for (server, expected) in
        [("few", [true, false, false]), ("some", [true, true, false]), ("all", [true, true, true])]
    {
        let seen = seen(server);
        let has = ["HTTPS_PROXY", "SERVICE_KEY", "OTHER_KEY"]
            .map(|name| seen.iter().any(|one| one == name));
        assert_eq!(has, expected, "{server}: {seen:?}");
        assert!(!seen.iter().any(|one| one.starts_with("TOOLWARD_")), "{seen:?}");
    }
}

#[test]
fn a_silent_server_is_reported_with_the_variables_that_it_did_not_get() {
    let setup =
        setup().agents(everyone()).server("s", json!({"command": "sleep", "args": ["600"]}));
    let setup = setup.env("SERVICE_KEY", "secret-of-the-service").set("list_timeout", json!("1s"));
    let gate = setup.with("s", "start", json!("eager")).start();
    // A slow start is not reported at once.
    said(&gate, "no response to");
    let said = gate.said.lock().unwrap().clone();
    assert!(said.contains("SERVICE_KEY") && !said.contains("secret-of-the-service"), "{said}");
}

#[test]
fn a_clients_file_is_watched_like_the_configuration() {
    let setup = setup().agents(everyone()).web("own", "modern", names(&["t"]));
    let client = setup.path("mcp.json");
    let file = |servers: Value| json!({"servers": servers, "inputs": []}).to_string();
    std::fs::write(&client, file(json!({}))).unwrap();
    let other = setup.path("other.json");
    std::fs::write(&other, names(&["u"]).to_string()).unwrap();
    let log = setup.path("other.log");
    let gate = setup.set("servers_from", json!(["mcp.json"])).start();
    let agent = gate.agent("a");
    assert_eq!(agent.list(), ["own__t"]);
    let server =
        json!({"type": "stdio", "command": "python3", "args": [WITH_ENVIRONMENT, log, other]});
    super::reload::replace(&client, &file(json!({"other": server})));
    eventually("its servers are there", || (agent.list() == ["own__t", "other__u"]).then_some(()));
}
