//! A scenario: a script for the browser, and its input.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::kit::Site;
use crate::peers::{Peers, peers};
use crate::running::Demo;

const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser");
/// Screenshots, for people to look at.
const SHOTS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/../admin-screenshots");

/// The browser and its driver, if `./test` has installed them.
pub fn browser() -> Option<Browser> {
    peers().map(Browser)
}

pub struct Browser(Peers);

impl Browser {
    /// Runs a scenario, which must succeed.
    pub fn run(&self, scenario: &str, facts: Facts) {
        std::fs::create_dir_all(SHOTS).unwrap();
        let facts = facts.with("scenario", scenario.into()).with("shots", SHOTS.into());
        let output = Command::new(self.0.file("node"))
            .arg(Path::new(SCENARIOS).join(format!("{scenario}.mjs")))
            .arg(facts.0.to_string())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        print!("{said}");
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{scenario}: {said}{why}");
    }
}

/// The input of a scenario.
pub struct Facts(Value);

impl Facts {
    pub fn with(mut self, key: &str, value: Value) -> Facts {
        self.0[key] = value;
        self
    }

    pub fn of_demo(demo: &Demo) -> Facts {
        let told: Value = serde_json::from_str(&demo.printed).unwrap();
        let agents = told["agents"].as_array().unwrap().iter();
        let tokens: serde_json::Map<String, Value> = agents
            .map(|one| (one["name"].as_str().unwrap().into(), one["token"].clone()))
            .collect();
        Facts(json!({
            "page": told["page"],
            "mcp": told["mcp"],
            "config": told["config"],
            "policy": told["policy"],
            "audit": Path::new(told["folder"].as_str().unwrap()).join("audit"),
            "tokens": tokens,
            "program": crate::running::PROGRAM,
            "pid": demo.child.id(),
            "env": {},
        }))
    }

    pub fn of_site(site: &Site) -> Facts {
        let file = |name: &str| site.gate.file(name);
        let environment = &site.gate.setup.environment;
        let env: serde_json::Map<String, Value> =
            environment.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let tokens: serde_json::Map<String, Value> = env
            .iter()
            .filter_map(|(name, token)| {
                Some((name.strip_prefix("TOKEN_OF_")?.into(), token.clone()))
            })
            .collect();
        Facts(json!({
            "page": format!("{}/?token={}", site.origin(), site.token),
            "mcp": format!("http://127.0.0.1:{}/mcp", site.gate.port),
            "config": file("toolward.yaml"),
            "audit": file("audit"),
            "tokens": tokens,
            "program": crate::running::PROGRAM,
            "pid": site.gate.child.as_ref().unwrap().id(),
            "env": env,
        }))
    }
}
