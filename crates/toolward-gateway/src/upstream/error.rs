//! Errors of connections to servers.

use toolward_wire::Id;

use crate::responses::{self, Answer};

/// Why a server cannot be used now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unavailable {
    Down(String),
    /// Its program cannot be started, and will not be until the configuration or the system changes.
    Unstartable(String),
    /// It is there, and does not speak the era it was asked in.
    OtherEra,
    /// It ended or failed when it was asked in this era, for whatever reason.
    Unclear,
    /// It is there, and speaks HTTP+SSE of 2024-11-05.
    OldTransport,
    /// It has not listed its tools yet.
    Slow,
    /// So many of its processes are in use, and there may be no more.
    Full(usize),
    /// The session's process was ended to make room for another session.
    Evicted,
    /// It does not take the gateway's credentials, and says so by this status.
    Refuses(u16),
}

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unavailable::Down(why) | Unavailable::Unstartable(why) => f.write_str(why),
            Unavailable::OtherEra => f.write_str("it speaks no revision that is known here"),
            Unavailable::Unclear => f.write_str("it ended or failed when it was asked"),
            Unavailable::OldTransport => f.write_str("it speaks HTTP+SSE of 2024-11-05"),
            Unavailable::Slow => f.write_str("it has not answered `tools/list` yet"),
            Unavailable::Refuses(status) => {
                write!(f, "it refuses the gateway's credentials ({status})")
            }
            Unavailable::Evicted => f.write_str(
                "the session's process was ended to make room for another; begin a new session",
            ),
            Unavailable::Full(most) => {
                write!(f, "all of its processes are busy, and `max_children` allows {most}")
            }
        }
    }
}

impl Unavailable {
    /// The server may be there for whoever asks otherwise.
    pub(super) fn is_otherwise(&self) -> bool {
        matches!(self, Unavailable::OtherEra | Unavailable::OldTransport | Unavailable::Unclear)
    }

    /// Whether a client may succeed with the same request a little later. If not, an operator has to act.
    pub fn is_retryable(&self) -> bool {
        match self {
            Unavailable::Down(_)
            | Unavailable::Unclear
            | Unavailable::Slow
            | Unavailable::Full(_)
            | Unavailable::Evicted => true,
            Unavailable::Unstartable(_)
            | Unavailable::OtherEra
            | Unavailable::OldTransport
            | Unavailable::Refuses(_) => false,
        }
    }

    /// The reason for the log, if the server failed rather than answered.
    pub(super) fn failure(&self) -> Option<&str> {
        match self {
            Unavailable::Down(why) | Unavailable::Unstartable(why) => Some(why),
            _ => None,
        }
    }

    /// What a client may read of it. Commands and addresses are the operator's.
    pub fn public(&self) -> Unavailable {
        match self {
            Unavailable::Down(_) => Unavailable::Down("it cannot be reached now".into()),
            Unavailable::Unstartable(_) => Unavailable::Unstartable("it cannot be started".into()),
            other => other.clone(),
        }
    }

    /// The response to a request that needs the server. Not a matter of policy.
    pub(crate) fn response(&self, id: &Id, server: &str) -> Answer {
        let message = format!("{server}: {self}");
        responses::internal(id, "server_unavailable", &message, self.is_retryable())
    }

    /// One word for `_meta` and the record.
    pub fn word(&self) -> &'static str {
        match self {
            Unavailable::Down(_) | Unavailable::Unstartable(_) => "unavailable",
            Unavailable::Unclear | Unavailable::Refuses(_) => "unavailable",
            Unavailable::OtherEra | Unavailable::OldTransport => "unknown-revision",
            Unavailable::Slow => "starting",
            Unavailable::Full(_) | Unavailable::Evicted => "busy",
        }
    }
}
