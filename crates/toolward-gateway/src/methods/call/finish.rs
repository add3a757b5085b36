//! Stage 6, finish: writes the outcome to the audit log, then returns the response to the client.

use bytes::Bytes;
use toolward_wire::exchange::{ExchangeEnd, Failure};
use toolward_wire::jsonrpc_error::code;
use toolward_wire::method::PolicySubject;
use toolward_wire::{Era, Id, Kind, MAX_RESPONSE_BYTES, Message, Sender};

use super::End;
use super::contents::{self, Filtered};
use super::forward::{Done, DoneBy};
use super::tasks;
use crate::audit::Outcome;
use crate::context::Context;
use crate::made_tasks::MadeTask;
use crate::methods::events::outcome;
use crate::methods::request::Envelope;
use crate::responses::{self, Answer, Body, Marks};

pub(super) fn finish(context: &Context, envelope: &Envelope, done: Done<'_>) -> End {
    let id = &envelope.id;
    let Done { forwarded, exposed, max_bytes, completes, task_of, streamed, end } = done;
    let server = forwarded.server.name();
    let about = (envelope.row.subject, &*exposed);
    let (answer, name, error_code) = match end {
        DoneBy::MetaTool(Ok((answer, name))) => (Some(answer), name, None),
        DoneBy::MetaTool(Err(error)) => (Some(responses::not_recorded(id, &error)), "error", None),
        DoneBy::InputRequired(body) => (Some(body.into()), "input-required", None),
        DoneBy::Declined(why) => {
            let answer = responses::question_declined(id, envelope.client.era(), about, why.0);
            (Some(answer), outcome(Failure::Asked), None)
        }
        DoneBy::Server(ExchangeEnd::Failed(failure @ Failure::Asked), _) => {
            let why = "it is unclear which client the request is for";
            let answer = responses::question_declined(id, envelope.client.era(), about, why);
            (Some(answer), outcome(failure), None)
        }
        // `input_required` is handled before it comes here.
        DoneBy::Server(ExchangeEnd::InputRequired(_), _) => {
            failed(envelope, server, Failure::Asked)
        }
        DoneBy::Cancelled => (None, outcome(Failure::Cancelled), None),
        DoneBy::Unreachable(why) => {
            let answer = why.public().response(id, server);
            (Some(answer), outcome(Failure::Unsent), Some(code::INTERNAL_ERROR.into()))
        }
        DoneBy::Server(ExchangeEnd::Response { message, body }, spoken) => {
            let (message, body) =
                match contents::filter(envelope, (server, &exposed), completes.as_ref(), message) {
                    Filtered::Unchanged(message) => (message, body.into()),
                    Filtered::Changed(message) => {
                        let body = message.edit().id(id).remove_own_meta().finish_shared();
                        (message, body.into())
                    }
                    Filtered::Malformed => {
                        let (answer, name, error_code) =
                            failed(envelope, server, Failure::BadAnswer);
                        let bytes_out = answer.as_ref().map_or(0, |answer| answer.body.len());
                        forwarded.end(Outcome { name, error_code, bytes_out });
                        return answer;
                    }
                    Filtered::NotFound(message) => {
                        let era = envelope.client.era();
                        let answer =
                            responses::resource_not_found(id, era, &exposed, forwarded.id());
                        let (error_code, bytes_out) = (message.error_code(), answer.body.len());
                        forwarded.end(Outcome { name: "not-found", error_code, bytes_out });
                        return Some(answer);
                    }
                };
            let same_era = spoken == envelope.client.era();
            if let Some(tool) = task_of.as_deref().filter(|_| same_era)
                && let Some(created) =
                    tasks::created(context, &envelope.client, (server, tool), &message)
            {
                let tasks::CreatedTask { body, handle, task } = created;
                let made = MadeTask { handle, server: forwarded.server.id, task };
                context.tasks.remember(&envelope.client.caller, made, forwarded.room.account());
                let body = with_id(id, body);
                forwarded.end(Outcome { name: "task", error_code: None, bytes_out: body.len() });
                return Some(body.into());
            }
            let about = |message: &Message| tasks::about(&exposed, message).and_then(parsed);
            let is_task = envelope.row.subject == PolicySubject::Task;
            let (message, body) = match is_task.then(|| about(&message)).flatten() {
                Some(message) => {
                    let body = with_id(id, message.body().clone());
                    (message, body)
                }
                None => (message, body),
            };
            context.links.remember(&envelope.client.caller, forwarded.server.id, &message);
            match translate(envelope, &message, body, spoken) {
                Some((answer, name)) => {
                    let room = forwarded.room.clone();
                    room.shrink_to(answer.body.len());
                    let streamed = streamed && same_era;
                    let answer = Answer { room: Some(room), streamed, ..answer };
                    (Some(answer), name, message.error_code())
                }
                None => failed(envelope, server, Failure::Asked),
            }
        }
        DoneBy::Server(ExchangeEnd::Failed(failure @ Failure::TooLarge { size }), _) => {
            let answer = responses::too_large(id, envelope.client.era(), about, max_bytes, size);
            (Some(answer), outcome(failure), None)
        }
        DoneBy::Server(ExchangeEnd::Failed(failure), _) => failed(envelope, server, failure),
    };
    let bytes_out = answer.as_ref().map_or(0, |answer| answer.body.len());
    forwarded.end(Outcome { name, error_code, bytes_out });
    answer
}

/// A response of a server with the client's id.
fn with_id(id: &Id, body: Bytes) -> Body {
    match parsed(body.clone()) {
        Some(message) => message.edit().id(id).remove_own_meta().finish_shared().into(),
        None => body.into(),
    }
}

fn parsed(body: Bytes) -> Option<Message> {
    let longest = MAX_RESPONSE_BYTES.max(body.len());
    Message::parse(body, longest, Sender::Server).ok()
}

/// The response of a server as the client gets it, and the outcome; `None` if it asks the client something.
fn translate(
    envelope: &Envelope,
    message: &Message,
    body: Body,
    spoken: Era,
) -> Option<(Answer, &'static str)> {
    let era = envelope.client.era();
    let marks = Marks::of(message);
    // The requests of a task were decided already.
    if marks.question && envelope.row.subject != PolicySubject::Task {
        return None;
    }
    let changed = responses::answer(&envelope.id, (era, spoken), envelope.row, message, marks);
    let body = changed.unwrap_or(body);
    let name = match (message.kind(), marks.is_error) {
        (Kind::Error, _) => "error",
        (_, true) => "tool-error",
        _ => "ok",
    };
    let status = responses::status_of(era, message);
    let error_type = match name {
        "ok" => None,
        "tool-error" => Some("tool_error"),
        _ => Some("server_error"),
    };
    Some((Answer { status, error_type, ..body.into() }, name))
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
