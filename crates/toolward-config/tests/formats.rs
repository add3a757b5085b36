//! Unmodified files of other systems.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::{Value, json};
use toolward_config::{Inline, LoadedConfig, load_inline};
use toolward_policy::source::RulesSource;

fn inline(text: &str) -> LoadedConfig {
    load_inline(Inline::Text(text)).unwrap_or_else(|failed| {
        panic!("{}", failed.diagnostics.iter().map(|found| found.render(false)).collect::<String>())
    })
}

fn selectors(loaded: &LoadedConfig) -> Vec<&str> {
    match &loaded.source.layers[0].rules {
        RulesSource::Allowlist(list) => {
            list.tools.iter().map(|entry| entry.selector.as_str()).collect()
        }
        _ => panic!("not an allowlist"),
    }
}

#[test]
fn tool_manager_configs_are_accepted_as_their_system_does() {
    let cases = include_str!("data/tool-manager.jsonl");
    for line in cases.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let entry = json!({"handler": "tool_manager", "config": case["config"]});
        let file = json!({"plugins": {"middleware": {"_global": [entry]}}}).to_string();
        let accepted = load_inline(Inline::Text(&file)).is_ok();
        assert_eq!(accepted, case["accepted"] == true, "{line}");
    }
}

#[test]
fn an_allowlist_with_comments_loads() {
    let loaded = inline(
        "# Comments supported\nallowed_tools:\n  - \"observe.*\"             # Wildcard\n  - \"generate.reproduction\" # Specific\n  - \"interact.navigate\"\n",
    );
    assert_eq!(selectors(&loaded), ["observe.*", "generate.reproduction", "interact.navigate"]);
}

#[test]
fn agent_rules_in_json_load() {
    let loaded = inline(
        r#"{"agents": {"agent-name": {
            "allow": {"servers": ["server1", "*"], "tools": {"server1": ["tool1", "*"]}},
            "deny": {"servers": ["excluded-server"], "tools": {"server1": ["dangerous_tool", "drop_*"]}}}},
            "defaults": {"deny_on_missing_agent": false}}"#,
    );
    let RulesSource::Agents(agents) = &loaded.source.layers[0].rules else { panic!() };
    assert!(!agents.deny_on_missing_agent);
    assert_eq!(agents.agents[0].1.deny.tools[0].entries[1].selector, "drop_*");
}

#[test]
fn a_toml_list_loads_from_either_place() {
    assert_eq!(
        selectors(&inline("[chat]\ntools = [\"shell\", \"browser\"]\n")),
        ["shell", "browser"]
    );
    let loaded = inline("model = \"x\"\ntools = [\"hint:read-only\"]\n[env]\nA = 1\n");
    assert_eq!(selectors(&loaded), ["hint:read-only"]);
    assert!(loaded.warnings[0].message().contains("`model`, `env` are ignored"));
    assert!(load_inline(Inline::Text("tools = [\"a\"]\n[chat]\ntools = []\n")).is_err());
    assert!(load_inline(Inline::Text("tools = [\"!a\"]\n")).is_err());
}

#[test]
fn a_plugin_file_becomes_exposures() {
    let loaded = inline(
        "proxy: { transport: stdio }\nplugins:\n  middleware:\n    files:\n      - handler: \"tool_manager\"\n        config:\n          enabled: true\n          priority: 50\n          tools:\n            - tool: \"read_*\"\n            - { tool: a, display_name: b, display_description: \"\" }\n      - handler: other\n        enabled: false\n",
    );
    let server = &loaded.source.servers[0];
    let expose = server.expose.as_ref().unwrap();
    assert!(expose.literal && server.name == "files");
    assert_eq!(expose.entries[0].name, "read_*");
    assert_eq!(expose.entries[1].display_description.as_deref(), Some(""));
    assert_eq!(loaded.warnings.len(), 2, "skipped parts are reported");
    let everywhere =
        inline("plugins: {middleware: {_global: [{handler: tool_manager, config: {tools: []}}]}}");
    assert!(everywhere.source.expose_everywhere.unwrap().entries.is_empty());
    assert!(everywhere.source.servers.is_empty());
}

#[test]
fn a_plugin_file_is_read_strictly() {
    let entry = |entry: &str| {
        let file = format!("plugins: {{middleware: {{_global: [{entry}]}}}}");
        load_inline(Inline::Text(&file)).is_ok()
    };
    assert!(entry("{handler: tool_manager, priority: 0, critical: true, config: {tools: []}}"));
    assert!(!entry("{handler: tool_manager, priority: 101, config: {tools: []}}"));
    assert!(!entry("{handler: tool_manager, enabled: true, config: {enabled: false, tools: []}}"));
    assert!(!entry("{handler: tool_manager}"));
    assert!(!entry("{config: {tools: []}}"));
    assert!(!entry("{handler: tool_manager, confg: {}, config: {tools: []}}"));
    assert!(!entry(
        "{handler: tool_manager, config: {tools: []}}, {handler: tool_manager, config: {tools: []}}"
    ));
    assert!(!entry("{handler: basic_pii_filter, config: {}}"));
    assert!(entry("{handler: basic_pii_filter, config: {enabled: false, x: 1}}"));
    for text in ["plugins: {other: {}}", "plugins: []", "plugins: {}\nservers: {}"] {
        assert!(load_inline(Inline::Text(text)).is_err(), "{text}");
    }
}

#[test]
fn client_configurations_are_servers() {
    let loaded = inline(
        r#"{"mcpServers": {"a": {"command": "x", "type": "stdio"}, "b": {"url": "https://h/mcp", "type": "sse"}}}"#,
    );
    let names: Vec<_> = loaded.source.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
}
