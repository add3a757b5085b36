//! The flags of `plan` and `learn`.

use std::path::PathBuf;

use clap::Args;

use super::{OutputArgs, ReportFormat};

/// Show which past calls and listings a new policy would change
///
/// Replays the audit log. NEW is a whole configuration, or a policy in any supported format; a policy alone replaces all
/// layers of the configuration, and its servers stay as they are. Calls whose arguments were recorded only as a hash are
/// decided as far as possible, and counted separately if that is not enough.
///
/// Exit codes: 0 nothing would change, 1 something would.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward plan new.yaml
  toolward plan new.yaml --since 30d --as reviewer
  toolward plan new.yaml --format markdown --tools lists/")]
pub struct PlanArgs {
    /// The new configuration or policy
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
    /// Only calls of this agent
    #[arg(long = "as", value_name = "AGENT")]
    pub agent: Option<String>,
    #[command(flatten)]
    pub history: HistoryArgs,
    /// The output format
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub format: ReportFormat,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Propose the narrowest policy that covers the recorded calls of an agent
///
/// Prints a policy for the agent with one line per tool, its number of calls and last use, and tests from real calls.
/// Nothing that the current policy denies becomes allowed, and conditions, approvals and limits of its rules are kept.
/// Destructive and open-world tools are marked for review. Nothing is changed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward learn --as reviewer > reviewer.yaml
  toolward learn --as reviewer --since 30d --generalise
  toolward learn --as reviewer --refused
  toolward learn --as reviewer --tighten --since 90d")]
pub struct LearnArgs {
    /// The agent
    #[arg(long = "as", value_name = "AGENT")]
    pub agent: String,
    /// Replace names by hints and patterns where several tools were used, unless that allows more than the
    /// current policy
    #[arg(long, visible_alias = "generalize")]
    pub generalise: bool,
    /// Keep the current rules, and leave out those that no recorded call needed
    #[arg(long, conflicts_with_all = ["generalise", "refused"])]
    pub tighten: bool,
    /// Also cover calls that were refused because no rule allows them
    #[arg(long)]
    pub refused: bool,
    #[command(flatten)]
    pub history: HistoryArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Selects the audit log, the current configuration and the period.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Audit log")]
pub struct HistoryArgs {
    /// Only records since: 10m, 2h, 3d (ago), 2026-07-28, 2026-07-28T09:30, 2026-07-28T09:30:00Z
    #[arg(long, value_name = "TIME", default_value = "7d")]
    pub since: String,
    /// Only until, in the same forms
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Show times in UTC, and read TIME without an offset as UTC, instead of local time
    #[arg(long)]
    pub utc: bool,
    /// The directory of the audit log. Default: `audit.dir` of the configuration, or
    /// ~/.local/state/toolward/audit
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The current configuration. Default: TOOLWARD_CONFIG, ./toolward.yaml,
    /// ~/.config/toolward/toolward.yaml
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A saved tool list, a directory of them, or SERVER=FILE for a bare `tools/list` response. Default: the tools of
    /// the running gateway or of the configured servers
    #[arg(long = "tools", value_name = "FILE")]
    pub lists: Vec<String>,
}
