//! A server that is spoken to line by line: a child process, as a rule.
//!
//! One task owns the process and everything that waits for it. A child that dies is started again
//! with backoff on the next use; what waited for it is answered at once, and nothing is sent twice. A
//! child that is started and silent may be slow: it is waited for, for as long as somebody does.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use toolward_wire::Message;
use toolward_wire::exchange::{Event, Exchange, ExchangeEnd, Failure, ServerRequests};
use toolward_wire::{Era, Revision, meta};

use super::Signal;
use super::environment::WithheldReport;
use super::line_orders::{Order, PendingRequest};
use super::line_server::{LineServer, Started};
use super::line_session::{FAREWELL, Input, Process, Users};
use super::reusable_process::Spare;
use super::{ids, legacy_sse};
use crate::metrics::lifecycle::Life;
use crate::notifications::Queue;
use crate::permit::Outgoing;
use crate::upstream::handshake::OWN_INFO;
use crate::upstream::handshake::Opening;
use crate::upstream::stalls::Stalls;
use crate::upstream::{GiveUp, Remote, Unavailable};

/// How long a child may take for its start and its first answer: some install themselves first.
const HANDSHAKE: Duration = Duration::from_secs(60);
/// A server that has not answered by then is reported.
const SILENT: Duration = Duration::from_secs(10);
/// How long one that has answered before, in an era that it does not know.
const AGAIN: Duration = Duration::from_secs(5);
/// A child that ends sooner than this after its start is not started again at once.
const SETTLED: Duration = Duration::from_secs(5);

/// Where lines come from and go to.
#[derive(Clone)]
pub(in crate::upstream) enum Source {
    /// A program, and what is left of asking it in another era.
    Program(LineServer, Arc<Spare>, Arc<WithheldReport>),
    /// HTTP+SSE, of the server with this name.
    Sse(String, Remote),
}

impl Source {
    fn name(&self) -> &str {
        match self {
            Source::Program(program, ..) => program.name(),
            Source::Sse(name, _) => name,
        }
    }

    /// A message for the log, without the withheld variables if they were logged before.
    fn log_line<'m>(&self, message: &'m str) -> &'m str {
        match self {
            Source::Program(_, _, withheld) => withheld.log_line(message),
            Source::Sse(..) => message,
        }
    }
}

/// A handle to the server's task. The process ends when the last handle is gone.
pub(in crate::upstream) struct Child {
    orders: mpsc::UnboundedSender<Order>,
    era: Era,
    /// Closed once the task, and with it the process, has ended.
    ended: watch::Receiver<()>,
    stalls: Stalls,
}

/// A request under way. Dropped before its end, it is cancelled.
pub(in crate::upstream) struct Call {
    minted: u64,
    notes: Arc<Queue>,
    done: oneshot::Receiver<ExchangeEnd>,
    /// The end, while notifications that came before it are passed on.
    finished: Option<Box<ExchangeEnd>>,
    orders: mpsc::UnboundedSender<Order>,
    ended: bool,
    stalls: Stalls,
}

impl Call {
    pub(in crate::upstream) fn stalls(&self) -> &Stalls {
        &self.stalls
    }

    pub(in crate::upstream) async fn next(&mut self) -> Event {
        if !self.ended {
            tokio::select! {
                biased;
                note = self.notes.next() => return Event::Notify(note.bytes),
                done = &mut self.done => {
                    self.ended = true;
                    self.finished = done.ok().map(Box::new);
                }
            }
        }
        // What came before the answer is told before it.
        if let Some(note) = self.notes.pop() {
            return Event::Notify(note.bytes);
        }
        Event::Done(self.finished.take().map_or(ExchangeEnd::Failed(Failure::Gone), |end| *end))
    }

    pub(in crate::upstream) fn give_up(&self, why: GiveUp) {
        let _ = self.orders.send(Order::Cancel { minted: self.minted, why });
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            self.give_up(GiveUp::LEFT);
        }
    }
}

impl Child {
    /// `signal` hears when the list of tools changes, and when the process ends.
    pub(in crate::upstream) fn new(
        source: Source,
        opening: Opening,
        longest: usize,
        signal: mpsc::UnboundedSender<Signal>,
        life: Arc<Life>,
        users: Users,
    ) -> Child {
        let (sender, orders) = mpsc::unbounded_channel();
        let era = opening.era();
        let (running, ended) = watch::channel(());
        let stalls = Stalls::default();
        let shown = stalls.clone();
        let task = Task { source, opening, longest, signal, life, users, stalls };
        tokio::spawn(async move {
            task.run(orders).await;
            drop(running);
        });
        Child { orders: sender, era, ended, stalls: shown }
    }

    /// Resolves once the process has ended, which it does when no handle is left.
    pub(in crate::upstream) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.ended.clone();
        async move {
            // Nothing is ever sent: the channel only closes.
            let _ = tokio::time::timeout(FAREWELL * 3, ended.changed()).await;
        }
    }

    pub(in crate::upstream) fn send(&self, outgoing: &Outgoing) -> Call {
        let minted = ids::mint();
        let (body, exchange) = address(outgoing, self.era, minted);
        let room = outgoing.room.clone();
        let notes = Arc::new(Queue::new(room.as_ref().map(|room| room.account().clone())));
        let told = notes.clone();
        let (done, answer) = oneshot::channel();
        let longest = outgoing.longest.unwrap_or(usize::MAX);
        let waiting = PendingRequest { exchange: Box::new(exchange), notes, done, longest, room };
        // Where the task is gone, the receivers end at once.
        let _ = self.orders.send(Order::Open { minted, body, waiting });
        let orders = self.orders.clone();
        let stalls = self.stalls.clone();
        Call { minted, notes: told, done: answer, finished: None, orders, ended: false, stalls }
    }

    /// Starts the server if need be; gives its answer to what is said first.
    pub(in crate::upstream) async fn hello(&self) -> Result<Message, Unavailable> {
        let (answer, answered) = oneshot::channel();
        let _ = self.orders.send(Order::Hello { answer });
        let gone = || Unavailable::Down("the server's task has ended".into());
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// A request with the ids that the server sees, and the exchange that puts the client's back.
pub(in crate::upstream) fn address(
    outgoing: &Outgoing,
    era: Era,
    minted: u64,
) -> (Bytes, Exchange) {
    let message = &outgoing.message;
    let exchange = Exchange::new(message, outgoing.row, era, minted, ServerRequests::Refuse);
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
    // No task was offered to the client, so none is asked of the server.
    if message.param("task").is_some() {
        edit = edit.remove_param("task");
    }
    (edit.finish(), exchange)
}

/// The task that owns the process.
struct Task {
    source: Source,
    opening: Opening,
    /// The longest answer.
    longest: usize,
    signal: mpsc::UnboundedSender<Signal>,
    life: Arc<Life>,
    /// Several agents use it.
    users: Users,
    stalls: Stalls,
}

impl Task {
    async fn run(self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut strikes = 0u32;
        let mut not_before = Instant::now();
        let ended = || Unavailable::Down("it ended and is not started again yet".into());
        let (mut last, mut served, mut again) = (ended(), false, false);
        while let Some(order) = orders.recv().await {
            if Instant::now() < not_before {
                order.fail(&last);
                continue;
            }
            let begun = Instant::now();
            let mut settled = false;
            let mut waiting = vec![order];
            match self.start(std::mem::replace(&mut again, true), &mut orders, &mut waiting).await {
                Err(Stopped::Unwanted) => return,
                Err(Stopped::Failed(mut why)) => {
                    // One that spoke this era before has another reason.
                    if served && why == Unavailable::Unclear {
                        why = Unavailable::Down(why.to_string());
                    }
                    if let Some(why) = why.failure() {
                        let line = self.source.log_line(why);
                        tracing::warn!(target: "upstream", server = self.source.name(), "{line}");
                        self.life.failed(why);
                    }
                    waiting.into_iter().for_each(|order| order.fail(&why));
                    last = why;
                }
                Ok(mut process) => {
                    served = true;
                    process.begin(self.users, self.stalls.clone());
                    waiting.into_iter().for_each(|order| process.order(order));
                    if process.serve(&mut orders).await {
                        return;
                    }
                    let name = self.source.name();
                    tracing::warn!(target: "upstream", server = name, "the server has ended");
                    self.life.failed("the server has ended");
                    settled = begun.elapsed() >= SETTLED;
                    // The next process may offer something else.
                    let signal = if settled { Signal::Ended } else { Signal::Failed };
                    let _ = self.signal.send(signal);
                    last = ended();
                }
            }
            strikes = if settled { 0 } else { (strikes + 1).min(6) };
            if strikes > 0 {
                not_before = Instant::now() + Duration::from_millis(50 << strikes);
            }
        }
    }

    /// A process that has been greeted. What is ordered in the meantime waits.
    async fn start(
        &self,
        again: bool,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        waiting: &mut Vec<Order>,
    ) -> Result<Process, Stopped> {
        // One that was asked in the other era and said that it does not know that.
        if let (Source::Program(_, spare, _), Era::Legacy) = (&self.source, self.opening.era())
            && let Some(mut process) = spare.take()
        {
            process.passed_to(self.signal.clone());
            match self.greet(&mut process, AGAIN, orders, waiting).await {
                Ok(()) => return Ok(process),
                // It does not like to be asked twice; the next one is not.
                Err(Stopped::Failed(_)) => drop(tokio::spawn(process.end())),
                Err(Stopped::Unwanted) => {
                    process.end().await;
                    return Err(Stopped::Unwanted);
                }
            }
        }
        let mut process = match &self.source {
            Source::Program(program, ..) => {
                let (started, name) = (program.start()?, program.name().to_string());
                let signal = self.signal.clone();
                self.life.started(again);
                match started {
                    Started::Process(child) => Process::new(child, self.longest, name, signal)
                        .ok_or_else(|| Unavailable::Down("it has no standard streams".into()))?,
                    Started::InMemory(stream) => {
                        let (read, write) = tokio::io::split(stream);
                        let input = Input::Lines(Box::new(read));
                        Process::over(input, write, self.longest, name, signal)
                    }
                }
            }
            Source::Sse(name, remote) => {
                let account = Arc::new(OnceLock::new());
                let connecting = legacy_sse::connect(name, remote, account.clone());
                let (arriving, output) = tokio::select! {
                    connected = connecting => connected?,
                    () = gather(orders, waiting) => return Err(Stopped::Unwanted),
                };
                self.life.started(again);
                let input = Input::Messages(arriving, account);
                Process::over(input, output, self.longest, name.clone(), self.signal.clone())
            }
        };
        let greeted = self.greet(&mut process, HANDSHAKE, orders, waiting).await;
        match (greeted, &self.source) {
            (Ok(()), _) => Ok(process),
            (Err(Stopped::Unwanted), _) => {
                process.end().await;
                Err(Stopped::Unwanted)
            }
            (Err(stopped), Source::Program(_, spare, _)) if process.is_unknowing() => {
                spare.put(process);
                Err(stopped)
            }
            (Err(stopped), source) => {
                tokio::spawn(process.end());
                Err(stopped.with_help(source))
            }
        }
    }

    async fn greet(
        &self,
        process: &mut Process,
        patience: Duration,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        waiting: &mut Vec<Order>,
    ) -> Result<(), Stopped> {
        let greeting = async {
            let handshake = process.handshake(&self.opening, patience);
            tokio::pin!(handshake);
            tokio::select! {
                greeted = &mut handshake => return greeted,
                () = tokio::time::sleep(SILENT) => self.report_silence(),
            }
            handshake.await
        };
        tokio::select! {
            greeted = greeting => Ok(greeted?),
            () = gather(orders, waiting) => Err(Stopped::Unwanted),
        }
    }
}

impl Task {
    /// A slow start and a server that will never answer look alike: the operator hears of it early.
    fn report_silence(&self) {
        let (name, method) = (self.source.name(), self.opening.method());
        let help = match &self.source {
            Source::Program(program, ..) => program.withheld().map(|help| format!("; {help}")),
            Source::Sse(..) => None,
        };
        let (seconds, help) = (SILENT.as_secs(), help.unwrap_or_default());
        let message = format!("no answer to `{method}` for {seconds} s{help}");
        tracing::warn!(target: "upstream", server = name, "{}", self.source.log_line(&message));
    }
}

/// Why there is no process.
enum Stopped {
    Failed(Unavailable),
    /// Nobody holds a handle any more.
    Unwanted,
}

impl Stopped {
    /// A server that does not answer may lack a variable, such as the address of a proxy.
    fn with_help(self, source: &Source) -> Stopped {
        match (self, source) {
            (Stopped::Failed(Unavailable::Down(why)), Source::Program(program, ..)) => {
                let help = program.withheld().map(|help| format!("; {help}"));
                Stopped::Failed(Unavailable::Down(why + &help.unwrap_or_default()))
            }
            (stopped, _) => stopped,
        }
    }
}

impl From<Unavailable> for Stopped {
    fn from(why: Unavailable) -> Stopped {
        Stopped::Failed(why)
    }
}

/// Keeps what is ordered until there is a process; ends when nobody can order anything any more.
async fn gather(orders: &mut mpsc::UnboundedReceiver<Order>, waiting: &mut Vec<Order>) {
    while let Some(order) = orders.recv().await {
        let Order::Cancel { minted, why } = order else {
            waiting.push(order);
            continue;
        };
        // What was not sent needs no cancelling.
        let is_it =
            |order: &Order| matches!(order, Order::Open { minted: one, .. } if *one == minted);
        if let Some(at) = waiting.iter().position(is_it)
            && let Order::Open { waiting: mut call, .. } = waiting.remove(at)
        {
            let exchange = &mut call.exchange;
            let step = match why {
                GiveUp::TimedOut => exchange.unsent(),
                GiveUp::Cancelled(_) => exchange.cancelled(),
            };
            if let Some(Event::Done(done)) = step.event {
                let _ = call.done.send(done);
            }
        }
    }
}

impl Order {
    fn fail(self, why: &Unavailable) {
        match self {
            Order::Open { waiting, .. } => {
                let failure = match why.is_retryable() {
                    true => Failure::Unsent,
                    false => Failure::Unstartable,
                };
                let _ = waiting.done.send(ExchangeEnd::Failed(failure));
            }
            Order::Hello { answer } => {
                let _ = answer.send(Err(why.clone()));
            }
            Order::Cancel { .. } => {}
        }
    }
}
