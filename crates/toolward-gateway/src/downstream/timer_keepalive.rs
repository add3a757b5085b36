//! A timer that is always there.

use std::time::Duration;

/// Shorter than the time that calls have.
const EVERY: Duration = Duration::from_secs(15);

/// Keeps a timer on this thread for as long as its runtime lives.
///
/// The runtime wakes itself up, by a system call, for each timer that is due before all others. That
/// would be the timer of every call that is alone.
pub(super) fn keep_time() {
    tokio::spawn(async {
        loop {
            tokio::time::sleep(EVERY).await;
        }
    });
}
