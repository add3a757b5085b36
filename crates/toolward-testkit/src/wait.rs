//! Waiting in tests.
//!
//! A test never sleeps for a guessed time and never asserts how long something took: both fail on a
//! busy machine. It waits for a named condition, so that a timeout shows what did not happen.
//!
//! ```
//! use toolward_testkit::wait::eventually;
//!
//! let mut polls = 0;
//! eventually("the third poll succeeds", || {
//!     polls += 1;
//!     polls == 3
//! });
//! let value = eventually("there is a value", || Some(7));
//! assert_eq!(value, 7);
//! ```

use std::time::{Duration, Instant};

/// Far longer than anything takes, so that only a condition that never becomes true times out.
pub const TIMEOUT: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The result of a poll: a `bool`, or an `Option` with the value that was waited for.
pub trait Poll {
    type Value;
    fn ready(self) -> Option<Self::Value>;
}

impl Poll for bool {
    type Value = ();
    fn ready(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Poll for Option<T> {
    type Value = T;
    fn ready(self) -> Option<T> {
        self
    }
}

/// Polls until the condition is true and returns its value; panics after [`TIMEOUT`], naming what
/// is missing.
pub fn eventually<P: Poll>(what: &str, mut poll: impl FnMut() -> P) -> P::Value {
    let begun = Instant::now();
    loop {
        if let Some(value) = poll().ready() {
            return value;
        }
        assert!(begun.elapsed() < TIMEOUT, "timed out after {TIMEOUT:?}: {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Polls for some time and panics if the condition is ever false.
///
/// For events that must not happen. On a busy machine there are fewer polls, which can hide a
/// failure but not cause one.
pub fn always(what: &str, during: Duration, mut poll: impl FnMut() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < during {
        assert!(poll(), "no longer true after {:?}: {what}", begun.elapsed());
        std::thread::sleep(POLL_INTERVAL);
    }
}
