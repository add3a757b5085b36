//! Files in the style of real ones, for every client and platform.

use crate::clients::table::Platform::{self, Linux, MacOs, Windows};

/// A file of a client: platform, path below the home directory, content, and how many entries are wrapped.
pub(super) struct Fixture {
    pub(super) client: &'static str,
    pub(super) platform: Platform,
    pub(super) path: &'static str,
    pub(super) content: &'static str,
    pub(super) wrapped: usize,
}

pub(super) const fn fixture(
    client: &'static str,
    platform: Platform,
    path: &'static str,
    content: &'static str,
    wrapped: usize,
) -> Fixture {
    Fixture { client, platform, path, content, wrapped }
}

const DESKTOP: &str = "{\n  \"mcpServers\": {\n    \"filesystem\": {\n      \"command\": \"npx\",\n      \"args\": [\"-y\", \"@modelcontextprotocol/server-filesystem\", \"/Users/me/My Documents\"]\n    },\n    \"git hub\": { \"command\": \"docker\", \"args\": [\"run\", \"-i\", \"-e\", \"GITHUB_TOKEN\", \"ghcr.io/github/github-mcp-server\"], \"env\": { \"GITHUB_TOKEN\": \"ghp_0123456789abcdefghijABCDEFGHIJ012345\" } }\n  },\n  \"globalShortcut\": \"\"\n}\n";

pub(super) const CLAUDE_CODE: &str = "{\"numStartups\":12,\"projects\":{\"/srv/my app\":{\"allowedTools\":[],\"mcpServers\":{\"local\":{\"type\":\"stdio\",\"command\":\"./tools/server.py\",\"args\":[],\"env\":{}}},\"history\":[{\"display\":\"a \\u2028 \\\"quoted\\\" text\"}]}},\"mcpServers\":{\"sentry\":{\"type\":\"http\",\"url\":\"https://mcp.sentry.example/mcp\",\"headers\":{\"Authorization\":\"Bearer ${SENTRY_TOKEN}\"}},\"login\":{\"type\":\"http\",\"url\":\"https://mcp.linear.example/mcp\"}}}";

const CURSOR: &str = "\u{feff}{\r\n\t\"mcpServers\": {\r\n\t\t\"one-line\": {\r\n\t\t\t\"command\": \"npx -y some-server\"\r\n\t\t},\r\n\t\t\"key\": {\r\n\t\t\t\"command\": \"npx\",\r\n\t\t\t\"args\": [\"-y\", \"srv\", \"--api-key\", \"sk-live-0123456789abcdef0123\"],\r\n\t\t\t\"autoApprove\": [\"read\"]\r\n\t\t}\r\n\t}\r\n}";

const VSCODE: &str = "{\n  // servers of mine\n  \"inputs\": [\n    {\"id\": \"tok\", \"type\": \"promptString\", \"password\": true},\n  ],\n  \"servers\": {\n    \"github\": {\n      \"type\": \"http\",\n      \"url\": \"https://api.githubcopilot.example/mcp/?profile=x\",\n      \"headers\": { \"Authorization\": \"Bearer ${input:tok}\", \"X-Other\": \"1\" }, // both\n    },\n    /* a program */\n    \"files\": {\n      \"type\": \"stdio\", \"command\": \"uvx\", \"args\": [\"mcp-server-fetch\", \"${workspaceFolder}\"],\n      \"env\": {\"A\": \"${input:tok}\", },\n      \"cwd\": \"${workspaceFolder}\",\n    },\n    \"boxed\": {\"type\": \"stdio\", \"command\": \"x\", \"sandboxEnabled\": true},\n  },\n}\n";

const ZED: &str = "// Zed settings\n{\n  \"theme\": \"One Dark\", // dark\n  \"context_servers\": {\n    \"postgres\": {\n      \"source\": \"custom\",\n      \"command\": \"npx\",\n      \"args\": [\"-y\", \"pg-server\", \"postgres://me:hunter2hunter2@db.example/x\"],\n      \"env\": {},\n    },\n  },\n  \"vim_mode\": true,\n}\n";

const CLINE: &str = "{\n  \"mcpServers\": {\n    \"nested\": {\n      \"transport\": { \"type\": \"stdio\", \"command\": \"node\", \"args\": [\"/opt/s.js\"] },\n      \"autoApprove\": []\n    },\n    \"flat\": { \"disabled\": true, \"timeout\": 60, \"type\": \"sse\", \"url\": \"http://localhost:3000/sse\" }\n  }\n}\n";

const CODEX: &str = "# codex\nmodel = \"gpt\"\n\n[mcp_servers.docs] # mine\ncommand = \"npx\"\nargs = [\n  \"-y\", # yes\n  \"docs-server\",\n]\nstartup_timeout_sec = 20\n\n[mcp_servers.docs.env]\nTOKEN = \"t-0123456789\"\n\n[mcp_servers.github]\nurl = \"https://api.githubcopilot.example/mcp/\"\nbearer_token_env_var = \"GITHUB_TOKEN\"\nenabled = true\n\n[mcp_servers.figma]\nurl = \"https://mcp.figma.example/mcp\"\nhttp_headers = { \"X-Key\" = \"k-0123456789\" }\n\n[tui]\nnotifications = true\n";

const CONTINUE: &str = "name: mine\nversion: 0.0.1\nschema: v1\nmcpServers:\n  - name: SQLite tools # mine\n    command: npx\n    args:\n      - -y\n      - mcp-sqlite\n      - /path/to db.sqlite\n    env:\n      KEY: ${{ secrets.KEY }}\n  - name: remote\n    type: streamable-http\n    url: https://x.example/mcp\n    requestOptions:\n      timeout: 3\n";

const GOOSE: &str = "GOOSE_PROVIDER: anthropic\nextensions:\n  developer:\n    bundled: true\n    enabled: true\n    name: developer\n    type: builtin\n  memory-graph:\n    args:\n    - -y\n    - '@modelcontextprotocol/server-memory'\n    cmd: npx\n    enabled: true\n    env_keys: []\n    envs: {}\n    name: memory-graph\n    timeout: 300\n    type: stdio\n  web:\n    enabled: true\n    headers:\n      Authorization: Bearer abc-0123456789\n    name: web\n    type: streamable_http\n    uri: https://x.example/mcp\n";

const OPENCODE: &str = "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"mcp\": {\n    \"local\": { \"type\": \"local\", \"command\": [\"bun\", \"x\", \"my-mcp\"], \"environment\": {\"A\": \"{env:A}\"}, \"enabled\": true },\n    // remote\n    \"remote\": { \"type\": \"remote\", \"url\": \"https://x.example/mcp\", \"headers\": {\"Authorization\": \"Bearer {env:KEY}\"}, \"oauth\": false },\n  },\n}\n";

const USUAL: &str = "{ \"mcpServers\": { \"a\": { \"command\": \"uvx\", \"args\": [ \"mcp-a\" ], \"env\": { \"TOKEN\": \"${TOKEN}\" } }, \"b\": { \"url\": \"https://b.example/mcp\", \"headers\": { \"X-Key\": \"k-0123456789\" } } } }\n";

const WINDSURF: &str = "{\n\t\"mcpServers\": {\n\t\t\"a\": {\n\t\t\t\"serverUrl\": \"https://a.example/mcp\",\n\t\t\t\"headers\": {\n\t\t\t\t\"API_KEY\": \"${env:KEY}\"\n\t\t\t},\n\t\t\t\"disabledTools\": [\"x\"]\n\t\t}\n\t}\n}\n";

const GEMINI: &str = "{\n  \"theme\": \"GitHub\", // mine\n  \"mcpServers\": {\n    \"py\": { \"command\": \"python\", \"args\": [\"-m\", \"server\"], \"env\": { \"KEY\": \"$KEY\" }, \"timeout\": 15000, \"trust\": false },\n    \"http\": { \"httpUrl\": \"https://x.example/mcp\", \"headers\": { \"Authorization\": \"Bearer abc-0123456789\" } }\n  }\n}\n";

const COPILOT: &str = "{\"mcpServers\": {\"pw\": {\"type\": \"local\", \"command\": \"npx\", \"args\": [\"@playwright/mcp@latest\"], \"tools\": [\"*\"]}, \"c7\": {\"type\": \"http\", \"url\": \"https://mcp.context7.example/mcp\", \"headers\": {\"K\": \"k-0123456789\"}, \"tools\": [\"*\"]}}}";

pub(super) const FIXTURES: &[Fixture] = &[
    fixture(
        "claude-desktop",
        MacOs,
        "Library/Application Support/Claude/claude_desktop_config.json",
        DESKTOP,
        2,
    ),
    fixture(
        "claude-desktop",
        Windows,
        "AppData/Roaming/Claude/claude_desktop_config.json",
        DESKTOP,
        2,
    ),
    fixture(
        "claude-desktop",
        Windows,
        "AppData/Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude/claude_desktop_config.json",
        DESKTOP,
        2,
    ),
    fixture("claude-desktop", Linux, ".config/Claude/claude_desktop_config.json", DESKTOP, 2),
    fixture("claude-code", Linux, ".claude.json", CLAUDE_CODE, 3),
    fixture("cursor", Linux, ".cursor/mcp.json", CURSOR, 2),
    fixture("cursor", Windows, ".cursor/mcp.json", CURSOR, 2),
    fixture("vscode", Linux, ".config/Code/User/mcp.json", VSCODE, 2),
    fixture("vscode", MacOs, "Library/Application Support/Code/User/mcp.json", VSCODE, 2),
    fixture("vscode", Windows, "AppData/Roaming/Code/User/mcp.json", VSCODE, 2),
    fixture("vscode", Linux, ".config/Code/User/profiles/3f2a/mcp.json", VSCODE, 2),
    fixture("vscode", Linux, ".vscode-server/data/User/mcp.json", VSCODE, 2),
    fixture("windsurf", Linux, ".codeium/windsurf/mcp_config.json", WINDSURF, 1),
    fixture("zed", Linux, ".config/zed/settings.json", ZED, 1),
    fixture("zed", MacOs, ".config/zed/settings.json", ZED, 1),
    fixture("zed", Windows, "AppData/Roaming/Zed/settings.json", ZED, 1),
    fixture("cline", Linux, ".cline/data/settings/cline_mcp_settings.json", CLINE, 2),
    fixture("gemini-cli", Linux, ".gemini/settings.json", GEMINI, 2),
    fixture("codex", Linux, ".codex/config.toml", CODEX, 3),
    fixture("continue", Linux, ".continue/config.yaml", CONTINUE, 2),
    fixture("goose", Linux, ".config/goose/config.yaml", GOOSE, 2),
    fixture("goose", Windows, "AppData/Roaming/Block/goose/config/config.yaml", GOOSE, 2),
    fixture("opencode", Linux, ".config/opencode/opencode.jsonc", OPENCODE, 2),
    fixture("kiro", Linux, ".kiro/settings/mcp.json", USUAL, 2),
    fixture("kiro", Linux, ".aws/amazonq/mcp.json", USUAL, 2),
    fixture("lm-studio", Linux, ".lmstudio/mcp.json", USUAL, 2),
    fixture("copilot-cli", Linux, ".copilot/mcp-config.json", COPILOT, 2),
    fixture("warp", Linux, ".warp/.mcp.json", USUAL, 2),
];
