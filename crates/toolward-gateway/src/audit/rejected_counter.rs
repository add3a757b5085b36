//! Requests that are counted and not recorded one by one: anyone can send them, and as many as they
//! like.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hashbrown::HashMap;

use super::facts::Facts;
use super::lock;

/// How long they are counted before they are told.
pub(super) const SPAN: Duration = Duration::from_secs(1);

/// So many sources and reasons are told apart in a span. All others are told as one.
const MOST_SOURCES: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Crowd(Mutex<HashMap<(Source, &'static str), u64>>);

/// Who sent a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    Agent(Arc<str>),
    /// Where the request comes from, where nobody knows who sent it.
    Place(String),
}

impl Source {
    /// What stands for those beyond the ones that are told apart.
    fn others() -> Source {
        Source::Place("others".into())
    }
}

impl Crowd {
    /// Counts one. True for the first of a span: somebody has to tell them when it is over.
    pub(super) fn count(&self, source: Source, why: &'static str) -> bool {
        let mut counted = lock(&self.0);
        let first = counted.is_empty();
        let mut key = (source, why);
        if !counted.contains_key(&key) && counted.len() >= MOST_SOURCES {
            key.0 = Source::others();
        }
        *counted.entry(key).or_default() += 1;
        first
    }

    /// What was counted, as records.
    pub(super) fn take(&self) -> Vec<Facts> {
        let counted = std::mem::take(&mut *lock(&self.0));
        let mut counted: Vec<_> = counted.into_iter().collect();
        counted.sort();
        let told = |((source, why), count): ((Source, &'static str), u64)| {
            let mut facts = Facts::default();
            match &source {
                Source::Agent(agent) => facts.text("agent", agent),
                Source::Place(place) => facts.text("source", place),
            }
            facts.text("reason", why);
            facts.number("count", count);
            facts
        };
        counted.into_iter().map(told).collect()
    }
}

/// Where a request comes from, as it is counted. Whoever has a network of IPv6 has all its addresses.
pub(crate) fn source(peer: IpAddr) -> String {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}
