//! Counting in Redis or Valkey, for several gateways together.
//!
//! Each thread has one connection, on which requests follow each other without waiting for answers.
//! Taking is one script, so that it is atomic and costs one round trip. What does not answer in time
//! is let go of, and tried again with growing pauses. A call that nobody waits for any more takes
//! nothing: the script knows until when it is wanted, and an answer that comes too late is given back.

mod connect;
mod late_replies;
mod resp;

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use self::connect::{Clock, Scripts, Target};
use self::resp::Reply;
use super::counters::{Full, Pace};
use crate::log::Log;
use crate::upstream::pool::Connection;

const TAKE: &str = include_str!("redis/take.lua");
const GIVE_BACK: &str = include_str!("redis/give_back.lua");
/// A pause after the first failure; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const LINES: usize = 64;

thread_local! {
    /// This thread's connection.
    static LINE: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % LINES)
    };
}

/// A store of limits.
pub struct Redis {
    target: Arc<Target>,
    lines: Vec<Mutex<Option<mpsc::UnboundedSender<Order>>>>,
    timeout: Duration,
    log: Log,
    down: AtomicBool,
    /// Meanwhile this process counts for itself.
    falls_back: bool,
}

/// Why nothing was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::guard) struct Unreachable(String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What was taken: of each limit its counter, its interval and until when, in microseconds.
#[derive(Debug)]
pub(in crate::guard) struct Taken(Vec<(Arc<str>, u64, u64)>);

type Outcome = Result<Result<Taken, Full>, Unreachable>;

enum Order {
    Take { wanted: Vec<(Arc<str>, Pace)>, done: oneshot::Sender<Outcome> },
    GiveBack(Taken),
}

impl Redis {
    /// A store behind `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, or `rediss://` with TLS.
    pub fn new(url: &str, timeout: Duration, log: Log) -> Result<Redis, String> {
        let target = Arc::new(Target::parse(url, timeout)?);
        let lines = (0..LINES).map(|_| Mutex::default()).collect();
        let (down, falls_back) = (AtomicBool::new(false), false);
        Ok(Redis { target, lines, timeout, log, down, falls_back })
    }

    /// The same; while it cannot be used, this process counts for itself, and says so.
    pub fn falling_back(self, falls_back: bool) -> Redis {
        Redis { falls_back, ..self }
    }

    pub(in crate::guard) async fn take(&self, wanted: Vec<(Arc<str>, Pace)>) -> Outcome {
        let (done, answer) = oneshot::channel();
        self.order(Order::Take { wanted, done });
        let outcome = match tokio::time::timeout(self.timeout, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(Unreachable("its connection has ended".into())),
            Err(_) => Err(Unreachable("it did not answer in time".into())),
        };
        self.tell(&outcome);
        outcome
    }

    /// Nobody waits for this: where it fails, time gives back.
    pub(in crate::guard) fn give_back(&self, taken: Taken) {
        self.order(Order::GiveBack(taken));
    }

    fn order(&self, order: Order) {
        let Some(line) = self.lines.get(LINE.with(Cell::get)) else { return };
        let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
        let order = match &*line {
            Some(orders) => match orders.send(order) {
                Ok(()) => return,
                // The runtime it lived on is gone.
                Err(mpsc::error::SendError(order)) => order,
            },
            None => order,
        };
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (orders, received) = mpsc::unbounded_channel();
        tokio::spawn(line_of(self.target.clone(), received));
        let _ = orders.send(order);
        *line = Some(orders);
    }

    /// Says when the store is lost and when it is back; once each.
    fn tell(&self, outcome: &Outcome) {
        let down = outcome.is_err();
        if self.down.swap(down, Ordering::AcqRel) == down {
            return;
        }
        let at = &self.target.authority;
        (self.log)(&match outcome {
            Err(why) if self.falls_back => format!(
                "limits: the store at {at} cannot be used: {why}; this gateway counts for itself now"
            ),
            Err(why) => format!("limits: the store at {at} cannot be used: {why}"),
            Ok(_) if self.falls_back => {
                format!("limits: the store at {at} answers again; limits are counted there")
            }
            Ok(_) => format!("limits: the store at {at} answers again"),
        });
    }
}

/// One thread's connection, made when it is needed.
async fn line_of(target: Arc<Target>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut failures = 0u32;
    let mut not_before = Instant::now();
    let mut latest = String::new();
    while let Some(order) = orders.recv().await {
        if Instant::now() < not_before {
            order.fail(&latest);
            continue;
        }
        let connecting = tokio::time::timeout(target.timeout, target.connect()).await;
        let connected = connecting.unwrap_or_else(|_| Err(late()));
        latest = match connected {
            Ok((connection, scripts, clock)) => {
                let (waiting, out, timeout) = (VecDeque::new(), Vec::new(), target.timeout);
                let mut line = Line { connection, scripts, clock, timeout, waiting, out };
                line.push(order);
                match line.serve(&mut orders, &mut failures).await {
                    // Nobody needs it any more, or the store closed it while nothing was under way.
                    Ok(()) => continue,
                    Err(error) => {
                        line.let_go(&error);
                        error.to_string()
                    }
                }
            }
            Err(error) => {
                order.fail(&error.to_string());
                error.to_string()
            }
        };
        not_before = Instant::now() + LONGEST_PAUSE.min(PAUSE * (1 << failures.min(6)));
        failures += 1;
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time")
}

impl Order {
    fn fail(self, why: &str) {
        if let Order::Take { done, .. } = self {
            let _ = done.send(Err(Unreachable(why.into())));
        }
    }
}

/// A connection, and what waits for its answers in their order.
struct Line {
    connection: Connection,
    scripts: Scripts,
    clock: Clock,
    timeout: Duration,
    waiting: VecDeque<Waiting>,
    out: Vec<u8>,
}

struct Waiting {
    order: Order,
    since: Instant,
    /// It was sent with the whole script, because the store did not know its name.
    whole: bool,
}

impl Line {
    fn push(&mut self, order: Order) {
        self.write(&order, false);
        self.waiting.push_back(Waiting { order, since: Instant::now(), whole: false });
    }

    fn write(&mut self, order: &Order, whole: bool) {
        let (script, name) = match order {
            Order::Take { .. } => (TAKE, &self.scripts.take),
            Order::GiveBack(_) => (GIVE_BACK, &self.scripts.give_back),
        };
        let script = if whole { script } else { name };
        let verb = if whole { "EVAL" } else { "EVALSHA" };
        let (keys, numbers): (Vec<&Arc<str>>, Vec<String>) = match order {
            Order::Take { wanted, .. } => {
                let paces = wanted.iter().flat_map(|(_, pace)| micros(*pace));
                let valid_until = self.clock.after(self.timeout);
                (
                    wanted.iter().map(|(key, _)| key).collect(),
                    paces.chain([valid_until]).map(|number| number.to_string()).collect(),
                )
            }
            Order::GiveBack(Taken(taken)) => (
                taken.iter().map(|(key, ..)| key).collect(),
                taken
                    .iter()
                    .flat_map(|(_, each, until)| [each, until])
                    .map(u64::to_string)
                    .collect(),
            ),
        };
        let count = keys.len().to_string();
        let mut words: Vec<&[u8]> = vec![verb.as_bytes(), script.as_bytes(), count.as_bytes()];
        words.extend(keys.iter().map(|key| key.as_bytes()));
        words.extend(numbers.iter().map(|number| number.as_bytes()));
        resp::command(&words, &mut self.out);
    }

    /// Serves until the store closes the connection in peace, or nobody holds the other end.
    async fn serve(
        &mut self,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        failures: &mut u32,
    ) -> io::Result<()> {
        let timeout = self.timeout;
        loop {
            if !self.out.is_empty() {
                let out = std::mem::take(&mut self.out);
                let written = tokio::time::timeout(timeout, self.connection.write(&out)).await;
                let half = || io::Error::other("it did not read in time");
                written.unwrap_or_else(|_| Err(half()))?;
            }
            let deadline = self.waiting.front().map(|first| first.since + timeout);
            let expired = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                order = orders.recv() => {
                    let Some(order) = order else { return Ok(()) };
                    self.push(order);
                    while let Ok(order) = orders.try_recv() {
                        self.push(order);
                    }
                }
                more = self.connection.read_more() => {
                    if !more? {
                        return match self.waiting.is_empty() {
                            true => Ok(()),
                            false => Err(io::Error::other("it closed the connection")),
                        };
                    }
                    while let Some(reply) = self.reply()? {
                        *failures = 0;
                        self.answered(reply)?;
                    }
                }
                () = expired => return Err(late()),
            }
        }
    }

    fn reply(&mut self) -> io::Result<Option<Reply>> {
        let reply = resp::reply(&mut self.connection.buffer);
        reply.map_err(|_| io::Error::other("it does not speak Redis' protocol"))
    }

    fn answered(&mut self, reply: Reply) -> io::Result<()> {
        let Some(Waiting { order, since, whole }) = self.waiting.pop_front() else {
            return Err(io::Error::other("it answers what was not asked"));
        };
        if matches!(&reply, Reply::Error(why) if why.starts_with("NOSCRIPT") && !whole) {
            self.write(&order, true);
            self.waiting.push_back(Waiting { order, since, whole: true });
            return Ok(());
        }
        let Order::Take { wanted, done } = order else { return Ok(()) };
        self.clock.learn(&reply, since);
        if let Err(Ok(Ok(taken))) = done.send(outcome(wanted, &reply)) {
            // Whoever asked has gone, and does not make the call.
            self.push(Order::GiveBack(taken));
        }
        Ok(())
    }
}

/// A pace in microseconds: the store's numbers are exact only up to there.
fn micros(pace: Pace) -> [u64; 2] {
    let interval = pace.interval.div_ceil(1_000);
    let at_once = pace.tolerance / pace.interval.max(1);
    // Sixteen digits are exact there.
    [interval, interval.saturating_mul(at_once).min(1 << 52)]
}

fn outcome(wanted: Vec<(Arc<str>, Pace)>, reply: &Reply) -> Outcome {
    let strange = || Unreachable("it answers something else than was asked".into());
    let parts = match reply {
        Reply::List(parts) => parts,
        Reply::Error(why) => return Err(Unreachable(format!("it refuses: {why}"))),
        _ => return Err(strange()),
    };
    let numbers: Vec<u64> = parts
        .iter()
        .map(|part| part.number().and_then(|number| u64::try_from(number).ok()))
        .collect::<Option<_>>()
        .ok_or_else(strange)?;
    match numbers.as_slice() {
        [2, _] => Err(Unreachable("it was too slow".into())),
        [1, _, until @ ..] if until.len() == wanted.len() => {
            let taken = wanted.into_iter().zip(until);
            let taken = taken.map(|((key, pace), until)| (key, micros(pace)[0], *until));
            Ok(Ok(Taken(taken.collect())))
        }
        [0, _, which, wait] if *which > 0 => {
            let which = usize::try_from(which - 1).unwrap_or(usize::MAX);
            Ok(Err(Full { which, wait: wait.saturating_mul(1_000) }))
        }
        _ => Err(strange()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_in_microseconds_is_never_faster() {
        let pace = Pace { interval: 142_857_142, tolerance: 142_857_142 * 7 };
        assert_eq!(micros(pace), [142_858, 142_858 * 7]);
        let huge = Pace { interval: u64::MAX / 2, tolerance: u64::MAX };
        assert!(micros(huge)[1] <= 1 << 52);
    }

    #[test]
    fn only_the_answer_that_was_asked_for_counts() {
        let wanted = || vec![("k".into(), Pace { interval: 1_000, tolerance: 5_000 })];
        let list =
            |numbers: &[i64]| Reply::List(numbers.iter().map(|n| Reply::Number(*n)).collect());
        assert!(outcome(wanted(), &list(&[1, 5, 99])).unwrap().is_ok());
        let full = outcome(wanted(), &list(&[0, 5, 1, 7])).unwrap().unwrap_err();
        assert_eq!(full, Full { which: 0, wait: 7_000 });
        for strange in [
            list(&[1]),
            list(&[1, 5]),
            list(&[1, 5, 2, 3]),
            list(&[]),
            list(&[2, 1]),
            list(&[1, 5, -1]),
        ] {
            assert!(outcome(wanted(), &strange).is_err(), "{strange:?}");
        }
    }
}
