//! A server that is a child process, spoken to line by line: in a process group of its own, with a
//! reduced environment.
//!
//! One task owns the process and everything that waits for it. A child that dies is started again
//! with backoff on the next use; what waited for it is answered at once, and nothing is sent twice.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::{mpsc, oneshot, watch};
use toolward_wire::Message;
use toolward_wire::exchange::{Done, Event, Exchange, Failure, Questions};
use toolward_wire::{Era, Revision, meta};

use super::link::Signal;
use super::process::{FAREWELL, Process};
use super::{Log, Opening, Outgoing, Remote, Sparing, Unavailable, sse};
use crate::hello::OWN_INFO;

/// Variables that every child gets, where they are set.
const INHERITED: [&str; 6] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];
/// A child that ends sooner than this after its start is not started again at once.
const SETTLED: Duration = Duration::from_secs(5);
/// Notifications of one call that wait for a slow client; more are dropped.
const WAITING: usize = 256;
/// A line of a child's standard error is logged up to this length.
const LONGEST_LINE: u64 = 8 << 10;

/// How to start a server.
#[derive(Debug, Clone)]
pub struct Launch {
    pub name: String,
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// Declared variables, beside the few that every child gets.
    pub environment: Vec<(OsString, OsString)>,
    pub folder: Option<PathBuf>,
}

/// Where lines come from and go to.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Program(Launch),
    /// HTTP+SSE, of the server with this name.
    Sse(String, Remote),
}

impl Source {
    fn name(&self) -> &str {
        match self {
            Source::Program(launch) => &launch.name,
            Source::Sse(name, _) => name,
        }
    }
}

/// A handle to the server's task. The process ends when the last handle is gone.
pub(super) struct Child {
    orders: mpsc::UnboundedSender<Order>,
    next: Arc<AtomicU64>,
    era: Era,
    /// Closed once the task, and with it the process, has ended.
    ended: watch::Receiver<()>,
}

pub(super) enum Order {
    Open { minted: u64, body: Bytes, waiting: Waiting },
    Cancel { minted: u64, timed_out: bool },
    Hello { answer: oneshot::Sender<Result<Message, Unavailable>> },
}

/// A request that waits for its answer.
pub(super) struct Waiting {
    pub(super) exchange: Box<Exchange>,
    pub(super) notes: mpsc::Sender<Bytes>,
    pub(super) done: oneshot::Sender<Done>,
}

/// A request under way. Dropped before its end, it is cancelled.
pub(super) struct Call {
    minted: u64,
    notes: mpsc::Receiver<Bytes>,
    done: oneshot::Receiver<Done>,
    orders: mpsc::UnboundedSender<Order>,
    ended: bool,
}

impl Call {
    pub(super) async fn next(&mut self) -> Event {
        tokio::select! {
            // What came before the answer is told before it.
            biased;
            Some(note) = self.notes.recv() => Event::Notify(note),
            done = &mut self.done, if !self.ended => {
                self.ended = true;
                Event::Done(done.unwrap_or(Done::Failed(Failure::Gone)))
            }
            else => Event::Done(Done::Failed(Failure::Gone)),
        }
    }

    pub(super) fn give_up(&self, timed_out: bool) {
        let _ = self.orders.send(Order::Cancel { minted: self.minted, timed_out });
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            self.give_up(false);
        }
    }
}

impl Child {
    /// `signal` hears when the list of tools changes, and when the process ends.
    pub(super) fn new(
        source: Source,
        opening: Opening,
        longest: usize,
        log: Log,
        signal: mpsc::UnboundedSender<Signal>,
    ) -> Child {
        let (sender, orders) = mpsc::unbounded_channel();
        let era = opening.era();
        let next = Arc::new(AtomicU64::new(1));
        let (running, ended) = watch::channel(());
        let task = Task { source, opening, longest, log, signal, next: next.clone() };
        tokio::spawn(async move {
            task.run(orders).await;
            drop(running);
        });
        Child { orders: sender, next, era, ended }
    }

    /// Resolves once the process has ended, which it does when no handle is left.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.ended.clone();
        async move {
            // Nothing is ever sent: the channel only closes.
            let _ = tokio::time::timeout(FAREWELL * 3, ended.changed()).await;
        }
    }

    pub(super) fn send(&self, outgoing: &Outgoing) -> Call {
        let minted = self.next.fetch_add(1, Ordering::Relaxed);
        let (body, exchange) = address(outgoing, self.era, minted);
        let (notes, told) = mpsc::channel(WAITING);
        let (done, answer) = oneshot::channel();
        let waiting = Waiting { exchange: Box::new(exchange), notes, done };
        // Where the task is gone, the receivers end at once.
        let _ = self.orders.send(Order::Open { minted, body, waiting });
        Call { minted, notes: told, done: answer, orders: self.orders.clone(), ended: false }
    }

    /// Starts the server if need be; gives its answer to what is said first.
    pub(super) async fn hello(&self) -> Result<Message, Unavailable> {
        let (answer, answered) = oneshot::channel();
        let _ = self.orders.send(Order::Hello { answer });
        let gone = || Unavailable::Down("the server's task has ended".into());
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// A request with the ids that the server sees, and the exchange that puts the client's back.
pub(super) fn address(outgoing: &Outgoing, era: Era, minted: u64) -> (Bytes, Exchange) {
    let message = &outgoing.message;
    let exchange = Exchange::new(message, outgoing.row, era, minted, Questions::Refuse);
    let mut edit = exchange.address(message.edit());
    let modern = message.meta(meta::PROTOCOL_VERSION).is_some();
    match (modern, era) {
        // Nothing that a server may ask of a client passes yet.
        (true, Era::Modern) => edit = edit.set_meta(meta::CLIENT_CAPABILITIES, &b"{}"[..]),
        // A client of one era at a server of the other: what only the one has is put in or left out.
        (false, Era::Modern) => {
            let version = format!("\"{}\"", Revision::newest(Era::Modern));
            edit = edit
                .set_meta(meta::PROTOCOL_VERSION, version.into_bytes())
                .set_meta(meta::CLIENT_INFO, OWN_INFO.as_bytes())
                .set_meta(meta::CLIENT_CAPABILITIES, &b"{}"[..]);
        }
        (true, Era::Legacy) => {
            for only_modern in [
                meta::PROTOCOL_VERSION,
                meta::CLIENT_INFO,
                meta::CLIENT_CAPABILITIES,
                meta::LOG_LEVEL,
            ] {
                edit = edit.remove_meta(only_modern);
            }
        }
        (false, Era::Legacy) => {}
    }
    if let Some(name) = &outgoing.name {
        edit = edit.set_param_str("name", name);
    }
    (edit.finish(), exchange)
}

/// The task that owns the process.
struct Task {
    source: Source,
    opening: Opening,
    /// The longest answer.
    longest: usize,
    log: Log,
    signal: mpsc::UnboundedSender<Signal>,
    next: Arc<AtomicU64>,
}

impl Task {
    async fn run(self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut strikes = 0u32;
        let mut not_before = Instant::now();
        while let Some(order) = orders.recv().await {
            if Instant::now() < not_before {
                order.fail(&Unavailable::Down("it ended and is not started again yet".into()));
                continue;
            }
            let begun = Instant::now();
            let mut settled = false;
            match self.start().await {
                Err(why) => {
                    if let Unavailable::Down(why) = &why {
                        (self.log)(&format!("{}: {why}", self.source.name()));
                    }
                    order.fail(&why);
                }
                Ok(mut process) => {
                    process.order(order);
                    if process.serve(&mut orders).await {
                        return;
                    }
                    (self.log)(&format!("{}: the server has ended", self.source.name()));
                    settled = begun.elapsed() >= SETTLED;
                    // The next process may offer something else.
                    let signal = if settled { Signal::Ended } else { Signal::Failed };
                    let _ = self.signal.send(signal);
                }
            }
            strikes = if settled { 0 } else { (strikes + 1).min(6) };
            if strikes > 0 {
                not_before = Instant::now() + Duration::from_millis(50 << strikes);
            }
        }
    }

    async fn start(&self) -> Result<Process, Unavailable> {
        let mut process = match &self.source {
            Source::Program(launch) => self.spawn(launch)?,
            Source::Sse(name, remote) => {
                let lines = sse::connect(name, remote, &self.log).await?;
                let (input, output) = tokio::io::split(lines);
                let (log, signal) = (self.log.clone(), self.signal.clone());
                Process::over(input, output, self.longest, name.clone(), log, signal)
            }
        };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        process.handshake(id, &self.opening).await?;
        Ok(process)
    }

    fn spawn(&self, launch: &Launch) -> Result<Process, Unavailable> {
        let mut command = Command::new(&launch.program);
        command
            .args(&launch.arguments)
            .env_clear()
            .envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .envs(launch.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(folder) = &launch.folder {
            command.current_dir(folder);
        }
        let program = launch.program.to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|error| {
            Unavailable::Down(format!("`{program}` cannot be started: {error}"))
        })?;
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(log_lines(stderr, self.log.clone(), launch.name.clone()));
        }
        let signal = self.signal.clone();
        Process::new(child, self.longest, launch.name.clone(), self.log.clone(), signal)
            .ok_or_else(|| Unavailable::Down(format!("`{program}` has no standard streams")))
    }
}

/// What a child says on its standard error goes to the log, line by line.
async fn log_lines(stderr: impl tokio::io::AsyncRead + Unpin, log: Log, name: String) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    let mut sparing = Sparing::default();
    loop {
        line.clear();
        let read = (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut line).await;
        if !read.is_ok_and(|read| read > 0) {
            return;
        }
        if !sparing.may_say() {
            continue;
        }
        let text = String::from_utf8_lossy(&line);
        log(&format!("{name}: {}", text.trim_end_matches(['\n', '\r'])));
    }
}

impl Order {
    fn fail(self, why: &Unavailable) {
        match self {
            Order::Open { waiting, .. } => {
                let _ = waiting.done.send(Done::Failed(Failure::Gone));
            }
            Order::Hello { answer } => {
                let _ = answer.send(Err(why.clone()));
            }
            Order::Cancel { .. } => {}
        }
    }
}
