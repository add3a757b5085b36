//! How large an answer may be, and one that is larger.

use std::io;
use std::sync::Arc;

use toolward_policy::selector::Glob;

use crate::budget::{RESULT_ROOM, Reservation};
use crate::http_client::MAX_READ_BYTES;

/// The largest results of a server's tools, in bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Caps {
    /// By tool, first match.
    pub by_tool: Vec<(Glob, usize)>,
    /// Otherwise; `None`: as large as any answer.
    pub otherwise: Option<usize>,
}

impl Caps {
    pub(super) fn of(&self, tool: &str) -> Option<usize> {
        let named = self.by_tool.iter().find(|(glob, _)| glob.matches(tool));
        named.map(|(_, most)| *most).or(self.otherwise)
    }
}

/// How many bytes an answer may have, and the memory they take.
#[derive(Debug, Clone)]
pub(super) struct Allowance {
    pub(super) longest: usize,
    /// Grows as the answer arrives. `None`: the answer is not held for a client.
    pub(super) room: Option<Arc<Reservation>>,
}

impl From<usize> for Allowance {
    fn from(longest: usize) -> Allowance {
        Allowance { longest, room: None }
    }
}

impl Allowance {
    /// Makes room for the bytes that are held and those of the next read; waits until there is some.
    pub(super) async fn hold(&self, held: usize) {
        if let Some(room) = &self.room {
            room.grow_to(held.saturating_add(MAX_READ_BYTES)).await;
        }
    }

    /// Makes room for an answer of known length; waits until there is some.
    pub(super) async fn hold_all(&self, length: u64) {
        if let (Some(room), Ok(length)) = (&self.room, usize::try_from(length)) {
            room.grow_to(length).await;
        }
    }

    /// Gives back what is not needed for the bytes that are held.
    pub(super) fn release(&self, held: usize) {
        if let Some(room) = &self.room {
            room.shrink_to(held.saturating_add(MAX_READ_BYTES).max(RESULT_ROOM));
        }
    }
}

/// An answer with more bytes than may pass: so many, where that is known. Nothing more of it is read.
#[derive(Debug)]
pub(super) struct TooLarge {
    pub(super) size: Option<u64>,
}

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("its answer is too large")
    }
}

impl std::error::Error for TooLarge {}

impl TooLarge {
    pub(super) fn error(size: Option<u64>) -> io::Error {
        io::Error::other(TooLarge { size })
    }

    /// Whether that is what went wrong.
    pub(super) fn of(error: &io::Error) -> Option<&TooLarge> {
        error.get_ref()?.downcast_ref()
    }
}
