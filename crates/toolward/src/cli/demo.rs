//! The flags of `demo`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::OutputArgs;

/// Try everything: built-in servers, three agents, a policy and the admin UI
///
/// Needs no file, no network and no other program. It prints the address of the admin UI, a token for each
/// agent, and commands to copy. The policy is a real file in a temporary directory: edit it while the demo
/// runs. Ctrl-C stops it and deletes the directory. With --write, the files are kept as a starting point.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward demo
  toolward demo --port 9000 --page-port 9001
  toolward demo --write heron && toolward serve -c heron/toolward.yaml
  toolward demo --json")]
pub struct DemoArgs {
    /// The port of the MCP endpoint, on 127.0.0.1; 0 for a free one. Default: 7410, or a free
    /// one if that is in use
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// The port of the admin UI, on 127.0.0.1; 0 for a free one. Default: 7411, or a free one if
    /// that is in use
    #[arg(long, value_name = "PORT")]
    pub page_port: Option<u16>,
    /// Write the demo's files to this directory instead of running it; nothing is overwritten
    #[arg(long, value_name = "DIR")]
    pub write: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The sample MCP server of `toolward demo`, on standard input and output
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward demo-server
  toolward wrap --read-only -- toolward demo-server tracker")]
pub struct DemoServerArgs {
    /// Only the tools of one part. Default: all
    #[arg(value_enum, value_name = "PART")]
    pub part: Option<DemoPart>,
}

/// The parts of the sample project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DemoPart {
    /// Issues and a board
    Tracker,
    /// A few files
    Files,
}
