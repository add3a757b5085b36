//! Guards across reloads.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::harness::*;
use super::support::*;

/// Changes the configuration, and waits until it is active.
fn change(gate: &Gate, change: impl FnOnce(&mut Value)) {
    reloaded(gate, || write(gate, change));
}

fn write(gate: &Gate, change: impl FnOnce(&mut Value)) {
    let file = gate.file("toolward.yaml");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    change(&mut config);
    let beside = gate.file("toolward.new");
    std::fs::write(&beside, config.to_string()).unwrap();
    std::fs::rename(beside, &file).unwrap();
}

/// Waits until a reload is recorded.
fn reloaded(gate: &Gate, cause: impl FnOnce()) {
    let reloads = || {
        let records = super::audit_log::all(&gate.file("audit"));
        records.iter().filter(|record| record["kind"] == "reload").count()
    };
    let before = reloads();
    cause();
    eventually("it is loaded again", || (reloads() > before).then_some(()));
    // A reload is recorded just before the configuration is activated.
    std::thread::sleep(std::time::Duration::from_millis(50));
}

#[test]
fn an_unchanged_limit_keeps_its_count() {
    let gate = with_tools(&["t"]).set("limits", json!({"calls": "3/day"})).start();
    let a = gate.agent("a");
    assert!(passed(&a.call("s__t", json!({}))) && passed(&a.call("s__t", json!({}))));
    change(&gate, |config| config["limits"]["tools"] = json!({"s/u": "1/day"}));
    assert!(passed(&a.call("s__t", json!({}))));
    assert_eq!(limited(&a.call("s__t", json!({})))["rate"], "3/day");
    // Another rate is another limit, and starts with full capacity.
    change(&gate, |config| config["limits"]["calls"] = json!("2/day"));
    assert!(passed(&a.call("s__t", json!({}))) && passed(&a.call("s__t", json!({}))));
    assert_eq!(limited(&a.call("s__t", json!({})))["rate"], "2/day");
    change(&gate, |config| drop(config.as_object_mut().unwrap().remove("limits")));
    assert!(passed(&a.call("s__t", json!({}))));
}

#[test]
fn hooks_are_those_of_the_active_configuration() {
    let setup = with_tools(&["t"]);
    let policy = setup.path("policy.sh");
    std::fs::write(&policy, "mcp_tools_policy_check() { return 0; }\n").unwrap();
    std::fs::set_permissions(&policy, PermissionsExt::from_mode(0o600)).unwrap();
    let gate = setup.set("hooks", json!([{"name": "h", "policy_sh": "policy.sh"}])).start();
    let a = gate.agent("a");
    assert!(passed(&a.call("s__t", json!({}))));
    let shells = gate.children();
    assert_eq!(shells.len(), 1);
    // The file itself changes.
    reloaded(&gate, || {
        std::fs::write(&policy, "mcp_tools_policy_check() { return 1; }\n").unwrap();
    });
    eventually("the new file is active", || (!passed(&a.call("s__t", json!({})))).then_some(()));
    gone(&shells);
    // A file that may not be used leaves the old one active.
    write(&gate, |config| config["hooks"][0]["policy_sh"] = json!("missing.sh"));
    eventually("it is refused", || {
        let said = gate.said.lock().unwrap();
        (said.contains("the previous one stays active") && said.contains("missing.sh"))
            .then_some(())
    });
    assert_eq!(error(&a.call("s__t", json!({}))).1, "Tool 't' blocked by policy");
    change(&gate, |config| config["hooks"] = json!([]));
    assert!(passed(&a.call("s__t", json!({}))));
    eventually("its process has ended", || gate.children().is_empty().then_some(()));
}

#[test]
fn the_limit_of_an_entry_belongs_to_the_entry_and_not_to_its_place() {
    let entry = |tool: &str| json!({"tool": tool, "limit": "3/day"});
    let agents = |entries: Value| {
        let allow = json!({"servers": ["*"], "tools": {"s": entries}});
        json!({"a": {"allow": allow}, "b": {"allow": {"servers": ["*"]}}})
    };
    let gate = setup()
        .web("s", "modern", names(&["t", "u"]))
        .agents(agents(json!([entry("t"), entry("u")])))
        .start();
    let a = gate.agent("a");
    let calls =
        |name: &str, count: usize| (0..count).filter(|_| passed(&a.call(name, json!({})))).count();
    assert_eq!((calls("s__t", 3), calls("s__u", 1)), (3, 1));
    let tools = |config: &mut Value, entries: Value| {
        config["agents"]["a"]["allow"]["tools"]["s"] = entries;
    };
    // Another order, and another entry in front: each count continues.
    change(&gate, |config| tools(config, json!([entry("u"), entry("t")])));
    assert_eq!((calls("s__t", 2), calls("s__u", 1)), (0, 1));
    change(&gate, |config| tools(config, json!(["other", entry("t"), entry("u")])));
    assert_eq!((calls("s__t", 2), calls("s__u", 3)), (0, 1));
    // The entry that replaces it starts with full capacity.
    let when = json!({"tool": "t", "limit": "3/day", "when": "true"});
    change(&gate, |config| tools(config, json!(["other", when, entry("u")])));
    assert_eq!((calls("s__t", 4), calls("s__u", 1)), (3, 0));
    // Written twice, it is counted twice: a call consumes from the entry that allows it.
    change(&gate, |config| tools(config, json!([entry("t"), entry("t"), entry("u")])));
    assert_eq!(calls("s__t", 2), 0);
}
