//! Errors of connections to servers.

use std::io;

use toolward_wire::Id;

use super::oauth;
use crate::login::NeedsLogin;
use crate::responses::{self, Answer};

/// Why a server cannot be used now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unavailable {
    Down(String),
    /// Its program cannot be started, and will not be until the configuration or the system
    /// changes.
    Unstartable(String),
    /// It is running, and does not support the protocol version of the connection.
    OtherEra,
    /// It is running, and its process serves the other protocol version. Another process may serve this one.
    Taken,
    /// It exited or failed during the handshake, for an unknown reason.
    Unclear,
    /// It is running, and uses the HTTP+SSE transport of 2024-11-05.
    OldTransport,
    /// It has not listed its tools yet.
    Slow,
    /// The maximum number of processes are in use.
    Full(usize),
    /// The session's process was evicted in favor of another session.
    Evicted,
    /// It rejects the gateway's credentials, with this status.
    Refuses(u16),
    /// A person has to log in first.
    NeedsLogin(NeedsLogin),
    /// Its approved definitions are not known: the lock file cannot be used.
    Unpinned(String),
}

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unavailable::Down(why)
            | Unavailable::Unstartable(why)
            | Unavailable::Unpinned(why) => f.write_str(why),
            Unavailable::OtherEra => {
                f.write_str("it supports no protocol version that the gateway supports")
            }
            Unavailable::Taken => f.write_str("its process serves the other protocol version"),
            Unavailable::Unclear => f.write_str("it exited or failed during the handshake"),
            Unavailable::OldTransport => f.write_str("it uses the HTTP+SSE transport of 2024-11-05"),
            Unavailable::Slow => f.write_str("it has not answered `tools/list` yet"),
            Unavailable::Refuses(status) => {
                write!(f, "it rejects the gateway's credentials ({status})")
            }
            Unavailable::NeedsLogin(needs) => needs.fmt(f),
            Unavailable::Evicted => f.write_str(
                "the session's process was evicted in favor of another session; start a new session",
            ),
            Unavailable::Full(most) => {
                write!(f, "all of its processes are busy, and `max_children` allows {most}")
            }
        }
    }
}

impl Unavailable {
    /// An error of a connection.
    pub(super) fn down(error: &io::Error, why: String) -> Unavailable {
        match oauth::needs_login(error) {
            Some(needs) => Unavailable::NeedsLogin(needs.clone()),
            None => Unavailable::Down(why),
        }
    }

    /// Whether the server may be reachable in another protocol version or over another transport.
    pub(super) fn is_otherwise(&self) -> bool {
        matches!(
            self,
            Unavailable::OtherEra
                | Unavailable::Taken
                | Unavailable::OldTransport
                | Unavailable::Unclear
        )
    }

    /// Whether the server has neither responded nor failed.
    pub(super) fn is_pending(&self) -> bool {
        matches!(
            self,
            Unavailable::Slow
                | Unavailable::Taken
                | Unavailable::Full(_)
                | Unavailable::Evicted
                | Unavailable::NeedsLogin(_)
        )
    }

    /// Whether a client may succeed with the same request a little later. If not, an operator has
    /// to act.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Unavailable::Down(_)
            | Unavailable::Taken
            | Unavailable::Unclear
            | Unavailable::Slow
            | Unavailable::Full(_)
            | Unavailable::Evicted => true,
            Unavailable::Unstartable(_)
            | Unavailable::OtherEra
            | Unavailable::OldTransport
            | Unavailable::Refuses(_)
            | Unavailable::NeedsLogin(_)
            | Unavailable::Unpinned(_) => false,
        }
    }

    /// The reason for the log, if the server failed rather than answered.
    pub(super) fn failure(&self) -> Option<&str> {
        match self {
            Unavailable::Down(why) | Unavailable::Unstartable(why) => Some(why),
            _ => None,
        }
    }

    /// The error without commands and addresses, which only the operator may see.
    pub fn public(&self) -> Unavailable {
        match self {
            Unavailable::Down(_) => Unavailable::Down("it cannot be reached now".into()),
            Unavailable::Unstartable(_) => Unavailable::Unstartable("it cannot be started".into()),
            Unavailable::Unpinned(_) => {
                Unavailable::Unpinned("an operator has to approve its definitions".into())
            }
            other => other.clone(),
        }
    }

    /// The error response to a request that needs the server. It is not a policy decision.
    pub(crate) fn response(&self, id: &Id, server: &str) -> Answer {
        let message = format!("{server}: {self}");
        responses::internal(id, self.reason(), &message, self.is_retryable())
    }

    /// The reason in the error response.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Unavailable::NeedsLogin(_) => "needs_login",
            _ => "server_unavailable",
        }
    }

    /// One word for `_meta` and the audit record.
    pub fn word(&self) -> &'static str {
        match self {
            Unavailable::Down(_) | Unavailable::Unstartable(_) => "unavailable",
            Unavailable::Unclear | Unavailable::Refuses(_) => "unavailable",
            Unavailable::Unpinned(_) => "unavailable",
            Unavailable::NeedsLogin(_) => "needs_login",
            Unavailable::OtherEra | Unavailable::OldTransport => "unknown-revision",
            Unavailable::Slow | Unavailable::Taken => "starting",
            Unavailable::Full(_) | Unavailable::Evicted => "busy",
        }
    }
}
