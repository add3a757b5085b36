//! HTTP responses, before they are written.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use toolward_wire::http::RequestHead;

pub use super::frame::Frame;
use crate::budget::Reservation;
use crate::in_flight::Cancel;
use crate::responses::{Answer, Body};

/// The response to an HTTP request.
pub struct Response {
    pub status: u16,
    pub fields: Vec<(&'static str, String)>,
    pub content: Content,
    /// A stream ends at this time, in seconds since the Unix epoch.
    pub until: Option<u64>,
    /// A stream ends when this credential is no longer accepted.
    pub ticket: Option<Ticket>,
    /// Cancels the request of a stream, if the stream ends for that reason.
    pub cancel: Option<Arc<Cancel>>,
    /// Why the request was rejected, if it has no audit record of its own; such requests are counted.
    pub unrecorded: Option<&'static str>,
    /// The memory of the content, reserved until it is written.
    pub room: Option<Arc<Reservation>>,
}

pub enum Content {
    Empty,
    Text(&'static str),
    Json(Body),
    /// A body of this media type.
    Bytes(&'static str, Bytes),
    /// Server-sent events, with their reserved memory.
    Stream(mpsc::Receiver<Frame>),
}

impl Response {
    pub fn new(status: u16, content: Content) -> Response {
        let (fields, until, ticket, cancel, unrecorded, room) = Default::default();
        Response { status, fields, content, until, ticket, cancel, unrecorded, room }
    }

    pub fn empty(status: u16) -> Response {
        Response::new(status, Content::Empty)
    }

    /// A rejection that is counted with its reason.
    pub fn refused(status: u16, why: &'static str) -> Response {
        Response { unrecorded: Some(why), ..Response::empty(status) }
    }

    pub fn field(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.fields.push((name, value.into()));
        self
    }
}

/// The credentials of a caller, with which it is authenticated again while a stream is open or a call is held.
#[derive(Debug)]
pub struct Ticket {
    pub(super) agent: Option<Arc<str>>,
    pub(super) authorization: Option<String>,
    pub(super) path: String,
}

impl Ticket {
    /// Attaches the request's credentials to a stream, because it outlives its request.
    pub(super) fn keep(response: Response, agent: Option<Arc<str>>, head: RequestHead) -> Response {
        if !matches!(response.content, Content::Stream(_)) {
            return response;
        }
        Response { ticket: Some(Ticket::of(agent, &head)), ..response }
    }

    pub(super) fn of(agent: Option<Arc<str>>, head: &RequestHead) -> Ticket {
        let authorization = head.headers.get("authorization").map(String::from);
        Ticket { agent, authorization, path: head.path.clone() }
    }
}

pub(super) fn refuse(status: u16, why: &'static str) -> Box<Response> {
    Box::new(Response::refused(status, why))
}

pub(super) fn json(answer: Answer) -> Response {
    let (unrecorded, room) = (answer.unrecorded, answer.room);
    let response = Response::new(answer.status, Content::Json(answer.body));
    let response = Response { unrecorded, room, ..response };
    match answer.retry_after {
        // `Retry-After` has whole seconds: rounded up.
        Some(wait) => {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            response.field("Retry-After", seconds.to_string())
        }
        None => response,
    }
}
