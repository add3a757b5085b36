//! A policy that is learned from a week of calls changes nothing that was used in it.

use serde_json::{Value, json};

use super::log::Site;
use super::real_lists::real_lists;

/// Pseudo-random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn own_list() -> Value {
    let tool = |name: &str, read_only: bool| {
        let action = json!({"type": "string", "enum": ["add", "clear"]});
        let schema = json!({"type": "object", "properties": {"action": action}});
        json!({"name": name, "inputSchema": schema, "annotations": {"readOnlyHint": read_only}})
    };
    let tools =
        [tool("get_a", true), tool("get_b", true), tool("set_c", false), tool("drop.d", false)];
    json!({"server": "own", "tools": tools})
}

#[test]
fn learning_from_a_week_keeps_everything_that_was_used() {
    let mut lists: Vec<Value> = vec![own_list()];
    if let Some(real) = real_lists() {
        assert_eq!(real.len(), 18);
        lists.extend(real.into_iter().map(|(_, list)| list));
    }
    let servers: Vec<String> = lists
        .iter()
        .map(|list| format!("  {}: {{ command: 'false' }}\n", list["server"]))
        .collect();
    let config = format!(
        "servers:\n{}agents:\n  worker: {{ allow: {{ servers: ['*'] }}, deny: {{ tools: {{ '*': ['delete_*'] }} }} }}\n",
        servers.concat()
    );
    let mut site = Site::new(&config);
    let mut numbers = Numbers(7);
    let mut calls = 0;
    for list in &lists {
        let server = list["server"].as_str().unwrap();
        site.file(&format!("tools/{server}.json"), &list.to_string());
        for tool in list["tools"].as_array().unwrap() {
            let name = tool["name"].as_str().unwrap();
            // A third of the tools is used, and of a tool with actions some of them.
            if numbers.next(3) > 0 && server != "own" {
                continue;
            }
            if name.starts_with("delete_") {
                site.refused("worker", server, name, "2-wildcard-deny");
                continue;
            }
            let action = &tool["inputSchema"]["properties"]["action"]["enum"][0];
            let arguments = match (action.as_str(), numbers.next(2)) {
                (Some(action), _) => json!({"action": action}),
                (None, 0) => json!({"id": numbers.next(9)}),
                _ => json!("hmac-sha256:k:00"),
            };
            for _ in 0..=numbers.next(4) {
                site.called_with("worker", server, name, arguments.clone());
                calls += 1;
            }
        }
    }
    site.write("");
    for flags in [&["--as", "worker"][..], &["--as", "worker", "--generalise"]] {
        let text = site.learned(flags);
        let (_, report) = site.json(&["plan", "learned.yaml"]);
        assert_eq!(report["changes"], json!([]), "{flags:?}");
        assert_eq!(report["undecided"], json!([]), "{flags:?}");
        assert!(report["calls"]["compared"].as_u64().unwrap() >= calls, "{report}");
        assert!(text.contains("allows nothing that the current policy denies"), "{text}");
    }
    // An action that was not used stays closed.
    assert!(site.may("worker", "own/get_a", "{\"action\": \"add\"}"));
    site.learned(&["--as", "worker"]);
    assert!(!site.may("worker", "own/set_c", "{\"action\": \"clear\"}"));
}
