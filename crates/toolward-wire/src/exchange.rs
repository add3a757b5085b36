//! One request's life, as a state machine without I/O.
//!
//! Whoever holds the connections feeds it what happens and carries out what comes back. It sees to
//! it that exactly one [`ExchangeEnd`] comes out, that ids and progress tokens return to the client as the
//! client wrote them, and that what is late or belongs to nobody is dropped and counted.

use bytes::Bytes;

use crate::edit::Edit;
use crate::id::Id;
use crate::jsonrpc::{error_body, request_body, result_body};
use crate::jsonrpc_error::code;
use crate::message::{Kind, Message};
use crate::method::{Era, MethodRow, server_request};
use crate::names::meta;
use crate::raw::Raw;

/// A client's request on its way through a server.
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
/// let answer = br#"{"jsonrpc":"2.0","id":42,"result":{"content":[]}}"#;
/// let answer = Message::parse(answer[..].into(), MAX_RESPONSE_BYTES, Sender::Server).unwrap();
/// let step = exchange.upstream(answer);
/// let Some(Event::Done(ExchangeEnd::Response { body, .. })) = step.event else { panic!() };
/// assert_eq!(body.concat(), br#"{"jsonrpc":"2.0","id":"c-1","result":{"content":[]}}"#);
/// ```
#[derive(Debug)]
pub struct Exchange {
    /// The client's id and progress token, as it wrote them.
    id: Option<Id>,
    token: Option<Id>,
    /// Both towards the server.
    minted: Id,
    /// The server's era.
    era: Era,
    row: &'static MethodRow,
    wants_log: bool,
    questions: ServerRequests,
    /// The server's ids of questions that the client has not answered yet.
    open: Vec<Id>,
    state: State,
    dropped: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// A modern server has asked: its request is over, and goes on with the client's answers.
    Parked,
    Done,
}

/// Whether the server may ask the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerRequests {
    /// A legacy question is answered with an error; a modern one ends the exchange.
    Refuse,
    Pass,
}

/// What the client is to hear of.
#[derive(Debug)]
pub enum Event {
    /// A notification, ready to be sent.
    Notify(Bytes),
    /// The server asks the client.
    ServerRequest(ServerRequest),
    /// The end; nothing comes after it.
    Done(ExchangeEnd),
}

/// A server's question to the client, as the server wrote it.
#[derive(Debug)]
pub enum ServerRequest {
    /// A legacy request. The answer goes to [`Exchange::answered`] under this id.
    Legacy { id: Id, message: Message },
    /// A modern `input_required` result. The exchange is parked until [`Exchange::resume`].
    InputRequired { message: Message },
}

/// How an exchange ends.
#[derive(Debug)]
pub enum ExchangeEnd {
    /// The server's answer: as it came, and with the client's id, ready to be sent. The pieces are sent
    /// one after the other; that of a long answer shares the memory of the message.
    Response {
        message: Message,
        body: [Bytes; 3],
    },
    Failed(Failure),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The client gave up; it hears nothing more.
    Cancelled,
    /// Nothing was sent: the server could not be reached, or rejected the request unread.
    Unsent,
    /// The server's connection ended. Whether it did the work is not known.
    Gone,
    TimedOut,
    /// An answer of a shape that the protocol does not have here.
    BadAnswer,
    /// The server asked something that the client is not to be asked.
    Asked,
    /// The answer has more bytes than may pass: so many, where that is known.
    TooLarge {
        size: Option<u64>,
    },
    /// The server answered, and there is no memory for the answer.
    Undeliverable,
}

/// What follows from one thing that happened.
#[derive(Debug, Default)]
#[must_use]
pub struct Step {
    pub event: Option<Event>,
    /// A message to send to the server.
    pub upstream: Option<Bytes>,
    /// A message of the server that is not about this request, such as a changed list.
    pub elsewhere: Option<Message>,
}

impl Exchange {
    /// `minted` is the id, and the progress token, that the server sees; it is used once for each
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
            // A modern client says in each request whether it wants to hear.
            wants_log: request.meta(meta::PROTOCOL_VERSION).is_none()
                || request.meta(meta::LOG_LEVEL).is_some(),
            questions,
            open: Vec::new(),
            state: State::Running,
            dropped: 0,
        }
    }

    /// Puts the minted id and token into the request.
    pub fn address<'m>(&self, edit: Edit<'m>) -> Edit<'m> {
        let edit = edit.id(&self.minted);
        if self.token.is_some() { edit.progress_token(&self.minted) } else { edit }
    }

    /// The id under which the server knows the request.
    pub fn minted(&self) -> &Id {
        &self.minted
    }

    /// The client's id.
    pub fn id(&self) -> Option<&Id> {
        self.id.as_ref()
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// How many messages were dropped: late ones, and ones that belong to nobody.
    pub fn dropped(&self) -> u32 {
        self.dropped
    }

    /// A message of the server that came for this request.
    pub fn upstream(&mut self, message: Message) -> Step {
        match message.kind() {
            Kind::Response | Kind::Error => self.answer(message),
            Kind::Notification => self.notification(message),
            Kind::Request => self.asked(message),
        }
    }

    /// The client gave up.
    pub fn cancelled(&mut self) -> Step {
        self.give_up(Failure::Cancelled)
    }

    /// The time for an answer is over.
    pub fn timed_out(&mut self) -> Step {
        self.give_up(Failure::TimedOut)
    }

    /// The request was not sent.
    pub fn unsent(&mut self) -> Step {
        self.fail(Failure::Unsent)
    }

    /// The server's connection ended.
    pub fn gone(&mut self) -> Step {
        self.fail(Failure::Gone)
    }

    /// The server's answer could not be read.
    pub fn unreadable(&mut self) -> Step {
        self.fail(Failure::BadAnswer)
    }

    /// The server's answer has more bytes than may pass: so many, where that is known.
    pub fn too_large(&mut self, size: Option<u64>) -> Step {
        self.fail(Failure::TooLarge { size })
    }

    /// The server answers, and there is no memory for the answer.
    pub fn undeliverable(&mut self) -> Step {
        self.fail(Failure::Undeliverable)
    }

    /// The client's answer to a legacy question.
    pub fn answered(&mut self, question: &Id, answer: &Message) -> Step {
        let known = self.open.iter().position(|open| open == question);
        let is_answer = matches!(answer.kind(), Kind::Response | Kind::Error);
        match known {
            Some(at) if self.state == State::Running && is_answer => {
                let id = self.open.swap_remove(at);
                Step { upstream: Some(answer.edit().id(&id).finish()), ..Step::default() }
            }
            _ => self.drop_one(),
        }
    }

    /// A parked exchange goes on: the request is sent again, with the answers and a new id.
    pub fn resume(&mut self, minted: u64) -> bool {
        let parked = self.state == State::Parked;
        if parked {
            self.minted = Id::number(minted);
            self.state = State::Running;
        }
        parked
    }

    fn answer(&mut self, message: Message) -> Step {
        // An error without an id, on a stream of this request's own, can only mean this request.
        let ours = match message.id() {
            Some(id) => *id == self.minted,
            None => message.kind() == Kind::Error,
        };
        if self.state != State::Running || !ours {
            return self.drop_one();
        }
        if self.era == Era::Modern
            && let Some(kind) = message.result_member("resultType")
        {
            if kind.is_str("input_required") && self.row.may_request_input {
                if self.questions == ServerRequests::Refuse {
                    return self.fail(Failure::Asked);
                }
                self.state = State::Parked;
                return Step::event(Event::ServerRequest(ServerRequest::InputRequired { message }));
            }
            if !kind.is_str("complete") {
                return self.fail(Failure::BadAnswer);
            }
        }
        self.state = State::Done;
        let body = match &self.id {
            Some(id) => message.edit().id(id).finish_shared(),
            None => [message.body().clone(), Bytes::new(), Bytes::new()],
        };
        Step::event(Event::Done(ExchangeEnd::Response { message, body }))
    }

    fn notification(&mut self, message: Message) -> Step {
        match message.method().as_deref() {
            Some("notifications/progress") => {
                let ours = message.progress_token().is_some_and(|token| token == self.minted);
                match &self.token {
                    Some(token) if ours && self.state == State::Running => {
                        let body = message.edit().progress_token(token).finish();
                        Step::event(Event::Notify(body))
                    }
                    _ => self.drop_one(),
                }
            }
            Some("notifications/message") if self.wants_log && self.state == State::Running => {
                Step::event(Event::Notify(message.into_body()))
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
        if self.state != State::Running || !may || server_request(&method).is_none() {
            self.dropped += 1;
            return reply(error_body(Some(&id), code::METHOD_NOT_FOUND, "not available", None));
        }
        if self.open.contains(&id) {
            return self.drop_one();
        }
        self.open.push(id.clone());
        Step::event(Event::ServerRequest(ServerRequest::Legacy { id, message }))
    }

    /// Ends before the server did, and tells it so.
    fn give_up(&mut self, failure: Failure) -> Step {
        let was_running = self.state == State::Running;
        let mut step = self.fail(failure);
        if was_running {
            let mut params = b"{\"requestId\":".to_vec();
            params.extend_from_slice(self.minted.raw());
            params.push(b'}');
            step.upstream = Some(request_body(None, "notifications/cancelled", Some(&params)));
        }
        step
    }

    fn fail(&mut self, failure: Failure) -> Step {
        if self.state == State::Done {
            return Step::default();
        }
        self.state = State::Done;
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

/// The id of the request that a `notifications/cancelled` is about.
pub fn cancelled_request(message: &Message) -> Option<Id> {
    message.param("requestId").and_then(|raw: Raw<'_>| Id::of(raw))
}
