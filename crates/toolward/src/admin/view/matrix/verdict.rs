//! Verdicts of the matrix, one byte each: a table can have a million cells.

use std::sync::Arc;

use toolward_policy::Verdict;

pub(super) const ALLOW: u8 = 0;
pub(super) const DEPENDS: u8 = 1;
pub(super) const ASK: u8 = 2;
pub(super) const DENY: u8 = 3;
/// The policy does not deny it, but its definition is not the approved one.
pub(super) const QUARANTINED: u8 = 4;

/// Whether agents cannot use an entry.
pub(super) fn is_closed(verdict: u8) -> bool {
    matches!(verdict, DENY | QUARANTINED)
}

pub(super) fn byte(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Allow => ALLOW,
        Verdict::Depends => DEPENDS,
        Verdict::Ask => ASK,
        Verdict::Deny => DENY,
    }
}

/// The callers that have a column; `None`: unnamed callers.
pub(super) type Agents = Arc<Vec<Option<String>>>;

/// One entry for one agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MatrixCell {
    pub(super) verdict: u8,
    /// The index of its guards among those of the group; 0: none.
    pub(super) guards: u16,
    /// The verdict before the last reload, if it was different.
    pub(super) before: Option<u8>,
}
