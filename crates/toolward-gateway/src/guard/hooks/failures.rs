//! Logs failures of a hook: the first few in full, further ones only as a count.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock::LockUnpoisoned;
/// Maximum number of log lines per window.
const MAX_LINES: u32 = 5;
const WINDOW: Duration = Duration::from_secs(10);

pub(super) struct Failures {
    /// The name of the hook.
    hook: String,
    window: Mutex<Window>,
}

struct Window {
    since: Instant,
    lines: u32,
    left_out: u64,
}

impl Failures {
    pub(super) fn new(hook: String) -> Failures {
        let window = Window { since: Instant::now(), lines: 0, left_out: 0 };
        Failures { hook, window: Mutex::new(window) }
    }

    pub(super) fn log(&self, failure: &str) {
        let mut window = self.window.locked();
        let now = Instant::now();
        if now.duration_since(window.since) >= WINDOW {
            let before =
                std::mem::replace(&mut *window, Window { since: now, lines: 0, left_out: 0 });
            if before.left_out > 0 {
                self.warn(format_args!("{failure} ({} more failures before)", before.left_out));
                window.lines = 1;
                return;
            }
        }
        window.lines += 1;
        match window.lines {
            ..MAX_LINES => self.warn(format_args!("{failure}")),
            MAX_LINES => {
                self.warn(format_args!("{failure} (further failures are counted for 10 seconds)"));
            }
            _ => window.left_out += 1,
        }
    }

    fn warn(&self, message: std::fmt::Arguments<'_>) {
        tracing::warn!(target: "guard", hook = self.hook, "{message}");
    }
}
