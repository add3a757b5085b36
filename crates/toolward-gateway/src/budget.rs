//! The memory budget, in bytes, for everything the gateway holds for clients.
//!
//! Every holder (request bodies, results, queued notifications, replay logs, sessions) owns a
//! [`Reservation`] as long as it holds the bytes. Each agent has an [`Account`] with a share of the
//! budget, a quarter, so that no agent can use up the memory of the others.
//!
//! Work that can still be rejected reserves memory with [`Account::try_reserve`], and is rejected if that
//! fails. The result of a call that was carried out cannot be rejected: it waits for memory with
//! [`Reservation::grow`], and reading from the server pauses meanwhile. Partly read results could
//! deadlock waiting for each other, so one waiting result per agent may exceed the share, and one overall
//! may exceed the budget. The excess is bounded by the largest result.
//!
//! Counters are atomic and waiting uses [`Notify`], which works between the runtimes of several threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use hashbrown::HashMap;
use tokio::sync::Notify;

use crate::lock::{LockUnpoisoned, RwLockUnpoisoned};

/// An agent's share is the budget divided by this.
pub const SHARES: usize = 4;
/// Reserved for the result of a call before the call is forwarded. Most results are not larger.
pub(crate) const RESULT_ROOM: usize = 32 << 10;
/// Empty accounts are evicted when there are this many, and then at twice the remaining number. Checking at each new
/// account would cost more with every agent.
const MIN_PRUNE_SIZE: usize = 1024;

/// The budget and its accounts.
#[derive(Debug)]
pub struct Budget {
    total: Arc<Total>,
    accounts: RwLock<Accounts>,
    /// For input that is read before the caller is authenticated: the heads of requests.
    unidentified: Arc<Account>,
}

#[derive(Debug, Default)]
struct Accounts {
    by_agent: HashMap<Option<Arc<str>>, Arc<Account>>,
    /// The number of accounts at which empty ones are evicted.
    prune_at: usize,
}

#[derive(Debug)]
struct Total {
    limit: usize,
    held: AtomicUsize,
    /// A reservation exceeds the budget.
    overdrawn: AtomicBool,
    /// The number of tasks that wait for memory.
    waiting: AtomicUsize,
    freed: Notify,
    /// Locked by a waiting task while it tries to reserve.
    turn: Mutex<()>,
}

/// The memory held for one agent, and its share.
#[derive(Debug)]
pub struct Account {
    total: Arc<Total>,
    share: usize,
    held: AtomicUsize,
    /// A reservation exceeds the share.
    overdrawn: AtomicBool,
    /// Requests that wait for their response.
    waiting: AtomicUsize,
}

/// A request that waits for its response, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitingRequest(Arc<Account>);

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes reserved from an account; released when dropped.
#[derive(Debug)]
pub struct Reservation {
    account: Arc<Account>,
    bytes: AtomicUsize,
    /// Whether this is the reservation that exceeds the share, or the budget.
    exceeds_share: AtomicBool,
    exceeds_total: AtomicBool,
    /// It waits for memory, or waited when its last [`grow`](Reservation::grow) was abandoned.
    short: AtomicBool,
}

impl Budget {
    pub fn new(limit: usize) -> Budget {
        let total = Total {
            limit,
            held: AtomicUsize::new(0),
            overdrawn: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            turn: Mutex::default(),
        };
        let total = Arc::new(total);
        let unidentified = Account::new(&total, limit / SHARES);
        Budget { total, accounts: RwLock::default(), unidentified }
    }

    /// The account of an agent; unnamed callers share one.
    pub(crate) fn account(&self, agent: Option<&Arc<str>>) -> Arc<Account> {
        let key = agent.cloned();
        {
            let accounts = self.accounts.read_locked();
            if let Some(account) = accounts.by_agent.get(&key) {
                return account.clone();
            }
        }
        let mut accounts = self.accounts.write_locked();
        let Accounts { by_agent, prune_at } = &mut *accounts;
        // Reloads add and remove agents.
        if by_agent.len() >= (*prune_at).max(MIN_PRUNE_SIZE) {
            by_agent.retain(|_, account| Arc::strong_count(account) > 1 || account.held() > 0);
            *prune_at = by_agent.len() * 2;
        }
        let new = || Account::new(&self.total, self.total.limit / SHARES);
        by_agent.entry(key).or_insert_with(new).clone()
    }

    /// The account of requests whose caller is not authenticated yet.
    pub(crate) fn unidentified(&self) -> &Arc<Account> {
        &self.unidentified
    }

    /// An account with the whole budget as its share, for a process that serves a single client.
    pub(crate) fn sole_account(&self) -> Arc<Account> {
        Account::new(&self.total, self.total.limit)
    }

    /// Bytes currently held, for all agents.
    pub fn held(&self) -> usize {
        self.total.held.load(Ordering::SeqCst)
    }
}

impl Account {
    fn new(total: &Arc<Total>, share: usize) -> Arc<Account> {
        let (held, overdrawn, waiting) = Default::default();
        Arc::new(Account { total: total.clone(), share, held, overdrawn, waiting })
    }

    /// Counts a request that waits for its response; `None` if `most` of this agent wait already.
    pub(crate) fn try_wait(self: &Arc<Self>, most: usize) -> Option<WaitingRequest> {
        add_within(&self.waiting, 1, most).then(|| WaitingRequest(self.clone()))
    }

    /// Another account of the same size in the same budget.
    pub fn sibling(&self) -> Arc<Account> {
        Account::new(&self.total, self.share)
    }

    /// Whether it has the whole budget as its share, because there is only one client.
    pub(crate) fn is_sole(&self) -> bool {
        self.share == self.total.limit
    }

    /// Bytes currently held for this agent.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Whether more than half of the share or of the budget is in use. Memory held only for convenience,
    /// such as events for a replay, is released then, so that it never displaces calls.
    pub(crate) fn is_tight(&self) -> bool {
        let half = |held: usize, limit: usize| held > limit / 2;
        half(self.held(), self.share)
            || half(self.total.held.load(Ordering::SeqCst), self.total.limit)
    }

    /// Reserves bytes immediately, or nothing.
    pub(crate) fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let reservation = self.reserve_nothing();
        reservation.try_grow(bytes).then_some(reservation)
    }

    /// A reservation of no bytes, which can grow.
    pub(crate) fn reserve_nothing(self: &Arc<Self>) -> Reservation {
        Reservation {
            account: self.clone(),
            bytes: AtomicUsize::new(0),
            exceeds_share: AtomicBool::new(false),
            exceeds_total: AtomicBool::new(false),
            short: AtomicBool::new(false),
        }
    }

    fn release(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::SeqCst);
        self.total.held.fetch_sub(bytes, Ordering::SeqCst);
        self.total.wake_waiting();
    }
}

impl Total {
    /// Wakes the tasks that wait for memory.
    fn wake_waiting(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }
}

impl Reservation {
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Sets whether it waits for memory, if the bytes are reserved elsewhere while they arrive.
    pub(crate) fn set_short(&self, short: bool) {
        self.short.store(short, Ordering::SeqCst);
    }

    /// Whether it waits for memory, or did so until it was abandoned.
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Ordering::SeqCst)
    }

    /// Reserves more bytes immediately, or none.
    pub(crate) fn try_grow(&self, more: usize) -> bool {
        self.take(more, false)
    }

    /// Grows to at least `bytes` immediately, or not at all.
    pub(crate) fn try_grow_to(&self, bytes: usize) -> bool {
        self.try_grow(bytes.saturating_sub(self.bytes()))
    }

    /// Reserves more bytes, and waits until they are available. Dropping the future reserves nothing.
    pub async fn grow(&self, more: usize) {
        if !self.try_grow(more) {
            self.wait_until(|| self.take(more, true)).await;
        }
    }

    /// Takes over the bytes of another reservation of the same budget, and waits until this one's account
    /// has room for them. Dropping the future moves nothing.
    pub(crate) async fn absorb(&self, other: &Reservation) {
        if !self.take_over(other, false) {
            self.wait_until(|| self.take_over(other, true)).await;
        }
    }

    async fn wait_until(&self, is_done: impl Fn() -> bool) {
        self.set_short(true);
        let total = &self.account.total;
        let _waiting = Waiting::new(total);
        loop {
            let freed = total.freed.notified();
            tokio::pin!(freed);
            // Registered before the check, so that memory freed in between is not missed.
            freed.as_mut().enable();
            if is_done() {
                self.set_short(false);
                return;
            }
            freed.await;
        }
    }

    /// Grows to at least `bytes`, and waits until they are available.
    pub(crate) async fn grow_to(&self, bytes: usize) {
        self.grow(bytes.saturating_sub(self.bytes())).await;
    }

    /// Releases everything beyond `bytes`.
    pub(crate) fn shrink_to(&self, bytes: usize) {
        let before = self.bytes.fetch_min(bytes, Ordering::SeqCst);
        if before > bytes {
            self.account.release(before - bytes);
        }
    }

    fn take(&self, more: usize, may_exceed: bool) -> bool {
        if more == 0 {
            return true;
        }
        let (account, total) = (&*self.account, &*self.account.total);
        // One waiting task at a time: it may reserve from the account and release at once, which must not
        // look like a lack of memory to another one.
        let _turn = may_exceed.then(|| total.turn.locked());
        if !add_within(&account.held, more, account.share) {
            if !may_exceed || !claim(&account.overdrawn, &self.exceeds_share) {
                return false;
            }
            account.held.fetch_add(more, Ordering::SeqCst);
        }
        if !add_within(&total.held, more, total.limit) {
            if !may_exceed || !claim(&total.overdrawn, &self.exceeds_total) {
                account.held.fetch_sub(more, Ordering::SeqCst);
                if !may_exceed {
                    total.wake_waiting();
                }
                return false;
            }
            total.held.fetch_add(more, Ordering::SeqCst);
        }
        self.bytes.fetch_add(more, Ordering::SeqCst);
        true
    }

    /// Moves all bytes of another reservation here. The total does not change.
    fn take_over(&self, other: &Reservation, may_exceed: bool) -> bool {
        let (to, from, total) = (&*self.account, &*other.account, &*self.account.total);
        let _turn = may_exceed.then(|| total.turn.locked());
        let bytes = other.bytes();
        let is_same = std::ptr::eq(to, from);
        if !is_same {
            if !add_within(&to.held, bytes, to.share) {
                if !may_exceed || !claim(&to.overdrawn, &self.exceeds_share) {
                    return false;
                }
                to.held.fetch_add(bytes, Ordering::SeqCst);
            }
            from.held.fetch_sub(bytes, Ordering::SeqCst);
        }
        if other.exceeds_share.swap(false, Ordering::SeqCst) {
            match is_same {
                true => self.exceeds_share.store(true, Ordering::SeqCst),
                false => from.overdrawn.store(false, Ordering::SeqCst),
            }
        }
        if other.exceeds_total.swap(false, Ordering::SeqCst) {
            self.exceeds_total.store(true, Ordering::SeqCst);
        }
        other.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        // Others may wait for memory in the account that the bytes have left.
        total.wake_waiting();
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if *self.exceeds_share.get_mut() {
            self.account.overdrawn.store(false, Ordering::SeqCst);
        }
        if *self.exceeds_total.get_mut() {
            self.account.total.overdrawn.store(false, Ordering::SeqCst);
        }
        let bytes = *self.bytes.get_mut();
        self.account.release(bytes);
    }
}

/// Adds to a counter unless that exceeds a limit.
fn add_within(counter: &AtomicUsize, more: usize, limit: usize) -> bool {
    let fits = |held: usize| held.checked_add(more).filter(|sum| *sum <= limit);
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
}

/// Claims the right to exceed a limit, which only one reservation can have at a time.
fn claim(taken: &AtomicBool, mine: &AtomicBool) -> bool {
    if mine.load(Ordering::SeqCst) {
        return true;
    }
    let claimed = !taken.swap(true, Ordering::SeqCst);
    if claimed {
        mine.store(true, Ordering::SeqCst);
    }
    claimed
}

/// Counts a task that waits for memory.
struct Waiting<'t>(&'t Total);

impl<'t> Waiting<'t> {
    fn new(total: &'t Total) -> Waiting<'t> {
        total.waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(total)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn agent(name: &str) -> Option<Arc<str>> {
        Some(name.into())
    }

    #[test]
    fn only_so_many_requests_of_one_agent_wait() {
        let budget = Budget::new(400);
        let (a, b) = (budget.account(agent("a").as_ref()), budget.account(agent("b").as_ref()));
        let first = a.try_wait(2);
        let second = a.try_wait(2);
        assert!(first.is_some() && second.is_some());
        assert!(a.try_wait(2).is_none());
        assert!(b.try_wait(2).is_some(), "another agent is not affected");
        drop(first);
        assert!(a.try_wait(2).is_some(), "an answered request returns its bytes");
        drop(second);
    }

    #[test]
    fn an_agent_gets_its_share_and_no_more() {
        let budget = Budget::new(400);
        let a = budget.account(agent("a").as_ref());
        let held = a.try_reserve(100).unwrap();
        assert!(a.try_reserve(1).is_none());
        let b = budget.account(agent("b").as_ref()).try_reserve(100).unwrap();
        assert_eq!(budget.held(), 200);
        drop((held, b));
        assert_eq!((budget.held(), a.held()), (0, 0));
        assert!(a.try_reserve(100).is_some());
    }

    #[test]
    fn all_agents_together_stay_within_the_budget() {
        let budget = Budget::new(400);
        let names = ["a", "b", "c", "d", "e"];
        let held: Vec<_> = names
            .iter()
            .filter_map(|name| budget.account(agent(name).as_ref()).try_reserve(100))
            .collect();
        assert_eq!((held.len(), budget.held()), (4, 400));
    }

    #[test]
    fn a_shrinking_reservation_is_released_once() {
        let budget = Budget::new(400);
        let held = budget.account(None).try_reserve(100).unwrap();
        held.shrink_to(10);
        held.shrink_to(50);
        assert_eq!((held.bytes(), budget.held()), (10, 10));
        drop(held);
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn half_read_results_never_wait_for_each_other_forever() {
        let budget = Arc::new(Budget::new(400));
        let account = budget.account(agent("a").as_ref());
        // Ten results, each of half the share, that arrive in steps.
        let read = |account: Arc<Account>| async move {
            let result = account.try_reserve(1).unwrap();
            for _ in 0..49 {
                result.grow(1).await;
                tokio::task::yield_now().await;
            }
        };
        let all: Vec<_> = (0..10).map(|_| tokio::spawn(read(account.clone()))).collect();
        for one in all {
            tokio::time::timeout(Duration::from_secs(10), one).await.unwrap().unwrap();
        }
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn room_that_is_freed_on_one_thread_is_seen_on_another() {
        let budget = Arc::new(Budget::new(400));
        let account = budget.account(None);
        let full = account.try_reserve(100).unwrap();
        // One reservation may exceed the share; the next has to wait.
        let over = account.reserve_nothing();
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime().block_on(over.grow(10));
        let (begun, waits) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn(move || {
            let held = account.reserve_nothing();
            begun.send(()).unwrap();
            runtime().block_on(held.grow(50));
            held.bytes()
        });
        waits.recv().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiter.is_finished());
        drop(full);
        assert_eq!(waiter.join().unwrap(), 50);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn bytes_move_to_the_account_that_they_turn_out_to_belong_to() {
        let budget = Budget::new(400);
        let account = budget.account(agent("a").as_ref());
        let unknown = account.sibling();
        let arriving = unknown.reserve_nothing();
        arriving.grow(150).await;
        let result = account.try_reserve(10).unwrap();
        let before = account.try_reserve(60).unwrap();
        // It exceeds the share of either account, which one reservation may.
        result.absorb(&arriving).await;
        assert_eq!((result.bytes(), arriving.bytes()), (160, 0));
        assert_eq!((account.held(), unknown.held(), budget.held()), (220, 0, 220));
        // The next one waits for memory.
        let next = unknown.reserve_nothing();
        next.grow(150).await;
        let wait = tokio::time::timeout(Duration::from_millis(20), before.absorb(&next)).await;
        assert!(wait.is_err() && before.is_short());
        assert_eq!((before.bytes(), next.bytes()), (60, 150));
        drop(result);
        before.absorb(&next).await;
        assert_eq!((before.bytes(), before.is_short(), budget.held()), (210, false, 210));
        drop((before, next, arriving));
        assert_eq!((account.held(), unknown.held(), budget.held()), (0, 0, 0));
        assert!(account.try_reserve(100).is_some());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_right_to_exceed_moves_with_the_bytes() {
        let budget = Budget::new(400);
        let account = budget.account(agent("a").as_ref());
        let (result, arriving) = (account.reserve_nothing(), account.reserve_nothing());
        arriving.grow(1000).await;
        result.absorb(&arriving).await;
        drop(arriving);
        let next = account.reserve_nothing();
        let wait = tokio::time::timeout(Duration::from_millis(20), next.grow(1)).await;
        assert!(wait.is_err());
        drop(result);
        next.grow(1000).await;
    }

    #[test]
    fn at_most_one_result_exceeds_the_budget() {
        let budget = Budget::new(400);
        let names = ["a", "b", "c", "d"];
        let _full: Vec<_> = names
            .iter()
            .map(|name| budget.account(agent(name).as_ref()).try_reserve(100))
            .collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let first = budget.account(agent("a").as_ref()).reserve_nothing();
            first.grow(1000).await;
            let second = budget.account(agent("b").as_ref()).reserve_nothing();
            let waits = tokio::time::timeout(Duration::from_millis(20), second.grow(1)).await;
            assert!(waits.is_err());
            drop(first);
            second.grow(1).await;
        });
    }
}
