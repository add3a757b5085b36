//! Free space on the disk of the audit log, and a warning before the disk is full.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Audit;

/// The default reserve, in bytes.
pub const DEFAULT: u64 = 256 << 20;
/// The interval between checks of the disk.
const INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Space {
    reserve: u64,
    begun: Instant,
    /// When the disk is checked next, in milliseconds since the start.
    next: AtomicU64,
    low: AtomicBool,
}

impl Space {
    pub(super) fn new(reserve: u64) -> Space {
        let (next, low) = Default::default();
        Space { reserve, begun: Instant::now(), next, low }
    }

    /// Checks the disk if that is due. Returns the free bytes if they have fallen below the reserve
    /// or risen above it.
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

/// The bytes that an unprivileged user can still write.
fn free(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

impl Audit {
    /// Whether the disk of the log has less free space than the reserve.
    pub fn is_low_on_space(&self) -> bool {
        self.look_at_space();
        self.space.low.load(Ordering::Relaxed)
    }

    /// Logs when free space falls below the reserve, and when it has recovered.
    pub(super) fn look_at_space(&self) {
        let Some(free) = self.space.look(self.folder()) else { return };
        let (free, reserve) = (free >> 20, self.space.reserve >> 20);
        match self.space.low.load(Ordering::Relaxed) {
            true => tracing::warn!(
                target: "audit",
                "the disk of the audit log has {free} MiB free, less than the reserve of {reserve} MiB; \
                 calls are refused when it is full"
            ),
            false => tracing::info!(
                target: "audit",
                "the disk of the audit log has enough free space again: {free} MiB"
            ),
        }
    }
}
