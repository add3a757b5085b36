//! `hints_from`: which set is used, and how it combines with the operator's hints and the server's annotations.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::json;
use toolward_config::{LoadedConfig, Loader, Options};
use toolward_policy::{Policy, Tool};

fn load(server: &str) -> LoadedConfig {
    let text = format!(
        "servers:\n  s: {{ {server} }}\nagents: {{ a: {{ allow: {{ servers: [s] }} }} }}\n"
    );
    let files = HashMap::from([(PathBuf::from("toolward.yaml"), text)]);
    let options = Options { main: Some("toolward.yaml".into()), ..Options::default() };
    Loader { files, env: HashMap::<String, String>::new() }.load(&options).unwrap()
}

const GITHUB: &str = "command: npx, args: [-y, \"@modelcontextprotocol/server-github@1\"]";

/// The hints of a tool whose server claims that it is read-only and closed-world.
fn hints(server: &str, tool: &str) -> Vec<String> {
    let policy = Policy::compile(load(server).source).unwrap();
    let claims = json!({"annotations": {"readOnlyHint": true, "openWorldHint": false}});
    let tool = Tool::new(tool, claims.as_object().unwrap());
    policy.hints("s", &tool).iter().map(String::from).collect()
}

#[test]
fn the_operators_hints_take_precedence_over_the_set_and_the_set_over_annotations() {
    let without = hints(GITHUB, "merge_pull_request");
    assert_eq!(without, ["closed-world", "read-only"]);
    let set = format!("{GITHUB}, hints_from: builtin");
    assert_eq!(hints(&set, "merge_pull_request"), ["destructive", "open-world"]);
    // A tool that the set does not name has the hints of its annotations, or the defaults.
    assert_eq!(hints(&set, "new_tool"), ["closed-world", "read-only"]);
    let distrusted = format!("{set}, trust_annotations: false");
    assert_eq!(hints(&distrusted, "new_tool"), ["destructive", "open-world"]);
    assert_eq!(hints(&distrusted, "get_issue"), ["open-world", "read-only"]);
    // The operator's pattern counts more than the set's exact name, and is not combined with it.
    let pattern = format!("{set}, hints: {{ \"merge_*\": [read-only, closed-world] }}");
    assert_eq!(hints(&pattern, "merge_pull_request"), ["closed-world", "read-only"]);
    assert_eq!(hints(&pattern, "get_issue"), ["open-world", "read-only"]);
    let exact = format!("{set}, hints: {{ get_issue: [mine] }}");
    assert_eq!(hints(&exact, "get_issue"), ["destructive", "mine", "open-world"]);
}

#[test]
fn a_set_can_be_named_for_any_server() {
    let of = |server: &str| hints(server, "merge_pull_request");
    let named = "command: /opt/gh-server, hints_from: \"builtin:github-legacy\"";
    assert_eq!(of(named), ["destructive", "open-world"]);
    let remote = "url: \"https://gh.example/mcp\", hints_from: \"builtin:github-legacy\"";
    assert_eq!(of(remote), ["destructive", "open-world"]);
}

#[test]
fn the_configuration_knows_where_hints_come_from() {
    let sources = |server: &str| load(server).config.servers[0].hints.clone();
    let none = sources(GITHUB);
    assert!(none.set.is_none() && !none.is_stated && none.from_set.is_empty());
    assert_eq!(none.available.unwrap().name, "github-legacy");
    let both =
        sources(&format!("{GITHUB}, hints_from: builtin, hints: {{ \"get_*\": [read-only] }}"));
    assert_eq!(both.set.unwrap().name, "github-legacy");
    let from = |tool: &str| both.from_set.iter().any(|known| known == tool);
    assert!(both.is_stated && from("merge_pull_request") && !from("get_issue"));
    assert!(sources("command: other").available.is_none());
}
