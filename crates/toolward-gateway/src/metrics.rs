//! Metrics: hits of rules, calls and failures of servers.
//!
//! Each thread counts in its own slot, nothing is allocated on the request path, and sums are
//! computed when they are read.
//!
//! | module | counts |
//! |---|---|
//! | [`rule_hits`] | calls decided by each rule of a policy |
//! | [`unlisted`] | calls of names that the agent's listing does not contain |
//! | [`calls`] | calls of one server: number, duration, failures |
//! | [`lifecycle`] | starts and failures of one server |
//! | [`series`] | requests, calls, decisions and refusals by label, for `/metrics` |

pub mod calls;
pub mod lifecycle;
mod per_thread;
pub(crate) mod rule_hits;
pub mod series;
pub mod shadow;
pub mod unlisted;

pub(crate) use self::per_thread::{SLOTS, slot};
