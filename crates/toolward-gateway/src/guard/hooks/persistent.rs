//! A hook whose processes answer many calls each, matched by id.
//!
//! Each process is owned by a task, which also holds the calls that wait for it; [`Pool`] assigns calls
//! to processes. A process that hangs is killed when its oldest call times out. So is one that violates
//! the protocol: its answers cannot be trusted, so the calls that wait for it are refused.

use std::collections::{BTreeMap, VecDeque};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use rustix::io::ioctl_fionread;
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, oneshot};
use toolward_wire::Raw;

use super::answer::{HookError, HookVerdict, MAX_ANSWER_BYTES, of_line};
use super::failures::Failures;
use super::pool::{Order, Outcome, Placement, Pool, Timeouts};
use super::process::{Program, Running};
use super::share::{Quota, Slot};
use super::streams::{PrintedBytes, read_all};
use crate::log::Source;
use crate::upstream::transport::stdio::log_lines;

/// How long to wait for a killed process to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of finished calls that are remembered, to recognize a second answer to one.
const MAX_REMEMBERED: usize = 64;
/// Idle timeout of additional processes.
const IDLE: Duration = Duration::from_secs(30);

/// Interval at which a starting process is checked for having read its first request.
const READ_POLL: Duration = Duration::from_millis(20);

/// How answers are framed in a process's output.
pub(super) trait Framing: Send + 'static {
    /// Calls are answered independently: a slow one does not block others.
    const CONCURRENT: bool;
    /// The quota of agents while a process answers several calls at once.
    const QUOTA: Quota;

    /// The next answer and the id of its call. The error is a description of the protocol violation.
    fn next(buffer: &mut BytesMut) -> Result<Option<Answer>, &'static str>;
}

pub(super) type Answer = (u64, Result<HookVerdict, HookError>);

pub(super) struct Persistent<F> {
    keeper: Arc<Keeper>,
    pool: Arc<Pool>,
    next: AtomicU64,
    framing: PhantomData<fn() -> F>,
}

/// State shared by the tasks.
struct Keeper {
    program: Program,
    /// Checked before each start.
    may_start: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
    name: String,
    timeouts: Timeouts,
    failures: Arc<Failures>,
}

impl<F: Framing> Persistent<F> {
    pub(super) fn new(
        program: Program,
        timeouts: Timeouts,
        name: &str,
        failures: &Arc<Failures>,
    ) -> Persistent<F> {
        Persistent::guarded(program, Box::new(|| Ok(())), timeouts, name, failures)
    }

    pub(super) fn guarded(
        program: Program,
        may_start: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
        timeouts: Timeouts,
        name: &str,
        failures: &Arc<Failures>,
    ) -> Persistent<F> {
        let (name, failures) = (name.to_string(), failures.clone());
        Persistent {
            keeper: Arc::new(Keeper { program, may_start, name, timeouts, failures }),
            pool: Arc::new(Pool::new(F::CONCURRENT, F::QUOTA)),
            next: AtomicU64::new(1),
            framing: PhantomData,
        }
    }

    /// Starts a process before the first call, so that no call waits for it.
    pub(super) fn start(&self) {
        if let Some((number, orders)) = self.pool.start_first() {
            let (keeper, pool) = (self.keeper.clone(), Arc::downgrade(&self.pool));
            tokio::spawn(work::<F>(keeper, pool, number, orders));
        }
    }

    /// Sends a call with the body for its id. While a hook is starting, its start timeout applies; after
    /// that, the timeout of a call.
    pub(super) async fn ask(
        &self,
        body: impl Fn(u64) -> Vec<u8>,
        caller: Option<&str>,
    ) -> Result<HookVerdict, HookError> {
        let caller = caller.unwrap_or_default();
        let mut since = Instant::now();
        let mut slot = self.slot_until(caller, since + self.keeper.timeouts.call / 2).await;
        for alone in [false, true] {
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let (done, outcome) = oneshot::channel();
            let (body, caller) = (body(id), caller.into());
            let order = Order { id, body, caller, alone, slot: slot.take(), done };
            tokio::select! {
                biased;
                () = self.order(order, since) => {}
                () = self.waited_too_long(since) => {
                    return Err(HookError("no process was free in time".into()));
                }
            }
            match outcome.await {
                Ok(Outcome::Answered(answer)) => return answer,
                Ok(Outcome::Lost(kept)) => slot = kept,
                Err(_) => {}
            }
            // Another call may be the reason for the loss, so this one gets its whole time again.
            since = Instant::now();
        }
        Err(HookError("its process has ended".into()))
    }

    /// Resolves when a call that came at `since` has waited for a process for too long.
    async fn waited_too_long(&self, since: Instant) {
        loop {
            let until = self.pool.waits_until(since, self.keeper.timeouts);
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until.into()).await;
        }
    }

    /// Waits for a slot, for at most half of a call's timeout.
    async fn slot_until(&self, caller: &str, halfway: Instant) -> Option<Slot> {
        let slot = self.pool.shares.slot(caller);
        tokio::time::timeout_at(halfway.into(), slot).await.ok().flatten()
    }

    /// Assigns the call to a process as soon as one is available.
    async fn order(&self, mut order: Order, since: Instant) {
        let deadline = since + self.keeper.timeouts.call;
        if order.slot.is_none() {
            order = match order.alone {
                false => match self.pool.join_own(order) {
                    Ok(()) => return,
                    Err(order) => order,
                },
                true => order,
            };
            order.slot = self.pool.shares.slot(&order.caller).await;
        }
        let mut queued = None;
        loop {
            match self.pool.place(order, (since, deadline), queued.is_some()) {
                Placement::Given => return,
                Placement::Start(number, orders) => {
                    let (keeper, pool) = (self.keeper.clone(), Arc::downgrade(&self.pool));
                    tokio::spawn(work::<F>(keeper, pool, number, orders));
                    return;
                }
                Placement::Wait(waiting, until) => {
                    order = waiting;
                    queued.get_or_insert_with(|| self.pool.queue());
                    self.pool.wait(until).await;
                }
            }
        }
    }
}

/// The task of one process. It ends when the hook, which owns the pool, is dropped.
async fn work<F: Framing>(
    keeper: Arc<Keeper>,
    pool: Weak<Pool>,
    number: u64,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let ended = |struck: &[Box<str>]| {
        if let Some(pool) = pool.upgrade() {
            pool.ended(number, struck.iter().map(|caller| &**caller));
        }
    };
    let started = (keeper.may_start)()
        .and_then(|()| keeper.program.start().map_err(|error| keeper.program.cannot_start(&error)));
    let running = match started {
        Ok(running) => running,
        Err(why) => {
            ended(&[]);
            while let Ok(order) = orders.try_recv() {
                order.fail(&why);
            }
            return;
        }
    };
    let Running { mut group, mut child, stdin, stdout, stderr } = running;
    let printed = Arc::new(PrintedBytes::default());
    let stderr = printed.clone().count(stderr);
    tokio::spawn(log_lines(stderr, Source::Hook(keeper.name.clone())));
    let mut process = Process::<F> {
        stdin,
        stdout,
        printed,
        out: BytesMut::new(),
        buffer: BytesMut::new(),
        pending: BTreeMap::new(),
        over: VecDeque::new(),
        fed: 0,
        starting: true,
        answered: false,
        pool: pool.clone(),
        number,
        timeouts: keeper.timeouts,
        started: Instant::now(),
        framing: PhantomData,
    };
    let end = process.serve(&mut orders).await;
    group.kill();
    // No further calls are assigned from here on; those assigned in the meantime go to another process.
    let silent = !process.answered && !matches!(end, End::Unneeded);
    let struck = process.pending.values().filter(|_| silent).map(|one| one.order.caller.clone());
    ended(&struck.collect::<Vec<_>>());
    orders.close();
    while let Ok(order) = orders.try_recv() {
        order.lose();
    }
    // Failures that refuse no call are logged here.
    match end {
        End::Broken(how) if process.pending.is_empty() => {
            keeper.failures.log(how);
        }
        End::Again => keeper.failures.log(TWICE),
        End::Gone(how) if silent && process.pending.is_empty() => {
            keeper.failures.log(&format!("{how} before its first call"));
        }
        _ => {}
    }
    process.finish_pending(end);
    let _ = tokio::time::timeout(EXIT_TIMEOUT, child.wait()).await;
}

/// A running process.
struct Process<F> {
    stdin: tokio::process::ChildStdin,
    stdout: tokio::process::ChildStdout,
    /// Output besides its answers.
    printed: Arc<PrintedBytes>,
    /// Input that has not been written to it yet, and the number of bytes that have.
    out: BytesMut,
    fed: u64,
    /// Output that has not been parsed yet.
    buffer: BytesMut,
    pending: BTreeMap<u64, PendingCall>,
    /// The latest calls it has answered.
    over: VecDeque<u64>,
    /// It may still be starting: it has the start timeout.
    starting: bool,
    answered: bool,
    pool: Weak<Pool>,
    number: u64,
    timeouts: Timeouts,
    started: Instant,
    framing: PhantomData<fn() -> F>,
}

/// A call that was sent to the process.
struct PendingCall {
    order: Order,
    deadline: Instant,
}

/// Why a process is no longer used.
#[derive(Clone, Copy)]
enum End {
    /// The hook was dropped, or the process was idle.
    Unneeded,
    /// The oldest call timed out.
    Expired,
    /// It exited or closed its input.
    Gone(&'static str),
    /// It violated the protocol.
    Broken(&'static str),
    /// It answered a finished call again.
    Again,
}

const TWICE: &str = "it answers twice";

impl<F: Framing> Process<F> {
    fn push(&mut self, mut order: Order) {
        self.out.extend_from_slice(&std::mem::take(&mut order.body));
        let mut deadline = Instant::now() + self.timeouts.call;
        if self.starting {
            deadline = deadline.max(self.started + self.timeouts.start);
        }
        self.pending.insert(order.id, PendingCall { order, deadline });
    }

    async fn serve(&mut self, orders: &mut mpsc::UnboundedReceiver<Order>) -> End {
        loop {
            let deadline = self.pending.values().map(|asked| asked.deadline).min();
            let pause = deadline.unwrap_or_else(|| Instant::now() + IDLE);
            tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.push(order),
                    None => return End::Unneeded,
                },
                written = self.stdin.write(&self.out), if !self.out.is_empty() => match written {
                    Ok(written @ 1..) => {
                        self.out.advance(written);
                        self.fed += written as u64;
                    }
                    _ => return End::Gone("it closed its input"),
                },
                read = read_all(&mut self.stdout, &mut self.buffer, 2 * MAX_ANSWER_BYTES) => {
                    if let Err(end) = self.received() {
                        return end;
                    }
                    if !read {
                        return End::Gone("its process has ended");
                    }
                },
                () = self.printed.too_much() => return End::Broken("it prints too much"),
                () = tokio::time::sleep(READ_POLL), if self.starting && self.fed > 0 => {
                    if self.has_read() && self.pool.upgrade().is_some_and(|pool| pool.accepted(self.number)) {
                        self.started();
                    }
                }
                () = tokio::time::sleep_until(pause.into()) => {
                    if deadline.is_some() {
                        return End::Expired;
                    }
                    if self.pool.upgrade().is_none_or(|pool| pool.dismiss(self.number)) {
                        return End::Unneeded;
                    }
                }
            }
        }
    }

    /// Whether it has read some of what was written to it. A process that loads something first reads later.
    fn has_read(&self) -> bool {
        ioctl_fionread(&self.stdin).is_ok_and(|unread| unread < self.fed)
    }

    /// It has started: the timeout of each call that waits counts from now on.
    fn started(&mut self) {
        self.starting = false;
        let latest = Instant::now() + self.timeouts.call;
        let waiting = self.pending.values_mut();
        waiting.for_each(|asked| asked.deadline = asked.deadline.min(latest));
    }

    /// Parses new output. All of it is checked together: a duplicate answer is invalid, and so is an
    /// answer followed by unexpected output.
    fn received(&mut self) -> Result<(), End> {
        let mut answers: BTreeMap<u64, Result<HookVerdict, HookError>> = BTreeMap::new();
        let mut again = false;
        while let Some((id, verdict)) = F::next(&mut self.buffer).map_err(End::Broken)? {
            if self.over.contains(&id) {
                again = true;
                continue;
            }
            if !self.pending.contains_key(&id) {
                return Err(End::Broken("it answers a call that was not sent"));
            }
            if answers.insert(id, verdict).is_some() {
                return Err(End::Broken(TWICE));
            }
        }
        if self.buffer.len() > MAX_ANSWER_BYTES {
            return Err(End::Broken("it prints too much"));
        }
        let all = !answers.is_empty() && answers.len() == self.pending.len();
        if all && !self.buffer.trim_ascii().is_empty() {
            return Err(End::Broken("it prints more after its answer"));
        }
        if again {
            return Err(End::Again);
        }
        if !answers.is_empty() {
            self.started();
        }
        for (id, verdict) in answers {
            self.answered |= verdict.is_ok();
            self.printed.forget();
            self.over.push_back(id);
            if self.over.len() > MAX_REMEMBERED {
                self.over.pop_front();
            }
            if let Some(PendingCall { order, .. }) = self.pending.remove(&id) {
                if let Some(pool) = self.pool.upgrade() {
                    pool.answered(self.number, id, &order.caller);
                }
                let _ = order.done.send(Outcome::Answered(verdict));
            }
        }
        Ok(())
    }

    /// Fails or reassigns the calls that still wait.
    fn finish_pending(&mut self, end: End) {
        let now = Instant::now();
        // A call that it never read cannot be why it ended.
        let guilty = self.pending.len() == 1 && self.out.is_empty();
        for (_, PendingCall { order, deadline }) in std::mem::take(&mut self.pending) {
            match end {
                End::Broken(how) => order.fail(how),
                // With several calls, it is unknown which one caused the end: each is retried alone.
                End::Gone(how) if guilty => order.fail(how),
                End::Again if order.alone => order.fail(TWICE),
                End::Expired if deadline <= now => order.fail("it did not answer in time"),
                _ => order.lose(),
            }
        }
    }
}

/// One JSON object per line, with the `id` of the request.
pub(super) struct Lines;

impl Framing for Lines {
    // The program may process one line after the other.
    const CONCURRENT: bool = false;
    const QUOTA: Quota = Quota::CONCURRENT;

    fn next(buffer: &mut BytesMut) -> Result<Option<Answer>, &'static str> {
        loop {
            let Some(end) = buffer.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
            let line = buffer.split_to(end + 1);
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let strange = "it prints something that is not an answer";
            let verdict = Raw::scan(line, MAX_ANSWER_BYTES).map_err(|_| strange)?;
            let id = verdict.member("id").and_then(Raw::as_i64);
            let id = id.and_then(|id| u64::try_from(id).ok()).ok_or(strange)?;
            return Ok(Some((id, of_line(verdict))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_answer_or_breaks_the_protocol() {
        let mut buffer = BytesMut::from(
            &b"\n{\"id\":7,\"decision\":\"allow\"}\r\n{\"id\":8,\"decision\":\"perhaps\"}\n\
               {\"id\":9,\"decision\":\"allow\",\"allow\":false}\n{\"id\""[..],
        );
        assert!(matches!(Lines::next(&mut buffer), Ok(Some((7, Ok(HookVerdict::Allow))))));
        assert!(matches!(Lines::next(&mut buffer), Ok(Some((8, Err(_))))));
        assert!(matches!(Lines::next(&mut buffer), Ok(Some((9, Err(_))))));
        assert!(matches!(Lines::next(&mut buffer), Ok(None)));
        for wrong in [
            "hello\n",
            "{\"decision\":\"allow\"}\n",
            "{\"id\":\"7\"}\n",
            "{\"id\":-1}\n",
            "\u{0}\n",
        ] {
            assert!(Lines::next(&mut wrong.as_bytes().into()).is_err(), "{wrong:?}");
        }
    }
}
