//! No finding repeats a secret: neither in its message nor in the source lines that it shows.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;
use std::path::PathBuf;

use toolward_config::{Diagnostic, Loader, Options};

/// The findings about an invalid file.
fn findings(name: &str, content: &[u8]) -> Vec<Diagnostic> {
    struct One<'a>(&'a [u8]);
    impl toolward_config::Files for One<'_> {
        fn read(&self, _: &std::path::Path) -> std::io::Result<Vec<u8>> {
            Ok(self.0.to_vec())
        }
    }
    let env: HashMap<String, String> = HashMap::new();
    let options = Options { main: Some(PathBuf::from(name)), ..Options::default() };
    match (Loader { files: &One(content), env: &env }).load(&options) {
        Ok(loaded) => loaded.warnings,
        Err(failed) => failed.diagnostics,
    }
}

fn assert_discreet(name: &str, content: &[u8]) {
    let found = findings(name, content);
    let written = String::from_utf8_lossy(content);
    assert!(!found.is_empty(), "nothing is wrong with {written}");
    for finding in found {
        for said in [finding.render(false), finding.to_line(), finding.to_json().to_string()] {
            assert!(!said.contains("hunter2"), "{written}\n{said}");
        }
    }
}

const SERVER: &str = "servers:\n  a:\n    ";

#[test]
fn secrets_of_the_wrong_kind_are_not_repeated() {
    for agent in [
        "tokens: hunter2",
        "tokens: {hunter2: x}",
        "tokens: {x: hunter2}",
        "tokens: [[hunter2]]",
        "tokens: [hunter2]",
        "tokens: [\"${hunter2:-x}\"]",
        "tokens: [\"${X:-hunter2}\"]",
        "tokens: [\"${hunter2\"]",
        "token: hunter2",
        "tokns: [hunter2]",
        "{tokens: [hunter2], bogus: 1}",
        "{tokens: [\"${X}\"], password: hunter2, bogus: 1}",
        "hunter2",
    ] {
        assert_discreet("c.yaml", format!("agents:\n  r: \n    {agent}\n").as_bytes());
    }
    for server in [
        "url: \"ht!tp://hunter2 /p?key=hunter2\"",
        "url: \"https://h/hunter2 x\"",
        "url: \"https://u:hunter2@h/\"",
        "url: hunter2",
        "url: [hunter2]",
        "url: {hunter2: hunter2}",
        "{url: \"https://h/?key=hunter2\", bogus: 1}",
        "{command: x, env: {A: hunter2}, bogus: 1}",
        "{command: x, env: [A=hunter2]}",
        "{command: x, env: A=hunter2}",
        "{command: x, env: {A: {hunter2: hunter2}}}",
        "{command: x, environment: {A_TOKEN: hunter2}}",
        "{url: \"https://h\", headers: {A: {Bearer: hunter2}}}",
        "{url: \"https://h\", headers: Bearer hunter2}",
        "{url: \"https://h\", headers: [\"Authorization: hunter2\"]}",
        "{url: \"https://h\", hedaers: {X: hunter2}}",
        "{url: \"https://h\", headers_for: {r: hunter2}}",
        "{url: \"https://h\", headers_for: {r: {X: [hunter2]}}}",
        "{url: \"https://h\", oauth: hunter2}",
        "{url: \"https://h\", oauth: {client_secret: [hunter2], client_id: hunter2}}",
        "{url: \"https://h\", oauth: {secret: hunter2, token_url: hunter2}}",
        "hunter2",
    ] {
        assert_discreet("c.yaml", format!("{SERVER}{server}\n").as_bytes());
    }
    for other in [
        "limits: {store: \"redis://:hunter2@h\", bogus: 1}",
        "limits: {store: [hunter2]}",
        "limits: {store: hunter2}",
        "audit: {sinks: [\"postgre://u:hunter2@h/d\"]}",
        "audit: {sinks: hunter2}",
        "telemetry: {otlp: \"grpc://hunter2\"}",
        "hooks: [{name: a, http: \"hunter2 x\", bogus: 1}]",
        "hooks: [{name: a, exec: [x], env: [hunter2]}]",
        "identity: {jwt: {issuer: \"hunter2\", jwks: [hunter2]}}",
    ] {
        assert_discreet("c.yaml", format!("{other}\n").as_bytes());
    }
    assert_discreet("c.yaml", b"agents:\n  r:\n    tokens: 0xhunter2\n");
}

#[test]
fn a_text_that_cannot_be_read_shows_no_secret() {
    for text in [
        // A duplicate key, on one line or on several.
        format!("{SERVER}command: x\n    env: {{A: hunter2, A: hunter2}}\n"),
        format!("{SERVER}command: x\n    env:\n      A: hunter2\n      A: hunter2\n"),
        format!("{SERVER}url: https://h\n    headers: {{X: a, X: Bearer hunter2}}\n"),
        "agents:\n  r: {tokens: [hunter2], tokens: [hunter2]}\n".into(),
        "agents:\n  r:\n    tokens:\n    - hunter2\n    tokens:\n    - hunter2\n".into(),
        // Values that YAML parses as another type.
        format!("{SERVER}url: https://h\n    headers:\n      Authorization: Bearer: hunter2\n"),
        format!("{SERVER}url: https://h\n    headers:\n      A: Bearer: hunter2: x\n"),
        format!("{SERVER}command: x\n    env:\n      A: *hunter2\n"),
        format!("{SERVER}command: x\n    env:\n      A: !hunter2\n"),
        format!("{SERVER}command: x\n    env:\n      A: @hunter2\n"),
        format!("{SERVER}command: x\n    env: {{A: \"hunter2}}\n"),
        format!("{SERVER}command: x\n    env: {{[hunter2]: 1}}\n"),
        format!("{SERVER}command: x\n    env:\n      A: \"x\" hunter2\n"),
        format!("{SERVER}url: https://h/hunter2: x\n"),
        format!("{SERVER}url: https://h\n   hunter2\n"),
        "agents:\n  r: {tokens: [hunter2}\n".into(),
        "agents:\n  r:\n    tokens: [hunter2\nlisten: x\n".into(),
        "agents:\n  r:\n\ttokens: [hunter2]\n".into(),
        "limits: {store: redis://:hunter2@h]\n".into(),
    ] {
        assert_discreet("c.yaml", text.as_bytes());
    }
    for text in [
        r#"{"agents": {"r": {"tokens": ["hunter2"] "x": 1}}}"#,
        r#"{"agents": {"r": {"tokens": [hunter2]}}}"#,
        r#"{"agents": {"r": {"tokens": ["hunter2"], "tokens": ["hunter2"]}}}"#,
        "{\"servers\": {\"a\": {\"env\": {\n\"A\": \"hunter2\",\n\"A\": \"hunter2\"\n}}}}",
        "{\"servers\": {\"a\": {\"env\": {\n\"A\": hunter2\n}}}}",
        "{\"servers\": {\"a\": {\"url\": \"https://hunter2\n\"}}}",
    ] {
        assert_discreet("c.json", text.as_bytes());
    }
    assert_discreet("c.yaml", b"agents:\n  r:\n    tokens: [hunter2, \"\xff\"]\n");
}

#[test]
fn values_that_are_not_secrets_are_still_shown() {
    let text = "servers:\n  a: {url: \"https://host.example/mcp\", bogus: 1}\n\
                agents:\n  r: {tokens: [\"${NAME}\"], bogus: 2}\n";
    let found = findings("c.yaml", text.as_bytes());
    let said: Vec<String> = found.iter().map(|finding| finding.render(false)).collect();
    let said = said.join("\n");
    assert!(said.contains("https://host.example/mcp\", bogus: 1"), "{said}");
    assert!(said.contains("tokens: [\"${NAME}\"], bogus: 2"), "{said}");
}
