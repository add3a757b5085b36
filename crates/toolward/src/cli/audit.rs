//! Flags of the commands that read the audit log.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::OutputArgs;

/// Selects the audit log.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Audit log")]
pub struct RecordArgs {
    /// The directory of the audit log. Default: `audit.dir` of the configuration, or
    /// ~/.local/state/toolward/audit
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The configuration. Default: TOOLWARD_CONFIG, ./toolward.yaml,
    /// ~/.config/toolward/toolward.yaml
    #[arg(short, long, value_name = "FILE", conflicts_with = "dir")]
    pub config: Option<PathBuf>,
}

/// Filters of records. An outcome is matched through its call.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters")]
pub struct FilterArgs {
    /// Only this agent; '' for unnamed callers
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Only this server
    #[arg(long, value_name = "SERVER")]
    pub server: Option<String>,
    /// Only tools, prompts and resources whose original or exposed name, or URI, matches
    #[arg(long, value_name = "GLOB")]
    pub tool: Option<String>,
    /// Only calls with this verdict
    #[arg(long, value_enum, value_name = "VERDICT")]
    pub verdict: Option<RecordedVerdict>,
    /// Only calls about which shadow rules would have decided otherwise, with this verdict
    #[arg(long, value_enum, value_name = "VERDICT")]
    pub would: Option<RecordedVerdict>,
    /// Only records of this kind, e.g. intent, refusal, list, question, subscription, start; may be given
    /// several times
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

/// Verify, search and export the audit log
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
    Keygen(AuditKeygenArgs),
}

/// Check that no record was changed, removed, inserted or moved
///
/// Each record contains the hash of the previous one, and the head of a stream contains the hash of the
/// last. Every mismatch is reported. Exit code 0: the log is intact; 1: it is not; 3: there is no log, or
/// it cannot be read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward audit verify
  toolward audit verify --dir /var/lib/toolward/audit --json
  toolward audit verify --repair
  toolward audit verify --key ed25519:5f3c… --signatures /mnt/other/audit.signatures")]
pub struct VerifyArgs {
    /// Check the signatures of `audit.sign` with this public key, `ed25519:…`
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// The signatures to check, for example those of `audit.anchor`. Default: those next to the log
    #[arg(long, value_name = "FILE", requires = "key")]
    pub signatures: Option<PathBuf>,
    /// Remove an incomplete last line, and record the repair
    #[arg(long)]
    pub repair: bool,
    #[command(flatten)]
    pub record: RecordArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Create a key that signs the log: `audit.sign`
///
/// The file contains the private key, and only its owner can read it. The public key is printed, for
/// `toolward audit verify --key`: keep it where the gateway cannot write.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward audit keygen /etc/toolward/audit.key")]
pub struct AuditKeygenArgs {
    /// The file to create
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Search the audit log: one row per call, refusal, list or other event, oldest first
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward audit query --last 20
  toolward audit query --agent reviewer --server files --tool 'write_*'
  toolward audit query --verdict deny --since 2h --json
  toolward audit query --tool 'note:*'
  toolward audit query --kind turned-away --since 2026-07-28
  toolward audit query --arguments '{\"path\": \"/srv/a\"}'
  toolward audit query --count-by agent,tool --since 7d")]
pub struct QueryArgs {
    /// Only calls with these arguments, by the hash in the log: as given, compact, and with spaces as
    /// Python writes them
    #[arg(long, value_name = "JSON")]
    pub arguments: Option<String>,
    /// The state directory with the key of the hashes. Default: `state` of the configuration, or
    /// ~/.local/state/toolward
    #[arg(long, value_name = "DIR", requires = "arguments")]
    pub state: Option<PathBuf>,
    /// Count calls by these fields instead of listing them, largest first; with --kind or `kind`, also
    /// other records
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

/// Fields of a record by which calls are counted.
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
    /// The field's name in a record.
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

/// Export records for other systems, one per line
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
    /// A new file. Default: standard output
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
    /// Elastic Common Schema
    Ecs,
    /// Open Cybersecurity Schema Framework, class API Activity
    Ocsf,
}

/// Follow the audit log: calls, refusals and lists as they happen
///
/// A call is shown when it has completed; one that takes longer than a second also while in flight.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward tail
  toolward tail --verdict deny
  toolward tail -n 100 --no-follow --json")]
pub struct TailArgs {
    /// Show this many existing rows first
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
