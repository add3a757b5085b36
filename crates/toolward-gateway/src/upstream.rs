//! A server behind the gateway: a child process in a process group of its own, with a reduced
//! environment, spoken to line by line.
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
use hashbrown::HashMap;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot, watch};
use toolward_wire::error::{code, error_body, request_body, result_body};
use toolward_wire::exchange::{Done, Event, Exchange, Failure, Questions, Step};
use toolward_wire::line::LineDecoder;
use toolward_wire::{
    Era, Id, Kind, MAX_ANSWER, MAX_REQUEST, Message, MethodRow, Revision, Sender, meta, method,
};

use crate::decide::Permit;
use crate::listen::write_lines;

/// Variables that every child gets, where they are set.
const INHERITED: [&str; 6] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];
/// How long a child may take for the handshake, and to end once its input is closed.
const HANDSHAKE: Duration = Duration::from_secs(30);
const FAREWELL: Duration = Duration::from_secs(2);
/// A child that ends sooner than this after its start is not started again at once.
const SETTLED: Duration = Duration::from_secs(5);

/// Writes a line for the operator.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

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

/// What the server is told first: nothing for a modern one, `initialize` for a legacy one.
#[derive(Debug, Clone)]
pub enum Opening {
    Modern,
    Legacy { params: Bytes },
}

impl Opening {
    pub fn era(&self) -> Era {
        match self {
            Opening::Modern => Era::Modern,
            Opening::Legacy { .. } => Era::Legacy,
        }
    }
}

/// The server cannot be reached.
#[derive(Debug, Clone)]
pub struct Unavailable(pub String);

/// A handle to the server's task. The process ends when the last handle is gone.
#[derive(Debug, Clone)]
pub struct Upstream {
    commands: mpsc::UnboundedSender<Order>,
    next: Arc<AtomicU64>,
    era: Era,
    /// Closed once the task, and with it the process, has ended.
    ended: watch::Receiver<()>,
}

enum Order {
    Open { minted: u64, body: Bytes, exchange: Box<Exchange>, events: mpsc::UnboundedSender<Event> },
    Cancel { minted: u64, timed_out: bool },
    Hello { answer: oneshot::Sender<Result<Option<Message>, Unavailable>> },
}

/// A request under way.
#[derive(Debug)]
pub struct Opened {
    pub minted: u64,
    pub events: mpsc::UnboundedReceiver<Event>,
}

impl Upstream {
    /// `changed` hears when the server says that its list of tools has changed.
    pub fn new(
        launch: Launch,
        opening: Opening,
        log: Log,
        changed: mpsc::UnboundedSender<()>,
    ) -> Upstream {
        let (commands, orders) = mpsc::unbounded_channel();
        let era = opening.era();
        let next = Arc::new(AtomicU64::new(1));
        let (running, ended) = watch::channel(());
        let task = Task { launch, opening, log, changed, next: next.clone() };
        tokio::spawn(async move {
            task.run(orders).await;
            drop(running);
        });
        Upstream { commands, next, era, ended }
    }

    pub fn era(&self) -> Era {
        self.era
    }

    /// Resolves once the process has ended, which it does when no handle is left.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut ended = self.ended.clone();
        async move {
            // Nothing is ever sent: the channel only closes.
            let _ = tokio::time::timeout(FAREWELL * 3, ended.changed()).await;
        }
    }

    /// Parameters of the gateway's own requests, with what a modern server wants to know.
    pub(crate) fn with_terms(&self, params: &str) -> String {
        if self.era == Era::Legacy {
            return params.into();
        }
        let terms = json!({
            meta::PROTOCOL_VERSION: Revision::newest(Era::Modern).as_str(),
            meta::CLIENT_INFO: {"name": "toolward", "version": env!("CARGO_PKG_VERSION")},
            meta::CLIENT_CAPABILITIES: {},
        });
        let mut params: Value = serde_json::from_str(params).unwrap_or_default();
        params["_meta"] = terms;
        params.to_string()
    }

    /// Forwards a permitted call. The only way for a client's request to a server.
    pub fn open(&self, permit: Permit, row: &'static MethodRow) -> Opened {
        let (message, renamed) = permit.spend();
        self.send(&message, renamed.as_deref(), row)
    }

    /// Asks a question of the gateway's own.
    pub(crate) fn ask(&self, method: &'static str, params: &[u8]) -> Option<Opened> {
        let row = method::lookup(method, Sender::Client, self.era)?;
        let body = request_body(Some(&Id::number(0)), method, Some(params));
        let message = Message::parse(body, MAX_REQUEST, Sender::Client).ok()?;
        Some(self.send(&message, None, row))
    }

    fn send(&self, message: &Message, name: Option<&str>, row: &'static MethodRow) -> Opened {
        let minted = self.next.fetch_add(1, Ordering::Relaxed);
        let exchange = Exchange::new(message, row, self.era, minted, Questions::Refuse);
        let mut edit = exchange.address(message.edit());
        if self.era == Era::Modern {
            // Nothing that a server may ask of a client passes yet.
            edit = edit.set_meta(meta::CLIENT_CAPABILITIES, &b"{}"[..]);
        }
        if let Some(name) = name {
            edit = edit.set_param_str("name", name);
        }
        let body = edit.finish();
        let (events, received) = mpsc::unbounded_channel();
        let order = Order::Open { minted, body, exchange: Box::new(exchange), events };
        // Where the task is gone, the receiver ends at once.
        let _ = self.commands.send(order);
        Opened { minted, events: received }
    }

    /// Starts the server if need be; gives its answer to `initialize`.
    pub async fn hello(&self) -> Result<Option<Message>, Unavailable> {
        let (answer, answered) = oneshot::channel();
        let _ = self.commands.send(Order::Hello { answer });
        answered.await.unwrap_or_else(|_| Err(Unavailable("the server's task has ended".into())))
    }

    /// Tells the server that nobody waits any more.
    pub fn cancel(&self, minted: u64, timed_out: bool) {
        let _ = self.commands.send(Order::Cancel { minted, timed_out });
    }
}

/// The task that owns the process.
struct Task {
    launch: Launch,
    opening: Opening,
    log: Log,
    changed: mpsc::UnboundedSender<()>,
    next: Arc<AtomicU64>,
}

impl Task {
    async fn run(self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut strikes = 0u32;
        let mut not_before = Instant::now();
        while let Some(order) = orders.recv().await {
            if Instant::now() < not_before {
                order.fail("it ended and is not started again yet");
                continue;
            }
            let begun = Instant::now();
            match self.start().await {
                Err(Unavailable(why)) => {
                    (self.log)(&format!("{}: {why}", self.launch.name));
                    order.fail(&why);
                }
                Ok(mut process) => {
                    process.order(order);
                    if process.serve(&mut orders, &self).await {
                        return;
                    }
                    (self.log)(&format!("{}: the server has ended", self.launch.name));
                    // The next process may offer something else.
                    let _ = self.changed.send(());
                }
            }
            strikes = if begun.elapsed() < SETTLED { (strikes + 1).min(6) } else { 0 };
            if strikes > 0 {
                not_before = Instant::now() + Duration::from_millis(50 << strikes);
            }
        }
    }

    async fn start(&self) -> Result<Process, Unavailable> {
        let launch = &self.launch;
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
        let mut child = command
            .spawn()
            .map_err(|error| Unavailable(format!("`{program}` cannot be started: {error}")))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Unavailable(format!("`{program}` has no standard streams")));
        };
        if let Some(stderr) = child.stderr.take() {
            let (log, name) = (self.log.clone(), launch.name.clone());
            tokio::spawn(async move {
                let mut lines = BufReader::new(stderr).split(b'\n');
                while let Ok(Some(line)) = lines.next_segment().await {
                    log(&format!("{name}: {}", String::from_utf8_lossy(&line)));
                }
            });
        }
        let mut process = Process {
            writer: write_task(stdin),
            group: child.id().and_then(|id| Pid::from_raw(id.cast_signed())),
            child,
            stdout,
            lines: LineDecoder::new(MAX_ANSWER),
            pending: HashMap::new(),
            hello: None,
            name: launch.name.clone(),
        };
        if let Opening::Legacy { params } = &self.opening {
            process.handshake(self.next.fetch_add(1, Ordering::Relaxed), params).await?;
        }
        Ok(process)
    }
}

/// Writes in a task of its own: a server that does not read must not keep its answers from being
/// read.
fn write_task(stdin: ChildStdin) -> mpsc::UnboundedSender<Bytes> {
    let (writer, bodies) = mpsc::unbounded_channel();
    tokio::spawn(write_lines(stdin, bodies));
    writer
}

/// A running child and what waits for it.
struct Process {
    writer: mpsc::UnboundedSender<Bytes>,
    /// The process group, which can outlive the child.
    group: Option<Pid>,
    child: Child,
    stdout: ChildStdout,
    lines: LineDecoder,
    pending: HashMap<u64, (Box<Exchange>, mpsc::UnboundedSender<Event>)>,
    hello: Option<Message>,
    name: String,
}

impl Process {
    /// `initialize`, its answer, `notifications/initialized`.
    async fn handshake(&mut self, id: u64, params: &Bytes) -> Result<(), Unavailable> {
        let id = Id::number(id);
        let _ = self.writer.send(request_body(Some(&id), "initialize", Some(params)));
        let answer = tokio::time::timeout(HANDSHAKE, async {
            loop {
                let message = self.message().await?;
                match message {
                    Ok(message) if message.id() == Some(&id) && is_answer(&message) => {
                        return Some(message);
                    }
                    Ok(message) => self.unattributed(&message, None),
                    Err(unreadable) if unreadable.id == id.as_number() => return None,
                    Err(_) => {}
                }
            }
        });
        let answer = match answer.await {
            Err(_) => return Err(Unavailable("it did not answer `initialize` in time".into())),
            Ok(None) => return Err(Unavailable("it ended before it answered `initialize`".into())),
            Ok(Some(answer)) => answer,
        };
        if answer.kind() == Kind::Error {
            let why = answer.error_message().unwrap_or_default();
            return Err(Unavailable(format!("it refused `initialize`: {why}")));
        }
        let _ = self.writer.send(request_body(None, "notifications/initialized", None));
        self.hello = Some(answer);
        Ok(())
    }

    /// Serves until the child ends (false) or nobody holds a handle any more (true).
    async fn serve(&mut self, orders: &mut mpsc::UnboundedReceiver<Order>, task: &Task) -> bool {
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
                    Some(Ok(message)) => self.received(message, task),
                    Some(Err(unreadable)) => {
                        (task.log)(&format!("{}: {}", self.name, unreadable.why));
                        self.unreadable(unreadable.id);
                    }
                    None => {
                        self.bury();
                        return false;
                    }
                },
            }
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Open { minted, body, exchange, events } => {
                self.pending.insert(minted, (exchange, events));
                let _ = self.writer.send(body);
            }
            Order::Cancel { minted, timed_out } => {
                if let Some((exchange, _)) = self.pending.get_mut(&minted) {
                    let step = if timed_out { exchange.timed_out() } else { exchange.cancelled() };
                    self.carry_out(minted, step);
                }
            }
            Order::Hello { answer } => {
                let _ = answer.send(Ok(self.hello.clone()));
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
                    let message = Message::parse(line.clone(), MAX_ANSWER, Sender::Server);
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

    fn received(&mut self, message: Message, task: &Task) {
        let about = match message.kind() {
            Kind::Response | Kind::Error => message.id().and_then(Id::as_number),
            Kind::Notification => message.progress_token().as_ref().and_then(Id::as_number),
            Kind::Request => None,
        };
        match about.and_then(|minted| Some((minted, self.pending.get_mut(&minted)?))) {
            Some((minted, (exchange, _))) => {
                let step = exchange.upstream(message);
                self.carry_out(minted, step);
            }
            None => self.unattributed(&message, Some(&task.changed)),
        }
    }

    /// Whoever waits for an answer that nobody can read hears that at once.
    fn unreadable(&mut self, id: Option<u64>) {
        if let Some((minted, (exchange, _))) =
            id.and_then(|minted| Some((minted, self.pending.get_mut(&minted)?)))
        {
            let step = exchange.unreadable();
            self.carry_out(minted, step);
        }
    }

    /// A message that belongs to no request under way.
    fn unattributed(&self, message: &Message, changed: Option<&mpsc::UnboundedSender<()>>) {
        match (message.kind(), message.id()) {
            (Kind::Request, Some(id)) => {
                let body = match message.method().as_deref() {
                    Some("ping") => result_body(id, b"{}"),
                    _ => error_body(Some(id), code::METHOD_NOT_FOUND, "not available", None),
                };
                let _ = self.writer.send(body);
            }
            (Kind::Notification, _) => {
                let tools = message.method().as_deref() == Some("notifications/tools/list_changed");
                if let Some(changed) = changed.filter(|_| tools) {
                    let _ = changed.send(());
                }
            }
            _ => {}
        }
    }

    fn carry_out(&mut self, minted: u64, step: Step) {
        if let Some(body) = step.upstream {
            let _ = self.writer.send(body);
        }
        if let Some((exchange, events)) = self.pending.get(&minted) {
            let done = exchange.is_done();
            if let Some(event) = step.event {
                let _ = events.send(event);
            }
            if done {
                self.pending.remove(&minted);
            }
        }
    }

    /// The child is gone: whoever waits hears it now.
    fn bury(&mut self) {
        for (_, (mut exchange, events)) in self.pending.drain() {
            if let Some(event) = exchange.gone().event {
                let _ = events.send(event);
            }
        }
    }

    /// Ends the child in order: end of input, then a request, then force.
    async fn farewell(&mut self) {
        let (closed, _) = mpsc::unbounded_channel();
        self.writer = closed;
        for signal in [Signal::TERM, Signal::KILL] {
            if tokio::time::timeout(FAREWELL, self.child.wait()).await.is_ok() {
                break;
            }
            self.kill(signal);
        }
    }

    /// Signals the whole process group, so that nothing the server started stays behind.
    fn kill(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal);
        }
    }
}

/// What the server started and left behind ends with it, however the gateway ends.
impl Drop for Process {
    fn drop(&mut self) {
        self.kill(Signal::KILL);
    }
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

impl Order {
    fn fail(self, why: &str) {
        match self {
            Order::Open { events, .. } => {
                let _ = events.send(Event::Done(Done::Failed(Failure::Gone)));
            }
            Order::Hello { answer } => {
                let _ = answer.send(Err(Unavailable(why.into())));
            }
            Order::Cancel { .. } => {}
        }
    }
}
