//! Per-thread values, so that counting takes no lock and shares no cache line.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads beyond this number share slots.
pub(crate) const SLOTS: usize = 64;

/// The slot of the current thread.
pub(crate) fn slot() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static SLOT: usize = THREADS.fetch_add(1, Ordering::Relaxed) % SLOTS);
    SLOT.with(|slot| *slot)
}

/// One `T` per thread, created on first use.
#[derive(Debug)]
pub(super) struct PerThread<T>(pub(super) Box<[OnceLock<T>]>);

impl<T> Default for PerThread<T> {
    fn default() -> Self {
        PerThread((0..SLOTS).map(|_| OnceLock::new()).collect())
    }
}

impl<T> PerThread<T> {
    /// The value of the current thread.
    pub(super) fn own(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.0.get(slot()).map(|slot| slot.get_or_init(make))
    }

    /// The values of all threads.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(OnceLock::get)
    }
}
