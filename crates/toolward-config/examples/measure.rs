//! How long a large policy takes to load, and how much memory.
//!
//! `cargo run --release -p toolward-config --example measure [RULES]`

#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;

use toolward_config::{Loader, Options, PolicyFile, PolicyFlag};

fn main() {
    let rules: usize =
        std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(100_000);
    for (name, text) in [("rules.yaml", yaml(rules)), ("rules.json", json(rules))] {
        let size = text.len();
        let path = PathBuf::from(name);
        let files = HashMap::from([(path.clone(), text)]);
        let loader = Loader { files, env: HashMap::<String, String>::new() };
        let file = PolicyFile { path, flag: PolicyFlag::Policy, format: None };
        let options = Options { policies: vec![file], ..Options::default() };
        let start = Instant::now();
        let loaded = loader.load(&options);
        let took = start.elapsed();
        let layers = loaded.map_or(0, |loaded| loaded.source.layers.len());
        println!("{name}: {rules} rules, {size} bytes, {layers} layers, {took:?}, {}", peak());
    }
}

fn yaml(rules: usize) -> String {
    let mut text = String::from("agents:\n");
    for agent in 0..rules.div_ceil(100) {
        let _ = writeln!(
            text,
            "  agent-{agent}:\n    allow:\n      servers: [\"*\"]\n      tools:\n        \"server-*\":"
        );
        for rule in 0..100 {
            let _ = writeln!(text, "          - \"tool_{agent}_{rule}_*\"");
        }
    }
    text
}

/// The same on one line, which makes counting columns expensive.
fn json(rules: usize) -> String {
    let mut text = String::from("{\"agents\": {");
    for agent in 0..rules.div_ceil(100) {
        let comma = if agent == 0 { "" } else { ", " };
        let _ = write!(
            text,
            "{comma}\"agént-{agent}\": {{\"allow\": {{\"servers\": [\"*\"], \"tools\": {{\"server-*\": [\"x\""
        );
        for rule in 0..99 {
            let _ = write!(text, ", \"tool_{agent}_{rule}_*\"");
        }
        text.push_str("]}}}");
    }
    text.push_str("}}");
    text
}

/// The most memory so far, where the system tells.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.map_or_else(|| "peak unknown".to_owned(), |peak| format!("peak {}", peak.trim()))
}
