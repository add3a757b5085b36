//! Arguments of `init`, `uninit` and `doctor`.

use std::path::PathBuf;

use clap::Args;

use super::OutputArgs;

/// Put the gateway in front of the servers of your MCP clients
///
/// Finds the configuration files of MCP clients, adds their servers to the gateway's configuration, and makes
/// the clients start Toolward instead, under the same names, so that tool names and permissions in the client
/// stay the same. Only these entries change; the rest of each file stays the same, byte for byte. The policy
/// allows all tools, and all calls are in the audit log. Secrets stay in the clients' files. `toolward
/// uninit` undoes the changes.
///
/// Without a terminal, nothing is changed unless --yes is given: the plan is printed, and the exit code is 2.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward init
  toolward init --dry-run
  toolward init --client cursor --client claude-code --yes
  toolward init --project . --client vscode
  toolward init --path cursor=/mnt/c/Users/me/.cursor/mcp.json

Clients: claude-desktop, claude-code, cursor, vscode, windsurf, zed, cline, gemini-cli, codex, continue, goose,
opencode, kiro, lm-studio, copilot-cli, warp.")]
pub struct InitArgs {
    /// Only this client; may be given several times
    #[arg(long, value_name = "CLIENT")]
    pub client: Vec<String>,
    /// Also the files of the project in this directory
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// A file of a client at another place; remembered for later runs
    #[arg(long, value_name = "CLIENT=FILE")]
    pub path: Vec<String>,
    /// The gateway's configuration, which is created or extended. Default:
    /// ~/.config/toolward/toolward.yaml
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Show the changes, with values masked, and make none
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long, conflicts_with = "dry_run")]
    pub yes: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Undo `toolward init`: restore the files of MCP clients
///
/// An entry that someone changed since is left alone and shown, and the exit code is 1. Without a terminal,
/// nothing is changed unless --yes is given: the plan is printed, and the exit code is 2.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward uninit
  toolward uninit --dry-run
  toolward uninit --client cursor --yes")]
pub struct UninitArgs {
    /// Only this client; may be given several times
    #[arg(long, value_name = "CLIENT")]
    pub client: Vec<String>,
    /// Show the changes, with values masked, and make none
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long, conflicts_with = "dry_run")]
    pub yes: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Report which MCP servers of your clients are not protected or do not work, and how to fix it
///
/// Wrapped servers are started as their clients start them, and asked for their tools. The audit log shows which
/// clients have connected. Exits with 1 if a server is unprotected, or wrapped and does not work.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward doctor
  toolward doctor --offline
  toolward doctor --project ~/src/app
  toolward doctor --json | jq '.entries[] | select(.state != \"wrapped\")'")]
pub struct DoctorArgs {
    /// Only this client; may be given several times
    #[arg(long, value_name = "CLIENT")]
    pub client: Vec<String>,
    /// Also the files of the project in this directory. Default: the current directory
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// The gateway's configuration. Default: ~/.config/toolward/toolward.yaml
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Do not start servers
    #[arg(long)]
    pub offline: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}
