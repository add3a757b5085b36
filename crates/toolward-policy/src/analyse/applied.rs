//! A rule together with how it applies.

use crate::layer::Rule;
use crate::source::Case;

/// A rule that applies to an agent on a server.
#[derive(Clone, Copy)]
pub(super) struct Applied<'p> {
    pub(super) rule: &'p Rule,
    pub(super) case: Case,
    /// It also matches `SERVER.NAME`.
    pub(super) qualified: bool,
    pub(super) deny: bool,
}
