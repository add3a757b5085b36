//! Periods in which nothing is read from a server because a result waits for memory.
//!
//! Calls whose results come later on the same pipe are delayed as well. Their idle timeout is
//! suspended meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The stalls of one connection: a counter of their starts and ends, which is odd during a stall.
#[derive(Debug, Clone, Default)]
pub struct Stalls(Arc<AtomicU64>);

impl Stalls {
    pub(super) fn begin(&self) {
        self.0.fetch_or(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        let next = |count: u64| (count % 2 == 1).then_some(count + 1);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// A counter for [`any_since`](Self::any_since).
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether there is a stall now, or there was one since `count`.
    pub(crate) fn any_since(&self, count: u64) -> bool {
        let now = self.count();
        now % 2 == 1 || now != count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_seen_during_and_after_it() {
        let stalls = Stalls::default();
        let before = stalls.count();
        stalls.end();
        assert!(!stalls.any_since(before));
        stalls.begin();
        stalls.begin();
        assert!(stalls.any_since(before) && stalls.any_since(stalls.count()));
        stalls.end();
        assert!(stalls.any_since(before) && !stalls.any_since(stalls.count()));
    }
}
