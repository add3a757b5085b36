//! Keeps one timer registered at all times, which saves a system call per request.

use std::time::Duration;

/// Shorter than the timeout of a call.
const TIMER_INTERVAL: Duration = Duration::from_secs(15);

/// Keeps a timer on this thread as long as its runtime lives.
///
/// The runtime wakes itself with a system call whenever a timer is registered that is due before all
/// others. Without this timer, that would be the timeout of every call that is alone.
pub(super) fn keep_time() {
    tokio::spawn(async {
        loop {
            tokio::time::sleep(TIMER_INTERVAL).await;
        }
    });
}
