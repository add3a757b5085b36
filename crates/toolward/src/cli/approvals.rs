//! The flags of `pending`, `approve`, `deny`, `grants` and `revoke`.

use clap::Args;

use super::{OutputArgs, RunningArgs};

/// List the calls that wait for a person
///
/// Rules with `ask` make calls wait. With `admins` in the configuration, set TOOLWARD_ADMIN_TOKEN to an admin's
/// token. Exits with 5 if no gateway is running.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward pending
  toolward pending --watch
  toolward pending --json | jq -r '.[].id'")]
pub struct PendingArgs {
    /// Keep running, and print each new call
    #[arg(long)]
    pub watch: bool,
    #[command(flatten)]
    pub running: RunningArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Approve a call that waits for a person
///
/// Without flags, exactly this call is approved, once: the one that waits, or an identical one within 15 minutes.
/// With `admins` in the configuration, set TOOLWARD_ADMIN_TOKEN to an admin's token.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward approve K7Q2M9XD
  toolward approve K7Q2M9XD --scope tool --for 1h
  toolward approve K7Q2M9XD --scope args=repo,branch --for 8h
  toolward approve K7Q2M9XD --write-rule")]
pub struct ApproveArgs {
    /// The id that `toolward pending` shows
    #[arg(value_name = "ID")]
    pub id: String,
    /// How long the grant is valid, such as `1h`; at most `approvals.max_grant`
    #[arg(long = "for", value_name = "TIME")]
    pub lifetime: Option<String>,
    /// `call`: this call, once. `args=KEY,…`: calls with the same values of these arguments. `tool`: all calls of
    /// the tool. The last two need --for
    #[arg(long, value_name = "SCOPE", default_value = "call")]
    pub scope: String,
    /// Print the change of the policy that would allow such calls without approval. It is not applied, and nothing is
    /// approved
    #[arg(long, conflicts_with = "lifetime")]
    pub write_rule: bool,
    #[command(flatten)]
    pub running: RunningArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Deny a call that waits for a person
///
/// The agent gets the reason. After five denials of the same tool in ten minutes, its calls are denied without
/// asking.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward deny K7Q2M9XD
  toolward deny K7Q2M9XD --reason 'not on Fridays'")]
pub struct DenyArgs {
    /// The id that `toolward pending` shows
    #[arg(value_name = "ID")]
    pub id: String,
    /// A reason for the agent
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    #[command(flatten)]
    pub running: RunningArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// List the grants that people gave
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward grants
  toolward grants --json")]
pub struct GrantsArgs {
    #[command(flatten)]
    pub running: RunningArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Revoke a grant
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward revoke M3XA7Q2K")]
pub struct RevokeArgs {
    /// The id that `toolward grants` shows
    #[arg(value_name = "ID")]
    pub id: String,
    #[command(flatten)]
    pub running: RunningArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
