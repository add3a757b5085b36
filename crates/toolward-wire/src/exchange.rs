//! Sans-I/O state machine of one request, from the client to the server and back.
//!
//! The caller owns the connections, reports events and performs the returned [`Step`]. The state
//! machine guarantees that exactly one [`ExchangeEnd`] is returned, and that ids and progress
//! tokens return to the client as the client wrote them. Late and unrelated messages are dropped
//! and counted.

use std::time::Duration;

use bytes::Bytes;

use crate::edit::Edit;
use crate::id::Id;
use crate::jsonrpc::{error_body, request_body, result_body};
use crate::jsonrpc_error::code;
use crate::log_level::LogLevel;
use crate::message::{Kind, Message};
use crate::method::{Era, MethodRow, PolicySubject, server_request};
use crate::names::meta;
use crate::raw::Raw;

/// The longest reason of a cancellation that is passed on.
const MAX_REASON_BYTES: usize = 1024;
/// Requests of a server that wait for the client at the same time, for one request of the client.
const MAX_OPEN_REQUESTS: usize = 16;

/// A request in flight.
///
/// ```
/// use toolward_wire::exchange::{ExchangeEnd, Event, Exchange, ServerRequests};
/// use toolward_wire::{Era, MAX_RESPONSE_BYTES, MAX_REQUEST_BYTES, Message, Sender};
///
/// let body = br#"{"jsonrpc":"2.0","id":"c-1","method":"tools/call","params":{"name":"now"}}"#;
/// let request = Message::parse(body[..].into(), MAX_REQUEST_BYTES, Sender::Client).unwrap();
/// let row = request.row(Sender::Client, Era::Legacy).unwrap();
///
/// let mut exchange = Exchange::new(&request, row, Era::Legacy, 42, ServerRequests::Refuse);
/// let out = exchange.address(request.edit()).finish();
/// assert!(out.starts_with(br#"{"jsonrpc":"2.0","id":42,"#));
///
/// let response = br#"{"jsonrpc":"2.0","id":42,"result":{"content":[]}}"#;
/// let response = Message::parse(response[..].into(), MAX_RESPONSE_BYTES, Sender::Server).unwrap();
/// let step = exchange.upstream(response);
/// let Some(Event::Done(ExchangeEnd::Response { body, .. })) = step.event else { panic!() };
/// assert_eq!(body.concat(), br#"{"jsonrpc":"2.0","id":"c-1","result":{"content":[]}}"#);
/// ```
#[derive(Debug)]
pub struct Exchange {
    /// The client's id and progress token, as the client wrote them.
    id: Option<Id>,
    token: Option<Id>,
    /// The id and progress token that the server sees.
    minted: Id,
    /// Whether the server is legacy or modern.
    era: Era,
    row: &'static MethodRow,
    /// Log messages below this level are dropped; `None`: all of them.
    log_level: Option<LogLevel>,
    questions: ServerRequests,
    /// A call may be answered with a task, because the client declared the extension.
    accepts_tasks: bool,
    /// The server's ids of requests that the client has not responded to yet.
    open: Vec<Id>,
    state: ExchangeState,
    dropped: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExchangeState {
    Running,
    Done,
}

/// Whether requests from the server reach the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerRequests {
    /// A legacy request gets an error response. A modern `input_required` ends the exchange.
    Refuse,
    Pass,
}

/// An event for the client.
#[derive(Debug)]
pub enum Event {
    /// A notification, ready to send.
    Notify(Bytes),
    /// A legacy request from the server, as the server wrote it. Pass the response to
    /// [`Exchange::answered`] with its id.
    ServerRequest(Id, Message),
    /// The server closed the stream of the request before its response, and is polled for it after
    /// this delay. Transports create it; an exchange does not know streams.
    StreamClosed(Duration),
    /// The end of the exchange. No event follows.
    Done(ExchangeEnd),
}

/// The end of an exchange.
#[derive(Debug)]
pub enum ExchangeEnd {
    /// The server's response.
    ///
    /// `message` is the original. `body` has the client's id and is ready to send, in three
    /// consecutive pieces; the middle piece of a large response shares the memory of the message.
    Response {
        message: Message,
        body: [Bytes; 3],
    },
    /// A modern `input_required` result, as the server wrote it. The request is repeated with the
    /// client's input.
    InputRequired(Message),
    Failed(Failure),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The client canceled the request. It receives nothing more.
    Cancelled,
    /// The request was not sent: the server is unreachable, or rejected the request unread.
    Unsent,
    /// The request was not sent, and repeating it does not help: the server cannot be started.
    Unstartable,
    /// The server's connection was closed. It is not known whether the request was executed.
    Gone,
    TimedOut,
    /// The response is not one that the protocol allows here.
    BadAnswer,
    /// The server requested input, and [`ServerRequests::Refuse`] applies.
    Asked,
    /// The response exceeds the size limit. `size` is its length in bytes, if known.
    TooLarge {
        size: Option<u64>,
    },
    /// The server responded, but the memory budget has no room for the response.
    Undeliverable,
}

/// The actions that the caller must take after an event.
#[derive(Debug, Default)]
#[must_use]
pub struct Step {
    pub event: Option<Event>,
    /// A message to send to the server.
    pub upstream: Option<Bytes>,
    /// A message from the server that does not belong to this request, such as `list_changed`.
    pub elsewhere: Option<Message>,
}

impl Exchange {
    /// Creates the exchange of a request.
    ///
    /// `minted` is the id and progress token that the server sees. It must be unique per
    /// connection.
    pub fn new(
        request: &Message,
        row: &'static MethodRow,
        era: Era,
        minted: u64,
        questions: ServerRequests,
    ) -> Exchange {
        Exchange {
            id: request.id().cloned(),
            token: request.progress_token(),
            minted: Id::number(minted),
            era,
            row,
            // A modern client opts in to log messages with each request.
            log_level: match request.meta(meta::PROTOCOL_VERSION) {
                None => Some(LogLevel::Debug),
                Some(_) => {
                    let asked = request.meta(meta::LOG_LEVEL).and_then(Raw::as_str);
                    asked.and_then(|level| LogLevel::parse(&level))
                }
            },
            questions,
            accepts_tasks: false,
            open: Vec::new(),
            state: ExchangeState::Running,
            dropped: 0,
        }
    }

    /// Drops log messages below a level that the client set for its session.
    pub fn log_from(mut self, level: Option<LogLevel>) -> Exchange {
        self.log_level = level.or(self.log_level);
        self
    }

    /// Accepts a task as the response to a call, if the client declared the extension.
    pub fn accepting_tasks(mut self, accepts: bool) -> Exchange {
        self.accepts_tasks = accepts && self.row.subject == PolicySubject::Tool;
        self
    }

    /// Whether the client wants a log message.
    fn wants(&self, message: &Message) -> bool {
        let level = message.param("level").and_then(Raw::as_str);
        let level = level.and_then(|level| LogLevel::parse(&level));
        self.log_level.is_some_and(|least| level.is_none_or(|level| level >= least))
    }

    /// Replaces the client's id and progress token with the ones for the server.
    pub fn address<'m>(&self, edit: Edit<'m>) -> Edit<'m> {
        let edit = edit.id(&self.minted).remove_own_meta();
        if self.token.is_some() { edit.progress_token(&self.minted) } else { edit }
    }

    /// The id that the server sees.
    pub fn minted(&self) -> &Id {
        &self.minted
    }

    /// The client's id.
    pub fn id(&self) -> Option<&Id> {
        self.id.as_ref()
    }

    pub fn is_done(&self) -> bool {
        self.state == ExchangeState::Done
    }

    /// The number of late or unrelated messages that were dropped.
    pub fn dropped(&self) -> u32 {
        self.dropped
    }

    /// The server sent a message on the stream of this request.
    pub fn upstream(&mut self, message: Message) -> Step {
        match message.kind() {
            Kind::Response | Kind::Error => self.answer(message),
            Kind::Notification => self.notification(message),
            Kind::Request => self.asked(message),
        }
    }

    /// The client canceled the request.
    pub fn cancelled(&mut self) -> Step {
        self.cancelled_because(None)
    }

    /// The client canceled the request and gave a reason, which is a JSON string.
    pub fn cancelled_because(&mut self, reason: Option<&[u8]>) -> Step {
        self.give_up(Failure::Cancelled, reason)
    }

    /// The request timed out.
    pub fn timed_out(&mut self) -> Step {
        self.give_up(Failure::TimedOut, None)
    }

    /// The server asked the client something that was declined.
    pub fn declined(&mut self) -> Step {
        self.give_up(Failure::Asked, None)
    }

    /// The request was not sent.
    pub fn unsent(&mut self) -> Step {
        self.fail(Failure::Unsent)
    }

    /// The server's connection was closed.
    pub fn gone(&mut self) -> Step {
        self.fail(Failure::Gone)
    }

    /// The server's response could not be parsed.
    pub fn unreadable(&mut self) -> Step {
        self.fail(Failure::BadAnswer)
    }

    /// The server's response exceeds the size limit. `size` is its length in bytes, if known.
    pub fn too_large(&mut self, size: Option<u64>) -> Step {
        self.fail(Failure::TooLarge { size })
    }

    /// The memory budget has no room for the server's response.
    pub fn undeliverable(&mut self) -> Step {
        self.fail(Failure::Undeliverable)
    }

    /// The client responded to a legacy request from the server.
    pub fn answered(&mut self, request: &Id, response: &Message) -> Step {
        let known = self.open.iter().position(|open| open == request);
        let is_response = matches!(response.kind(), Kind::Response | Kind::Error);
        match known {
            Some(at) if self.state == ExchangeState::Running && is_response => {
                let id = self.open.swap_remove(at);
                Step {
                    upstream: Some(response.edit().id(&id).remove_own_meta().finish()),
                    ..Step::default()
                }
            }
            _ => self.drop_one(),
        }
    }

    fn answer(&mut self, message: Message) -> Step {
        // An error without an id, on the stream of this request, can only refer to this request.
        let ours = match message.id() {
            Some(id) => *id == self.minted,
            None => message.kind() == Kind::Error,
        };
        if self.state != ExchangeState::Running || !ours {
            return self.drop_one();
        }
        if self.era == Era::Modern
            && let Some(kind) = message.result_member("resultType")
        {
            if kind.is_str("input_required") && self.row.may_request_input {
                if self.questions == ServerRequests::Refuse {
                    return self.fail(Failure::Asked);
                }
                self.state = ExchangeState::Done;
                return Step::event(Event::Done(ExchangeEnd::InputRequired(message)));
            }
            let is_task = self.accepts_tasks && kind.is_str("task");
            if !is_task && !kind.is_str("complete") {
                return self.fail(Failure::BadAnswer);
            }
        }
        self.state = ExchangeState::Done;
        let body = match &self.id {
            Some(id) => message.edit().id(id).remove_own_meta().finish_shared(),
            None => [message.body().clone(), Bytes::new(), Bytes::new()],
        };
        Step::event(Event::Done(ExchangeEnd::Response { message, body }))
    }

    fn notification(&mut self, message: Message) -> Step {
        match message.method().as_deref() {
            Some("notifications/progress") => {
                let ours = message.progress_token().is_some_and(|token| token == self.minted);
                match &self.token {
                    Some(token) if ours && self.state == ExchangeState::Running => {
                        let edit = message.edit().progress_token(token).remove_own_meta();
                        let body = edit.finish();
                        Step::event(Event::Notify(body))
                    }
                    _ => self.drop_one(),
                }
            }
            Some("notifications/message")
                if self.state == ExchangeState::Running && self.wants(&message) =>
            {
                Step::event(Event::Notify(message.edit().remove_own_meta().finish()))
            }
            Some("notifications/message" | "notifications/cancelled") | None => self.drop_one(),
            Some(_) => Step { elsewhere: Some(message), ..Step::default() },
        }
    }

    fn asked(&mut self, message: Message) -> Step {
        let method = message.method().unwrap_or_default().into_owned();
        let Some(id) = message.id().cloned().filter(|_| self.era == Era::Legacy) else {
            return self.drop_one();
        };
        let reply = |body| Step { upstream: Some(body), ..Step::default() };
        if method == "ping" {
            return reply(result_body(&id, b"{}"));
        }
        let may = self.row.may_request_input && self.questions == ServerRequests::Pass;
        if self.state != ExchangeState::Running || !may || server_request(&method).is_none() {
            self.dropped += 1;
            return reply(error_body(Some(&id), code::METHOD_NOT_FOUND, "not available", None));
        }
        if self.open.contains(&id) {
            return self.drop_one();
        }
        if self.open.len() >= MAX_OPEN_REQUESTS {
            return reply(error_body(Some(&id), code::INTERNAL_ERROR, "too many requests", None));
        }
        self.open.push(id.clone());
        Step::event(Event::ServerRequest(id, message))
    }

    /// Ends the exchange and sends the server a `notifications/cancelled`.
    fn give_up(&mut self, failure: Failure, reason: Option<&[u8]>) -> Step {
        let was_running = self.state == ExchangeState::Running;
        let mut step = self.fail(failure);
        if was_running {
            let mut params = b"{\"requestId\":".to_vec();
            params.extend_from_slice(self.minted.raw());
            if let Some(reason) = reason {
                params.extend_from_slice(b",\"reason\":");
                params.extend_from_slice(reason);
            }
            params.push(b'}');
            step.upstream = Some(request_body(None, "notifications/cancelled", Some(&params)));
        }
        step
    }

    fn fail(&mut self, failure: Failure) -> Step {
        if self.state == ExchangeState::Done {
            return Step::default();
        }
        self.state = ExchangeState::Done;
        Step::event(Event::Done(ExchangeEnd::Failed(failure)))
    }

    fn drop_one(&mut self) -> Step {
        self.dropped += 1;
        Step::default()
    }
}

impl Step {
    fn event(event: Event) -> Step {
        Step { event: Some(event), ..Step::default() }
    }
}

/// The reason in a `notifications/cancelled`, as JSON. A reason that is not a string, or is too
/// long, is ignored.
pub fn cancel_reason(message: &Message) -> Option<&[u8]> {
    let reason = message.param("reason").filter(|raw| raw.is_string())?.bytes();
    Some(reason).filter(|reason| reason.len() <= MAX_REASON_BYTES)
}

/// The id of the request that a `notifications/cancelled` refers to.
pub fn cancelled_request(message: &Message) -> Option<Id> {
    message.param("requestId").and_then(|raw: Raw<'_>| Id::of(raw))
}
