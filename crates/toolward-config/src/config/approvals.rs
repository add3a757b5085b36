//! `approvals` and `admins`, resolved.

use std::time::Duration;

use super::Token;
use super::secret::Secret;
use crate::diagnostics::text::Mark;

/// How calls wait for a person.
#[derive(Debug, Clone)]
pub struct Approvals {
    /// How long a call is kept open.
    pub hold: Duration,
    /// How long a person may take.
    pub ttl: Duration,
    /// The longest grant that can be given.
    pub max_grant: Duration,
    /// A store that gateways share; `None`: that of `state`.
    pub store: Option<Secret>,
    pub notify: Vec<Notify>,
}

impl Default for Approvals {
    fn default() -> Self {
        Approvals {
            hold: Duration::from_secs(45),
            ttl: Duration::from_secs(600),
            max_grant: Duration::from_secs(7 * 86_400),
            store: None,
            notify: Vec::new(),
        }
    }
}

/// How approvers learn about a call that waits for them.
#[derive(Debug, Clone)]
pub struct Notify {
    pub channel: NotifyChannel,
    /// The notification contains the call's arguments.
    pub arguments: bool,
}

#[derive(Debug, Clone)]
pub enum NotifyChannel {
    /// A program and its arguments; it gets a summary on its input.
    Exec {
        program: String,
        args: Vec<String>,
    },
    Http {
        url: Secret,
        format: NotifyFormat,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotifyFormat {
    Json,
    Slack,
    Ntfy,
}

/// A person who may use the admin UI.
#[derive(Debug, Clone)]
pub struct Admin {
    pub name: String,
    pub tokens: Vec<Token>,
    /// `SERVER/TOOL` patterns of calls that they may approve.
    pub approve: Vec<String>,
    /// They may change policy files.
    pub edit: bool,
    pub mark: Mark,
}
