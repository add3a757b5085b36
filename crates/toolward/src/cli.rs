//! Commands and flags, with the examples that `--help` shows.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

mod allow;
mod analysis;
mod approvals;
mod audit;
mod bundle;
mod demo;
mod history;
mod init;
mod login;
mod pins;
mod token;
mod tools;

pub use allow::*;
pub use analysis::*;
pub use approvals::*;
pub use audit::*;
pub use bundle::*;
pub use demo::*;
pub use history::*;
pub use init::*;
pub use login::*;
pub use pins::*;
pub use token::*;
pub use tools::*;

/// Policy gateway for MCP: decides which agent may use which tool, and explains why.
#[derive(Debug, Parser)]
#[command(name = "toolward", version, arg_required_else_help = true, subcommand_required = true)]
#[command(
    after_help = "Exit codes: 0 success or allowed, 1 denied or a failed test, 2 wrong usage, \
3 invalid configuration, 4 undecided (`diff`, `equal`, `can-ever`), 5 no running gateway, \
141 the output is a closed pipe."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The program's commands and flags, for generated documentation.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Demo(DemoArgs),
    Serve(ServeArgs),
    Stdio(StdioArgs),
    Wrap(WrapArgs),
    Init(InitArgs),
    Uninit(UninitArgs),
    Doctor(DoctorArgs),
    Check(CheckArgs),
    Ls(LsArgs),
    #[command(name = "can-i")]
    CanI(CanIArgs),
    Explain(ExplainArgs),
    Decide(DecideArgs),
    Diff(DiffArgs),
    Equal(EqualArgs),
    #[command(name = "can-ever")]
    CanEver(CanEverArgs),
    #[command(name = "who-can")]
    WhoCan(WhoCanArgs),
    Plan(PlanArgs),
    Learn(LearnArgs),
    Pending(PendingArgs),
    Approve(ApproveArgs),
    Deny(DenyArgs),
    Grants(GrantsArgs),
    Revoke(RevokeArgs),
    Login(LoginArgs),
    Logins(LoginsArgs),
    Logout(LogoutArgs),
    Status(StatusArgs),
    Reload(ReloadArgs),
    Audit(AuditArgs),
    Tail(TailArgs),
    Match(MatchArgs),
    Test(TestArgs),
    Token(TokenArgs),
    Bundle(BundleArgs),
    Tools(ToolsCommandArgs),
    Allow(AllowArgs),
    Lock(LockArgs),
    Changes(ChangesArgs),
    Accept(AcceptArgs),
    Import(ImportArgs),
    Schema(SchemaArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    #[command(name = "demo-server", hide = true)]
    DemoServer(DemoServerArgs),
    /// End the process groups given on standard input when it is closed
    #[command(name = "guard", hide = true)]
    Guard,
}

/// Selects the policy.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Policy")]
pub struct PolicyArgs {
    /// The configuration. Default: TOOLWARD_CONFIG, ./toolward.yaml,
    /// ~/.config/toolward/toolward.yaml
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A further policy layer, in any supported format; may be given several times
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<PathBuf>,
    /// An `allowed_tools` file as a layer; it may be empty, which allows everything
    #[arg(long, value_name = "FILE")]
    pub allowlist_config: Vec<PathBuf>,
    /// Read the --policy files as this format instead of detecting it from their content
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Add the read-only layer: only tools with `hint:read-only`
    #[arg(long)]
    pub read_only: bool,
    /// A --policy file may be a whole configuration (set by the command, not by a flag)
    #[arg(skip)]
    pub whole_configurations: bool,
    /// Without files on the command line, look for the configuration (set by the command)
    #[arg(skip = true)]
    pub search: bool,
}

/// Tool lists of the servers.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Tools")]
pub struct ToolsArgs {
    /// A saved tool list, a directory of them, or SERVER=FILE for a bare `tools/list` response. Default:
    /// `ls`, `can-i` and `explain` query the configured servers, as do `check` and `test` if a test of
    /// the policy depends on a tool's hints
    #[arg(long = "tools", value_name = "FILE")]
    pub lists: Vec<String>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Formats of policy files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A native policy layer: agents, defaults, allowed_tools, case, tests
    Policy,
    /// A YAML file with `allowed_tools`
    Allowlist,
    /// A JSON file with `agents` and `defaults`
    Agents,
    /// A YAML file with `plugins.middleware` and the handler `tool_manager`
    Plugin,
    /// A TOML file with a `tools` list
    Toml,
}

/// Run the gateway over Streamable HTTP, for any number of agents
///
/// All servers of the configuration are at /mcp, where tools are named SERVER__TOOL, and each one is
/// at /mcp/SERVER under its own names. Agents authenticate with `Authorization: Bearer TOKEN`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward serve
  toolward serve -c toolward.yaml --policy reviewed.yaml
  curl -H 'Authorization: Bearer TOKEN' http://127.0.0.1:7410/healthz")]
pub struct ServeArgs {
    /// Take over the listening sockets of the running gateway (same state directory) and shut it down
    /// gracefully, so that an upgrade refuses no connection
    #[arg(long)]
    pub take_over: bool,
    /// What to do if the configuration or a policy is invalid at start
    #[arg(long, value_enum, value_name = "WHAT", default_value = "fail")]
    pub on_invalid_policy: OnInvalid,
    /// For debugging: policy is evaluated and recorded, not enforced; only on loopback
    #[arg(long)]
    pub allow_all: bool,
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// The behavior of a gateway whose configuration is invalid at startup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnInvalid {
    /// Do not start
    Fail,
    /// Start and deny everything until the files are valid
    DenyAll,
}

/// Selects running gateways.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Gateway")]
pub struct RunningArgs {
    /// The state directory of the gateway. Default: `state` of the configuration, or
    /// ~/.local/state/toolward
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The configuration. Default: TOOLWARD_CONFIG, ./toolward.yaml,
    /// ~/.config/toolward/toolward.yaml
    #[arg(short, long, value_name = "FILE", conflicts_with = "state")]
    pub config: Option<PathBuf>,
}

/// Show the state of running gateways: active policy, servers, last reload
///
/// Queries every gateway of this user with the same state directory. Exits with 5 if there is none.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward status
  toolward status --json | jq '.[0].policy.version'")]
pub struct StatusArgs {
    #[command(flatten)]
    pub running: RunningArgs,
    /// Show times in UTC instead of local time; JSON always has UTC
    #[arg(long)]
    pub utc: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Reload the configuration of running gateways
///
/// Files are watched, so this is only needed if changes cannot be detected. If the configuration is invalid,
/// the errors are printed and the old one stays active: exit code 3. Exits with 5 if no gateway is running.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward reload
  toolward reload -c /etc/toolward.yaml
  toolward reload --accept")]
pub struct ReloadArgs {
    /// Also apply files that are only the beginning of their active version, as a truncated file is;
    /// they must still be valid and pass the policy's tests
    #[arg(long)]
    pub accept: bool,
    #[command(flatten)]
    pub running: RunningArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Run the gateway for one client on standard input and output
///
/// The client starts this process as it would start a server, and sees the tools of all servers of
/// the configuration that its agent may use, named SERVER__TOOL. With --server it sees one of them,
/// under the tools' own names. With --connect it uses a gateway that is already running.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward stdio --agent reviewer
  toolward stdio --agent reviewer --server tracker
  TOOLWARD_TOKEN=... toolward stdio --connect https://gateway.example/mcp
  toolward stdio -c toolward.yaml --agent reviewer --read-only
  # in a client's .mcp.json:
  # {\"mcpServers\": {\"toolward\": {\"command\": \"toolward\", \"args\": [\"stdio\", \"--agent\", \"reviewer\"]}}}")]
pub struct StdioArgs {
    /// What to do if the configuration or a policy is invalid at start
    #[arg(long, value_enum, value_name = "WHAT", default_value = "fail")]
    pub on_invalid_policy: OnInvalid,
    /// The agent that calls; or set TOOLWARD_TOKEN to one of its tokens
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Serve only this server of the configuration, under its own tool names. Secrets of the others
    /// are not needed. The configuration is that of --config, TOOLWARD_CONFIG, or the user's, and not
    /// ./toolward.yaml
    #[arg(long, value_name = "SERVER")]
    pub server: Option<String>,
    /// Connect the client to the gateway at this URL instead. The token comes from TOOLWARD_TOKEN; the
    /// policy is the gateway's
    #[arg(long, value_name = "URL", conflicts_with_all = [
        "on_invalid_policy", "agent", "server", "allow_all", "config", "policy", "allowlist_config",
        "format", "read_only",
    ])]
    pub connect: Option<String>,
    /// For debugging: policy is evaluated and recorded, not enforced
    #[arg(long)]
    pub allow_all: bool,
    /// The largest request of the client
    #[arg(long, value_name = "SIZE", default_value = "64 MiB", value_parser = toolward_config::size)]
    pub request_bytes: u64,
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// Apply a policy to one stdio server; tool names stay as they are
///
/// The client talks to this process as it would to the server. The agent sees only the tools that
/// the policy allows and can call nothing else, and every call is recorded before it is forwarded.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward wrap --allowlist-config allow.yaml -- npx -y @modelcontextprotocol/server-filesystem .
  toolward wrap --policy policy.yaml --agent reviewer --name github -- github-mcp-server stdio
  toolward wrap --read-only --clean-env --env GITHUB_TOKEN -- github-mcp-server stdio")]
pub struct WrapArgs {
    /// A policy layer, in any supported format; may be given several times
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<PathBuf>,
    /// An `allowed_tools` file as a layer; it may be empty, which allows everything
    #[arg(long, value_name = "FILE")]
    pub allowlist_config: Vec<PathBuf>,
    /// Only tools with `hint:read-only`
    #[arg(long)]
    pub read_only: bool,
    /// For debugging: policy is evaluated and recorded, not enforced
    #[arg(long)]
    pub allow_all: bool,
    /// The agent that calls
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// The server's name in rules; default: the package, module, image or program that the command runs
    #[arg(long, value_name = "SERVER")]
    pub name: Option<String>,
    /// Set a variable of the server: NAME=VALUE, or NAME to pass it on; may be given several times
    #[arg(long, value_name = "NAME")]
    pub env: Vec<String>,
    /// Pass on only the variables that servers need to connect and those of --env, instead of all except
    /// TOOLWARD_*
    #[arg(long)]
    pub clean_env: bool,
    /// The directory of the audit log. Default: ~/.local/state/toolward/audit
    #[arg(long, value_name = "DIR")]
    pub audit: Option<PathBuf>,
    /// How long a call may go without a response or progress, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// How long a call may take in total, in seconds. Default: 600, or --timeout if that is longer
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub max_timeout: Option<u64>,
    /// The largest request of the client
    #[arg(long, value_name = "SIZE", default_value = "64 MiB", value_parser = toolward_config::size)]
    pub request_bytes: u64,
    /// The server's command
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

/// Validate everything, and warn about likely mistakes in rules
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward check
  toolward check -c toolward.yaml --tools lists/
  toolward check --strict --no-secrets
  toolward check --policy reviewer.yaml --json")]
pub struct CheckArgs {
    /// Exit with 1 if there are warnings
    #[arg(long)]
    pub strict: bool,
    /// Accept secrets that have no value here, e.g. in CI; a gateway does not start without them
    #[arg(long)]
    pub no_secrets: bool,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub tools: ToolsArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Show what an agent may do: tool, verdict, hints, and the deciding rule; or its prompts or resources
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward ls --as reviewer --tools lists/
  toolward ls --as reviewer --tools github.json --all
  toolward ls --as reviewer --tools github.json --json
  toolward ls --as reviewer --prompts
  toolward ls --as reviewer --resources --server files --all")]
pub struct LsArgs {
    /// The agent. Default: an unnamed caller
    #[arg(long = "as", value_name = "AGENT")]
    pub agent: Option<String>,
    /// Show prompts instead of tools
    #[arg(long, conflicts_with = "lists")]
    pub prompts: bool,
    /// Show resources and resource templates instead of tools
    #[arg(long, conflicts_with_all = ["lists", "prompts"])]
    pub resources: bool,
    /// Also show what is denied
    #[arg(long)]
    pub all: bool,
    /// Only this server
    #[arg(long, value_name = "SERVER")]
    pub server: Option<String>,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub tools: ToolsArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The call that a query is about.
#[derive(Debug, Args)]
pub struct QuestionArgs {
    /// The agent. Default: an unnamed caller
    #[arg(long = "as", value_name = "AGENT")]
    pub agent: Option<String>,
    /// SERVER/TOOL, with the tool's original name; with --prompt SERVER/PROMPT, with --resource SERVER/URI
    #[arg(value_name = "SERVER/TOOL")]
    pub subject: String,
    /// The call's arguments, as a JSON object
    #[arg(value_name = "ARGS_JSON")]
    pub arguments: Option<String>,
    #[command(flatten)]
    pub kind: Kind,
    /// The OAuth scopes of the caller's token, separated by spaces
    #[arg(long, value_name = "SCOPES")]
    pub scope: Option<String>,
    /// Ask what a listing shows instead of asking about a call
    #[arg(long, conflicts_with = "arguments")]
    pub list: bool,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub tools: ToolsArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The kind of name that a query is about: a tool, unless `--prompt` or `--resource` is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Tool,
    Prompt,
    /// A resource, by its URI.
    Resource,
    /// A resource template in a listing.
    Template,
}

impl Args for Kind {
    fn augment_args(command: clap::Command) -> clap::Command {
        let flag = |name: &'static str, help: &'static str| {
            clap::Arg::new(name).long(name).help(help).action(clap::ArgAction::SetTrue)
        };
        let resource = "Ask about a resource instead of a tool; with --list also about a template";
        command
            .arg(flag("prompt", "Ask about a prompt instead of a tool"))
            .arg(flag("resource", resource).conflicts_with("prompt"))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Kind::augment_args(command)
    }
}

impl clap::FromArgMatches for Kind {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Kind, clap::Error> {
        Ok(match (matches.get_flag("prompt"), matches.get_flag("resource")) {
            (true, _) => Kind::Prompt,
            (false, true) => Kind::Resource,
            (false, false) => Kind::Tool,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Kind::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Check whether one call is allowed; exit code 0: yes, 1: no
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward can-i --as reviewer github/delete_repo
  toolward can-i --as reviewer files/write_file '{\"path\": \"/srv/project/a.txt\"}'
  toolward can-i --as reviewer --prompt notes/summarize '{\"style\": \"short\"}'
  toolward can-i --as reviewer --resource files/file:///etc/passwd")]
pub struct CanIArgs {
    #[command(flatten)]
    pub question: QuestionArgs,
}

/// Show every layer and step of a decision, and the response the agent would get
///
/// With the id of a past decision instead of SERVER/TOOL, show its verdict, rule and outcome from the audit
/// log.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward explain --as reviewer github/delete_repo
  toolward explain --as tester browser/interact '{\"action\": \"execute_js\"}'
  toolward explain --as tester browser/interact --list --tools browser.json
  toolward explain --as reviewer --resource files/file:///etc/passwd
  toolward explain 65fab2e81c3d0-9c1f00d2-1a")]
pub struct ExplainArgs {
    #[command(flatten)]
    pub question: QuestionArgs,
    /// The directory of the audit log, for a past decision
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Show the time of a past decision in UTC instead of local time
    #[arg(long)]
    pub utc: bool,
}

/// Answer one JSON request per line, for scripts and CI
#[derive(Debug, Args)]
#[command(
    after_help = "A request holds `agent`, `server`, `tool` (or `prompt`, or `resource` with a URI), \
and optionally `action`,
`arguments`, `definition`, `annotations`, `hints`, `query` (call, list or server) and `policy` (an inline policy).

Examples:
  echo '{\"agent\":\"dev\",\"server\":\"db\",\"tool\":\"drop_table\"}' | toolward decide --policy p.yaml
  echo '{\"agent\":\"dev\",\"server\":\"notes\",\"resource\":\"note:1\"}' | toolward decide
  toolward decide < requests.jsonl > answers.jsonl"
)]
pub struct DecideArgs {
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub tools: ToolsArgs,
    /// Ignored: answers are always JSON
    #[arg(long, hide = true)]
    pub json: bool,
}

/// Print the names that a selector matches, from standard input, one per line
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  printf 'get_user\\nset_user\\n' | toolward match 'get_*'
  jq -r '.tools[].name' github.json | toolward match '*_issue'")]
pub struct MatchArgs {
    #[arg(value_name = "PATTERN")]
    pub pattern: String,
    /// Ignore case, as an `allowed_tools` list does
    #[arg(short, long)]
    pub ignore_case: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Run the `tests:` of the policy
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward test
  toolward test --policy reviewer.yaml --tools lists/")]
pub struct TestArgs {
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub tools: ToolsArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Convert another system's policy to native YAML
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward import plugin gatekit.yaml > servers.yaml
  toolward import agents rules.json > policy.yaml
  toolward import toml config.toml")]
pub struct ImportArgs {
    #[arg(value_enum, value_name = "FORMAT")]
    pub format: Format,
    /// The file, or - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// A server to which a list for all servers applies (`_global` of a plugin file)
    #[arg(long = "server", value_name = "SERVER")]
    pub servers: Vec<String>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Print the JSON Schema of the configuration, for editors
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward schema > toolward.schema.json
  # first line of toolward.yaml:
  # yaml-language-server: $schema=toolward.schema.json")]
pub struct SchemaArgs {
    /// Ignored: the schema is always JSON
    #[arg(long, hide = true)]
    pub json: bool,
}

/// Print a completion script for a shell
///
/// The shell then also completes agents, servers and tools of your configuration. Tools are those of a running
/// gateway.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward completions bash > ~/.local/share/bash-completion/completions/toolward
  echo 'source <(toolward completions zsh)' >> ~/.zshrc
  toolward completions fish > ~/.config/fish/completions/toolward.fish")]
pub struct CompletionsArgs {
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Print a manual page, or write all of them
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward man init | man -l -
  toolward man audit query
  toolward man --dir ~/.local/share/man/man1")]
pub struct ManArgs {
    /// The command, such as `audit query`. Default: the program
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Write the pages of all commands into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub dir: Option<PathBuf>,
}
