//! The store in Redis, in a build without the feature `redis`: a configuration that needs it is rejected.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::counters::{Full, Pace};

/// Why a configuration with a Redis server is rejected.
pub(in crate::guard) const MISSING: &str = "this build has no support for Redis";

/// A store that cannot exist.
pub struct Redis(Infallible);

/// Timeouts of a store.
#[derive(Debug, Clone, Copy)]
pub struct StoreTimeouts {
    /// Of a request.
    pub request: Duration,
    /// Of connecting and logging in.
    pub connect: Duration,
}

/// Why the store could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::guard) struct Unreachable(Infallible);

impl fmt::Display for Unreachable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

/// Consumed units, which cannot exist.
#[derive(Debug)]
pub(in crate::guard) struct ConsumedUnits(Infallible);

impl Redis {
    pub fn new(_: &str, _: StoreTimeouts) -> Result<Redis, String> {
        Err(MISSING.into())
    }

    pub fn falling_back(self, _: bool) -> Redis {
        match self.0 {}
    }

    pub(in crate::guard) async fn take(
        &self,
        _: Vec<(Arc<str>, Pace)>,
    ) -> Result<Result<ConsumedUnits, Full>, Unreachable> {
        match self.0 {}
    }

    pub(in crate::guard) fn give_back(&self, taken: ConsumedUnits) {
        match taken.0 {}
    }
}
