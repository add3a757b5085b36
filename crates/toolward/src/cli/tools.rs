//! The flags of `tools`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::PolicyArgs;

/// Work with the tool lists of servers
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, subcommand_required = true)]
#[command(after_help = "Examples:
  toolward tools save")]
pub struct ToolsCommandArgs {
    #[command(subcommand)]
    pub command: ToolsCommand,
}

#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    Save(ToolsSaveArgs),
}

/// Save tool lists of servers, for --tools of `check`, `ls`, `can-i`, `explain`, `test` and `decide`
///
/// Starts a server of the configuration, or the given command, fetches its tools and writes them to
/// SERVER.json. Without SERVER and CMD, all servers of the configuration are saved.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward tools save
  toolward tools save github -o lists/github.json
  toolward tools save -- npx -y @modelcontextprotocol/server-filesystem .
  toolward check --policy policy.yaml --tools server-filesystem.json")]
pub struct ToolsSaveArgs {
    /// A server of the configuration; default: all of them
    #[arg(value_name = "SERVER", conflicts_with = "command")]
    pub server: Option<String>,
    /// The file, or an existing directory for SERVER.json; `-` for standard output
    #[arg(short, long, value_name = "FILE", default_value = ".")]
    pub output: PathBuf,
    /// The server's name; default: as `toolward wrap` derives it from CMD
    #[arg(long, value_name = "SERVER", requires = "command")]
    pub name: Option<String>,
    /// How long a server may take to list its tools, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub timeout: u64,
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// The command of a server, instead of one of the configuration
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}
