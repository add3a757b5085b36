//! Rejected requests, which are counted rather than recorded one by one: anyone can send any number
//! of them.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hashbrown::HashMap;

use super::facts::Facts;
use super::lock;

/// How long requests are counted before the count is recorded.
pub(super) const SPAN: Duration = Duration::from_secs(1);

/// The maximum number of sources and reasons per span. All others are counted together.
const MAX_SOURCES: usize = 32;

#[derive(Debug, Default)]
pub(super) struct RejectedRequests(Mutex<HashMap<(Source, &'static str), u64>>);

/// The sender of a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    Agent(Arc<str>),
    /// The address of an unauthenticated sender.
    Place(String),
}

impl Source {
    /// All sources beyond the maximum.
    fn others() -> Source {
        Source::Place("others".into())
    }
}

impl RejectedRequests {
    /// Counts a request. True for the first of a span: the caller has to schedule its record.
    pub(super) fn count(&self, source: Source, why: &'static str) -> bool {
        let mut counted = lock(&self.0);
        let first = counted.is_empty();
        let mut key = (source, why);
        if !counted.contains_key(&key) && counted.len() >= MAX_SOURCES {
            key.0 = Source::others();
        }
        *counted.entry(key).or_default() += 1;
        first
    }

    /// The counts as records.
    pub(super) fn take(&self) -> Vec<Facts> {
        let counted = std::mem::take(&mut *lock(&self.0));
        let mut counted: Vec<_> = counted.into_iter().collect();
        counted.sort();
        let facts_of = |((source, why), count): ((Source, &'static str), u64)| {
            let mut facts = Facts::default();
            match &source {
                Source::Agent(agent) => facts.text("agent", agent),
                Source::Place(place) => facts.text("source", place),
            }
            facts.text("reason", why);
            facts.number("count", count);
            facts
        };
        counted.into_iter().map(facts_of).collect()
    }
}

/// The source of a request for counting. For IPv6 it is the /64 network: a sender has all its
/// addresses.
pub(crate) fn source(peer: IpAddr) -> String {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}
