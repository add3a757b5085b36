//! What has happened, in numbers, for people who look: how often each rule decided, and how servers
//! fare. Whoever calls must not feel it: each thread counts in a place of its own, nothing is
//! allocated on the way of a call, and sums are made when somebody asks.
//!
//! | part | is |
//! |---|---|
//! | [`hits`] | how many calls each rule of a policy decided |
//! | [`unseen`] | calls of names that an agent does not see |
//! | [`calls`] | calls of one server: how many, how long, how many failed |
//! | [`life`] | starts and failures of one server |

pub mod calls;
pub mod lifecycle;
pub mod rule_hits;
pub mod unlisted;

use std::sync::OnceLock;

use crate::audit::{SLOTS, slot};

/// One `T` for each thread that counts, made when it first does.
#[derive(Debug)]
struct PerThread<T>(Box<[OnceLock<T>]>);

impl<T> Default for PerThread<T> {
    fn default() -> Self {
        PerThread((0..SLOTS).map(|_| OnceLock::new()).collect())
    }
}

impl<T> PerThread<T> {
    /// That of the thread at hand.
    fn own(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.0.get(slot()).map(|slot| slot.get_or_init(make))
    }

    /// Those of all threads that have counted.
    fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(OnceLock::get)
    }
}
