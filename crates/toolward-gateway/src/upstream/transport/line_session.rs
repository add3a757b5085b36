//! A running child process and what waits for it.

mod long_line;
mod pauses;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::mpsc;
use toolward_wire::exchange::{Event, ExchangeEnd, Failure, Step};
use toolward_wire::jsonrpc::request_body;
use toolward_wire::line::{LineDecoder, LineTooLong};
use toolward_wire::{Id, Kind, Message, MessageError, Sender};

use self::long_line::LongLine;
use super::Signal;
use super::ids;
use super::line_orders::{Order, PendingRequest};
use super::writer::Writer;
use crate::budget::{Account, Reservation};
use crate::groups::Group;
use crate::log::LogRateLimit;
use crate::upstream::handshake::{
    Opening, is_list_changed, own_answer, own_request, tells_changes,
};
use crate::upstream::stalls::Stalls;
use crate::upstream::{GiveUp, Unavailable};

/// How long a child may take to end once its input is closed.
pub(in crate::upstream) const FAREWELL: Duration = Duration::from_secs(2);
/// A line of this length is always read.
const SMALL: usize = 64 << 10;
/// The id of a message that is too long is looked for in this many bytes at each of its ends.
const ENDS: usize = 128;

/// Who uses a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Users {
    /// One client.
    Client,
    /// Clients of one agent.
    Agent,
    Everyone,
}

/// Where the messages of a server come from.
pub(in crate::upstream) enum Input {
    /// One message per line.
    Lines(Box<dyn AsyncRead + Unpin + Send>),
    /// Whole messages, and the account that their sender charges them to.
    Messages(mpsc::Receiver<Arrived>, Arc<OnceLock<Arc<Account>>>),
}

/// A whole message, and the memory that is reserved for it.
pub(in crate::upstream) struct Arrived {
    pub(in crate::upstream) body: Bytes,
    pub(in crate::upstream) room: Option<Arc<Reservation>>,
}

/// A running child and what waits for it.
pub(in crate::upstream) struct Process {
    writer: Option<Writer>,
    /// The process group, which can outlive the child.
    group: Option<Group>,
    /// `None` for a server that is no process of ours.
    child: Option<tokio::process::Child>,
    input: Input,
    lines: LineDecoder,
    longest: usize,
    pending: HashMap<u64, PendingRequest>,
    hello: Option<Message>,
    /// It did not know what was said first, and has heard nothing else.
    unknowing: bool,
    name: String,
    sparing: LogRateLimit,
    signal: mpsc::UnboundedSender<Signal>,
    long: LongLine,
    /// Several agents use it.
    users: Users,
    stalls: Stalls,
}

impl Process {
    pub(in crate::upstream) fn new(
        mut child: tokio::process::Child,
        longest: usize,
        name: String,
        signal: mpsc::UnboundedSender<Signal>,
    ) -> Option<Process> {
        let (stdin, stdout) = (child.stdin.take()?, child.stdout.take()?);
        let input = Input::Lines(Box::new(stdout));
        let mut process = Process::over(input, stdin, longest, name, signal);
        process.group = Some(Group::led_by(child.id()));
        process.child = Some(child);
        Some(process)
    }

    /// A server that is spoken to line by line, however it is reached.
    pub(in crate::upstream) fn over(
        input: Input,
        stdin: impl AsyncWrite + Unpin + Send + 'static,
        longest: usize,
        name: String,
        signal: mpsc::UnboundedSender<Signal>,
    ) -> Process {
        Process {
            writer: Some(Writer::new(stdin)),
            group: None,
            child: None,
            input,
            lines: LineDecoder::reporting_overlong(longest),
            longest,
            pending: HashMap::new(),
            hello: None,
            unknowing: false,
            name,
            sparing: LogRateLimit::default(),
            signal,
            long: LongLine::default(),
            users: Users::Client,
            stalls: Stalls::default(),
        }
    }

    /// What is said first, and the answer to it. It tells whether the server speaks the era.
    pub(in crate::upstream) async fn handshake(
        &mut self,
        opening: &Opening,
        patience: Duration,
    ) -> Result<(), Unavailable> {
        let mut answer = self.first_answer(opening, patience).await?;
        if let Some(other) = opening.in_supported(&answer) {
            answer = self.first_answer(&other, patience).await?;
        }
        self.unknowing = opening.is_unknown(&answer);
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

    async fn first_answer(
        &mut self,
        opening: &Opening,
        patience: Duration,
    ) -> Result<Message, Unavailable> {
        let down = |why: String| Unavailable::Down(why);
        let method = opening.method();
        self.unknowing = false;
        let id = Id::number(ids::mint());
        let body = opening.request(&id).ok_or_else(|| down("it cannot be asked".into()))?;
        self.write(body);
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
        match answer.await {
            Err(_) => Err(down(format!("it did not answer `{method}` in time"))),
            // Some servers end when they are asked what they do not know.
            Ok(None) => Err(Unavailable::Unclear),
            Ok(Some(answer)) => Ok(answer),
        }
    }

    /// Whether it can be asked in the other era: it said that it does not know the question.
    pub(in crate::upstream) fn is_unknowing(&self) -> bool {
        self.unknowing
    }

    /// From here on it belongs to another link.
    pub(in crate::upstream) fn passed_to(&mut self, signal: mpsc::UnboundedSender<Signal>) {
        self.signal = signal;
    }

    /// Says who uses it, and where to show that nothing is read for lack of room.
    pub(in crate::upstream) fn begin(&mut self, users: Users, stalls: Stalls) {
        (self.users, self.stalls) = (users, stalls);
    }

    fn write(&self, body: Bytes) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.send(body))
    }

    /// Serves until the child ends (false) or nobody holds a handle any more (true).
    pub(in crate::upstream) async fn serve(
        &mut self,
        orders: &mut mpsc::UnboundedReceiver<Order>,
    ) -> bool {
        let closed = self.writer.as_mut().map(Writer::closed);
        let deaf = async move {
            match closed {
                Some(closed) => closed.await,
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
                        if self.sparing.allow() {
                            tracing::warn!(target: "upstream", server = self.name, "{}", unreadable.why);
                        }
                        self.unreadable(&unreadable);
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

    pub(in crate::upstream) fn order(&mut self, order: Order) {
        match order {
            Order::Open { minted, body, waiting } => {
                if let (Input::Messages(_, account), Some(room)) = (&self.input, &waiting.room) {
                    account.get_or_init(|| room.account().sibling());
                }
                if self.write(body) {
                    self.pending.insert(minted, waiting);
                } else {
                    let _ = waiting.done.send(ExchangeEnd::Failed(Failure::Unsent));
                }
            }
            Order::Cancel { minted, why } => {
                let short = self.pending.get(&minted).is_some_and(PendingRequest::is_short);
                if let Some(PendingRequest { exchange, .. }) = self.pending.get_mut(&minted) {
                    let step = match why {
                        // It has answered, and the answer could not be read for lack of room.
                        GiveUp::TimedOut if short => exchange.undeliverable(),
                        GiveUp::TimedOut => exchange.timed_out(),
                        GiveUp::Cancelled(reason) => exchange.cancelled_because(reason.as_deref()),
                    };
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
            if self.long.is_whole() {
                return Some(self.whole_message().await);
            }
            if let Input::Messages(arriving, _) = &mut self.input {
                let arrived = arriving.recv().await?;
                if let Some(message) = self.arrived(arrived) {
                    return Some(message);
                }
                continue;
            }
            if self.lines.pending() > SMALL {
                let limit = if self.long.is_discarded() { SMALL } else { self.longest_awaited() };
                self.lines.set_limit(limit);
            }
            match self.lines.next_line() {
                None => {}
                Some(Err(error)) => return Some(Err(self.passed_over(&error))),
                Some(Ok(line)) if line.len() <= SMALL => return Some(self.parse(line)),
                Some(Ok(line)) => {
                    self.long.parse(line, self.longest);
                    continue;
                }
            }
            self.hold_line(self.lines.unfinished().len()).await;
            let Input::Lines(stdout) = &mut self.input else { continue };
            match stdout.read_buf(self.lines.buffer()).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// A message that came as a whole; `None` if it is long, and is parsed elsewhere.
    fn arrived(&mut self, Arrived { body, room }: Arrived) -> Option<Result<Message, Unreadable>> {
        if body.len() <= SMALL {
            return Some(self.parse(body));
        }
        if body.len() > self.longest_awaited() {
            let end = body.get(body.len() - ENDS..).unwrap_or_default();
            let ends = [body.get(..ENDS).unwrap_or_default(), end].concat();
            let id = seems_to_answer(&ends).or_else(|| self.only_candidate(&ends));
            return Some(Err(Unreadable::too_long(id, body.len() as u64)));
        }
        self.long.is_held_in(room);
        self.long.parse(body, self.longest);
        None
    }

    fn parse(&self, line: Bytes) -> Result<Message, Unreadable> {
        let parsed = Message::parse(line.clone(), self.longest, Sender::Server);
        parsed.map_err(|malformed| Unreadable::malformed(&malformed, &line))
    }

    fn received(&mut self, message: Message) {
        let about = match message.kind() {
            Kind::Response | Kind::Error => message.id().and_then(Id::as_number),
            Kind::Notification if is_log(&message) => self.log_reader(),
            Kind::Notification => message.progress_token().as_ref().and_then(Id::as_number),
            Kind::Request => None,
        };
        match about.and_then(|minted| Some((minted, self.pending.get_mut(&minted)?))) {
            Some((minted, waiting)) => {
                let size = message.body().len();
                let step = match is_answer(&message) && size > waiting.longest {
                    true => waiting.exchange.too_large(Some(size as u64)),
                    false => waiting.exchange.upstream(message),
                };
                self.carry_out(minted, step);
            }
            None => self.unattributed(&message, true),
        }
    }

    /// The call with which a log message is passed on. On this transport a message does not name a call:
    /// only where a single client uses the process it is clear who may read it.
    fn log_reader(&self) -> Option<u64> {
        match self.users {
            Users::Client => {
                // The gateway's own requests have no reader.
                let mut calls = self.pending.iter().filter(|(_, call)| call.room.is_some());
                calls.next().map(|(minted, _)| *minted)
            }
            Users::Agent | Users::Everyone => None,
        }
    }

    /// Whoever waits for an answer that nobody can read hears that at once.
    fn unreadable(&mut self, line: &Unreadable) {
        if let Some((minted, waiting)) =
            line.id.and_then(|minted| Some((minted, self.pending.get_mut(&minted)?)))
        {
            let step = match line.size {
                _ if line.no_room => waiting.exchange.undeliverable(),
                Some(size) => waiting.exchange.too_large(Some(size)),
                None => waiting.exchange.unreadable(),
            };
            self.carry_out(minted, step);
        }
    }

    /// No more of a line is read than someone waits for.
    fn longest_awaited(&self) -> usize {
        let awaited = self.pending.values().map(|waiting| waiting.longest).max();
        awaited.unwrap_or(self.longest).clamp(SMALL.min(self.longest), self.longest)
    }

    /// A line that was discarded, and the request that it seems to answer: the one that its ends name, or else
    /// the only one.
    fn passed_over(&mut self, error: &LineTooLong) -> Unreadable {
        let (owner, is_discarded) = self.long.end();
        let passed = self.lines.overlong();
        let ends = passed.map(|passed| [&passed.start[..], &passed.end[..]].concat());
        let ends = ends.unwrap_or_default();
        if is_discarded {
            return Unreadable::without_room(seems_to_answer(&ends).or(owner));
        }
        let id = seems_to_answer(&ends).or_else(|| self.only_candidate(&ends));
        let size = passed.map(|passed| passed.length);
        Unreadable { why: error.to_string(), id, size, no_room: false }
    }

    /// The only request that waits, unless a line of which this is a part is no answer.
    fn only_candidate(&self, part: &[u8]) -> Option<u64> {
        let mut all = self.pending.keys().copied();
        let only = all.next().filter(|_| all.next().is_none());
        only.filter(|_| !String::from_utf8_lossy(part).contains("\"method\""))
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
                    waiting.notes.push(body);
                }
            }
            Some(Event::Done(done)) => {
                if let Some(waiting) = self.pending.remove(&minted) {
                    let _ = waiting.done.send(done);
                }
            }
            Some(Event::ServerRequest(_)) | None => {}
        }
    }

    /// The child is gone: whoever waits hears it now.
    fn bury(&mut self) {
        self.stalls.end();
        for (_, mut waiting) in self.pending.drain() {
            if let Some(Event::Done(done)) = waiting.exchange.gone().event {
                let _ = waiting.done.send(done);
            }
        }
    }

    /// Ends what nobody needs any more.
    pub(in crate::upstream) async fn end(mut self) {
        self.farewell().await;
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
        if let Some(group) = &self.group {
            group.signal(signal);
        }
    }
}

/// What the server started and left behind ends with it, however the gateway ends.
impl Drop for Process {
    fn drop(&mut self) {
        self.kill(rustix::process::Signal::KILL);
    }
}

/// A line of the server that is no message, and the request that it seems to answer.
struct Unreadable {
    why: String,
    id: Option<u64>,
    /// Its length, where that is why it was not read.
    size: Option<u64>,
    /// There was no memory for it.
    no_room: bool,
}

impl Unreadable {
    fn malformed(malformed: &MessageError, line: &[u8]) -> Unreadable {
        let (why, id) = (malformed.to_string(), seems_to_answer(line));
        Unreadable { why, id, size: None, no_room: false }
    }

    fn too_long(id: Option<u64>, size: u64) -> Unreadable {
        let why = format!("a message of {size} bytes is longer than any that is waited for");
        Unreadable { why, id, size: Some(size), no_room: false }
    }

    fn without_room(id: Option<u64>) -> Unreadable {
        let why = "there is no room for a result, which was discarded".into();
        Unreadable { why, id, size: None, no_room: true }
    }
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
    // What stands before the result is the envelope's, and so is what stands last.
    let results = ["\"result\"", "\"error\""].iter().filter_map(|key| text.find(key));
    let result = results.min().unwrap_or(text.len());
    let before = text.match_indices("\"id\"").filter(|(at, _)| *at < result).find_map(id);
    before.or_else(|| text.match_indices("\"id\"").filter_map(id).last())
}

fn is_log(message: &Message) -> bool {
    message.method().as_deref() == Some("notifications/message")
}

fn is_answer(message: &Message) -> bool {
    matches!(message.kind(), Kind::Response | Kind::Error)
}
