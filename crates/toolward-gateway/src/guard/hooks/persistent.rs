//! A hook whose processes answer many calls each, matched by id.
//!
//! A task owns each process and what waits for it; [`Pool`] says which process a call is given to. A
//! process that hangs is ended when the time of its oldest call is over, and so is one that does not
//! keep to the protocol: then nobody can know what it meant, and what waits for it is refused.

use std::collections::{BTreeMap, VecDeque};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, oneshot};
use toolward_wire::Raw;

use super::answer::{Failed, LONGEST, Said, of_line};
use super::failures::Failures;
use super::pool::{Order, Outcome, Place, Pool, Timeouts};
use super::process::{Program, Running};
use super::share::{Quota, Slot};
use super::streams::{Printed, read_all};
use crate::log::Source;
use crate::upstream::transport::stdio::log_lines;

/// After its end, a process has gone by then.
const FAREWELL: Duration = Duration::from_secs(1);
/// So many calls that are over are remembered, so that a second answer to one is known as that.
const MOST_OVER: usize = 64;
/// A process beside another one that nobody needs for so long is ended.
const IDLE: Duration = Duration::from_secs(30);

/// How answers are cut out of what a process prints.
pub(super) trait Framing: Send + 'static {
    /// Each call is answered by itself: one that takes long keeps no other waiting.
    const CONCURRENT: bool;
    /// How calls are shared between agents while a process answers several at once.
    const QUOTA: Quota;

    /// The next answer and the id that it is for. An error says how the protocol was broken.
    fn next(buffer: &mut BytesMut) -> Result<Option<Answer>, &'static str>;
}

pub(super) type Answer = (u64, Result<Said, Failed>);

pub(super) struct Persistent<F> {
    keeper: Arc<Keeper>,
    pool: Arc<Pool>,
    next: AtomicU64,
    framing: PhantomData<fn() -> F>,
}

/// What the tasks need to know.
struct Keeper {
    program: Program,
    /// Whether it may be started now.
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

    /// Asks with the body that belongs to an id. A hook that is still starting is waited for until its
    /// start timeout; from then on, the timeout of a call applies.
    pub(super) async fn ask(
        &self,
        body: impl Fn(u64) -> Vec<u8>,
        caller: Option<&str>,
    ) -> Result<Said, Failed> {
        let since = Instant::now();
        let late = async {
            loop {
                let until = self.pool.deadline(since, self.keeper.timeouts);
                if until <= Instant::now() {
                    return;
                }
                tokio::time::sleep_until(until.into()).await;
            }
        };
        tokio::select! {
            answer = self.answer(body, caller, since) => answer,
            () = late => Err(Failed("it did not answer in time".into())),
        }
    }

    async fn answer(
        &self,
        body: impl Fn(u64) -> Vec<u8>,
        caller: Option<&str>,
        since: Instant,
    ) -> Result<Said, Failed> {
        let caller = caller.unwrap_or_default();
        let deadline = since + self.keeper.timeouts.call;
        let mut slot = self.slot_until(caller, since + self.keeper.timeouts.call / 2).await;
        for alone in [false, true] {
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let (done, outcome) = oneshot::channel();
            let (body, caller) = (body(id), caller.into());
            let order = Order { id, body, caller, alone, slot: slot.take(), done };
            self.order(order, since, deadline).await;
            match outcome.await {
                Ok(Outcome::Answered(answer)) => return answer,
                Ok(Outcome::Lost(kept)) => slot = kept,
                Err(_) => {}
            }
        }
        Err(Failed("its process has ended".into()))
    }

    /// Waits for a slot, but not for longer than half of a call's time.
    async fn slot_until(&self, caller: &str, halfway: Instant) -> Option<Slot> {
        let slot = self.pool.shares.slot(caller);
        tokio::time::timeout_at(halfway.into(), slot).await.ok().flatten()
    }

    /// Gives the call to a process, as soon as there is one for it.
    async fn order(&self, mut order: Order, since: Instant, deadline: Instant) {
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
                Place::Given => return,
                Place::Start(number, orders) => {
                    let (keeper, pool) = (self.keeper.clone(), Arc::downgrade(&self.pool));
                    tokio::spawn(work::<F>(keeper, pool, number, orders));
                    return;
                }
                Place::Wait(waiting, until) => {
                    order = waiting;
                    queued.get_or_insert_with(|| self.pool.queue());
                    self.pool.wait(until).await;
                }
            }
        }
    }
}

/// The task of one process. The pool ends with the hook, and then nobody can ask any more.
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
    let printed = Arc::new(Printed::default());
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
        answered: false,
        pool: pool.clone(),
        number,
        timeouts: keeper.timeouts,
        started: Instant::now(),
        framing: PhantomData,
    };
    let end = process.serve(&mut orders).await;
    group.kill();
    // From here on nothing comes, and what has come meanwhile goes elsewhere.
    let silent = !process.answered && !matches!(end, End::Unneeded);
    let struck = process.pending.values().filter(|_| silent).map(|one| one.order.caller.clone());
    ended(&struck.collect::<Vec<_>>());
    orders.close();
    while let Ok(order) = orders.try_recv() {
        order.lose();
    }
    // What refuses no call is told here.
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
    process.bury(end);
    let _ = tokio::time::timeout(FAREWELL, child.wait()).await;
}

/// A process that runs.
struct Process<F> {
    stdin: tokio::process::ChildStdin,
    stdout: tokio::process::ChildStdout,
    /// What it printed beside its answers.
    printed: Arc<Printed>,
    /// What it has not read yet.
    out: BytesMut,
    /// What it said and has not been understood yet.
    buffer: BytesMut,
    pending: BTreeMap<u64, Asked>,
    /// The latest calls that it has answered.
    over: VecDeque<u64>,
    answered: bool,
    pool: Weak<Pool>,
    number: u64,
    timeouts: Timeouts,
    started: Instant,
    framing: PhantomData<fn() -> F>,
}

/// A call that the process was told of.
struct Asked {
    order: Order,
    deadline: Instant,
}

/// Why a process is served no longer.
#[derive(Clone, Copy)]
enum End {
    /// Nobody can ask any more.
    Unneeded,
    /// The time of the oldest call is over.
    Expired,
    /// It ended, or listens no longer.
    Gone(&'static str),
    /// It says what it should not.
    Broken(&'static str),
    /// It speaks once more of a call that is over.
    Again,
}

const TWICE: &str = "it answers twice";

impl<F: Framing> Process<F> {
    fn push(&mut self, mut order: Order) {
        self.out.extend_from_slice(&std::mem::take(&mut order.body));
        let mut deadline = Instant::now() + self.timeouts.call;
        if !self.answered {
            deadline = deadline.max(self.started + self.timeouts.start);
        }
        self.pending.insert(order.id, Asked { order, deadline });
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
                    Ok(written @ 1..) => self.out.advance(written),
                    _ => return End::Gone("it closed its input"),
                },
                read = read_all(&mut self.stdout, &mut self.buffer, 2 * LONGEST) => {
                    if let Err(end) = self.received() {
                        return end;
                    }
                    if !read {
                        return End::Gone("its process has ended");
                    }
                },
                () = self.printed.too_much() => return End::Broken("it prints too much"),
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

    /// Takes in what was printed. Everything that has come is judged together: an answer that is given
    /// twice is none, and neither is one with something else behind it that nobody asked for.
    fn received(&mut self) -> Result<(), End> {
        let mut answers: BTreeMap<u64, Result<Said, Failed>> = BTreeMap::new();
        let mut again = false;
        while let Some((id, said)) = F::next(&mut self.buffer).map_err(End::Broken)? {
            if self.over.contains(&id) {
                again = true;
                continue;
            }
            if !self.pending.contains_key(&id) {
                return Err(End::Broken("it answers what was not asked"));
            }
            if answers.insert(id, said).is_some() {
                return Err(End::Broken(TWICE));
            }
        }
        if self.buffer.len() > LONGEST {
            return Err(End::Broken("it prints too much"));
        }
        let all = !answers.is_empty() && answers.len() == self.pending.len();
        if all && !self.buffer.trim_ascii().is_empty() {
            return Err(End::Broken("it answers, and goes on"));
        }
        if again {
            return Err(End::Again);
        }
        if !answers.is_empty() {
            // It has started: what waits is a call from now on.
            let latest = Instant::now() + self.timeouts.call;
            let waiting = self.pending.values_mut();
            waiting.for_each(|asked| asked.deadline = asked.deadline.min(latest));
        }
        for (id, said) in answers {
            self.answered |= said.is_ok();
            self.printed.forget();
            self.over.push_back(id);
            if self.over.len() > MOST_OVER {
                self.over.pop_front();
            }
            if let Some(Asked { order, .. }) = self.pending.remove(&id) {
                if let Some(pool) = self.pool.upgrade() {
                    pool.answered(self.number, id, &order.caller);
                }
                let _ = order.done.send(Outcome::Answered(said));
            }
        }
        Ok(())
    }

    /// Whoever still waits hears what became of it.
    fn bury(&mut self, end: End) {
        let now = Instant::now();
        // One that it never read is not why it ended.
        let guilty = self.pending.len() == 1 && self.out.is_empty();
        for (_, Asked { order, deadline }) in std::mem::take(&mut self.pending) {
            match end {
                End::Broken(how) => order.fail(how),
                // Of several, nobody knows which it was: each is asked again, by itself.
                End::Gone(how) if guilty => order.fail(how),
                End::Again if order.alone => order.fail(TWICE),
                End::Expired if deadline <= now => order.fail("it did not answer in time"),
                _ => order.lose(),
            }
        }
    }
}

/// One JSON object a line, with the `id` of the request.
pub(super) struct Lines;

impl Framing for Lines {
    // It may read one line after the other.
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
            let strange = "it prints something that is no answer";
            let said = Raw::scan(line, LONGEST).map_err(|_| strange)?;
            let id = said.member("id").and_then(Raw::as_i64);
            let id = id.and_then(|id| u64::try_from(id).ok()).ok_or(strange)?;
            return Ok(Some((id, of_line(said))));
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
        assert!(matches!(Lines::next(&mut buffer), Ok(Some((7, Ok(Said::Allow))))));
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
