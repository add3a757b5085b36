//! Files whose directory is replaced, and files that are not regular files.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::harness::{Setup, alive, eventually, setup};
use super::reload::{listed, only, said, two};

#[test]
fn a_replaced_directory_is_still_watched() {
    let setup = setup().agents(only(&["read"])).web("s", "modern", two());
    let policies = setup.path("up/policies");
    let put = |folder: PathBuf, tools: &str| {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("list.yaml"), format!("allowed_tools: [{tools}]\n")).unwrap();
    };
    put(policies.clone(), "read");
    let root = setup.path("up");
    let agents = json!({"a": {"allow": {"servers": ["*"]}}});
    let gate = setup.agents(agents).set("policies", json!(["up/policies/list.yaml"])).start();
    let agent = gate.agent("a");
    let shows = |tool: &str| {
        let wanted = [format!("s__{tool}")];
        eventually(tool, || (listed(&agent) == wanted).then_some(()));
    };
    shows("read");
    // mv conf old; mv new conf
    put(root.join("new"), "write");
    std::fs::rename(&policies, root.join("old")).unwrap();
    std::fs::rename(root.join("new"), &policies).unwrap();
    shows("write");
    // rm -rf, then created again
    std::fs::remove_dir_all(&policies).unwrap();
    said(&gate, "the previous one stays active");
    put(policies.clone(), "read");
    shows("read");
    // The parent directory, and changes in it afterwards.
    let above = root.with_file_name("away");
    std::fs::rename(&root, &above).unwrap();
    put(policies.clone(), "write");
    shows("write");
    put(policies.clone(), "read");
    shows("read");
    // Also after a manual reload.
    std::fs::rename(&policies, root.join("old")).unwrap();
    put(policies.clone(), "write");
    let (code, told) = super::reload::beside(&gate, &["reload"]);
    assert_eq!(code, 0, "{told}");
    shows("write");
    put(policies, "read");
    shows("read");
}

fn started(setup: &Setup, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_toolward"))
        .args(arguments)
        .env_clear()
        .env("HOME", setup.path(""))
        .env("TOKEN_OF_a", "token-of-agent-a")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_pipe_or_a_device_in_the_place_of_a_file_holds_up_nothing() {
    let setup = setup().agents(only(&["read"])).web("s", "modern", two());
    std::fs::write(setup.path("list.yaml"), "allowed_tools: [read]\n").unwrap();
    let mut gate = setup.set("policies", json!(["list.yaml"])).start();
    let list = gate.file("list.yaml");
    let agent = gate.agent("a");
    assert_eq!(listed(&agent), ["s__read"]);
    for make in ["mkfifo beside", "ln -s /dev/zero beside", "ln -s /dev/tty beside"] {
        let folder = list.parent().unwrap();
        let made = Command::new("sh").args(["-c", make]).current_dir(folder).status().unwrap();
        assert!(made.success());
        std::fs::rename(folder.join("beside"), &list).unwrap();
        let (code, told) = super::reload::beside(&gate, &["reload"]);
        assert!(code != 0, "{make}: {told}");
        let state = gate.file("state").display().to_string();
        let mut asked = started(&gate.setup, &["status", "--state", &state]);
        assert!(asked.wait().unwrap().success(), "{make}");
        assert_eq!(listed(&agent), ["s__read"]);
    }
    let pid = gate.child.as_ref().unwrap().id();
    let memory = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let memory = memory.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let kilobytes: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 500_000, "{memory}");
    gate.signal("-TERM");
    assert_eq!(gate.ended(), 0);
    assert!(!alive(pid));
}
