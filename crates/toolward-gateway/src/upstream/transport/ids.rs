//! Ids of requests towards servers.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// Integers up to this are exact in every JSON parser.
const MASK: u64 = (1 << 53) - 1;

thread_local! {
    /// A keyed hash with a random key, and the number of ids created with it.
    static SOURCE: (RandomState, Cell<u64>) = (RandomState::new(), Cell::new(0));
}

/// An id for a request to a server. It cannot be guessed: where agents share a process, one agent
/// could otherwise make the server print a line that responds to another agent's request.
///
/// The id is a hash of a counter instead of a random number, which saves a system call per request.
/// The probability that two requests in flight get the same id is 2^-53.
pub(in crate::upstream) fn mint() -> u64 {
    SOURCE.with(|(key, count)| {
        count.set(count.get().wrapping_add(1));
        key.hash_one(count.get()) & MASK
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_are_not_in_a_row() {
        let ids: Vec<u64> = (0..1000).map(|_| mint()).collect();
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), ids.len());
        assert!(ids.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1));
        assert!(ids.iter().all(|id| *id <= MASK));
    }
}
