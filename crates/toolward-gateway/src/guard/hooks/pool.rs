//! Which process of a hook a call is given to.
//!
//! As long as answers come quickly there is one process. One with a call that it has not answered for a
//! while may hang: it gets no further call while another process is free or can be started, so that an
//! agent that makes a hook hang or crash delays its own calls only. Nor does a process get more calls than
//! it is known to answer at once. Calls for which there is no process wait for one, in their order and
//! within their time; [`Shares`] bounds how many of an agent's do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use tokio::sync::{Notify, mpsc, oneshot};

use super::answer::{Failed, Said};
use super::share::{Quota, Shares, Slot};
use crate::lock::LockUnpoisoned;

/// How long a process may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// To answer a call.
    pub(super) call: Duration,
    /// To give its first answer, counted from its start.
    pub(super) start: Duration,
}

/// Processes of one hook, and how they are shared between agents.
const PROCESSES: Quota = Quota::SEQUENTIAL;
/// A call that is unanswered for so long may be one that hangs: where answers come quickly, and at
/// most. On a machine that is slow, further processes would only make it slower.
const STALE: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];
/// The same for a process that is perhaps still starting.
const COLD: [Duration; 2] = [Duration::from_millis(150), Duration::from_secs(1)];
/// A pause before whoever asked a process that ended without an answer starts another one: none the
/// first time, then this, then twice as long.
const PAUSE: Duration = Duration::from_millis(50);
const MOST_DOUBLINGS: u32 = 5;
/// So many callers with pauses are remembered.
const MOST_STRUCK: usize = 1024;

/// A call that waits for its answer.
pub(super) struct Order {
    pub(super) id: u64,
    pub(super) body: Vec<u8>,
    /// Whose call it is.
    pub(super) caller: Box<str>,
    /// It was lost once with a process, and shares none this time.
    pub(super) alone: bool,
    /// Held until a process has answered or ended, also if the client has left.
    pub(super) slot: Option<Slot>,
    pub(super) done: oneshot::Sender<Outcome>,
}

pub(super) enum Outcome {
    Answered(Result<Said, Failed>),
    /// The process ended, perhaps because of another call. The slot is for the next attempt.
    Lost(Option<Slot>),
}

impl Order {
    pub(super) fn fail(self, why: &str) {
        let _ = self.done.send(Outcome::Answered(Err(Failed(why.into()))));
    }

    pub(super) fn lose(self) {
        let _ = self.done.send(Outcome::Lost(self.slot));
    }
}

/// What becomes of a call now.
pub(super) enum Place {
    Given,
    /// It is given to a process that is to be started.
    Start(u64, mpsc::UnboundedReceiver<Order>),
    /// There is none at the moment; this is when to look again.
    Wait(Order, Instant),
}

pub(super) struct Pool {
    state: Mutex<State>,
    changed: Notify,
    /// Calls that processes may have at once.
    pub(super) shares: Arc<Shares>,
    /// The same once it is known that calls can share a process.
    concurrent_quota: Quota,
}

struct State {
    workers: Vec<Worker>,
    next: u64,
    /// How long answers take, and the first one of a process, about.
    pace: Duration,
    first: Duration,
    /// As many calls as a process is known to answer at once: it has answered one while the others waited.
    width: usize,
    /// Calls that wait for a process.
    queue: usize,
    /// When a process gave its first answer last.
    warm_since: Option<Instant>,
    /// Callers whose calls ended processes that had answered nothing yet: how often, and until when
    /// they wait.
    struck: HashMap<Box<str>, (u32, Instant)>,
}

struct Worker {
    number: u64,
    orders: mpsc::UnboundedSender<Order>,
    /// Calls that it has not answered: since when, and whose.
    pending: BTreeMap<u64, (Instant, Box<str>)>,
    answered: bool,
    /// A call has it for itself.
    alone: bool,
    started: Instant,
}

impl Worker {
    fn stale_at(&self, patience: Patience) -> Option<Instant> {
        let patience = if self.answered { patience.stale } else { patience.cold };
        self.oldest().map(|oldest| oldest + patience)
    }

    fn oldest(&self) -> Option<Instant> {
        self.pending.values().map(|(since, _)| *since).min()
    }

    fn is_busy_with(&self, caller: &str) -> bool {
        self.pending.values().any(|(_, one)| **one == *caller)
    }

    fn is_stale(&self, patience: Patience, now: Instant) -> bool {
        self.stale_at(patience).is_some_and(|at| at <= now)
    }
}

/// How long a call may be unanswered before its process counts as one that may hang.
#[derive(Clone, Copy)]
struct Patience {
    stale: Duration,
    cold: Duration,
}

/// A mean in which the latest counts for a quarter.
fn mean(before: Duration, latest: Duration) -> Duration {
    before / 4 * 3 + latest / 4
}

/// A call's place in the queue.
pub(super) struct Queued<'p>(&'p Pool);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.state().queue -= 1;
        // What it was woken for may serve another.
        self.0.changed.notify_one();
    }
}

impl Pool {
    /// `concurrent`: any number of calls can share a process. Where calls can, the quota is theirs.
    pub(super) fn new(concurrent: bool, concurrent_quota: Quota) -> Pool {
        let (workers, struck) = Default::default();
        let (pace, first) = Default::default();
        let (queue, warm_since) = (0, None);
        let width = if concurrent { usize::MAX } else { 1 };
        let state = State { workers, next: 0, pace, first, width, queue, warm_since, struck };
        let shares = Shares::new(if concurrent { concurrent_quota } else { Quota::SEQUENTIAL });
        Pool { state: Mutex::new(state), changed: Notify::new(), shares, concurrent_quota }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// Gives a call to a process, where there is one for it. It came at `since`, and is waited for until
    /// `deadline`.
    pub(super) fn place(
        &self,
        order: Order,
        (since, deadline): (Instant, Instant),
        queued: bool,
    ) -> Place {
        let now = Instant::now();
        let mut state = self.state();
        if !queued && state.queue > 0 {
            return Place::Wait(order, now + state.patience().stale);
        }
        state.place(order, now, (since, deadline))
    }

    /// Gives a call without a slot to a process that is busy with a call of the same agent. That shows
    /// whether the process can answer more calls at once, and can delay calls of this agent only.
    pub(super) fn join_own(&self, order: Order) -> Result<(), Order> {
        let mut state = self.state();
        match state.least_busy(|worker| worker.is_busy_with(&order.caller)) {
            Some(at) => match state.give(at, order, Instant::now()) {
                Place::Wait(order, _) => Err(order),
                _ => Ok(()),
            },
            None => Err(order),
        }
    }

    /// A process for calls that are still to come, where there is none.
    pub(super) fn start_first(&self) -> Option<(u64, mpsc::UnboundedReceiver<Order>)> {
        let mut state = self.state();
        if !state.workers.is_empty() {
            return None;
        }
        let (number, _, received) = state.add(BTreeMap::new(), false);
        Some((number, received))
    }

    /// Until when a call that came at `since` waits for an answer: longer while no process has given its
    /// first answer, because they may still be starting.
    pub(super) fn deadline(&self, since: Instant, timeouts: Timeouts) -> Instant {
        let state = self.state();
        if state.workers.iter().any(|worker| worker.answered) {
            let warm = state.warm_since.map_or(since, |warm| warm.max(since));
            return warm + timeouts.call;
        }
        let starting = state.workers.iter().map(|worker| worker.started + timeouts.start);
        starting.max().map_or(since, |until| until.max(since)).max(since + timeouts.call)
    }

    pub(super) fn queue(&self) -> Queued<'_> {
        self.state().queue += 1;
        Queued(self)
    }

    /// Waits until something has changed.
    pub(super) async fn wait(&self, until: Instant) {
        let _ = tokio::time::timeout_at(until.into(), self.changed.notified()).await;
    }

    /// A process has answered a caller.
    pub(super) fn answered(&self, number: u64, id: u64, caller: &str) {
        let mut state = self.state();
        state.struck.remove(caller);
        let mut at_once = 1;
        let warm = state.workers.iter().any(|worker| worker.answered);
        let (mut took, mut first) = (None, false);
        if let Some(worker) = state.workers.iter_mut().find(|worker| worker.number == number) {
            let since = worker.pending.remove(&id).map(|(since, _)| since);
            let is_older = |other: &Instant| since.is_some_and(|since| *other < since);
            at_once += worker.pending.values().filter(|(other, _)| is_older(other)).count();
            took = since.map(|since| (worker.answered, since.elapsed()));
            first = !worker.answered;
            worker.answered = true;
            worker.alone &= !worker.pending.is_empty();
        }
        state.width = state.width.max(at_once);
        if first && !warm {
            state.warm_since = Some(Instant::now());
        }
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

    /// A process gets no further calls. With `struck`, it had answered nothing to these callers.
    pub(super) fn ended<'a>(&self, number: u64, struck: impl Iterator<Item = &'a str>) {
        let mut state = self.state();
        state.workers.retain(|worker| worker.number != number);
        if state.struck.len() > MOST_STRUCK {
            state.struck.clear();
        }
        let now = Instant::now();
        for caller in struck {
            let (times, not_before) = state.struck.entry(caller.into()).or_insert((0, now));
            let pause = if *times > 0 { PAUSE * (1 << (*times - 1)) } else { Duration::ZERO };
            *times = (*times + 1).min(MOST_DOUBLINGS + 1);
            *not_before = now + pause;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Lets an idle process go, unless it is the only one.
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

impl State {
    fn patience(&self) -> Patience {
        let within = |time: Duration, [least, most]: [Duration; 2]| time.clamp(least, most);
        Patience { stale: within(self.pace * 4, STALE), cold: within(self.first * 2, COLD) }
    }

    fn place(
        &mut self,
        order: Order,
        now: Instant,
        (since, deadline): (Instant, Instant),
    ) -> Place {
        // The runtime that one lived on may be gone.
        self.workers.retain(|worker| !worker.orders.is_closed());
        let patience = self.patience();
        let shares = self.width > 1 && !order.alone;
        let is_own = |worker: &Worker| worker.is_busy_with(&order.caller);
        let own = self.workers.iter().filter(|worker| is_own(worker)).count();
        let busy = self.workers.iter().filter(|worker| !worker.pending.is_empty()).count();
        // While the first process starts, further ones would only slow it down.
        let cold = self.workers.iter().all(|worker| !worker.answered);
        // No agent takes all processes for calls that may hang, nor do several together.
        let may_spread = PROCESSES.admits(own, busy) && !(cold && own > 0);
        let takes = |worker: &Worker| {
            (worker.pending.is_empty() && may_spread)
                || (shares
                    && worker.pending.len() < self.width
                    && (may_spread || is_own(worker))
                    && !worker.alone
                    && !worker.is_stale(patience, now))
        };
        if let Some(at) = self.workers.iter().position(takes) {
            return self.give(at, order, now);
        }
        let mut fresh =
            self.workers.iter().filter(|worker| !worker.is_stale(patience, now)).peekable();
        let none_fresh = fresh.peek().is_none();
        // One that was started for this caller, and is soon there.
        let starting = fresh.any(|worker| !worker.answered && is_own(worker));
        let (waited, halfway) = (since + patience.stale, since + (deadline - since) / 2);
        let mut again = now + STALE[0];
        let room = self.workers.len() < PROCESSES.total && may_spread;
        if room && (none_fresh || (waited <= now && !starting)) {
            match self.struck.get(&*order.caller).filter(|(_, not_before)| *not_before > now) {
                Some((_, not_before)) => again = again.min(*not_before),
                None => return self.start(order, now),
            }
        } else if !room && !order.alone && (self.width == usize::MAX || halfway <= now) {
            // All may hang. Whether they do is found out with those that have waited longest.
            let least = self.least_busy(|worker| own == 0 || is_own(worker));
            if let Some(at) = least {
                return self.give(at, order, now);
            }
        }
        let moments = self
            .workers
            .iter()
            .filter_map(|worker| worker.stale_at(patience))
            .chain([waited, halfway]);
        let next = moments.filter(|moment| *moment > now).min();
        Place::Wait(order, next.map_or(again, |next| next.min(again)))
    }

    /// The process with the fewest calls, of those that some call may share.
    fn least_busy(&self, may_take: impl Fn(&Worker) -> bool) -> Option<usize> {
        let open = self.workers.iter().enumerate();
        let open = open.filter(|(_, worker)| !worker.alone && may_take(worker));
        open.min_by_key(|(_, worker)| worker.pending.len()).map(|(at, _)| at)
    }

    fn give(&mut self, at: usize, order: Order, now: Instant) -> Place {
        let Some(worker) = self.workers.get_mut(at) else { return Place::Wait(order, now) };
        let (id, alone, caller) = (order.id, order.alone, order.caller.clone());
        match worker.orders.send(order) {
            Ok(()) => {
                worker.pending.insert(id, (now, caller));
                worker.alone |= alone;
                Place::Given
            }
            // It has just ended.
            Err(mpsc::error::SendError(order)) => {
                self.workers.remove(at);
                Place::Wait(order, now)
            }
        }
    }

    fn start(&mut self, order: Order, now: Instant) -> Place {
        let pending = BTreeMap::from([(order.id, (now, order.caller.clone()))]);
        let (number, orders, received) = self.add(pending, order.alone);
        let _ = orders.send(order);
        Place::Start(number, received)
    }

    fn add(
        &mut self,
        pending: BTreeMap<u64, (Instant, Box<str>)>,
        alone: bool,
    ) -> (u64, mpsc::UnboundedSender<Order>, mpsc::UnboundedReceiver<Order>) {
        let (orders, received) = mpsc::unbounded_channel();
        let (number, started) = (self.next, Instant::now());
        self.next += 1;
        let worker =
            Worker { number, orders: orders.clone(), pending, answered: false, alone, started };
        self.workers.push(worker);
        (number, orders, received)
    }
}
