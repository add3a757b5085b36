//! Files in forms that naive editors damage: comments in odd places, texts that look like entries, quoted names.

use super::fixtures::{Fixture, fixture};
use super::{Home, problems, text};
use crate::clients::table::Platform::Linux;

const CODEX: &str = r##"# [mcp_servers.comment]
instructions = """
[mcp_servers.fake]
command = "not an entry"
"""

[mcp_servers."with space"] # quoted
command = 'C:\tools\srv.exe'
args = []
tool_timeout_sec = 60 # seconds
tools.search.approval_mode = "approve"

    [mcp_servers.indented]
    command = "uvx"
    args = ["mcp-indented"] # last

[mcp_servers.indented.env] # below
"A B" = "1"
# the end of the entry

[[profiles]]
name = "x"
"##;

const CODEX_INLINE: &str = "[mcp_servers]\na = { command = \"x\", args = [\"1\", ], env = { K = \"v\" } } # one line\n\"b.c\" = { url = \"https://b.example/mcp\", http_headers = { \"X-Key\" = \"k-0123456789\" } }\n";

const GOOSE: &str = r#"---
# goose
extensions:
  "quoted name": {type: stdio, cmd: npx, args: [-y, "a b"], enabled: true, name: quoted}   # flow
  'single':
    type: stdio   # kind
    cmd: >-
      uvx
    args:
      # first
      - mcp-a

      - "two words"
    envs:
      KEY: |
        many
        lines
    enabled: yes
  last:
    cmd: node
    args: [server.js]
    type: stdio
GOOSE_MODEL: "x"
...
"#;

const CONTINUE: &str = "mcpServers:\n- name: a\n  command: npx\n  args: [-y, a]\n# between\n- command: uvx\n  name: \"b\"\n  args:\n  - b\n- { name: c, command: node, args: [c.js] }\nrules: []";

const ZED: &str = r#"{
  "context_servers": /* here */ { // and here
    /* "fake": { "command": "no" }, */
    "a\u002fb": { "command" : "npx" , /* c */ "args" : [ "-y" , "x" , ] , } , // end
    "text": {
      "command": "uvx", "args": ["mcp", "}, \"fake\": {"]
      // no comma above
    }
  },
}"#;

const CLAUDE_CODE: &str = r#"{
	"projects": {
		"/srv/a": { "mcpServers": { "same": { "command": "npx", "args": ["a"] } } },
		"C:\\Users\\me\\b": { "mcpServers": { "same": { "command": "npx", "args": ["b"] } }, "mcpContextUris": [] },
		"/srv/none": { "mcpServers": {} }
	},
	"mcpServers": { "same": { "type": "stdio", "command": "npx", "args": ["c"], "env": {} } },
	"oauthAccount": { "emailAddress": "me@example.com" }
}
"#;

const DESKTOP: &str = "{\"mcpServers\":{\"leer\u{301}zeichen \u{1f600}\":{\"command\":\"npx\",\"args\":[]}},\"a\":1.0e5,\"b\":12345678901234567890}";

const FIXTURES: &[Fixture] = &[
    fixture("codex", Linux, ".codex/config.toml", CODEX, 2),
    fixture("codex", Linux, ".codex/config.toml", CODEX_INLINE, 2),
    fixture("goose", Linux, ".config/goose/config.yaml", GOOSE, 3),
    fixture("continue", Linux, ".continue/config.yaml", CONTINUE, 3),
    fixture("zed", Linux, ".config/zed/settings.json", ZED, 2),
    fixture("claude-code", Linux, ".claude.json", CLAUDE_CODE, 3),
    fixture("claude-desktop", Linux, ".config/Claude/claude_desktop_config.json", DESKTOP, 1),
];

#[test]
fn files_in_odd_forms_are_restored_byte_for_byte() {
    for fixture in FIXTURES {
        let (home, file) = Home::of(fixture);
        let plan = home.init();
        assert_eq!(problems(&plan), [""; 0], "{}", fixture.content);
        assert_eq!(plan.changes(), fixture.wrapped, "{}: {:#?}", fixture.content, plan.files);
        let first = text(&file);
        assert_eq!(home.init().changes(), 0, "{first}");
        assert_eq!(text(&file), first);
        home.uninit();
        assert_eq!(text(&file), fixture.content);
    }
}

/// A text that looks like an entry is not one, and stays.
#[test]
fn texts_and_comments_that_look_like_entries_stay() {
    for (at, words) in [
        (0, "[mcp_servers.fake]\ncommand = \"not an entry\""),
        (0, "# [mcp_servers.comment]\n"),
        (4, "/* \"fake\": { \"command\": \"no\" }, */"),
    ] {
        let (home, file) = Home::of(&FIXTURES[at]);
        home.init();
        let now = text(&file);
        assert!(now.contains(words) && now.contains("/opt/bin/toolward"), "{now}");
    }
}
