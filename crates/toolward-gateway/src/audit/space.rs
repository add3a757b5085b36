//! Free space on the disk of the audit log, and a warning before the disk is full.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Audit;

/// The default reserve, in bytes.
pub const DEFAULT: u64 = 256 << 20;
/// How often the disk is looked at.
const INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Space {
    reserve: u64,
    begun: Instant,
    /// When the disk is looked at next, in milliseconds since the beginning.
    next: AtomicU64,
    low: AtomicBool,
}

impl Space {
    pub(super) fn new(reserve: u64) -> Space {
        let (next, low) = Default::default();
        Space { reserve, begun: Instant::now(), next, low }
    }

    /// Looks at the disk, if that is due. Gives the free bytes where they have fallen below the reserve or
    /// risen above it.
    fn look(&self, folder: &Path) -> Option<u64> {
        let now = self.millis(self.begun.elapsed());
        let (next, order) = (self.next.load(Ordering::Relaxed), Ordering::Relaxed);
        let due = now + self.millis(INTERVAL);
        if now < next || self.next.compare_exchange(next, due, order, order).is_err() {
            return None;
        }
        let free = free(folder)?;
        let low = free < self.reserve;
        (self.low.swap(low, Ordering::Relaxed) != low).then_some(free)
    }

    fn millis(&self, time: Duration) -> u64 {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Bytes that an ordinary user can still write.
fn free(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

impl Audit {
    /// Whether less space than the reserve is left on the disk of the log.
    pub fn is_low_on_space(&self) -> bool {
        self.look_at_space();
        self.space.low.load(Ordering::Relaxed)
    }

    /// Logs when the reserve is reached, and when there is more space again.
    pub(super) fn look_at_space(&self) {
        let Some(free) = self.space.look(self.folder()) else { return };
        let (free, reserve) = (free >> 20, self.space.reserve >> 20);
        match self.space.low.load(Ordering::Relaxed) {
            true => tracing::warn!(
                target: "audit",
                "{free} MiB are left on the disk of the audit log, less than the reserve of {reserve} MiB; \
                 calls are refused when it is full"
            ),
            false => tracing::info!(
                target: "audit",
                "there is enough space for the audit log again: {free} MiB"
            ),
        }
    }
}
