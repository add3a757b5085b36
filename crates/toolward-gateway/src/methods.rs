//! Handlers of the protocol's methods, and the audit events they write.

pub mod events;
pub mod initialize;
pub mod meta_tools;
pub(crate) mod refusals;
