//! The line-based transport: usually a child process.
//!
//! One task owns the process and its pending requests. A child that exits is restarted with backoff
//! on the next use; pending requests fail at once, and nothing is sent twice. A child that has
//! started and does not respond may be slow: the handshake continues as long as a client waits for
//! it.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use toolward_wire::Message;
use toolward_wire::exchange::{Event, Exchange, ExchangeEnd, Failure, ServerRequests};
use toolward_wire::method::NameAt;
use toolward_wire::{ClientCapabilities, Era, Id, Raw, Revision, meta};

use super::environment::WithheldReport;
use super::line_orders::{Order, PendingRequest};
use super::line_server::{LineServer, Started};
use super::line_session::{Claim, EXIT_TIMEOUT, Greeted, Input, Process, Users};
use super::reusable_process::Spare;
use super::{Signal, Signals};
use super::{ids, legacy_sse};
use crate::metrics::lifecycle::Life;
use crate::notifications::Queue;
use crate::permit::Outgoing;
use crate::upstream::handshake::OWN_INFO;
use crate::upstream::handshake::Opening;
use crate::upstream::stalls::Stalls;
use crate::upstream::{GiveUp, Remote, Unavailable};

/// The timeout for a child's start and handshake: some install themselves first.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);
/// A server that has not responded after this time is reported in the log as starting.
const SLOW_START_DELAY: Duration = Duration::from_secs(2);
/// A server that has not responded after this time is reported in the log with a warning.
const SILENCE_WARNING_DELAY: Duration = Duration::from_secs(10);
/// The handshake timeout of a reused process, which has already responded in the other protocol
/// version.
const REUSED_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// A child that exits sooner than this after its start is restarted with backoff.
const MIN_UPTIME: Duration = Duration::from_secs(5);

/// A process that cannot be claimed.
const NOT_OFFERED: Option<std::future::Pending<Claim>> = None;

/// The source and destination of lines.
#[derive(Clone)]
pub(in crate::upstream) enum Source {
    /// A program, and the process of it that can be reused for the other protocol version.
    Program(LineServer, Arc<Spare>, Arc<WithheldReport>),
    /// HTTP+SSE, with the server's name.
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

/// A handle to the server's task. The process ends when the last handle is dropped.
#[derive(Clone)]
pub(in crate::upstream) struct Child {
    orders: mpsc::UnboundedSender<Order>,
    era: Era,
    /// Closed once the task, and with it the process, has ended.
    ended: watch::Receiver<()>,
    stalls: Stalls,
    signals: Signals,
}

/// A request in flight. Dropping it before its end cancels it.
pub(in crate::upstream) struct Call {
    minted: u64,
    notes: Arc<Queue>,
    done: oneshot::Receiver<ExchangeEnd>,
    /// The end, while earlier notifications are delivered.
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
                queued = self.notes.next_queued() => return queued.into(),
                done = &mut self.done => {
                    self.ended = true;
                    self.finished = done.ok().map(Box::new);
                }
            }
        }
        // Notifications that arrived before the response are delivered before it.
        if let Some(note) = self.notes.pop() {
            return Event::Notify(note.bytes);
        }
        Event::Done(self.finished.take().map_or(ExchangeEnd::Failed(Failure::Gone), |end| *end))
    }

    /// Passes on the client's response to a request of the server.
    pub(in crate::upstream) fn respond(&self, id: Id, response: Message) {
        let (minted, response) = (self.minted, Box::new(response));
        let _ = self.orders.send(Order::Respond { minted, id, response });
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
    /// `signal` is notified when the tool list changes and when the process ends.
    pub(in crate::upstream) fn new(
        source: Source,
        opening: Opening,
        longest: usize,
        signal: Signals,
        life: Arc<Life>,
        users: Users,
    ) -> Child {
        let (sender, orders) = mpsc::unbounded_channel();
        let era = opening.era();
        let (running, ended) = watch::channel(());
        let stalls = Stalls::default();
        let shown = stalls.clone();
        let signals = signal.clone();
        let task = Task { source, opening, longest, signal, life, users, stalls };
        tokio::spawn(async move {
            task.run(orders).await;
            drop(running);
        });
        Child { orders: sender, era, ended, stalls: shown, signals }
    }

    /// The signals of the process, which other connections may share.
    pub(in crate::upstream) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Resolves once the process has ended, which happens when no handle is left.
    pub(in crate::upstream) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.ended.clone();
        async move {
            // Nothing is ever sent: the channel only closes.
            let _ = tokio::time::timeout(EXIT_TIMEOUT * 3, ended.changed()).await;
        }
    }

    pub(in crate::upstream) fn send(&self, outgoing: &Outgoing) -> Call {
        let minted = ids::mint();
        let (body, exchange) = address(outgoing, self.era, minted);
        let room = outgoing.room.clone();
        let notes = Arc::new(Queue::new(room.as_ref().map(|room| room.account().clone())));
        let queue = notes.clone();
        let (done, answer) = oneshot::channel();
        let longest = outgoing.longest.unwrap_or(usize::MAX);
        let (exchange, began) = (Box::new(exchange), Instant::now());
        let waiting = PendingRequest { exchange, notes, done, longest, room, began };
        // If the task has ended, the receivers resolve at once.
        let _ = self.orders.send(Order::Open { minted, body, waiting });
        let orders = self.orders.clone();
        let stalls = self.stalls.clone();
        Call { minted, notes: queue, done: answer, finished: None, orders, ended: false, stalls }
    }

    /// Starts the server if necessary; returns its handshake response.
    pub(in crate::upstream) async fn hello(&self) -> Result<Message, Unavailable> {
        let (answer, answered) = oneshot::channel();
        let _ = self.orders.send(Order::Hello { answer });
        let gone = || Unavailable::Down("the server's task has ended".into());
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// A request with the ids that the server sees, and the exchange that restores the client's ids.
pub(in crate::upstream) fn address(
    outgoing: &Outgoing,
    era: Era,
    minted: u64,
) -> (Bytes, Exchange) {
    let message = &outgoing.message;
    // The gateway's own requests have no client that could be asked.
    let questions = match outgoing.room {
        Some(_) => ServerRequests::Pass,
        None => ServerRequests::Refuse,
    };
    let exchange = Exchange::new(message, outgoing.row, era, minted, questions);
    let accepts_tasks = outgoing.declared.contains(ClientCapabilities::TASKS);
    let exchange = exchange.log_from(outgoing.log_level).accepting_tasks(accepts_tasks);
    let capabilities = || outgoing.declared.to_json(Revision::newest(Era::Modern)).into_bytes();
    let mut edit = exchange.address(message.edit());
    let modern = message.meta(meta::PROTOCOL_VERSION).is_some();
    match (modern, era) {
        (true, Era::Modern) => edit = edit.set_meta(meta::CLIENT_CAPABILITIES, capabilities()),
        // Client and server use different protocol versions: metadata of only one of them is added
        // or removed.
        (false, Era::Modern) => {
            let version = format!("\"{}\"", Revision::newest(Era::Modern));
            edit = edit
                .set_meta(meta::PROTOCOL_VERSION, version.into_bytes())
                .set_meta(meta::CLIENT_INFO, OWN_INFO.as_bytes())
                .set_meta(meta::CLIENT_CAPABILITIES, capabilities());
            if let Some(level) = outgoing.log_level {
                let level = format!("\"{}\"", level.as_str()).into_bytes();
                edit = edit.set_meta(meta::LOG_LEVEL, level);
            }
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
            // Responses to questions that a legacy server cannot have asked.
            if message.param("inputResponses").is_some() {
                edit = edit.remove_param("inputResponses");
            }
        }
        (false, Era::Legacy) => {}
    }
    if let Some(name) = &outgoing.name {
        edit = match (outgoing.row.name_at, message.param("ref").map(Raw::to_json)) {
            (NameAt::Ref, Some(mut reference)) => {
                reference["name"] = (&**name).into();
                edit.set_param("ref", reference.to_string().into_bytes())
            }
            (NameAt::Param(member), _) => edit.set_param_str(member, name),
            _ => edit,
        };
    }
    // Unless tasks were offered to the client, none is requested from the server.
    if message.param("task").is_some() && !outgoing.may_be_task {
        edit = edit.remove_param("task");
    }
    (edit.finish(), exchange)
}

/// The task that owns the process.
struct Task {
    source: Source,
    opening: Opening,
    /// The maximum size of a response.
    longest: usize,
    signal: Signals,
    life: Arc<Life>,
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
                Err(StartError::Unwanted) => return,
                Err(StartError::Failed(mut why)) => {
                    // A server that supported this protocol version before fails for another
                    // reason.
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
                    let answers = (self.opening.outlet().cloned(), self.opening.roots().cloned());
                    process.begin(self.users, self.stalls.clone(), answers);
                    waiting.into_iter().for_each(|order| process.order(order));
                    if process.serve(&mut orders).await {
                        return;
                    }
                    let name = self.source.name();
                    tracing::warn!(target: "upstream", server = name, "the server has ended");
                    self.life.failed("the server has ended");
                    settled = begun.elapsed() >= MIN_UPTIME;
                    // The next process may have another tool list.
                    let signal = if settled { Signal::Ended } else { Signal::Failed };
                    self.signal.send(&signal);
                    last = ended();
                }
            }
            strikes = if settled { 0 } else { (strikes + 1).min(6) };
            if strikes > 0 {
                not_before = Instant::now() + Duration::from_millis(50 << strikes);
            }
        }
    }

    /// A process after a successful handshake. Orders that arrive meanwhile are queued in
    /// `waiting`.
    async fn start(
        &self,
        again: bool,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        waiting: &mut Vec<Order>,
    ) -> Result<Process, StartError> {
        if let Source::Program(_, spare, _) = &self.source
            && let Some(process) = self.running(spare, orders, waiting).await?
        {
            return Ok(process);
        }
        let mut process = self.spawn(again, orders, waiting).await?;
        // Once the server has supported the protocol version, its next process does, too.
        let offered = match (&self.source, self.opening.era()) {
            (Source::Program(_, spare, _), Era::Modern) if !again => Some(spare.offer()),
            _ => None,
        };
        let greeted = self.greet(&mut process, HANDSHAKE_TIMEOUT, offered, orders, waiting).await;
        match (greeted, &self.source) {
            (Ok(Greeted::Own), _) => Ok(process),
            (Ok(Greeted::Claimed { claim, both }), _) => {
                claim.hand_over(process);
                Err(if both { Unavailable::Taken } else { Unavailable::OtherEra }.into())
            }
            (Err(StartError::Unwanted), _) => {
                process.end().await;
                Err(StartError::Unwanted)
            }
            (Err(stopped), source) => {
                match (source, process.rejected()) {
                    (Source::Program(_, spare, _), Some(rejected)) => spare.put(rejected, process),
                    _ => drop(tokio::spawn(process.end())),
                }
                Err(stopped.with_help(source))
            }
        }
    }

    /// The process of an attempt in the other protocol version, if it accepts this one.
    async fn running(
        &self,
        spare: &Spare,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        waiting: &mut Vec<Order>,
    ) -> Result<Option<Process>, StartError> {
        let era = self.opening.era();
        if let Some(mut process) = spare.take_for(era) {
            process.passed_to(self.signal.clone());
            let greeted =
                self.greet(&mut process, REUSED_HANDSHAKE_TIMEOUT, NOT_OFFERED, orders, waiting);
            return match greeted.await {
                Ok(_) => Ok(Some(process)),
                // Some servers do not accept a second handshake; a new process gets only one.
                Err(StartError::Failed(_)) => {
                    tokio::spawn(process.end());
                    Ok(None)
                }
                Err(StartError::Unwanted) => {
                    process.end().await;
                    Err(StartError::Unwanted)
                }
            };
        }
        let claimed = (era == Era::Legacy).then(|| spare.claim(&self.opening)).flatten();
        let Some(claimed) = claimed else { return Ok(None) };
        let claimed = tokio::select! {
            claimed = claimed => claimed,
            () = gather(orders, waiting) => return Err(StartError::Unwanted),
        };
        match claimed {
            Ok(Ok(mut process)) => {
                process.passed_to(self.signal.clone());
                Ok(Some(process))
            }
            Ok(Err(why)) => Err(why.into()),
            // It ended.
            Err(_) => Ok(None),
        }
    }

    /// Starts a process, or opens a stream.
    async fn spawn(
        &self,
        again: bool,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        waiting: &mut Vec<Order>,
    ) -> Result<Process, StartError> {
        match &self.source {
            Source::Program(program, ..) => {
                let (started, name) = (program.start()?, program.name().to_string());
                let signal = self.signal.clone();
                self.life.started(again);
                match started {
                    Started::Process(child) => Process::new(child, self.longest, name, signal)
                        .ok_or_else(|| {
                            Unavailable::Down("it has no standard streams".into()).into()
                        }),
                    Started::InMemory(stream) => {
                        let (read, write) = tokio::io::split(stream);
                        let input = Input::Lines(Box::new(read));
                        Ok(Process::over(input, write, self.longest, name, signal))
                    }
                }
            }
            Source::Sse(name, remote) => {
                let account = Arc::new(OnceLock::new());
                let connecting = legacy_sse::connect(name, remote, account.clone());
                let (arriving, output) = tokio::select! {
                    connected = connecting => connected?,
                    () = gather(orders, waiting) => return Err(StartError::Unwanted),
                };
                self.life.started(again);
                let input = Input::Messages(arriving, account);
                Ok(Process::over(input, output, self.longest, name.clone(), self.signal.clone()))
            }
        }
    }

    async fn greet(
        &self,
        process: &mut Process,
        patience: Duration,
        offered: Option<impl Future<Output = Claim>>,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        waiting: &mut Vec<Order>,
    ) -> Result<Greeted, StartError> {
        let claim = async {
            match offered {
                Some(claim) => claim.await,
                None => std::future::pending().await,
            }
        };
        let handshake = tokio::time::timeout(patience, process.handshake(&self.opening, claim));
        tokio::select! {
            greeted = handshake => greeted.map_err(|_| self.silence())?.map_err(StartError::from),
            never = self.report_silence() => match never {},
            () = gather(orders, waiting) => Err(StartError::Unwanted),
        }
    }
}

impl Task {
    /// A slow start and a server that will never respond look alike, so this is logged early.
    async fn report_silence(&self) -> Infallible {
        let (name, method) = (self.source.name(), self.opening.method());
        tokio::time::sleep(SLOW_START_DELAY).await;
        tracing::info!(target: "upstream", server = name, "still starting: it has not responded to `{method}` yet");
        tokio::time::sleep(SILENCE_WARNING_DELAY - SLOW_START_DELAY).await;
        let help = match &self.source {
            Source::Program(program, ..) => program.withheld().map(|help| format!("; {help}")),
            Source::Sse(..) => None,
        };
        let (seconds, help) = (SILENCE_WARNING_DELAY.as_secs(), help.unwrap_or_default());
        let message = format!("no response to `{method}` for {seconds} s{help}");
        tracing::warn!(target: "upstream", server = name, "{}", self.source.log_line(&message));
        std::future::pending().await
    }

    fn silence(&self) -> Unavailable {
        Unavailable::Down(format!("it did not respond to `{}` in time", self.opening.method()))
    }
}

/// Why there is no process.
enum StartError {
    Failed(Unavailable),
    /// No handle is left.
    Unwanted,
}

impl StartError {
    /// A server that does not respond may lack a variable, such as the address of a proxy.
    fn with_help(self, source: &Source) -> StartError {
        match (self, source) {
            (StartError::Failed(Unavailable::Down(why)), Source::Program(program, ..)) => {
                let help = program.withheld().map(|help| format!("; {help}"));
                StartError::Failed(Unavailable::Down(why + &help.unwrap_or_default()))
            }
            (stopped, _) => stopped,
        }
    }
}

impl From<Unavailable> for StartError {
    fn from(why: Unavailable) -> StartError {
        StartError::Failed(why)
    }
}

/// Queues orders until there is a process; returns when no handle is left.
async fn gather(orders: &mut mpsc::UnboundedReceiver<Order>, waiting: &mut Vec<Order>) {
    while let Some(order) = orders.recv().await {
        let Order::Cancel { minted, why } = order else {
            waiting.push(order);
            continue;
        };
        // A request that was not sent needs no cancellation.
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
            Order::Cancel { .. } | Order::Respond { .. } => {}
        }
    }
}
