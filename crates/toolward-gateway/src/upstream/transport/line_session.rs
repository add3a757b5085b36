//! A running child process and its pending requests.

mod greeting;
mod long_line;
mod pauses;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::mpsc;
use toolward_wire::exchange::{Event, ExchangeEnd, Failure, Step};
use toolward_wire::line::{LineDecoder, LineTooLong};
use toolward_wire::{Era, Id, Kind, Message, MessageError, Sender};

pub(in crate::upstream) use self::greeting::{Claim, Greeted};
use self::long_line::LongLine;
use super::line_orders::{Order, PendingRequest};
use super::writer::Writer;
use super::{Signal, Signals};
use crate::budget::{Account, RESULT_ROOM, Reservation};
use crate::client::outlet::{Outlet, not_available};
use crate::groups::Group;
use crate::log::LogRateLimit;
use crate::upstream::handshake::{own_answer, refusal};
use crate::upstream::stalls::Stalls;
use crate::upstream::{GiveUp, Roots, Unavailable};

/// How long a child may take to exit once its input is closed.
pub(in crate::upstream) const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// A line up to this length is read without reserving memory: the call that it responds to has reserved as much.
const SMALL_LINE_BYTES: usize = RESULT_ROOM;
/// The id of an overlong message is searched for in this many bytes at each of its ends.
const ID_SEARCH_BYTES: usize = 128;

/// The users of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Users {
    /// One client.
    Client,
    /// Clients of one agent.
    Agent,
    Everyone,
}

/// The source of a server's messages.
pub(in crate::upstream) enum Input {
    /// One message per line.
    Lines(Box<dyn AsyncRead + Unpin + Send>),
    /// Whole messages, and the account that they are charged to.
    Messages(mpsc::Receiver<IncomingMessage>, Arc<OnceLock<Arc<Account>>>),
}

/// A whole message, and the memory reserved for it.
pub(in crate::upstream) struct IncomingMessage {
    pub(in crate::upstream) body: Bytes,
    pub(in crate::upstream) room: Option<Arc<Reservation>>,
}

/// A running child process and its pending requests.
pub(in crate::upstream) struct Process {
    writer: Option<Writer>,
    /// The process group, which can outlive the child.
    group: Option<Group>,
    /// `None` for a server that is not our child process.
    child: Option<tokio::process::Child>,
    input: Input,
    lines: LineDecoder,
    longest: usize,
    pending: HashMap<u64, PendingRequest>,
    hello: Option<Message>,
    /// The protocol version that it rejected, if it has received nothing else.
    rejected: Option<Era>,
    name: String,
    sparing: LogRateLimit,
    signal: Signals,
    long: LongLine,
    users: Users,
    stalls: Stalls,
    /// The way to the client for requests that belong to no call.
    outlet: Option<Arc<Outlet>>,
    /// The configured roots.
    roots: Option<Roots>,
}

impl Process {
    pub(in crate::upstream) fn new(
        mut child: tokio::process::Child,
        longest: usize,
        name: String,
        signal: Signals,
    ) -> Option<Process> {
        let (stdin, stdout) = (child.stdin.take()?, child.stdout.take()?);
        let input = Input::Lines(Box::new(stdout));
        let mut process = Process::over(input, stdin, longest, name, signal);
        process.group = Some(Group::led_by(child.id()));
        process.child = Some(child);
        Some(process)
    }

    /// A server on any line-based stream.
    pub(in crate::upstream) fn over(
        input: Input,
        stdin: impl AsyncWrite + Unpin + Send + 'static,
        longest: usize,
        name: String,
        signal: Signals,
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
            rejected: None,
            name,
            sparing: LogRateLimit::default(),
            signal,
            long: LongLine::default(),
            users: Users::Client,
            stalls: Stalls::default(),
            outlet: None,
            roots: None,
        }
    }

    /// Hands the process over to another connection.
    pub(in crate::upstream) fn passed_to(&mut self, signal: Signals) {
        self.signal = signal;
    }

    /// Sets the users of the process, the counter of its stalls, and who answers its requests.
    pub(in crate::upstream) fn begin(
        &mut self,
        users: Users,
        stalls: Stalls,
        (outlet, roots): (Option<Arc<Outlet>>, Option<Roots>),
    ) {
        (self.users, self.stalls, self.outlet, self.roots) = (users, stalls, outlet, roots);
    }

    fn write(&self, body: Bytes) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.send(body))
    }

    /// Serves until the child exits (false) or no handle is left (true).
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
                        self.shut_down().await;
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
                        // A question that cannot be read is declined like one that may not be asked.
                        if let Some(id) = &unreadable.request {
                            self.write(not_available(id));
                            self.end_askers();
                        }
                    }
                    None => {
                        self.fail_pending();
                        return false;
                    }
                },
                // It has closed its input: it can receive no more requests.
                () = &mut deaf => {
                    self.fail_pending();
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
                        // The server has responded, and the response could not be read for lack of
                        // memory.
                        GiveUp::TimedOut if short => exchange.undeliverable(),
                        GiveUp::TimedOut => exchange.timed_out(),
                        GiveUp::Cancelled(reason) => exchange.cancelled_because(reason.as_deref()),
                    };
                    self.carry_out(minted, step);
                }
            }
            Order::Respond { minted, id, response } => {
                if let Some(PendingRequest { exchange, .. }) = self.pending.get_mut(&minted) {
                    let step = exchange.answered(&id, &response);
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
            if self.lines.pending() > SMALL_LINE_BYTES {
                let limit = if self.long.is_discarded() {
                    SMALL_LINE_BYTES
                } else {
                    self.longest_awaited()
                };
                self.lines.set_limit(limit);
            }
            match self.lines.next_line() {
                None => {}
                Some(Err(error)) => return Some(Err(self.passed_over(&error))),
                Some(Ok(line)) if line.len() <= SMALL_LINE_BYTES => return Some(self.parse(line)),
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

    /// A message that arrived whole; `None` if it is long, and is parsed on another thread.
    fn arrived(
        &mut self,
        IncomingMessage { body, room }: IncomingMessage,
    ) -> Option<Result<Message, Unreadable>> {
        if body.len() <= SMALL_LINE_BYTES {
            return Some(self.parse(body));
        }
        if body.len() > self.longest_awaited() {
            let end = body.get(body.len() - ID_SEARCH_BYTES..).unwrap_or_default();
            let ends = [body.get(..ID_SEARCH_BYTES).unwrap_or_default(), end].concat();
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
            Kind::Request => self.asker(&message),
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
            None => {
                self.unattributed(&message, true);
                if self.is_for_client(&message) && self.outlet.is_none() {
                    self.end_askers();
                }
            }
        }
    }

    /// Ends the calls in flight, after a request that was declined because no client could be asked: the call that caused
    /// it must not continue as if it had been confirmed, and with several of them it is not known which one that is.
    fn end_askers(&mut self) {
        let calls = self.pending.iter().filter(|(_, call)| call.room.is_some());
        let calls: Vec<u64> = calls.map(|(minted, _)| *minted).collect();
        for minted in calls {
            if let Some(call) = self.pending.get_mut(&minted) {
                let step = call.exchange.declined();
                self.carry_out(minted, step);
            }
        }
    }

    /// Whether a message is a request that the gateway does not answer itself.
    fn is_for_client(&self, message: &Message) -> bool {
        let own = |id: &Id| own_answer(message, id, self.roots.as_ref()).is_some();
        message.kind() == Kind::Request && !message.id().is_some_and(own)
    }

    /// The call that a request of the server belongs to. On this transport a request does not name one: with a single
    /// client behind the connection it is the latest call, and otherwise the only one in flight.
    fn asker(&self, message: &Message) -> Option<u64> {
        if !self.is_for_client(message) {
            return None;
        }
        let mut calls = self.pending.iter().filter(|(_, call)| call.room.is_some());
        match self.users {
            Users::Client => calls.max_by_key(|(_, call)| call.began).map(|(minted, _)| *minted),
            Users::Agent => {
                calls.next().filter(|_| calls.next().is_none()).map(|(minted, _)| *minted)
            }
            // Whose request it answers cannot be known.
            Users::Everyone => None,
        }
    }

    /// The call that a log message is delivered with. On this transport a message does not name a
    /// call, so it is delivered only if a single client uses the process: no one else may read it.
    fn log_reader(&self) -> Option<u64> {
        match self.users {
            Users::Client => {
                // Requests of the gateway itself have no client.
                let mut calls = self.pending.iter().filter(|(_, call)| call.room.is_some());
                calls.next().map(|(minted, _)| *minted)
            }
            Users::Agent => {
                let mut calls = self.pending.iter().filter(|(_, call)| call.room.is_some());
                calls.next().filter(|_| calls.next().is_none()).map(|(minted, _)| *minted)
            }
            Users::Everyone => None,
        }
    }

    /// Fails the call whose response cannot be read, instead of letting it time out.
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

    /// The longest response that any call accepts: no more of a line is read.
    fn longest_awaited(&self) -> usize {
        let awaited = self.pending.values().map(|waiting| waiting.longest).max();
        awaited.unwrap_or(self.longest).clamp(SMALL_LINE_BYTES.min(self.longest), self.longest)
    }

    /// A line that was discarded, and the request that it seems to respond to: the one whose id is
    /// near its ends, or else the only one.
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
        Unreadable { why: error.to_string(), id, size, no_room: false, request: None }
    }

    /// The only pending request, unless the line that `part` belongs to is not a response.
    fn only_candidate(&self, part: &[u8]) -> Option<u64> {
        let mut all = self.pending.keys().copied();
        let only = all.next().filter(|_| all.next().is_none());
        only.filter(|_| !String::from_utf8_lossy(part).contains("\"method\""))
    }

    /// Handles a message that belongs to no request in flight.
    fn unattributed(&self, message: &Message, begun: bool) {
        match (message.kind(), message.id()) {
            (Kind::Request, Some(id)) => match (&self.outlet, &self.writer) {
                _ if let Some(own) = own_answer(message, id, self.roots.as_ref()) => {
                    self.write(own);
                }
                (Some(outlet), Some(writer)) if begun => {
                    outlet.relay(&self.name, message, writer.reply());
                }
                _ => drop(self.write(refusal(message, id))),
            },
            (Kind::Notification, _) if begun => match (Signal::of(message), &self.outlet) {
                (Some(signal), _) => self.signal.send(&signal),
                (None, Some(outlet)) => outlet.notified(&self.name, message),
                (None, None) => {}
            },
            _ => {}
        }
    }

    fn carry_out(&mut self, minted: u64, step: Step) {
        if let Some(body) = step.upstream {
            self.write(body);
        }
        match step.event {
            Some(Event::Notify(body)) => {
                // A slow client loses progress notifications, never responses.
                if let Some(waiting) = self.pending.get(&minted) {
                    waiting.notes.push(body);
                }
            }
            Some(Event::Done(done)) => {
                if let Some(waiting) = self.pending.remove(&minted) {
                    let _ = waiting.done.send(done);
                }
            }
            Some(Event::ServerRequest(id, message)) => {
                if let Some(waiting) = self.pending.get(&minted) {
                    waiting.notes.push_request(id, message);
                }
            }
            Some(Event::StreamClosed(_)) | None => {}
        }
    }

    /// The child has exited: all pending requests fail now.
    fn fail_pending(&mut self) {
        self.stalls.end();
        for (_, mut waiting) in self.pending.drain() {
            if let Some(Event::Done(done)) = waiting.exchange.gone().event {
                let _ = waiting.done.send(done);
            }
        }
    }

    /// Ends a process that is no longer needed.
    pub(in crate::upstream) async fn end(mut self) {
        self.shut_down().await;
    }

    /// Ends the child gracefully: end of input, then SIGTERM, then SIGKILL.
    async fn shut_down(&mut self) {
        self.writer = None;
        let Some(mut child) = self.child.take() else { return };
        for signal in [rustix::process::Signal::TERM, rustix::process::Signal::KILL] {
            if tokio::time::timeout(EXIT_TIMEOUT, child.wait()).await.is_ok() {
                break;
            }
            self.kill(signal);
        }
    }

    /// Signals the whole process group, so that no process started by the server is left behind.
    fn kill(&self, signal: rustix::process::Signal) {
        if let Some(group) = &self.group {
            group.signal(signal);
        }
    }
}

/// Processes left behind by the server end with it, however the gateway ends.
impl Drop for Process {
    fn drop(&mut self) {
        self.kill(rustix::process::Signal::KILL);
    }
}

/// A line that is not a valid message, and the request that it seems to respond to.
struct Unreadable {
    why: String,
    id: Option<u64>,
    /// Its length, if it was not read because it is too long.
    size: Option<u64>,
    /// There was no memory for it.
    no_room: bool,
    /// The server's id, if it is a request to the client.
    request: Option<Id>,
}

impl Unreadable {
    fn malformed(malformed: &MessageError, line: &[u8]) -> Unreadable {
        let (why, id) = (malformed.to_string(), seems_to_answer(line));
        let is_request = String::from_utf8_lossy(line).contains("\"method\"");
        let request = malformed.id.clone().filter(|_| is_request);
        Unreadable { why, id, size: None, no_room: false, request }
    }

    fn too_long(id: Option<u64>, size: u64) -> Unreadable {
        let why = format!("a message of {size} bytes exceeds the limit of every pending call");
        Unreadable { why, id, size: Some(size), no_room: false, request: None }
    }

    fn without_room(id: Option<u64>) -> Unreadable {
        let why = "discarded a result for lack of memory".into();
        Unreadable { why, id, size: None, no_room: true, request: None }
    }
}

/// The request that an unreadable line seems to respond to: the envelope's id is near one of its
/// ends. A guess is good enough: its only effect is an error instead of a timeout.
fn seems_to_answer(line: &[u8]) -> Option<u64> {
    const NEAR: usize = 96;
    let text = String::from_utf8_lossy(line);
    let id = |(at, key): (usize, &str)| {
        let rest = text[at + key.len()..].trim_start().strip_prefix(':')?.trim_start();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        (at < NEAR || at + NEAR > text.len()).then(|| rest[..digits].parse().ok()).flatten()
    };
    // An id before the result belongs to the envelope, and so does the last one.
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
