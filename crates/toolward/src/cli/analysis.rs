//! The flags of `diff`, `equal`, `can-ever` and `who-can`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{OutputArgs, PolicyArgs, ToolsArgs};

/// Show what a policy change allows and denies, also for tools that do not exist yet
///
/// Compares the policies of two files: configurations, or policies in any supported format. The answer covers
/// every agent, server, tool name, action, set of hints and argument that the policies distinguish. Each
/// difference is shown with an example and the rules that decide before and after. Changes of a server's
/// command, URL or environment, and of the audit log, are not compared.
///
/// Exit codes: 0 nothing becomes wider, 1 something does, 4 undecided.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward diff main.yaml toolward.yaml
  toolward diff <(git show main:policy.yaml) policy.yaml --format markdown
  toolward diff old.yaml new.yaml --as reviewer --tools lists/")]
pub struct DiffArgs {
    /// The old configuration or policy
    #[arg(value_name = "OLD")]
    pub old: PathBuf,
    /// The new one
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
    /// Only this agent
    #[arg(long = "as", value_name = "AGENT")]
    pub agent: Option<String>,
    /// Exit with 0 even if something becomes wider
    #[arg(long)]
    pub allow_wider: bool,
    /// Ignore changes of limits, hooks, pins and identities, which are not analyzed; otherwise they make the answer
    /// undecided
    #[arg(long)]
    pub policy_only: bool,
    /// The output format
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub format: ReportFormat,
    /// Tool lists, to also show which known tools change: a file, a directory, or SERVER=FILE
    #[arg(long = "tools", value_name = "FILE")]
    pub lists: Vec<String>,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    Text,
    Json,
    /// For a comment on a pull request
    Markdown,
}

/// Check whether two policies decide everything alike; exit code 0: yes, 1: no, 4: undecided
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward equal policy.yaml rewritten.yaml
  toolward equal rules.json <(toolward import agents rules.json)")]
pub struct EqualArgs {
    /// A configuration or policy
    #[arg(value_name = "A")]
    pub one: PathBuf,
    /// Another one
    #[arg(value_name = "B")]
    pub other: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Check whether an agent can ever call a tool of this kind, also one that does not exist yet
///
/// The tool is a selector: a name, a pattern, TOOL.ACTION, or hint:TAG. The server may be a pattern, too.
///
/// Exit codes: 0 it can (also if a person must approve), 1 never, 4 undecided.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward can-ever --as reviewer 'tracker/delete_*'
  toolward can-ever '*/hint:destructive'
  toolward can-ever --as 'ci-*' --policy ci.yaml 'files/write_file'")]
pub struct CanEverArgs {
    /// The agent, or a pattern of agents. Default: all agents and unnamed callers
    #[arg(long = "as", value_name = "AGENT")]
    pub agent: Option<String>,
    /// SERVER/SELECTOR
    #[arg(value_name = "SERVER/SELECTOR")]
    pub subject: String,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// List the agents that may make a call, with the rule that allows each
///
/// Exits with 1 if no agent may.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward who-can github/delete_repo
  toolward who-can files/write_file '{\"path\": \"/srv/project/a.txt\"}' --tools lists/")]
pub struct WhoCanArgs {
    /// SERVER/TOOL, with the tool's original name
    #[arg(value_name = "SERVER/TOOL")]
    pub subject: String,
    /// The call's arguments, as a JSON object
    #[arg(value_name = "ARGS_JSON")]
    pub arguments: Option<String>,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub tools: ToolsArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
