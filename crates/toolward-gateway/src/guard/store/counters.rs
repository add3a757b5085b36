//! Rate limits in memory (GCRA): for each limit the time at which it will be empty again, in nanoseconds.

use std::sync::{Mutex, MutexGuard, OnceLock};

use hashbrown::HashMap;
use tokio::time::Instant;
use toolward_policy::Rate;

use crate::lock::LockUnpoisoned;

/// Nanoseconds since the first use in this process.
pub(in crate::guard) fn now() -> u64 {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BEGUN.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A rate in terms of GCRA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guard) struct Pace {
    /// The time that one call adds.
    pub(in crate::guard) interval: u64,
    /// How far ahead of now the time may be: the burst.
    pub(in crate::guard) tolerance: u64,
}

impl Pace {
    pub(in crate::guard) fn of(rate: Rate) -> Pace {
        let interval = rate.interval_ns();
        Pace { interval, tolerance: interval.saturating_mul(rate.at_once()) }
    }
}

/// The counters of all limits, by identity. They survive a reload.
#[derive(Debug, Default)]
pub(in crate::guard) struct Counters {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    slots: HashMap<Box<str>, usize>,
    /// When each limit will be empty again.
    empty_at: Vec<u64>,
}

/// One unit of a limit.
#[derive(Debug, Clone, Copy)]
pub(in crate::guard) struct Charge {
    pub(in crate::guard) slot: usize,
    pub(in crate::guard) pace: Pace,
    /// Once consumed: when the limit would be empty again without further calls.
    pub(in crate::guard) until: u64,
}

/// The charge with the longest wait, and how long that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guard) struct Full {
    pub(in crate::guard) which: usize,
    pub(in crate::guard) wait: u64,
}

impl Counters {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.locked()
    }

    /// The counter of a limit.
    pub(in crate::guard) fn slot(&self, identity: &str) -> usize {
        let mut table = self.table();
        if let Some(slot) = table.slots.get(identity) {
            return *slot;
        }
        let slot = table.empty_at.len();
        table.empty_at.push(0);
        table.slots.insert(identity.into(), slot);
        slot
    }

    /// Consumes one unit of each, or none of any.
    pub(in crate::guard) fn take(&self, charges: &mut [Charge], now: u64) -> Result<(), Full> {
        let mut table = self.table();
        let mut full: Option<Full> = None;
        for (which, charge) in charges.iter().enumerate() {
            let empty_at = table.empty_at.get(charge.slot).copied().unwrap_or(0);
            let ahead = empty_at.max(now).saturating_add(charge.pace.interval) - now;
            let wait = ahead.saturating_sub(charge.pace.tolerance);
            if wait > full.map_or(0, |full| full.wait) {
                full = Some(Full { which, wait });
            }
        }
        if let Some(full) = full {
            return Err(full);
        }
        for charge in charges {
            if let Some(empty_at) = table.empty_at.get_mut(charge.slot) {
                *empty_at = (*empty_at).max(now).saturating_add(charge.pace.interval);
                charge.until = *empty_at;
            }
        }
        Ok(())
    }

    /// Returns consumed units that have not refilled yet.
    pub(in crate::guard) fn give_back(&self, charges: &[Charge], now: u64) {
        let mut table = self.table();
        for charge in charges {
            if let Some(empty_at) = table.empty_at.get_mut(charge.slot) {
                let left = charge.until.saturating_sub(now).min(charge.pace.interval);
                *empty_at = empty_at.saturating_sub(left);
            }
        }
    }

    /// Consumes one unit in any case. Returns the wait, at most `most`.
    pub(in crate::guard) fn queue(&self, charge: Charge, now: u64, most: u64) -> u64 {
        let mut table = self.table();
        let Some(empty_at) = table.empty_at.get_mut(charge.slot) else { return 0 };
        let Pace { interval, tolerance } = charge.pace;
        // The wait is capped, regardless of the number of earlier calls.
        let furthest = now.saturating_add(tolerance).saturating_add(most);
        *empty_at = (*empty_at).max(now).saturating_add(interval).min(furthest);
        (*empty_at - now).saturating_sub(tolerance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolward_policy::rate::Per;

    const MINUTE: u64 = 60_000_000_000;

    fn charge(counters: &Counters, name: &str, count: u64, burst: Option<u64>) -> Charge {
        let rate = Rate { count, per: Per::Minute, burst };
        Charge { slot: counters.slot(name), pace: Pace::of(rate), until: 0 }
    }

    #[test]
    fn a_burst_of_the_rate_and_then_one_at_a_time() {
        let counters = Counters::default();
        let mut limit = [charge(&counters, "x", 100, None)];
        let begun = 5_000;
        let passed = (0..1000).filter(|_| counters.take(&mut limit, begun).is_ok()).count();
        assert_eq!(passed, 100);
        let wait = counters.take(&mut limit, begun).unwrap_err().wait;
        assert_eq!(wait, MINUTE / 100);
        assert!(counters.take(&mut limit, begun + wait - 1).is_err());
        assert!(counters.take(&mut limit, begun + wait).is_ok());
        assert!(counters.take(&mut limit, begun + wait).is_err());
        // After an idle period the full capacity is available, and not more.
        let later = begun + 10 * MINUTE;
        assert_eq!((0..1000).filter(|_| counters.take(&mut limit, later).is_ok()).count(), 100);
        let mut burst = [charge(&counters, "y", 60, Some(10))];
        assert_eq!((0..1000).filter(|_| counters.take(&mut burst, later).is_ok()).count(), 10);
    }

    #[test]
    fn all_or_none_and_the_longest_wait_is_returned() {
        let counters = Counters::default();
        let (wide, narrow) =
            (charge(&counters, "wide", 10, None), charge(&counters, "narrow", 1, None));
        assert!(counters.take(&mut [wide, narrow], 0).is_ok());
        let full = counters.take(&mut [wide, narrow], 0).unwrap_err();
        assert_eq!(full, Full { which: 1, wait: MINUTE });
        // The larger limit lost nothing to the refused call.
        assert_eq!((0..100).filter(|_| counters.take(&mut [wide], 0).is_ok()).count(), 9);
        let full = counters.take(&mut [wide, narrow], 0).unwrap_err();
        assert_eq!(full.which, 1);
    }

    #[test]
    fn returned_units_can_be_consumed_again() {
        let counters = Counters::default();
        let mut limit = [charge(&counters, "x", 3, None)];
        for _ in 0..3 {
            assert!(counters.take(&mut limit, 7).is_ok());
        }
        counters.give_back(&limit, 7);
        assert!(counters.take(&mut limit, 7).is_ok() && counters.take(&mut limit, 7).is_err());
        // Returned long after, a unit has no effect: it has refilled by then.
        let held = limit;
        let later = 100 * MINUTE;
        assert_eq!((0..10).filter(|_| counters.take(&mut limit, later).is_ok()).count(), 3);
        counters.give_back(&held, later);
        assert!(counters.take(&mut limit, later).is_err());
    }

    #[test]
    fn one_too_many_in_a_queue_waits_and_never_for_long() {
        let counters = Counters::default();
        let limit = charge(&counters, "x", 60, Some(1));
        let second = 1_000_000_000;
        let waits: Vec<u64> =
            (0..5).map(|_| counters.queue(limit, 0, 3 * second) / second).collect();
        assert_eq!(waits, [0, 1, 2, 3, 3]);
        assert_eq!(counters.queue(limit, 4 * second, 3 * second), 0);
    }

    #[test]
    fn a_limit_keeps_its_count_under_its_name() {
        let counters = Counters::default();
        assert_eq!(counters.slot("a"), counters.slot("a"));
        assert_ne!(counters.slot("a"), counters.slot("b"));
    }
}
