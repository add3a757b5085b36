//! Decision ids: `TIME-PROCESS-UNIQUE`, each in hexadecimal digits.

use std::hash::{BuildHasher, RandomState};
use std::io::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};

use super::line::write_hex_number;
use crate::clock::micros;

/// If the clock is further behind than this, in microseconds, it was set back.
const SET_BACK: u64 = 1_000_000;

/// Ids that sort by time and differ between processes.
///
/// Clients see the ids of their own refusals, so an id must not reveal how many decisions others
/// caused: it contains no counter. The time of an id is later than that of the previous one, and
/// the last part is a keyed hash, so that no id can be derived from another.
#[derive(Debug)]
pub(super) struct Ids {
    process: u32,
    /// The time of the last id.
    last: AtomicU64,
    /// The number of ids, which is hashed so that ids differ even after the clock was set back.
    made: AtomicU64,
    /// A random key of this process.
    key: RandomState,
}

impl Ids {
    pub(super) fn new() -> Result<Ids> {
        let mut process = [0; 4];
        getrandom::fill(&mut process).map_err(|error| Error::other(error.to_string()))?;
        let (last, made) = Default::default();
        Ok(Ids { process: u32::from_le_bytes(process), last, made, key: RandomState::new() })
    }

    pub(super) fn next(&self) -> String {
        let time = self.time();
        let mut id = Vec::with_capacity(36);
        write_hex_number(time, 12, &mut id);
        id.push(b'-');
        write_hex_number(self.process.into(), 8, &mut id);
        id.push(b'-');
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        write_hex_number(self.key.hash_one((time, made)) & 0xffff_ffff_ffff, 12, &mut id);
        String::from_utf8(id).unwrap_or_default()
    }

    /// Microseconds since 1970, later than before. A clock that was set back is followed:
    /// incrementing the later time would reveal how many ids were created.
    fn time(&self) -> u64 {
        let now = micros();
        let next = |last: u64| if last > now + SET_BACK { now } else { now.max(last + 1) };
        let order = Ordering::Relaxed;
        self.last.fetch_update(order, order, |last| Some(next(last))).map_or(now, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_do_not_count() {
        let ids = Ids::new().unwrap();
        let made: Vec<String> = (0..1000).map(|_| ids.next()).collect();
        assert!(made.is_sorted_by(|one, next| one < next));
        let last = |id: &str| u64::from_str_radix(id.rsplit('-').next().unwrap(), 16).unwrap();
        let rising = made.windows(2).filter(|two| last(&two[0]) < last(&two[1])).count();
        assert!((300..700).contains(&rising), "{rising} of 1000 rise");
        let shape = made[0].split('-').map(str::len).collect::<Vec<_>>();
        assert_eq!(shape, [12.max(shape[0]), 8, 12]);
    }

    #[test]
    fn threads_and_processes_never_make_the_same_id() {
        let (one, other) = (Ids::new().unwrap(), Ids::new().unwrap());
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = [&one, &one, &other]
                .map(|ids| scope.spawn(|| (0..5000).map(|_| ids.next()).collect::<Vec<_>>()))
                .into();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let different: std::collections::HashSet<&String> = all.iter().collect();
        assert_eq!(different.len(), 15_000);
    }
}
