//! Size limits of responses.

use std::io;
use std::sync::Arc;

use toolward_policy::selector::Glob;

use crate::budget::{RESULT_ROOM, Reservation};
use crate::http_client::MAX_READ_BYTES;

/// The maximum sizes of a server's tool results, in bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Caps {
    /// By tool; the first match applies.
    pub by_tool: Vec<(Glob, usize)>,
    /// For other tools; `None`: only the general limit on responses applies.
    pub otherwise: Option<usize>,
}

impl Caps {
    pub(super) fn of(&self, tool: &str) -> Option<usize> {
        let named = self.by_tool.iter().find(|(glob, _)| glob.matches(tool));
        named.map(|(_, most)| *most).or(self.otherwise)
    }
}

/// The maximum size of a response, and the memory reserved for it.
#[derive(Debug, Clone)]
pub(super) struct Allowance {
    pub(super) longest: usize,
    /// Grows as the response arrives. `None`: the response is not held for a client.
    pub(super) room: Option<Arc<Reservation>>,
}

impl From<usize> for Allowance {
    fn from(longest: usize) -> Allowance {
        Allowance { longest, room: None }
    }
}

impl Allowance {
    /// Reserves memory for the bytes held and for the next read; waits until there is enough.
    pub(super) async fn hold(&self, held: usize) {
        if let Some(room) = &self.room {
            room.grow_to(held.saturating_add(MAX_READ_BYTES)).await;
        }
    }

    /// Reserves memory for a response of known length; waits until there is enough.
    pub(super) async fn hold_all(&self, length: u64) {
        if let (Some(room), Ok(length)) = (&self.room, usize::try_from(length)) {
            room.grow_to(length).await;
        }
    }

    /// Releases the memory that the bytes held do not need.
    pub(super) fn release(&self, held: usize) {
        if let Some(room) = &self.room {
            room.shrink_to(held.saturating_add(MAX_READ_BYTES).max(RESULT_ROOM));
        }
    }
}

/// A response that exceeds the limit, with its size if that is known. The rest of it is not read.
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

    /// The size error behind an I/O error, if it is one.
    pub(super) fn of(error: &io::Error) -> Option<&TooLarge> {
        error.get_ref()?.downcast_ref()
    }
}
