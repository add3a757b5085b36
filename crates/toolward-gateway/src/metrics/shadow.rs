//! Counts of calls about which shadow rules would have decided otherwise.

use std::sync::atomic::{AtomicU64, Ordering};

use toolward_policy::Verdict;

/// Calls by the verdict of shadow rules, since these rules were loaded.
#[derive(Debug, Default)]
pub struct ShadowCounts {
    deny: AtomicU64,
    ask: AtomicU64,
    allow: AtomicU64,
}

impl ShadowCounts {
    pub(crate) fn count(&self, would: Verdict) {
        let counter = match would {
            Verdict::Deny => &self.deny,
            Verdict::Ask => &self.ask,
            Verdict::Allow | Verdict::Depends => &self.allow,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// How many calls shadow rules would have denied, made a person approve, and allowed.
    pub fn totals(&self) -> [(&'static str, u64); 3] {
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [("deny", total(&self.deny)), ("ask", total(&self.ask)), ("allow", total(&self.allow))]
    }
}
