//! The flags of `lock`, `changes` and `accept`.

use clap::Args;

use super::{OutputArgs, PolicyArgs};

/// Approve the definitions of servers as they are now, in toolward.lock
///
/// Starts each server several times: in each protocol version that it supports, as a client with all and with no
/// capabilities. Writes its tools, prompts, resource templates and instructions to toolward.lock beside the
/// configuration. Parts that change by themselves are reported, with the lines that ignore them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward lock
  toolward lock tracker
  git add toolward.lock")]
pub struct LockArgs {
    /// The servers to approve; default: all of them
    #[arg(value_name = "SERVER")]
    pub servers: Vec<String>,
    /// How long each look at a server may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub timeout: u64,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Show how the definitions of servers differ from the approved ones
///
/// Each change has a class: widening (it may do more than before), neutral (texts) or narrowing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward changes
  toolward changes tracker
  toolward changes --locked   # for CI: exits with 1 if anything differs from toolward.lock")]
pub struct ChangesArgs {
    /// A server of the configuration; default: all of them
    #[arg(value_name = "SERVER")]
    pub server: Option<String>,
    /// Exit with 1 if anything changed. There must be a lock file
    #[arg(long)]
    pub locked: bool,
    /// How long each look at a server may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub timeout: u64,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Accept a changed definition, or all of a server
///
/// `toolward changes` prints the command with the digest of what it showed. If the definition has changed since then,
/// nothing is accepted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward accept tracker/create_issue --expect sha256:4bf5…
  toolward accept tracker --expect sha256:09c1…")]
pub struct AcceptArgs {
    /// A server, or SERVER/NAME for one of its tools, prompts or resource templates
    #[arg(value_name = "SERVER[/NAME]")]
    pub target: String,
    /// The digest of the definition, as `toolward changes` printed it
    #[arg(long, value_name = "DIGEST")]
    pub expect: String,
    /// How long each look at the server may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub timeout: u64,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
