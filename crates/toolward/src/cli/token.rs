//! The flags of `token`.

use clap::{Args, Subcommand};

use super::OutputArgs;

/// Create credentials for agents
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, subcommand_required = true)]
#[command(after_help = "Examples:
  toolward token new reviewer")]
pub struct TokenArgs {
    #[command(subcommand)]
    pub command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    New(TokenNewArgs),
}

/// Create a random token, and print the configuration line that accepts it
///
/// The token is printed once and not stored: the configuration contains only its hash. Give it to the agent
/// as `Authorization: Bearer TOKEN`, or as TOOLWARD_TOKEN for `toolward stdio`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward token new reviewer
  toolward token new --json | jq -r .token")]
pub struct TokenNewArgs {
    /// The agent that the token is for
    #[arg(value_name = "AGENT")]
    pub agent: Option<String>,
    #[command(flatten)]
    pub output: OutputArgs,
}
