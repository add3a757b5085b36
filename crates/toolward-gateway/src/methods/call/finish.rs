//! Stage 6, finish: the outcome goes into the audit log, then the response to the client.

use bytes::Bytes;
use toolward_wire::exchange::{ExchangeEnd, Failure};
use toolward_wire::jsonrpc_error::code;
use toolward_wire::{Era, Kind, Message};

use super::End;
use super::forward::{Done, DoneBy};
use crate::audit::Outcome;
use crate::methods::events::outcome;
use crate::methods::request::Envelope;
use crate::responses::{self, Answer, Marks};

pub(super) fn finish(envelope: &Envelope, done: Done<'_>) -> End {
    let id = &envelope.id;
    let Done { forwarded, exposed, max_bytes, end } = done;
    let server = forwarded.server.name();
    let (answer, name, error_code) = match end {
        DoneBy::MetaTool(Ok((answer, name))) => (Some(answer), name, None),
        DoneBy::MetaTool(Err(error)) => (Some(responses::not_recorded(id, &error)), "error", None),
        DoneBy::Cancelled => (None, outcome(Failure::Cancelled), None),
        DoneBy::Unreachable(why) => {
            let answer = why.public().response(id, server);
            (Some(answer), outcome(Failure::Unsent), Some(code::INTERNAL_ERROR.into()))
        }
        DoneBy::Server(ExchangeEnd::Response { message, body }, spoken) => {
            match translate(envelope, &message, body, spoken) {
                Some((answer, name)) => {
                    let room = forwarded.room.clone();
                    room.shrink_to(answer.body.len());
                    (Some(Answer { room: Some(room), ..answer }), name, message.error_code())
                }
                None => failed(envelope, server, Failure::Asked),
            }
        }
        DoneBy::Server(ExchangeEnd::Failed(failure @ Failure::TooLarge { size }), _) => {
            let answer = responses::too_large(id, envelope.client.era(), &exposed, max_bytes, size);
            (Some(answer), outcome(failure), None)
        }
        DoneBy::Server(ExchangeEnd::Failed(failure), _) => failed(envelope, server, failure),
    };
    let bytes_out = answer.as_ref().map_or(0, |answer| answer.body.len());
    forwarded.end(Outcome { name, error_code, bytes_out });
    answer
}

/// The response of a server as the client gets it, and the outcome; `None` if it asks the client something.
fn translate(
    envelope: &Envelope,
    message: &Message,
    body: [Bytes; 3],
    spoken: Era,
) -> Option<(Answer, &'static str)> {
    let era = envelope.client.era();
    let marks = Marks::of(message);
    if marks.question {
        return None;
    }
    let changed = responses::answer(&envelope.id, era, spoken, message, marks);
    let body = changed.unwrap_or_else(|| body.into());
    let name = match (message.kind(), marks.is_error) {
        (Kind::Error, _) => "error",
        (_, true) => "tool-error",
        _ => "ok",
    };
    let status = responses::status_of(era, message);
    Some((Answer { status, ..body.into() }, name))
}

/// The response to a call that failed at its server, and the outcome.
fn failed(
    envelope: &Envelope,
    server: &str,
    failure: Failure,
) -> (Option<Answer>, &'static str, Option<i64>) {
    let answer = responses::failed(&envelope.id, server, failure);
    let error_code = answer.as_ref().map(|_| code::INTERNAL_ERROR.into());
    (answer, outcome(failure), error_code)
}
