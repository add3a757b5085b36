//! Rejected credentials in the log, at a bounded rate.
//!
//! Anyone can send any number of wrong credentials: the log gets one line per source and reason in
//! each minute, and the next line has the number of suppressed ones. The audit log counts all of
//! them. A line never contains the credential.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::lock::LockUnpoisoned;

/// There is one line per source and reason in this time.
const WINDOW: Duration = Duration::from_secs(60);
/// The maximum number of sources and reasons; all others share one line.
const MAX_SOURCES: usize = 256;
const OTHERS: &str = "others";

/// Logs rejected credentials.
#[derive(Debug, Default)]
pub struct RejectedCredentials(Mutex<HashMap<(String, &'static str), Window>>);

#[derive(Debug)]
struct Window {
    since: Instant,
    suppressed: u64,
}

impl RejectedCredentials {
    /// Logs that a credential was rejected, unless the same was logged within the last minute.
    pub fn log(&self, source: &str, reason: &'static str) {
        let Some((source, suppressed)) = self.admit(source, reason, Instant::now()) else { return };
        match suppressed {
            0 => tracing::warn!(target: "authn", source, "credential rejected: {reason}"),
            _ => {
                tracing::warn!(target: "authn", source, suppressed, "credential rejected: {reason}")
            }
        }
    }

    /// The source to log, and the number of rejections suppressed before this one. `None`:
    /// suppressed.
    fn admit(&self, source: &str, reason: &'static str, now: Instant) -> Option<(String, u64)> {
        let mut windows = self.0.locked();
        let mut key = (source.to_string(), reason);
        if !windows.contains_key(&key) && windows.len() >= MAX_SOURCES {
            windows.retain(|_, window| now.duration_since(window.since) < WINDOW);
            if windows.len() >= MAX_SOURCES {
                key.0 = OTHERS.into();
            }
        }
        let (source, _) = key.clone();
        match windows.get_mut(&key) {
            Some(window) if now.duration_since(window.since) < WINDOW => {
                window.suppressed += 1;
                None
            }
            Some(window) => {
                let suppressed = std::mem::take(&mut window.suppressed);
                window.since = now;
                Some((source, suppressed))
            }
            None => {
                windows.insert(key, Window { since: now, suppressed: 0 });
                Some((source, 0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHY: &str = "the token is not known";

    #[test]
    fn a_source_has_one_line_a_minute_for_each_reason_and_the_next_one_has_the_count() {
        let (log, start) = (RejectedCredentials::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(log.admit("a", WHY, at(0)), Some(("a".into(), 0)));
        assert_eq!(log.admit("a", "the token has expired", at(0)), Some(("a".into(), 0)));
        assert_eq!(log.admit("b", WHY, at(0)), Some(("b".into(), 0)));
        assert_eq!(log.admit("a", WHY, at(1)), None);
        assert_eq!(log.admit("a", WHY, at(59)), None);
        assert_eq!(log.admit("a", WHY, at(60)), Some(("a".into(), 2)));
        assert_eq!(log.admit("a", WHY, at(61)), None);
    }

    #[test]
    fn many_sources_take_a_bounded_amount_of_memory_and_share_one_line() {
        let (log, start) = (RejectedCredentials::default(), Instant::now());
        let sources: Vec<String> = (0..MAX_SOURCES + 100).map(|at| at.to_string()).collect();
        let lines = sources.iter().filter_map(|source| log.admit(source, WHY, start));
        let lines: Vec<_> = lines.collect();
        assert_eq!(lines.len(), MAX_SOURCES + 1);
        assert_eq!(lines.last(), Some(&(OTHERS.into(), 0)));
        assert!(log.0.locked().len() <= MAX_SOURCES + 1);
        // Sources that were quiet for a minute are evicted.
        assert_eq!(log.admit("new", WHY, start + WINDOW), Some(("new".into(), 0)));
        assert_eq!(log.0.locked().len(), 1);
    }
}
