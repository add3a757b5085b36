//! Assigns calls to the processes of a hook.
//!
//! While answers are fast, there is one process. A process with a call that has been unanswered for a
//! while may hang: it gets no further calls while another process is free or can be started, so an agent
//! that makes a hook hang or crash delays only its own calls. Nor does a process get more calls than it
//! is known to answer concurrently. Calls without a process queue for one, in order and within their
//! timeout; [`Shares`] limits how many of an agent's calls do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use tokio::sync::{Notify, mpsc, oneshot};

use super::answer::{HookError, HookVerdict};
use super::share::{Quota, Shares, Slot};
use crate::lock::LockUnpoisoned;

/// Timeouts of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// Of a call.
    pub(super) call: Duration,
    /// Of its first answer, from its start.
    pub(super) start: Duration,
}

/// The quota of processes of one hook.
const PROCESSES: Quota = Quota::SEQUENTIAL;
/// A call that is unanswered for this long may hang: the minimum, if answers are fast, and the maximum.
/// On a slow machine, further processes would only make it slower.
const STALE: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];
/// The same for a process that may still be starting.
const COLD: [Duration; 2] = [Duration::from_millis(150), Duration::from_secs(1)];
/// Backoff before a caller whose process ended without an answer starts another one: none the first time,
/// then this, then doubling.
const PAUSE: Duration = Duration::from_millis(50);
const MAX_DOUBLINGS: u32 = 5;
/// Maximum number of callers with a backoff that are remembered.
const MAX_STRUCK: usize = 1024;

/// A call that waits for its answer.
pub(super) struct Order {
    pub(super) id: u64,
    pub(super) body: Vec<u8>,
    /// The calling agent.
    pub(super) caller: Box<str>,
    /// It was lost once with a process, so it gets a process to itself this time.
    pub(super) alone: bool,
    /// Held until a process has answered or ended, even if the client has disconnected.
    pub(super) slot: Option<Slot>,
    pub(super) done: oneshot::Sender<Outcome>,
}

pub(super) enum Outcome {
    Answered(Result<HookVerdict, HookError>),
    /// The process ended, possibly because of another call. The slot is for the retry.
    Lost(Option<Slot>),
}

impl Order {
    pub(super) fn fail(self, why: &str) {
        let _ = self.done.send(Outcome::Answered(Err(HookError(why.into()))));
    }

    pub(super) fn lose(self) {
        let _ = self.done.send(Outcome::Lost(self.slot));
    }
}

/// The result of placing a call.
pub(super) enum Placement {
    Given,
    /// It is assigned to a process that the caller has to start.
    Start(u64, mpsc::UnboundedReceiver<Order>),
    /// No process is available; try again at this time.
    Wait(Order, Instant),
}

pub(super) struct Pool {
    state: Mutex<PoolState>,
    changed: Notify,
    /// The slots for concurrent calls.
    pub(super) shares: Arc<Shares>,
    /// The quota once it is known that calls can share a process.
    concurrent_quota: Quota,
}

struct PoolState {
    workers: Vec<Worker>,
    next: u64,
    /// Moving averages of the time of an answer, and of the first answer of a process.
    pace: Duration,
    first: Duration,
    /// The number of calls that a process is known to answer concurrently: it has answered one while the
    /// others waited.
    width: usize,
    /// The number of calls that wait for a process.
    queue: usize,
    /// When a process was last found to have started.
    ready_since: Option<Instant>,
    /// Some process has answered.
    is_proven: bool,
    /// Callers whose calls ended processes before their first answer: the number of times, and the end of
    /// the backoff.
    struck: HashMap<Box<str>, (u32, Instant)>,
}

struct Worker {
    number: u64,
    orders: mpsc::UnboundedSender<Order>,
    /// Unanswered calls: since when, and by which agent.
    pending: BTreeMap<u64, (Instant, Box<str>)>,
    answered: bool,
    /// It has started: it has answered, or is known to read requests.
    ready: bool,
    /// Reserved for a single call.
    alone: bool,
    started: Instant,
}

impl Worker {
    fn stale_at(&self, stale_after: StaleAfter) -> Option<Instant> {
        let stale_after = if self.answered { stale_after.stale } else { stale_after.cold };
        self.oldest().map(|oldest| oldest + stale_after)
    }

    fn oldest(&self) -> Option<Instant> {
        self.pending.values().map(|(since, _)| *since).min()
    }

    fn is_busy_with(&self, caller: &str) -> bool {
        self.pending.values().any(|(_, one)| **one == *caller)
    }

    fn is_stale(&self, stale_after: StaleAfter, now: Instant) -> bool {
        self.stale_at(stale_after).is_some_and(|at| at <= now)
    }
}

/// How long a call may be unanswered before its process counts as stale: for a warm and for a cold
/// process.
#[derive(Clone, Copy)]
struct StaleAfter {
    stale: Duration,
    cold: Duration,
}

/// An exponential moving average with weight 1/4 for the latest value.
fn mean(before: Duration, latest: Duration) -> Duration {
    before / 4 * 3 + latest / 4
}

/// A call's place in the queue.
pub(super) struct Queued<'p>(&'p Pool);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.state().queue -= 1;
        // Passes the wake-up on to another waiting call.
        self.0.changed.notify_one();
    }
}

impl Pool {
    /// `concurrent`: any number of calls can share a process. `concurrent_quota` applies if calls can
    /// share one.
    pub(super) fn new(concurrent: bool, concurrent_quota: Quota) -> Pool {
        let (workers, struck) = Default::default();
        let (pace, first) = Default::default();
        let (queue, ready_since, is_proven) = (0, None, false);
        let width = if concurrent { usize::MAX } else { 1 };
        let state = PoolState {
            workers,
            next: 0,
            pace,
            first,
            width,
            queue,
            ready_since,
            is_proven,
            struck,
        };
        let shares = Shares::new(if concurrent { concurrent_quota } else { Quota::SEQUENTIAL });
        Pool { state: Mutex::new(state), changed: Notify::new(), shares, concurrent_quota }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.locked()
    }

    /// Assigns a call to a process, if one is available. The call arrived at `since` and times out at
    /// `deadline`.
    pub(super) fn place(
        &self,
        order: Order,
        (since, deadline): (Instant, Instant),
        queued: bool,
    ) -> Placement {
        let now = Instant::now();
        let mut state = self.state();
        if !queued && state.queue > 0 {
            return Placement::Wait(order, now + state.stale_after().stale);
        }
        state.place(order, now, (since, deadline))
    }

    /// Assigns a call without a slot to a process that is busy with a call of the same agent. This shows
    /// whether the process can answer more calls concurrently, and can delay only calls of this agent.
    pub(super) fn join_own(&self, order: Order) -> Result<(), Order> {
        let mut state = self.state();
        match state.least_busy(|worker| worker.is_busy_with(&order.caller)) {
            Some(at) => match state.give(at, order, Instant::now()) {
                Placement::Wait(order, _) => Err(order),
                _ => Ok(()),
            },
            None => Err(order),
        }
    }

    /// Creates a process ahead of the first call, unless one exists.
    pub(super) fn start_first(&self) -> Option<(u64, mpsc::UnboundedReceiver<Order>)> {
        let mut state = self.state();
        if !state.workers.is_empty() {
            return None;
        }
        let (number, _, received) = state.add(BTreeMap::new(), false);
        Some((number, received))
    }

    /// The deadline until which a call that arrived at `since` waits for a process: later while one is
    /// starting.
    pub(super) fn waits_until(&self, since: Instant, timeouts: Timeouts) -> Instant {
        let state = self.state();
        let starting = state.workers.iter().filter(|worker| !worker.ready);
        let starting = starting.map(|worker| worker.started + timeouts.start).max();
        let ready = state.ready_since.map_or(since, |ready| ready.max(since)) + timeouts.call;
        // Processes that start one after the other do not extend it further.
        starting.map_or(ready, |until| until.max(ready)).min(since + timeouts.start + timeouts.call)
    }

    /// Called when a starting process has read its first request. Returns false if that does not mean
    /// that it has started: until some process has answered, a hook may read first and then load what it
    /// needs.
    pub(super) fn accepted(&self, number: u64) -> bool {
        let mut state = self.state();
        if state.is_proven {
            state.ready(number);
        }
        state.is_proven
    }

    pub(super) fn queue(&self) -> Queued<'_> {
        self.state().queue += 1;
        Queued(self)
    }

    /// Waits for a change of the pool, or until the given time.
    pub(super) async fn wait(&self, until: Instant) {
        let _ = tokio::time::timeout_at(until.into(), self.changed.notified()).await;
    }

    /// Records that a process has answered a call.
    pub(super) fn answered(&self, number: u64, id: u64, caller: &str) {
        let mut state = self.state();
        state.struck.remove(caller);
        let mut at_once = 1;
        state.ready(number);
        state.is_proven = true;
        let mut took = None;
        if let Some(worker) = state.workers.iter_mut().find(|worker| worker.number == number) {
            let since = worker.pending.remove(&id).map(|(since, _)| since);
            let is_older = |other: &Instant| since.is_some_and(|since| *other < since);
            at_once += worker.pending.values().filter(|(other, _)| is_older(other)).count();
            took = since.map(|since| (worker.answered, since.elapsed()));
            worker.answered = true;
            worker.alone &= !worker.pending.is_empty();
        }
        state.width = state.width.max(at_once);
        match took {
            Some((true, took)) => state.pace = mean(state.pace, took),
            Some((false, took)) => state.first = mean(state.first, took),
            None => {}
        }
        drop(state);
        if at_once > 1 {
            self.shares.set_quota(self.concurrent_quota);
        }
        self.changed.notify_one();
    }

    /// Removes a process. `struck` are the callers to which it had not answered anything.
    pub(super) fn ended<'a>(&self, number: u64, struck: impl Iterator<Item = &'a str>) {
        let mut state = self.state();
        state.workers.retain(|worker| worker.number != number);
        if state.struck.len() > MAX_STRUCK {
            state.struck.clear();
        }
        let now = Instant::now();
        for caller in struck {
            let (times, not_before) = state.struck.entry(caller.into()).or_insert((0, now));
            let pause = if *times > 0 { PAUSE * (1 << (*times - 1)) } else { Duration::ZERO };
            *times = (*times + 1).min(MAX_DOUBLINGS + 1);
            *not_before = now + pause;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Removes an idle process, unless it is the only one.
    pub(super) fn dismiss(&self, number: u64) -> bool {
        let mut state = self.state();
        let spare = |worker: &Worker| worker.number == number && worker.pending.is_empty();
        let dismissed = state.workers.len() > 1 && state.workers.iter().any(spare);
        if dismissed {
            state.workers.retain(|worker| worker.number != number);
        }
        dismissed
    }
}

impl PoolState {
    /// Remembers that a process has started.
    fn ready(&mut self, number: u64) {
        let worker = self.workers.iter_mut().find(|worker| worker.number == number);
        if let Some(worker) = worker.filter(|worker| !worker.ready) {
            worker.ready = true;
            self.ready_since = Some(Instant::now());
        }
    }

    fn stale_after(&self) -> StaleAfter {
        let within = |time: Duration, [least, most]: [Duration; 2]| time.clamp(least, most);
        StaleAfter { stale: within(self.pace * 4, STALE), cold: within(self.first * 2, COLD) }
    }

    fn place(
        &mut self,
        order: Order,
        now: Instant,
        (since, deadline): (Instant, Instant),
    ) -> Placement {
        // A worker's runtime may have been shut down.
        self.workers.retain(|worker| !worker.orders.is_closed());
        let stale_after = self.stale_after();
        let shares = self.width > 1 && !order.alone;
        let is_own = |worker: &Worker| worker.is_busy_with(&order.caller);
        let own = self.workers.iter().filter(|worker| is_own(worker)).count();
        let busy = self.workers.iter().filter(|worker| !worker.pending.is_empty()).count();
        // While the first process is starting, further ones would only slow it down.
        let cold = self.workers.iter().all(|worker| !worker.answered);
        // Neither one agent nor several together can occupy all processes with calls that may hang.
        let may_spread = PROCESSES.admits(own, busy) && !(cold && own > 0);
        let takes = |worker: &Worker| {
            (worker.pending.is_empty() && may_spread)
                || (shares
                    && worker.pending.len() < self.width
                    && (may_spread || is_own(worker))
                    && !worker.alone
                    && !worker.is_stale(stale_after, now))
        };
        if let Some(at) = self.workers.iter().position(takes) {
            return self.give(at, order, now);
        }
        let mut fresh =
            self.workers.iter().filter(|worker| !worker.is_stale(stale_after, now)).peekable();
        let none_fresh = fresh.peek().is_none();
        // A process that was started for this caller and will soon be ready.
        let starting = fresh.any(|worker| !worker.answered && is_own(worker));
        let (waited, halfway) = (since + stale_after.stale, since + (deadline - since) / 2);
        let mut again = now + STALE[0];
        let room = self.workers.len() < PROCESSES.total && may_spread;
        if room && (none_fresh || (waited <= now && !starting)) {
            match self.struck.get(&*order.caller).filter(|(_, not_before)| *not_before > now) {
                Some((_, not_before)) => again = again.min(*not_before),
                None => return self.start(order, now),
            }
        } else if !room && !order.alone && (self.width == usize::MAX || halfway <= now) {
            // All processes may hang. The calls that have waited longest find out whether they do.
            let least = self.least_busy(|worker| own == 0 || is_own(worker));
            if let Some(at) = least {
                return self.give(at, order, now);
            }
        }
        let moments = self
            .workers
            .iter()
            .filter_map(|worker| worker.stale_at(stale_after))
            .chain([waited, halfway]);
        let next = moments.filter(|moment| *moment > now).min();
        Placement::Wait(order, next.map_or(again, |next| next.min(again)))
    }

    /// The process with the fewest calls, among those that can be shared.
    fn least_busy(&self, may_take: impl Fn(&Worker) -> bool) -> Option<usize> {
        let open = self.workers.iter().enumerate();
        let open = open.filter(|(_, worker)| !worker.alone && may_take(worker));
        open.min_by_key(|(_, worker)| worker.pending.len()).map(|(at, _)| at)
    }

    fn give(&mut self, at: usize, order: Order, now: Instant) -> Placement {
        let Some(worker) = self.workers.get_mut(at) else { return Placement::Wait(order, now) };
        let (id, alone, caller) = (order.id, order.alone, order.caller.clone());
        match worker.orders.send(order) {
            Ok(()) => {
                worker.pending.insert(id, (now, caller));
                worker.alone |= alone;
                Placement::Given
            }
            // The process has just ended.
            Err(mpsc::error::SendError(order)) => {
                self.workers.remove(at);
                Placement::Wait(order, now)
            }
        }
    }

    fn start(&mut self, order: Order, now: Instant) -> Placement {
        let pending = BTreeMap::from([(order.id, (now, order.caller.clone()))]);
        let (number, orders, received) = self.add(pending, order.alone);
        let _ = orders.send(order);
        Placement::Start(number, received)
    }

    fn add(
        &mut self,
        pending: BTreeMap<u64, (Instant, Box<str>)>,
        alone: bool,
    ) -> (u64, mpsc::UnboundedSender<Order>, mpsc::UnboundedReceiver<Order>) {
        let (orders, received) = mpsc::unbounded_channel();
        let (number, started) = (self.next, Instant::now());
        self.next += 1;
        let worker = Worker {
            number,
            orders: orders.clone(),
            pending,
            answered: false,
            ready: false,
            alone,
            started,
        };
        self.workers.push(worker);
        (number, orders, received)
    }
}
