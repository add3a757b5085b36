//! The flags of `allow`.

use clap::Args;

use super::{OutputArgs, PolicyArgs, ToolsArgs};

/// Permit a tool to an agent, with the narrowest change of the policy
///
/// Prints the change of each policy file and the tools that the agent sees in addition, and writes it after a yes. A deny
/// rule is never changed: if one applies, it is named, and nothing is proposed. The new policy is loaded and its tests are run
/// before anything is written.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward allow --as reviewer github/add_comment
  toolward allow --as reviewer files/write_file --when 'args.path.startsWith(\"drafts/\")'")]
pub struct AllowArgs {
    /// The agent
    #[arg(long = "as", value_name = "AGENT")]
    pub agent: String,
    /// The tool, by its server's own name for it
    #[arg(value_name = "SERVER/TOOL")]
    pub subject: String,
    /// Only if this condition is true, in CEL
    #[arg(long, value_name = "EXPR")]
    pub when: Option<String>,
    /// Write the change without asking
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub tools: ToolsArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
