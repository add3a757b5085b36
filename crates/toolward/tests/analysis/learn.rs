//! `learn`: the narrowest policy that covers recorded calls.

use serde_json::{Value, json};

use super::log::Site;

/// Everything is observed, and nothing is denied, as after `init`.
const OBSERVED: &str = "\
servers:
  tracker: { command: 'false' }
  files: { command: 'false' }
agents:
  coder: { allow: { servers: ['*'] } }
";

fn tracker(site: &Site) {
    site.tools(
        "tracker",
        &[
            ("get_issue", json!({"readOnlyHint": true, "openWorldHint": false})),
            ("list_issues", json!({"readOnlyHint": true, "openWorldHint": false})),
            ("get_secret", json!({"readOnlyHint": true, "openWorldHint": false})),
            ("create_issue", json!({"destructiveHint": false, "openWorldHint": false})),
            ("create_label", json!({"destructiveHint": false, "openWorldHint": false})),
            ("create_board", json!({"destructiveHint": false, "openWorldHint": false})),
            ("delete_issue", json!({})),
        ],
    );
}

#[test]
fn names_are_learned_with_counts_and_marks() {
    let mut site = Site::new(OBSERVED);
    tracker(&site);
    for _ in 0..3 {
        site.called("coder", "tracker", "get_issue");
    }
    site.called_with("coder", "tracker", "create_issue", json!({"title": "a: \"b\" # c"}));
    site.called("coder", "tracker", "delete_issue");
    site.called("other", "files", "write_file");
    site.write("");
    let text = site.learned(&["--as", "coder"]);
    assert!(text.contains("- get_issue # 3 calls, last 2026-11-10\n"), "{text}");
    assert!(
        text.contains(
            "- delete_issue # 1 call, last 2026-11-10; REVIEW: destructive, open-world\n"
        ),
        "{text}"
    );
    assert!(text.contains("allows nothing that the current policy denies"), "{text}");
    assert!(text.contains("tracker/create_issue {"), "{text}");
    assert!(!text.contains("other") && !text.contains("files"), "{text}");
    for (tool, expected) in [("get_issue", true), ("delete_issue", true), ("list_issues", false)] {
        assert_eq!(site.may("coder", &format!("tracker/{tool}"), "{}"), expected, "{tool}");
    }
    assert!(!site.may("other", "files/write_file", "{}"));
    // The replay of the same log changes no call of the agent.
    let (_, report) = site.json(&["plan", "learned.yaml", "--as", "coder"]);
    assert_eq!(report["calls"], json!({"compared": 5, "changed": 0, "undecided": 0}), "{report}");
}

#[test]
fn conditions_approvals_limits_and_denials_of_the_current_policy_stay() {
    let mut site = Site::new("\
servers: { files: { command: 'false' } }
roles:
  writer:
    allow: { servers: [files], tools: { files: [{ tool: 'write_*', when: 'args.path.startsWith(\"/srv/\")' }] } }
    deny: { tools: { '*': ['*_secret'] } }
agents:
  coder:
    roles: [writer]
    allow:
      servers: [files]
      tools: { files: ['read_*', { tool: run_it, limit: 5/min, message: ask Ann }] }
      prompts: { files: [{ prompt: 'sum*', limit: 1/s }] }
    deny: { prompts: { files: [{ prompt: summarize, shadow: true }] }, tools: { files: [{ tool: read_file, when: 'args.path == \"/x\"' }] } }
");
    site.called_with("coder", "files", "write_file", json!({"path": "/srv/a"}));
    site.called("coder", "files", "read_file").called("coder", "files", "run_it");
    site.record(
        "intent",
        json!({"agent": "coder", "server": "files", "prompt": "summarize", "verdict": "allow"}),
    );
    site.refused("coder", "files", "read_secret", "2-wildcard-deny");
    site.refused("coder", "files", "drop_all", "6-default-deny");
    site.write("");
    let text = site.learned(&["--as", "coder"]);
    for part in [
        "- tool: write_file #",
        "- prompt: summarize # 1 call, last 2026-11-10\n            limit: 1/s",
        "- prompt: summarize\n            shadow: true",
        "when: \"args.path.startsWith(\\\"/srv/\\\")\"",
        "limit: 5/min",
        "message: \"ask Ann\"",
        "- \"*_secret\"",
        "when: \"args.path == \\\"/x\\\"\"",
        "read_secret: 1 call, denied by `*_secret`",
        "drop_all: 1 call, no rule allows it",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(site.may("coder", "files/write_file", "{\"path\": \"/srv/b\"}"));
    assert!(!site.may("coder", "files/write_file", "{\"path\": \"/etc/b\"}"));
    assert!(!site.may("coder", "files/write_other", "{\"path\": \"/srv/b\"}"));
    assert!(!site.may("coder", "files/read_file", "{\"path\": \"/x\"}"));
    assert!(site.may("coder", "files/read_file", "{\"path\": \"/y\"}"));
    let (_, report) = site.json(&["learn", "--as", "coder"]);
    assert_eq!(report["wider"], json!(false), "{report}");
    let expected = json!(["files/read_secret"]);
    assert_eq!(report["tests"]["deny"], expected, "{report}");

    // Refused calls are covered on request, unless a rule denies them.
    let text = site.learned(&["--as", "coder", "--refused"]);
    assert!(
        text.contains("- drop_all # NEW: 1 call, last 2026-11-10, refused until now"),
        "{text}"
    );
    assert!(
        site.may("coder", "files/drop_all", "{}") && !site.may("coder", "files/read_secret", "{}")
    );
    assert_eq!(site.json(&["learn", "--as", "coder", "--refused"]).1["wider"], json!(true));
}

#[test]
fn generalized_rules_never_allow_what_the_current_policy_denies() {
    let mut site = Site::new(OBSERVED);
    tracker(&site);
    for tool in
        ["get_issue", "list_issues", "create_issue", "create_label", "create_board", "delete_issue"]
    {
        site.called("coder", "tracker", tool);
    }
    site.write("");
    let exact = site.learned(&["--as", "coder"]);
    assert!(!exact.contains("hint:") && !exact.contains('*'), "{exact}");
    let text = site.learned(&["--as", "coder", "--generalise"]);
    assert!(
        text.contains(
            "- \"hint:read-only+closed-world\" # 2 calls, last 2026-11-10; get_issue, list_issues\n"
        ),
        "{text}"
    );
    assert!(
        text.contains("- \"create_*\" # 3 calls") && text.contains("- delete_issue # 1 call"),
        "{text}"
    );
    assert!(site.may("coder", "tracker/get_secret", "{}"));

    // Only some tools are allowed now: a hint would allow others.
    site.file("toolward.yaml", &OBSERVED.replace("servers: ['*']", "servers: ['*'], tools: { tracker: [get_issue, list_issues, 'create_*', delete_issue] }"));
    let text = site.learned(&["--as", "coder", "--generalise"]);
    assert!(!text.contains("hint:") && text.contains("allows nothing that the current"), "{text}");
    assert!(!site.may("coder", "tracker/get_secret", "{}"));
    // A denied tool stays denied under a hint.
    site.file(
        "toolward.yaml",
        &OBSERVED.replace("['*'] }", "['*'] }, deny: { tools: { tracker: ['*_secret'] } }"),
    );
    let text = site.learned(&["--as", "coder", "--generalise"]);
    assert!(
        text.contains("hint:read-only") && !site.may("coder", "tracker/get_secret", "{}"),
        "{text}"
    );
}

#[test]
fn a_server_of_which_only_prompts_were_used_does_not_open() {
    let mut site = Site::new(OBSERVED);
    site.record("intent", json!({
        "agent": "coder", "server": "files", "prompt": "summarize", "method": "prompts/get", "action": null,
        "verdict": "allow", "step": "5-implicit-grant", "arguments": null,
    }));
    site.write("");
    let text = site.learned(&["--as", "coder"]);
    assert!(text.contains("prompts:\n        files:\n          - summarize # 1 call"), "{text}");
    assert!(!site.may("coder", "files/write_file", "{}"), "{text}");
    let policy = site.path("learned.yaml");
    let may = |kind: &str, name: &str| {
        let words = ["can-i", "--as", "coder", kind, name, "--policy", &policy];
        crate::program::toolward(&words, "").code == 0
    };
    assert!(may("--prompt", "files/summarize") && !may("--prompt", "files/other"));
    assert!(!may("--resource", "files/note:1"));
}

#[test]
fn names_cannot_write_rules() {
    let mut site = Site::new(OBSERVED);
    let hostile =
        ["get*", "a\n          - evil", "x # y", "hint:read-only", "[ab]", "- b", "", "a\u{2028}b"];
    for name in hostile {
        site.called("coder", "tracker", name);
    }
    site.called("coder", "e\nvil: {}", "t");
    site.write("");
    let text = site.learned(&["--as", "coder"]);
    assert!(text.contains("\"get[*]\"") && text.contains("\"[[]ab]\""), "{text}");
    for free in ["evil", "getter", "a", "b", "ab"] {
        assert!(!site.may("coder", &format!("tracker/{free}"), "{}"), "{free}: {text}");
    }
    let (_, report) = site.json(&["plan", "learned.yaml"]);
    // A tool whose name is that of a hint cannot be named.
    let changes: Vec<&Value> =
        report["changes"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(changes, [&json!("hint:read-only")], "{report}");
}

#[test]
fn unused_grants_are_left_out_and_nothing_opens() {
    let mut site = Site::new(
        "\
servers: { tracker: { command: 'false' }, files: { command: 'false' }, chat: { command: 'false' } }
agents:
  coder:
    allow:
      servers: [tracker, 'f*', chat]
      tools:
        tracker: ['get_*', { tool: 'create_*', when: 'args.draft' }, 'delete_*']
        files: [write_file]
        chat: [post]
      prompts: { files: [p] }
    deny: { tools: { tracker: [get_secret] } }
",
    );
    site.called("coder", "tracker", "get_issue").called("coder", "tracker", "create_issue");
    // Only a prompt of a server whose tools are not used anymore.
    site.record("intent", json!({
        "agent": "coder", "server": "files", "prompt": "p", "method": "prompts/get", "verdict": "allow",
    }));
    site.write("");
    let text = site.learned(&["--as", "coder", "--tighten"]);
    assert!(
        text.contains("- \"get_*\" # 1 call") && text.contains("- tool: \"create_*\" # 1 call"),
        "{text}"
    );
    for unused in
        ["tools.tracker: delete_*", "tools.files: write_file", "tools.chat: post", "servers: chat"]
    {
        assert!(text.contains(unused), "{unused}: {text}");
    }
    for (tool, expected) in [
        ("tracker/get_other", true),
        ("tracker/get_secret", false),
        ("tracker/delete_issue", false),
        ("files/write_file", false),
        ("files/other", false),
        ("chat/post", false),
        ("chat/other", false),
    ] {
        assert_eq!(site.may("coder", tool, "{}"), expected, "{tool}: {text}");
    }
    let (_, report) = site.json(&["learn", "--as", "coder", "--tighten"]);
    assert_eq!(
        (report["wider"].clone(), report["unused"].as_array().unwrap().len()),
        (json!(false), 4),
        "{report}"
    );
}

#[test]
fn an_agent_without_calls_is_an_error() {
    let mut site = Site::new(OBSERVED);
    site.called("coder", "tracker", "get_issue").write("");
    let run = site.run(&["learn", "--as", "codre"]);
    assert_eq!(
        (run.code, run.stderr.contains("did you mean `coder`?")),
        (2, true),
        "{}",
        run.stderr
    );
}

#[test]
fn a_name_for_a_rule_with_hints_is_called_wider_for_the_true_reason() {
    let mut site = Site::new(
        "servers: { tracker: { command: 'false' } }
agents: { coder: { allow: { servers: [tracker], tools: { tracker: ['hint:read-only'] } } } }
",
    );
    tracker(&site);
    site.called("coder", "tracker", "get_issue").write("");
    let text = site.learned(&["--as", "coder"]);
    let reason = "WIDER than the current policy, because a name also covers the tool if its hints change, for example:";
    assert!(text.contains(reason) && !text.contains("layers"), "{text}");
}

#[test]
fn calls_with_and_without_an_action_are_all_counted() {
    let mut site = Site::new(OBSERVED);
    let schema = json!({"type": "object", "properties": {"action": {"enum": ["add", "clear"]}}});
    let list = json!({"server": "tracker", "tools": [{"name": "board", "inputSchema": schema}]});
    site.file("tools/tracker.json", &list.to_string());
    site.called_with("coder", "tracker", "board", json!({"action": "add"}));
    site.called_with("coder", "tracker", "board", json!({"action": "clear"}));
    site.called_with("coder", "tracker", "board", json!({}));
    site.write("");
    let text = site.learned(&["--as", "coder"]);
    assert!(text.contains("- board # 3 calls, last"), "{text}");
    assert!(text.contains("- tracker # 3 calls"), "{text}");
}

#[test]
fn a_pattern_of_agents_is_refused_with_the_names_that_it_matches() {
    let mut site = Site::new(
        "servers: { tracker: { command: 'false' } }
agents: { 'ci-*': { allow: { servers: ['*'] } } }
",
    );
    site.called("ci-7", "tracker", "get_issue").called("other", "tracker", "get_issue").write("");
    let run = site.run(&["learn", "--as", "ci-*"]);
    let said = "error: `ci-*` is a pattern, and --as needs the name of one agent\n  help: it matches `ci-7`, which made calls";
    assert_eq!((run.code, run.stderr.contains(said)), (2, true), "{}", run.stderr);
    assert!(site.learned(&["--as", "ci-7"]).contains("- get_issue # 1 call"));
}
