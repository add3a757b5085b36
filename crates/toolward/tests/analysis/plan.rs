//! `plan`: the audit log replayed against a new policy.

use serde_json::{Value, json};

use super::log::Site;

const CURRENT: &str = "\
servers:
  tracker: { command: 'false' }
  files: { command: 'false' }
agents:
  reviewer:
    allow: { servers: ['*'] }
    deny: { tools: { tracker: ['delete_*'] } }
";

fn groups<'v>(report: &'v Value, list: &str) -> Vec<(&'v str, String, &'v str, &'v str, u64)> {
    let text = |group: &'v Value, name: &str| group[name].as_str().unwrap();
    let groups = report[list].as_array().unwrap().iter();
    groups
        .map(|group| {
            let call = format!("{}/{}", text(group, "server"), text(group, "name"));
            let calls = group["calls"].as_u64().unwrap();
            (text(group, "agent"), call, text(group, "before"), text(group, "after"), calls)
        })
        .collect()
}

#[test]
fn past_calls_that_would_change_are_counted_by_agent_and_tool() {
    let mut site = Site::new(CURRENT);
    for _ in 0..3 {
        site.called("reviewer", "tracker", "get_issue");
    }
    site.called("reviewer", "files", "read_file");
    site.refused("reviewer", "tracker", "delete_issue", "2-wildcard-deny");
    site.called("other", "files", "read_file");
    site.refused("reviewer", "tracker", "get_issue", "limit");
    site.refused("reviewer", "tracker", "no_such", "no-such-tool");
    site.record("outcome", json!({"intent": "1", "outcome": "ok"}));
    site.record("kind-of-the-future", json!({"agent": "reviewer"}));
    site.record(
        "intent",
        json!({"agent": "reviewer", "server": "s", "tool": "t", "verdict": "perhaps"}),
    );
    site.raw("not a record")
        .raw("{\"id\":\"66000000fffff-x\",\"time\":\"2026-11-10\",\"kind\":\"intent\",");
    site.write("{\"id\":\"66000000ffff1-x\",\"time\":\"2026-11-10T00:");
    site.file(
        "new.yaml",
        "agents: { reviewer: { allow: { servers: ['*'], tools: { tracker: [delete_issue] } } } }",
    );
    let (code, report) = site.json(&["plan", "new.yaml"]);
    assert_eq!(code, 1);
    assert_eq!(
        groups(&report, "changes"),
        [
            ("reviewer", "tracker/delete_issue".into(), "deny", "allow", 1),
            ("reviewer", "tracker/get_issue".into(), "allow", "deny", 3),
            ("other", "files/read_file".into(), "allow", "deny", 1),
        ]
    );
    assert_eq!(report["changes"][0]["rule"], "agents.reviewer.allow.tools.tracker[0]");
    assert_eq!(report["changes"][1]["examples"].as_array().unwrap().len(), 3);
    assert_eq!(report["changes"][1]["last"], "2026-11-10T00:02:00.000000Z");
    let (compared, skipped) = (&report["calls"], &report["not_compared"]);
    assert_eq!(*compared, json!({"compared": 6, "changed": 5, "undecided": 0}));
    let expected = json!({
        "torn": 1, "unreadable": 2, "other_versions": 2, "guarded": 1, "aggregated": 0, "unavailable": 0,
        "no_such_tool": 1, "follows_another": 0, "beyond": 0,
    });
    assert_eq!(*skipped, expected);

    let (code, report) = site.json(&["plan", "new.yaml", "--as", "other"]);
    assert_eq!((code, groups(&report, "changes").len()), (1, 1));

    let text = site.run(&["plan", "new.yaml"]).stdout;
    for part in ["wider", "tracker/delete_issue", "deny -> allow", "5 of 6 calls", "1 incomplete"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let markdown = site.run(&["plan", "new.yaml", "--format", "markdown"]).stdout;
    assert!(markdown.contains("| **wider** | `reviewer` | `tracker/delete_issue` |"), "{markdown}");

    // The current policy changes nothing that it decided itself.
    let (code, report) = site.json(&["plan", "toolward.yaml", "--as", "reviewer"]);
    assert_eq!((code, &report["changed"]), (0, &json!(false)), "{report}");
}

#[test]
fn calls_are_decided_by_their_arguments_if_these_were_recorded() {
    let mut site = Site::new(CURRENT);
    let write = |site: &mut Site, arguments: Value| {
        site.called_with("reviewer", "files", "write_file", arguments);
    };
    write(&mut site, json!({"path": "/srv/a"}));
    write(&mut site, json!({"path": "/srv/b"}));
    write(&mut site, json!({"path": "/etc/passwd"}));
    write(&mut site, json!("hmac-sha256:k:00"));
    write(&mut site, json!({"path": "/srv/[redacted]"}));
    site.called("reviewer", "files", "read_file");
    site.write("");
    site.file("new.yaml", "agents: { reviewer: { allow: { servers: [files], tools: { files: [read_file, { tool: write_file, when: 'args.path.startsWith(\"/srv/\")' }] } } } }");
    let (code, report) = site.json(&["plan", "new.yaml"]);
    assert_eq!(code, 1);
    let call = || "files/write_file".to_string();
    assert_eq!(groups(&report, "changes"), [("reviewer", call(), "allow", "deny", 1)]);
    // Redacted arguments are no better than none.
    assert_eq!(groups(&report, "undecided"), [("reviewer", call(), "allow", "depends", 2)]);
    assert!(report["undecided"][0]["because"].as_str().unwrap().contains("not recorded"));

    // Conditions on the caller's claims cannot be decided either.
    site.file("claims.yaml", "agents: { reviewer: { allow: { servers: [files], tools: { files: [write_file, { tool: read_file, when: 'claims.team == \"a\"' }] } } } }");
    let (_, report) = site.json(&["plan", "claims.yaml"]);
    let expected = [("reviewer", "files/read_file".into(), "allow", "depends", 1)];
    assert_eq!(groups(&report, "undecided"), expected, "{report}");
    assert_eq!(groups(&report, "changes"), []);
}

#[test]
fn the_recorded_action_decides() {
    let mut site = Site::new(CURRENT);
    for action in ["navigate", "navigate", "click"] {
        site.record(
            "intent",
            json!({
                "agent": "reviewer", "server": "files", "tool": "interact", "action": action,
                "verdict": "allow", "step": "4-wildcard-allow", "arguments": "hmac-sha256:k:00",
            }),
        );
    }
    site.called("reviewer", "files", "interact");
    site.write("");
    site.file("new.yaml", "agents: { reviewer: { allow: { servers: [files], tools: { files: [interact.navigate] } } } }");
    // Without the schema, a listing might hide the action.
    let (_, report) = site.json(&["plan", "new.yaml"]);
    assert_eq!(report["calls"], json!({"compared": 4, "changed": 0, "undecided": 4}), "{report}");
    let schema = json!({"properties": {"action": {"enum": ["navigate", "click"]}}});
    let list = json!({"server": "files", "tools": [{"name": "interact", "inputSchema": schema}]});
    site.file("tools/files.json", &list.to_string());
    let (_, report) = site.json(&["plan", "new.yaml"]);
    let changes: Vec<(&Value, &Value)> = report["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| (&group["action"], &group["calls"]))
        .collect();
    assert_eq!(changes, [(&json!(null), &json!(1)), (&json!("click"), &json!(1))], "{report}");
}

#[test]
fn unknown_hints_are_never_guessed() {
    let mut site = Site::new(CURRENT);
    site.called("reviewer", "tracker", "get_issue").called("reviewer", "tracker", "close_issue");
    site.write("");
    site.file("new.yaml", "agents: { reviewer: { allow: { servers: ['*'], tools: { tracker: ['hint:read-only', 'close_*'] } } } }");
    let (code, report) = site.json(&["plan", "new.yaml"]);
    let open = [("reviewer", "tracker/get_issue".into(), "allow", "depends", 1)];
    assert_eq!((code, groups(&report, "undecided")), (0, open.to_vec()), "{report}");
    site.tools(
        "tracker",
        &[("get_issue", json!({"readOnlyHint": true})), ("close_issue", json!({}))],
    );
    let (code, report) = site.json(&["plan", "new.yaml"]);
    assert_eq!((code, &report["calls"]["undecided"]), (0, &json!(0)), "{report}");
    site.tools("tracker", &[("get_issue", json!({})), ("close_issue", json!({}))]);
    let (code, report) = site.json(&["plan", "new.yaml"]);
    assert_eq!((code, groups(&report, "changes").len()), (1, 1), "{report}");
}

#[test]
fn listings_gain_and_lose_names() {
    let mut site = Site::new(CURRENT);
    let names = json!({"tracker": {"shown": ["tracker__get_issue", "tracker__add_comment"], "removed": ["delete_issue"]}});
    site.record("list", json!({"agent": "reviewer", "view": "v1", "servers": {}, "names": names}));
    site.record("list", json!({"agent": "reviewer", "view": "v1", "servers": {}}));
    site.record("list", json!({"agent": "reviewer", "view": "v0", "servers": {}}));
    site.write("");
    site.file("new.yaml", "agents: { reviewer: { allow: { servers: ['*'], tools: { tracker: [get_issue, delete_issue] } } } }");
    let (code, report) = site.json(&["plan", "new.yaml"]);
    assert_eq!(code, 1);
    let expected = json!({"compared": 2, "changed": 2, "undecided": 0, "names_unknown": 1});
    assert_eq!(report["listings"], expected);
    let names: Vec<(&str, &str, u64)> = report["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| {
            let text = |member: &str| name[member].as_str().unwrap();
            (text("change"), text("name"), name["listings"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(names, [("lost", "add_comment", 2), ("gained", "delete_issue", 2)]);
    let text = site.run(&["plan", "new.yaml"]).stdout;
    assert!(text.contains("gained  reviewer: tracker/delete_issue (2 listings)"), "{text}");
}

#[test]
fn an_invalid_policy_or_a_missing_log_is_an_error() {
    let site = Site::new(CURRENT);
    site.file("new.yaml", "agents: { reviewer: { alow: {} } }");
    let run = site.run(&["plan", "new.yaml"]);
    assert_eq!(
        (run.code, run.stderr.contains("give the directory of the audit log")),
        (3, true),
        "{}",
        run.stderr
    );
    site.write("");
    let run = site.run(&["plan", "new.yaml"]);
    assert_eq!(
        (run.code, run.stderr.contains("did you mean `allow`?")),
        (3, true),
        "{}",
        run.stderr
    );
}
