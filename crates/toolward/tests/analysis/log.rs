//! An audit log that a test writes, and the commands that read it.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::program::{Run, toolward};

/// A directory with a configuration, tool lists and an audit log.
pub struct Site {
    pub folder: tempfile::TempDir,
    records: Vec<String>,
    /// Minutes since the first record.
    minutes: u32,
}

impl Site {
    pub fn new(config: &str) -> Site {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("toolward.yaml"), config).unwrap();
        std::fs::create_dir(folder.path().join("tools")).unwrap();
        Site { folder, records: Vec::new(), minutes: 0 }
    }

    pub fn file(&self, name: &str, content: &str) {
        std::fs::write(self.folder.path().join(name), content).unwrap();
    }

    /// The saved tool list of a server, from names and annotations.
    pub fn tools(&self, server: &str, tools: &[(&str, Value)]) {
        let tool = |(name, annotations): &(&str, Value)| json!({"name": name, "inputSchema": {"type": "object"}, "annotations": annotations});
        let list = json!({"server": server, "tools": tools.iter().map(tool).collect::<Vec<_>>()});
        self.file(&format!("tools/{server}.json"), &list.to_string());
    }

    /// Adds a record, a minute after the previous one.
    pub fn record(&mut self, kind: &str, members: Value) -> &mut Site {
        let minutes = self.minutes;
        self.minutes += 1;
        let (day, hour, minute) = (10 + minutes / 1440, minutes / 60 % 24, minutes % 60);
        let time = format!("2026-11-{day}T{hour:02}:{minute:02}:00.000000Z");
        let mut record = Map::new();
        record.insert("id".into(), json!(format!("66000000{minutes:05x}-test-{minutes:x}")));
        record.insert("time".into(), json!(time));
        record.insert("kind".into(), json!(kind));
        record.extend(members.as_object().unwrap().clone());
        record.insert("prev".into(), json!("0".repeat(64)));
        self.records.push(Value::Object(record).to_string());
        self
    }

    /// A call that was forwarded, with arguments that were only hashed.
    pub fn called(&mut self, agent: &str, server: &str, tool: &str) -> &mut Site {
        self.called_with(agent, server, tool, json!("hmac-sha256:k:00"))
    }

    pub fn called_with(
        &mut self,
        agent: &str,
        server: &str,
        tool: &str,
        arguments: Value,
    ) -> &mut Site {
        let action = arguments["action"].as_str().map(String::from);
        self.record("intent", json!({
            "agent": agent, "server": server, "tool": tool, "action": action, "verdict": "allow",
            "step": "4-wildcard-allow", "arguments": arguments,
        }))
    }

    pub fn refused(&mut self, agent: &str, server: &str, tool: &str, step: &str) -> &mut Site {
        self.record(
            "refusal",
            json!({
                "agent": agent, "server": server, "tool": tool, "action": null, "verdict": "deny",
                "step": step, "arguments": "hmac-sha256:k:00",
            }),
        )
    }

    /// A line as it is, complete or not.
    pub fn raw(&mut self, line: &str) -> &mut Site {
        self.records.push(line.into());
        self
    }

    /// Writes the log. `torn`: the last line has no end.
    pub fn write(&self, torn: &str) {
        let audit = self.folder.path().join("audit");
        std::fs::create_dir_all(&audit).unwrap();
        let lines: String = self.records.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(audit.join("audit.jsonl"), format!("{lines}{torn}")).unwrap();
    }

    /// Runs a command with this configuration and log. Words that end in `.yaml` are files of the directory.
    pub fn run(&self, line: &[&str]) -> Run {
        let path = |name: &str| self.folder.path().join(name).to_str().unwrap().to_string();
        let mut words: Vec<String> = line
            .iter()
            .map(|word| if word.ends_with(".yaml") { path(word) } else { (*word).into() })
            .collect();
        let reads_log = ["plan", "learn"].contains(&line[0]);
        words.extend(["-c".into(), path("toolward.yaml")].into_iter().filter(|_| reads_log));
        if reads_log {
            words.extend(["--since", "2026-11-01", "--utc", "--tools"].map(String::from));
            words.push(path("tools"));
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        toolward(&words, "")
    }

    pub fn json(&self, line: &[&str]) -> (i32, Value) {
        let words: Vec<&str> = line.iter().copied().chain(["--json"]).collect();
        let run = self.run(&words);
        let value = serde_json::from_str(&run.stdout);
        (run.code, value.unwrap_or_else(|error| panic!("{error}: {} {}", run.stdout, run.stderr)))
    }

    /// The policy that `learn` proposes, which must load and pass its tests.
    pub fn learned(&self, line: &[&str]) -> String {
        let words: Vec<&str> = ["learn"].into_iter().chain(line.iter().copied()).collect();
        let run = self.run(&words);
        assert_eq!(run.code, 0, "{}", run.stderr);
        self.file("learned.yaml", &run.stdout);
        let (policy, lists) = (self.path("learned.yaml"), self.path("tools"));
        for command in ["check", "test"] {
            let run_of = toolward(&[command, "--policy", &policy, "--tools", &lists], "");
            assert_eq!(run_of.code, 0, "{}{}\n{}", run_of.stdout, run_of.stderr, run.stdout);
        }
        run.stdout
    }

    pub fn path(&self, name: &str) -> String {
        Path::join(self.folder.path(), name).to_str().unwrap().into()
    }

    /// Whether the learned policy allows a call.
    pub fn may(&self, agent: &str, tool: &str, arguments: &str) -> bool {
        let (policy, lists) = (self.path("learned.yaml"), self.path("tools"));
        let words =
            ["can-i", "--as", agent, tool, arguments, "--policy", &policy, "--tools", &lists];
        let run = toolward(&words, "");
        assert!(run.code < 2, "{}{}", run.stdout, run.stderr);
        run.code == 0
    }
}
