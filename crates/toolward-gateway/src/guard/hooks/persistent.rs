//! One process that answers all calls of a hook, matched by id.
//!
//! One task owns the process and everything that waits for it. A process that hangs is ended when the
//! first call's time is over, and the others ask the next one. A process that does not keep to the
//! protocol is ended at once, and with it what waits: nobody can know what it meant. It is started
//! again when it is needed, with growing pauses while it answers nothing.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use toolward_wire::Raw;

use super::answer::{Failed, LONGEST, Said, decision};
use super::process::{Program, Running};
use crate::upstream::Log;
use crate::upstream::launch::log_lines;

/// After its end, a process has gone by then.
const FAREWELL: Duration = Duration::from_secs(1);
/// The first pause of a process that answers nothing; it doubles up to six times.
const PAUSE: Duration = Duration::from_millis(50);

/// How answers are cut out of what a process prints.
pub(super) trait Framing: Send + 'static {
    /// The next answer and the id that it is for. An error says how the protocol was broken.
    fn next(buffer: &mut BytesMut) -> Result<Option<Answer>, &'static str>;
}

pub(super) type Answer = (u64, Result<Said, Failed>);

pub(super) struct Persistent<F> {
    keeper: Arc<Keeper>,
    orders: Mutex<Option<mpsc::UnboundedSender<Order>>>,
    next: AtomicU64,
    framing: PhantomData<fn() -> F>,
}

/// What the task needs to know.
struct Keeper {
    program: Program,
    /// Whether it may be started now.
    may_start: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
    name: String,
    log: Log,
}

struct Order {
    id: u64,
    body: Vec<u8>,
    waiting: Waiting,
}

struct Waiting {
    deadline: Instant,
    done: oneshot::Sender<Outcome>,
}

enum Outcome {
    Answered(Result<Said, Failed>),
    /// The process was ended because of another call.
    Lost,
}

impl<F: Framing> Persistent<F> {
    pub(super) fn new(program: Program, name: &str, log: &Log) -> Persistent<F> {
        Persistent::guarded(program, Box::new(|| Ok(())), name, log)
    }

    pub(super) fn guarded(
        program: Program,
        may_start: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
        name: &str,
        log: &Log,
    ) -> Persistent<F> {
        let keeper = Keeper { program, may_start, name: format!("hook {name}"), log: log.clone() };
        Persistent {
            keeper: Arc::new(keeper),
            orders: Mutex::new(None),
            next: AtomicU64::new(1),
            framing: PhantomData,
        }
    }

    /// Asks with the body that belongs to an id.
    pub(super) async fn ask(
        &self,
        body: impl Fn(u64) -> Vec<u8>,
        timeout: Duration,
    ) -> Result<Said, Failed> {
        let deadline = Instant::now() + timeout;
        let mut again = true;
        loop {
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let (done, outcome) = oneshot::channel();
            self.order(Order { id, body: body(id), waiting: Waiting { deadline, done } });
            match outcome.await {
                Ok(Outcome::Answered(answer)) => return answer,
                Ok(Outcome::Lost) if std::mem::take(&mut again) => {}
                _ => return Err(Failed("its process has ended".into())),
            }
        }
    }

    fn order(&self, order: Order) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let order = match &*orders {
            Some(held) => match held.send(order) {
                Ok(()) => return,
                // The runtime it lived on is gone.
                Err(mpsc::error::SendError(order)) => order,
            },
            None => order,
        };
        let (sender, received) = mpsc::unbounded_channel();
        tokio::spawn(keep::<F>(self.keeper.clone(), received));
        let _ = sender.send(order);
        *orders = Some(sender);
    }
}

/// The task that owns the process.
async fn keep<F: Framing>(keeper: Arc<Keeper>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut strikes = 0u32;
    let mut not_before = Instant::now();
    while let Some(order) = orders.recv().await {
        if Instant::now() < not_before {
            order.waiting.fail("it ended and is not started again yet");
            continue;
        }
        let started = (keeper.may_start)().and_then(|()| {
            keeper.program.start().map_err(|error| keeper.program.cannot_start(&error))
        });
        let answered = match started {
            Err(why) => {
                order.waiting.fail(&why);
                false
            }
            Ok(running) => {
                let Running { mut group, mut child, stdin, stdout, stderr } = running;
                tokio::spawn(log_lines(stderr, keeper.log.clone(), keeper.name.clone()));
                let mut process = Process::<F> {
                    stdin,
                    stdout,
                    out: BytesMut::new(),
                    buffer: BytesMut::new(),
                    pending: BTreeMap::new(),
                    answered: false,
                    framing: PhantomData,
                };
                process.push(order);
                let end = process.serve(&mut orders).await;
                group.kill();
                let _ = tokio::time::timeout(FAREWELL, child.wait()).await;
                match end {
                    End::Unneeded => return,
                    End::Broken(how) if process.pending.is_empty() => {
                        (keeper.log)(&format!("{}: {how}", keeper.name));
                    }
                    _ => {}
                }
                process.bury(end);
                process.answered
            }
        };
        // One that has answered something is started again at once.
        strikes = if answered { 0 } else { (strikes + 1).min(6) };
        let pause = if strikes > 0 { PAUSE * (1 << strikes) } else { Duration::ZERO };
        not_before = Instant::now() + pause;
    }
}

impl Waiting {
    fn fail(self, why: &str) {
        let _ = self.done.send(Outcome::Answered(Err(Failed(why.into()))));
    }
}

/// A process that runs.
struct Process<F> {
    stdin: tokio::process::ChildStdin,
    stdout: tokio::process::ChildStdout,
    /// What it has not read yet.
    out: BytesMut,
    /// What it said and has not been understood yet.
    buffer: BytesMut,
    pending: BTreeMap<u64, Waiting>,
    answered: bool,
    framing: PhantomData<fn() -> F>,
}

/// Why a process is served no longer.
enum End {
    /// Nobody can ask any more.
    Unneeded,
    /// The time of the oldest call is over.
    Expired,
    Broken(&'static str),
}

impl<F: Framing> Process<F> {
    fn push(&mut self, order: Order) {
        self.out.extend_from_slice(&order.body);
        self.pending.insert(order.id, order.waiting);
    }

    async fn serve(&mut self, orders: &mut mpsc::UnboundedReceiver<Order>) -> End {
        loop {
            let deadline = self.pending.first_key_value().map(|(_, oldest)| oldest.deadline);
            let expired = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.push(order),
                    None => return End::Unneeded,
                },
                written = self.stdin.write(&self.out), if !self.out.is_empty() => match written {
                    Ok(written @ 1..) => self.out.advance(written),
                    _ => return End::Broken("it closed its input"),
                },
                read = self.stdout.read_buf(&mut self.buffer) => match read {
                    Ok(1..) => if let Err(how) = self.received() {
                        return End::Broken(how);
                    },
                    _ => return End::Broken("its process has ended"),
                },
                () = expired => return End::Expired,
            }
        }
    }

    /// Takes in what was printed. Answers that come together are judged together: one that is given
    /// twice is none.
    fn received(&mut self) -> Result<(), &'static str> {
        let mut answers: BTreeMap<u64, Result<Said, Failed>> = BTreeMap::new();
        while let Some((id, said)) = F::next(&mut self.buffer)? {
            if !self.pending.contains_key(&id) {
                return Err("it answers what was not asked, or twice");
            }
            if answers.insert(id, said).is_some() {
                return Err("it answers twice");
            }
        }
        if self.buffer.len() > LONGEST {
            return Err("it prints too much");
        }
        for (id, said) in answers {
            self.answered |= said.is_ok();
            if let Some(waiting) = self.pending.remove(&id) {
                let _ = waiting.done.send(Outcome::Answered(said));
            }
        }
        Ok(())
    }

    /// Whoever still waits hears what became of it.
    fn bury(&mut self, end: End) {
        let now = Instant::now();
        for (_, waiting) in std::mem::take(&mut self.pending) {
            match end {
                End::Broken(how) => waiting.fail(how),
                _ if waiting.deadline <= now => waiting.fail("it did not answer in time"),
                _ => drop(waiting.done.send(Outcome::Lost)),
            }
        }
    }
}

/// One JSON object a line, with the `id` of the request.
pub(super) struct Lines;

impl Framing for Lines {
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
            return Ok(Some((id, decision(said))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_answer_or_breaks_the_protocol() {
        let mut buffer = BytesMut::from(
            &b"\n{\"id\":7,\"decision\":\"allow\"}\r\n{\"id\":8,\"decision\":\"perhaps\"}\n{\"id\""
                [..],
        );
        assert!(matches!(Lines::next(&mut buffer), Ok(Some((7, Ok(Said::Allow))))));
        assert!(matches!(Lines::next(&mut buffer), Ok(Some((8, Err(_))))));
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
