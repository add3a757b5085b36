//! Damaged files: truncated at any byte, or with any byte changed, a file gives an error or exactly
//! what the remaining text spells. Nothing panics.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;
use std::path::PathBuf;

use toolward_config::{LoadFailure, LoadedConfig, Loader, Options, PolicyFile, PolicyFlag};

const MAIN: &str = "listen: 127.0.0.1:7410\nservers:\n  files:\n    command: npx\n    env: { T: \"${TOKEN}\" }\n    expose: [ {tool: a, display_name: b}, \"list_*\" ]\n    hints: { \"get_*\": [read-only] }\nagents:\n  dev:\n    tokens: [\"${TOKEN}\"]\n    allow: { servers: [\"*\"], tools: { files: [\"hint:read-only\", {tool: é, when: 'true'}] } }\naudit: { rotate: { size: 4 MiB } }\ntests:\n  - { as: dev, allow: ['files/a {\"x\": 1}'] }\n";
const YAML: &str = "# comment\nagents:\n  \"a b\":\n    deny:\n      servers: [notion]\n      tools:\n        \"*\":\n          - hint:destructive\n          - 'drop_*'\n          - |\n            text\nallowed_tools:\n  - \"observe.*\"\n";
const JSON: &str = "{\"agents\": {\"d\\u00e9v\": {\"allow\": {\"servers\": [\"*\"], \"tools\": {\"s\": [\"x\", {\"tool\": \"y\"}]}}}}, \"defaults\": {\"deny_on_missing_agent\": false}}\n";
const TOML: &str = "# gptme\nmodel = 'x'\n[chat]\ntools = [\"shell\", 'read_*', \"\"\"hint:read-only\"\"\"]\nn = 1_000\nd = 1979-05-27T07:32:00Z\n";
const PLUGIN: &str = "plugins:\n  middleware:\n    files:\n      - handler: tool_manager\n        config:\n          priority: 5\n          tools:\n            - tool: internal\n              display_name: shown\n            - {tool: x}\n";

fn load(name: &str, bytes: &[u8]) -> Result<LoadedConfig, LoadFailure> {
    let path = PathBuf::from(name);
    let options = match name {
        "main.yaml" => Options { main: Some(path.clone()), ..Options::default() },
        _ => {
            let file = PolicyFile { path: path.clone(), flag: PolicyFlag::Policy, format: None };
            Options { policies: vec![file], ..Options::default() }
        }
    };
    let files = HashMap::from([(path, bytes)]);
    let loaded = Loader { files, env: HashMap::<String, String>::new() }.load(&options);
    // Findings must be safe to print, whatever the text contains.
    let findings = match &loaded {
        Ok(loaded) => &loaded.warnings,
        Err(failed) => &failed.diagnostics,
    };
    for finding in findings {
        let shown = finding.render(false);
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
        finding.to_json();
    }
    loaded
}

#[test]
fn a_file_cut_at_any_byte_never_panics() {
    for (name, text) in samples() {
        assert!(load(name, text.as_bytes()).is_ok(), "{name}");
        for cut in 0..text.len() {
            let _outcome = load(name, &text.as_bytes()[..cut]);
        }
    }
}

#[test]
fn a_cut_json_file_is_an_error() {
    for cut in 0..JSON.trim_end().len() {
        assert!(load("p.json", &JSON.as_bytes()[..cut]).is_err(), "{cut}");
    }
}

#[test]
fn a_file_with_any_byte_changed_never_panics() {
    let others = *b"\0\t\n\"#*:[\\}1\xc3";
    for (name, text) in samples() {
        let mut bytes = text.as_bytes().to_vec();
        for at in 0..bytes.len() {
            let kept = bytes[at];
            for other in others {
                bytes[at] = other;
                let _outcome = load(name, &bytes);
            }
            bytes[at] = kept;
        }
    }
}

#[test]
fn input_that_is_not_text_is_rejected_with_a_location() {
    for (name, text) in samples() {
        let mut bytes = text.as_bytes().to_vec();
        bytes.splice(10..10, [0xff, 0xfe]);
        let failed = load(name, &bytes).unwrap_err();
        assert!(failed.diagnostics[0].message().contains("UTF-8"), "{name}");
        assert!(failed.diagnostics[0].place().is_some());
        let mut bytes = text.as_bytes().to_vec();
        bytes.insert(10, 0);
        let is_comment_in_toml = name.ends_with("toml");
        assert!(load(name, &bytes).is_err() || is_comment_in_toml, "{name}");
    }
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_change_nothing() {
    for (name, text) in samples() {
        let plain = load(name, text.as_bytes()).unwrap();
        let marked = load(name, format!("\u{feff}{text}").as_bytes()).unwrap();
        assert_eq!(format!("{:?}", plain.source), format!("{:?}", marked.source));
        let windows = load(name, text.replace('\n', "\r\n").as_bytes()).unwrap();
        assert_eq!(format!("{:?}", plain.source), format!("{:?}", windows.source));
    }
}

#[test]
fn nesting_and_numbers_without_end_are_refused() {
    for (name, text) in [
        ("p.json", format!("{{\"allowed_tools\": {}", "[".repeat(1_000_000))),
        ("p.json", format!("{{\"allowed_tools\": [{}]}}", "9".repeat(1_000_000))),
        ("p.yaml", format!("allowed_tools: {}", "[".repeat(1_000_000))),
        ("p.yaml", format!("allowed_tools: {}", "{a: ".repeat(100_000))),
        ("p.yaml", format!("allowed_tools: [{}]", "9".repeat(1_000_000))),
        ("p.yaml", "? ".repeat(100_000)),
        ("p.yaml", "&a ".repeat(100_000)),
        ("p.toml", format!("tools = {}", "[".repeat(1_000_000))),
        ("p.toml", format!("{}x = 1", "a.".repeat(100_000))),
    ] {
        assert!(load(name, text.as_bytes()).is_err(), "{name}");
    }
}

fn samples() -> [(&'static str, &'static str); 5] {
    [
        ("main.yaml", MAIN),
        ("p.yaml", YAML),
        ("p.json", JSON),
        ("p.toml", TOML),
        ("gate.yaml", PLUGIN),
    ]
}
