//! A running child process and what waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use rustix::process::{Pid, kill_process_group};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use toolward_wire::error::{code, error_body, request_body, result_body};
use toolward_wire::exchange::{Done, Event, Failure, Step};
use toolward_wire::line::{self, LineDecoder};
use toolward_wire::{Id, Kind, Message, Raw, Sender};

use super::child::{Order, Waiting};
use super::link::{Signal, own_request};
use super::{Log, Opening, Sparing, Unavailable};

/// How long a child may take for the handshake, and to end once its input is closed.
const HANDSHAKE: Duration = Duration::from_secs(30);
pub(super) const FAREWELL: Duration = Duration::from_secs(2);
/// A server that is silent for so long does not know `server/discover`.
const SILENCE: Duration = Duration::from_secs(5);
/// What may wait for a child that does not read its input.
const MOST_UNREAD: usize = 32 << 20;

/// Writes in a task of its own: a server that does not read must not keep its answers from being
/// read.
struct Writer {
    lines: mpsc::UnboundedSender<Bytes>,
    /// Bytes that wait to be written.
    unread: Arc<AtomicUsize>,
    /// The task that writes; it ends when the server closes its input.
    task: Option<JoinHandle<()>>,
}

impl Writer {
    fn new(mut stdin: impl AsyncWrite + Unpin + Send + 'static) -> Writer {
        let (lines, mut bodies) = mpsc::unbounded_channel::<Bytes>();
        let unread = Arc::new(AtomicUsize::new(0));
        let waiting = unread.clone();
        let task = tokio::spawn(async move {
            let mut buffer = Vec::new();
            while let Some(body) = bodies.recv().await {
                buffer.clear();
                let mut taken = body.len();
                line::encode(&body, &mut buffer);
                while let Ok(body) = bodies.try_recv() {
                    taken += body.len();
                    line::encode(&body, &mut buffer);
                }
                let written = stdin.write_all(&buffer).await;
                waiting.fetch_sub(taken, Ordering::Relaxed);
                if written.is_err() || stdin.flush().await.is_err() {
                    return;
                }
            }
        });
        Writer { lines, unread, task: Some(task) }
    }

    /// False where too much waits already.
    fn send(&self, body: Bytes) -> bool {
        let size = body.len();
        if self.unread.fetch_add(size, Ordering::Relaxed) > MOST_UNREAD {
            self.unread.fetch_sub(size, Ordering::Relaxed);
            return false;
        }
        self.lines.send(body).is_ok()
    }
}

/// A running child and what waits for it.
pub(super) struct Process {
    writer: Option<Writer>,
    /// The process group, which can outlive the child.
    group: Option<Pid>,
    /// `None` for a server that is no process of ours.
    child: Option<tokio::process::Child>,
    stdout: Box<dyn AsyncRead + Unpin + Send>,
    lines: LineDecoder,
    longest: usize,
    pending: HashMap<u64, Waiting>,
    hello: Option<Message>,
    name: String,
    log: Log,
    sparing: Sparing,
    signal: mpsc::UnboundedSender<Signal>,
}

impl Process {
    pub(super) fn new(
        mut child: tokio::process::Child,
        longest: usize,
        name: String,
        log: Log,
        signal: mpsc::UnboundedSender<Signal>,
    ) -> Option<Process> {
        let (stdin, stdout) = (child.stdin.take()?, child.stdout.take()?);
        let mut process = Process::over(stdout, stdin, longest, name, log, signal);
        process.group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        process.child = Some(child);
        Some(process)
    }

    /// A server that is spoken to line by line, however it is reached.
    pub(super) fn over(
        stdout: impl AsyncRead + Unpin + Send + 'static,
        stdin: impl AsyncWrite + Unpin + Send + 'static,
        longest: usize,
        name: String,
        log: Log,
        signal: mpsc::UnboundedSender<Signal>,
    ) -> Process {
        Process {
            writer: Some(Writer::new(stdin)),
            group: None,
            child: None,
            stdout: Box::new(stdout),
            lines: LineDecoder::new(longest),
            longest,
            pending: HashMap::new(),
            hello: None,
            name,
            log,
            sparing: Sparing::default(),
            signal,
        }
    }

    /// What is said first, and the answer to it. It tells whether the server speaks the era.
    pub(super) async fn handshake(
        &mut self,
        id: u64,
        opening: &Opening,
    ) -> Result<(), Unavailable> {
        let down = |why: String| Unavailable::Down(why);
        let id = Id::number(id);
        let (method, patience) = match opening {
            Opening::Modern => ("server/discover", SILENCE),
            Opening::Legacy { .. } => ("initialize", HANDSHAKE),
        };
        match opening {
            Opening::Legacy { params } => {
                self.write(request_body(Some(&id), method, Some(params)));
            }
            Opening::Modern => {
                let own = own_request(method, json!({}), opening.era());
                let own = own.ok_or_else(|| down("it cannot be asked".into()))?;
                self.write(own.message.edit().id(&id).finish());
            }
        }
        let answer = tokio::time::timeout(patience, async {
            loop {
                let message = self.message().await?;
                match message {
                    Ok(message) if message.id() == Some(&id) && is_answer(&message) => {
                        return Some(message);
                    }
                    Ok(message) => self.unattributed(&message, false),
                    Err(unreadable) if unreadable.id == id.as_number() => return None,
                    Err(_) => {}
                }
            }
        });
        let answer = match (answer.await, opening) {
            (Err(_), Opening::Modern) => return Err(Unavailable::OtherEra),
            (Err(_), _) => return Err(down(format!("it did not answer `{method}` in time"))),
            // Some legacy servers end when they are asked something before `initialize`.
            (Ok(None), Opening::Modern) => return Err(Unavailable::Unclear),
            (Ok(None), _) => return Err(down(format!("it ended before it answered `{method}`"))),
            (Ok(Some(answer)), _) => answer,
        };
        opening.accept(&answer)?;
        match opening {
            Opening::Legacy { .. } => {
                self.write(request_body(None, "notifications/initialized", None));
            }
            // A modern server tells of changes only where it was asked to.
            Opening::Modern if tells_changes(&answer) => {
                let params = json!({"notifications": {"toolsListChanged": true}});
                if let Some(own) = own_request("subscriptions/listen", params, opening.era()) {
                    let id = Id::text("toolward-changes");
                    self.write(own.message.edit().id(&id).finish());
                }
            }
            Opening::Modern => {}
        }
        self.hello = Some(answer);
        Ok(())
    }

    fn write(&self, body: Bytes) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.send(body))
    }

    /// Serves until the child ends (false) or nobody holds a handle any more (true).
    pub(super) async fn serve(&mut self, orders: &mut mpsc::UnboundedReceiver<Order>) -> bool {
        let task = self.writer.as_mut().and_then(|writer| writer.task.take());
        let deaf = async move {
            match task {
                Some(task) => drop(task.await),
                None => std::future::pending().await,
            }
        };
        tokio::pin!(deaf);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.order(order),
                    None => {
                        self.farewell().await;
                        return true;
                    }
                },
                message = self.message() => match message {
                    Some(Ok(message)) => self.received(message),
                    Some(Err(unreadable)) => {
                        if self.sparing.may_say() {
                            (self.log)(&format!("{}: {}", self.name, unreadable.why));
                        }
                        self.unreadable(unreadable.id);
                    }
                    None => {
                        self.bury();
                        return false;
                    }
                },
                // It has closed its input: nothing more can be asked of it.
                () = &mut deaf => {
                    self.bury();
                    return false;
                }
            }
        }
    }

    pub(super) fn order(&mut self, order: Order) {
        match order {
            Order::Open { minted, body, waiting } => {
                if self.write(body) {
                    self.pending.insert(minted, waiting);
                } else {
                    let _ = waiting.done.send(Done::Failed(Failure::Gone));
                }
            }
            Order::Cancel { minted, timed_out } => {
                if let Some(Waiting { exchange, .. }) = self.pending.get_mut(&minted) {
                    let step = if timed_out { exchange.timed_out() } else { exchange.cancelled() };
                    self.carry_out(minted, step);
                }
            }
            Order::Hello { answer } => {
                let hello = self.hello.clone();
                let _ = answer.send(hello.ok_or(Unavailable::Slow));
            }
        }
    }

    /// The next message; `None` once the child has closed its output.
    async fn message(&mut self) -> Option<Result<Message, Unreadable>> {
        loop {
            match self.lines.next_line() {
                None => {}
                Some(Err(error)) => {
                    return Some(Err(Unreadable { why: error.to_string(), id: None }));
                }
                Some(Ok(line)) => {
                    let message = Message::parse(line.clone(), self.longest, Sender::Server);
                    return Some(message.map_err(|malformed| Unreadable {
                        why: malformed.to_string(),
                        id: seems_to_answer(&line),
                    }));
                }
            }
            match self.stdout.read_buf(self.lines.buffer()).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    fn received(&mut self, message: Message) {
        let about = match message.kind() {
            Kind::Response | Kind::Error => message.id().and_then(Id::as_number),
            Kind::Notification => message.progress_token().as_ref().and_then(Id::as_number),
            Kind::Request => None,
        };
        match about.and_then(|minted| Some((minted, self.pending.get_mut(&minted)?))) {
            Some((minted, waiting)) => {
                let step = waiting.exchange.upstream(message);
                self.carry_out(minted, step);
            }
            None => self.unattributed(&message, true),
        }
    }

    /// Whoever waits for an answer that nobody can read hears that at once.
    fn unreadable(&mut self, id: Option<u64>) {
        if let Some((minted, waiting)) =
            id.and_then(|minted| Some((minted, self.pending.get_mut(&minted)?)))
        {
            let step = waiting.exchange.unreadable();
            self.carry_out(minted, step);
        }
    }

    /// A message that belongs to no request under way.
    fn unattributed(&self, message: &Message, begun: bool) {
        match (message.kind(), message.id()) {
            (Kind::Request, Some(id)) => {
                self.write(own_answer(message, id));
            }
            (Kind::Notification, _) if begun && is_list_changed(message) => {
                let _ = self.signal.send(Signal::ListChanged);
            }
            _ => {}
        }
    }

    fn carry_out(&mut self, minted: u64, step: Step) {
        if let Some(body) = step.upstream {
            self.write(body);
        }
        match step.event {
            Some(Event::Notify(body)) => {
                // A client that does not read loses progress, never answers.
                if let Some(waiting) = self.pending.get(&minted) {
                    let _ = waiting.notes.try_send(body);
                }
            }
            Some(Event::Done(done)) => {
                if let Some(waiting) = self.pending.remove(&minted) {
                    let _ = waiting.done.send(done);
                }
            }
            Some(Event::Ask(_)) | None => {}
        }
    }

    /// The child is gone: whoever waits hears it now.
    fn bury(&mut self) {
        for (_, mut waiting) in self.pending.drain() {
            if let Some(Event::Done(done)) = waiting.exchange.gone().event {
                let _ = waiting.done.send(done);
            }
        }
    }

    /// Ends the child in order: end of input, then a request, then force.
    async fn farewell(&mut self) {
        self.writer = None;
        let Some(mut child) = self.child.take() else { return };
        for signal in [rustix::process::Signal::TERM, rustix::process::Signal::KILL] {
            if tokio::time::timeout(FAREWELL, child.wait()).await.is_ok() {
                break;
            }
            self.kill(signal);
        }
    }

    /// Signals the whole process group, so that nothing the server started stays behind.
    fn kill(&self, signal: rustix::process::Signal) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal);
        }
    }
}

/// What the server started and left behind ends with it, however the gateway ends.
impl Drop for Process {
    fn drop(&mut self) {
        self.kill(rustix::process::Signal::KILL);
    }
}

/// The gateway's own answer to a server's request: nothing that a server may ask passes yet.
pub(super) fn own_answer(message: &Message, id: &Id) -> Bytes {
    match message.method().as_deref() {
        Some("ping") => result_body(id, b"{}"),
        _ => error_body(Some(id), code::METHOD_NOT_FOUND, "not available", None),
    }
}

/// Whether a server says that it tells of changes of its list.
pub(super) fn tells_changes(hello: &Message) -> bool {
    let tools = hello.result_member("capabilities").and_then(|raw| raw.member("tools"));
    tools.and_then(|tools| tools.member("listChanged")).and_then(Raw::as_bool) == Some(true)
}

pub(super) fn is_list_changed(message: &Message) -> bool {
    message.method().as_deref() == Some("notifications/tools/list_changed")
}

/// A line of the server that is no message, and the request that it seems to answer.
struct Unreadable {
    why: String,
    id: Option<u64>,
}

/// The request that an unreadable line seems to answer: the envelope's id stands near one of its
/// ends. A guess is good enough: all that follows from it is an error instead of silence.
fn seems_to_answer(line: &[u8]) -> Option<u64> {
    const NEAR: usize = 96;
    let text = String::from_utf8_lossy(line);
    let id = |(at, key): (usize, &str)| {
        let rest = text[at + key.len()..].trim_start().strip_prefix(':')?.trim_start();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        (at < NEAR || at + NEAR > text.len()).then(|| rest[..digits].parse().ok()).flatten()
    };
    let mut ids = text.match_indices("\"id\"").filter_map(id);
    let first = ids.next();
    ids.last().or(first)
}

fn is_answer(message: &Message) -> bool {
    matches!(message.kind(), Kind::Response | Kind::Error)
}
