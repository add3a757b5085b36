//! The operator's log: formats, levels, rejected credentials and diagnostics.

use serde_json::{Value, json};

use crate::harness::*;

const TARGETS: [&str; 10] = [
    "admin",
    "audit",
    "authn",
    "config",
    "downstream",
    "guard",
    "policy",
    "reload",
    "serve",
    "upstream",
];

/// A program that writes to standard error like a gateway, with terminal escape codes, and is not a
/// server.
fn noisy(setup: Setup) -> Setup {
    let script = "printf '\\033[31m2026-01-01T00:00:00.000Z INFO policy: forged\\r\\n' >&2; exit 1";
    setup.server("noisy", json!({"command": "sh", "args": ["-c", script]}))
}

fn gate(telemetry: Value) -> Gate {
    noisy(setup().agents(everyone())).set("telemetry", telemetry).start()
}

fn replace_with_invalid(gate: &Gate) {
    let file = gate.setup.file();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"agents\"", "\"agent\"")).unwrap();
}

fn logged(gate: &Gate, words: &str) {
    eventually(words, || gate.said.lock().unwrap().contains(words).then_some(()));
}

/// Makes the gateway log a server's standard error, a rejected reload and a rejected credential.
fn exercise(gate: &Gate) {
    gate.agent("a").list();
    logged(gate, "forged");
    let mut wrong = gate.agent("a");
    wrong.token = Some("wrong-and-secret".into());
    for _ in 0..5 {
        assert_eq!(wrong.modern_reply(json!(1), "tools/list", json!({})).status, 401);
    }
    logged(gate, "credential rejected: the token is not known");
    replace_with_invalid(gate);
    logged(gate, "did you mean `agents`?");
}

#[test]
fn lines_of_text_have_a_timestamp_a_level_and_a_target() {
    let gate = gate(json!({}));
    exercise(&gate);
    let said = gate.said.lock().unwrap().clone();
    let mut levels = Vec::new();
    for line in said.lines() {
        // The lines of a diagnostic.
        if line.starts_with("    ") {
            continue;
        }
        let mut words = line.splitn(4, ' ');
        let (time, level, target) =
            (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let shape: String =
            time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000Z", "{line}");
        assert!(["ERROR", "WARN", "INFO"].contains(&level), "{line}");
        let target = target.strip_suffix(':').unwrap();
        assert!(target == "stderr" || TARGETS.contains(&target), "{line}");
        levels.push((level.to_string(), target.to_string()));
    }
    for (level, target) in [("INFO", "serve"), ("WARN", "upstream"), ("ERROR", "reload")] {
        assert!(levels.contains(&(level.into(), target.into())), "{level} {target}: {said}");
    }
    // A server cannot forge an entry of the gateway, nor reach the terminal.
    let forged = said.lines().find(|line| line.contains("forged")).unwrap();
    assert!(forged.contains(" INFO stderr: noisy: ␛[31m2026-01-01"), "{forged}");
    assert!(!said.contains('\u{1b}'), "{said}");
    // A diagnostic keeps its line breaks.
    let (_, diagnostic) = said.split_once("the configuration was not reloaded").unwrap();
    assert!(diagnostic.lines().nth(1).unwrap().starts_with("    error: "), "{diagnostic}");
    assert!(diagnostic.lines().any(|line| line.contains("= help: did you mean")), "{diagnostic}");
    // Five requests, one line, without the credential.
    assert_eq!(said.matches("credential rejected").count(), 1, "{said}");
    assert!(
        said.contains(
            " WARN authn: credential rejected: the token is not known source=127.0.0.1\n"
        )
    );
    assert!(!said.contains("wrong-and-secret"), "{said}");
}

#[test]
fn with_json_every_line_is_an_object() {
    let gate = gate(json!({"log_format": "json"}));
    exercise(&gate);
    let said = gate.said.lock().unwrap().clone();
    let entries: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect();
    for entry in &entries {
        for key in ["timestamp", "level", "target", "message"] {
            assert!(entry[key].is_string(), "{entry}");
        }
    }
    let with = |key: &str, words: &str| {
        let of = |entry: &&Value| entry[key].as_str().is_some_and(|text| text.contains(words));
        entries.iter().find(of).unwrap_or_else(|| panic!("{words}: {said}"))
    };
    assert_eq!(with("message", "forged")["server"], "noisy");
    assert_eq!(with("message", "forged")["target"], "stderr");
    let rejected = with("message", "credential rejected");
    assert_eq!((&rejected["level"], &rejected["source"]), (&json!("WARN"), &json!("127.0.0.1")));
    let reload = with("diagnostic", "did you mean `agents`?");
    assert_eq!((&reload["level"], &reload["target"]), (&json!("ERROR"), &json!("reload")));
    assert!(reload["diagnostic"].as_str().unwrap().lines().count() > 2, "{reload}");
}

#[test]
fn with_json_the_reason_for_not_starting_is_an_object_too() {
    let telemetry = json!({"log_format": "json"});
    let (code, said) = setup()
        .agents(everyone())
        .server("s", json!({"command": "true"}))
        .set("telemetry", telemetry)
        .set("tls", json!({"cert": "missing.pem", "key": "missing.pem"}))
        .fails();
    assert_eq!(code, 3, "{said}");
    let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((&last["level"], &last["target"]), (&json!("ERROR"), &json!("toolward")), "{said}");
    assert!(last["diagnostic"].as_str().unwrap().contains("missing.pem"), "{said}");
}

#[test]
fn entries_below_the_level_are_not_written() {
    // The port is logged at level `info`, so the harness cannot wait for this gateway by its log.
    let setup = noisy(setup().agents(everyone())).set("telemetry", json!({"log_level": "error"}));
    let mut lines = setup.standard(&["--agent", "a"]).ready();
    lines.ask(&request(json!(2), "tools/list", json!({})));
    let (_, said) = lines.close();
    assert!(!said.contains(" INFO ") && !said.contains(" WARN "), "{said}");
    assert!(!said.contains("forged"), "{said}");
}
