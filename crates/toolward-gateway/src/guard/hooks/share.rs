//! Fair shares of a hook's processes: no caller can take all of them with calls whose hook is slow.
//!
//! A caller has at most [`SHARE`] processes at once. Of the [`PROCESSES`] in total, the last [`RESERVE`]
//! are given only to callers that have none, so that one call of another agent always starts at once. A
//! slot that becomes free goes to the waiting caller with the fewest processes, then to the one that has
//! waited longest.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use tokio::sync::oneshot;

/// Processes of one hook at once; further calls wait, within their timeout.
const PROCESSES: usize = 64;
/// Processes of one caller.
const SHARE: usize = 16;
/// Processes that only callers without one get.
const RESERVE: usize = 16;

#[derive(Default)]
pub(super) struct Shares(Mutex<State>);

#[derive(Default)]
struct State {
    total: usize,
    /// Processes by caller; callers without one are not in it.
    of: HashMap<Arc<str>, usize>,
    waiting: Vec<Waiting>,
}

struct Waiting {
    caller: Arc<str>,
    granted: oneshot::Sender<Slot>,
}

/// The right to run one process, which ends with this value.
pub(super) struct Slot {
    shares: Arc<Shares>,
    caller: Arc<str>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shares.state().release(&self.caller);
        self.shares.serve();
    }
}

impl Shares {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a slot.
    pub(super) async fn slot(self: &Arc<Self>, caller: &str) -> Option<Slot> {
        let caller: Arc<str> = caller.into();
        let granted = {
            let mut state = self.state();
            if state.may_start(&caller) {
                state.take(&caller);
                return Some(Slot { shares: self.clone(), caller });
            }
            let (granted, wait) = oneshot::channel();
            // Calls that were given up leave no trace.
            state.waiting.retain(|waiting| !waiting.granted.is_closed());
            state.waiting.push(Waiting { caller, granted });
            wait
        };
        granted.await.ok()
    }

    /// Gives free slots to waiting calls.
    fn serve(self: &Arc<Self>) {
        loop {
            let Waiting { caller, granted } = {
                let mut state = self.state();
                let Some(next) = state.next() else { return };
                let next = state.waiting.remove(next);
                state.take(&next.caller);
                next
            };
            // A call that was given up meanwhile drops its slot, which serves the next one.
            drop(granted.send(Slot { shares: self.clone(), caller }));
        }
    }
}

impl State {
    fn of(&self, caller: &str) -> usize {
        self.of.get(caller).copied().unwrap_or(0)
    }

    fn may_start(&self, caller: &str) -> bool {
        match self.of(caller) {
            0 => self.total < PROCESSES,
            own => own < SHARE && self.total < PROCESSES - RESERVE,
        }
    }

    fn take(&mut self, caller: &Arc<str>) {
        self.total += 1;
        *self.of.entry(caller.clone()).or_default() += 1;
    }

    fn release(&mut self, caller: &Arc<str>) {
        self.total -= 1;
        if let Some(own) = self.of.get_mut(caller) {
            *own -= 1;
            if *own == 0 {
                self.of.remove(caller);
            }
        }
    }

    /// The waiting call that is served next.
    fn next(&self) -> Option<usize> {
        let waiting = self.waiting.iter().enumerate();
        let eligible = waiting.filter(|(_, waiting)| self.may_start(&waiting.caller));
        eligible.min_by_key(|(_, waiting)| self.of(&waiting.caller)).map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn poll(slot: Pin<&mut impl Future<Output = Option<Slot>>>) -> Option<Slot> {
        match slot.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(slot) => slot,
            Poll::Pending => None,
        }
    }

    fn take(shares: &Arc<Shares>, caller: &str) -> Option<Slot> {
        poll(pin!(shares.slot(caller)))
    }

    #[test]
    fn callers_with_slow_hooks_leave_room_for_others() {
        let shares = Arc::new(Shares::default());
        let mut held = Vec::new();
        for caller in ["a", "b", "c", "d", "e"] {
            held.extend(std::iter::from_fn(|| take(&shares, caller)));
        }
        let of = |caller: &str| shares.state().of(caller);
        assert_eq!((of("a"), of("b"), of("c"), of("d"), of("e")), (16, 16, 16, 1, 1));
        // The reserve is for those who have none.
        assert!(take(&shares, "d").is_none() && take(&shares, "f").is_some());
    }

    #[test]
    fn a_free_slot_goes_to_the_caller_with_the_fewest() {
        let shares = Arc::new(Shares::default());
        let mut of_a: Vec<Slot> = std::iter::from_fn(|| take(&shares, "a")).collect();
        let callers: Vec<String> =
            (0..PROCESSES - SHARE).map(|at| format!("caller-{at}")).collect();
        let others: Vec<Slot> = callers.iter().filter_map(|one| take(&shares, one)).collect();
        assert_eq!((of_a.len(), others.len(), shares.state().total), (16, 48, 64));
        let (mut first, mut second) = (pin!(shares.slot("a")), pin!(shares.slot("late")));
        assert!(poll(first.as_mut()).is_none() && poll(second.as_mut()).is_none());
        of_a.pop();
        let got = poll(second.as_mut());
        assert!(poll(first.as_mut()).is_none() && got.is_some());
        // Calls that were given up are passed over.
        {
            let mut gone = pin!(shares.slot("gone"));
            assert!(poll(gone.as_mut()).is_none());
        }
        drop((of_a, others, got));
        assert!(poll(first.as_mut()).is_some());
        let state = shares.state();
        assert_eq!((state.total, state.of.len(), state.waiting.len()), (0, 0, 0));
    }
}
