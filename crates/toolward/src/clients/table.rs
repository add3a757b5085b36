//! The supported MCP clients: the paths of their files, and the format of their entries.

use toolward_config::splice::FileFormat;

use self::Platform::{Linux, MacOs, Windows};

/// A platform that clients run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Platform {
    Linux,
    MacOs,
    Windows,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its name in flags, and the name of its agent.
    pub(crate) id: &'static str,
    /// Its name for people.
    pub(crate) name: &'static str,
    pub(crate) files: &'static [Location],
    pub(crate) fields: &'static Fields,
    /// How a change takes effect in the client.
    pub(crate) restart: &'static str,
    pub(crate) references: References,
    pub(crate) limits: Limits,
}

/// How a client writes references to variables, and in which values it replaces them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum References {
    /// None are documented.
    None,
    /// `${NAME}` and `${NAME:-default}`, in command, arguments and environment.
    Braces,
    /// `${env:NAME}`, `${userHome}`, `${workspaceFolder}` and, in VS Code, `${input:id}`.
    EnvPrefix,
    /// `$NAME` and `${NAME}`, in the environment only.
    Dollar,
    /// `{env:NAME}` and `{file:PATH}`.
    EnvBraces,
    /// `${{ secrets.NAME }}`.
    Secrets,
}

/// The limits of a client, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// With more tools than this, the client leaves some out or warns.
    pub(crate) tools: Option<usize>,
    /// The form of a tool's name, and its maximum length.
    pub(crate) name: Option<(&'static str, usize)>,
}

const UNLIMITED: Limits = Limits { tools: None, name: None };

const fn names(form: &'static str, max: usize) -> Limits {
    Limits { tools: None, name: Some((form, max)) }
}

const fn tools(max: usize) -> Limits {
    Limits { tools: Some(max), name: None }
}

/// The location of a client's file.
#[derive(Debug)]
pub(crate) struct Location {
    pub(crate) on: &'static [Platform],
    pub(crate) base: Base,
    /// Below the base. One component may be `*`.
    pub(crate) path: &'static str,
    pub(crate) format: FileFormat,
    pub(crate) shape: Shape,
}

/// The directory that a path begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    Home,
    /// Application settings: `~/.config`, `~/Library/Application Support`, `%APPDATA%`.
    Settings,
    /// `~/.config` on every platform.
    DotConfig,
    /// `%LOCALAPPDATA%`.
    LocalAppData,
    /// The directory in a variable, or this one below the home directory.
    Variable(&'static str, &'static str),
    /// The directory of `--project`.
    Project,
}

/// The location of the servers in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A mapping under this key.
    Map(&'static str),
    /// A list under this key, whose items have a `name`.
    List(&'static str),
    /// `mcpServers`, and `projects.DIRECTORY.mcpServers`.
    ClaudeCode,
}

/// Names of an entry's fields.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(crate) command: &'static str,
    /// `command` is a list with the arguments.
    pub(crate) is_command_list: bool,
    pub(crate) env: &'static str,
    pub(crate) urls: &'static [&'static str],
    pub(crate) headers: &'static str,
    /// The `type` of an entry that starts a program, if entries have one.
    pub(crate) program_type: Option<&'static str>,
    /// Variables of the client's environment are passed on by name, in `env_vars`.
    pub(crate) has_env_vars: bool,
}

const USUAL: Fields = Fields {
    command: "command",
    is_command_list: false,
    env: "env",
    urls: &["url", "serverUrl", "httpUrl"],
    headers: "headers",
    program_type: Some("stdio"),
    has_env_vars: false,
};
const OPENCODE: Fields =
    Fields { is_command_list: true, env: "environment", program_type: Some("local"), ..USUAL };
const GOOSE: Fields = Fields { command: "cmd", env: "envs", urls: &["uri"], ..USUAL };
const CODEX: Fields =
    Fields { headers: "http_headers", program_type: None, has_env_vars: true, ..USUAL };
const COPILOT: Fields = Fields { program_type: Some("local"), ..USUAL };

const ALL: &[Platform] = &[Linux, MacOs, Windows];
const UNIX: &[Platform] = &[Linux, MacOs];

const fn json(base: Base, path: &'static str, key: &'static str) -> Location {
    Location { on: ALL, base, path, format: FileFormat::Jsonc, shape: Shape::Map(key) }
}

const fn on(platforms: &'static [Platform], location: Location) -> Location {
    Location { on: platforms, ..location }
}

const SERVERS: &str = "mcpServers";

/// All clients. Sources of paths and fields are the clients' documentation and code, as of August 2026.
pub(crate) const CLIENTS: &[Client] = &[
    Client {
        id: "claude-desktop",
        name: "Claude Desktop",
        files: &[
            json(Base::Settings, "Claude/claude_desktop_config.json", SERVERS),
            // The current installer for Windows.
            on(
                &[Windows],
                json(
                    Base::LocalAppData,
                    "Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude/claude_desktop_config.json",
                    SERVERS,
                ),
            ),
        ],
        fields: &USUAL,
        restart: "quit it and start it again",
        references: References::None,
        limits: names("SERVER_TOOL", 64),
    },
    Client {
        id: "claude-code",
        name: "Claude Code",
        files: &[
            Location {
                on: ALL,
                base: Base::Variable("CLAUDE_CONFIG_DIR", ""),
                path: ".claude.json",
                format: FileFormat::Jsonc,
                shape: Shape::ClaudeCode,
            },
            json(Base::Project, ".mcp.json", SERVERS),
        ],
        fields: &USUAL,
        restart: "start a new session, or reconnect with /mcp",
        references: References::Braces,
        limits: names("mcp__SERVER__TOOL", 64),
    },
    Client {
        id: "cursor",
        name: "Cursor",
        files: &[
            json(Base::Home, ".cursor/mcp.json", SERVERS),
            json(Base::Project, ".cursor/mcp.json", SERVERS),
        ],
        fields: &USUAL,
        restart: "turn the servers off and on in its settings; it asks whether to trust the change",
        references: References::EnvPrefix,
        limits: Limits { tools: Some(40), name: Some(("SERVERTOOL", 60)) },
    },
    Client {
        id: "vscode",
        name: "VS Code",
        files: &[
            json(Base::Settings, "Code/User/mcp.json", "servers"),
            json(Base::Settings, "Code/User/profiles/*/mcp.json", "servers"),
            json(Base::Settings, "Code - Insiders/User/mcp.json", "servers"),
            json(Base::Home, ".vscode-server/data/User/mcp.json", "servers"),
            json(Base::Project, ".vscode/mcp.json", "servers"),
        ],
        fields: &USUAL,
        restart: "restart the servers (MCP: List Servers); it asks whether to trust the change",
        references: References::EnvPrefix,
        limits: Limits { tools: Some(128), name: Some(("mcp_SERVER_TOOL", 64)) },
    },
    Client {
        id: "windsurf",
        name: "Windsurf",
        files: &[json(Base::Home, ".codeium/windsurf/mcp_config.json", SERVERS)],
        fields: &USUAL,
        restart: "press refresh in the MCP settings",
        references: References::EnvPrefix,
        limits: tools(100),
    },
    Client {
        id: "zed",
        name: "Zed",
        files: &[
            on(UNIX, json(Base::DotConfig, "zed/settings.json", "context_servers")),
            on(&[Windows], json(Base::Settings, "Zed/settings.json", "context_servers")),
            json(Base::Project, ".zed/settings.json", "context_servers"),
        ],
        fields: &USUAL,
        restart: "nothing: changed settings apply at once",
        references: References::None,
        limits: names("TOOL", 64),
    },
    Client {
        id: "cline",
        name: "Cline",
        files: &[
            json(
                Base::Variable("CLINE_DIR", ".cline"),
                "data/settings/cline_mcp_settings.json",
                SERVERS,
            ),
            json(
                Base::Settings,
                "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                SERVERS,
            ),
        ],
        fields: &USUAL,
        restart: "nothing: it reconnects changed servers",
        references: References::None,
        limits: UNLIMITED,
    },
    Client {
        id: "gemini-cli",
        name: "Gemini CLI",
        files: &[
            json(Base::Home, ".gemini/settings.json", SERVERS),
            json(Base::Project, ".gemini/settings.json", SERVERS),
        ],
        fields: &Fields { program_type: None, ..USUAL },
        restart: "start it again",
        references: References::Dollar,
        limits: names("mcp_SERVER_TOOL", 63),
    },
    Client {
        id: "codex",
        name: "Codex",
        files: &[
            Location {
                on: ALL,
                base: Base::Variable("CODEX_HOME", ".codex"),
                path: "config.toml",
                format: FileFormat::Toml,
                shape: Shape::Map("mcp_servers"),
            },
            Location {
                on: ALL,
                base: Base::Project,
                path: ".codex/config.toml",
                format: FileFormat::Toml,
                shape: Shape::Map("mcp_servers"),
            },
        ],
        fields: &CODEX,
        restart: "start it again",
        references: References::None,
        limits: names("mcp__SERVER__TOOL", 128),
    },
    Client {
        id: "continue",
        name: "Continue",
        files: &[Location {
            on: ALL,
            base: Base::Home,
            path: ".continue/config.yaml",
            format: FileFormat::Yaml,
            shape: Shape::List(SERVERS),
        }],
        fields: &USUAL,
        restart: "reload its configuration",
        references: References::Secrets,
        limits: UNLIMITED,
    },
    Client {
        id: "goose",
        name: "goose",
        files: &[
            Location {
                on: UNIX,
                base: Base::DotConfig,
                path: "goose/config.yaml",
                format: FileFormat::Yaml,
                shape: Shape::Map("extensions"),
            },
            Location {
                on: &[Windows],
                base: Base::Settings,
                path: "Block/goose/config/config.yaml",
                format: FileFormat::Yaml,
                shape: Shape::Map("extensions"),
            },
        ],
        fields: &GOOSE,
        restart: "start a new session",
        references: References::None,
        limits: tools(50),
    },
    Client {
        id: "opencode",
        name: "OpenCode",
        files: &[
            json(Base::DotConfig, "opencode/opencode.jsonc", "mcp"),
            json(Base::DotConfig, "opencode/opencode.json", "mcp"),
            json(Base::Project, "opencode.jsonc", "mcp"),
            json(Base::Project, "opencode.json", "mcp"),
        ],
        fields: &OPENCODE,
        restart: "start it again",
        references: References::EnvBraces,
        limits: UNLIMITED,
    },
    Client {
        id: "kiro",
        name: "Kiro and Amazon Q",
        files: &[
            json(Base::Home, ".kiro/settings/mcp.json", SERVERS),
            json(Base::Home, ".aws/amazonq/mcp.json", SERVERS),
            json(Base::Project, ".kiro/settings/mcp.json", SERVERS),
        ],
        fields: &USUAL,
        restart: "start it again",
        references: References::Braces,
        limits: UNLIMITED,
    },
    Client {
        id: "lm-studio",
        name: "LM Studio",
        files: &[
            json(Base::Home, ".lmstudio/mcp.json", SERVERS),
            json(Base::Home, ".cache/lm-studio/mcp.json", SERVERS),
        ],
        fields: &USUAL,
        restart: "start it again",
        references: References::None,
        limits: UNLIMITED,
    },
    Client {
        id: "copilot-cli",
        name: "Copilot CLI",
        files: &[json(Base::Variable("COPILOT_HOME", ".copilot"), "mcp-config.json", SERVERS)],
        fields: &COPILOT,
        restart: "start it again",
        references: References::None,
        limits: UNLIMITED,
    },
    Client {
        id: "warp",
        name: "Warp",
        files: &[
            json(Base::Home, ".warp/.mcp.json", SERVERS),
            json(Base::Project, ".warp/.mcp.json", SERVERS),
        ],
        fields: &USUAL,
        restart: "restart the servers in its settings",
        references: References::None,
        limits: UNLIMITED,
    },
];

/// The client with this name.
pub(crate) fn client(id: &str) -> Option<&'static Client> {
    CLIENTS.iter().find(|client| client.id == id)
}
