//! Fair sharing of a hook: an agent with many slow calls cannot occupy all of it.
//!
//! A call needs a [`Slot`]. An agent has at most `share` slots at a time. Of the `total`, the last
//! `reserve` slots are given only to agents that have none, so that a first call of another agent starts
//! at once. A free slot goes to the waiting agent with the fewest slots, then to the one that has waited
//! longest.
//!
//! All kinds of hooks use this. A persistent hook also applies the same rule to its processes, each of
//! which can answer several calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use hashbrown::HashMap;
use tokio::sync::oneshot;

use crate::lock::LockUnpoisoned;

/// A limit on slots or processes, and how it is shared between agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quota {
    /// In total; further calls wait, within their timeout.
    pub(super) total: usize,
    /// Per agent.
    pub(super) share: usize,
    /// Only for agents that have none.
    pub(super) reserve: usize,
}

impl Quota {
    /// Each call has a process of its own.
    pub(super) const PROCESS_PER_CALL: Quota = Quota { total: 64, share: 16, reserve: 16 };
    /// Calls are cheap: a service, or a process that answers several at once.
    pub(super) const CONCURRENT: Quota = Quota { total: 256, share: 64, reserve: 64 };
    /// Persistent processes, each of which answers one call after the other.
    pub(super) const SEQUENTIAL: Quota = Quota { total: 8, share: 4, reserve: 2 };

    /// Whether an agent that has `own` of the `taken` slots may take one more.
    pub(super) fn admits(self, own: usize, taken: usize) -> bool {
        match own {
            0 => taken < self.total,
            own => own < self.share && taken < self.total - self.reserve,
        }
    }
}

/// The slots of one hook.
pub(super) struct Shares(Mutex<ShareState>);

struct ShareState {
    quota: Quota,
    taken: usize,
    /// Agents with slots or waiting calls.
    agents: HashMap<Arc<str>, Agent>,
    next_ticket: u64,
}

#[derive(Default)]
struct Agent {
    slots: usize,
    /// Waiting calls by ticket: the smallest has waited longest.
    waiting: BTreeMap<u64, oneshot::Sender<Slot>>,
}

/// The right to make one call. Dropping it frees the slot.
pub(super) struct Slot {
    shares: Arc<Shares>,
    agent: Arc<str>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shares.state().release(&self.agent);
        self.shares.serve();
    }
}

/// A waiting call. Dropping it removes the call from the queue.
struct Ticket<'s> {
    shares: &'s Shares,
    agent: Arc<str>,
    number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.shares.state();
        if let Some(agent) = state.agents.get_mut(&self.agent) {
            agent.waiting.remove(&self.number);
        }
        state.forget_idle(&self.agent);
    }
}

impl Shares {
    pub(super) fn new(quota: Quota) -> Arc<Shares> {
        let (agents, next_ticket) = (HashMap::new(), 0);
        Arc::new(Shares(Mutex::new(ShareState { quota, taken: 0, agents, next_ticket })))
    }

    fn state(&self) -> MutexGuard<'_, ShareState> {
        self.0.locked()
    }

    /// Changes the quota, usually to a larger one. Slots in use stay valid.
    pub(super) fn set_quota(self: &Arc<Self>, quota: Quota) {
        let changed = std::mem::replace(&mut self.state().quota, quota) != quota;
        if changed {
            self.serve();
        }
    }

    /// Waits for a slot.
    pub(super) async fn slot(self: &Arc<Self>, agent: &str) -> Option<Slot> {
        let (ticket, granted) = {
            let mut state = self.state();
            let agent = state.name(agent);
            if state.may_take(&agent) {
                state.take(&agent);
                return Some(Slot { shares: self.clone(), agent });
            }
            let (grant, granted) = oneshot::channel();
            let number = state.next_ticket;
            state.next_ticket += 1;
            state.agents.entry(agent.clone()).or_default().waiting.insert(number, grant);
            (Ticket { shares: self, agent, number }, granted)
        };
        let slot = granted.await.ok();
        drop(ticket);
        slot
    }

    /// Gives free slots to waiting calls.
    fn serve(self: &Arc<Self>) {
        loop {
            let (agent, grant) = {
                let mut state = self.state();
                let Some(next) = state.next() else { return };
                next
            };
            // If the call was abandoned in the meantime, its slot is dropped, which serves the next one.
            drop(grant.send(Slot { shares: self.clone(), agent }));
        }
    }
}

impl ShareState {
    /// The shared copy of an agent's name, so that it is not cloned for each call.
    fn name(&self, agent: &str) -> Arc<str> {
        self.agents.get_key_value(agent).map_or_else(|| agent.into(), |(name, _)| name.clone())
    }

    fn may_take(&self, agent: &str) -> bool {
        let own = self.agents.get(agent).map_or(0, |agent| agent.slots);
        self.quota.admits(own, self.taken)
    }

    fn take(&mut self, agent: &Arc<str>) {
        self.taken += 1;
        self.agents.entry(agent.clone()).or_default().slots += 1;
    }

    fn release(&mut self, agent: &Arc<str>) {
        self.taken = self.taken.saturating_sub(1);
        if let Some(agent) = self.agents.get_mut(agent) {
            agent.slots = agent.slots.saturating_sub(1);
        }
        self.forget_idle(agent);
    }

    fn forget_idle(&mut self, agent: &Arc<str>) {
        if self.agents.get(agent).is_some_and(|agent| agent.slots == 0 && agent.waiting.is_empty())
        {
            self.agents.remove(agent);
        }
    }

    /// Takes a slot for the waiting call that is served next.
    fn next(&mut self) -> Option<(Arc<str>, oneshot::Sender<Slot>)> {
        let eligible = self.agents.iter().filter_map(|(name, agent)| {
            let (ticket, _) = agent.waiting.first_key_value()?;
            self.quota.admits(agent.slots, self.taken).then_some((agent.slots, *ticket, name))
        });
        let name = eligible.min().map(|(.., name)| name.clone())?;
        let (_, grant) = self.agents.get_mut(&name)?.waiting.pop_first()?;
        self.take(&name);
        Some((name, grant))
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

    fn take(shares: &Arc<Shares>, agent: &str) -> Option<Slot> {
        poll(pin!(shares.slot(agent)))
    }

    fn slots(shares: &Shares, agent: &str) -> usize {
        shares.state().agents.get(agent).map_or(0, |agent| agent.slots)
    }

    #[test]
    fn agents_with_slow_calls_leave_room_for_others() {
        let shares = Shares::new(Quota::PROCESS_PER_CALL);
        let mut held = Vec::new();
        for agent in ["a", "b", "c", "d", "e"] {
            held.extend(std::iter::from_fn(|| take(&shares, agent)));
        }
        assert_eq!(["a", "b", "c", "d", "e"].map(|one| slots(&shares, one)), [16, 16, 16, 1, 1]);
        // The reserve is for agents without a slot.
        assert!(take(&shares, "d").is_none() && take(&shares, "f").is_some());
    }

    #[test]
    fn a_free_slot_goes_to_the_agent_with_the_fewest() {
        let quota = Quota::PROCESS_PER_CALL;
        let shares = Shares::new(quota);
        let mut of_a: Vec<Slot> = std::iter::from_fn(|| take(&shares, "a")).collect();
        let agents: Vec<String> =
            (0..quota.total - quota.share).map(|at| format!("agent-{at}")).collect();
        let others: Vec<Slot> = agents.iter().filter_map(|one| take(&shares, one)).collect();
        assert_eq!((of_a.len(), others.len(), shares.state().taken), (16, 48, 64));
        let (mut first, mut second) = (pin!(shares.slot("a")), pin!(shares.slot("late")));
        assert!(poll(first.as_mut()).is_none() && poll(second.as_mut()).is_none());
        of_a.pop();
        let got = poll(second.as_mut());
        assert!(poll(first.as_mut()).is_none() && got.is_some());
        // Cancelled calls leave the queue.
        {
            let mut gone = pin!(shares.slot("gone"));
            assert!(poll(gone.as_mut()).is_none());
        }
        assert!(!shares.state().agents.contains_key("gone"));
        drop((of_a, others, got));
        assert!(poll(first.as_mut()).is_some());
        let state = shares.state();
        assert_eq!((state.taken, state.agents.len()), (0, 0));
    }

    #[test]
    fn a_larger_quota_serves_calls_that_wait() {
        let shares = Shares::new(Quota::SEQUENTIAL);
        let held: Vec<Slot> = std::iter::from_fn(|| take(&shares, "a")).collect();
        let mut waiting = pin!(shares.slot("a"));
        assert!(held.len() == 4 && poll(waiting.as_mut()).is_none());
        shares.set_quota(Quota::CONCURRENT);
        assert!(poll(waiting.as_mut()).is_some());
    }
}
