//! `limits` and `hooks`, resolved.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toolward_policy::Rate;

use super::secret::Secret;

/// `limits`: the store that counts calls, and the global rate limits.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    pub store: Store,
    pub on_store_error: OnStoreError,
    /// The store's response timeout; `None`: the default.
    pub timeout: Option<Duration>,
    /// The store's connect timeout; `None`: the default.
    pub connect_timeout: Option<Duration>,
    pub rates: Rates,
}

#[derive(Debug, Clone, Default)]
pub enum Store {
    #[default]
    Memory,
    /// A URL, possibly with a password.
    Redis(Secret),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnStoreError {
    #[default]
    Deny,
    Memory,
}

/// The limits of an agent, a server, or everyone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rates {
    pub calls: Option<Rate>,
    pub lists: Option<Rate>,
    pub refused: Option<Rate>,
    /// By `server/tool` pattern; of a server, by tool pattern.
    pub tools: Vec<(String, Rate)>,
}

impl Rates {
    pub fn is_empty(&self) -> bool {
        *self == Rates::default()
    }
}

/// The limits of agents, as one file gives them.
#[derive(Debug, Clone)]
pub struct AgentLimits {
    pub file: String,
    /// All agents of the file, including those without limits, which are exempt from `default`.
    pub agents: Vec<(String, Rates)>,
}

/// A program or service that is asked before a call is forwarded and can refuse it.
#[derive(Debug, Clone)]
pub struct Hook {
    pub name: String,
    pub kind: HookKind,
    pub priority: u8,
    pub critical: bool,
    pub timeout: Duration,
    /// The maximum time from the start of a persistent process to its first response.
    pub start_timeout: Duration,
    pub enabled: bool,
    pub arguments: bool,
    pub env: Vec<(String, Secret)>,
    /// Names and patterns of the gateway's own variables.
    pub pass_env: Vec<String>,
    /// `None`: all of them.
    pub agents: Option<Vec<String>>,
    pub servers: Option<Vec<String>>,
    pub tools: Option<Vec<String>>,
}

#[derive(Debug, Clone)]
pub enum HookKind {
    Exec { program: String, args: Vec<String>, persistent: bool },
    PolicySh(PathBuf),
    Http(Secret),
}

/// The default of a hook's `timeout`.
pub(crate) const HOOK_TIMEOUT: Duration = Duration::from_secs(2);
/// The default of a hook's `start_timeout`.
pub(crate) const HOOK_START_TIMEOUT: Duration = Duration::from_secs(30);

impl Hook {
    /// A hook with default settings.
    pub(crate) fn new(name: String, kind: HookKind) -> Hook {
        Hook {
            name,
            kind,
            priority: 50,
            critical: true,
            timeout: HOOK_TIMEOUT,
            start_timeout: HOOK_START_TIMEOUT,
            enabled: true,
            arguments: false,
            env: Vec::new(),
            pass_env: Vec::new(),
            agents: None,
            servers: None,
            tools: None,
        }
    }

    /// A hook for a program that was given as a policy file.
    pub(crate) fn of_script(path: &Path, content: &[u8]) -> Hook {
        let function = b"mcp_tools_policy_check";
        let is_policy = content.windows(function.len()).any(|window| window == function);
        let kind = match is_policy && !content.starts_with(b"\x7fELF") {
            true => HookKind::PolicySh(path.to_owned()),
            false => {
                let written = path.to_string_lossy().into_owned();
                let here = if written.contains('/') { written } else { format!("./{written}") };
                HookKind::Exec { program: here, args: Vec::new(), persistent: false }
            }
        };
        Hook::new(path.display().to_string(), kind)
    }
}
