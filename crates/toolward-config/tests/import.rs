//! An imported policy means the same when it is loaded again.

#![allow(clippy::unwrap_used, clippy::panic)]

use toolward_config::{Format, Inline, import, load_inline};
use toolward_policy::source::{RulesSource, Source};

/// The source without locations, file names and list names, and whether names were literal.
fn meaning(mut source: Source) -> String {
    for layer in &mut source.layers {
        layer.name.clear();
        if let RulesSource::Allowlist(list) = &mut layer.rules {
            list.path.clear();
        }
    }
    source.servers.iter_mut().filter_map(|server| server.expose.as_mut()).for_each(|expose| {
        expose.literal = false;
    });
    let text = format!("{source:#?}");
    text.lines().filter(|line| !line.contains("line: ") && !line.contains("column: ")).collect()
}

fn same(format: Format, text: &str) -> String {
    let imported =
        import(format, "given", text, &[]).unwrap_or_else(|f| panic!("{:?}", f.diagnostics));
    let before = load_inline(Inline::Text(text)).unwrap().source;
    let after = load_inline(Inline::Text(&imported.yaml))
        .unwrap_or_else(|f| panic!("{}\n{:?}", imported.yaml, f.diagnostics));
    assert_eq!(meaning(before), meaning(after.source), "{}", imported.yaml);
    imported.yaml
}

#[test]
fn every_format_round_trips() {
    same(
        Format::Allowlist,
        "allowed_tools: [\"observe.*\", \"*\", 'a: b', '#x', \"\\u2028\", yes, \"true\"]\nallowed_prompts: []\ncase: sensitive\n",
    );
    same(Format::Allowlist, "allowed_tools: []");
    same(
        Format::Agents,
        r#"{"agents": {"a b": {"allow": {"servers": ["*"], "tools": {"*": ["x", ""], "s": []}, "client_requests": ["*"]}, "deny": {"resources": {"s": ["file:///*"]}}}, "empty": {}, "on": {"case": "insensitive"}}, "defaults": {"deny_on_missing_agent": false}}"#,
    );
    same(Format::Agents, "{}");
    same(
        Format::Policy,
        "agents: {a: {allow: {tools: {s: [{tool: x, when: 'args.a == \"b\"'}]}}}}\nallowed_tools: [y]\n",
    );
    same(Format::Toml, "tools = [\"shell\", \"hint:read-only\", \"mcp_*\"]");
    same(Format::Toml, "[chat]\ntools = []");
    same(
        Format::Plugin,
        "plugins: {middleware: {files: [{handler: tool_manager, config: {tools: [{tool: a, display_name: b, display_description: \"x\\ny\"}, {tool: c}]}}], web: [{handler: tool_manager, config: {tools: []}}]}}",
    );
}

#[test]
fn the_text_reads_as_a_person_would_write_it() {
    let yaml = same(Format::Toml, "tools = [\"shell\", \"hint:read-only\"]");
    assert_eq!(yaml, "allowed_tools:\n  - shell\n  - \"hint:read-only\"\ncase: sensitive\n");
}

#[test]
fn names_with_wildcards_stay_names() {
    let text = "plugins: {middleware: {s: [{handler: tool_manager, config: {tools: [{tool: 'read_*'}, {tool: 'a[b]?'}]}}]}}";
    let yaml = import(Format::Plugin, "p", text, &[]).unwrap().yaml;
    assert!(yaml.contains("\"read_[*]\"") && yaml.contains("\"a[[]b][?]\""), "{yaml}");
    let renamed = "plugins: {middleware: {s: [{handler: tool_manager, config: {tools: [{tool: 'read_*', display_name: r}]}}]}}";
    assert!(import(Format::Plugin, "p", renamed, &[]).is_err());
}

#[test]
fn a_list_for_every_server_needs_their_names() {
    let text =
        "plugins: {middleware: {_global: [{handler: tool_manager, config: {tools: [{tool: a}]}}]}}";
    assert!(import(Format::Plugin, "p", text, &[]).is_err());
    let yaml = import(Format::Plugin, "p", text, &["x", "y"]).unwrap().yaml;
    assert_eq!(load_inline(Inline::Text(&yaml)).unwrap().source.servers.len(), 2);
}

#[test]
fn an_invalid_file_is_not_imported() {
    assert!(import(Format::Allowlist, "p", "", &[]).is_err());
    assert!(import(Format::Agents, "p", "allowed_tools: []", &[]).is_err());
    assert!(import(Format::Toml, "p", "x = 1", &[]).is_err());
}
