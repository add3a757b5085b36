//! Flags of the commands that read the audit log.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::OutputArgs;

/// Where the record is.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Record")]
pub struct RecordArgs {
    /// The folder of the record; without it: `audit.dir` of the configuration, and
    /// ~/.local/state/toolward/audit where there is none
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The configuration; without it: TOOLWARD_CONFIG, ./toolward.yaml,
    /// ~/.config/toolward/toolward.yaml
    #[arg(short, long, value_name = "FILE", conflicts_with = "dir")]
    pub config: Option<PathBuf>,
}

/// Which records are meant. What came of a call belongs to the call.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters")]
pub struct FilterArgs {
    /// Only this agent; '' for callers without a name
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Only this server
    #[arg(long, value_name = "SERVER")]
    pub server: Option<String>,
    /// Only tools whose original or exposed name matches
    #[arg(long, value_name = "GLOB")]
    pub tool: Option<String>,
    /// Only calls that were decided so
    #[arg(long, value_enum, value_name = "VERDICT")]
    pub verdict: Option<RecordedVerdict>,
    /// Only records of this kind, e.g. intent, refusal, list, start; may be given several times
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<String>,
    /// Only since: 10m, 2h, 3d (ago), 2026-07-28, 2026-07-28T09:30, 2026-07-28T09:30:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only until, in the same forms
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Show times in UTC, and read TIME without an offset as UTC, instead of local time
    #[arg(long)]
    pub utc: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RecordedVerdict {
    Allow,
    Deny,
    Ask,
}

/// Verify, search and export the record of decisions
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward audit verify
  toolward audit query --verdict deny --since 2h
  toolward audit export --format csv --output decisions.csv")]
pub struct AuditArgs {
    #[command(subcommand)]
    pub command: AuditCommand,
}

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    Verify(VerifyArgs),
    Query(QueryArgs),
    Export(ExportArgs),
}

/// Check that no record was changed, removed, inserted or moved
///
/// Each record carries the hash of the one before it, and the head of a stream says where it ends.
/// Every place that does not fit is named. Exit code 0: the record is whole; 1: it is not; 3: there
/// is none, or it cannot be read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward audit verify
  toolward audit verify --dir /var/lib/toolward/audit --json
  toolward audit verify --repair")]
pub struct VerifyArgs {
    /// Take off a last line that was not written to its end, and say so in the record
    #[arg(long)]
    pub repair: bool,
    #[command(flatten)]
    pub record: RecordArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Search the record: one row a call, refusal, list or other event, oldest first
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward audit query --last 20
  toolward audit query --agent reviewer --server files --tool 'write_*'
  toolward audit query --verdict deny --since 2h --json
  toolward audit query --kind turned-away --since 2026-07-28
  toolward audit query --arguments '{\"path\": \"/srv/a\"}'
  toolward audit query --count-by agent,tool --since 7d")]
pub struct QueryArgs {
    /// Only calls with these arguments, by the hash in the log: as given, compact, and with spaces as
    /// Python writes them
    #[arg(long, value_name = "JSON")]
    pub arguments: Option<String>,
    /// The state directory whose key made the hashes; without it: `state` of the configuration, and
    /// ~/.local/state/toolward if there is none
    #[arg(long, value_name = "DIR", requires = "arguments")]
    pub state: Option<PathBuf>,
    /// Count calls by these members instead of listing them, largest first; with --kind or `kind`, other
    /// records too
    #[arg(
        long,
        value_enum,
        value_name = "MEMBERS",
        value_delimiter = ',',
        conflicts_with = "last"
    )]
    pub count_by: Vec<CountBy>,
    /// At most this many rows
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// The latest rows instead of all
    #[arg(long, value_name = "N", conflicts_with = "limit")]
    pub last: Option<usize>,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub record: RecordArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Members of a record by which calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CountBy {
    Agent,
    Server,
    Tool,
    Action,
    Verdict,
    Step,
    Rule,
    Reason,
    Outcome,
    Client,
    Kind,
}

impl CountBy {
    /// The member's name in a record.
    pub fn as_str(self) -> &'static str {
        match self {
            CountBy::Agent => "agent",
            CountBy::Server => "server",
            CountBy::Tool => "tool",
            CountBy::Action => "action",
            CountBy::Verdict => "verdict",
            CountBy::Step => "step",
            CountBy::Rule => "rule",
            CountBy::Reason => "reason",
            CountBy::Outcome => "outcome",
            CountBy::Client => "client",
            CountBy::Kind => "kind",
        }
    }
}

/// Write records for other systems, one a line
///
/// `jsonl` has the records as they are. `csv` has one row per call, with its outcome; a cell that a
/// spreadsheet could take for a formula begins with '. In `cef`, an outcome is an event of its own, with the
/// agent, server and tool of its call.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward audit export --format csv --output decisions.csv
  toolward audit export --format cef --since 1d | logger
  toolward audit export --format jsonl --agent reviewer")]
pub struct ExportArgs {
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: ExportFormat,
    /// A new file; without it: standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub record: RecordArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    Jsonl,
    Csv,
    /// ArcSight's Common Event Format
    Cef,
}

/// Follow the record: calls, refusals, lists as they come
///
/// A call is shown when it has ended; one that takes longer than a second also before.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward tail
  toolward tail --verdict deny
  toolward tail -n 100 --no-follow --json")]
pub struct TailArgs {
    /// So many rows that are there already come first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub lines: usize,
    /// Do not wait for more
    #[arg(long)]
    pub no_follow: bool,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub record: RecordArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
