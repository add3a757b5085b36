use std::collections::HashMap;
use std::path::PathBuf;

use super::*;
use crate::resolve::load::{Loader, Options};

fn shown(files: &[(&str, &str)]) -> Vec<String> {
    files
        .iter()
        .map(|(name, content)| {
            let text = Text::new(*name, *content);
            let syntax = Syntax::of_file(name.as_ref(), content);
            lines(&text, syntax).unwrap().join("\n")
        })
        .collect()
}

/// A file with one secret, containing `planted`, in every position that can have one.
const MAIN: &str = r#"# old key: planted-a1
listen: 127.0.0.1:7410   # for the team on floor 2
public_url: https://user:planted-b1@gate.example/x?key=planted-b2
state: /tmp/state
servers:
  # headers: {Authorization: "Bearer planted-c1"}
  one:
    command: npx  # see https://user:planted-c2@docs.example/x?k=planted-c9
    args: ["-y", "--token=planted-c3", planted-c4]
    env: {PLAIN: planted-c5, MIXED: "planted-c6 ${FROM_ENV}", "WITH # HASH": 'planted-c7 # x'}
    description: what it is for
    expose:
      - read   # only this
      # - write, once it is safe
  two:
    url: "https://planted-d1:planted-d2@two.example:8443/s/planted-d3/mcp?k=planted-d4#planted-d5"
    headers:
      Authorization: Bearer planted-d6
      X-Key: |
        planted-d7
        planted-d8
        # planted-d9
      X-Folded: >-
        planted-e1
          planted-e2
    headers_for:
      dev: {X-Key: "planted-e3"}
    oauth:
      token_url: https://auth.example/planted-e4/token
      client_id: planted-e5
      client_secret: "planted-e6"
      scope: read
  three: {url: "${THREE_URL}", headers: {A: "${file:secret.txt}", B: "a\
    planted-e7"}}
identity:
  jwt: {issuer: "https://issuer.example/planted-f1", jwks: "https://planted-f2@issuer.example/keys"}
limits:
  store: redis://:planted-f3@redis.example/0
  calls: 100/min
hooks:
  - name: opa
    http: https://opa.example/planted-f4
    env: {K: planted-f5}
  - {name: check, exec: [./check, --key, planted-f6], timeout: 1s}
audit:
  dir: /tmp/audit
agents:
  # tokens: ["planted-g1"]
  dev:
    tokens: ["${DEV_TOKEN}", "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]
    # planted-g2
    claims: {sub: someone}
    allow:
      servers: ["*"]   # all of them
      tools:
        # reading is fine
        one: ["hint:read-only", read]
    # no one drops tables; ask Kim (ghp_plantedplanted1234567890)
    deny:
      tools: {"*": [{tool: drop, when: 'args.x == "a # b"'}]}
tests:
  - as: dev
    # never say Bearer planted-d6 here
    hidden: [one/write]
# servers:
#   four:
#     env:
#       PLAIN: planted-h1
#       - planted-h2
#       # planted-h3
#     description: nothing secret
# MY_VALUE=planted-h4
# Authorization: Bearer planted-h5
"#;

#[test]
fn nothing_that_could_be_a_secret_is_shown() {
    let shown = shown(&[("toolward.yaml", MAIN)]).remove(0);
    let planted: Vec<&str> = shown.lines().filter(|line| line.contains("planted-")).collect();
    assert_eq!(planted, [""; 0], "{shown}");
    assert!(!shown.contains("e3b0c442"), "{shown}");
    assert_eq!(shown.lines().count(), MAIN.lines().count(), "places stay what they are: {shown}");
}

#[test]
fn values_that_are_not_secrets_are_shown_in_place() {
    let shown = shown(&[("toolward.yaml", MAIN)]).remove(0);
    let lines: Vec<&str> = shown.lines().collect();
    for (line, said) in [
        (1, "# old key: •••"),
        (2, "listen: 127.0.0.1:7410   # for the team on floor 2"),
        (3, "public_url: https://•••@gate.example/x?•••"),
        (8, "    command: npx  # see https://•••@docs.example/x?•••"),
        (9, "    args: [\"•••\", \"•••\", •••]"),
        (10, "    env: {PLAIN: •••, MIXED: \"•••${FROM_ENV}\", \"WITH # HASH\": '•••'}"),
        (11, "    description: what it is for"),
        (13, "      - read   # only this"),
        (16, "    url: \"https://•••@two.example:8443/•••?•••\""),
        (18, "      Authorization: •••"),
    ] {
        assert_eq!(lines[line - 1], said);
    }
    for said in [
        "\n    headers_for:\n",
        "three: {url: \"${THREE_URL}\", headers: {A: \"${file:secret.txt}\", B: \"•••\"",
        "store: redis://•••@redis.example/",
        "exec: [./check, •••, •••], timeout: 1s",
        "http: https://opa.example/•••",
        "tokens: [\"${DEV_TOKEN}\", \"•••\"]",
        "claims: {sub: someone}",
        "servers: [\"*\"]   # all of them",
        "# reading is fine",
        "      # - write, once it is safe\n",
        "  # headers: •••\n",
        "    # no one drops tables; ask Kim (•••)\n",
        "    # never say ••• here\n",
        "#     env:\n#       PLAIN: •••\n#       - •••\n# •••\n#     description: nothing secret\n",
        "# MY_VALUE= •••\n# Authorization: •••",
        "one: [\"hint:read-only\", read]",
        "{tool: drop, when: 'args.x == \"a # b\"'}",
        "hidden: [one/write]",
    ] {
        assert!(shown.contains(said), "{said}\n{shown}");
    }
}

#[test]
fn layers_of_every_format_are_shown() {
    let all = shown(&[
        ("toolward.json", r#"{"servers": {"a": {"command": "x", "env": {"K": "planted-1"}}}}"#),
        ("layer.yaml", "# who may\nallowed_tools:\n  - read_*   # reads\n"),
        (
            "chat.toml",
            "# for the chat\n# key = planted-2\nkey = \"planted-3\"\n[chat]\ntools = [\"a\", 'b']\n",
        ),
        (
            "plugin.yaml",
            "proxy: {secret: planted-4}\n# planted-5\nplugins:\n  middleware:\n    a:\n      \
             - handler: tool_manager\n        config: {tools: [{tool: read}]}\n      \
             - {handler: other, config: {key: planted-6}}\n",
        ),
    ]);
    assert!(!all.concat().contains("planted"), "{all:#?}");
    assert_eq!(all[0], r#"{"servers": {"a": {"command": "x", "env": {"K": "•••"}}}}"#);
    assert_eq!(all[1], "# who may\nallowed_tools:\n  - read_*   # reads");
    assert!(all[2].starts_with("# for the chat\n# key = •••\n"), "{}", all[2]);
    assert!(all[2].contains("tools = [\"a\", 'b']"), "{}", all[2]);
}

fn on_disk(text: &str) -> HashMap<PathBuf, String> {
    HashMap::from([(PathBuf::from("a.yaml"), text.to_string())])
}

fn none() -> HashMap<String, String> {
    HashMap::new()
}

#[test]
fn a_changed_file_is_distinguished_from_an_unchanged_one() {
    let loader = Loader { files: on_disk("allowed_tools: [x]\n"), env: none() };
    let options = Options { main: Some("a.yaml".into()), ..Options::default() };
    let files = loader.load(&options).unwrap().shown();
    assert!(!files[0].differs(&on_disk("allowed_tools: [x]\n")));
    assert!(!files[0].differs(&on_disk("\u{feff}allowed_tools: [x]\n")));
    assert!(files[0].differs(&on_disk("allowed_tools: [y]\n")));
    assert!(files[0].differs(&HashMap::<PathBuf, String>::new()));
}

#[test]
fn prose_in_comments_is_shown_word_for_word() {
    let text = "\
# The demo's gateway: its listener and its agents.
# Save either file: it is applied a moment later, or rejected as a whole.
listen: 127.0.0.1:7410          # MCP: /mcp for all servers, /mcp/tracker and /mcp/files for one
servers:
  tracker:
    command: toolward           # a server of your own: its command, or `url: https://…`
    args: [demo-server, tracker]
    share: true                 # one process for each version of MCP
agents:                         # who calls, by the hash of a token; the tokens are in tokens.txt
  reader: { tokens: [\"${READER}\"] }
policies: [policy.yaml]         # issue 14, see docs/policy.md (since 0.3)
";
    let shown = shown(&[("toolward.yaml", text)]).remove(0);
    let comments = |text: &str| -> Vec<String> {
        let comment = |line: &str| line.split_once('#').map(|(_, comment)| comment.to_string());
        text.lines().filter_map(comment).collect()
    };
    assert_eq!(comments(&shown), comments(text), "{shown}");
}
